"""The actions of a scenario on a running simulation, one class per kind."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.topology import PartialCube
from antiphon.kernel.message import UNSPECIFIED
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.network import NetworkPartition


class NodeAction(Action):
    """An action on one node."""

    def __init__(self, node: i64) -> None:
        self.node: Final[i64] = node


class PublishAction(NodeAction):
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


class SubscribeAction(NodeAction):
    """The node subscribes to a topic."""

    def __init__(self, node: i64, topic: i64 = 0) -> None:
        super().__init__(node)
        self.topic: Final[i64] = topic

    def run(self, engine: Engine) -> None:
        engine.subscribe(self.node, self.topic)


class UnsubscribeAction(NodeAction):
    """The node unsubscribes from a topic."""

    def __init__(self, node: i64, topic: i64 = 0) -> None:
        super().__init__(node)
        self.topic: Final[i64] = topic

    def run(self, engine: Engine) -> None:
        engine.unsubscribe(self.node, self.topic)


class CrashAction(NodeAction):
    """The node stops at once and forgets everything."""

    def run(self, engine: Engine) -> None:
        engine.crash(self.node)


class RestartAction(NodeAction):
    """A crashed node restarts."""

    def run(self, engine: Engine) -> None:
        engine.restart(self.node)


class PauseAction(NodeAction):
    """The node pauses."""

    def run(self, engine: Engine) -> None:
        engine.pause(self.node)


class ResumeAction(NodeAction):
    """A paused node resumes."""

    def run(self, engine: Engine) -> None:
        engine.resume(self.node)


class JoinAction(NodeAction):
    """An absent node starts."""

    def run(self, engine: Engine) -> None:
        engine.join(self.node)


class LeaveAction(NodeAction):
    """The node leaves orderly."""

    def run(self, engine: Engine) -> None:
        engine.leave(self.node)


class JumpClockAction(NodeAction):
    """The wall clock of the node jumps."""

    def __init__(self, node: i64, ticks: i64) -> None:
        super().__init__(node)
        self.ticks: Final[i64] = ticks

    def run(self, engine: Engine) -> None:
        engine.nodes[self.node].clock_error += self.ticks


class PartitionAction(Action):
    """The network splits for a while."""

    def __init__(self, cut: NetworkPartition) -> None:
        self.cut: Final[NetworkPartition] = cut

    def run(self, engine: Engine) -> None:
        engine.cut(self.cut)


class AdmitAction(NodeAction):
    """A membership oracle adds the node to the shared cube. It is still a member if its crash was never noticed."""

    def __init__(self, node: i64, members: PartialCube) -> None:
        super().__init__(node)
        self._members: Final[PartialCube] = members

    def run(self, engine: Engine) -> None:
        self._members.add(self.node)


class ExpelAction(NodeAction):
    """A membership oracle removes the node from the shared cube: all trees change at once."""

    def __init__(self, node: i64, members: PartialCube) -> None:
        super().__init__(node)
        self._members: Final[PartialCube] = members

    def run(self, engine: Engine) -> None:
        self._members.remove(self.node)
