"""The audit on Spark: it agrees with the judge in this process, and finds exactly what was planted in a large trace."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from antiphon.audit.report import CLEAN, VIOLATED, Audit
from antiphon.audit.spark.auditor import ONLY_TOTALS
from antiphon.audit.spark.intervals import intervals_of
from antiphon.audit.spark.job import evidence
from antiphon.audit.spark.total_order import judge_total_order, without_out_of_reach
from antiphon.audit.spark.traces import open_trace
from antiphon.simulator.scenario.file import load_scenario, parse_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.families import FAMILIES
from antiphon.trace.store import SCHEMA, read_trace
from tests.audit.simulated import audit_files, audit_in_session
from tests.audit.test_out_of_reach import rows_of

pytestmark = pytest.mark.slow

NODES = 40
PUBLICATIONS = 2_000
Damage = Callable[[pa.Table, np.ndarray], pa.Table]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 80,000 deliveries on one topic, with every node publishing and copies that overtake each other."""
    path = tmp_path_factory.mktemp("traces") / "clean.parquet"
    scenario = msgspec.convert(
        {
            "protocol": "vcube-ps",
            "order": "causal",
            "nodes": NODES,
            "network": {"delay": {"law": "normal", "mean": 100, "deviation": 30}},
            "topics": {"count": 1, "members": [f"0-{NODES - 1}"]},
            "workload": {"kind": "rate", "mean_gap": 60, "count": PUBLICATIONS, "topic": "any"},
            "trace": {"level": "deliveries"},
        },
        Scenario,
    )
    result = run_scenario(scenario, path)
    assert result.deliveries == NODES * PUBLICATIONS
    return path


def deliveries_of(table: pa.Table, node: int) -> np.ndarray:
    """The rows in which a node delivers what others published."""
    here = (table["event"].cast("string").to_numpy() == "deliver") & (table["node"].to_numpy() == node)
    found: np.ndarray = np.flatnonzero(here & (table["source"].to_numpy() != node))
    return found


def moved(table: pa.Table, row: int, behind: int) -> pa.Table:
    """The table with a row moved behind a later one."""
    order = np.arange(len(table))
    order = np.concatenate([order[:row], order[row + 1 : behind + 1], [row], order[behind + 1 :]])
    return table.take(pa.array(order))


def follows_directly(table: pa.Table, rows: np.ndarray) -> tuple[int, int]:
    """Two successive deliveries of a node, of different sources, where the second source had delivered the first."""
    source, sequence, node = (table[name].to_numpy() for name in ("source", "sequence", "node"))
    is_delivery = table["event"].cast("string").to_numpy() == "deliver"
    for first, second in pairwise(rows[len(rows) // 2 :].tolist()):
        if source[first] == source[second]:
            continue
        same = is_delivery & (source == source[first]) & (sequence == sequence[first]) & (node == source[second])
        start = is_delivery & (source == source[second]) & (sequence == sequence[second]) & (node == source[second])
        if np.flatnonzero(same)[0] < np.flatnonzero(start)[0]:
            return first, second
    raise AssertionError("somebody answers somebody in such a run")


def lose(table: pa.Table, rows: np.ndarray) -> pa.Table:
    row = int(rows[len(rows) // 3])
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


def double(table: pa.Table, rows: np.ndarray) -> pa.Table:
    row = int(rows[len(rows) // 3])
    return pa.concat_tables([table.slice(0, row + 50), table.slice(row, 1), table.slice(row + 50)])


def answer_before_question(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return moved(table, *follows_directly(table, rows))


def second_before_first(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Two successive publications of one source change places; nothing else is delivered between."""
    source, node = table["source"].to_numpy(), table["node"].to_numpy()
    for first, second in pairwise(rows.tolist()):
        if source[first] == source[second] and node[first] == node[second]:
            return moved(table, first, second)
    raise AssertionError("somebody publishes twice in a row in such a run")


def invent(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """As the last thing that the node does, because what comes after a higher number of a source is late."""
    row = int(rows[-1])
    one = table.slice(row, 1).set_column(6, SCHEMA.field("sequence"), pa.array([PUBLICATIONS + 1]))
    return pa.concat_tables([table.slice(0, row + 1), one, table.slice(row + 1)])


def end_membership(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """The node leaves before its last delivery, which it should not have made then."""
    row = int(rows[-1])
    word = pa.array(["unsubscribed"]).dictionary_encode().cast(SCHEMA.field("event").type)
    one = table.slice(row, 1).set_column(1, SCHEMA.field("event"), word)
    return pa.concat_tables([table.slice(0, row), one, table.slice(row)])


def damage(path: Path, planted: Damage, into: Path) -> Path:
    """A copy of a trace in which something is wrong at node 7."""
    table = read_trace(path)
    wrong = planted(table, deliveries_of(table, 7)).unify_dictionaries()
    pq.write_table(wrong.cast(SCHEMA.with_metadata(table.schema.metadata)), into)
    return into


def counts(found: Audit) -> dict[str, int]:
    return {name: check.violations for name, check in found.checks.items() if check.violations}


@pytest.mark.parametrize("rows_per_part", [1_000_000, 24_000], ids=["whole", "split"])
def test_a_large_clean_trace_is_clean(spark: SparkSession, clean: Path, rows_per_part: int) -> None:
    found = audit_in_session(spark, [clean], rows_per_part)
    assert (found.messages, found.deliveries) == (PUBLICATIONS, NODES * PUBLICATIONS)
    assert counts(found) == {}
    assert found.verdict == CLEAN
    assert found.judge == "spark"
    applies = {name for name, check in found.checks.items() if check.applies}
    assert applies == {"completeness", "duplicates", "fifo", "causal", "validity", "membership", "requests", "stuck"}


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (lose, "completeness"),
        (double, "duplicates"),
        (second_before_first, "fifo"),
        (answer_before_question, "causal"),
        (invent, "validity"),
        (end_membership, "membership"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_planted_is_found_and_nothing_else(
    spark: SparkSession, clean: Path, planted: Damage, kind: str, tmp_path: Path
) -> None:
    trace = damage(clean, planted, tmp_path / "damaged.parquet")
    found = audit_in_session(spark, [trace], 36_000)
    # Nobody asked for the end of a membership.
    unasked = {"requests": 1} if kind == "membership" else {}
    assert counts(found) == {kind: 1, **unasked}
    assert found.verdict == VIOLATED
    check = found.checks[kind]
    assert check.example is not None and "at node 7: " in check.example
    assert any("node 7" in line for line in check.story)
    assert 1 <= len(check.story) <= 10
    here = audit_files([trace])
    assert here.judge == "memory"
    assert counts(here) == counts(found)
    assert here.checks[kind].story == check.story
    assert check.example.startswith(str(here.checks[kind].example))


def test_a_causal_violation_is_told_so_that_it_can_be_followed(
    spark: SparkSession, clean: Path, tmp_path: Path
) -> None:
    """Who published what, who answered it, and in which order node 7 delivered the two."""
    trace = damage(clean, answer_before_question, tmp_path / "damaged.parquet")
    story = audit_in_session(spark, [trace]).checks["causal"].story
    assert sum("(its start)" in line for line in story) == 2
    assert story[-1].endswith("<- here") or any(line.endswith("<- here") for line in story)
    at_seven = [
        line.partition("delivers ")[2].removesuffix("   <- here") for line in story if "node 7 delivers" in line
    ]
    answerer = at_seven[0].rpartition(" ")[2]
    own = [
        line.partition("delivers ")[2].removesuffix(" (its start)")
        for line in story
        if f"node {answerer} delivers" in line
    ]
    assert at_seven == own[::-1]


def test_traces_of_live_nodes_are_judged_together(spark: SparkSession, clean: Path, tmp_path: Path) -> None:
    """The run, cut into a file for each node, with and without clocks that disagree."""
    table = read_trace(clean).slice(0, 20_000)
    words = table["event"].cast("string")
    keep = np.isin(words.to_numpy(), ["deliver", "subscribed"])
    node = table["node"].to_numpy()
    for skew in (0, 900):
        files = []
        for name in range(4):
            rows = table.filter(pa.array(keep & (node % 4 == name)))
            times = pa.array(rows["time"].to_numpy() + skew * name)
            rows = rows.set_column(0, SCHEMA.field("time"), times)
            files.append(tmp_path / f"node-{skew}-{name}.parquet")
            pq.write_table(rows.replace_schema_metadata({"antiphon": '{"host": "live"}'}), files[-1])
        found, here = audit_in_session(spark, files), audit_files(files)
        assert counts(found) == counts(here)
        assert found.deliveries == here.deliveries > 10_000
        assert found.checks["validity"].violations == 0


Delivered = dict[int, list[tuple[int, list[int] | None]]]
TOTAL = (
    "event string, order string, topic int, keys array<bigint>, node int, source int, sequence bigint, position bigint"
)


def in_total_order(delivered: Delivered) -> list[tuple[object, ...]]:
    """For each node the numbers of what it delivered on topic 3, with their keys."""
    return [
        ("deliver", "total", 3, keys, node, 9, number, 100 * node + place)
        for node, numbers in delivered.items()
        for place, (number, keys) in enumerate(numbers)
    ]


def test_a_run_with_total_publications_about_keys_is_clean_and_one_exchange_in_it_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Orders are mixed, and the topic is judged in parts; a total publication starts when it is asked for."""
    path = tmp_path / "totals.parquet"
    scenario = msgspec.convert(
        {
            "protocol": "vcube-ps",
            "order": "causal",
            "nodes": 12,
            "network": {"delay": {"law": "normal", "mean": 100, "deviation": 60}},
            "topics": {"count": 1, "members": ["0-11"]},
            "workload": {
                "kind": "rate",
                "mean_gap": 60,
                "count": 300,
                "topic": "any",
                "orders": ["none", "fifo", "causal", "total"],
                "keys": 3,
            },
        },
        Scenario,
    )
    violations = run_scenario(scenario, path).violations
    assert violations is not None and "total" in violations and not any(violations.values())
    audit = audit_in_session(spark, [path], 2_000)
    assert audit.verdict == CLEAN
    assert audit.checks["total"].applies and audit.checks["causal"].applies
    table = read_trace(path)
    rows = [row for row in deliveries_of(table, 5) if table["order"][row].as_py() == "total"]
    first = rows[25]
    second = next(row for row in rows[26:] if table["keys"][row] == table["keys"][first])
    exchanged = tmp_path / "exchanged.parquet"
    pq.write_table(moved(table, int(first), int(second)), exchanged)
    assert audit_in_session(spark, [exchanged], 2_000).checks["total"].violations == 1


def test_nodes_that_disagree_on_one_key_are_found(spark: SparkSession) -> None:
    """Nodes 1 and 2 disagree on key 8; on key 7 they do not, though they have different things of it."""
    agreed: Delivered = {
        1: [(1, [7]), (2, [7]), (4, [7])],
        2: [(1, [7]), (3, [7]), (4, [7])],
    }
    assert judge_total_order(spark.createDataFrame(in_total_order(agreed), TOTAL)) == (0, None)
    planted: Delivered = {
        1: [*agreed[1], (5, [8]), (6, [8])],
        2: [*agreed[2], (6, [8]), (5, [8])],
    }
    count, example = judge_total_order(spark.createDataFrame(in_total_order(planted), TOTAL))
    assert count == 1
    assert example == (
        "on key 8 of topic 3 nodes delivered 5 of node 9 before 6 of node 9, 6 of node 9 before 5 of node 9"
    )


def test_publications_with_different_keys_need_no_common_order(spark: SparkSession) -> None:
    rows = in_total_order({1: [(5, [7]), (6, [8])], 2: [(6, [8]), (5, [7])]})
    assert judge_total_order(spark.createDataFrame(rows, TOTAL)) == (0, None)


def test_a_publication_with_several_keys_is_ordered_under_each(spark: SparkSession) -> None:
    """The two share key 8, and no key at all means one order for those without."""
    shared = in_total_order({1: [(5, [7, 8]), (6, [8, 9])], 2: [(6, [8, 9]), (5, [7, 8])]})
    assert judge_total_order(spark.createDataFrame(shared, TOTAL))[0] == 1
    without = in_total_order({1: [(5, None), (6, None)], 2: [(6, None), (5, None)]})
    count, example = judge_total_order(spark.createDataFrame(without, TOTAL))
    assert count == 1
    assert example is not None and example.startswith("on topic 3 nodes delivered")


def test_a_circle_of_three_nodes_that_agree_in_pairs_is_found(spark: SparkSession) -> None:
    rows = in_total_order({1: [(1, [7]), (2, [7])], 2: [(2, [7]), (3, [7])], 3: [(3, [7]), (1, [7])]})
    assert judge_total_order(spark.createDataFrame(rows, TOTAL))[0] == 1


def in_frame(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    pq.write_table(table, path)
    return evidence(open_trace(spark, [path]).frame, 0)


def test_intervals_cover_a_topic_with_short_leads(spark: SparkSession, clean: Path, tmp_path: Path) -> None:
    seen = in_frame(spark, read_trace(clean), tmp_path / "same.parquet")
    intervals = intervals_of(seen, {0: (1, 4)}, 24_000, 5)
    assert [interval.part for interval in intervals] == [5, 6, 7, 8]
    assert [interval.end for interval in intervals[:-1]] == [interval.begin for interval in intervals[1:]]
    assert all(interval.begin - interval.lead < 10_000 for interval in intervals)
    assert all(interval.older for interval in intervals[1:]), "something is always on its way"


def test_a_topic_is_split_by_node_where_somebody_is_far_behind(
    spark: SparkSession, clean: Path, tmp_path: Path
) -> None:
    """Node 7 delivers everything of others at the end: leads would be as long as the trace."""
    table = read_trace(clean)
    late = deliveries_of(table, 7)
    order = np.concatenate([np.setdiff1d(np.arange(len(table)), late), late])
    behind = table.take(pa.array(order)).unify_dictionaries()
    path = tmp_path / "behind.parquet"
    assert intervals_of(in_frame(spark, behind, path), {0: (1, 4)}, 24_000, 5) == []
    found, here = audit_in_session(spark, [path], 24_000), audit_files([path])
    # What node 7 published itself came before what it had not delivered, so others may wait for less than it says.
    assert counts(found) == counts(here)


EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"


@pytest.mark.parametrize("name", ["brokers", "gossip", "published"])
def test_spark_says_of_runs_in_which_nodes_fail_what_the_run_said(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    trace = tmp_path / "a.parquet"
    result = run_scenario(load_scenario(EXAMPLES / f"{name}.toml"), trace)
    found = audit_in_session(spark, [trace])
    assert {kind: check.violations for kind, check in found.checks.items() if check.applies} == result.violations


@pytest.mark.parametrize(("fabric", "order", "seed"), [("epto", None, 102), ("gossip", "total", 372)])
def test_spark_excuses_losses_by_name(
    spark: SparkSession, fabric: str, order: str | None, seed: int, tmp_path: Path
) -> None:
    """As told, nothing is wrong; without one of the rows that tell a loss, something is missing."""
    trace, wrong = tmp_path / "a.parquet", tmp_path / "wrong.parquet"
    run_scenario(FAMILIES[fabric].draw(seed, order), trace)
    assert audit_in_session(spark, [trace]).verdict == CLEAN
    table = read_trace(trace)
    gone = table["event"].to_pylist().index("lost")
    pq.write_table(pa.concat_tables([table.slice(0, gone), table.slice(gone + 1)]).unify_dictionaries(), wrong)
    found = audit_in_session(spark, [wrong])
    assert found.verdict == VIOLATED
    assert counts(found) == counts(audit_files([wrong]))


@pytest.mark.parametrize("is_away", [True, False])
def test_spark_excepts_what_began_out_of_reach_of_a_total_publication(spark: SparkSession, is_away: bool) -> None:
    """The only node that had the total publication is down when a weaker one about its key begins, or it is not."""
    total, weak, crash = ("total", 0, 0, 1), ("weak", 3, 3, 1), ("crash", 0 if is_away else 1)
    events = (total, crash, weak, ("total", 3, 0, 1), ("weak", 2, 3, 1), ("total", 2, 0, 1))
    rows = rows_of(*events, keys=[7], weak_keys=[7]).to_pylist()
    schema = (
        "event string, node int, topic int, source int, sequence long, order string, keys array<bigint>, position long"
    )
    frame = spark.createDataFrame([(*row.values(), place) for place, row in enumerate(rows)], schema)
    left = without_out_of_reach(frame, frame).where("event = 'deliver'").collect()
    assert {row["order"] for row in left} == ({"total"} if is_away else {"total", "fifo"})


QUORUM = """
name = "weaker messages beside total ones"
seed = 1
fabric = "tree"
protocol = "broker-tree"
nodes = 3
protocol-options = { parents = [-1, 0, 0], quorum = true }
network = { detection = 200, in_order = true }
publish = [{ at = 100, node = 1, order = "total" }, { at = 200, node = 2, order = "causal" }]
"""


def test_spark_says_that_it_has_not_looked_at_weaker_messages_beside_total_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_scenario(parse_scenario(QUORUM), tmp_path / "a.parquet")
    assert audit_in_session(spark, [tmp_path / "a.parquet"]).unjudged == [ONLY_TOTALS]
    assert audit_files([tmp_path / "a.parquet"]).unjudged == []
