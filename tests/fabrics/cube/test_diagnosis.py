"""VCube's diagnosis (section 2.4 of the thesis): who tests whom, and who knows what when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from antiphon.fabrics.cube.diagnosis import Diagnosis, DiagnosisOptions, DiagnosisRequest, StateReport
from antiphon.fabrics.cube.topology import cluster_members
from antiphon.kernel import Environment, ProtocolMessage
from antiphon.kernel.errors import UsageError
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition

ROUND, PATIENCE, DELAY = 1000, 400, 100


class Noting(Diagnosis):
    """Notes when it learns what, and what it sends and gets."""

    def __init__(self, environment: Environment, options: DiagnosisOptions) -> None:
        super().__init__(environment, options)
        self.learned: list[tuple[int, int, bool]] = []
        self.got: list[tuple[int, ProtocolMessage]] = []

    def changed(self, node: int, is_present: bool) -> None:
        self.learned.append((int(self.environment.now()), int(node), is_present))

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.got.append((int(self.environment.now()), message))
        super().receive(sender, message)


class Change(Action):
    """Nodes crash, or come back."""

    def __init__(self, crashed: Sequence[int] = (), restarted: Sequence[int] = ()) -> None:
        self.crashed, self.restarted = crashed, restarted

    def run(self, engine: Engine) -> None:
        for node in self.crashed:
            engine.crash(node)
        for node in self.restarted:
            engine.restart(node)


def system(nodes: int, tells: bool = False, **changes: Change) -> Engine:
    """Nodes that diagnose each other; ``changes`` happen at times such as ``at_5000``."""
    options = DiagnosisOptions(nodes, ROUND, PATIENCE, tells)
    network = NetworkModel(delay=ConstantDelay(DELAY), transmission=0, processing=0)
    engine = Engine(nodes, network, lambda environment: Noting(environment, options), can_fail=True)
    for name, change in changes.items():
        engine.at(int(name.removeprefix("at_")), change)
    return engine


def process(engine: Engine, node: int) -> Noting:
    """The process of a node that is up."""
    found = engine.nodes[node].process
    assert isinstance(found, Noting)
    return found


def present_at(engine: Engine, node: int) -> set[int]:
    """Who is there as a node thinks."""
    return set(process(engine, node).present.members())


def living(engine: Engine) -> list[int]:
    """The nodes that are up."""
    return [int(node.identifier) for node in engine.nodes if node.process is not None]


@pytest.mark.parametrize("nodes", [2, 8, 64])
def test_where_all_are_there_everybody_tests_one_and_is_tested_once_in_a_round(nodes: int) -> None:
    engine = system(nodes)
    engine.run(100 * ROUND, 10_000_000)
    for node in range(nodes):
        tests = [message for _, message in process(engine, node).got if isinstance(message, DiagnosisRequest)]
        assert 98 <= len(tests) <= 101
        assert all(len(message.news) == 0 for message in tests)
        assert process(engine, node).learned == []


@pytest.mark.parametrize("failed", [set(), {1}, {1, 2}, {5, 6, 7}, {0, 1, 2, 4}, set(range(1, 8))])
def test_somebody_tests_everybody_in_every_cluster(failed: set[int]) -> None:
    """The first node of ``c(j, s)`` that is there tests ``j``, whoever has failed, and nobody else does."""
    nodes = 8
    engine = system(nodes)
    for node in set(range(nodes)) - failed:
        for other in failed:
            process(engine, node)._learn(other, 1)
    for s in (1, 2, 3):
        testers = {node: process(engine, node).tested(s) for node in set(range(nodes)) - failed}
        for node in range(nodes):
            expected = next((first for first in cluster_members(node, s) if first not in failed), None)
            assert [tester for tester, tested in testers.items() if node in tested] == (
                [] if expected is None else [expected]
            )


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize(("nodes", "crashed"), [(8, [3]), (8, [0, 3, 5]), (11, [8, 9, 10]), (32, list(range(1, 32)))])
def test_all_who_live_find_out_who_has_failed_and_who_is_back(nodes: int, crashed: list[int], tells: bool) -> None:
    engine = system(nodes, tells, at_5000=Change(crashed), at_200000=Change(restarted=crashed))
    engine.run(200_000 - 1, 10_000_000)
    alive = set(range(nodes)) - set(crashed)
    assert all(present_at(engine, node) == alive for node in alive)
    engine.run(400_000, 20_000_000)
    assert all(present_at(engine, node) == set(range(nodes)) for node in range(nodes))


@pytest.mark.parametrize("nodes", [8, 64])
def test_a_failure_is_known_to_all_within_the_square_of_the_dimension_in_rounds(nodes: int) -> None:
    """Section 2.4: ``log2 N`` squared rounds at worst."""
    dimension = nodes.bit_length() - 1
    for victim in range(0, nodes, 7):
        engine = system(nodes, at_5000=Change([victim]))
        engine.run(5000 + (dimension**2 + 1) * ROUND, 10_000_000)
        assert all(victim not in present_at(engine, node) for node in living(engine))


def test_told_at_once_all_know_some_hops_after_the_first() -> None:
    engine = system(64, tells=True, at_5000=Change([21]))
    engine.run(60 * ROUND, 10_000_000)
    times = [
        at for node in living(engine) for at, changed, is_present in process(engine, node).learned if changed == 21
    ]
    assert len(times) == 63
    assert max(times) - min(times) <= 6 * DELAY


def test_who_is_thought_to_have_failed_says_otherwise() -> None:
    """A node that was cut off for longer than the patience is missed, and everybody is told when it is back."""
    engine = system(16)
    engine.cut(NetworkPartition(5000, 40_000, [[3]]))
    engine.run(39_000, 10_000_000)
    assert all(3 not in present_at(engine, node) for node in range(16) if node != 3)
    assert present_at(engine, 3) == {3}
    engine.run(100_000, 20_000_000)
    assert all(present_at(engine, node) == set(range(16)) for node in range(16))


def test_only_what_has_changed_is_told_and_once_to_each() -> None:
    engine = system(16, at_5000=Change([9]))
    engine.run(100 * ROUND, 10_000_000)
    for node in living(engine):
        told = [
            message
            for at, message in process(engine, node).got
            if at > 50 * ROUND and isinstance(message, StateReport) and len(message.news) > 0
        ]
        assert told == []


def test_a_system_that_cannot_work_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        DiagnosisOptions(1, 10, 10)
    with pytest.raises(UsageError, match="at least one tick"):
        DiagnosisOptions(4, 10, 0)
