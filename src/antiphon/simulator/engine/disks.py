"""The logs of simulated nodes: the latest deliveries of each node on each topic since it subscribed.

A healthy disk loses nothing: the effects of one step are on disk before the next step. A disk with a fault loses the
deliveries since the fault when its node crashes.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import LogReader, Process
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon.simulator.engine.events import Incarnation
from antiphon.trace.recorder import UNSHOWN

ENTRIES_PER_PIECE: Final[i64] = 16
"""A small number, so that small runs read several pieces."""


@final
class PiecesReader(LogReader):
    """Reads the present state of a log, a piece at a time."""

    def __init__(self, log: list[ProtocolMessage], is_cut: bool) -> None:
        self._log: Final[list[ProtocolMessage]] = log
        self._is_cut: Final[bool] = is_cut
        self._end: i64 = len(log)

    def earlier(self) -> list[ProtocolMessage] | None:
        end = self._end
        if end == 0:
            return None if self._is_cut else []
        self._end = max(0, end - ENTRIES_PER_PIECE)
        return self._log[self._end : end]


class Disks(SimulatedApplication):
    """One log of bounded length per node and topic. A crash removes it: a restarted node is a new node."""

    def __init__(self, entries_at_most: i64) -> None:
        self._entries_at_most: Final[i64] = entries_at_most
        self._logs: Final[dict[tuple[i64, i64], deque[ProtocolMessage]]] = {}
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

    def log_reader(self, node: i64, topic: i64) -> LogReader | None:
        return PiecesReader(list(self._logs.get((node, topic), deque())), (node, topic) in self._cut)


@final
class GossipDisks(SimulatedApplication):
    """The logs of gossip nodes: other nodes ask for single publications, and no node reads a log from the end.

    ``keepers`` are the nodes with a log; all nodes if the list is empty. A restarted node is a new node. As a live node
    does, it serves only what it has delivered itself, and nothing of its earlier incarnation.
    """

    def __init__(self, entries_at_most: i64, keepers: list[int]) -> None:
        self._entries_at_most: Final[i64] = entries_at_most
        self._keepers: Final[list[int]] = keepers
        # By node and topic; the oldest entry is the first.
        self._logs: Final[dict[tuple[i64, i64], dict[i64, ProtocolMessage]]] = {}
        self._incarnations: Final[dict[i64, i64]] = {}

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        incarnation = engine.nodes[node].incarnation_count
        if self._incarnations.get(node, incarnation) != incarnation:
            for name in [name for name in self._logs if name[0] == node]:
                del self._logs[name]
        self._incarnations[node] = incarnation

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        if len(self._keepers) > 0 and node not in self._keepers:
            return
        log = self._logs.setdefault((node, publication.topic), {})
        log[publication_key(publication.source, publication.sequence)] = publication
        if len(log) > self._entries_at_most:
            del log[next(iter(log))]

    def read_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        log = self._logs.get((node, topic))
        return None if log is None else log.get(publication_key(source, sequence))


@final
class Journals:
    """The records of the processes of nodes, as far as they are synced: these survive a crash.

    A record is on disk ``sync_ticks`` after the node has asked for a sync, with all records before it; a crash loses
    the rest.
    """

    def __init__(self, sync_ticks: i64) -> None:
        self._sync_ticks: Final[i64] = sync_ticks
        # By node: the records on its disk, and the unsynced writes. A list replaces all records.
        self._stored: Final[dict[i64, list[ProtocolMessage]]] = {}
        self._unsynced: Final[dict[i64, list[ProtocolMessage | list[ProtocolMessage]]]] = {}
        # By node: the number of writes, and how many of them are synced.
        self._written: Final[dict[i64, i64]] = {}
        self._synced: Final[dict[i64, i64]] = {}

    def of(self, node: i64) -> list[ProtocolMessage]:
        """The records on the disk of a node."""
        return list(self._stored.get(node, []))

    def write(self, node: i64, what: ProtocolMessage | list[ProtocolMessage]) -> None:
        """A node writes a record, or replaces all of them."""
        self._unsynced.setdefault(node, []).append(what)
        self._written[node] = self._written.get(node, 0) + 1

    def sync(self, engine: Engine, node: i64) -> bool:
        """Whether the records of a node are on disk at once; otherwise its process is told later."""
        written = self._written.get(node, 0)
        if self._sync_ticks == 0 or node not in self._stored:
            # A node that starts for the first time has its identity on disk before it appears.
            self.store(node, written)
            return True
        stored = StoredAction(self, node, engine.nodes[node].incarnation, written)
        engine.at(engine.calendar.now + self._sync_ticks, stored)
        return False

    def store(self, node: i64, written: i64) -> None:
        """Move the first ``written`` writes of a node to its disk."""
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
        """A node loses its unsynced records."""
        self._unsynced.pop(node, None)
        self._written[node] = self._synced.get(node, 0)

    def move(self, former: i64, node: i64) -> None:
        """Another node has the disk of a node from now on."""
        if former in self._stored:
            self._stored[node] = self._stored.pop(former)


class BrokerDisks(Disks):
    """The disks of brokers that restart as themselves; the log of a topic begins anew with the next subscription."""

    def __init__(self, entries_at_most: i64, sync_ticks: i64) -> None:
        super().__init__(entries_at_most)
        self._journals: Final[Journals] = Journals(sync_ticks)
        self._members: Final[dict[i64, set[i64]]] = {}

    def journal(self, node: i64) -> list[ProtocolMessage] | None:
        return self._journals.of(node)

    def write(self, node: i64, record: ProtocolMessage) -> None:
        self._journals.write(node, record)

    def rewrite(self, node: i64, records: list[ProtocolMessage]) -> None:
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
class StoredAction(Action):
    """A sync completes: the writes of an incarnation up to its request are on disk."""

    def __init__(self, journals: Journals, node: i64, incarnation: Incarnation, written: i64) -> None:
        self._journals: Final[Journals] = journals
        self._node: Final[i64] = node
        self._incarnation: Final[Incarnation] = incarnation
        self._written: Final[i64] = written

    def run(self, engine: Engine) -> None:
        node = engine.nodes[self._node]
        if node.incarnation is self._incarnation and node.process is not None:
            self._journals.store(self._node, self._written)
            # A paused node is told when it resumes.
            node.process.synced()


class UnsyncedState:
    """The state that a faulty disk would lose: what counted as delivered before the fault, by topic, and the deliveries
    since.
    """

    def __init__(self, is_full: bool) -> None:
        self.is_full: Final[bool] = is_full
        self.counted: dict[i64, list[int]] = {}
        self.deliveries: list[tuple[i64, i64, i64]] = []


class CubeDisks(Disks):
    """Logs that survive crashes: a restarted node is the same node with the same subscriptions.

    A faulty disk loses the deliveries since the fault when its node crashes. No application has seen them, because a
    node shows only what is safely on disk. A node's own publication is synced before others receive it, with everything
    before it: a live node instead restarts under a new identifier, and never uses a number twice. Another node may
    continue with the disk of a crashed one, as a live node does.
    """

    def __init__(self, entries_at_most: i64, sync_ticks: i64) -> None:
        super().__init__(entries_at_most)
        self._members: Final[dict[tuple[i64, i64], bool]] = {}
        self._past: Final[dict[tuple[i64, i64], list[int]]] = {}
        self._unsafe: Final[dict[i64, UnsyncedState]] = {}
        # By node and topic: every publication that was ever in the log, which may have lost its beginning.
        self._logged: Final[dict[tuple[i64, i64], set[i64]]] = {}
        self._journals: Final[Journals] = Journals(sync_ticks)

    def journal(self, node: i64) -> list[ProtocolMessage] | None:
        return self._journals.of(node)

    def rewrite(self, node: i64, records: list[ProtocolMessage]) -> None:
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
            engine.at(engine.calendar.now, DiskSyncAction(node, False))
        else:
            unsafe.deliveries.append((publication.topic, publication.source, publication.sequence))

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        # Deliveries of an earlier membership stay: other nodes may miss them.
        self._members[node, topic] = True
        self._changed(engine, node)

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        self._members.pop((node, topic), None)
        self._changed(engine, node)

    def _changed(self, engine: Engine, node: i64) -> None:
        """Sync memberships at once, with everything before."""
        if node in self._unsafe:
            engine.at(engine.calendar.now, DiskSyncAction(node, False))

    def restored_frontier(self, node: i64, topic: i64) -> list[int] | None:
        return self._past.pop((node, topic), None)

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        return publication_key(source, sequence) in self._logged.get((node, topic), set())

    def refuses(self, node: i64) -> bool:
        unsafe = self._unsafe.get(node)
        return unsafe is not None and unsafe.is_full

    def trouble(self, engine: Engine, node: i64, is_full: bool) -> None:
        """Let the disk sync nothing from now on."""
        self._unsafe[node] = UnsyncedState(is_full)
        self.sync(engine, node, False)

    def sync(self, engine: Engine, node: i64, is_over: bool) -> None:
        """Sync everything that the node has; later writes stay unsynced, unless the fault is over."""
        unsafe = self._unsafe.get(node)
        process = engine.nodes[node].process
        if unsafe is None or process is None:
            return
        if is_over:
            del self._unsafe[node]
            return
        unsafe.deliveries.clear()
        unsafe.counted = {topic: process.frontier_keys(topic) for member, topic in self._members if member == node}

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        self._journals.crashes(node)
        unsafe = self._unsafe.pop(node, None)
        for member, topic in self._members:
            if member == node:
                self._past[node, topic] = process.frontier_keys(topic) if unsafe is None else unsafe.counted[topic]
        for topic, source, sequence in [] if unsafe is None else unsafe.deliveries:
            # They are the last entries of their topic: the node's own publications have synced everything before.
            self._logs[node, topic].pop()
            self._logged[node, topic].discard(publication_key(source, sequence))
            engine.record_publication(UNSHOWN, node, topic, source, sequence)

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        for member, topic in list(self._members):
            if member == node:
                process.subscribe(topic)

    def move(self, former: i64, node: i64) -> None:
        """A starting node gets the disk of a crashed one."""
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


class ContinueAction(Action):
    """A node starts with the disk of a crashed one: a later incarnation of it, under another identifier."""

    def __init__(self, node: i64, former: i64) -> None:
        self._node: Final[i64] = node
        self._former: Final[i64] = former

    def run(self, engine: Engine) -> None:
        disks_of(engine).move(self._former, self._node)
        engine.join(self._node)
        engine.introduce(self._node)


class DiskTroubleAction(Action):
    """The disk of a node stops syncing."""

    def __init__(self, node: i64, is_full: bool) -> None:
        self._node: Final[i64] = node
        self._is_full: Final[bool] = is_full

    def run(self, engine: Engine) -> None:
        if engine.nodes[self._node].process is not None:
            disks_of(engine).trouble(engine, self._node, self._is_full)


class DiskSyncAction(Action):
    """The disk of a node syncs once; the fault may be over."""

    def __init__(self, node: i64, is_over: bool) -> None:
        self._node: Final[i64] = node
        self._is_over: Final[bool] = is_over

    def run(self, engine: Engine) -> None:
        disks_of(engine).sync(engine, self._node, self._is_over)


def disks_of(engine: Engine) -> CubeDisks:
    """The disks of a run with disk faults."""
    disks = engine.application
    assert isinstance(disks, CubeDisks), "a scenario has trouble with disks where nodes have any"
    return disks
