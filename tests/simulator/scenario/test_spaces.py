"""Spaces in scenario files: what is refused, and what a trace says about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.audit.auditor import audit_files
from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import run_scenario

ANSWERS = """
protocol = "vcube-ps"
nodes = 4

[network]
delay = { law = "normal", mean = 100, deviation = 80 }

[topics]
count = 3
spaces = [[0, 1]]

[workload]
kind = "rate"
topic = "any"
mean_gap = 100
until = 20000
"""


def test_a_trace_names_its_spaces_and_its_judge_looks_at_them(tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    found = run_scenario(parse_scenario(ANSWERS), trace)
    assert found.violations is not None
    assert not any(found.violations.values()), found.judgement
    assert found.held_total > 0
    assert audit_files([trace]).verdict == "clean"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[[0, 1]]", "[[0, 3]]", "there is no topic 3"),
        ("[[0, 1]]", "[[0, 1], [1, 2]]", "topic 1 is named twice"),
        ('protocol = "vcube-ps"', 'protocol = "vcube-ps"\norder = "fifo"', "all publications are causal"),
        ("[topics]", '[[publish]]\nat = 5\nnode = 0\norder = "none"\n\n[topics]', "all publications are causal"),
        ('protocol = "vcube-ps"', 'fabric = "gossip"\nprotocol = "brisa"', "brisa has no spaces"),
    ],
)
def test_spaces_that_cannot_be_are_refused(old: str, new: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse_scenario(ANSWERS.replace(old, new))


def test_nodes_that_come_back_are_refused() -> None:
    text = ANSWERS.replace('"vcube-ps"', '"vcube-ps-lasting"').replace("[network]", "[network]\nin_order = true")
    crash = '\n[[fault]]\nkind = "crash"\nat = 5\nnode = 1\n'
    back = '\n[[fault]]\nkind = "restart"\nat = 50\nnode = 1\n'
    parse_scenario(text + crash)
    with pytest.raises(ScenarioError, match="none comes back"):
        parse_scenario(text.replace("[network]", "protocol-options.log = 1000\n\n[network]") + crash + back)


LOST = """
protocol = "vcube-ps-lasting"
nodes = 3
protocol-options.forget = 20000

[network]
in_order = true

[topics]
count = 2
members = [[0, 2], [0, 1, 2]]
spaces = [[0, 1]]

[[publish]]
at = 10
node = 0
topic = 0

[[publish]]
at = 11
node = 0
topic = 1

[[fault]]
kind = "partition"
at = 5
until = 2000
groups = [[0], [1], [2]]
linked = "chain"

[[fault]]
kind = "crash"
at = 500
node = 0
"""


def test_what_was_lost_with_its_publisher_is_reported_and_holds_nobody_up_for_ever() -> None:
    found = run_scenario(parse_scenario(LOST))
    # Node 2 gets the second publication from node 1, and nobody has the first any more.
    assert found.lost == 1
    assert found.held_total == 1
    assert found.held_at_end == 0
    assert found.deliveries == 4
    assert found.end_time > 20_000
