"""The judge of streams: what programs were promised when nodes keep the history of a topic for them.

It is told what programs ask for and get, and what nodes hand out, and knows nothing of the code behind it. It checks:

* ``positions``: a position names the same message for everybody and for ever; a message has one position, and it is
  the same on all disks.
* ``receipt``: a message whose receipt has come is in the history for good, at the position of the receipt, on a
  majority of the replicas, or on all of them if all were asked for.
* ``again``: a message is not handed out for a consumer for which it was acknowledged; and a leader never
  uses the number of a delivery twice.
* ``key order``, ``causal``: in these modes a message is handed out only when the earlier ones of its key are done, or
  in the hands of the same member; or when all that it follows are done. And in the history no message comes
  before one that it follows.
* ``lost``: in the end all accepted messages are in the history, and every consumer has done all of them, but for those
  that retention has removed; consumers were told how many of these they have missed. A message without a receipt may go
  with the disk of a replica, if no other replica has it then.
* ``stuck``: in the end a message gets its receipt, and consumers come to the end.
* ``error``: nothing is raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from antiphon.audit.clients import CAUSAL, ERROR, LOST, STUCK

POSITIONS: Final = "positions"
RECEIPT: Final = "receipt"
AGAIN: Final = "again"
KEYS: Final = "key order"
STREAM_KINDS: Final = (ERROR, POSITIONS, RECEIPT, AGAIN, KEYS, CAUSAL, LOST, STUCK)


class StreamMessageRecord:
    """A message, as its program knows it."""

    def __init__(self, program: int, key: str, order: str, past: frozenset[str], is_owed: bool) -> None:
        self.program = program
        self.key = key
        self.order = order
        self.past = past
        # Whether the topic had its history when the program asked for the message.
        self.is_owed = is_owed
        self.is_accepted = False


class ConsumerRecord:
    """A consumer: what was handed out for it, and what is done."""

    def __init__(self) -> None:
        # The member that got a message last.
        self.holders: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        # Those that somebody has asked to acknowledge, or that were buried: they may be done.
        self.may_be_done: set[int] = set()
        self._asked: dict[int, int] = {}
        self._done: set[int] = set()
        # Those that were done before they were removed.
        self.done_in_time: set[int] = set()
        # By leader and position.
        self.deliveries: dict[tuple[tuple[int, int], int], int] = {}
        self.missed = 0

    def asked(self, position: int) -> None:
        """A node hears that a message is done."""
        self._asked[position] = self._asked.get(position, 0) + 1
        self.may_be_done.add(position)

    def answered(self, position: int, counts: bool, is_kept: bool) -> None:
        """A node says whether that counts. A message that nobody else reports as done may be handed out again."""
        self._asked[position] -= 1
        if counts:
            self._done.add(position)
            if is_kept:
                self.done_in_time.add(position)
        elif not self._asked[position] and position not in self._done:
            self.may_be_done.discard(position)

    def buried(self, position: int) -> None:
        """A node has published a dead letter."""
        self._done.add(position)
        self.may_be_done.add(position)


class StreamsJudge:
    """Judges one run, in which one topic has a history. ``modes`` are those of its consumers by name."""

    def __init__(self, modes: Mapping[str, str], replicas: int) -> None:
        self._modes = modes
        self._replicas = replicas
        self._messages: dict[str, StreamMessageRecord] = {}
        self._seen: dict[int, set[str]] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._receipts: dict[str, tuple[int, int]] = {}
        self._consumers: dict[str, ConsumerRecord] = {name: ConsumerRecord() for name in modes}
        self._dead: set[int] = set()
        self._is_created = False
        # Whether messages without a receipt may be missing in the history.
        self.may_lack = False
        # Those that a disk took along, of which no other replica had them.
        self._gone: set[str] = set()
        # The first position that is kept, as far as nodes have said.
        self.earliest = 0
        self.violations: dict[str, int] = {}
        self.examples: list[str] = []
        self.handed_out = 0

    def violation(self, kind: str, about: str) -> None:
        """A promise is broken."""
        self.violations[kind] = self.violations.get(kind, 0) + 1
        if len(self.examples) < 5:
            self.examples.append(f"{kind}: {about}")

    @property
    def asked_for(self) -> int:
        """How many messages programs have asked for."""
        return len(self._messages)

    # What programs do.

    def created(self) -> None:
        """A program was told that the topic has a history."""
        self._is_created = True

    def asked(self, name: str, program: int, key: str, order: str) -> None:
        """A program asks for a message."""
        past = self._seen.setdefault(program, set())
        self._messages[name] = StreamMessageRecord(program, key, order, frozenset(past), self._is_created)
        past.add(name)

    def saw(self, name: str, program: int) -> None:
        """A program is shown a message."""
        if name not in self._messages:
            self.violation(POSITIONS, f"program {program} was shown {name}, for which nobody has asked")
        self._seen.setdefault(program, set()).add(name)

    def accepted(self, name: str) -> None:
        """A message is accepted."""
        self._messages[name].is_accepted = True

    def refused(self, name: str) -> None:
        """A message is refused. Those that its program has asked for meanwhile do not name what it followed."""
        record = self._messages[name]
        for other in self._messages.values():
            if other.program == record.program and name in other.past:
                other.past -= record.past

    def died(self, program: int) -> None:
        """A program has ended."""
        self._dead.add(program)

    def placed(self, name: str, generation: int, position: int) -> None:
        """Somebody is told the position of a message."""
        place = (generation, position)
        if self._positions.setdefault(name, place) != place:
            self.violation(POSITIONS, f"{name} has position {place} and {self._positions[name]}")
        if self._names.setdefault(place, name) != name:
            self.violation(POSITIONS, f"position {place} is that of {name} and of {self._names[place]}")

    def receipt(self, name: str, generation: int, position: int, disks: int, acks: str) -> None:
        """The receipt of a message comes."""
        self.placed(name, generation, position)
        self._receipts[name] = (generation, position)
        least = self._replicas if acks == "all" else self._replicas // 2 + 1
        if disks < least:
            self.violation(RECEIPT, f"{name} has its receipt with acks={acks} and is on {disks} disks")

    def took(self, consumer: str, program: int, generation: int, position: int, name: str) -> None:
        """A program takes a message of a consumer."""
        self.placed(name, generation, position)
        self.saw(name, program)

    def acknowledged(self, consumer: str, position: int) -> None:
        """A program has acknowledged a message, and was told that it counts."""
        self._consumers[consumer].acknowledged.add(position)

    def told_missed(self, consumer: str, total: int) -> None:
        """A program is told how many messages its consumer has missed."""
        record = self._consumers[consumer]
        record.missed = max(record.missed, total)

    # What nodes do.

    def asked_to_acknowledge(self, consumer: str, positions: Sequence[int]) -> None:
        """A node hears that messages are done."""
        for position in positions:
            self._consumers[consumer].asked(position)

    def answered(self, consumer: str, positions: Sequence[int], counts: bool) -> None:
        """A node answers that."""
        for position in positions:
            self._consumers[consumer].answered(position, counts, position >= self.earliest)

    def buried(self, consumer: str, position: int) -> None:
        """A node has published a dead letter."""
        self._consumers[consumer].buried(position)

    def begins_at(self, earliest: int) -> None:
        """A node that leads says that retention has removed everything before a position."""
        self.earliest = max(self.earliest, earliest)

    def handed(
        self,
        consumer: str,
        member: int,
        generation: int,
        position: int,
        delivery: int,
        name: str,
        leader: tuple[int, int],
    ) -> None:
        """A node hands out a message; ``leader`` is its life, and the term in which it leads."""
        self.handed_out += 1
        self.placed(name, generation, position)
        record = self._consumers[consumer]
        if position in record.acknowledged:
            self.violation(AGAIN, f"{name} is handed out for {consumer}, for which it was acknowledged")
        if record.deliveries.get((leader, position), 0) >= delivery:
            self.violation(AGAIN, f"{name} is handed out for {consumer} by one leader twice as delivery {delivery}")
        record.deliveries[leader, position] = delivery
        asked = self._messages.get(name)
        if asked is None:
            self.violation(POSITIONS, f"{name} is handed out, and nobody has asked for it")
        elif self._modes[consumer] == "key":
            self._look_at_key(consumer, record, asked.key, generation, position, member)
        elif self._modes[consumer] == "causal":
            self._look_at_past(consumer, record, asked, generation, position, name)
        record.holders[position] = member

    def _look_at_key(
        self, consumer: str, record: ConsumerRecord, key: str, generation: int, position: int, member: int
    ) -> None:
        for earlier in range(self.earliest, position):
            name = self._names.get((generation, earlier))
            is_before = name is not None and self._messages[name].key == key
            is_mine = record.holders.get(earlier) == member
            if is_before and earlier not in record.may_be_done and not is_mine:
                self.violation(KEYS, f"position {position} of {consumer} is handed out before {earlier} of its key")

    def _look_at_past(
        self,
        consumer: str,
        record: ConsumerRecord,
        asked: StreamMessageRecord,
        generation: int,
        position: int,
        name: str,
    ) -> None:
        for other in asked.past:
            place = self._positions.get(other)
            if place is None or place[0] != generation or not self.earliest <= place[1] < position:
                continue
            if place[1] not in record.may_be_done:
                self.violation(CAUSAL, f"{name} is handed out for {consumer} before {other}, which it follows")

    def disk_lost(self, had: Set[str], others: Set[str]) -> None:
        """The disk of a replica is gone with the messages that it ``had``; ``others`` are at other replicas.

        Only a receipt promises a message against that. Programs and nodes that keep no history may have it still.
        """
        self._gone |= had - others

    # The verdict.

    def replica_holds(self, place: str, messages: Mapping[int, str], generation: int) -> None:
        """The disk of a replica holds these messages, by position."""
        for position, name in messages.items():
            known = self._names.get((generation, position))
            if known is not None and known != name:
                self.violation(POSITIONS, f"{place} has {name} at position {position}, others {known}")
        for name, (made, position) in self._receipts.items():
            is_kept = made == generation and position >= self.earliest
            if is_kept and messages.get(position) != name:
                self.violation(RECEIPT, f"{place} does not hold {name}, whose receipt has come for {position}")

    def is_all_done(self, end: int) -> bool:
        """Whether every consumer has done what is kept."""
        return all(
            position in each.may_be_done for each in self._consumers.values() for position in range(self.earliest, end)
        )

    def has_last_word(self, name: str) -> None:
        """A message that was asked for when all faults were over must have its receipt."""
        if name not in self._receipts:
            self.violation(STUCK, f"{name}, asked for in the end, has no receipt")

    def judge(self, history: Mapping[int, str], earliest: int, end: int, generation: int) -> None:
        """Everything is over: the history holds these messages, from the earliest position to the end."""
        self.earliest = earliest
        for position, name in history.items():
            self.placed(name, generation, position)
        # It was read before it was told where it begins.
        missing = [position for position in range(earliest, end) if position not in history]
        if missing:
            self.violation(LOST, f"the history from {earliest} to {end} does not have {missing[0]}")
        self._look_for_lost(generation)
        self._look_at_order(history)
        for name, record in self._consumers.items():
            self._look_at_consumer(name, record, earliest, end)

    def _look_for_lost(self, generation: int) -> None:
        for name, asked in self._messages.items():
            is_there = name in self._positions
            if name in self._receipts and self._receipts[name][0] != generation:
                self.violation(RECEIPT, f"{name} has a receipt of another history")
            # A program that ended cannot hand in again what its node took along.
            is_owed = asked.is_owed and asked.is_accepted and asked.program not in self._dead and not self.may_lack
            if is_owed and not is_there and name not in self._gone and self.earliest == 0:
                self.violation(LOST, f"{name} was accepted and is not in the history")

    def _look_at_order(self, history: Mapping[int, str]) -> None:
        """Every message comes behind all that it follows, where its order is causal or total."""
        places = {name: position for position, name in history.items()}
        for name, position in places.items():
            asked = self._messages.get(name)
            if asked is None or asked.order not in ("causal", "total"):
                continue
            for other in asked.past:
                is_ordered = other in places and self._messages[other].order in ("causal", "total")
                if is_ordered and places[other] > position:
                    self.violation(CAUSAL, f"{name} has its position before {other}, which it follows")

    def _look_at_consumer(self, name: str, record: ConsumerRecord, earliest: int, end: int) -> None:
        left = [position for position in range(earliest, end) if position not in record.may_be_done]
        if left:
            self.violation(STUCK, f"{len(left)} messages of {name} are not done, the first at position {left[0]}")
        gone = set(range(earliest))
        if record.missed > len(gone - record.done_in_time):
            self.violation(LOST, f"{name} is told of {record.missed} missed messages; fewer were removed")
        handed = {position for position in record.holders if position < earliest}
        unseen = len(handed - record.may_be_done)
        if record.missed < unseen:
            self.violation(LOST, f"{name} is told of {record.missed} missed messages; {unseen} were removed")
