"""Turns the journals of applications into traces, and has them audited.

An application takes the role of a node, and its messages on a topic are numbered without gaps. Two traces are made of
the same journals, because an application asks at one moment and sees its own message at another:

* *asked*: a message starts, and counts as seen by its own publisher, when the application asked for it. It must follow
  what the application had seen at that time, so this trace serves to judge causal order and completeness.
* *shown*: a message is delivered when it was shown to the application. This trace serves to judge the order of
  deliveries: once, in the order of its publisher, and in one total order.

Subscribers whose policy drops messages are in separate traces, in which everything but completeness is judged;
:mod:`antiphon.torture.live.dropping` counts what they missed. The longest wait of publishers while no fault was active
is judged too.

A message that was not accepted and that nobody has seen counts as not published. Where an application was told that
messages may be missing, its subscription ends and begins again: it need not receive messages that were in transit.
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
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.torture.live.copies import ShownCopies, own_key
from antiphon.torture.live.crowd import DROPPING_NAME, FIRST_IDENTITY
from antiphon.torture.live.dropping import Droppings, Name, PublishedMessage, visits_in
from antiphon.torture.live.journal import NO_KEYS, JournalEntry, read_journal
from antiphon.trace.recorder import DELIVER, PUBLISH, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, Recorder
from antiphon.trace.store import TraceWriter

COMPLETENESS: Final = "completeness"
ASKED_CHECKS: Final = (COMPLETENESS, "causal", "validity", "membership")
SHOWN_CHECKS: Final = ("duplicates", "fifo", "total")
DURABILITY: Final = "durability"
"""A killed node has every accepted message on its disk, as far as the disk has kept synced writes."""

CONTENT: Final = "content"
"""A received value equals the published one, byte by byte."""

DROPS: Final = "drops"
"""A subscriber whose policy drops messages is told how many."""

STALLS: Final = "stalls"
"""Publishers are answered soon unless faults are active; slow subscribers must not delay them."""

CHECKS: Final = (*ASKED_CHECKS, *SHOWN_CHECKS, DURABILITY, CONTENT, DROPS, STALLS)

FAILED_LINE: Final = "a step has failed and the node goes on"
"""What a node logs instead of ending, because a peer may be to blame; in a campaign all peers are honest."""

DIES_SOON_US: Final = 60_000_000
"""A message that a node accepted or showed shortly before it was killed may be lost with it; older ones must be known
elsewhere.
"""

SEEN_FIELDS: Final = 4
"""A line about a message that has arrived has so many fields, and then, unless it is old, the publishing node."""

INVENTED: Final = 1 << 30
"""Added to the numbers of messages that no application has asked for."""

ABOUT_NAME: Final = "campaign.json"
"""The file with the circumstances that a judgement needs."""


class PromiseVerdict(Protocol):
    """The verdict of an audit on one promise."""

    @property
    def violations(self) -> int:
        """The number of violations."""

    @property
    def example(self) -> str | None:
        """The first violation."""


class Audited(Protocol):
    """The result of an audit of traces."""

    @property
    def messages(self) -> int:
        """The number of messages."""

    @property
    def deliveries(self) -> int:
        """The number of deliveries."""

    @property
    def checks(self) -> Mapping[str, PromiseVerdict]:
        """The verdicts by promise."""

    @property
    def judge(self) -> str:
        """The name of the judge."""


Audit = Callable[[list[Path]], Audited]
"""Judges traces; the caller of a campaign passes it in."""


class Circumstances(msgspec.Struct, frozen=True):
    """Facts about a campaign that its journals do not contain."""

    fabric: str
    killed: list[tuple[str, int]] = []
    """The doors of killed nodes, with the time in microseconds."""
    may_lose_with_node: bool = False
    """Whether a message that a node has accepted may be lost with it."""
    is_whole: bool = True
    """Whether the cluster came to rest; otherwise missing messages may have been in transit."""
    disturbed: list[tuple[int, int]] = []
    """Spans in which faults were active or not recovered from, in microseconds."""
    wait_seconds: float | None = None
    """The longest time that publishers may wait outside of these spans; None if unknown, which allows any time."""

    def write(self, directory: Path) -> None:
        """Store the facts beside the journals."""
        (directory / ABOUT_NAME).write_bytes(msgspec.json.encode(self))


def read_circumstances(directory: Path) -> Circumstances:
    """Read the stored facts of a campaign."""
    path = directory / ABOUT_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Circumstances)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} does not describe a campaign: {error}; pass the whole directory of a campaign"
        ) from error


@dataclass(slots=True)
class AskedMessage:
    """A message that an application asked for, and its fate."""

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
    """The node that accepted it, the time, and since when its application was connected to that node."""
    number: int = 0
    """Its number among the published messages of its application; 0 if it was not published."""


@dataclass
class CampaignJudgement:
    """The judgement of a campaign."""

    asked: int = 0
    accepted: int = 0
    deliveries: int = 0
    gone_with_node: int = 0
    judge: str = ""
    subscribers: int = 0
    """The number of subscribers in crowds."""
    dropped: int = 0
    """Dropped messages, as reported to these subscribers."""
    verdicts: dict[str, PromiseVerdict] = field(default_factory=dict)
    """The verdict of the audit on each promise that it judges."""
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHECKS, 0))
    examples: list[str] = field(default_factory=list)

    def add(self, name: str, violations: int, example: str) -> None:
        """Add violations of a promise, with an example."""
        self.violations[name] += violations
        self.examples.append(f"{name}: {example}")


class CampaignEvidence:
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
        self.messages: dict[Name, AskedMessage] = {}
        self.deliveries = 0
        self.gone_with_node = 0
        self._copies = ShownCopies() if FABRICS[self._fabric].may_pass_over else None
        # Applications, by topic, that need not see their own messages, because they ended or were told of a gap.
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
                self.messages[identity, int(topic), int(number)] = AskedMessage(order, numbers, entry.time_us)
            elif entry.what in ("yes", "no"):
                name = (identity, int(entry.fields[0]), int(entry.fields[1]))
                message = self.messages[name]
                if self._calm.is_too_long(message.asked_us, entry.time_us):
                    seconds = (entry.time_us - message.asked_us) / 1e6
                    who = f"{identity} waited {seconds:.1f} s for an answer about its message {name[2]}"
                    self.stalls.append(f"{who} on topic {name[1]}, while no fault was active")
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
            elif entry.what == "gap" and self._copies is not None:
                self._copies.gap(identity, int(entry.fields[0]), entry.time_us)
            elif entry.what == "see":
                self.deliveries += 1
                topic, source, number = map(int, entry.fields[:3])
                message = self.messages.get((source, topic, number))
                if message is not None:
                    if self._copies is not None and message.order == "total" and len(entry.fields) > SEEN_FIELDS:
                        self._copies.shown(identity, (source, topic, number), entry.fields[SEEN_FIELDS])
                    message.is_seen = True
                    message.is_seen_by_itself |= source == identity
                    message.is_safe = message.is_safe or not self._dies_soon(door, entry.time_us)

    def _number(self) -> None:
        """Number the published messages; leave out those that were not published, or were lost with a node that may
        lose them.
        """
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
        """Accepted messages that were never shown to their own publisher, though its application continued."""
        return [
            name
            for name, message in self.messages.items()
            if message.number
            and message.is_accepted
            and not message.is_seen_by_itself
            and name[:2] not in self._excused
        ]

    def missing_on_disks(self, remains: Sequence[Path]) -> list[str]:
        """Messages that nodes had accepted and that were not on their disks when they were killed, one line each.

        Messages accepted over a connection to an earlier incarnation, whose disk was wiped, do not count.
        """
        by_door: defaultdict[str, list[tuple[Name, AskedMessage]]] = defaultdict(list)
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
                f"{door} had accepted message {number} of {identity} on topic {topic}, and its disk does not have it"
                for identity, topic, number in owed
                if not refused and (identity, topic, number) not in has
            ]
        return found

    def droppings(self) -> tuple[int, list[str]]:
        """The number of reported drops, and the contradictions in these reports, one line each."""
        published = {
            name: PublishedMessage(message.order, message.asked_us)
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
        """Write a trace, one file per place, with or without the subscribers whose policy drops messages."""
        directory.mkdir(parents=True)
        paths = []
        for journal in (*self._journals, *(self._dropping if with_dropping else ())):
            paths.append(directory / f"{journal.stem}.parquet")
            about = {"host": "live", "unit": "microseconds", "fabric": self._fabric}
            with TraceWriter(paths[-1], "deliveries", about) as writer:
                rows = CampaignRows(writer.recorder, self.messages, as_asked, self._copies)
                for entry in read_journal(journal):
                    rows.add(entry)
                    writer.recorder.flush_if_full()
        return paths


class Calm:
    """The spans without faults, and how long publishers may wait in them."""

    def __init__(self, disturbed: Sequence[tuple[int, int]], wait_seconds: float | None) -> None:
        self._wait_us = float("inf") if wait_seconds is None else wait_seconds * 1e6
        # Spans do not overlap: a campaign runs one cycle after the other.
        self._disturbed = sorted(disturbed)
        self._ends = [end_us for _, end_us in self._disturbed]

    def is_too_long(self, asked_us: int, answered_us: int) -> bool:
        """Whether a publisher waited too long while no fault was active."""
        if answered_us - asked_us <= self._wait_us:
            return False
        place = bisect_left(self._ends, asked_us)
        return place == len(self._disturbed) or self._disturbed[place][0] > answered_us


def numbers_of(lines: Iterable[JournalEntry], what: str) -> Iterator[list[int]]:
    """The fields, as numbers, of all lines of one kind."""
    return ([int(field) for field in line.fields] for line in lines if line.what == what)


def attributed(journal: Path) -> Iterator[tuple[int, str, int, JournalEntry]]:
    """The lines of a journal, each with the identity of its client, the door of its node, and since when the client was
    there.
    """
    identity, door, connected_us = -1, "", 0
    for entry in read_journal(journal):
        if entry.what == "begin":
            identity = int(entry.fields[0])
        elif entry.what == "node":
            door, connected_us = entry.fields[0], entry.time_us
        yield identity, door, connected_us, entry


class CampaignRows:
    """Writes the rows of one file."""

    def __init__(
        self, recorder: Recorder, messages: dict[Name, AskedMessage], as_asked: bool, copies: ShownCopies | None = None
    ) -> None:
        self._recorder = recorder
        self._messages = messages
        self._as_asked = as_asked
        self._copies = copies
        self._identity = -1
        self._members: set[int] = set()

    def add(self, entry: JournalEntry) -> None:
        """Add the rows of one line of a journal."""
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
            # Messages that arrive before a subscription is effective are extra; nothing is promised about them.
            if topic in self._members:
                self._see(entry, (int(entry.fields[1]), topic, int(entry.fields[2])))
        elif topic in self._members:
            self._about_topic(entry, topic, UNSUBSCRIBE)
            self._about_topic(entry, topic, UNSUBSCRIBED)
            if entry.what == "gap":
                self._about_topic(entry, topic, SUBSCRIBED)
            else:
                self._members.discard(topic)

    def _about_topic(self, entry: JournalEntry, topic: int, event: i64) -> None:
        self._recorder.record_topic(entry.time_us, event, self._identity, topic)

    def _ask(self, entry: JournalEntry, name: Name) -> None:
        message = self._messages[name]
        if message.number:
            order = ORDER_NAMES.index(message.order)
            self._about(entry, PUBLISH, name, message.number, order, message.keys)
            if self._as_asked:
                self._about(entry, DELIVER, name, message.number, order, message.keys)

    def _see(self, entry: JournalEntry, name: Name) -> None:
        message = self._messages.get(name)
        shown = entry.fields[3]
        if message is not None and (message.order, shown) == ("fifo", "causal"):
            # The first message after a move to another node (docs/guarantees.md): it exceeds the promise, and is judged
            # so.
            shown = "fifo"
        order = ORDER_NAMES.index(shown)
        if message is None:
            self._about(entry, DELIVER, name, name[2] + INVENTED, order, [])
        elif message.number and not (self._as_asked and name[0] == self._identity):
            if self._copies is None or not self._copies.is_second(self._identity, name, message.asked_us):
                self._about(entry, DELIVER, name, message.number, order, message.keys)
            elif not self._as_asked:
                self._about(entry, DELIVER, name, message.number, order, [own_key(name)])

    def _about(self, entry: JournalEntry, event: i64, name: Name, number: int, order: int, keys: list[int]) -> None:
        packed = vec[i64]()
        for key in keys:
            packed = append(packed, key)
        identity, topic, _ = name
        self._recorder.record_run(entry.time_us, event, self._identity, identity, number, 1, topic, 0, order, packed)


def judge_journals(directory: Path, circumstances: Circumstances, audit: Audit, traces: Path) -> CampaignJudgement:
    """Judge the journals in ``directory``; traces are written below ``traces``."""
    journals, dropping = (sorted((directory / name).glob("*.txt")) for name in ("journals", DROPPING_NAME))
    evidence = CampaignEvidence(journals, circumstances, dropping)
    found = CampaignJudgement(
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
        # Subscribers that drop messages may miss any, but what arrives must be in order.
        with_dropping = audit(evidence.write(traces / "with-dropping", True, True))
        found.verdicts.update({name: with_dropping.checks[name] for name in ASKED_CHECKS if name != COMPLETENESS})
    shown = audit(evidence.write(traces / "shown", False, True))
    found.verdicts.update({name: shown.checks[name] for name in SHOWN_CHECKS})
    for name, verdict in found.verdicts.items():
        if verdict.violations and (name != COMPLETENESS or circumstances.is_whole):
            found.add(name, verdict.violations, str(verdict.example))
    judge_journals_besides(found, evidence, directory, circumstances)
    return found


def judge_journals_besides(
    found: CampaignJudgement, evidence: CampaignEvidence, directory: Path, circumstances: Circumstances
) -> None:
    """Judge the promises that no audit of traces covers."""
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
