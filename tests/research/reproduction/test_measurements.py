"""Measurements on disk: found by people, whole or not there, and run again only if the value could be another."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.pipeline.atomic_output import ATTEMPTS
from antiphon_lab.experiments.vcube import broadcasts, one_publisher
from antiphon_lab.reproduction import measurements
from antiphon_lab.reproduction.experiment import Experiment
from antiphon_lab.reproduction.measurements import (
    Measurement,
    code_digest,
    imported_from,
    measurement_of,
    read_measured,
    run_measurement,
)
from antiphon_lab.reproduction.registry import EXPERIMENTS

CASE = one_publisher.OnePublication("VCube-PS", 8, 25)


@dataclass(frozen=True)
class Box:
    """What measuring functions of these tests return."""

    lengths: np.ndarray
    widths: np.ndarray
    pairs: tuple[tuple[str, float], ...]


def boxes(case: object, seed: int) -> Box:
    return Box(np.array([seed, 2]), np.zeros(0), (("a", 0.1),))


def no_number(case: object, seed: int) -> float:
    return float("nan")


def numpy_number(case: object, seed: int) -> float:
    return np.float64(1) / 3


def unannotated(case, seed):  # type: ignore[no-untyped-def]
    return 1


def one(measure: measurements.Measure, seed: int = 5) -> Measurement:
    return measurement_of(0, measure, CASE, seed, 1)


def test_a_record_says_what_was_measured_and_lies_where_a_person_looks(tmp_path: Path) -> None:
    measurement = one(one_publisher.measure)
    run_measurement(measurement, tmp_path)
    (path,) = (tmp_path / "measurements").rglob("*.json")
    assert path.name == "5.json"
    assert path.parent.name.startswith("VCube-PS-8-nodes-25-members-")
    assert path.parent.parent.name == "experiments.vcube.one_publisher.measure"
    record = msgspec.json.decode(path.read_bytes())
    assert (record["case"], record["seed"]) == ("VCube-PS, 8 nodes, 25 % members", 5)
    assert record["parameters"] == "OnePublication(system='VCube-PS', nodes=8, member_percent=25, truncated=False)"
    assert record["value"]["copies"] == 1
    assert list((tmp_path / ATTEMPTS).iterdir()) == []


def test_what_is_read_is_what_was_measured(tmp_path: Path) -> None:
    measurement = one(one_publisher.measure)
    ran = run_measurement(measurement, tmp_path)
    read = read_measured(measurement, tmp_path)
    assert read == ran
    assert ran.value == one_publisher.measure(CASE, 5)


def test_arrays_keep_their_kind_even_if_they_are_empty(tmp_path: Path) -> None:
    run_measurement(one(boxes), tmp_path)
    record = read_measured(one(boxes), tmp_path)
    assert record is not None
    assert isinstance(record.value, Box)
    assert (str(record.value.lengths.dtype), record.value.lengths.tolist()) == ("int64", [5, 2])
    assert (str(record.value.widths.dtype), len(record.value.widths)) == ("float64", 0)
    assert record.value.pairs == (("a", 0.1),)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    assert run_measurement(one(numpy_number), tmp_path).value == 1 / 3


def test_what_cannot_be_read_back_is_a_failure_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        run_measurement(one(no_number), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_function_must_say_what_it_measures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unannotated has no result type; annotate its result"):
        run_measurement(one(unannotated), tmp_path)


def test_a_finished_measurement_is_not_run_again(tmp_path: Path) -> None:
    run_measurement(one(boxes), tmp_path)
    (path,) = tmp_path.rglob("*.json")
    written = path.stat().st_mtime_ns
    run_measurement(one(boxes), tmp_path)
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "other"])
def test_a_damaged_record_is_run_again(tmp_path: Path, damage: str) -> None:
    measurement = one(boxes)
    run_measurement(measurement, tmp_path)
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-3])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole.replace(measurement.digest.encode(), b"0" * 64))
    assert read_measured(measurement, tmp_path) is None
    run_measurement(measurement, tmp_path)
    assert read_measured(measurement, tmp_path) is not None


def test_the_digest_changes_with_everything_that_decides_the_value() -> None:
    other_case = one_publisher.OnePublication("VCube-PS", 8, 100)
    found = {
        one(one_publisher.measure).digest,
        one(one_publisher.measure, seed=6).digest,
        one(boxes).digest,
        measurement_of(0, one_publisher.measure, other_case, 5, 1).digest,
    }
    assert len(found) == 4
    assert measurement_of(9, one_publisher.measure, CASE, 5, 77).digest in found


def test_the_digest_changes_with_the_source(tmp_path: Path) -> None:
    source = tmp_path / "measuring.py"
    source.write_text("from antiphon.kernel import randomness\n")
    before = code_digest(source)
    code_digest.cache_clear()
    assert code_digest(source) == before
    source.write_text("from antiphon.kernel import randomness\nfactor = 2\n")
    code_digest.cache_clear()
    assert code_digest(source) != before


def test_the_source_is_that_of_all_modules_that_take_part() -> None:
    names = {path.stem for path in imported_from(Path(broadcasts.__file__))}
    assert {"broadcasts", "run", "randomness", "recorder", "scenario"} <= names
    assert "one_publisher" not in names


def test_how_experiments_are_compared_does_not_change_what_was_measured() -> None:
    names = {path.stem for path in imported_from(Path(one_publisher.__file__))}
    assert {"one_publisher", "one_topic", "metrics", "vcube_ps"} <= names
    assert not {"experiment", "documents", "figures"} & names


def test_a_disk_that_fails_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "measurements").write_text("in the way")
    with pytest.raises(PeerError, match=r"cannot write to .*: (Not a directory|File exists).*finished work is kept"):
        run_measurement(one(boxes), tmp_path)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_cases_are_plain_data(experiment: Experiment[Any, Any]) -> None:
    for plan in (experiment.default, experiment.full):
        cases = experiment.cases(plan)
        assert pickle.loads(pickle.dumps(cases)) == cases
        described = {repr(case) for case in cases}
        assert len(described) == len(set(cases))
        assert not any(" at 0x" in text for text in described)
