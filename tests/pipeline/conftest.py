"""One small Spark for all tests of a process: starting it costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from antiphon.pipeline.session import SessionOptions, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, embedded, with two cores and little memory."""
    session = start_session("tests", SessionOptions(master="local[2]", memory="700m", brief=True))
    yield session
    session.stop()
