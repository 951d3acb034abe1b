"""The explorer follows every schedule, and finds the one that breaks a promise."""

from __future__ import annotations

from antiphon.kernel import UNSPECIFIED, Environment, Process, ProtocolMessage, Publication
from antiphon.simulator.explore.explorer import System, describe, explore, narrate


class Flooding(Process):
    """Every publication goes straight to everybody and is delivered on arrival: no order at all."""

    nodes = 3

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.published = 0
        self.delivered: list[tuple[int, int]] = []

    def start(self) -> None:
        self.environment.subscribed(0)

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        self.published += 1
        publication = Publication(self.me, self.published, 0, payload, topic)
        self.deliver(publication)
        for node in range(self.nodes):
            if node != self.me:
                self.environment.send(node, publication)
        return self.published

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        assert isinstance(message, Publication)
        self.deliver(message)

    def deliver(self, publication: Publication) -> None:
        self.delivered.append((publication.source, publication.sequence))
        self.environment.deliver(publication)

    def state(self) -> str:
        return f"{self.published} {self.delivered}"


class Deaf(Flooding):
    """Node 2 never listens."""

    def deliver(self, publication: Publication) -> None:
        if self.me != 2:
            super().deliver(publication)


def test_all_orders_of_independent_arrivals_are_followed() -> None:
    """Two copies on their way to two nodes: 2 orders, 4 states after the publication, 5 in all."""
    found = explore(Flooding, [[("publish", 0)], [], []])
    assert (found.states, found.transitions, found.ends, found.exhausted) == (5, 5, 1, True)
    assert found.violation is None


def test_a_schedule_that_breaks_causal_order_is_found_and_told() -> None:
    """One of two nodes answers what it got from the other; the answer overtakes the question."""
    found = explore(Flooding, [[("publish", 0)], [("publish", 0)], []])
    assert found.violation is not None
    assert found.violation.startswith("causal: 1, such as publication 1 of node 1 on topic 0 at node 2")
    assert found.schedule[0] == "node 1: publish 0"
    assert found.schedule[-1].startswith("1->2 Publication")


def test_a_loss_is_found_at_the_end_of_a_schedule() -> None:
    found = explore(Deaf, [[("publish", 0)], [], []])
    assert found.violation is not None
    assert "completeness: 1" in found.violation


def test_a_limit_ends_the_exploration_and_says_so() -> None:
    found = explore(Flooding, [[("publish", 0)], [], []], state_limit=3)
    assert not found.exhausted
    assert found.violation is None


def test_a_message_is_described_with_all_that_it_carries_but_its_clock() -> None:
    described = "Publication dependencies=[] order=-1 payload=b'x' sequence=2 source=1 topic=3"
    assert describe(Publication(1, 2, 99, b"x", 3)) == described


def test_a_schedule_can_be_told_step_by_step() -> None:
    assert narrate(lambda: System(Flooding, [[("publish", 0)], [], []]), [-1, 1]) == (
        "node 0: publish 0",
        "0->2 Publication dependencies=[] order=-1 payload=b'' sequence=1 source=0 topic=0",
    )
