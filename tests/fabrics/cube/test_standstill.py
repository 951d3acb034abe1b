"""Total order while a process stands still: how long publishers wait for it, the lock manager among others.

A tick is a millisecond here: nodes count as lost after five seconds of silence, and total order waits two seconds for
a node whose connection broke, as live nodes do by default.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    CrashFault,
    Fault,
    NetworkTable,
    PartitionFault,
    PauseFault,
    PublishTable,
    ResumeFault,
    Scenario,
    TopicsTable,
    TraceTable,
)

LOST = 5000
EXCLUDE = 2000
BEGINS = 1000
STANDS_STILL = 30_000


def waits(nodes: int, faults: list[Fault], silent: int, path: Path, detection: int = LOST) -> tuple[Result, int]:
    """The result of a run, and how long a publication took at most until its own publisher delivered it.

    All but one publish in total order from before the fault until after its end.
    """
    speakers = [node for node in range(nodes) if node != silent]
    publications = [
        PublishTable(at=100 + 50 * number, node=speakers[number % len(speakers)], order="total", keys=[number % 3])
        for number in range(700)
    ]
    scenario = Scenario(
        name="standstill",
        nodes=nodes,
        protocol="vcube-ps-lasting",
        protocol_options={"compare": 100, "forget": 600_000, "log": 100_000, "exclude": EXCLUDE},
        network=NetworkTable(delay=ConstantLaw(ticks=2), detection=detection, in_order=True, notices_pauses=True),
        topics=TopicsTable(count=1, members=[list(range(nodes))]),
        publications=publications,
        faults=faults,
        trace=TraceTable(level="deliveries"),
    )
    result = run_scenario(scenario, path)
    rows = pq.read_table(path).select(["event", "time", "node", "source", "sequence"]).to_pylist()
    asked = {(row["source"], row["sequence"]): row["time"] for row in rows if row["event"] == "publish"}
    took = [
        row["time"] - asked[row["source"], row["sequence"]]
        for row in rows
        if row["event"] == "deliver" and row["node"] == row["source"]
    ]
    assert len(took) == result.published
    return result, max(took)


@pytest.mark.parametrize("nodes", [4, 8])
@pytest.mark.parametrize("silent", [0, 3])
def test_publishers_wait_for_a_process_that_stands_still_until_it_is_lost(
    nodes: int, silent: int, tmp_path: Path
) -> None:
    """Also if it is the lock manager, node 0: detection takes all the time, and nobody waits once more for calm."""
    faults: list[Fault] = [
        PauseFault(at=BEGINS, node=silent),
        ResumeFault(at=BEGINS + STANDS_STILL, node=silent),
    ]
    result, longest = waits(nodes, faults, silent, tmp_path / "trace.parquet")
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.stopped == "finished" and result.lost == 0 and result.published == 700
    assert LOST - 100 < longest < LOST + 500


@pytest.mark.parametrize("silent", [0, 3])
def test_publishers_wait_for_a_crashed_node_for_the_time_of_a_broken_connection(silent: int, tmp_path: Path) -> None:
    """Its connections break at once, and it may be back soon; a new lock manager does not wait for it again."""
    faults: list[Fault] = [CrashFault(at=BEGINS, node=silent)]
    result, longest = waits(8, faults, silent, tmp_path / "trace.parquet", detection=5)
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert EXCLUDE - 100 < longest < EXCLUDE + 500


def test_a_cut_without_a_sign_is_no_reason_to_go_on_where_there_is_no_majority(tmp_path: Path) -> None:
    """The lock manager loses the others one after the other; each time most of those left are silent too."""
    faults: list[Fault] = [PartitionFault(at=BEGINS, until=BEGINS + STANDS_STILL, groups=[[0, 1, 2]])]
    result, longest = waits(8, faults, 0, tmp_path / "trace.parquet")
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.lost == 0 and longest > STANDS_STILL - LOST, (
        "total ones that were accepted waited, and were not given up"
    )
