"""The causal past and future of a message: on each line, up to where the past reaches and from where the future begins.

A message follows everything that its publisher had delivered when it published, and what those messages follow. Every
message that a node publishes after it has delivered this one is in its future. Both are found by steps between nodes
until nothing changes: a step looks at the deliveries of one node, on one topic.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.console.diagram.run_index import DELIVER, NOTHING, Numbers, RunIndex

NEVER: Final = -1


class TopicHistory:
    """The deliveries of one topic, by node."""

    def __init__(self, run: RunIndex, topic: int) -> None:
        self._run = run
        rows = np.flatnonzero((run.event == DELIVER) & (run.topic == topic))
        rows = rows[np.argsort(run.node[rows], kind="stable")]
        nodes = run.node[rows]
        self.nodes: Final = [int(node) for node in np.unique(nodes)]
        begins = np.searchsorted(nodes, self.nodes)
        self._rows = dict(zip(self.nodes, np.split(rows, begins[1:]), strict=True)) if self.nodes else {}

    def rows_at(self, node: int) -> Numbers:
        """The deliveries of a node, in the order of time."""
        return self._rows.get(node, np.zeros(0, np.int64))

    def past(self, birth: int) -> dict[int, int]:
        """The last row of each node that is in the past of a message that begins with a row."""
        run = self._run
        until = {int(run.node[birth]): birth}
        waiting = list(until)
        while waiting:
            node = waiting.pop()
            rows = self.rows_at(node)
            seen = rows[: np.searchsorted(rows, until[node])]
            births = run.birth_rows[seen]
            births = births[(births != NOTHING) & (births < birth)]
            for source, row in latest_by(run.source[births], births):
                if source != node and row > until.get(source, NEVER):
                    until[source] = row
                    waiting.append(source)
        return until

    def future(self, message: int, birth: int) -> dict[int, int]:
        """The first row of each node from which on everything that it publishes follows a message."""
        run = self._run
        begins = {int(run.node[birth]): birth}
        for row in run.rows_of(message, DELIVER):
            begins.setdefault(int(run.node[row]), int(row))
        # A node that never delivers the message may deliver something that follows it.
        for node in self.nodes:
            if node in begins:
                continue
            rows = self.rows_at(node)
            births = run.birth_rows[rows]
            sources = run.source[rows]
            limits = np.full(int(max(self.nodes)) + 1, len(run), np.int64)
            for known, row in begins.items():
                limits[known] = row
            follows = np.flatnonzero((births > limits[np.minimum(sources, len(limits) - 1)]) & (births != NOTHING))
            if len(follows):
                begins[node] = int(rows[follows[0]])
        return begins

    def precedes(self, earlier: int, birth: int) -> bool:
        """Whether the publisher of a message that begins with a row had delivered another message before."""
        run = self._run
        publisher = int(run.node[birth])
        rows = self.rows_at(publisher)
        seen = rows[: np.searchsorted(rows, birth)]
        return bool(np.any(run.message[seen] == earlier)) or run.birth_of(earlier) in self._own_before(publisher, birth)

    def _own_before(self, publisher: int, birth: int) -> set[int]:
        run = self._run
        _, births = run.births
        own = births[(run.node[births] == publisher) & (births < birth)]
        return {int(row) for row in own}


def latest_by(sources: Numbers, rows: Numbers) -> list[tuple[int, int]]:
    """The largest row of each source."""
    if not len(rows):
        return []
    order = np.lexsort((rows, sources))
    sources, rows = sources[order], rows[order]
    is_last = np.append(np.diff(sources) != 0, True)
    return list(zip(sources[is_last].tolist(), rows[is_last].tolist(), strict=True))
