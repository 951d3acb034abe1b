"""Fixtures that tests of the laboratory share with tests of the product, and with each other."""

from __future__ import annotations

import msgspec
import pytest

from antiphon_lab.report.stored import Result, ResultFile
from tests.cli.conftest import command
from tests.research.reproduced import Reproduced, reproduce_small
from tests.spark.conftest import nodes, spark

__all__ = ["command", "nodes", "spark"]


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """The command for these experiments; tests that use it are kept in one process by ``tests/sharing.py``."""
    return reproduce_small(tmp_path_factory.mktemp("reproduced"))


@pytest.fixture(scope="session")
def results(reproduced: Reproduced) -> list[Result]:
    """The results of these experiments, to report on."""
    assert reproduced.code == 0, reproduced.complained
    return msgspec.json.decode(reproduced.said, type=ResultFile).experiments or []
