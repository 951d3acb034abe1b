"""Fixtures that tests of the laboratory share with tests of the product."""

from tests.cli.conftest import command
from tests.spark.conftest import nodes, spark

__all__ = ["command", "nodes", "spark"]
