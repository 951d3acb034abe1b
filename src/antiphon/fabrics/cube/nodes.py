"""The nodes of a cube as one of them knows them, and the frontiers that leavers hand over to the others.

A node that leaves tells all others what it counted as past on each topic. The others answer newcomers on its behalf,
and hand its frontiers over to nodes that join later.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import FrontierHandover, append_all
from antiphon.fabrics.cube.topic import CubeTopicTable
from antiphon.fabrics.cube.topology import Cube, PartialCube
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.process import Environment
from antiphon.orders.order import merged_frontiers

HANDOVER_AT_MOST: Final = 1 << 16
"""About so many integers go into one handover; the rest goes into the next."""


@final
class CubeNodes:
    """The cube of all nodes. Nodes of a system that does not change share one; a change makes it a node's own."""

    def __init__(self, environment: Environment, cube: Cube, topics: CubeTopicTable) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self.cube: Cube = cube
        self._own_cube: PartialCube | None = None
        self.is_leaving: bool = False

    def others(self) -> list[int]:
        """All nodes but this one."""
        return [node for node in self.cube.members() if node != self._me]

    def include(self, node: i64) -> None:
        """A node has joined; send it the frontiers of the nodes that have left."""
        self._changing_cube().include(node)
        self._hand_over([node], self.is_leaving)

    def remove(self, node: i64) -> None:
        """A node has left."""
        self._changing_cube().remove(node)

    def leave(self) -> None:
        """This node is about to leave: send all others what it counts as past."""
        self.is_leaving = True
        self._hand_over(self.others(), True)

    def _changing_cube(self) -> PartialCube:
        if self._topics.options.directory:
            raise UsageError("with a directory the set of nodes is fixed; run without it where nodes come and go")
        cube = self._own_cube
        if cube is None:
            cube = self.cube.to_change()
            self._own_cube = cube
            self.cube = cube
        return cube

    def _hand_over(self, receivers: list[int], with_own_past: bool) -> None:
        """Send the frontiers of the nodes that have left, and the own one if this node leaves too."""
        entries = vec[i64]()
        for topic in self._topics.all():
            past = topic.inherited
            if with_own_past:
                past = merged_frontiers(past, topic.order.frontier())
            if len(past) == 0:
                continue
            entries = append_all(append(append(entries, topic.name), len(past)), past)
            if len(entries) >= HANDOVER_AT_MOST:
                self._send_handover(receivers, entries)
                entries = vec[i64]()
        if len(entries) > 0:
            self._send_handover(receivers, entries)

    def _send_handover(self, receivers: list[int], entries: vec[i64]) -> None:
        for receiver in receivers:
            self._environment.send(receiver, FrontierHandover(self._me, entries))

    def on_frontier_handover(self, message: FrontierHandover) -> None:
        """Keep the frontiers of nodes that have left, to answer on their behalf."""
        entries = message.entries
        position: i64 = 0
        while position + 1 < len(entries):
            topic = self._topics.find(entries[position])
            end = position + 2 + entries[position + 1]
            if end > len(entries) or end < position + 2:
                raise ProtocolError(f"node {message.source} sent frontiers that are cut off; it is broken")
            topic.inherited = merged_frontiers(topic.inherited, vec[i64](entries[position + 2 : end]))
            position = end

    def text(self) -> str:
        """The state as text, to compare states."""
        nodes = [] if self._own_cube is None else self._own_cube.members()
        return f"{nodes} {self.is_leaving}"
