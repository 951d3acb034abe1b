"""The audit as a library: one call from files to a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import antiphon.audit
from antiphon.audit.report import CLEAN, NO_SCENARIO
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.audited import SCENARIOS
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario

SCENARIO = Path(__file__).parents[2] / "examples" / "scenarios" / "topics.toml"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    run_scenario(load_scenario(SCENARIO), tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def test_one_call_judges_a_simulated_run(trace: Path) -> None:
    for paths in ([trace], [str(trace)], [trace.parent]):
        found = antiphon.audit.audit_trace(paths, scenarios=SCENARIOS)
        assert (found.verdict, found.judge, found.unjudged) == (CLEAN, "memory", [])
        assert found.checks["requests"].applies and found.deliveries > 0


def test_what_only_the_scenario_can_tell_is_not_judged_without_it(trace: Path) -> None:
    found = antiphon.audit.audit_trace([trace])
    assert (found.verdict, found.unjudged) == (CLEAN, [NO_SCENARIO])
    assert "requests" not in found.checks and found.checks["causal"].applies


def test_a_directory_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no trace"):
        antiphon.audit.audit_trace([tmp_path])


def test_who_imports_the_audit_imports_no_spark() -> None:
    program = "import sys, antiphon.audit; print([name for name in sys.modules if name.startswith('pyspark')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
