"""The logs of simulated nodes: what each of them delivered on a topic since it subscribed, the latest only."""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from antiphon.kernel.message import Message, Publication
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
