"""Total order over VCube-PS: every schedule of small systems, what it costs, and rules that would be too weak."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import SurveyResponse
from antiphon.fabrics.cube.total_order.messages import GrantResponse, KeyLockResponse
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel import (
    CAUSAL,
    FIFO,
    NONE,
    Environment,
    Process,
    ProtocolError,
    ProtocolMessage,
    Publication,
    UsageError,
)
from antiphon.kernel.message import NO_KEYS, TOTAL
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.explore.explorer import Operation, explore
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import ConstantLaw, NetworkTable, PublishTable, Scenario, TopicsTable
from tests.fabrics.cube.test_vcube_ps import builder
from tests.support import Notebook

SUBSCRIBE: Operation = ("subscribe", 0)
UNSUBSCRIBE: Operation = ("unsubscribe", 0)
WITHOUT: Operation = ("publish", 0, NONE)
CAUSALLY: Operation = ("publish", 0, CAUSAL)
TOTALLY: Operation = ("publish", 0, TOTAL)

Scripts = list[list[Operation]]
OPTIONS = Options(mixed=True, total=True)


# Every schedule: members at the start, what each node does, and how many states. Node 0 keeps the claims.
SMALL_SYSTEMS: list[tuple[list[int], Scripts, int]] = [
    ([0, 1], [[TOTALLY], [TOTALLY]], 103),
    ([0, 1], [[TOTALLY, WITHOUT], [WITHOUT]], 148),
    ([0, 1], [[WITHOUT, TOTALLY], [TOTALLY]], 552),
    ([0], [[TOTALLY], [SUBSCRIBE, WITHOUT]], 138),
    ([0], [[TOTALLY], [SUBSCRIBE, TOTALLY]], 292),
    ([0, 1], [[TOTALLY], [UNSUBSCRIBE, SUBSCRIBE]], 206),
    ([0, 1], [[WITHOUT], [TOTALLY, UNSUBSCRIBE]], 186),
    ([0, 1, 2], [[TOTALLY], [WITHOUT], []], 560),
    ([1, 2], [[], [TOTALLY], [WITHOUT]], 83),
]


@pytest.mark.parametrize(("members", "scripts", "states"), SMALL_SYSTEMS)
def test_no_schedule_breaks_total_order(members: list[int], scripts: Scripts, states: int) -> None:
    found = explore(builder(len(scripts), members, OPTIONS), scripts)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted
    assert found.ends > 0
    assert found.states == states


# Rules that look right and are not.


class Liar(Environment):
    """Stands between a process and the world, and changes what the process says."""

    def __init__(self, outer: Environment, change: Callable[[ProtocolMessage], ProtocolMessage]) -> None:
        super().__init__(outer.identifier)
        self._outer = outer
        self._change = change

    def now(self) -> int:
        return self._outer.now()

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self._outer.send(destination, self._change(message))

    def deliver(self, publication: Publication) -> None:
        self._outer.deliver(publication)

    def subscribed(self, topic: int) -> None:
        self._outer.subscribed(topic)

    def unsubscribed(self, topic: int) -> None:
        self._outer.unsubscribed(topic)

    def random(self) -> RandomStream:
        return self._outer.random()


def without_numbers(message: ProtocolMessage) -> ProtocolMessage:
    """Who closes does not say what it has published."""
    if isinstance(message, KeyLockResponse):
        return KeyLockResponse(message.source, message.sequence, message.topic, message.place, vec[i64]())
    return message


def without_announcements(message: ProtocolMessage) -> ProtocolMessage:
    """Newcomers do not hear of locks that were there before them."""
    if isinstance(message, SurveyResponse):
        return SurveyResponse(
            message.source, message.sequence, message.topic, message.entries, NO_KEYS, message.is_past
        )
    return message


WEAK_RULES: list[tuple[Callable[[ProtocolMessage], ProtocolMessage], list[int], Scripts]] = [
    (without_numbers, [0, 1, 2], [[TOTALLY], [WITHOUT], []]),
    (without_announcements, [0, 1], [[TOTALLY], [], [SUBSCRIBE, WITHOUT]]),
]


@pytest.mark.parametrize(("change", "members", "scripts"), WEAK_RULES)
def test_a_weaker_rule_breaks_total_order_in_some_schedule(
    change: Callable[[ProtocolMessage], ProtocolMessage], members: list[int], scripts: Scripts
) -> None:
    honest = builder(len(scripts), members, OPTIONS)

    def build(environment: Environment) -> Process:
        return honest(Liar(environment, change))

    found = explore(build, scripts, 20_000)
    assert found.violation is not None
    assert "nodes delivered" in found.violation


# What it costs, and misuse.


def messages_for_one(order: str, nodes: int) -> int:
    """The messages that one publication takes; the last node publishes, and the first is the lock manager."""
    scenario = Scenario(
        name="one publication",
        protocol="vcube-ps",
        order=order,
        nodes=nodes,
        network=NetworkTable(delay=ConstantLaw(ticks=100), transmission=0, processing=0),
        topics=TopicsTable(count=1, members=[list(range(nodes))]),
        publications=[PublishTable(at=0, node=nodes - 1)],
    )
    return run_scenario(scenario).sent


def test_a_total_publication_takes_a_lock_more_than_others_and_three_words_with_the_keeper() -> None:
    for nodes in (2, 8, 13):
        assert messages_for_one("causal", nodes) == 2 * (nodes - 1)
        assert messages_for_one("total", nodes) == 4 * (nodes - 1) + 3


def test_a_publisher_gets_its_own_total_publication_when_all_are_closed() -> None:
    process = builder(2, [0, 1], OPTIONS)(notebook := Notebook(0))
    process.publish(b"", 0, TOTAL)
    assert notebook.delivered == []
    process.receive(1, KeyLockResponse(0, 1, 0, 1, vec[i64]()))
    assert [publication.order for publication in notebook.delivered] == [TOTAL]


def test_what_is_published_after_a_total_publication_waits_for_it() -> None:
    """What a node publishes on a topic is one line."""
    process = builder(2, [0, 1], OPTIONS)(notebook := Notebook(0))
    for order in (TOTAL, NONE, FIFO):
        process.publish(b"", 0, order)
    assert notebook.delivered == []
    process.receive(1, KeyLockResponse(0, 1, 0, 1, vec[i64]()))
    assert [publication.sequence for publication in notebook.delivered] == [1, 2, 3]


def test_total_order_and_keys_are_refused_where_they_are_not_to_be_had() -> None:
    process = builder(2, [0, 1], Options(mixed=True))(Notebook(0))
    with pytest.raises(UsageError, match="there is no order total here; choose one of none, fifo, causal"):
        process.publish(b"", 0, TOTAL)
    with pytest.raises(UsageError, match="keys are for total order"):
        process.publish_about([7], b"", 0)


def test_what_nobody_asked_for_is_the_peers_fault() -> None:
    process: VCubePs = builder(2, [0, 1], OPTIONS)(Notebook(1))
    with pytest.raises(ProtocolError, match="was granted publication 1, which it did not claim"):
        process.receive(0, GrantResponse(1, 1, 0, 1, 1, 0))
    with pytest.raises(ProtocolError, match="an answer to a lock came to node 1, which sent none on"):
        process.receive(0, KeyLockResponse(1, 1, 0, 1, vec[i64]()))
