"""The broker tree without failures: topics, keys and four orders (dissertation, chapter 3)."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.run import Simulation, run_scenario
from antiphon.simulator.scenario.scenario import Fault, PauseFault, PublishTable, ResumeFault, Scenario, SubscribeTable
from antiphon.trace.store import MemoryTrace
from tests.fabrics.tree.runs import EIGHT, UNSTEADY, kept, publish, run, tree

ORDERS = ("none", "fifo", "causal", "total")


def broker(simulation: Simulation, node: int) -> TreeBroker:
    """One broker."""
    process = simulation.engine.nodes[node].process
    assert isinstance(process, TreeBroker)
    return process


def busy(keys: int) -> list[PublishTable]:
    """Every broker publishes in every order, all at about the same time."""
    return [
        publish(10 * node + 7 * number, node, ORDERS[(node + number) % 4], (node * number) % keys)
        for number in range(8)
        for node in range(8)
    ]


def delivered_numbers(scenario: Scenario) -> set[tuple[int, ...]]:
    """The numbers in which brokers deliver the publications of the only publisher, over all brokers."""
    trace = MemoryTrace("deliveries")
    assert Simulation(scenario, trace.recorder).run() == "finished"
    numbers: dict[int, list[int]] = {}
    for row in trace.table().to_pylist():
        if row["event"] == "deliver":
            numbers.setdefault(row["node"], []).append(row["sequence"])
    return {tuple(found) for found in numbers.values()}


@pytest.mark.parametrize("keys", [1, 3, 100])
def test_all_orders_are_kept_at_once(keys: int) -> None:
    """Section 1.2: each publication has the order that it asked for; a total one is a barrier for its keys."""
    assert kept(tree(busy(keys), network=UNSTEADY)) == {}


def test_a_publication_about_two_keys_is_a_barrier_for_both() -> None:
    """Two transfers between the same accounts, from different branches, among deposits to each."""
    transfers = [publish(100, 4, "total", 1, 2), publish(100, 7, "total", 2, 1)]
    deposits = [publish(at, node, "causal", 1 + at % 2) for at in range(50, 400, 25) for node in (5, 6)]
    assert kept(tree([*transfers, *deposits], network=UNSTEADY)) == {}


def test_unrelated_keys_never_wait(tmp_path: Path) -> None:
    """While a total publication waits for a broker that stalls, others about its key wait, and nobody else."""
    stalled: list[Fault] = [PauseFault(at=50, node=7), ResumeFault(at=5000, node=7)]
    publications = [publish(100, 4, "total", 1), publish(600, 5, "causal", 1), publish(600, 6, "causal", 2)]
    run_scenario(tree(publications, stalled), tmp_path / "trace.parquet")
    rows = pq.read_table(tmp_path / "trace.parquet").to_pylist()
    delivered_by_4 = {row["source"]: row["time"] for row in rows if row["event"] == "deliver" and row["node"] == 4}
    assert delivered_by_4[6] < 1500, "another key does not wait"
    assert delivered_by_4[5] > 5000, "the same key does"
    assert delivered_by_4[4] > 5000, "and so does the total publication itself"


def test_a_topic_is_carried_only_where_somebody_needs_it() -> None:
    """Section 3.4: brokers with no subscriber below them, the root excepted, know nothing of the topic."""
    simulation = run(tree([publish(0, 4, "total", 1)], members=[[4, 5]]))
    carrying = [node for node in range(8) if broker(simulation, node).topics.get(0) is not None]
    assert carrying == [0, 1, 4, 5]


def test_what_all_have_is_not_kept() -> None:
    """Buffers are emptied by acknowledgement instead of having a fixed size (future work, section 6.1)."""
    simulation = run(tree(busy(3), collect=500))
    assert all(not broker(simulation, node).topics.of(0).items for node in range(8))


def test_who_subscribes_later_gets_what_comes_later_and_who_leaves_nothing() -> None:
    joins = [SubscribeTable(at=300, node=7), SubscribeTable(at=900, node=6)]
    leaves = [SubscribeTable(at=1500, node=4)]
    publications = [publish(at, 5, ORDERS[at // 50 % 4], at % 2) for at in range(0, 3000, 50)]
    scenario = tree(publications, members=[[0, 4, 5]], subscriptions=joins, unsubscriptions=leaves, network=UNSTEADY)
    assert kept(scenario) == {}


def test_who_needs_a_topic_no_more_stops_carrying_it() -> None:
    scenario = tree([publish(0, 4, "causal")], members=[[0, 4]], unsubscriptions=[SubscribeTable(at=100, node=4)])
    simulation = run(scenario)
    assert not broker(simulation, 4).topics.of(0).is_carried
    assert not broker(simulation, 1).topics.of(0).is_carried


def test_without_strict_sessions_what_follows_a_total_publication_overtakes_it() -> None:
    """Section 2.6 of the rules leaves this open; the default keeps causality, and costs the time of a barrier."""
    publications = [publish(0, 4, "total", 1), publish(1, 4, "causal", 2), publish(2, 4, "fifo", 3)]
    assert kept(tree(publications)) == {}
    assert kept(tree(publications, strict_session=False)) == {}
    assert delivered_numbers(tree(publications)) == {(1, 2, 3)}
    assert delivered_numbers(tree(publications, strict_session=False)) == {(2, 3, 1)}


def test_only_subscribers_publish_and_only_orders_that_exist() -> None:
    simulation = run(tree([publish(0, 4, "none")], members=[[4]]))
    with pytest.raises(UsageError, match="not subscribed"):
        broker(simulation, 5).publish(b"", 0)
    with pytest.raises(UsageError, match="there is no order"):
        broker(simulation, 4).publish(b"", 0, 9)
    with pytest.raises(UsageError, match="already"):
        broker(simulation, 4).subscribe(0)


def test_one_broker_alone_orders_everything() -> None:
    assert kept(tree([publish(at, 0, ORDERS[at % 4], 1) for at in range(40)], parents=[-1])) == {}


def test_a_chain_of_brokers_is_a_tree_too() -> None:
    chain = [-1, *range(7)]
    assert len(chain) == len(EIGHT)
    assert kept(tree(busy(2), parents=chain, network=UNSTEADY)) == {}
