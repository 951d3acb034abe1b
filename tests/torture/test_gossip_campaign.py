"""Torture of the gossip fabric: that it is hard, that it is survived, and that a failure can be made small."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.incarnations import failing_nodes
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import CrashFault, RestartFault, Scenario
from antiphon.torture.campaign import check_campaign, run_campaign
from antiphon.torture.schedules.gossip import draw_gossip_schedule
from antiphon.torture.shrinking import Shrinker
from antiphon.torture.tally import Outcome


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
    with pytest.raises(UsageError, match="choose from all, cube, cube-faults, tree, gossip"):
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
    assert result.judgement.startswith("not judged: node 3 publishes and fails, and its publications may be lost")
