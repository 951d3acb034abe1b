"""Reads topics in a batch query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from antiphon.spark.history_reader import HistoryReader
from antiphon.spark.options import ReadOptions
from antiphon.spark.plan import (
    Piece,
    chosen_partitions,
    divided,
    end_within,
    logs_for,
    piece_of,
    resolved,
    start_within,
)
from antiphon.spark.pushdown import Pushed
from antiphon.spark.ranges import RangeReader
from antiphon.spark.rows import RowBuilder


class TopicReader(DataSourceReader):
    """Plans a batch query when Spark asks for its partitions, and reads them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (Spark's name)
        """Take the filters that the source can apply; the rest is for Spark."""
        if self._options.history:
            # Times are those at which nodes received messages, and histories do not have them.
            return filters
        return [each for each in filters if not self._pushed.take(each)]

    def partitions(self) -> list[Piece]:
        """The pieces to read: the present content, between the bounds of options and filters."""
        options = self._options
        logs = logs_for(options)
        partitions = chosen_partitions(options, logs)
        starts = resolved(options, options.start, partitions, logs)
        ends = resolved(options, options.end, partitions, logs)
        pieces = []
        for partition in partitions:
            if not self._pushed.wants(*partition):
                continue
            found = logs.range(*partition)
            assert found is not None, "only partitions are chosen that somebody has"
            start = start_within(options, partition, starts[partition], found)
            end = end_within(partition, ends[partition], found)
            piece = piece_of(options, logs, partition, start, max(start, end))
            if piece is not None:
                pieces.append(self._pushed.cut(piece))
        return divided(pieces, options.minimal_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece; Spark asks for an empty one where there are none."""
        if not isinstance(partition, Piece):
            return iter(())
        times = self._pushed.times_us
        return read_piece(self._options, partition, (times.first, times.end))


def read_piece(
    options: ReadOptions, piece: Piece, times_us: tuple[int, int | None] = (0, None)
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece as record batches."""
    builder = RowBuilder(piece, options.with_headers, options.with_keys, options.history)
    if options.history:
        return builder.batches(HistoryReader(options, piece).chunks())
    return builder.batches(RangeReader(options, piece, times_us).chunks())
