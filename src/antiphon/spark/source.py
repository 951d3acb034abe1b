"""The data source ``antiphon``, which Spark uses to read or write with that format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from antiphon.kernel.errors import UsageError
from antiphon.spark.options import BATCH_ONLY, ReadOptions, read_options
from antiphon.spark.rows import schema_of_rows

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class AntiphonDataSource(DataSource):
    """Reads topics from the logs of nodes, and publishes rows on topics."""

    @classmethod
    def name(cls) -> str:
        return "antiphon"

    # Reading.

    def schema(self) -> StructType:
        """The columns; ``headers`` is one of them if the options ask for it."""
        # Whether the query is a stream is not known yet; errors that apply to both kinds are reported here.
        options = {name: value for name, value in self.options.items() if not is_for_batches(name)}
        return columns_for(read_options(options, is_stream=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        from antiphon.spark.reader import TopicReader

        options = read_options(self.options, is_stream=False)
        check_schema(schema, options)
        return TopicReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from antiphon.spark.stream import TopicStreamReader

        options = read_options(self.options, is_stream=True)
        check_schema(schema, options)
        return TopicStreamReader(options)

    # Writing.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from antiphon.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from antiphon.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def is_for_batches(name: str) -> bool:
    """Whether an option would be refused for a stream."""
    return name.lower() in {each.lower() for each in BATCH_ONLY}


def columns_for(options: ReadOptions) -> StructType:
    """The columns that the options ask for."""
    return schema_of_rows(options.with_headers, options.with_keys, options.history)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema of the user's own: the columns are fixed."""
    if schema != columns_for(options):
        raise UsageError("the columns of topics are fixed: leave out schema(...), and select the columns that you want")
