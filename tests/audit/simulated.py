"""The audit of simulated runs, in this process and on Spark, as ``antiphon audit`` does it: with their scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.audit import Audit, auditor
from antiphon.audit.spark import auditor as spark_auditor
from antiphon.simulator.scenario.audited import SCENARIOS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit_files(files: Sequence[Path]) -> Audit:
    return auditor.audit_files(files, SCENARIOS)


def audit_in_session(session: SparkSession, files: Sequence[Path], rows_per_part: int | None = None) -> Audit:
    return spark_auditor.audit_in_session(session, files, SCENARIOS, rows_per_part)
