"""Schedules of clusters as files: those that ``antiphon torture`` writes and ``antiphon simulate`` replays.

A file of this kind has ``cluster = true``; everything else in it is a :class:`ClusterSchedule`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from antiphon.simulator.cluster.world import ClusterSchedule
from antiphon.simulator.scenario.file import read_text
from antiphon.simulator.scenario.toml_document import Document
from antiphon.simulator.scenario.writer import structure_text

MARK: Final = "cluster"


def is_cluster_file(path: Path) -> bool:
    """Whether a scenario file is a schedule of a cluster."""
    return Document(str(path), read_text(path, "scenario")).table().get(MARK) is True


def load_schedule(path: Path) -> ClusterSchedule:
    """Read and check the schedule of a cluster."""
    document = Document(str(path), read_text(path, "scenario"))
    table = {key: value for key, value in document.table().items() if key != MARK}
    schedule = document.convert(table, ClusterSchedule)
    for number, step in enumerate(schedule.steps):
        if not all(0 <= node < schedule.nodes for node in (step.node, *step.nodes)):
            raise document.error(("steps", number), f"there are only {schedule.nodes} nodes, from 0 on")
    return schedule


def schedule_text(schedule: ClusterSchedule, remark: str = "") -> str:
    """The text of a file; ``remark`` goes above it as a comment."""
    return structure_text(schedule, remark, {MARK: True})
