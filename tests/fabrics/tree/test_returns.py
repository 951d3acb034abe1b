"""Brokers that crash, half of the tree and more at once, and return with their disks: identity and vote."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.durable_state import NUMBERS_AHEAD, origin_of
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import TOTAL
from antiphon.simulator.scenario.run import Simulation, run_scenario
from antiphon.simulator.scenario.scenario import Fault, RestartFault, Scenario
from tests.fabrics.tree.runs import EIGHT, crash, kept, publish, run, run_until, tree

EVERYBODY = tuple(range(8))


def back(at: int, *nodes: int) -> Fault:
    """Brokers that had crashed return, with their disks."""
    return RestartFault(at=at, nodes=list(nodes))


def returning(down: tuple[int, ...], sync: int, parents: tuple[int, ...] = tuple(EIGHT)) -> Scenario:
    """Some crash at 2000 while all publish, and are back at 9000; later all publish again, in all orders."""
    count = len(parents)
    orders = ("total", "causal", "none")
    early = [publish(100 + 37 * number, number % count, orders[number % 3], number % 2) for number in range(50)]
    late = [publish(60_000 + 37 * number, number % count, orders[number % 3], number % 2) for number in range(24)]
    scenario = tree([], [crash(2000, *down), back(9000, *down)], parents, quorum=True, disk=True, sync=sync)
    return msgspec.structs.replace(scenario, publications=[*early, *late])


def broker(simulation: Simulation, number: int) -> TreeBroker:
    process = simulation.engine.nodes[number].process
    assert isinstance(process, TreeBroker)
    return process


@pytest.mark.parametrize("down", [(4, 5, 6, 7), (0, 1, 2, 3), (1, 2, 3, 4, 5), EVERYBODY])
@pytest.mark.parametrize("sync", [0, 50])
def test_after_everybody_is_back_everything_works_again(down: tuple[int, ...], sync: int) -> None:
    scenario = returning(down, sync)
    assert kept(scenario) == {}
    simulation = run(scenario)
    assert simulation.engine.refused == 0
    assert all(broker(simulation, number).refusal(TOTAL) is None for number in EVERYBODY)


def test_while_half_is_away_total_publications_are_refused_and_the_text_says_who_is_missing() -> None:
    simulation = run_until(returning((0, 5, 6, 7), 50), 8000)
    reason = broker(simulation, 1).refusal(TOTAL)
    assert reason is not None
    assert "brokers 0, 5, 6, 7 cannot be reached" in reason
    assert "back with their logs" in reason and "antiphon dismiss" in reason


def test_a_broker_that_returns_has_a_new_incarnation_and_uses_no_number_twice() -> None:
    simulation = run(returning((4, 5, 6, 7), 50))
    for number in (4, 5, 6, 7):
        returned = broker(simulation, number)
        assert (returned.durable.incarnation, returned.durable.first_number) == (1, NUMBERS_AHEAD)
        assert returned.durable.origin == origin_of(number, 1) != number
        assert returned.topics.of(0).published > NUMBERS_AHEAD
    assert broker(simulation, 0).durable.origin == 0


def test_a_vote_leaves_when_it_is_on_disk() -> None:
    """With a disk that is slower than the run nothing total is completed, and the other orders go on."""
    said = [publish(100, 3, "total", 1), publish(200, 4, "causal", 2)]
    simulation = run_until(tree(said, [crash(900_000, 7)], quorum=True, disk=True, sync=100_000), 50_000)
    assert simulation.engine.deliveries == 8
    simulation.run()
    assert simulation.engine.deliveries == 16


def test_what_all_had_voted_for_is_completed_first_by_those_who_return() -> None:
    """The root completes a total publication, is cut off by its crash, and those who had voted return without it."""
    said = [publish(100, 1, "total", 1), publish(30_000, 2, "total", 1)]
    three = tree(said, [], (-1, 0, 0), quorum=True, disk=True, sync=1)
    for moment in range(300, 1100, 50):
        faults = [crash(moment, 0, 1, 2), back(5000, 1, 2), back(50_000, 0)]
        scenario = msgspec.structs.replace(three, faults=faults)
        assert kept(scenario) == {}, moment


def test_an_operator_lets_the_others_go_on_without_those_who_are_gone() -> None:
    simulation = run_until(tree([publish(100, 1, "total", 1)], [crash(2000, 4, 5, 6, 7, 0)], quorum=True), 30_000)
    assert broker(simulation, 1).refusal(TOTAL) is not None
    broker(simulation, 2).dismiss([0, 4, 5, 6, 7])
    simulation.run()
    for number in (1, 2, 3):
        assert broker(simulation, number).refusal(TOTAL) is None
        assert broker(simulation, number).view.council.bodies == [[1, 2, 3]]


def test_a_return_needs_a_disk_and_a_quorum() -> None:
    faults = [crash(2000, 1), back(3000, 1)]
    said = [publish(100, 0, "causal")]
    for scenario in (tree(said, faults, quorum=True), tree(said, faults, disk=True)):
        with pytest.raises(UsageError, match="protocol-options"):
            run_scenario(scenario)


def test_what_a_life_was_asked_for_and_had_not_let_out_is_no_publication() -> None:
    """Its number was not on disk either, so the next life uses it; nobody has ever seen it before."""
    faults = [crash(1, 0), back(2, 0), crash(4, 0), back(5, 0)]
    alone = tree([], faults, (-1,), quorum=True, disk=True, sync=1000)
    said = [publish(3, 0, "causal", 11), publish(6, 0, "causal", 14)]
    assert kept(msgspec.structs.replace(alone, publications=said)) == {}
