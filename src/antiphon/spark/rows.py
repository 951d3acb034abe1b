"""Rows: the messages of stored batches as columns of Spark.

Batches are columns already, and become Arrow record batches without a Python object per row but the values themselves.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def schema_of_rows(with_headers: bool) -> StructType:
    """The columns of a row: Kafka's, and what Antiphon knows besides."""
    columns = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
    if with_headers:
        columns.append(StructField("headers", ArrayType(HEADER)))
    columns += [
        StructField("publisher", LongType()),
        StructField("sequence", LongType()),
        StructField("order", StringType()),
    ]
    return StructType(columns)
