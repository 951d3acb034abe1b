"""No verdict accepts garbage: every experiment judges recorded measurements, and then the same turned into nonsense.

Two kinds of garbage are fed. In rows, the measured value is replaced: zero, half and twice the published value, its
opposite, the value of the next row. In measurements, all numbers are replaced before they are compared, so that the
checks behind verdicts meet the garbage too. Nothing is simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from antiphon_lab.reproduction.experiment import Experiment, Row, Sample
from antiphon_lab.reproduction.verdicts import DIFFERS, REFUTED
from tests.research.reproduction.recording import HELD, repeated, values_of

Values = list[tuple[Any, Any]]


def judged(experiment: Experiment[Any, Any], values: Values) -> dict[str, Row]:
    """The rows that have a verdict, by label."""
    findings = experiment.compare(experiment.default, repeated(experiment, values))
    rows = [finding for finding in findings if isinstance(finding, Row) and finding.published is not None]
    return {row.label: row for row in rows}


def with_value(row: Row, value: float) -> str | None:
    """The verdict if this had been measured."""
    return replace(row, measured=Sample((value,) * len(row.measured.values))).verdict


def garbage_of(row: Row) -> dict[str, float]:
    """Values that contradict the published one; a statement of direction excludes those on its other side alone."""
    assert row.published is not None
    value, side = row.published.value, row.published.interval.side
    if value == 0:
        low, high = row.published.interval.ends(0.0)
        return {"above": 2 * high + 1, "below": 2 * low - 1}
    found = {"zero": 0.0, "half": value / 2, "twice": 2 * value, "opposite": -value}
    if side == "above":
        del found["twice"]
    elif side == "below":
        del found["half"]
    return found


@pytest.mark.parametrize("experiment", HELD, ids=lambda experiment: experiment.name)
def test_no_row_agrees_with_nonsense(experiment: Experiment[Any, Any]) -> None:
    rows = list(judged(experiment, values_of(experiment)).values())
    for place, row in enumerate(rows):
        verdicts = {name: with_value(row, value) for name, value in garbage_of(row).items()}
        agreeing = [name for name, verdict in verdicts.items() if verdict not in (DIFFERS, REFUTED)]
        assert not agreeing, f"{row.label}: agrees with {agreeing}"
        refuting = [name for name, verdict in verdicts.items() if verdict == REFUTED]
        # What is found instead of a published value may happen to be half or twice of it, but not everything.
        assert len(refuting) <= 1, f"{row.label}: refutes with {refuting}"
        other = rows[place - 1]
        if other.published is not None and row.published is not None and is_swap_visible(row, other):
            assert with_value(row, other.measured.mean) != row.verdict, f"{row.label}: the same with {other.label}"


def is_swap_visible(row: Row, other: Row) -> bool:
    """Whether the value of another row lies outside of everything that this row accepts."""
    assert row.published is not None
    low, high = row.published.interval.ends(row.published.value, row.measured.deviation)
    mean = other.measured.mean
    instead = row.refutation is not None and row.refutation.low <= mean <= row.refutation.high
    return row.verdict != DIFFERS and not (low <= mean <= high) and not instead


def changed(value: Any, change: Callable[[float], float]) -> Any:
    """A measurement with all its numbers changed; names, truths and shapes stay."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return type(value)(change(value))
    if isinstance(value, np.ndarray):
        return np.vectorize(change, otypes=[value.dtype])(value) if value.size else value
    if isinstance(value, dict):
        return {key: changed(one, change) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(changed(one, change) for one in value)
    if isinstance(value, bool | str | None):
        return value
    structure = msgspec.structs if isinstance(value, msgspec.Struct) else dataclasses
    names = [each.name for each in structure.fields(value)]
    return structure.replace(value, **{name: changed(getattr(value, name), change) for name in names})


WITHOUT_SIMULATION = (
    "false positives in deliveries, 1024 nodes, 25 %, from the table",
    "deliveries of all that should be, 1024 nodes, 25 %, from the table",
    "log to base 8 of 10^6 processes, rounded up",
)
"""Rows about arithmetic of the documents themselves; no measurement can change them."""

CHANGES: dict[str, Callable[[float], float]] = {
    "zeros": lambda value: 0 * value,
    "halves": lambda value: value / 2,
    "doubles": lambda value: 2 * value,
    "opposites": lambda value: -value,
    "one more": lambda value: value + 1,
    "ones": lambda value: 0 * value + 1,
}


def garbled(values: Values) -> dict[str, Values]:
    """All measurements changed in one way, and those of the cases exchanged with each other."""
    found = {name: [(case, changed(one, change)) for case, one in values] for name, change in CHANGES.items()}
    cases, measured = zip(*values, strict=True)
    found["turned round"] = list(zip(cases, reversed(measured), strict=True))
    found["moved on"] = list(zip(cases, [*measured[1:], measured[0]], strict=True))
    return found


def verdicts_on(experiment: Experiment[Any, Any], values: Values) -> dict[str, str | None]:
    """The verdicts; none at all where the measurements cannot even be compared, which fails the experiment."""
    try:
        return {label: row.verdict for label, row in judged(experiment, values).items()}
    except Exception:
        # Whatever nonsense leads to, such as a tree that never ends: reproduce reports it and exits with 1.
        return {}


@pytest.mark.parametrize("experiment", HELD, ids=lambda experiment: experiment.name)
def test_every_verdict_changes_with_some_garbage(experiment: Experiment[Any, Any]) -> None:
    values = values_of(experiment)
    genuine = {label: row.verdict for label, row in judged(experiment, values).items()}
    assert genuine, "an experiment that is held to a document has rows"
    assert None not in genuine.values()
    unmoved = {label: found for label, found in genuine.items() if found != DIFFERS and label not in WITHOUT_SIMULATION}
    for garbage in garbled(values).values():
        found = verdicts_on(experiment, garbage)
        unmoved = {label: verdict for label, verdict in unmoved.items() if found.get(label) == verdict}
    assert not unmoved, f"the same whatever is measured: {unmoved}"
