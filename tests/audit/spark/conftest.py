"""The Spark of all tests of a process."""

from tests.pipeline.conftest import spark

__all__ = ["spark"]
