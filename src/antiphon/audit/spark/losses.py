"""Judges the losses that nodes reported, in traces of any size: the judgement of :mod:`antiphon.audit.verdict`, on
Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.audit.columns.incarnations import NAMES, IncarnationSpans
from antiphon.audit.verdict import text_of_holes
from antiphon.trace.contract import TOLD_ALWAYS, TOLD_FAILED, TOLD_UNKEPT, Contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judge_words(frame: DataFrame, contract: Contract, spans: IncarnationSpans) -> tuple[int, str | None]:
    """The number of wrong loss reports and of unreported holes; and the same as a sentence.

    Reports of nodes that fail or join count as right.
    """
    from pyspark.sql import functions as f

    stays = ~f.col("node").isin(sorted(spans.changing)) if spans.changing else f.lit(True)
    losses = frame.where((f.col("event") == "lost") & stays).select(*NAMES).persist()
    try:
        delivered = frame.where((f.col("event") == "deliver") & stays).select(*NAMES)
        said = losses.count()
        true = losses.distinct().join(delivered, list(NAMES), "left_anti").count() if said else 0
        accused = 0
        if contract.told != TOLD_ALWAYS and contract.holes_in is None and not contract.counts_all:
            of_failed = f.col("source").isin(sorted(spans.mortal)) & f.lit(contract.told in (TOLD_FAILED, TOLD_UNKEPT))
            accused = losses.where(~of_failed).count()
        unspoken = unspoken_in(losses.union(delivered).distinct()) if contract.counts_all else 0
    finally:
        losses.unpersist()
    false = said - true
    return false + accused + unspoken, text_of_holes(false, accused, unspoken) or None


def unspoken_in(had: DataFrame) -> int:
    """Count publications before the last of a source at a node that were neither delivered nor reported as lost."""
    from pyspark.sql import functions as f

    incarnations = had.groupBy("node", "topic", "source").agg((f.max("sequence") - f.count("*")).alias("holes"))
    found = incarnations.agg(f.sum("holes").alias("holes")).first()
    assert found is not None, "an aggregate over everything has one row"
    return int(found["holes"] or 0)
