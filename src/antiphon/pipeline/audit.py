"""The audit of a trace of any size, as Spark jobs.

Rows are dealt into *parts* of a few million: small topics together, large ones split by node. A part is judged by
columns in one go (:mod:`antiphon.pipeline.judging`), and needs besides its own rows only what was published on its
topics. What follows what does not fit there: it concerns all nodes of a topic. Causal order of split topics is judged
by intervals of time instead (:mod:`antiphon.pipeline.intervals`). Where something was delivered so late that the
intervals would be long, a first job finds out, for each publisher, which of its publications was the first to follow
each other one; that is all that one part must know of the lanes in another. Work grows with deliveries times
publishers of a topic, and no step compares messages in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon.kernel.message import ORDER_NAMES, SOURCE_BITS, SOURCE_MASK
from antiphon.pipeline.following import Followers
from antiphon.pipeline.intervals import Interval, intervals_of, packed_publication
from antiphon.pipeline.judging import Example, Judgement, Rules, judge_interval, judge_part
from antiphon.pipeline.lanes import BEFORE_EVERYTHING, Lanes, Rows
from antiphon.pipeline.traces import POSITION
from antiphon.trace.oracle import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_PART = 4_000_000
"""A part of this size needs about half a gigabyte in the process that judges it."""

MOST_TASKS = 2_000
"""A task of Spark costs some milliseconds even if it has nothing to do."""

FOUND = (
    "kind string, count bigint, topic int, node int, source int, sequence bigint, position bigint, "
    "witness_source int, witness_sequence bigint, detail string"
)
COLUMNS = "topic int, source int, numbers binary"
# How a row's node, event, order and whether it is judged are packed into one word, which makes it cheaper to send.
EVENT_SHIFT, ORDER_SHIFT, NODE_SHIFT = 1, 4, 8


@dataclass(frozen=True)
class Dealing:
    """How rows are dealt into parts: small topics by their hash, large ones over parts of their own."""

    small_parts: int
    large_topics: dict[int, tuple[int, int]]
    """For each large topic its first part and how many it has."""


def deal(frame: DataFrame, rows: int, rows_per_part: int) -> Dealing:
    """Find out which topics are large."""
    from pyspark.sql import functions as f

    small_parts = max(1, math.ceil(rows / rows_per_part))
    large: dict[int, tuple[int, int]] = {}
    if rows > rows_per_part:
        counted = frame.where(f.col("event") == "deliver").groupBy("topic").count()
        next_part = small_parts
        for topic, count in sorted(tuple(row) for row in counted.where(f.col("count") > rows_per_part).collect()):
            parts = math.ceil(count / rows_per_part)
            large[topic] = (next_part, parts)
            next_part += parts
    return Dealing(small_parts, large)


def evidence(frame: DataFrame, everybody: int) -> DataFrame:
    """The rows that are judged, with a membership of everything for each of ``everybody`` nodes."""
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
    """The columns of a row in as few words as possible; nothing says yet that it is judged."""
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


def dealt(rows: DataFrame, dealing: Dealing) -> DataFrame:
    """Packed rows with their part; what was published on a large topic goes to all its parts."""
    from pyspark.sql import functions as f

    own: Column = f.pmod(f.xxhash64("topic"), f.lit(dealing.small_parts)).cast("int")
    everywhere: Column = f.array(own)
    is_published = (f.col("event") == "publish") | ((f.col("event") == "deliver") & (f.col("node") == f.col("source")))
    for topic, (first, parts) in dealing.large_topics.items():
        here = f.col("topic") == topic
        chosen = (f.lit(first) + f.pmod(f.xxhash64("node"), f.lit(parts))).cast("int")
        own = f.when(here, chosen).otherwise(own)
        all_parts = f.array(*(f.lit(first + part) for part in range(parts)))
        everywhere = f.when(here & is_published, all_parts).when(here, f.array(chosen)).otherwise(everywhere)
    packed = rows.select(
        own.alias("own"), everywhere.alias("parts") if dealing.large_topics else f.lit(None), *packed_columns()
    )
    if not dealing.large_topics:
        return packed.select(
            f.col("own").alias("part"), "topic", (f.col("what") + 1).alias("what"), "publication", POSITION
        )
    spread = packed.select("own", f.explode("parts").alias("part"), "topic", "what", "publication", POSITION)
    judged = f.when(f.col("own") == f.col("part"), 1).otherwise(0)
    return spread.select("part", "topic", (f.col("what") + judged).alias("what"), "publication", POSITION)


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
    """A judgement as rows: one for each kind that was violated, and two for the numbers of what was judged."""
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


def audit_frame(
    frame: DataFrame, rows: int, rules: Rules, everybody: int = 0, rows_per_part: int = ROWS_PER_PART
) -> Judgement:
    """Judge a trace of so many rows. ``everybody`` is the number of nodes where all are members of everything."""
    dealing = deal(frame, rows, rows_per_part)
    spread_over_tasks(frame.sparkSession, dealing)
    seen = evidence(frame, everybody)
    parts = dealt(seen, dealing)
    if not dealing.large_topics:
        return gathered(judged_apart(parts, rules))
    small = parts.where(parts["part"] < dealing.small_parts)
    large = parts.where(parts["part"] >= dealing.small_parts)
    found = judged_apart(small, rules)
    if not rules.causal and not rules.leavers:
        return gathered(found.unionAll(judged_apart(large, rules)))
    # Who left is judged by all that it delivered while it was a member, which may be more than an interval.
    intervals = [] if rules.leavers else intervals_of(seen, dealing.large_topics, rows_per_part)
    if intervals:
        found = found.unionAll(judged_apart(large, replace(rules, causal=False)))
        return gathered(found.unionAll(judged_by_intervals(seen, intervals, rules)))
    return gathered(found.unionAll(judged_together(large, dealing, rules)))


def judged_apart(parts: DataFrame, rules: Rules) -> DataFrame:
    """Parts that need not know of each other."""

    def judge(table: pa.Table) -> pa.Table:
        return as_found(judge_part(unpacked(table), rules))

    return parts.groupBy("part").applyInArrow(judge, FOUND)


def judged_together(large: DataFrame, dealing: Dealing, rules: Rules) -> DataFrame:
    """The parts of large topics, each with what the others know of who follows whom."""

    def judge(table: pa.Table, columns: pa.Table) -> pa.Table:
        names = zip(columns["topic"].to_pylist(), columns["source"].to_pylist(), strict=True)
        known = dict(zip(names, columns["numbers"].to_pylist(), strict=True))
        return as_found(judge_part(unpacked(table), rules, known))

    columns = columns_of(large, dealing, rules)
    return large.groupBy("part").cogroup(columns.groupBy("part")).applyInArrow(judge, FOUND)


def judged_by_intervals(seen: DataFrame, intervals: list[Interval], rules: Rules) -> DataFrame:
    """The causal order of large topics, interval by interval."""
    from pyspark.sql import functions as f

    by_part = {interval.part: (interval.begin, interval.older) for interval in intervals}

    def judge(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        return as_found(judge_interval(unpacked(table), rules, *by_part[key[0].as_py()]))

    topics = sorted({interval.topic for interval in intervals})
    seen = seen.where(f.col("event").isin("publish", "deliver") & f.col("topic").isin(topics))
    parts: list[Column] = []
    for interval in intervals:
        inside = (f.col(POSITION) >= interval.lead) & (f.col(POSITION) < interval.end)
        parts.append(f.when((f.col("topic") == interval.topic) & inside, interval.part))
    spread = seen.select(*packed_columns(), f.explode(f.array_compact(f.array(*parts))).alias("part"))
    spread = spread.select("part", "topic", (f.col("what") + 1).alias("what"), "publication", POSITION)
    return spread.groupBy("part").applyInArrow(judge, FOUND)


def spread_over_tasks(session: SparkSession, dealing: Dealing) -> None:
    """Let hardly any two parts share a task, so that no core waits for another at the end."""
    parts = dealing.small_parts + sum(count for _, count in dealing.large_topics.values())
    setting = "spark.sql.shuffle.partitions"
    wanted = max(int(session.conf.get(setting) or 1), 4 * parts)
    session.conf.set(setting, str(min(wanted, MOST_TASKS)))


def columns_of(large: DataFrame, dealing: Dealing, rules: Rules) -> DataFrame:
    """The first followers that each part of a large topic finds, sent to all parts of the topic."""
    from pyspark.sql import functions as f

    def look(table: pa.Table) -> pa.Table:
        followers = Followers(Lanes(unpacked(table), rules.default))
        followers.look()
        return as_columns(followers.columns())

    parts: Column = f.lit(None).cast("array<int>")
    for topic, (first, count) in dealing.large_topics.items():
        all_parts = f.array(*(f.lit(first + part) for part in range(count)))
        parts = f.when(f.col("topic") == topic, all_parts).otherwise(parts)
    columns = large.groupBy("part").applyInArrow(look, COLUMNS)
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
    """What all parts found, together."""
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
