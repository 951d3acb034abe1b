"""The disk of a simulated machine: facts, the journal of the process and the log, which outlive a life of its node.

Facts and records are on disk after the next commit, together with all before them; a crash takes away the rest.
Deliveries are on disk at once, as in the disks of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.kernel.message import ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import LogReader, Process
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.engine.disks import PiecesReader

Change = tuple[str, bytes] | ProtocolMessage | list[ProtocolMessage]
"""A fact, a record of the journal, or all records anew."""


class SimulatedDisk:
    """The disk of one machine. ``is_kept`` is false for a node without a data directory."""

    def __init__(self, clock: VirtualClock, is_kept: bool, has_journal: bool, commit_us: int) -> None:
        self.is_kept = is_kept
        self.has_journal = is_kept and has_journal
        self._clock = clock
        self._commit_us = commit_us
        self._safe_facts: dict[str, bytes] = {}
        self._safe_journal: list[ProtocolMessage] = []
        self._facts: dict[str, bytes] = {}
        self._journal: list[ProtocolMessage] = []
        # Changes that are not on disk yet, and the callbacks that wait for them.
        self._changes: list[Change] = []
        self._waiting: list[Callable[[], None]] = []
        self._is_committing = False
        self._life = 0
        self._logs: dict[int, list[ProtocolMessage]] = {}
        self._logged: dict[int, set[int]] = {}
        self.past: dict[int, list[int]] = {}
        # The identifier under which the last life of the node entered its cluster; for the judge.
        self.entered_as: int | None = None

    # Facts.

    def read(self, name: str) -> bytes | None:
        """A fact."""
        return self._facts.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Keep a fact."""
        if self.is_kept:
            self._facts[name] = value
            self._changes.append((name, value))

    def commit_soon(self) -> None:
        """Bring everything to the disk after a while."""
        if self.is_kept and not self._is_committing:
            self._is_committing = True
            life, count, waiting = self._life, len(self._changes), self._waiting
            self._waiting = []
            self._clock.post(self._commit_us, lambda: self._committed(life, count, waiting))

    def _committed(self, life: int, count: int, waiting: list[Callable[[], None]]) -> None:
        if life != self._life:
            return
        for change in self._changes[:count]:
            if isinstance(change, tuple):
                self._safe_facts[change[0]] = change[1]
            elif isinstance(change, list):
                self._safe_journal = list(change)
            else:
                self._safe_journal.append(change)
        del self._changes[:count]
        self._is_committing = False
        for tell in waiting:
            tell()
        if self._changes or self._waiting:
            self.commit_soon()

    # The journal.

    def journal_records(self) -> Sequence[ProtocolMessage]:
        """All that the process has written down."""
        return list(self._journal)

    def write(self, record: ProtocolMessage) -> None:
        """The process writes something down."""
        if self.has_journal:
            self._journal.append(record)
            self._changes.append(record)

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        """The process writes all anew."""
        if self.has_journal:
            self._journal = list(records)
            self._changes.append(list(records))

    def when_safe(self, tell: Callable[[], None]) -> None:
        """Tell when all that was written so far is on disk."""
        self._waiting.append(tell)
        self.commit_soon()

    # The log.

    def delivered(self, process: Process, publication: Publication) -> None:
        """The process has delivered something."""
        if self.is_kept:
            self._logs.setdefault(publication.topic, []).append(process.recorded(publication))
            key = int(publication_key(publication.source, publication.sequence))
            self._logged.setdefault(publication.topic, set()).add(key)

    def log_reader(self, topic: int) -> LogReader | None:
        """Read the log of a topic from its end."""
        return PiecesReader(list(self._logs.get(topic, [])), False) if self.is_kept else None

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        """Whether the log has held a publication."""
        return not self.is_kept or int(publication_key(source, sequence)) in self._logged.get(topic, set())

    def begin_topic(self, topic: int) -> None:
        """The log of a topic begins anew."""
        self._logs.pop(topic, None)

    # Events of the machine.

    def crashed(self) -> None:
        """Everything that is not on disk is gone."""
        self._life += 1
        self._facts, self._journal = dict(self._safe_facts), list(self._safe_journal)
        self._changes, self._waiting, self._is_committing = [], [], False

    def closed(self) -> None:
        """The node has gone in order: everything is on disk."""
        self._committed(self._life, len(self._changes), [])
        self.crashed()

    def wiped(self) -> None:
        """The disk is replaced by an empty one."""
        self._safe_facts, self._safe_journal, self.entered_as = {}, [], None
        self._logs, self._logged, self.past = {}, {}, {}
        self.crashed()
