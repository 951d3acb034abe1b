"""Weaker publications beside total ones through partitions: what holds for those that a majority had, and for all."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from antiphon.audit.majorities import Apart, Word, apart_by, publications_apart
from antiphon.audit.total_order import judge_total_order
from antiphon.kernel.message import CAUSAL, NONE, TOTAL
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import Simulation, run_scenario
from antiphon.simulator.scenario.scenario import Fault, PartitionFault, Scenario
from antiphon.simulator.scenario.verdict import Witness
from tests.fabrics.tree.runs import UNSTEADY, kept, publish, run, run_until, tree
from tests.fabrics.tree.test_repair import traffic

BROKEN_ONCE = sorted((Path(__file__).parent / "broken_once").glob("*.toml"))
STAR = [-1, 0, 0, 0, 0]


def cut(at: int, until: int, *nodes: int) -> Fault:
    """Some brokers are cut off from all others."""
    return PartitionFault(at=at, until=until, groups=[list(nodes)])


def with_option(scenario: Scenario, value: bool) -> Scenario:
    """The same with or without quorum delivery."""
    options = {**scenario.protocol_options, "quorum_delivery": value}
    return msgspec.structs.replace(scenario, protocol_options=options)


def sides(scenario: Scenario) -> tuple[int, Apart]:
    """On how many keys there is no single order if nothing is excepted, and what is."""
    witness = Witness(scenario.nodes)
    simulation = Simulation(scenario, witness.recorder)
    assert simulation.run() == "finished"
    witness.recorder.flush()
    table = witness.table()
    assert table is not None
    return judge_total_order(table)[0], publications_apart(table)


@pytest.mark.parametrize("path", BROKEN_ONCE, ids=lambda path: path.stem)
def test_a_weaker_publication_that_a_majority_did_not_have_is_the_only_exception(path: Path) -> None:
    scenario = load_scenario(path)
    circles, apart = sides(scenario)
    assert (circles, len(apart)) == (1, 1)
    assert kept(scenario) == {}


@pytest.mark.parametrize("path", BROKEN_ONCE, ids=lambda path: path.stem)
def test_where_all_wait_for_a_majority_there_is_no_exception(path: Path) -> None:
    scenario = with_option(load_scenario(path), True)
    assert sides(scenario)[0] == 0
    assert kept(scenario) == {}


@pytest.mark.parametrize("first", [1050, 1200])
@pytest.mark.parametrize("second", [4300, 4350, 4400, 4450])
def test_what_a_root_that_is_cut_off_has_completed_goes_before_what_an_earlier_one_had_locked(
    first: int, second: int
) -> None:
    """One root locks and is cut off; the next completes something else, alone knows of it, and is cut off too."""
    said = [publish(1000, 1, "total", 1), publish(4000, 3, "total", 1)]
    parts = [cut(first, second, 0, 1), cut(second, 30_000, 2)]
    assert kept(tree(said, parts, parents=STAR, quorum=True, council=0)) == {}


@pytest.mark.parametrize("parted", [(7,), (0,), (3, 5, 7), (0, 1, 2)])
@pytest.mark.parametrize("council", [0, 1000])
def test_everything_is_delivered_everywhere_through_partitions(parted: tuple[int, ...], council: int) -> None:
    parts = [cut(2000, 9000, *parted)]
    said = traffic(end=7000)
    assert kept(tree(said, parts, network=UNSTEADY, quorum=True, council=council, quorum_delivery=True)) == {}


def test_without_faults_all_orders_are_kept() -> None:
    orders = ("none", "fifo", "causal", "total")
    said = [publish(50 * number, number % 8, orders[number % 4], number % 3) for number in range(80)]
    scenario = tree(said, network=UNSTEADY, quorum_delivery=True)
    assert kept(scenario) == {}
    assert run(scenario).engine.deliveries == 8 * len(said)


def test_nobody_delivers_what_a_majority_does_not_know() -> None:
    """Two of five are cut off before they know: nothing is delivered there, and more is refused in every order."""
    said = [publish(1000, 1, "causal", 1)]
    scenario = tree(said, [cut(1050, 60_000, 0, 1)], parents=STAR, quorum=True, council=0, quorum_delivery=True)
    apart = run_until(scenario, 50_000)
    assert apart.engine.deliveries == 0
    process = apart.engine.nodes[1].process
    assert process is not None
    assert all(process.refusal(order) is not None for order in (NONE, CAUSAL, TOTAL))
    reason = process.refusal(NONE)
    assert reason is not None and "every message on this topic needs one: wait until" in reason
    assert run(scenario).engine.deliveries == 5


def test_without_a_majority_rule_it_still_costs_the_way_of_a_total_publication() -> None:
    """Measured for the table of costs: weaker publications take as many messages as total ones."""
    results = [
        run_scenario(tree([publish(1000 * number, number % 8, order) for number in range(16)], quorum_delivery=option))
        for order, option in (("total", False), ("causal", True), ("causal", False))
    ]
    sent = [result.sent for result in results]
    assert sent[0] == sent[1] > sent[2]


def word(place: int, node: int, epoch: int, members: str = "") -> list[Word]:
    """A node begins an epoch; its root, the first member, says who is in it, and the council are nodes 0 to 4."""
    begun = [Word(place, node, (epoch, 0), None, 0)]
    if members:
        begun += [Word(place, node, (epoch, 0), peer, (1 if str(peer) in members else 0) | 2) for peer in range(5)]
    return begun


def deliveries(*nodes: int) -> list[dict[str, object]]:
    """Publication 1 of node 3 is delivered by some nodes, one after the other."""
    row = {"event": "deliver", "topic": 0, "source": 3, "sequence": 1, "order": "causal"}
    return [{**row, "node": node} for node in nodes]


@pytest.mark.parametrize(
    ("nodes", "later_at", "expected"),
    [
        ((3, 4, 0), 2, True),
        ((3, 4, 0), 3, False),
        ((0, 1), 2, False),
        ((3,), 1, True),
    ],
)
def test_only_what_was_with_somebody_who_is_left_out_too_early_is_excepted(
    nodes: tuple[int, ...], later_at: int, expected: bool
) -> None:
    """A later epoch without nodes 3 and 4 comes into force after so many deliveries."""
    words = [one for node in range(5) for one in word(0, node, 1, "01234" if node == 0 else "")]
    words += [one for node in range(3) for one in word(later_at, node, 2, "012" if node == 0 else "")]
    table = pa.Table.from_pylist(deliveries(*nodes))
    assert bool(apart_by(words, table)) == expected


def test_a_newcomer_that_stood_still_is_left_out_although_it_says_so_only_later() -> None:
    """It begins the epoch that the root had begun with it after the next one, without it, is in force."""
    words = [*word(0, 0, 1, "0"), *word(1, 0, 2, "03"), *word(2, 0, 3, "0"), *word(3, 3, 2)]
    rows = [{**row, "event": "other"} for row in deliveries(0, 0, 0)]
    assert apart_by(words, pa.Table.from_pylist([*rows, *deliveries(3, 0)])) == {(0, 3, 1)}
