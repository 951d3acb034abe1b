"""The logs of simulated nodes: what each of them delivered on a topic since it subscribed, the latest only.

Disks lose nothing that was delivered: what a node does in one step is on its disk before the next one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from antiphon.kernel.message import Message, Publication
from antiphon.kernel.process import Process
from antiphon.simulator.engine import Application, Engine

ENTRIES_PER_PIECE: Final[i64] = 16
"""Few, so that small runs read several."""


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

    def kept(self, node: i64, topic: i64, piece: i64) -> list[Message] | None:
        log = self._logs.get((node, topic), deque())
        end = len(log) - piece * ENTRIES_PER_PIECE
        if end <= 0:
            return None if (node, topic) in self._cut else []
        return [log[place] for place in range(max(0, end - ENTRIES_PER_PIECE), end)]


class LastingDisks(Disks):
    """The same where logs outlive crashes: who returns is who it was, and a member of what it was a member of."""

    def __init__(self, entries_at_most: i64) -> None:
        super().__init__(entries_at_most)
        self._members: Final[dict[tuple[i64, i64], bool]] = {}
        self._past: Final[dict[tuple[i64, i64], list[int]]] = {}

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        # What was delivered in an earlier membership stays: others may lack it.
        self._members[node, topic] = True

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        self._members.pop((node, topic), None)

    def past(self, node: i64, topic: i64) -> list[int] | None:
        return self._past.pop((node, topic), None)

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        for member, topic in self._members:
            if member == node:
                self._past[node, topic] = process.counted(topic)

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        for member, topic in list(self._members):
            if member == node:
                process.subscribe(topic)
