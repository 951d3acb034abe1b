"""Traces as DataFrames, and the survey of a trace before it is judged or measured.

A trace is one file of a simulated run or the files of all nodes of a live one. Its DataFrame has the columns of
:mod:`antiphon.trace.store` and ``position``, the order of events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.audit.columns.histories import POSITION
from antiphon.audit.evidence import read_evidence
from antiphon.audit.spark.scratch import scratch_directory
from antiphon.audit.survey import TraceSurvey
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.trace.contract import CUT, FINISHED
from antiphon.trace.store import OPTIONAL, PARTIAL, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEEDED = frozenset(SCHEMA.names) - OPTIONAL


ADDED = {"order": "string", "carried": "int", "entries": "int", "payload": "int", "keys": "array<bigint>"}
"""The columns that older traces lack, and their types."""


@dataclass(frozen=True)
class Trace:
    """A trace that Spark can read."""

    frame: DataFrame
    about: dict[str, Any]
    rows: int
    files: int
    unjudged: list[str] = field(default_factory=list)
    """The missing knowledge about the run, in sentences."""


def open_trace(session: SparkSession, files: Sequence[Path]) -> Trace:
    """Open the trace in some files; all of them are checked before Spark reads them."""
    if not files:
        raise UsageError("no trace is named; name at least one")
    if any(file.suffix == PARTIAL for file in files):
        # The end of a killed node's trace is reconstructed row by row.
        return merged_in_memory(session, files)
    described = [describe(file) for file in files]
    abouts = [about for about, _ in described]
    if len(files) > 1 and any(about.get("host") != "live" for about in abouts):
        raise UsageError("only traces of live nodes are parts of one run; audit simulated runs one by one")
    readable = [file if file.suffix == ".parquet" else as_parquet(file) for file in files]
    frame = in_order(session, readable)
    return Trace(frame, abouts[0], sum(rows for _, rows in described), len(files))


def describe(file: Path) -> tuple[dict[str, Any], int]:
    """The metadata of a file and its number of rows; refuses an incomplete trace."""
    try:
        if file.suffix == ".arrow":
            with pa.memory_map(str(file)) as stream:
                reader = pa.ipc.open_stream(stream)
                schema, rows = reader.schema, sum(batch.num_rows for batch in reader)
        else:
            metadata = pq.read_metadata(file)
            schema, rows = metadata.schema.to_arrow_schema(), metadata.num_rows
    except FileNotFoundError as error:
        raise UsageError(f"there is no trace at {file}; check the name") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise PeerError(f"{file} is not a readable trace: {first_sentence(error)}; write it again") from error
    said = (schema.metadata or {}).get(b"antiphon")
    if said is None:
        raise UsageError(f"{file} is not an Antiphon trace: its metadata has no 'antiphon' entry")
    missing = sorted(NEEDED - set(schema.names))
    if missing:
        raise UsageError(f"{file} lacks the columns {', '.join(missing)}; a trace has {', '.join(SCHEMA.names)}")
    about = json.loads(said)
    assert isinstance(about, dict), "the metadata is written as an object"
    return about, int(rows)


def first_sentence(error: BaseException) -> str:
    """The message of Arrow, without its advice."""
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")


def as_parquet(file: Path) -> Path:
    """A copy of an Arrow file that Spark can read; removed when this process ends."""
    copy = scratch_directory() / f"{file.stem}-{abs(hash(file.resolve()))}.parquet"
    try:
        with pa.memory_map(str(file)) as stream:
            reader = pa.ipc.open_stream(stream)
            with pq.ParquetWriter(copy, reader.schema, compression="zstd") as writer:
                for batch in reader:
                    writer.write_batch(batch)
    except (OSError, pa.ArrowInvalid) as error:
        raise PeerError(f"{file} cannot be copied for Spark: {first_sentence(error)}; free some space") from error
    return copy


def in_order(session: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The rows with their position. One file is in order; several are sorted by time."""
    from pyspark.sql import functions as f

    frame = session.read.parquet(*(str(file.resolve()) for file in files))
    missing = {name: f.lit(None).cast(kind) for name, kind in ADDED.items() if name not in frame.columns}
    frame = frame.withColumns(missing)
    frame = frame.withColumn(POSITION, f.col("_metadata.row_index"))
    if len(files) == 1:
        return frame
    check_nodes(frame.withColumn("file", f.col("_metadata.file_path")))
    ordered = frame.withColumn("file", f.col("_metadata.file_path")).orderBy("time", "file", POSITION).drop("file")
    # Positions must be the same in every query, so the ordered rows are stored.
    kept = str(scratch_directory() / f"ordered-{abs(hash(tuple(files)))}")
    ordered.withColumn(POSITION, f.monotonically_increasing_id()).write.mode("overwrite").parquet(kept)
    return session.read.parquet(kept)


def merged_in_memory(session: SparkSession, files: Sequence[Path]) -> Trace:
    """The traces of nodes whose clocks disagree, in an order in which no delivery precedes its publication.

    Such an order is found row by row, in this process.
    """
    found = read_evidence(files)
    kept = scratch_directory() / f"merged-{abs(hash(tuple(files)))}.parquet"
    pq.write_table(found.table, kept, compression="zstd")
    return Trace(in_order(session, [kept]), dict(found.about), found.table.num_rows, 1, found.unjudged)


def check_nodes(frame: DataFrame) -> None:
    """Refuse files that cannot be of one run."""
    from pyspark.sql import functions as f

    twice = (
        frame.groupBy("node").agg(f.count_distinct("file").alias("files")).where("files > 1").orderBy("node").take(1)
    )
    if twice:
        raise UsageError(f"node {twice[0]['node']} is in two traces; give the traces of one run, and each of them once")


def survey(frame: DataFrame) -> TraceSurvey:
    """One pass over all rows."""
    from pyspark.sql import functions as f

    found = frame.agg(
        f.collect_set("order").alias("orders"),
        f.collect_set(f.when(f.col("event") == "deliver", f.col("source"))).alias("sources"),
        f.collect_set("node").alias("nodes"),
        f.max("time").alias("last_time"),
        f.min(f.when(f.col("event") == "end", f.col("value"))).alias("ending"),
        f.sum(f.when(f.col("event") == "stuck", f.col("value"))).alias("stuck"),
        f.count_if(f.col("event") == "lost").alias("losses"),
        f.count_if(f.col("event") == "unshown").alias("unshown"),
    ).first()
    assert found is not None, "an aggregate over everything has one row"
    silent = sorted(set(found["sources"]) - set(found["nodes"]))
    ending = None if found["ending"] is None else FINISHED if found["ending"] == 0 else CUT
    return TraceSurvey(
        frozenset(found["orders"]),
        silent,
        ending,
        found["stuck"] or 0,
        found["losses"],
        found["unshown"] > 0,
        found["last_time"] or 0,
    )


def counts_in(frame: DataFrame) -> dict[str, dict[int, int]]:
    """How often each node was asked to publish, started a publication of its own, and reported one as lost."""
    from pyspark.sql import functions as f

    own = (f.col("node") == f.col("source")) & f.col("event").isin("publish", "deliver", "lost")
    counts: dict[str, dict[int, int]] = {"publish": {}, "deliver": {}, "lost": {}}
    for row in frame.where(own).groupBy("event", "node").count().collect():
        counts[row["event"]][row["node"]] = row["count"]
    return counts


def changes_in(frame: DataFrame) -> list[tuple[str, int, int]]:
    """The subscriptions that became effective and ended, in order."""
    from pyspark.sql import functions as f

    changes = frame.where(f.col("event").isin("subscribed", "unsubscribed")).orderBy(POSITION)
    return [(row["event"], row["node"], row["topic"]) for row in changes.select("event", "node", "topic").collect()]
