"""Scenarios, judgements and campaigns in which publications choose their own orders."""

from __future__ import annotations

import pytest

from antiphon.kernel import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.workload import plan
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.torture.campaign import run_campaign
from antiphon.torture.schedules.operations import MIXED, operations_of, with_operations
from antiphon.torture.schedules.topic_schedule import draw_schedule

JUMBLED = """
nodes = 12
protocol = "vcube-ps"
seed = 5
network = { delay = { law = "normal", mean = 60, deviation = 200 }, reordering = 0.5, reordering_window = 900 }
workload = { kind = "rate", mean_gap = 15, count = 300%s }
"""
ORDERS = ', orders = ["none", "fifo", "causal"]'


def test_a_workload_draws_an_order_for_each_publication_and_changes_nothing_else() -> None:
    mixed, plain = (list(plan(parse_scenario(JUMBLED % orders))) for orders in (ORDERS, ""))
    assert {publication.order for publication in mixed} == {0, 1, 2}
    assert [publication._replace(order=-1) for publication in mixed] == plain


def test_a_mixed_run_keeps_what_each_order_promises_and_waits_less() -> None:
    mixed, causal = (run_scenario(parse_scenario(JUMBLED % orders)) for orders in (ORDERS, ""))
    assert mixed.violations is not None
    assert {"fifo", "causal", "completeness", "stuck"} <= mixed.violations.keys()
    assert not any(mixed.violations.values())
    assert mixed.deliveries == causal.deliveries
    assert 0 < mixed.held_total < causal.held_total


def test_publications_that_are_spelled_out_name_their_orders() -> None:
    text = 'nodes = 2\nprotocol = "vcube-ps"\norder = "fifo"\n[[publish]]\nat = 1\nnode = 0\norder = "none"\n'
    scenario = parse_scenario(text + "[[publish]]\nat = 2\nnode = 1\n")
    assert [publication.order for publication in plan(scenario)] == [0, -1]
    assert scenario.mixes_orders()
    assert parse_scenario(scenario_text(scenario)) == scenario


PUBLISH = "nodes = 4\n{}[[publish]]\nat = 1\nnode = 0\norder = {}\n"
MISTAKES = {
    "a protocol with one order": (
        PUBLISH.format("", '"fifo"'),
        r'all publications of broadcast have the order of the scenario; .*protocol = "vcube-ps"',
    ),
    "a workload of such a protocol": (
        'nodes = 4\nworkload = { kind = "once", orders = ["fifo"] }\n',
        "all publications of broadcast have the order of the scenario",
    ),
    "an order that does not exist": (PUBLISH.format('protocol = "vcube-ps"\n', '"casual"'), "did you mean 'causal'"),
    "an order that promises nothing": (PUBLISH.format('protocol = "vcube-ps"\n', '"best-effort"'), "best-effort"),
    "a number": (PUBLISH.format('protocol = "vcube-ps"\n', "2"), "expected the name of an order in quotes"),
}


@pytest.mark.parametrize(("text", "complaint"), MISTAKES.values(), ids=MISTAKES.keys())
def test_orders_that_cannot_be_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse_scenario(text)


# Campaigns.


def test_mixed_schedules_are_survived() -> None:
    """A small part of the campaign; ``antiphon torture --order mixed --seeds 10000`` is the rest."""
    tally = run_campaign(1, 60, MIXED)
    assert [outcome.about for outcome in tally.failing] == []
    assert tally.orders == {MIXED: 60}


def test_some_schedules_are_mixed_unless_an_order_is_named() -> None:
    drawn = [draw_schedule(seed).mixes_orders() for seed in range(60)]
    assert 5 < sum(drawn) < 40
    assert not any(draw_schedule(seed, "causal").mixes_orders() for seed in range(60))


def test_drawing_orders_does_not_change_what_happens() -> None:
    plain, mixed = draw_schedule(3, "causal"), draw_schedule(3, MIXED)
    assert [one._replace(order=None) for one in operations_of(mixed)] == operations_of(plain)
    assert with_operations(mixed, operations_of(mixed)) == mixed
