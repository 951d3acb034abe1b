"""Raw subscriptions of any kind, as rows of two names: the subscriber and the topic.

Readable formats: edge lists as SNAP publishes them (lines with two words, and comments that begin with ``#``), and its
lists of communities (a line has the members of one); tables with a header, such as page and user of every revision of a
wiki (CSV, TSV); Parquet; and universes that were made before. Text may be compressed by gzip or bzip2. Rows without a
name on either side are left out, and repetitions count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from antiphon.kernel.errors import AntiphonError, PeerError, UsageError
from antiphon.pipeline.session import first_line
from antiphon_lab.universes.files import ABOUT, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["edges", "communities", "csv", "tsv", "parquet", "universe"]

PACKED = (".gz", ".bz2")
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "edges",
    ".edges": "edges",
    ".tab": "edges",
}
COMMUNITIES = ".cmty"
"""The suffix of lists of communities before their last one."""
SEPARATORS = {"csv": ",", "tsv": "\t"}
COMMENTS = ("#", "%")
PROCESS_NAMES = ("process", "user", "user_id", "userid", "editor", "follower", "subscriber", "username", "contributor")
TOPIC_NAMES = ("topic", "page", "page_id", "pageid", "journal", "followed", "title", "article", "community")
"""The usual names of columns; the first one that exists is used by default."""

POSITION_BITS = 33
"""Spark numbers the rows of a partition in so many bits, and has the partition above them."""


@dataclass(frozen=True)
class Source:
    """Where raw subscriptions are, and how they are read."""

    path: str
    format: Format | None = None
    """None to tell it by the name."""
    process: str | None = None
    """The column of processes: a name or, in an edge list, a number from 1; none to tell it by the usual names."""
    topic: str | None = None
    where: str | None = None
    """A condition in SQL on the columns of a row that is to be kept."""


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Turn any exception of Spark into one sentence."""
    try:
        yield
    except AntiphonError:
        raise
    except Exception as error:
        # Spark and its transport have no exception class in common; any other exception is a bug of ours.
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        sentence = f"{doing}: {first_line(str(error))}"
        if type(error).__name__ == "AnalysisException":
            raise UsageError(sentence) from error
        raise PeerError(f"{sentence}; look whether the disk is full and the source is whole") from error


def format_of(source: Source) -> Format:
    """How a source is to be read."""
    path = Path(source.path)
    if source.format is not None:
        return source.format
    if (path / ABOUT).is_file():
        return "universe"
    suffixes = [suffix for suffix in path.suffixes if suffix not in PACKED]
    if COMMUNITIES in suffixes:
        return "communities"
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    if path.is_dir() and any(path.glob("**/*.parquet")):
        return "parquet"
    raise UsageError(
        f"the name of {path.name} does not say how it is to be read; say it with --format: edges, "
        "communities, csv, tsv or parquet"
    )


def check_there(source: Source) -> None:
    """Complain of a source that is not there or empty, before Spark is started."""
    if "://" in source.path:
        return
    path = Path(source.path)
    if not path.exists():
        raise UsageError(f"there is nothing at {path}; check the name of the source")
    if path.is_file() and path.stat().st_size == 0:
        raise UsageError(f"{path} is empty; a source has a line for every subscription")
    if path.is_dir() and not any(path.iterdir()):
        raise UsageError(f"{path} is an empty directory; a source has files with subscriptions in it")


def read_names(session: SparkSession, source: Source) -> DataFrame:
    """All rows, as ``process`` and ``topic``, by the names that they have; repetitions and holes are still there."""
    kind = format_of(source)
    with told(f"cannot read {source.path}"):
        if kind == "edges":
            return chosen(edges(session, source.path), source, ("1",), ("2",))
        if kind == "parquet":
            frame = session.read.parquet(source.path)
        elif kind == "universe":
            frame = session.read.parquet(str(Path(source.path) / SUBSCRIPTIONS))
        elif kind == "communities":
            frame = communities(session, source.path)
        else:
            frame = session.read.csv(source.path, header=True, sep=SEPARATORS[kind], escape='"')
        return chosen(frame, source, PROCESS_NAMES, TOPIC_NAMES)


def lines_of_words(session: SparkSession, path: str) -> DataFrame:
    """The words of every line that is no comment, as a list."""
    from pyspark.sql import functions as f

    line = f.trim(f.col("value"))
    lines = session.read.text(path).where(~line.rlike(f"^[{''.join(COMMENTS)}]") & (line != ""))
    return lines.select(f.split(line, r"[\s,]+").alias("words"))


def communities(session: SparkSession, path: str) -> DataFrame:
    """Every line is a topic, and has its subscribers; topics are named by where their line is."""
    from pyspark.sql import functions as f

    numbered_lines = lines_of_words(session, path).withColumn("topic", f.monotonically_increasing_id())
    return numbered_lines.select(f.explode("words").alias("process"), "topic")


def edges(session: SparkSession, path: str) -> DataFrame:
    """The first words of every line, in columns ``1``, ``2`` and ``3``."""
    from pyspark.sql import functions as f

    words = f.col("words")
    return lines_of_words(session, path).select(
        *(f.get(words, f.lit(place)).alias(str(place + 1)) for place in range(3))
    )


def chosen(frame: DataFrame, source: Source, processes: Sequence[str], topics: Sequence[str]) -> DataFrame:
    """The two columns that are asked for, of rows that meet the condition."""
    from pyspark.sql import functions as f

    if source.where is not None:
        with told(f"the condition {source.where!r} cannot be checked"):
            frame = frame.where(source.where)
            # Spark looks at a condition only when it is asked for columns.
            frame.schema  # noqa: B018
    process = column(frame.columns, source.process, processes, "--process")
    topic = column(frame.columns, source.topic, topics, "--topic")
    if process == topic:
        raise UsageError(
            f"column {process!r} cannot hold both processes and topics; name two with --process and --topic"
        )
    return frame.select(f.col(f"`{process}`").alias("process"), f.col(f"`{topic}`").alias("topic"))


def column(there: Sequence[str], wanted: str | None, usual: Sequence[str], option: str) -> str:
    """The name of a column as the source spells it."""
    by_small = {name.lower(): name for name in there}
    for name in (wanted,) if wanted is not None else usual:
        if name.lower() in by_small:
            return by_small[name.lower()]
    columns = ", ".join(there) or "none"
    what = "has no column that is usually so called" if wanted is None else f"has no column {wanted!r}"
    raise UsageError(f"the source {what}; its columns are {columns}: name one with {option}")


def distinct_pairs(names: DataFrame) -> DataFrame:
    """Every subscription once, without rows with a missing name."""
    from pyspark.sql import functions as f

    whole = names.where(f.col("process").isNotNull() & f.col("topic").isNotNull())
    for name, kind in names.dtypes:
        if kind == "string":
            whole = whole.withColumn(name, f.trim(name)).where(f.col(name) != "")
    return whole.dropDuplicates(["process", "topic"])


def numbered(session: SparkSession, names: DataFrame, column_name: str, place: Path) -> DataFrame:
    """Number distinct names from 0 in their order: ``name`` and ``number``.

    Every partition of the sorted names numbers its own; the driver learns only how many each has.
    """
    from pyspark.sql import functions as f

    ordered = names.select(f.col(column_name).alias("name")).distinct().orderBy("name")
    ordered.withColumn("row", f.monotonically_increasing_id()).write.mode("overwrite").parquet(str(place))
    rows = session.read.parquet(str(place))
    part = f.shiftright("row", POSITION_BITS)
    sizes = sorted((int(row["part"]), int(row["count"])) for row in rows.groupBy(part.alias("part")).count().collect())
    starts, start = [], 0
    for number, size in sizes:
        starts.append((number, start))
        start += size
    offsets = session.createDataFrame(starts, "part bigint, start bigint")
    within = f.col("row").bitwiseAND((1 << POSITION_BITS) - 1)
    joined = rows.withColumn("part", part).join(f.broadcast(offsets), "part")
    return joined.select("name", (f.col("start") + within).alias("number"))
