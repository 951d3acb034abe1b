"""Topics in Spark: ``format("antiphon")`` reads the durable logs of live nodes and publishes rows on topics.

import antiphon.spark

antiphon.spark.register(session)
rows = session.readStream.format("antiphon").option("servers", "127.0.0.1:7400").option("subscribe", "room").load()

The options and columns are those of Kafka's connector, with ``servers`` for the list of nodes. ``docs/spark.md``
describes its guarantees and limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


def register(session: SparkSession) -> None:
    """Make ``format("antiphon")`` known to a session, and let Spark push filters down to it."""
    try:
        from antiphon.spark.source import AntiphonDataSource
    except ImportError as error:
        raise UsageError(
            f"this needs Apache Spark 4.2 or later ({error}); run: pip install 'antiphon[spark]'"
        ) from error
    session.dataSource.register(AntiphonDataSource)
    # Spark refuses sources with filter pushdown while this is off.
    session.conf.set(PUSHDOWN_SETTING, "true")
