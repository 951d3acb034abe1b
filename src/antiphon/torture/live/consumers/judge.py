"""The judge of a live campaign with consumers: compares what programs wrote down with the history at the end.

* ``receipt``: a message with a receipt is in the history, at the position of the receipt, on a majority of the disks.
* ``twice``: a message is in the history once.
* ``again``: after an acknowledgement has returned, the message is not handed out anew: no delivery has a higher number.
* ``key order``: with mode ``key`` a member gets a message when the earlier ones of its key are acknowledged, or were
  handed to the same member.
* ``causal order``: with mode ``causal`` a member gets a message when the one before it of the same author is.
* ``not done``: in the end every message of the history is acknowledged for every consumer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from antiphon.torture.live.consumers.records import ACKED, ACKING, ASKED, GOT, RECEIPT, REFUSED, WorkRecord

CONSUMER_CHECKS: Final = ("receipt", "twice", "again", "key order", "causal order", "not done")
EXAMPLES: Final = 10

MAJORITY: Final = 2
"""Of three replicas."""


class HistoryAtEnd:
    """The history as it was read at the end: names by position."""

    def __init__(self, generation: int, names: Mapping[int, str]) -> None:
        self.generation = generation
        self.names = names
        # By position: the message before it of the same author.
        self.before: dict[int, int] = {}
        last: dict[str, int] = {}
        for position in sorted(names):
            author = author_of(names[position])
            if author in last:
                self.before[position] = last[author]
            last[author] = position


def author_of(name: str) -> str:
    """The author in the name of a message."""
    return name.rpartition(":")[0]


class ConsumerJudge:
    """Judges one campaign; ``modes`` are those of its consumers by name."""

    def __init__(self, modes: Mapping[str, str], history: HistoryAtEnd) -> None:
        self._modes = modes
        self._history = history
        self._keys: dict[str, str] = {}
        # By consumer: how many acknowledgements of a position have begun and were not refused, and the delivery whose
        # acknowledgement has returned.
        self._acking: dict[str, Counter[int]] = {name: Counter() for name in modes}
        self._acked: dict[str, dict[int, int]] = {name: {} for name in modes}
        # By consumer and position: the members that have got it.
        self._members: dict[tuple[str, int], set[str]] = {}
        self._by_key: dict[str, list[int]] = {}
        self.violations = dict.fromkeys(CONSUMER_CHECKS, 0)
        self.examples: list[str] = []
        self.counts: Counter[str] = Counter()

    def _violation(self, kind: str, about: str) -> None:
        self.violations[kind] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {about}")

    def judge(self, records: Iterable[WorkRecord]) -> None:
        """Look at everything that was written down, in the order of time."""
        lines = list(records)
        for record in lines:
            if record.what == ASKED:
                name, key = (str(each) for each in record.fields)
                self._keys[name] = key
        for position, name in sorted(self._history.names.items()):
            self._by_key.setdefault(self._keys.get(name, ""), []).append(position)
        for name, count in Counter(self._history.names.values()).items():
            if count > 1:
                self._violation("twice", f"{name} is in the history {count} times")
        for record in lines:
            self._look_at(record)
        for consumer in self._modes:
            missing = [each for each in self._history.names if self._acking[consumer][each] <= 0]
            if missing:
                self._violation("not done", f"{consumer}: {len(missing)} messages, the first at {min(missing)}")

    def _look_at(self, record: WorkRecord) -> None:
        self.counts[record.what] += 1
        fields = record.fields
        if record.what == RECEIPT:
            self._receipt(str(fields[0]), int(fields[1]), int(fields[2]), int(fields[3]))
        elif record.what == ACKING:
            self._acking[str(fields[0])][int(fields[2])] += 1
        elif record.what == REFUSED:
            self._acking[str(fields[0])][int(fields[2])] -= 1
        elif record.what == ACKED:
            acked, position, delivery = self._acked[str(fields[0])], int(fields[2]), int(fields[3])
            acked[position] = max(acked.get(position, 0), delivery)
        elif record.what == GOT:
            self._got(str(fields[0]), str(fields[1]), int(fields[2]), int(fields[3]))

    def _receipt(self, name: str, generation: int, position: int, disks: int) -> None:
        found = self._history.names.get(position)
        if (found, self._history.generation) != (name, generation):
            self._violation("receipt", f"{name} had position {generation}-{position}, where {found} is")
        if disks < MAJORITY:
            self._violation("receipt", f"{name} is on {disks} disks")

    def _got(self, consumer: str, member: str, position: int, delivery: int) -> None:
        acked = self._acked[consumer].get(position)
        if acked is not None and delivery > acked:
            self._violation("again", f"{consumer}: {position} in delivery {delivery}, acknowledged in {acked}")
        self._members.setdefault((consumer, position), set()).add(member)
        mode, acking = self._modes[consumer], self._acking[consumer]
        if mode == "causal":
            before = self._history.before.get(position)
            if before is not None and acking[before] <= 0:
                self._violation("causal order", f"{consumer}: {position} before {before} is done")
        elif mode == "key":
            key = self._keys.get(self._history.names.get(position, ""), "")
            for earlier in self._by_key.get(key, ()):
                if earlier >= position:
                    break
                if acking[earlier] <= 0 and member not in self._members.get((consumer, earlier), ()):
                    self._violation("key order", f"{consumer}: {position} at {member} before {earlier} is done")
