"""What measurements are expected to take: from what was measured, at other sizes by a power of the size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from antiphon_lab.experiments.vcube import broadcasts
from antiphon_lab.experiments.vcube.broadcasts import VCUBE_PS, BroadcastCase, latency_of
from antiphon_lab.reproduction import cost_model as work
from antiphon_lab.reproduction.cost_model import (
    at_size,
    collected,
    expected_microseconds,
    kind_of,
    known_seconds,
    to_text,
)
from antiphon_lab.reproduction.experiment import Experiment
from antiphon_lab.reproduction.measurements import measurement_of, run_measurement
from antiphon_lab.reproduction.registry import EXPERIMENTS

NAME = f"{broadcasts.__name__}.latency_of"


def case_of(nodes: int, percent: int = 100) -> BroadcastCase:
    return BroadcastCase(VCUBE_PS, nodes, percent, 100)


def test_the_kind_of_a_case_is_its_text_without_the_size() -> None:
    assert kind_of(str(case_of(64)), 64) == kind_of(str(case_of(256)), 256) == "VCube-PS, N nodes, 100 % publish"
    assert kind_of("64 nodes, 1 x 64 messages", 64) == "N nodes, 1 x 64 messages"


def test_between_and_beyond_two_sizes_time_grows_as_a_power() -> None:
    squares = {"10": 1.0, "1000": 10_000.0}
    assert at_size(squares, 100) == pytest.approx(100.0)
    assert at_size(squares, 10_000) == pytest.approx(1e6)
    assert at_size(squares, 1) == pytest.approx(0.01)
    assert at_size({"10": 1.0}, 1000) == pytest.approx(100**work.USUAL_POWER)
    assert at_size({"10": 1.0, "20": 1.0, "40": 16.0}, 80) == pytest.approx(16 * 2**work.MOST_POWER)


def test_a_new_kind_is_expected_to_take_as_long_as_the_longest_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        NAME: {
            "VCube-PS, N nodes, 100 % publish": {"64": 2.0},
            "VCube-PS, N nodes, 25 % publish": {"64": 0.5},
        }
    }
    monkeypatch.setattr(work, "known_seconds", lambda: known)
    assert expected_microseconds(latency_of, case_of(64, 25)) == 500_000
    assert expected_microseconds(latency_of, case_of(64, 50)) == 2_000_000
    monkeypatch.setattr(work, "known_seconds", dict)
    assert expected_microseconds(latency_of, case_of(64)) < expected_microseconds(latency_of, case_of(128))


def test_the_file_is_made_from_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (nodes, seed) in enumerate([(4, 1), (4, 2), (8, 1)]):
        run_measurement(measurement_of(number, latency_of, case_of(nodes), seed, 1), tmp_path)
    found = collected(tmp_path)
    assert list(found) == [NAME]
    assert list(found[NAME]) == ["VCube-PS, N nodes, 100 % publish"]
    assert list(found[NAME]["VCube-PS, N nodes, 100 % publish"]) == ["4", "8"]
    (tmp_path / work.DATA).write_text(to_text(found))
    monkeypatch.setattr(work, "files", lambda _: tmp_path)
    known_seconds.cache_clear()
    read = known_seconds()
    known_seconds.cache_clear()
    assert read[NAME].keys() == found[NAME].keys()


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_has_something_to_go_by(experiment: Experiment[Any, Any]) -> None:
    assert f"{experiment.measure.__module__}.{experiment.measure.__qualname__}" in known_seconds()
    for case in experiment.cases(experiment.full):
        microseconds = expected_microseconds(experiment.measure, case)
        assert 0 < microseconds < 3600e6 and math.isfinite(microseconds)
