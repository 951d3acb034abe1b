"""The properties of a universe, as jobs on Spark: the popularity of topics, the activity of processes, and overlaps.

Section 3.3.2 of the thesis of M. Matos, Figures 3.4 to 3.6. Only shown values reach the driver: how many topics have
how many subscribers, and the correlation of as many topics as a picture can show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon_lab.universes.fits import Distribution
from antiphon_lab.universes.law import Integers, Reals
from antiphon_lab.universes.source import told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_AT_ONCE = 4096
"""Of the matrix of processes and topics, of which only so much is ever made."""
COUNTS = pa.schema([("cell", pa.int64()), ("count", pa.int64())])
MEMORY = 0.7
"""The weight of earlier topics in the order of the heat map, each beside the one after it."""


@dataclass(frozen=True)
class Correlation:
    """Pearson's coefficient for every pair of some topics, in an order that shows groups; ones on the diagonal."""

    topics: list[str]
    """Their names or numbers."""
    matrix: Reals

    @property
    def mean(self) -> float:
        """The mean over all pairs."""
        return float(self.matrix[np.triu_indices(len(self.matrix), 1)].mean())

    @property
    def mean_largest(self) -> float:
        """Of every topic its most similar one, and the mean of these."""
        return float((self.matrix - 2 * np.eye(len(self.matrix))).max(axis=1).mean())


@dataclass(frozen=True)
class Statistics:
    """The properties of a universe."""

    processes: int
    topics: int
    subscriptions: int
    popularity: Distribution
    activity: Distribution
    correlation: Correlation | None
    """None where there are fewer than two topics."""


def distribution(pairs: DataFrame, key: str) -> Distribution:
    """How many have how many subscriptions; ``key`` is ``process`` or ``topic``."""
    from pyspark.sql import functions as f

    each = pairs.groupBy(key).agg(f.count("*").alias("value"))
    rows = each.groupBy("value").count().orderBy("value").collect()
    values = np.array([[row["value"], row["count"]] for row in rows], dtype=np.int64).reshape(-1, 2)
    return Distribution(values[:, 0], values[:, 1])


def sampled_topics(pairs: DataFrame, most: int) -> list[object]:
    """Some topics, drawn by their names, so that they are the same every time."""
    from pyspark.sql import functions as f

    drawn = pairs.select("topic").distinct().orderBy(f.xxhash64("topic"), "topic").limit(most)
    return sorted(row["topic"] for row in drawn.collect())


def count_together(size: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many processes have each pair of topics; rows are lists of places, one list per process."""
    together = np.zeros((size, size))
    for batch in batches:
        lists = batch.column(0)
        offsets, places = lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy()
        for first in range(0, len(lists), ROWS_AT_ONCE):
            ends = offsets[first : first + ROWS_AT_ONCE + 1]
            matrix = np.zeros((len(ends) - 1, size), np.float32)
            matrix[np.repeat(np.arange(len(ends) - 1), np.diff(ends)), places[ends[0] : ends[-1]]] = 1.0
            # Sums of so few ones are exact in single precision.
            together += matrix.T @ matrix
    cells = np.flatnonzero(together)
    yield pa.record_batch([cells, together.ravel()[cells].astype(np.int64)], schema=COUNTS)


def correlate(pairs: DataFrame, processes: int, most: int) -> Correlation | None:
    """The correlation of topics: a matrix with processes as rows, topics as columns, and 1 for a subscription."""
    from pyspark.sql import functions as f

    topics = sampled_topics(pairs, most)
    if len(topics) < 2:
        return None
    session = pairs.sparkSession
    kind = dict(pairs.dtypes)["topic"]
    places = session.createDataFrame(list(zip(topics, range(len(topics)), strict=True)), f"topic {kind}, place int")
    rows = pairs.join(f.broadcast(places), "topic").groupBy("process").agg(f.collect_list("place").alias("places"))
    counted = rows.select("places").mapInArrow(partial(count_together, len(topics)), "cell bigint, count bigint")
    together = np.zeros(len(topics) ** 2)
    for row in counted.groupBy("cell").agg(f.sum("count").alias("count")).collect():
        together[row["cell"]] = row["count"]
    matrix = pearson(together.reshape(len(topics), -1), processes)
    order = grouped(matrix)
    return Correlation([str(topics[place]) for place in order], matrix[np.ix_(order, order)])


def pearson(together: Reals, processes: int) -> Reals:
    """Coefficients from the number of common subscribers; a topic that all processes have is correlated with none."""
    share = np.diag(together) / processes
    spread = np.sqrt(share * (1.0 - share))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Reals = (together / processes - np.outer(share, share)) / np.outer(spread, spread)
    found[~np.isfinite(found)] = 0.0
    np.fill_diagonal(found, 1.0)
    return found


def grouped(matrix: Reals) -> Integers:
    """An order in which similar topics are neighbours: the next topic is the most similar to the last ones."""
    order = np.empty(len(matrix), np.int64)
    likeness = matrix.sum(axis=1)
    left = np.ones(len(matrix), np.bool_)
    for place in range(len(matrix)):
        order[place] = np.where(left, likeness, -np.inf).argmax()
        left[order[place]] = False
        likeness = matrix[order[place]] + (MEMORY * likeness if place else 0.0)
    return order


def statistics_of(pairs: DataFrame, processes: int | None, most: int) -> Statistics:
    """The properties of distinct subscriptions; without a number of processes, those with a subscription count."""
    with told("the universe cannot be looked at"):
        popularity, activity = distribution(pairs, "topic"), distribution(pairs, "process")
        everybody = max(processes or 0, activity.total)
        correlation = correlate(pairs, everybody, most) if activity.total else None
    subscriptions = int((popularity.values * popularity.counts).sum())
    return Statistics(everybody, popularity.total, subscriptions, popularity, activity, correlation)
