"""The logs of simulated nodes: what each of them delivered on a topic since it subscribed, the latest only.

Disks lose nothing that was delivered: what a node does in one step is on its disk before the next one. Only if they are
in trouble, what was delivered since is gone with a crash.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import Message, Publication, publication_key
from antiphon.kernel.process import LogReader, Process
from antiphon.simulator.engine.engine import Action, Application, Engine
from antiphon.simulator.engine.events import Life
from antiphon.trace.recorder import UNSHOWN

ENTRIES_PER_PIECE: Final[i64] = 16
"""Few, so that small runs read several."""


@final
class PiecesReader(LogReader):
    """Reads a log as it is now, a piece at a time."""

    def __init__(self, log: list[Message], is_cut: bool) -> None:
        self._log: Final[list[Message]] = log
        self._is_cut: Final[bool] = is_cut
        self._end: i64 = len(log)

    def earlier(self) -> list[Message] | None:
        end = self._end
        if end == 0:
            return None if self._is_cut else []
        self._end = max(0, end - ENTRIES_PER_PIECE)
        return self._log[self._end : end]


class Disks(Application):
    """One log per node and topic, of so many entries at most. A crash takes it away: who returns is somebody new."""

    def __init__(self, entries_at_most: i64) -> None:
        self._entries_at_most: Final[i64] = entries_at_most
        self._logs: Final[dict[tuple[i64, i64], deque[Message]]] = {}
        # The logs that have lost their beginning.
        self._cut: Final[set[tuple[i64, i64]]] = set()

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        process = engine.nodes[node].process
        assert process is not None, "only a process delivers"
        name = (node, publication.topic)
        log = self._logs.setdefault(name, deque())
        log.append(process.recorded(publication))
        if len(log) > self._entries_at_most:
            log.popleft()
            self._cut.add(name)

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        self._logs.pop((node, topic), None)
        self._cut.discard((node, topic))

    def read_back(self, node: i64, topic: i64) -> LogReader | None:
        return PiecesReader(list(self._logs.get((node, topic), deque())), (node, topic) in self._cut)


@final
class RecallingDisks(Application):
    """The logs of nodes in gossip: nobody reads them from the end, and others ask for single publications.

    ``keepers`` are the nodes that have one, all if none are named. A node that comes back is a new one and finds the
    log of its earlier life there, as a live node does.
    """

    def __init__(self, entries_at_most: i64, keepers: list[int]) -> None:
        self._entries_at_most: Final[i64] = entries_at_most
        self._keepers: Final[list[int]] = keepers
        # By node and topic; the oldest entry is the first.
        self._logs: Final[dict[tuple[i64, i64], dict[i64, Message]]] = {}

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        if len(self._keepers) > 0 and node not in self._keepers:
            return
        log = self._logs.setdefault((node, publication.topic), {})
        log[publication_key(publication.source, publication.sequence)] = publication
        if len(log) > self._entries_at_most:
            del log[next(iter(log))]

    def recalled(self, node: i64, topic: i64, source: i64, sequence: i64) -> Message | None:
        log = self._logs.get((node, topic))
        return None if log is None else log.get(publication_key(source, sequence))


@final
class Journals:
    """What the processes of nodes have written down and synced, which outlives crashes.

    What a node writes is on its disk ``sync_ticks`` after it has asked for that, with all before; a crash takes away
    the rest.
    """

    def __init__(self, sync_ticks: i64) -> None:
        self._sync_ticks: Final[i64] = sync_ticks
        # By node what is on its disk, and what is not: records, or all records anew.
        self._stored: Final[dict[i64, list[Message]]] = {}
        self._unsynced: Final[dict[i64, list[Message | list[Message]]]] = {}
        # How much each node has ever written, and how much of that is on disk.
        self._written: Final[dict[i64, i64]] = {}
        self._synced: Final[dict[i64, i64]] = {}

    def of(self, node: i64) -> list[Message]:
        """What is on the disk of a node."""
        return list(self._stored.get(node, []))

    def write(self, node: i64, what: Message | list[Message]) -> None:
        """A node writes a record, or all records anew."""
        self._unsynced.setdefault(node, []).append(what)
        self._written[node] = self._written.get(node, 0) + 1

    def sync(self, engine: Engine, node: i64) -> bool:
        """Whether what a node has written is on disk at once; its process is told later if it is not."""
        written = self._written.get(node, 0)
        if self._sync_ticks == 0 or node not in self._stored:
            # Whoever starts for the first time has its identity on disk before it is there.
            self.store(node, written)
            return True
        engine.at(engine.calendar.now + self._sync_ticks, Stored(self, node, engine.nodes[node].life, written))
        return False

    def store(self, node: i64, written: i64) -> None:
        """So much of what a node has ever written is on disk."""
        journal = self._stored.setdefault(node, [])
        unsynced = self._unsynced.get(node, [])
        count = max(0, written - self._synced.get(node, 0))
        for record in unsynced[:count]:
            if isinstance(record, list):
                journal[:] = record
            else:
                journal.append(record)
        del unsynced[:count]
        self._synced[node] = max(written, self._synced.get(node, 0))

    def crashes(self, node: i64) -> None:
        """A node loses what is not on its disk."""
        self._unsynced.pop(node, None)
        self._written[node] = self._synced.get(node, 0)

    def move(self, former: i64, node: i64) -> None:
        """Another node has the disk of a node from now on."""
        if former in self._stored:
            self._stored[node] = self._stored.pop(former)


class BrokerDisks(Disks):
    """The same for brokers that return as themselves; the log of a topic begins anew with the next subscription."""

    def __init__(self, entries_at_most: i64, sync_ticks: i64) -> None:
        super().__init__(entries_at_most)
        self._journals: Final[Journals] = Journals(sync_ticks)
        self._members: Final[dict[i64, set[i64]]] = {}

    def journal(self, node: i64) -> list[Message] | None:
        return self._journals.of(node)

    def write(self, node: i64, record: Message) -> None:
        self._journals.write(node, record)

    def rewrite(self, node: i64, records: list[Message]) -> None:
        self._journals.write(node, records)

    def sync_journal(self, engine: Engine, node: i64) -> bool:
        return self._journals.sync(engine, node)

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        self._journals.crashes(node)
        for name in [name for name in self._logs if name[0] == node]:
            del self._logs[name]

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        super().subscribed(engine, node, topic)
        self._members.setdefault(node, set()).add(topic)

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        self._members.setdefault(node, set()).discard(topic)

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        for topic in sorted(self._members.get(node, set())):
            process.subscribe(topic)


@final
class Stored(Action):
    """What a life of a node had written when it asked for that is on its disk."""

    def __init__(self, journals: Journals, node: i64, life: Life, written: i64) -> None:
        self._journals: Final[Journals] = journals
        self._node: Final[i64] = node
        self._life: Final[Life] = life
        self._written: Final[i64] = written

    def run(self, engine: Engine) -> None:
        node = engine.nodes[self._node]
        if node.life is self._life and node.process is not None:
            self._journals.store(self._node, self._written)
            # A node that stands still hears of it when it goes on.
            node.process.synced()


class Unsafe:
    """What a disk that is in trouble would lose: from when on, and what counted as past then, by topic."""

    def __init__(self, is_full: bool) -> None:
        self.is_full: Final[bool] = is_full
        self.counted: dict[i64, list[int]] = {}
        self.deliveries: list[tuple[i64, i64, i64]] = []


class LastingDisks(Disks):
    """The same where logs outlive crashes: who returns is who it was, and a member of what it was a member of.

    A disk in trouble loses what was delivered since, if its node crashes: nobody was shown that, because a node shows
    what is safe. What a node publishes itself is made safe before others hear of it, with all before it: a live node
    that returns has a new identifier instead, and never uses a number twice. Another node may go on with the disk of
    one that crashed, as a live one does.
    """

    def __init__(self, entries_at_most: i64, sync_ticks: i64) -> None:
        super().__init__(entries_at_most)
        self._members: Final[dict[tuple[i64, i64], bool]] = {}
        self._past: Final[dict[tuple[i64, i64], list[int]]] = {}
        self._unsafe: Final[dict[i64, Unsafe]] = {}
        # By node and topic all that was ever in the log, which may have lost its beginning.
        self._logged: Final[dict[tuple[i64, i64], set[i64]]] = {}
        self._journals: Final[Journals] = Journals(sync_ticks)

    def journal(self, node: i64) -> list[Message] | None:
        return self._journals.of(node)

    def rewrite(self, node: i64, records: list[Message]) -> None:
        self._journals.write(node, records)

    def sync_journal(self, engine: Engine, node: i64) -> bool:
        return self._journals.sync(engine, node)

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        super().delivered(engine, node, publication)
        key = publication_key(publication.source, publication.sequence)
        self._logged.setdefault((node, publication.topic), set()).add(key)
        unsafe = self._unsafe.get(node)
        if unsafe is None:
            return
        if publication.source == node:
            engine.at(engine.calendar.now, Sync(node, False))
        else:
            unsafe.deliveries.append((publication.topic, publication.source, publication.sequence))

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        # What was delivered in an earlier membership stays: others may lack it.
        self._members[node, topic] = True
        self._changed(engine, node)

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        self._members.pop((node, topic), None)
        self._changed(engine, node)

    def _changed(self, engine: Engine, node: i64) -> None:
        """Memberships are safe at once, and all that was before."""
        if node in self._unsafe:
            engine.at(engine.calendar.now, Sync(node, False))

    def past(self, node: i64, topic: i64) -> list[int] | None:
        return self._past.pop((node, topic), None)

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        return publication_key(source, sequence) in self._logged.get((node, topic), set())

    def refuses(self, node: i64) -> bool:
        unsafe = self._unsafe.get(node)
        return unsafe is not None and unsafe.is_full

    def trouble(self, engine: Engine, node: i64, is_full: bool) -> None:
        """From now on nothing is safe."""
        self._unsafe[node] = Unsafe(is_full)
        self.sync(engine, node, False)

    def sync(self, engine: Engine, node: i64, is_over: bool) -> None:
        """What the node has is safe; from now on nothing is, unless the trouble is over."""
        unsafe = self._unsafe.get(node)
        process = engine.nodes[node].process
        if unsafe is None or process is None:
            return
        if is_over:
            del self._unsafe[node]
            return
        unsafe.deliveries.clear()
        unsafe.counted = {topic: process.counted(topic) for member, topic in self._members if member == node}

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        self._journals.crashes(node)
        unsafe = self._unsafe.pop(node, None)
        for member, topic in self._members:
            if member == node:
                self._past[node, topic] = process.counted(topic) if unsafe is None else unsafe.counted[topic]
        for topic, source, sequence in [] if unsafe is None else unsafe.deliveries:
            # They are the last of their topic: what the node published itself made all before it safe.
            self._logs[node, topic].pop()
            self._logged[node, topic].discard(publication_key(source, sequence))
            engine.record_publication(UNSHOWN, node, topic, source, sequence)

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        for member, topic in list(self._members):
            if member == node:
                process.subscribe(topic)

    def move(self, former: i64, node: i64) -> None:
        """A node that comes up has the disk of one that crashed."""
        self._journals.move(former, node)
        for topic in [topic for member, topic in self._members if member == former]:
            del self._members[former, topic]
            self._past[node, topic] = self._past.pop((former, topic))
        for member, topic in [name for name in self._logs if name[0] == former]:
            self._logs[node, topic] = self._logs.pop((member, topic))
            self._logged[node, topic] = self._logged.pop((member, topic))
            if (member, topic) in self._cut:
                self._cut.discard((member, topic))
                self._cut.add((node, topic))


class Continue(Action):
    """A node comes up with the disk of one that crashed: a later life of it, under another identifier."""

    def __init__(self, node: i64, former: i64) -> None:
        self._node: Final[i64] = node
        self._former: Final[i64] = former

    def run(self, engine: Engine) -> None:
        disks_of(engine).move(self._former, self._node)
        engine.join(self._node)
        engine.introduce(self._node)


class Trouble(Action):
    """The disk of a node makes nothing safe any more."""

    def __init__(self, node: i64, is_full: bool) -> None:
        self._node: Final[i64] = node
        self._is_full: Final[bool] = is_full

    def run(self, engine: Engine) -> None:
        if engine.nodes[self._node].process is not None:
            disks_of(engine).trouble(engine, self._node, self._is_full)


class Sync(Action):
    """What a node has is safe on its disk; the trouble may be over."""

    def __init__(self, node: i64, is_over: bool) -> None:
        self._node: Final[i64] = node
        self._is_over: Final[bool] = is_over

    def run(self, engine: Engine) -> None:
        disks_of(engine).sync(engine, self._node, self._is_over)


def disks_of(engine: Engine) -> LastingDisks:
    """The disks of a run in which they are in trouble."""
    disks = engine.application
    assert isinstance(disks, LastingDisks), "a scenario has trouble with disks where nodes have any"
    return disks
