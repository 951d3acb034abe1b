"""One small Spark for all tests of a process, as for those of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import antiphon.spark
from antiphon.pipeline.session import SessionOptions, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, embedded, with two cores and little memory, that knows topics."""
    session = start_session("tests", SessionOptions(master="local[2]", memory="700m", brief=True))
    antiphon.spark.register(session)
    yield session
    session.stop()
