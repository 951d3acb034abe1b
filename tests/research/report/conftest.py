"""Results to report on: beside those of the registry, one that was made up to be awkward."""

from __future__ import annotations

import pytest

from antiphon_lab.report.stored import Result, StoredRow
from antiphon_lab.reproduction.figures import Axis, Figure, Mark, Point, Series

HOSTILE = "</style></script><script>alert('1')</script><img src=\"https://example.org/x\" onerror=x> & {{ 7 * 7 }}"


@pytest.fixture
def hostile() -> Result:
    """Every text that a result has is an attempt to get out of it."""
    figure = Figure(
        "figure",
        HOSTILE,
        Axis(HOSTILE, HOSTILE, categories=(HOSTILE, "b")),
        Axis(HOSTILE),
        (
            Series(HOSTILE, HOSTILE, (Point(0, 1.5, 1.0, 2.0, label=HOSTILE), Point(1, 2.5)), "bars"),
            Series(HOSTILE, HOSTILE, (Point(1, 3.0, limit="upper"),), "points", published=True),
        ),
        (Mark("y", 2.0, HOSTILE),),
        HOSTILE,
    )
    row = StoredRow(
        HOSTILE,
        HOSTILE,
        1.5,
        3.0,
        0.25,
        deviation=-0.5,
        interval=(2.5, None),
        because=HOSTILE,
        verdict="refuted",
        reason=HOSTILE,
        where=HOSTILE,
        says=HOSTILE,
    )
    return Result(
        name="made/up",
        document=HOSTILE,
        parameters={"seed": 1, HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}},
        seconds=1.0,
        rows=[row, StoredRow("plain", "ticks", 0.1)],
        notes=[f"{HOSTILE}: {HOSTILE}", HOSTILE, "Standard deviations between repetitions: none."],
        description=HOSTILE,
        meaning=HOSTILE,
        command=HOSTILE,
        figures=[figure],
    )
