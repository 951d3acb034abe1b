"""EpTO in scenarios and under torture: order whatever happens, holes that are said, defects that are found."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.kernel import ScenarioError, UsageError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import CrashFault, PartitionFault, RestartFault, Scenario
from antiphon.torture.campaign import check_campaign, run_campaign, run_schedule
from antiphon.torture.rates import wilson
from antiphon.torture.schedules.epto import calm_agreement, draw_epto_schedule
from antiphon.torture.shrinking import Shrinker
from antiphon.torture.tally import AgreementCount, Outcome

TEXT = """
fabric = "gossip"
protocol = "epto"
order = "total"
nodes = {nodes}
workload = {{ kind = "rate", mean_gap = 20, count = 60 }}
[network]
delay = {{ law = "quantiles", points = [[0, 1], [0.5, 100], [1, 400]] }}
loss = {loss}
[protocol-options]
{options}
"""


def scenario(options: str = "", nodes: int = 16, loss: float = 0.0) -> Scenario:
    return parse_scenario(TEXT.format(nodes=nodes, loss=loss, options=options))


def judged(options: str = "", nodes: int = 16, loss: float = 0.0) -> Result:
    result = run_scenario(scenario(options, nodes, loss))
    assert result.violations is not None, result.judgement
    return result


def broken(result: Result) -> set[str]:
    assert result.violations is not None
    return {kind for kind, count in result.violations.items() if count}


@pytest.mark.parametrize(
    "options",
    [
        "",
        'clock = "logical"',
        'sampling = "cyclon"\nview = 12',
        "digests = true",
        "adapts = true",
        'ordering = "strict"\ngranularity = 200',
    ],
)
def test_everybody_delivers_everything_in_one_order(options: str) -> None:
    """Section 5.3: with default settings there are no holes, whatever the clock."""
    result = judged(options)
    assert broken(result) == set()
    assert result.deliveries == result.expected_deliveries == 60 * 16
    assert (result.agreed, result.owed, result.lost) == (60, 60, 0)


def test_loss_raises_ttl_so_that_agreement_is_kept() -> None:
    result = judged(loss=0.3)
    assert broken(result) == set() and result.agreed == 60


@pytest.mark.parametrize("ordering", ["printed-ties", "printed-barrier"])
@pytest.mark.parametrize("clock", ['clock = "logical"', "granularity = 200"])
def test_the_printed_barrier_breaks_total_order(ordering: str, clock: str) -> None:
    """Ties (Algorithm 5, line 23): found by a judge that knows no protocol."""
    assert "total" in broken(judged(f'ordering = "{ordering}"\n{clock}'))


def test_the_printed_comparison_breaks_validity() -> None:
    """Algorithm 5, line 9: nobody delivers even its own."""
    result = judged('ordering = "printed-comparison"')
    assert broken(result) == {"requests"} and result.deliveries == 0


def test_holes_are_reported_and_order_holds_where_rounds_are_far_too_quick() -> None:
    """Figure 5.10(a): too short a period costs holes, never order. Each is said, except where nothing follows it."""
    result = judged("period = 2\nagreement = 0")
    assert broken(result) == set()
    missing = 60 * 16 - result.deliveries
    assert 0 < result.lost <= missing
    assert result.agreed is not None and result.owed is not None and result.agreed < result.owed


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("period = 10", "an event counts as stable before it has arrived anywhere: messages take 150 ticks; choose"),
        ("fanout = 1\nttl = 3", r"reaches all 16 nodes with probability .*; choose ttl = \d+ or fanout = \d+"),
        ('sampling = "cyclon"\nview = 4\nexchanged = 8', "from a view of 4 entries 1 to 4 can be exchanged"),
        ('clock = "atomic"', "clock"),
    ],
)
def test_options_that_cannot_give_agreement_are_refused(options: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        scenario(options)


def test_there_is_no_order_but_total() -> None:
    with pytest.raises(ScenarioError, match="epto supports the orders total, not causal"):
        parse_scenario(TEXT.format(nodes=4, loss=0, options="").replace('"total"', '"causal"'))


def test_schedules_are_hard() -> None:
    """Over some seeds there is everything that can go wrong, and one in four is calm."""
    drawn = [draw_epto_schedule(seed) for seed in range(1, 120)]
    faults = [fault for one in drawn for fault in one.faults]
    for kind in (CrashFault, RestartFault, PartitionFault):
        assert any(isinstance(fault, kind) for fault in faults)
    options = [one.protocol_options for one in drawn]
    assert {0.3, 0.0} <= {one.network.loss for one in drawn}
    assert any(one.get("drift") == 2.0 for one in options)
    assert any(one.get("granularity") == 10_000 for one in options)
    assert 15 < sum(calm_agreement(one) is not None for one in drawn) < 45
    assert draw_epto_schedule(7) == draw_epto_schedule(7) != draw_epto_schedule(8)


def test_a_schedule_that_ends_late_is_not_taken_for_one_that_never_ends() -> None:
    """Late copies are relayed again as published: this schedule comes to its end after 2,116,578 events."""
    assert draw_epto_schedule(983537333872190).limits.events > 4 * 2_116_578


def test_integrity_validity_and_total_order_hold_in_every_schedule() -> None:
    tally = run_campaign(1, 100, fabric="epto")
    assert [(outcome.seed, outcome.about) for outcome in tally.failing] == []
    assert tally.deliveries > 5000 and tally.agreement.holes > 100
    found = tally.as_json()
    assert found["agreement"]["low"] < found["agreement"]["rate"] < found["agreement"]["high"]
    assert found["calm_agreement"]["theory"] is not None


@pytest.mark.parametrize(
    ("defect", "kind"),
    [("printed-comparison", "requests"), ("printed-barrier", "total"), ("printed-ties", "total")],
)
def test_planted_defects_are_found(defect: str, kind: str) -> None:
    """The same schedules with a defect: some of the first find it."""

    def planted(seed: int) -> Scenario:
        drawn = draw_epto_schedule(seed)
        return msgspec.structs.replace(drawn, protocol_options={**drawn.protocol_options, "ordering": defect})

    assert any(kind in run_schedule(planted(seed)).violations for seed in range(1, 40))


def test_a_failure_is_made_small() -> None:
    """What fails here is any crash: one is left, and the network is whole."""

    def run(one: Scenario) -> Outcome:
        crashed = any(isinstance(fault, CrashFault) for fault in one.faults)
        return Outcome(seed=one.seed, violations={"total": 1} if crashed else {})

    hard = next(
        one
        for one in map(draw_epto_schedule, range(1, 300))
        if one.nodes > 5 and {CrashFault, PartitionFault} <= {type(fault) for fault in one.faults}
    )
    small = Shrinker(hard, "total", run).shrink()
    assert [type(fault) for fault in small.faults] == [CrashFault]
    assert small.nodes == 2


def test_what_waits_with_the_same_stamp_is_not_said_to_be_lost() -> None:
    """Found by torture: a payload that does not come is given up before earlier ones of its source have left."""
    outcome = run_schedule(draw_epto_schedule(55))
    assert outcome.holes > 0 and not outcome.violations, outcome.about


def test_what_is_published_in_two_lives_is_not_judged() -> None:
    text = TEXT.format(nodes=8, loss=0, options="") + "".join(
        f"[[fault]]\nkind = '{kind}'\nnode = 1\nat = {at}\n" for kind, at in (("crash", 500), ("restart", 900))
    )
    assert run_scenario(parse_scenario(text)).judgement.startswith(
        "not judged: node 1 publishes before and after a restart"
    )


def test_the_interval_of_a_rate() -> None:
    """Wilson (1927): 8 of 10 lies between 0.49 and 0.94."""
    assert [round(end, 2) for end in wilson(8, 10)] == [0.49, 0.94]
    assert wilson(10, 10)[1] == 1.0 and wilson(0, 10)[0] == 0.0
    assert AgreementCount().as_json(True) is None


def test_a_campaign_has_no_other_order() -> None:
    check_campaign("epto", None)
    check_campaign("epto", "total")
    with pytest.raises(UsageError, match="a campaign has no order 'mixed'; choose from total"):
        check_campaign("epto", "mixed")
