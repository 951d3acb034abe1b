"""``simulate`` and ``audit`` say the same of every run, and ``audit`` finds what is planted in a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.audit.report import CLEAN, VIOLATED, Audit
from antiphon.cli import audit
from antiphon.cli.audit import judging
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.file import load_scenario, parse_scenario
from antiphon.simulator.scenario.last_words import LAST_WORDS
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.torture.schedules.families import FAMILIES
from antiphon.trace.store import SCHEMA, about_trace, read_trace
from tests.audit.simulated import audit_files

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.toml"))
SEEDS = {"cube": 12, "cube-faults": 24, "tree": 24, "gossip": 24, "epto": 24}
FIRST_SEED = 4_410_000


def violations_in(found: Audit) -> dict[str, int]:
    return {name: check.violations for name, check in found.checks.items() if check.applies}


def check_agreement(result: Result, trace: Path) -> None:
    """The same promises, and each broken as often."""
    if result.violations is None:
        with pytest.raises(UsageError, match=r"this run cannot be judged: .*; choose a protocol"):
            audit_files([trace])
        return
    found = audit_files([trace])
    # What is said long after everything has healed follows from the schedule, which no trace tells.
    promised = {name: count for name, count in result.violations.items() if name != LAST_WORDS}
    assert violations_in(found) == promised, result.judgement
    assert found.losses == result.lost
    assert found.verdict == (VIOLATED if any(result.violations.values()) else CLEAN)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_audit_of_an_example_says_what_its_run_said(path: Path, tmp_path: Path) -> None:
    check_agreement(run_scenario(load_scenario(path), tmp_path / "a.parquet"), tmp_path / "a.parquet")


@pytest.mark.parametrize("fabric", SEEDS)
def test_the_audit_of_a_schedule_says_what_its_run_said(fabric: str, tmp_path: Path) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS[fabric]):
        trace = tmp_path / f"{seed}.parquet"
        check_agreement(run_scenario(FAMILIES[fabric].draw(seed, None), trace), trace)


BROKERS = next(path for path in EXAMPLES if path.stem == "brokers")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a tree in which brokers crash."""
    path = tmp_path_factory.mktemp("traces") / "brokers.parquet"
    run_scenario(load_scenario(BROKERS), path)
    return path


def rows_where(table: pa.Table, event: str, node: int | None = None) -> list[int]:
    events, nodes = table["event"].cast("string").to_pylist(), table["node"].to_pylist()
    return [place for place, found in enumerate(events) if found == event and node in (None, nodes[place])]


def survivor(table: pa.Table) -> int:
    """A node that delivers much and does not crash."""
    crashed = {table["node"][place].as_py() for place in rows_where(table, "crash")}
    nodes: set[int] = set(table["node"].to_pylist()) - crashed
    found: int = max(sorted(nodes), key=lambda node: len(rows_where(table, "deliver", node)))
    return found


def taken(table: pa.Table, places: list[int]) -> pa.Table:
    return table.take(pa.array(np.array(places)))


def removed(table: pa.Table) -> pa.Table:
    node = survivor(table)
    sources = table["source"].to_pylist()
    gone = next(place for place in rows_where(table, "deliver", node) if sources[place] not in (node, None))
    return taken(table, [place for place in range(len(table)) if place != gone])


def doubled(table: pa.Table) -> pa.Table:
    again = rows_where(table, "deliver", survivor(table))[3]
    return taken(table, [*range(len(table)), again])


def swapped(table: pa.Table) -> pa.Table:
    """Two ordered messages of one source change places at one node."""
    node = survivor(table)
    sources, orders, topics = (table[name].to_pylist() for name in ("source", "order", "topic"))
    last: dict[tuple[int, int], int] = {}
    for place in rows_where(table, "deliver", node):
        stream = (sources[place], topics[place])
        if sources[place] != node and orders[place] in ("causal", "total"):
            if stream in last:
                places = list(range(len(table)))
                places[last[stream]], places[place] = place, last[stream]
                return taken(table, places)
            last[stream] = place
    raise AssertionError("somebody publishes twice in such a run")


@pytest.mark.parametrize(
    ("planted", "kinds"),
    [(removed, {"completeness"}), (doubled, {"duplicates"}), (swapped, {"fifo", "causal", "total"})],
    ids=["removed", "doubled", "swapped"],
)
def test_what_is_planted_in_a_run_with_crashes_is_found(
    planted: Callable[[pa.Table], pa.Table], kinds: set[str], brokers: Path, tmp_path: Path
) -> None:
    table = read_trace(brokers)
    wrong = planted(table).unify_dictionaries().cast(SCHEMA.with_metadata(table.schema.metadata))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    found = audit_files([tmp_path / "wrong.parquet"])
    broken = {name for name, count in violations_in(found).items() if count}
    assert found.verdict == VIOLATED
    # A delivery that comes again, or earlier, may be wrong in more than one way.
    assert broken & kinds


@pytest.mark.parametrize(("fabric", "order", "seed"), [("epto", None, 102), ("gossip", "total", 372)])
def test_a_loss_of_which_the_row_is_gone_is_found(fabric: str, order: str | None, seed: int, tmp_path: Path) -> None:
    """Each loss is told by name, so one that is not told is a message that is missing."""
    trace, wrong = tmp_path / "a.parquet", tmp_path / "wrong.parquet"
    assert run_scenario(FAMILIES[fabric].draw(seed, order), trace).lost > 0
    assert audit_files([trace]).verdict == CLEAN
    table = read_trace(trace)
    gone = rows_where(table, "lost")[0]
    pq.write_table(taken(table, [place for place in range(len(table)) if place != gone]), wrong)
    assert audit_files([wrong]).verdict == VIOLATED


LIMITED = """
nodes = 8
workload = { kind = "rate", mean_gap = 20, count = 60 }
limits = { time = %d }
"""


@pytest.mark.parametrize("limit", [700, 900_000])
def test_a_run_with_limits_is_judged(limit: int, tmp_path: Path) -> None:
    trace = tmp_path / "a.parquet"
    result = run_scenario(parse_scenario(LIMITED % limit), trace)
    assert result.stopped == ("time limit" if limit == 700 else "finished")
    assert result.violations is not None and "completeness" in result.violations
    check_agreement(result, trace)


def without_promise(trace: Path, into: Path) -> Path:
    """As the version before this one wrote it."""
    table = read_trace(trace)
    kept = [place for place in range(len(table)) if table["event"][place].as_py() not in ("end", "stuck", "lost")]
    about = {name: value for name, value in about_trace(table).items() if name not in ("promised", "schema")}
    old = taken(table, kept).replace_schema_metadata({"antiphon": json.dumps({**about, "schema": 3})})
    pq.write_table(old, into)
    return into


def test_older_traces_are_judged_or_refused(brokers: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"this trace is of an older version.*; run the scenario again"):
        audit_files([without_promise(brokers, tmp_path / "old.parquet")])
    run_scenario(parse_scenario(LIMITED % 900_000), tmp_path / "calm.parquet")
    assert audit_files([without_promise(tmp_path / "calm.parquet", tmp_path / "calm-old.parquet")]).verdict == CLEAN


def test_what_cannot_be_judged_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = next(path for path in EXAMPLES if path.stem == "crash")
    run_scenario(load_scenario(crash), tmp_path / "a.parquet")
    monkeypatch.setattr(audit, "start_spark", lambda _: pytest.fail("Spark was started"))
    with judging(on_spark=True) as judge, pytest.raises(UsageError, match="this run cannot be judged"):
        judge([tmp_path / "a.parquet"])


RETURNING = """
name = "brokers return with their disks"
seed = 1
fabric = "tree"
protocol = "broker-tree"
nodes = 3
protocol-options = { parents = [-1, 0, 0], quorum = true, disk = true }
network = { detection = 200, in_order = true }
publish = [{ at = 100, node = 1, order = "total" }, { at = 9000, node = 1, order = "total" }]
fault = [{ kind = "crash", at = 2000, nodes = [1, 2] }, { kind = "restart", at = 4000, nodes = [1, 2] }]
"""


def test_lives_of_returning_brokers_are_judged_in_memory_also_where_spark_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_scenario(parse_scenario(RETURNING), tmp_path / "a.parquet")
    assert result.violations is not None and result.published == 2
    monkeypatch.setattr(audit, "start_spark", lambda _: pytest.fail("Spark was started"))
    with judging(on_spark=True) as judge:
        found = judge([tmp_path / "a.parquet"])
    assert (found.judge, found.verdict) == ("memory", CLEAN)
