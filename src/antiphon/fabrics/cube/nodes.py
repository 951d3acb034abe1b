"""The nodes of a cube as one of them knows them, and what those who leave the system bequeath to the others.

A node that leaves tells everybody what it counted as past on each topic. Whoever stays speaks for it when newcomers
ask, and tells newcomers of the system the same.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import Bequest, append_all
from antiphon.fabrics.cube.topic import TopicTable
from antiphon.fabrics.cube.topology import Cube, PartialCube
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.process import Environment
from antiphon.orders.order import merged_frontiers

LARGEST_BEQUEST: Final = 1 << 16
"""So many integers fit one bequest, about; what is more goes into the next."""


@final
class CubeNodes:
    """The cube of all nodes. Nodes of a system that does not change share one; a change makes it a node's own."""

    def __init__(self, environment: Environment, cube: Cube, topics: TopicTable) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[TopicTable] = topics
        self.cube: Cube = cube
        self._own_cube: PartialCube | None = None
        self.is_leaving: bool = False

    def others(self) -> list[int]:
        """All nodes but this one."""
        return [node for node in self.cube.members() if node != self._me]

    def include(self, node: i64) -> None:
        """A node exists from now on; it is told what those who have gone counted as past."""
        self._changing_cube().include(node)
        self._bequeath([node], self.is_leaving)

    def remove(self, node: i64) -> None:
        """A node is not there any more."""
        self._changing_cube().remove(node)

    def leave(self) -> None:
        """This node is about to go: all others are told what it counts as past."""
        self.is_leaving = True
        self._bequeath(self.others(), True)

    def _changing_cube(self) -> PartialCube:
        if self._topics.options.directory:
            raise UsageError("with a directory the set of nodes is fixed; run without it where nodes come and go")
        cube = self._own_cube
        if cube is None:
            cube = self.cube.to_change()
            self._own_cube = cube
            self.cube = cube
        return cube

    def _bequeath(self, heirs: list[int], with_own_past: bool) -> None:
        """Tell others what the departed counted as past, and if this node departs too, what it does."""
        entries = vec[i64]()
        for topic in self._topics.all():
            past = topic.inherited
            if with_own_past:
                past = merged_frontiers(past, topic.order.frontier())
            if len(past) == 0:
                continue
            entries = append_all(append(append(entries, topic.name), len(past)), past)
            if len(entries) >= LARGEST_BEQUEST:
                self._send_bequest(heirs, entries)
                entries = vec[i64]()
        if len(entries) > 0:
            self._send_bequest(heirs, entries)

    def _send_bequest(self, heirs: list[int], entries: vec[i64]) -> None:
        for heir in heirs:
            self._environment.send(heir, Bequest(self._me, entries))

    def receive_bequest(self, message: Bequest) -> None:
        """Keep what the departed counted as past, to speak for them."""
        entries = message.entries
        position: i64 = 0
        while position + 1 < len(entries):
            topic = self._topics.find(entries[position])
            end = position + 2 + entries[position + 1]
            if end > len(entries) or end < position + 2:
                raise ProtocolError(f"node {message.source} sent a bequest that is cut off")
            topic.inherited = merged_frontiers(topic.inherited, vec[i64](entries[position + 2 : end]))
            position = end

    def text(self) -> str:
        """Everything as text, for those who compare states."""
        nodes = [] if self._own_cube is None else self._own_cube.members()
        return f"{nodes} {self.is_leaving}"
