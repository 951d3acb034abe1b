"""From what applications wrote down to traces that an audit judges.

An application is what a node is in other traces, and its messages on a topic are numbered without holes. Two traces are
made of the same journals, because an application asks at one moment and sees its own message at another:

* *asked*: everything starts, and counts as seen by its own publisher, when the application asked for it. That is when
  it follows what the application had seen, so causal order and completeness are judged here.
* *shown*: everybody sees everything when it was shown to it. The order of what is shown is judged here: once, in the
  order of its publisher, and in one total order.

Subscribers whose policy lets messages be dropped are in traces of their own, in which everything is judged but
completeness; how much they missed is counted (:mod:`antiphon.torture.live.dropping`). The largest time that publishers
waited while nothing was done to nodes is judged too.

What was not accepted and nobody has seen was not published. Where an application was told that messages may be missing,
its subscription ends and begins again there: nothing that was under way is owed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.api.topic_names import key_number
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.torture.live.crowd import DROPPING_NAME, FIRST_IDENTITY
from antiphon.torture.live.dropping import Droppings, Name, Published, visits_in
from antiphon.torture.live.journal import NO_KEYS, Entry, read_journal
from antiphon.trace.recorder import DELIVER, PUBLISH, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, Recorder
from antiphon.trace.store import TraceWriter

COMPLETENESS: Final = "completeness"
ASKED_CHECKS: Final = (COMPLETENESS, "causal", "validity", "membership")
SHOWN_CHECKS: Final = ("duplicates", "fifo", "total")
DURABILITY: Final = "durability"
"""What a node has accepted is on its disk when it is killed, as far as the disk has kept what was synced."""

CONTENT: Final = "content"
"""What comes is what was published, from its first byte to its last."""

DROPS: Final = "drops"
"""Who misses messages by its own policy is told how many."""

STALLS: Final = "stalls"
"""Publishers are answered soon, as long as nothing but slow subscribers could keep them."""

CHECKS: Final = (*ASKED_CHECKS, *SHOWN_CHECKS, DURABILITY, CONTENT, DROPS, STALLS)

DIES_SOON_US: Final = 60_000_000
"""What a node has accepted or shown may be lost with it for so long; what it carried before must be known elsewhere."""

INVENTED: Final = 1 << 30
"""Added to the numbers of messages that nobody has asked for."""

ABOUT_NAME: Final = "campaign.json"
"""The file that says what must be known of a campaign to judge it."""


class Verdict(Protocol):
    """What an audit says of one promise."""

    @property
    def violations(self) -> int:
        """How often it was broken."""

    @property
    def example(self) -> str | None:
        """How, the first time."""


class Audited(Protocol):
    """What an audit says of traces."""

    @property
    def messages(self) -> int:
        """How many there are."""

    @property
    def deliveries(self) -> int:
        """How often one was delivered."""

    @property
    def checks(self) -> Mapping[str, Verdict]:
        """The promises."""

    @property
    def judge(self) -> str:
        """Who judged."""


Audit = Callable[[list[Path]], Audited]
"""Judges traces; whoever starts a campaign says who that is."""


class Circumstances(msgspec.Struct, frozen=True):
    """What must be known of a campaign besides what was written down by those who took part."""

    fabric: str
    killed: list[tuple[str, int]] = []
    """The doors of nodes that were killed, with the time in microseconds."""
    may_lose_with_node: bool = False
    """Whether what a node has accepted may be lost with it."""
    is_whole: bool = True
    """Whether the cluster came to rest; otherwise what is missing may have been on its way."""
    disturbed: list[tuple[int, int]] = []
    """From when to when something was done to nodes, or had been and they had not recovered, in microseconds."""
    wait_seconds: float | None = None
    """So long publishers may wait at other times; for ever if that is not known."""

    def write(self, directory: Path) -> None:
        """Keep it beside what was written down."""
        (directory / ABOUT_NAME).write_bytes(msgspec.json.encode(self))


def read_circumstances(directory: Path) -> Circumstances:
    """What was kept of a campaign."""
    path = directory / ABOUT_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Circumstances)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} does not say what happened in a campaign: {error}; keep the whole directory"
        ) from error


@dataclass(slots=True)
class Asked:
    """A message that an application asked for, and what became of it."""

    order: str
    keys: list[int]
    asked_us: int = 0
    is_accepted: bool = False
    is_seen: bool = False
    is_seen_by_itself: bool = False
    is_safe: bool = False
    """Whether it was seen at a node that did not die soon after."""
    dies_with_node: bool = False
    """Whether the node that accepted it died soon after."""
    door: str = ""
    accepted_us: int = 0
    connected_us: int = 0
    """By which node it was accepted, when, and since when its application was connected with that."""
    number: int = 0
    """Among those of its application that were published; 0 for one that was not."""


@dataclass
class Judgement:
    """What came of it."""

    asked: int = 0
    accepted: int = 0
    deliveries: int = 0
    gone_with_node: int = 0
    judge: str = ""
    subscribers: int = 0
    """How many came in crowds."""
    dropped: int = 0
    """Messages that these were told to have been dropped."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """What the audit says of each promise that it judges."""
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHECKS, 0))
    examples: list[str] = field(default_factory=list)

    def add(self, name: str, violations: int, example: str) -> None:
        """A promise was broken so often, and once like that."""
        self.violations[name] += violations
        self.examples.append(f"{name}: {example}")


class Evidence:
    """All journals of a campaign."""

    def __init__(self, journals: Sequence[Path], circumstances: Circumstances, dropping: Sequence[Path] = ()) -> None:
        self._journals = list(journals)
        self._dropping = list(dropping)
        self._fabric = circumstances.fabric
        self._kills: defaultdict[str, list[int]] = defaultdict(list)
        for door, time_us in circumstances.killed:
            self._kills[door].append(time_us)
        self._may_lose = circumstances.may_lose_with_node
        self._calm = Calm(circumstances.disturbed, circumstances.wait_seconds)
        self.stalls: list[str] = []
        self.torn: list[str] = []
        self.subscribers = 0
        self.messages: dict[Name, Asked] = {}
        self.deliveries = 0
        self.gone_with_node = 0
        # Of whom nothing of its own is owed any more, because it has ended or was told of a gap.
        self._excused: set[tuple[int, int]] = set()
        for journal in self._journals:
            self._read_asked(journal)
        for journal in (*self._journals, *self._dropping):
            self._read_seen(journal)
        self._number()

    def _dies_soon(self, door: str, time_us: int) -> bool:
        kills = self._kills.get(door, [])
        place = bisect_left(kills, time_us)
        return place < len(kills) and kills[place] - time_us < DIES_SOON_US

    def _read_asked(self, journal: Path) -> None:
        for identity, door, connected_us, entry in attributed(journal):
            if entry.what == "ask":
                topic, number, order, keys = entry.fields
                names = [] if keys == NO_KEYS else keys.split(",")
                numbers = sorted(key_number(name.encode()) for name in names)
                self.messages[identity, int(topic), int(number)] = Asked(order, numbers, entry.time_us)
            elif entry.what in ("yes", "no"):
                name = (identity, int(entry.fields[0]), int(entry.fields[1]))
                message = self.messages[name]
                if self._calm.is_too_long(message.asked_us, entry.time_us):
                    seconds = (entry.time_us - message.asked_us) / 1e6
                    who = f"{identity} waited {seconds:.1f} s for an answer about its message {name[2]}"
                    self.stalls.append(f"{who} on topic {name[1]}, and nothing had happened to nodes")
                if entry.what == "no":
                    continue
                message.is_accepted = True
                message.dies_with_node = self._dies_soon(door, entry.time_us)
                message.door, message.accepted_us, message.connected_us = door, entry.time_us, connected_us
            elif entry.what in ("end", "gap"):
                self._excused.add((identity, int(entry.fields[0])))

    def _read_seen(self, journal: Path) -> None:
        for identity, door, _, entry in attributed(journal):
            if entry.what == "begin":
                self.subscribers += identity >= FIRST_IDENTITY
            elif entry.what == "torn":
                topic, source, number = map(int, entry.fields[:3])
                self.torn.append(f"message {number} of {source} on topic {topic} came to {identity} and was changed")
            elif entry.what == "see":
                self.deliveries += 1
                topic, source, number = map(int, entry.fields[:3])
                message = self.messages.get((source, topic, number))
                if message is not None:
                    message.is_seen = True
                    message.is_seen_by_itself |= source == identity
                    message.is_safe = message.is_safe or not self._dies_soon(door, entry.time_us)

    def _number(self) -> None:
        """Number what was published; leave out what was not, and what went with its node where that may be."""
        last: defaultdict[tuple[int, int], int] = defaultdict(int)
        for (identity, topic, _), message in self.messages.items():
            if not message.is_safe:
                may_go = not message.is_accepted or (self._may_lose and message.dies_with_node)
                if may_go:
                    self.gone_with_node += message.is_accepted or message.is_seen
                    continue
            last[identity, topic] += 1
            message.number = last[identity, topic]

    def lost_to_itself(self) -> list[Name]:
        """What was accepted and never shown to its own publisher, though that stayed."""
        return [
            name
            for name, message in self.messages.items()
            if message.number
            and message.is_accepted
            and not message.is_seen_by_itself
            and name[:2] not in self._excused
        ]

    def missing_on_disks(self, remains: Sequence[Path]) -> list[str]:
        """What nodes had accepted and did not have on their disks when they were killed, a line for each.

        What was accepted over a connection with an earlier life, whose disk was wiped, may be heard of after that.
        """
        by_door: defaultdict[str, list[tuple[Name, Asked]]] = defaultdict(list)
        for name, message in self.messages.items():
            if message.is_accepted:
                by_door[message.door].append((name, message))
        found = []
        for path in remains:
            kept, *lines = read_journal(path)
            door, since_us = kept.fields[0], int(kept.fields[1])
            refused = [" ".join(line.fields) for line in lines if line.what == "refused"]
            found += [f"the log of {door} is refused: {reason}" for reason in refused]
            has = {(identity, topic, number) for topic, identity, number in numbers_of(lines, "has")}
            owed = [
                name
                for name, message in by_door[door]
                if since_us < message.connected_us and message.accepted_us < kept.time_us
            ]
            found += [
                f"{door} had accepted message {number} of {identity} on topic {topic}, and lost it with its disk"
                for identity, topic, number in owed
                if not refused and (identity, topic, number) not in has
            ]
        return found

    def droppings(self) -> tuple[int, list[str]]:
        """How many messages were told to be dropped, and what is wrong with that, a line for each."""
        published = {
            name: Published(message.order, message.asked_us)
            for name, message in self.messages.items()
            if message.number
        }
        judge, dropped, found = Droppings(published), 0, []
        for journal in self._dropping:
            for visit in visits_in(read_journal(journal)):
                dropped += visit.dropped
                found += judge.complaints(visit)
        return dropped, found

    def write(self, directory: Path, as_asked: bool, with_dropping: bool) -> list[Path]:
        """Write a trace, a file for each place; with those or without whose messages may be dropped."""
        directory.mkdir(parents=True)
        paths = []
        for journal in (*self._journals, *(self._dropping if with_dropping else ())):
            paths.append(directory / f"{journal.stem}.parquet")
            about = {"host": "live", "unit": "microseconds", "fabric": self._fabric}
            with TraceWriter(paths[-1], "deliveries", about) as writer:
                rows = Rows(writer.recorder, self.messages, as_asked)
                for entry in read_journal(journal):
                    rows.add(entry)
                    writer.recorder.flush_if_full()
        return paths


class Calm:
    """When nothing was done to nodes, and how long publishers may wait then."""

    def __init__(self, disturbed: Sequence[tuple[int, int]], wait_seconds: float | None) -> None:
        self._wait_us = float("inf") if wait_seconds is None else wait_seconds * 1e6
        # They do not overlap: one cycle of a campaign comes after the other.
        self._disturbed = sorted(disturbed)
        self._ends = [end_us for _, end_us in self._disturbed]

    def is_too_long(self, asked_us: int, answered_us: int) -> bool:
        """Whether somebody waited for too long, and for no reason."""
        if answered_us - asked_us <= self._wait_us:
            return False
        place = bisect_left(self._ends, asked_us)
        return place == len(self._disturbed) or self._disturbed[place][0] > answered_us


def numbers_of(lines: Iterable[Entry], what: str) -> Iterator[list[int]]:
    """The fields of the lines of one kind, which are numbers."""
    return ([int(field) for field in line.fields] for line in lines if line.what == what)


def attributed(journal: Path) -> Iterator[tuple[int, str, int, Entry]]:
    """The lines of a journal, each with the identity of its client, the door of the node at which that was, and since
    when."""
    identity, door, connected_us = -1, "", 0
    for entry in read_journal(journal):
        if entry.what == "begin":
            identity = int(entry.fields[0])
        elif entry.what == "node":
            door, connected_us = entry.fields[0], entry.time_us
        yield identity, door, connected_us, entry


class Rows:
    """The rows of one file."""

    def __init__(self, recorder: Recorder, messages: dict[Name, Asked], as_asked: bool) -> None:
        self._recorder = recorder
        self._messages = messages
        self._as_asked = as_asked
        self._identity = -1
        self._members: set[int] = set()

    def add(self, entry: Entry) -> None:
        """What a line of a journal says."""
        if entry.what == "begin":
            self._identity = int(entry.fields[0])
            self._members.clear()
            return
        if entry.what in ("node", "yes", "no", "torn", "dropped"):
            return
        topic = int(entry.fields[0])
        if entry.what == "ready":
            self._members.add(topic)
            self._about_topic(entry, topic, SUBSCRIBED)
        elif entry.what == "ask":
            self._ask(entry, (self._identity, topic, int(entry.fields[1])))
        elif entry.what == "see":
            # Whatever comes before a subscription is effective is a present.
            if topic in self._members:
                self._see(entry, (int(entry.fields[1]), topic, int(entry.fields[2])))
        elif topic in self._members:
            self._about_topic(entry, topic, UNSUBSCRIBE)
            self._about_topic(entry, topic, UNSUBSCRIBED)
            if entry.what == "gap":
                self._about_topic(entry, topic, SUBSCRIBED)
            else:
                self._members.discard(topic)

    def _about_topic(self, entry: Entry, topic: int, event: i64) -> None:
        self._recorder.record_topic(entry.time_us, event, self._identity, topic)

    def _ask(self, entry: Entry, name: Name) -> None:
        message = self._messages[name]
        if message.number:
            order = ORDER_NAMES.index(message.order)
            self._about(entry, PUBLISH, name, message.number, order, message.keys)
            if self._as_asked:
                self._about(entry, DELIVER, name, message.number, order, message.keys)

    def _see(self, entry: Entry, name: Name) -> None:
        message = self._messages.get(name)
        shown = entry.fields[3]
        if message is not None and (message.order, shown) == ("fifo", "causal"):
            # The first after a change of nodes (docs/guarantees.md): more than was asked for, and judged as that.
            shown = "fifo"
        order = ORDER_NAMES.index(shown)
        if message is None:
            self._about(entry, DELIVER, name, name[2] + INVENTED, order, [])
        elif message.number and not (self._as_asked and name[0] == self._identity):
            self._about(entry, DELIVER, name, message.number, order, message.keys)

    def _about(self, entry: Entry, event: i64, name: Name, number: int, order: int, keys: list[int]) -> None:
        packed = vec[i64]()
        for key in keys:
            packed = append(packed, key)
        identity, topic, _ = name
        self._recorder.record_run(entry.time_us, event, self._identity, identity, number, 1, topic, 0, order, packed)


def judge_journals(directory: Path, circumstances: Circumstances, audit: Audit, traces: Path) -> Judgement:
    """Judge what applications and others wrote down in ``directory``; traces are written below ``traces``."""
    journals, dropping = (sorted((directory / name).glob("*.txt")) for name in ("journals", DROPPING_NAME))
    evidence = Evidence(journals, circumstances, dropping)
    found = Judgement(
        asked=len(evidence.messages),
        accepted=sum(message.is_accepted for message in evidence.messages.values()),
        deliveries=evidence.deliveries,
        gone_with_node=evidence.gone_with_node,
        subscribers=evidence.subscribers,
    )
    audited = audit(evidence.write(traces / "asked", True, False))
    found.judge = audited.judge
    found.verdicts.update({name: audited.checks[name] for name in ASKED_CHECKS})
    if dropping:
        # Those who drop are owed nothing, and what comes to them is in order all the same.
        with_dropping = audit(evidence.write(traces / "with-dropping", True, True))
        found.verdicts.update({name: with_dropping.checks[name] for name in ASKED_CHECKS if name != COMPLETENESS})
    shown = audit(evidence.write(traces / "shown", False, True))
    found.verdicts.update({name: shown.checks[name] for name in SHOWN_CHECKS})
    for name, verdict in found.verdicts.items():
        if verdict.violations and (name != COMPLETENESS or circumstances.is_whole):
            found.add(name, verdict.violations, str(verdict.example))
    judge_journals_besides(found, evidence, directory, circumstances)
    return found


def judge_journals_besides(found: Judgement, evidence: Evidence, directory: Path, circumstances: Circumstances) -> None:
    """Judge what no audit of traces knows."""
    found.dropped, drops = evidence.droppings()
    missing = evidence.missing_on_disks(sorted((directory / "remains").glob("*.txt")))
    for name, complaints in (
        (DURABILITY, missing),
        (CONTENT, evidence.torn),
        (DROPS, drops),
        (STALLS, evidence.stalls),
    ):
        if complaints:
            found.add(name, len(complaints), complaints[0])
    lost = evidence.lost_to_itself() if circumstances.is_whole else []
    if lost:
        identity, topic, number = lost[0]
        found.add(COMPLETENESS, len(lost), f"{identity} never saw its own message {number} on topic {topic}")
