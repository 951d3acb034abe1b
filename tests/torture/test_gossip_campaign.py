"""Torture of the gossip fabric: that it is hard, that it is survived, and that a failure can be made small."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.incarnations import failing_nodes
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import CrashFault, RestartFault, Scenario
from antiphon.torture.campaign import Outcome, check_campaign, run_campaign, run_schedule
from antiphon.torture.schedules.gossip import draw_gossip_schedule
from antiphon.torture.shrinking import Shrinker


def test_schedules_are_hard() -> None:
    """Over some seeds there is everything that can go wrong."""
    scenarios = [draw_gossip_schedule(seed) for seed in range(1, 60)]
    assert any(scenario.network.loss == 0.2 for scenario in scenarios)
    assert any(scenario.network.duplication > 0 for scenario in scenarios)
    faults = [fault for scenario in scenarios for fault in scenario.faults]
    assert sum(isinstance(fault, CrashFault) for fault in faults) > sum(isinstance(one, RestartFault) for one in faults)
    assert any(scenario.subscriptions for scenario in scenarios)
    assert all(0 not in failing_nodes(scenario) for scenario in scenarios)
    for scenario in scenarios:
        assert failing_nodes(scenario).isdisjoint(publication.node for publication in scenario.publications)
    assert draw_gossip_schedule(7) == draw_gossip_schedule(7) != draw_gossip_schedule(8)


@pytest.mark.parametrize("order", [None, "mixed"])
def test_every_schedule_is_survived(order: str | None) -> None:
    """Whoever stays gets everything, in order, once (loss up to 20 %, crashes, rejoins)."""
    tally = run_campaign(1, 40, order, fabric="gossip")
    assert [(outcome.seed, outcome.about) for outcome in tally.failing] == []
    assert tally.faults["crash"] > 20 and tally.deliveries > 1000
    check_campaign("gossip", order)


def test_there_is_no_campaign_for_what_does_not_exist() -> None:
    with pytest.raises(UsageError, match="choose from all, cube, cube-faults, gossip"):
        check_campaign("string", None)


def test_a_failure_is_made_small() -> None:
    """What fails here is any crash: one is left, of one node, and one publication."""

    def run(scenario: Scenario) -> Outcome:
        crashed = any(isinstance(fault, CrashFault) for fault in scenario.faults)
        return Outcome(seed=scenario.seed, violations={"completeness": 1} if crashed else {})

    scenario = next(one for one in map(draw_gossip_schedule, range(1, 50)) if len(one.faults) > 6 and one.nodes > 5)
    small = Shrinker(scenario, "completeness", run).shrink()
    assert sum(isinstance(fault, CrashFault) for fault in small.faults) == 1
    assert small.nodes == 2


def test_the_rivals_that_promise_the_same_are_drawn_too() -> None:
    drawn = {draw_gossip_schedule(seed).protocol for seed in range(1, 40)}
    assert drawn == {"brisa", "plumtree", "simple-gossip"}


@pytest.mark.parametrize("protocol", ["plumtree", "simple-gossip"])
def test_rivals_survive_their_schedules(protocol: str) -> None:
    """Loss up to 20 %, crashes and rejoins: judged by the oracle, which knows no protocol."""
    schedules = [one for one in map(draw_gossip_schedule, range(1000, 1120)) if one.protocol == protocol]
    outcomes = [run_schedule(schedule) for schedule in schedules]
    assert [(outcome.seed, outcome.about) for outcome in outcomes if outcome.violations] == []
    assert sum(any(isinstance(fault, CrashFault) for fault in schedule.faults) for schedule in schedules) > 5
    assert any(schedule.network.loss > 0 for schedule in schedules)


RIVAL = """
fabric = "gossip"
protocol = "{protocol}"
order = "fifo"
nodes = 24
network = {{ delay = {{ law = "normal", mean = 50, deviation = 10 }}, loss = {loss} }}
[[publish]]
at = 8000
node = 0
[[publish]]
at = 12000
node = 5
"""


@pytest.mark.parametrize(
    ("protocol", "loss", "promised"),
    [
        ("plumtree", 0.1, True),
        ("simple-gossip", 0.1, True),
        ("simple-tree", 0.0, True),
        ("tag", 0.0, True),
        ("tag", 0.1, False),
    ],
)
def test_rivals_keep_what_they_promise(protocol: str, loss: float, promised: bool) -> None:
    """Section 4.3.5: trees that are arranged, and TAG, promise nothing where messages are lost."""
    result = run_scenario(parse_scenario(RIVAL.format(protocol=protocol, loss=loss)))
    assert result.violations is not None and not any(result.violations.values())
    assert ("completeness" in result.violations) == promised
    assert not promised or result.deliveries == 48


@pytest.mark.parametrize(
    ("protocol", "options", "complaint"),
    [
        ("simple-gossip", "fanout = 0", "nobody ever hears a rumour"),
        ("simple-gossip", "view = 5", "choose a view of at least 8"),
        ("simple-gossip", "view = 12\nfanout = 13", "from a view of 12 no 13 nodes can be drawn"),
        ("tag", "capacity = 2\ndeepest = 3", "has room for 15 nodes, not for 24"),
        ("simple-tree", "contacts = [0, 1]", "name one contact"),
        ("plumtree", "graft_after = 0", "let graft_after be longer"),
        ("plumtree", "active = 5\npassive = 3", "cannot replace an active view of 5"),
        ("tag", "contacts = [24]", "there is no node 24"),
    ],
)
def test_scenarios_of_rivals_that_cannot_work_are_refused(protocol: str, options: str, complaint: str) -> None:
    text = RIVAL.format(protocol=protocol, loss=0.0) + f"[protocol-options]\n{options}"
    with pytest.raises(ScenarioError, match=complaint):
        parse_scenario(text)


def test_a_simple_tree_takes_no_failures() -> None:
    with pytest.raises(ScenarioError, match="simple-tree needs"):
        parse_scenario(RIVAL.format(protocol="simple-tree", loss=0.1))


LIVES = """
fabric = "gossip"
protocol = "brisa"
order = "fifo"
nodes = 12
[[publish]]
at = 8000
node = {publisher}
[[publish]]
at = 12000
node = {publisher}
[[fault]]
at = 9000
kind = "crash"
node = 5
[[fault]]
at = 9500
kind = "restart"
node = 5
"""


def test_each_life_of_a_node_is_judged_for_itself() -> None:
    result = run_scenario(parse_scenario(LIVES.format(publisher=3)))
    assert result.violations is not None and not any(result.violations.values())
    assert "completeness" in result.violations
    assert result.deliveries == 24


def test_what_a_failing_publisher_promised_is_not_judged() -> None:
    text = LIVES.format(publisher=3).replace('kind = "crash"\nnode = 5', 'kind = "crash"\nnode = 3')
    text = text.replace('kind = "restart"\nnode = 5', 'kind = "restart"\nnode = 3')
    result = run_scenario(parse_scenario(text))
    assert result.judgement.startswith("not judged: node 3 publishes, and what it publishes may be lost")
