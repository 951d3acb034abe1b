"""Every planted bug of streams is found by random schedules."""

from __future__ import annotations

import pytest

from tests.streams.stream_mutants import MUTANTS
from tests.streams.test_replica import Schedule

SEEDS = 1200


@pytest.mark.parametrize("name", MUTANTS)
def test_schedules_find_a_planted_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(SEEDS):
        schedule = Schedule(seed)
        try:
            found = schedule.run(30).judge.violations
        except Exception as error:
            found = [repr(error)]
        if found:
            return
    raise AssertionError(f"{SEEDS} schedules found nothing wrong")
