"""Cuts a large topic into intervals in which causal order can be judged without the rest of it.

Whether a delivery is too late depends on the deliveries since the publication was first seen anywhere: its followers
started later, and so did theirs. So a topic is cut into intervals of time of about equal size, and each gets a *lead*:
the earlier rows from the first row about any publication that is delivered in the interval, or about a later one of the
same source. The lead is read and not judged, and publications that were delivered before the lead are left out of it.
As long as publications are delivered soon after they start, leads are short, and all intervals together have hardly
more rows than the topic.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from antiphon.audit.columns.histories import POSITION
from antiphon.kernel.message import SOURCE_BITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITIONS_PER_STEP = 1 << 14
"""Cuts are at multiples of this, or of less where parts are small."""

MOST_WITH_LEAD = 2
"""The most times by which an interval with its lead may exceed the size of a part."""

END = 1 << 62


@dataclass(frozen=True)
class Interval:
    """Rows of a topic from ``begin`` to before ``end`` are judged; those from ``lead`` on are read.

    ``older`` are the publications that were delivered both before the lead and later, packed as in the rows of parts.
    """

    part: int
    topic: int
    lead: int
    begin: int
    end: int
    older: tuple[int, ...]


class Histogram:
    """The distribution of the rows of one topic over the trace."""

    def __init__(self, step: int, counts: dict[int, int]) -> None:
        self._step = step
        self._places = sorted(counts)
        self._before = [0, *accumulate(counts[place] for place in self._places)]

    def rows_before(self, position: int) -> int:
        """The number of rows before a position, up to a step more."""
        return self._before[bisect_left(self._places, math.ceil(position / self._step))]

    def cuts(self, parts: int) -> list[int]:
        """Positions that divide the rows into so many intervals of equal size; fewer if one step has many rows."""
        total = self._before[-1]
        found = []
        for part in range(1, parts):
            # The first step before which there are enough rows.
            place = bisect_left(self._before, math.ceil(total * part / parts))
            found.append((self._places[place - 1] + 1) * self._step)
        return sorted(set(found))


def intervals_of(
    seen: DataFrame, large_topics: dict[int, tuple[int, int]], rows_per_part: int, first_part: int
) -> list[Interval]:
    """The intervals of large topics, numbered from ``first_part`` on; empty if a lead would be too long.

    ``large_topics`` gives for each its first part and its number of parts.
    """
    from pyspark.sql import functions as f

    rows = seen.where(f.col("event").isin("publish", "deliver") & f.col("topic").isin(list(large_topics)))
    step = max(1, min(POSITIONS_PER_STEP, rows_per_part // 16))
    counted = rows.groupBy("topic", f.floor(f.col(POSITION) / step).alias("place")).count().collect()
    places: dict[int, dict[int, int]] = {topic: {} for topic in large_topics}
    for row in counted:
        places[row["topic"]][row["place"]] = row["count"]
    histograms = {topic: Histogram(step, counts) for topic, counts in places.items()}
    cuts = {topic: histograms[topic].cuts(parts) for topic, (_, parts) in large_topics.items()}
    publications = publications_by_interval(rows, cuts).persist()
    try:
        leads = leads_of(publications)
        for (topic, number), lead in leads.items():
            end = cuts[topic][number] if number < len(cuts[topic]) else END
            size = histograms[topic].rows_before(end) - histograms[topic].rows_before(lead)
            if size > MOST_WITH_LEAD * rows_per_part:
                return []
        older = older_than(publications, leads)
    finally:
        publications.unpersist()
    found: list[Interval] = []
    for (topic, number), lead in leads.items():
        begin, end = list(pairwise([0, *cuts[topic], END]))[number]
        part = first_part + len(found)
        found.append(Interval(part, topic, min(lead, begin), begin, end, tuple(older[topic, number])))
    return found


def publications_by_interval(rows: DataFrame, cuts: dict[int, list[int]]) -> DataFrame:
    """For each publication and each interval with rows about it, the first and the last of these."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    number: Column = f.lit(0)
    for topic, positions in cuts.items():
        inside: Column = f.lit(0)
        for cut in positions:
            inside = inside + (f.col(POSITION) >= cut).cast("int")
        number = f.when(f.col("topic") == topic, inside).otherwise(number)
    seen = rows.groupBy("topic", "source", "sequence", number.alias("number")).agg(
        f.min(POSITION).alias("first"),
        f.min(f.when(f.col("event") == "deliver", f.col(POSITION))).alias("first_delivery"),
        f.max(POSITION).alias("last"),
    )
    # Rows of the same publication are peers of each other, so they count too.
    from_here_on = Window.partitionBy("topic", "source").orderBy(f.desc("sequence"))
    return seen.withColumn("reach", f.min("first").over(from_here_on))


def leads_of(publications: DataFrame) -> dict[tuple[int, int], int]:
    """For each topic and number of an interval, the first position to read."""
    from pyspark.sql import functions as f

    delivered = publications.where("first_delivery is not null")
    leads = delivered.groupBy("topic", "number").agg(f.min("reach").alias("lead")).orderBy("topic", "number")
    return {(row["topic"], row["number"]): row["lead"] for row in leads.collect()}


def older_than(publications: DataFrame, leads: dict[tuple[int, int], int]) -> dict[tuple[int, int], list[int]]:
    """For each interval the publications that were delivered before its lead and have rows after it."""
    from pyspark.sql import functions as f

    whole = publications.groupBy("topic", "source", "sequence").agg(
        f.min("first_delivery").alias("first_delivery"), f.max("last").alias("last")
    )
    rows = [(topic, number, lead) for (topic, number), lead in leads.items()]
    session = publications.sparkSession
    bounds = f.broadcast(session.createDataFrame(rows, "topic int, number int, lead bigint"))
    older = whole.join(bounds, "topic").where("first_delivery < lead and last >= lead")
    found: dict[tuple[int, int], list[int]] = {name: [] for name in leads}
    for row in older.select("topic", "number", packed_publication().alias("publication")).collect():
        found[row["topic"], row["number"]].append(row["publication"])
    return found


def packed_publication() -> Column:
    """The source and the number of a publication in one word."""
    from pyspark.sql import functions as f

    return f.shiftleft("sequence", SOURCE_BITS).bitwiseOR(f.col("source").cast("bigint"))
