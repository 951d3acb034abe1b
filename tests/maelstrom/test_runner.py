"""The runner with real processes: ours, and others."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from antiphon.cli.maelstrom import own_command
from antiphon.cli.main import app_for
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.maelstrom.runner import RunPlan, run_plan

LOSING = Path(__file__).parent / "losing_node.py"


def run(plan: RunPlan, command: list[str], out: Path | None = None) -> dict[str, Any]:
    return asyncio.run(run_plan(plan, command, out))


@pytest.mark.parametrize("workload", ["broadcast", "g-set", "kafka"])
def test_a_workload_against_our_nodes(workload: str, tmp_path: Path) -> None:
    plan = RunPlan(
        workload=workload,
        node_count=5,
        latency_ms=5,
        latency_dist="uniform",
        rate=100,
        time_limit_seconds=2,
        nemesis=["partition"],
        nemesis_interval_seconds=0.4,
        recovery_seconds=1,
    )
    found = run(plan, own_command(workload, 24, 10, None), tmp_path)
    assert found["valid"], found["workload"]
    assert found["workload"]["acknowledged"] > 0
    assert found["messages"]["servers"] > 0
    assert found["partitions"]
    operations = sum(counts["invoke"] for counts in found["operations"].values())
    assert found["messages"]["servers_per_operation"] == round(found["messages"]["servers"] / operations, 3)
    events = [msgspec.json.decode(line) for line in (tmp_path / "history.jsonl").read_bytes().splitlines()]
    assert sum(event.get("outcome") == "invoke" for event in events) == operations


def test_a_foreign_node_that_loses_values_is_found_out() -> None:
    result = CliRunner().invoke(
        app_for("maelstrom"),
        [
            "maelstrom", "run", "--node-count", "1", "--rate", "100", "--time-limit", "1", "--recovery", "0",
            "--bin", f"{sys.executable} {LOSING}", "--json",
        ],
    )  # fmt: skip
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["valid"]
    assert found["workload"]["lost"]
    assert all(value % 10 == 0 for value in found["workload"]["lost"])
    assert found["messages"]["servers"] == 0


def test_the_node_command_speaks_on_standard_input_and_output() -> None:
    command = [sys.executable, "-m", "antiphon", "maelstrom", "node", "--workload", "g-set"]
    plan = RunPlan(workload="g-set", node_count=2, rate=50, time_limit_seconds=1, recovery_seconds=1)
    assert run(plan, command)["valid"]


def test_a_node_that_ends_by_itself_or_speaks_nonsense_is_an_error() -> None:
    plan = RunPlan(node_count=1, time_limit_seconds=1)
    with pytest.raises(PeerError, match="n0 ended unexpectedly"):
        run(plan, [sys.executable, "-c", "pass"])
    with pytest.raises(PeerError, match="n0: a line is not a message of Maelstrom"):
        run(plan, [sys.executable, "-c", "print('hello', flush=True); input(); input()"])
    with pytest.raises(UsageError, match="cannot run"):
        run(plan, ["/nowhere/node"])


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (RunPlan(workload="echo"), "there is no workload 'echo'"),
        (RunPlan(node_count=0), "at least one node"),
        (RunPlan(rate=0), "greater than 0"),
        (RunPlan(nemesis=["kill"]), "there is no nemesis 'kill'"),
        (RunPlan(partitions=("thirds",)), "there is no kind of partition 'thirds'"),
    ],
)
def test_plans_that_cannot_be_run_say_why(plan: RunPlan, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        plan.checked()
