"""Explains violations in a trace that Spark reads (:mod:`antiphon.audit.explanations`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.audit.columns.verdict import Example
from antiphon.audit.explanations import CHANGES, TELLING, people, publications, tell

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def tell_from_frame(frame: DataFrame, examples: Mapping[str, Example]) -> dict[str, list[str]]:
    """The explanations of some violations, with one pass over the trace."""
    from pyspark.sql import functions as f

    wanted: Column = f.lit(False)
    for example in examples.values():
        names = [f.struct(f.lit(source), f.lit(sequence).cast("bigint")) for source, sequence in publications(example)]
        about = f.struct("source", "sequence").isin(*names)
        changes = (f.col("node") == example.node) & f.col("event").isin(*CHANGES)
        here = (f.col("topic") == example.topic) & f.col("node").isin(*people(example))
        wanted = wanted | (here & (about | changes))
    rows = [row.asDict() for row in frame.where(wanted).select(*TELLING).collect()]
    return {kind: tell(rows, example) for kind, example in examples.items()}
