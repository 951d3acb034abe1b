"""Live nodes that notice a failure: VCube's diagnosis over real connections (thesis, section 2.4), and the default."""

from __future__ import annotations

import pytest

import antiphon
from antiphon.node.settings import Settings
from antiphon_lab.bench.live_detection import DetectionTask, Run, Traffic, default_row, diagnosis_row, run_once

NODES = 4
TASK = DetectionTask(Settings(lost_seconds=0.8), NODES, 200_000, 150_000, False)


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_all_others_notice_by_both_ways(fault: str) -> None:
    """A process that is killed ends its connections; one that is stopped does not, and is found out all the same."""
    run = antiphon.run(run_once(TASK, fault, 1))
    for times in (run.by_diagnosis, run.by_default):
        assert len(times) == NODES - 1 and times == sorted(times)
        assert times[0] > 0
    assert run.traffic.tests > 0 and run.traffic.signs > 0 and run.traffic.test_bytes > run.traffic.tests


def test_rows_say_the_median_and_the_longest_beside_formulas() -> None:
    runs = [Run([1.0, 2.0, 3.0], [0.1, 0.2, 0.3], traffic, 0) for traffic in [run_traffic(2.0), run_traffic(4.0)]]
    runs.append(Run([2.0, 3.0, 7.0], [0.1, 0.1, 0.5], run_traffic(3.0), 1))
    row = diagnosis_row(TASK, "news by tests", "kill", runs, 1)
    assert (row.first_seconds, row.half_seconds, row.all_seconds, row.longest_seconds) == (1.0, 2.0, 3.0, 7.0)
    assert (row.messages, row.expected_messages, row.false_alarms) == (3.0, 10.0, 1)
    # Half a round, the patience, and two rounds on the way.
    assert row.expected_seconds == pytest.approx(0.1 + 0.15 + 2 * 0.2)
    assert row.simulated_seconds is not None and 0.15 < row.simulated_seconds < 4 * 0.2 + 0.2 + 0.15
    row = default_row(TASK.settings, NODES, "stop", runs)
    assert (row.all_seconds, row.longest_seconds, row.simulated_seconds) == (0.3, 0.5, None)
    assert row.messages == 6.0 and row.expected_messages == pytest.approx(3 / 0.3)
    assert row.expected_seconds == pytest.approx(0.85)


def run_traffic(messages: float) -> Traffic:
    """So many tests, and twice as many signs."""
    return Traffic(messages, 8 * messages, 2 * messages, 12 * messages)
