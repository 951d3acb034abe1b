"""The audit of a trace of any size, as Spark jobs.

Rows are divided into *parts* of a few million: small topics together, large ones split by node. A part is judged by
columns at once (:mod:`antiphon.audit.columns.verdict`), and needs beside its own rows only the publications of its
topics. The happened-before relation does not fit there, because it concerns all nodes of a topic. The causal order of
split topics is judged by intervals of time instead (:mod:`antiphon.audit.spark.intervals`). Where late deliveries would
make the intervals long, a first job finds, for each publisher, which of its publications was the first to follow each
other one; that is all that one part must know of the histories in another. Work grows with deliveries times publishers
of a topic, and no step compares messages in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon.audit.columns.happened_before import Followers
from antiphon.audit.columns.histories import BEFORE_EVERYTHING, POSITION, Histories, Rows
from antiphon.audit.columns.verdict import Example, Judgement, JudgeRules, judge_interval, judge_part, rules_for
from antiphon.audit.oracle import EVENTS
from antiphon.audit.spark.incarnations import frame_by_incarnation, spans_in_frame
from antiphon.audit.spark.intervals import Interval, intervals_of, packed_publication
from antiphon.audit.spark.losses import judge_words
from antiphon.audit.spark.total_order import in_one_order, judge_total_order, without_out_of_reach
from antiphon.audit.spark.traces import Trace
from antiphon.audit.survey import TraceSurvey
from antiphon.audit.verdict import STUCK_TEXT
from antiphon.kernel.message import ORDER_NAMES, SOURCE_BITS, SOURCE_MASK
from antiphon.trace.contract import HOLES, STUCK, TOTAL_ORDER, Contract

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_PART = 4_000_000
"""A part of this size needs about half a gigabyte in the process that judges it."""

MOST_TASKS = 2_000
"""The most tasks: one costs some milliseconds even without work."""

FOUND = (
    "kind string, count bigint, topic int, node int, source int, sequence bigint, position bigint, "
    "witness_source int, witness_sequence bigint, detail string"
)
COLUMNS = "topic int, source int, numbers binary"
# The bit layout of a row's node, event, order and judged flag in one word, which is cheaper to send.
EVENT_SHIFT, ORDER_SHIFT, NODE_SHIFT = 1, 4, 8


@dataclass(frozen=True)
class Dealing:
    """The assignment of rows to parts: small topics by their hash, large ones over parts of their own."""

    small_parts: int
    large_topics: dict[int, tuple[int, int]]
    """For each large topic its first part and its number of parts."""

    @property
    def end(self) -> int:
        """The number after that of the last part."""
        return self.small_parts + sum(parts for _, parts in self.large_topics.values())


def deal(frame: DataFrame, rows: int, rows_per_part: int, may_split: bool = True) -> Dealing:
    """Find the large topics, if these may be split."""
    from pyspark.sql import functions as f

    small_parts = max(1, math.ceil(rows / rows_per_part))
    large: dict[int, tuple[int, int]] = {}
    if may_split and rows > rows_per_part:
        counted = frame.where(f.col("event") == "deliver").groupBy("topic").count()
        next_part = small_parts
        for topic, count in sorted(tuple(row) for row in counted.where(f.col("count") > rows_per_part).collect()):
            parts = math.ceil(count / rows_per_part)
            large[topic] = (next_part, parts)
            next_part += parts
    return Dealing(small_parts, large)


def evidence(frame: DataFrame, everybody: int) -> DataFrame:
    """The judged rows, with a membership of everything for each of ``everybody`` nodes."""
    from pyspark.sql import functions as f

    seen = frame.select("topic", "node", "source", "sequence", "event", "order", POSITION)
    seen = seen.where(f.col("event").isin(EVENTS))
    if everybody == 0:
        return seen
    session = frame.sparkSession
    topics = seen.select("topic").distinct()
    nodes = session.range(everybody).select(f.col("id").cast("int").alias("node"))
    members = topics.crossJoin(nodes).select(
        "topic",
        "node",
        f.col("node").alias("source"),
        f.lit(0).cast("bigint").alias("sequence"),
        f.lit("subscribed").alias("event"),
        f.lit(None).cast("string").alias("order"),
        f.lit(BEFORE_EVERYTHING).cast("bigint").alias(POSITION),
    )
    return seen.unionByName(members)


def packed_columns() -> list[Column]:
    """The columns of a row in as few words as possible, without the judged flag."""
    from pyspark.sql import functions as f

    def code(column: str, names: list[str], otherwise: int) -> Column:
        found = f.lit(otherwise)
        for number, name in enumerate(names):
            found = f.when(f.col(column) == name, number).otherwise(found)
        return found

    what = (
        f.shiftleft(f.col("node").cast("bigint"), NODE_SHIFT)
        .bitwiseOR(f.shiftleft(code("order", [*ORDER_NAMES], -1) + 1, ORDER_SHIFT).cast("bigint"))
        .bitwiseOR(f.shiftleft(code("event", EVENTS, 0), EVENT_SHIFT).cast("bigint"))
    )
    return [f.col("topic"), what.alias("what"), packed_publication().alias("publication"), f.col(POSITION)]


def as_rows_of_part(rows: DataFrame, part: Column, judged: bool) -> DataFrame:
    """Packed rows with their part; an array of parts gives a row for each."""
    from pyspark.sql import functions as f

    packed = rows.select(part.cast("int").alias("part"), *packed_columns())
    return packed.withColumn("what", f.col("what") + int(judged))


def dealt(seen: DataFrame, dealing: Dealing) -> DataFrame:
    """Packed rows with their part; publications of a large topic go to all its other parts too."""
    from pyspark.sql import functions as f

    own: Column = f.pmod(f.xxhash64("topic"), f.lit(dealing.small_parts))
    for topic, (first, parts) in dealing.large_topics.items():
        own = f.when(f.col("topic") == topic, first + f.pmod(f.xxhash64("node"), f.lit(parts))).otherwise(own)
    found = as_rows_of_part(seen, own, judged=True)
    is_published = (f.col("event") == "publish") | ((f.col("event") == "deliver") & (f.col("node") == f.col("source")))
    for topic, (first, parts) in dealing.large_topics.items():
        published = seen.where((f.col("topic") == topic) & is_published).withColumn("own", own)
        others = f.array(*(f.lit(first + part) for part in range(parts)))
        spread = published.withColumn("other", f.explode(others)).where("other != own")
        found = found.unionAll(as_rows_of_part(spread, f.col("other"), judged=False))
    return found


def unpacked(table: pa.Table) -> Rows:
    """The rows of a part."""
    topic, what, publication, position = (
        table[name].to_numpy().astype(np.int64, copy=False) for name in ("topic", "what", "publication", POSITION)
    )
    return Rows(
        topic,
        what >> NODE_SHIFT,
        publication & SOURCE_MASK,
        publication >> SOURCE_BITS,
        (what >> EVENT_SHIFT) & 0x7,
        ((what >> ORDER_SHIFT) & 0xF) - 1,
        position,
        (what & 1).astype(np.bool_),
    )


def as_found(judgement: Judgement) -> pa.Table:
    """A judgement as rows: one for each kind of violation, and two for the numbers of judged publications and
    deliveries.
    """
    blank = Example("", 0, 0, 0, 0, 0)
    rows = [("deliveries", judgement.deliveries, blank), ("publications", judgement.publications, blank)]
    rows += [(kind, count, judgement.examples[kind]) for kind, count in judgement.counts.items() if count]
    return pa.table({
        "kind": [kind for kind, _, _ in rows],
        "count": [count for _, count, _ in rows],
        "topic": pa.array([example.topic for _, _, example in rows], pa.int32()),
        "node": pa.array([example.node for _, _, example in rows], pa.int32()),
        "source": pa.array([example.source for _, _, example in rows], pa.int32()),
        "sequence": [example.sequence for _, _, example in rows],
        "position": [example.position for _, _, example in rows],
        "witness_source": pa.array([example.witness_source for _, _, example in rows], pa.int32()),
        "witness_sequence": [example.witness_sequence for _, _, example in rows],
        "detail": [example.detail for _, _, example in rows],
    })  # fmt: skip


@dataclass
class Found:
    """The findings in a trace: of the judges of parts, and of those that need all of it."""

    judgement: Judgement
    more: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """The numbers of violations of other promises, with an example."""


def audit_trace(
    trace: Trace, survey: TraceSurvey, contract: Contract, stopped: str, rows_per_part: int = ROWS_PER_PART
) -> Found:
    """Judge a trace by its promises."""
    checks = contract.checks(stopped)
    spans = spans_in_frame(trace.frame, contract.remembers)
    frame = frame_by_incarnation(trace.frame, spans, survey.has_unshown)
    everybody = contract.nodes if contract.everybody else 0
    found = Found(audit_frame(frame, trace.rows, rules_for(contract, stopped, spans), everybody, rows_per_part))
    if TOTAL_ORDER in checks:
        placed = in_one_order(frame, contract)
        if TOTAL_ORDER in contract.always and not contract.secured and contract.remembers and not contract.all_asked:
            placed = without_out_of_reach(placed, trace.frame)
        found.more[TOTAL_ORDER] = judge_total_order(placed)
    if STUCK in checks:
        found.more[STUCK] = (survey.stuck, STUCK_TEXT if survey.stuck else None)
    if HOLES in checks:
        found.more[HOLES] = judge_words(trace.frame, contract, spans)
    return found


def audit_frame(
    frame: DataFrame, rows: int, rules: JudgeRules, everybody: int = 0, rows_per_part: int = ROWS_PER_PART
) -> Judgement:
    """Judge a trace of so many rows. ``everybody`` is the number of nodes where all are members of everything."""
    # Publications of a failed node are judged by the knowledge of all nodes of a topic.
    dealing = deal(frame, rows, rows_per_part, not rules.needs_whole_topics)
    seen = evidence(frame, everybody)
    parts = dealt(seen, dealing)
    if not dealing.large_topics or not rules.needs_followers:
        return gathered(judged(parts, dealing.end, rules))
    # A leaving node is judged by all its deliveries while it was a member, which may be more than an interval.
    intervals = [] if rules.leavers else intervals_of(seen, dealing.large_topics, rows_per_part, dealing.end)
    if intervals:
        return gathered(judged(parts.unionAll(in_intervals(seen, intervals)), dealing.end, rules, intervals))
    spread_over_tasks(frame.sparkSession, dealing)
    found = judged(parts.where(parts["part"] < dealing.small_parts), dealing.small_parts, rules)
    large = parts.where(parts["part"] >= dealing.small_parts)
    return gathered(found.unionAll(judged_together(large, dealing, rules)))


def judged(parts: DataFrame, part_count: int, rules: JudgeRules, intervals: Sequence[Interval] = ()) -> DataFrame:
    """Judge parts that need no knowledge of each other, and then intervals; each is a task of its own.

    Where there are intervals, the causal order of large topics is judged there; small topics are judged whole.
    """
    by_part = {interval.part: interval for interval in intervals}
    split_topics = {interval.topic for interval in intervals}

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        table = pa.Table.from_batches(received)
        rows = unpacked(table)
        interval = by_part.get(table["part"][0].as_py())
        del received, table
        if interval is not None:
            found = judge_interval(rows, rules, interval.begin, interval.older)
        else:
            is_split = int(rows.topic[0]) in split_topics
            found = judge_part(rows, replace(rules, causal=rules.causal and not is_split))
        yield from as_found(found).to_batches()

    # By number and not by hash: hardly any two parts may share a task, and nothing has to be sorted.
    return parts.repartitionById(part_count + len(by_part), "part").mapInArrow(judge, FOUND)


def judged_together(large: DataFrame, dealing: Dealing, rules: JudgeRules) -> DataFrame:
    """Judge the parts of large topics, each with the first followers that the others found."""

    def judge(table: pa.Table, columns: pa.Table) -> pa.Table:
        names = zip(columns["topic"].to_pylist(), columns["source"].to_pylist(), strict=True)
        known = dict(zip(names, columns["numbers"].to_pylist(), strict=True))
        return as_found(judge_part(unpacked(table), rules, known))

    columns = columns_of(large, dealing, rules)
    return large.groupBy("part").cogroup(columns.groupBy("part")).applyInArrow(judge, FOUND)


def in_intervals(seen: DataFrame, intervals: list[Interval]) -> DataFrame:
    """Packed rows of large topics with the number of their interval, and those of leads once more."""
    from pyspark.sql import functions as f

    def inside(interval: Interval, begin: int, end: int) -> Column:
        return (f.col("topic") == interval.topic) & (f.col(POSITION) >= begin) & (f.col(POSITION) < end)

    own: Column = f.lit(None)
    for each in intervals:
        own = f.when(inside(each, each.begin, each.end), each.part).otherwise(own)
    seen = seen.where(f.col("event").isin("publish", "deliver"))
    found = as_rows_of_part(seen.withColumn("own", own).where("own is not null"), f.col("own"), judged=True)
    leads = [f.when(inside(each, each.lead, each.begin), each.part) for each in intervals]
    # Few rows are in any lead, and only those get an array.
    leading = seen.where(f.coalesce(*leads).isNotNull())
    leading = leading.withColumn("own", f.explode(f.array_compact(f.array(*leads))))
    return found.unionAll(as_rows_of_part(leading, f.col("own"), judged=True))


def spread_over_tasks(session: SparkSession, dealing: Dealing) -> None:
    """Let hardly any two parts share a task, so that no core waits for another at the end."""
    setting = "spark.sql.shuffle.partitions"
    wanted = max(int(session.conf.get(setting) or 1), 4 * dealing.end)
    session.conf.set(setting, str(min(wanted, MOST_TASKS)))


def columns_of(large: DataFrame, dealing: Dealing, rules: JudgeRules) -> DataFrame:
    """The first followers that each part of a large topic finds, sent to all parts of the topic."""
    from pyspark.sql import functions as f

    def scan(table: pa.Table) -> pa.Table:
        followers = Followers(Histories(unpacked(table), rules.default))
        followers.scan()
        return as_columns(followers.columns())

    parts: Column = f.lit(None).cast("array<int>")
    for topic, (first, count) in dealing.large_topics.items():
        all_parts = f.array(*(f.lit(first + part) for part in range(count)))
        parts = f.when(f.col("topic") == topic, all_parts).otherwise(parts)
    columns = large.groupBy("part").applyInArrow(scan, COLUMNS)
    return columns.select(f.explode(parts).alias("part"), "topic", "source", "numbers")


def as_columns(columns: Iterator[tuple[int, int, bytes]]) -> pa.Table:
    """First followers as rows."""
    rows = list(columns)
    return pa.table({
        "topic": pa.array([topic for topic, _, _ in rows], pa.int32()),
        "source": pa.array([source for _, source, _ in rows], pa.int32()),
        "numbers": pa.array([numbers for _, _, numbers in rows], pa.binary()),
    })  # fmt: skip


def gathered(found: DataFrame) -> Judgement:
    """The findings of all parts, added up."""
    whole = Judgement()
    for row in found.collect():
        if row["kind"] == "deliveries":
            whole.deliveries += row["count"]
        elif row["kind"] == "publications":
            whole.publications += row["count"]
        else:
            fields = row.asDict()
            count = fields.pop("count")
            whole.add(count, Example(**fields))
    return whole
