"""The rivals of BRISA in scenarios: they survive the schedules of the gossip fabric, and keep what they promise."""

from __future__ import annotations

import pytest

from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import CrashFault
from antiphon.torture.campaign import run_schedule
from antiphon_lab.scenarios.gossip_schedules import draw_rival_schedule


@pytest.mark.parametrize("protocol", ["plumtree", "simple-gossip", "thicket"])
def test_rivals_survive_their_schedules(protocol: str) -> None:
    """Loss up to 20 %, crashes and rejoins: judged by the oracle, which knows no protocol."""
    schedules = [one for one in map(draw_rival_schedule, range(1000, 1060)) if one.protocol == protocol]
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
        ("thicket", 0.1, True),
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
        ("simple-gossip", "fanout = 0", "no rumour spreads"),
        ("simple-gossip", "view = 5", "choose a view of at least 8"),
        ("simple-gossip", "view = 12\nfanout = 13", "from a view of 12 no 13 nodes can be drawn"),
        ("tag", "capacity = 2\ndeepest = 3", "has room for 15 nodes, not for 24"),
        ("simple-tree", "contacts = [0, 1]", "name one contact"),
        ("plumtree", "graft_after = 0", "let graft_after be longer"),
        ("thicket", "fanout = 1", "a node hands nothing on"),
        ("thicket", "fanout = 4\nmax_load = 3", "must accept as many"),
        ("thicket", "trees = 8", "in 8 trees a node has almost 8 children"),
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
