"""What a scenario can do to a running simulation, one class per kind of action."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.topology import PartialCube
from antiphon.kernel.message import UNSPECIFIED
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.network import Cut


class NodeAction(Action):
    """Something that happens to one node."""

    def __init__(self, node: i64) -> None:
        self.node: Final[i64] = node


class Publish(NodeAction):
    """The node publishes."""

    def __init__(
        self,
        node: i64,
        payload: bytes = b"",
        topic: i64 = 0,
        order: i64 = UNSPECIFIED,
        keys: list[int] | None = None,
    ) -> None:
        super().__init__(node)
        self.keys: Final[list[int] | None] = keys
        self.payload: Final[bytes] = payload
        self.topic: Final[i64] = topic
        self.order: Final[i64] = order

    def run(self, engine: Engine) -> None:
        engine.publish(self.node, self.payload, self.topic, self.order, self.keys)


class Subscribe(NodeAction):
    """The node subscribes to a topic."""

    def __init__(self, node: i64, topic: i64 = 0) -> None:
        super().__init__(node)
        self.topic: Final[i64] = topic

    def run(self, engine: Engine) -> None:
        engine.subscribe(self.node, self.topic)


class Unsubscribe(NodeAction):
    """The node unsubscribes from a topic."""

    def __init__(self, node: i64, topic: i64 = 0) -> None:
        super().__init__(node)
        self.topic: Final[i64] = topic

    def run(self, engine: Engine) -> None:
        engine.unsubscribe(self.node, self.topic)


class Crash(NodeAction):
    """The node stops at once and forgets everything."""

    def run(self, engine: Engine) -> None:
        engine.crash(self.node)


class Restart(NodeAction):
    """A crashed node comes back."""

    def run(self, engine: Engine) -> None:
        engine.restart(self.node)


class Pause(NodeAction):
    """The node stalls."""

    def run(self, engine: Engine) -> None:
        engine.pause(self.node)


class Resume(NodeAction):
    """A stalled node goes on."""

    def run(self, engine: Engine) -> None:
        engine.resume(self.node)


class Join(NodeAction):
    """An absent node comes up."""

    def run(self, engine: Engine) -> None:
        engine.join(self.node)


class Leave(NodeAction):
    """The node leaves in an orderly way."""

    def run(self, engine: Engine) -> None:
        engine.leave(self.node)


class JumpClock(NodeAction):
    """The clock of the node that shows the time of day jumps."""

    def __init__(self, node: i64, ticks: i64) -> None:
        super().__init__(node)
        self.ticks: Final[i64] = ticks

    def run(self, engine: Engine) -> None:
        engine.nodes[self.node].clock_error += self.ticks


class Partition(Action):
    """The network falls apart for a while."""

    def __init__(self, cut: Cut) -> None:
        self.cut: Final[Cut] = cut

    def run(self, engine: Engine) -> None:
        engine.cut(self.cut)


class Admit(NodeAction):
    """A membership oracle adds the node to the shared cube; it is there already if its crash was never noticed."""

    def __init__(self, node: i64, members: PartialCube) -> None:
        super().__init__(node)
        self._members: Final[PartialCube] = members

    def run(self, engine: Engine) -> None:
        self._members.add(self.node)


class Expel(NodeAction):
    """A membership oracle removes the node from the shared cube: all trees change at once."""

    def __init__(self, node: i64, members: PartialCube) -> None:
        super().__init__(node)
        self._members: Final[PartialCube] = members

    def run(self, engine: Engine) -> None:
        self._members.remove(self.node)
