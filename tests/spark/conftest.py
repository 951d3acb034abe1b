"""The Spark of all tests, which knows topics; and nodes that live beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import antiphon.spark
from antiphon.pipeline.session import SessionOptions, start_session
from tests.spark.nodes import Nodes


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, embedded, with two cores and little memory; if there is one in this process already, that one."""
    session = start_session("tests", SessionOptions(master="local[2]", memory="700m", brief=True))
    antiphon.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Nodes on a loop of their own; all are closed in the end."""
    found = Nodes()
    yield found
    found.close()
