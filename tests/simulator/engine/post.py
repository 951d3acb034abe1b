"""A small protocol for the tests of the engine: what is published is sent to the nodes that its payload names."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.kernel import UNSPECIFIED, Environment, Process, ProtocolMessage, Publication
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from tests.support import lines_of


class Nudge(ProtocolMessage):
    """A control message."""


class Post(Process):
    """``publish(bytes([1, 3]))`` sends one copy to node 1 and one to node 3; whoever gets one delivers it."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.published = 0

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        self.published += 1
        for destination in payload:
            self.environment.send(destination, self.letter(payload))
        return self.published

    def letter(self, payload: bytes) -> ProtocolMessage:
        """What is sent: a publication."""
        return Publication(self.me, self.published, self.environment.now(), payload)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, Publication):
            self.environment.deliver(message)


class Nudging(Post):
    """The same with control messages."""

    def letter(self, payload: bytes) -> ProtocolMessage:
        return Nudge(self.me, self.published)


class Do(Action):
    """Any function as an action; interpreted also where the engine is compiled."""

    def __init__(self, function: Callable[[Engine], object]) -> None:
        self.function = function

    def run(self, engine: Engine) -> None:
        self.function(engine)


class Run:
    """An engine with a trace of everything, and actions given with their times."""

    def __init__(
        self,
        node_count: int,
        network: NetworkModel | None = None,
        build: Callable[[Environment], Process] = Post,
        seed: int = 1,
        level: str = "everything",
        can_fail: bool = False,
        absent: set[int] | None = None,
    ) -> None:
        self.trace = MemoryTrace(level)
        self.engine = Engine(
            node_count,
            NetworkModel(ConstantDelay(10)) if network is None else network,
            build,
            seed=seed,
            recorder=self.trace.recorder,
            can_fail=can_fail,
            absent=absent,
        )

    def at(self, time: int, *actions: Action) -> Run:
        """Do something at a given time; the answer is this run again, so that calls can be chained."""
        for action in actions:
            self.engine.at(time, action)
        return self

    def lines(self, *only: str) -> str:
        """Run to the end, and the trace as text."""
        self.engine.run()
        return lines_of(self.trace.table(), only or None)
