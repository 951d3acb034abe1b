"""The course of one campaign: where its seeds begin, how far it has come, and how it ended."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.torture.campaign import Outcome, Tally
from antiphon.torture.results import Failed, Journal, seeds_run

LEAST_FRESH, MOST_FRESH = 10**9, 10**15
"""Fresh seeds are drawn between these: far above those that people choose, and so many that none is drawn twice."""


@dataclass
class Course:
    """How far a campaign has come, and how it ended."""

    tally: Tally
    how: str
    before: int = 0
    """Seeds that an earlier command has run."""
    complaints: list[str] = field(default_factory=list)


def fresh_seed(results: Path, seeds: int) -> int:
    """A first seed far away from all that people choose, of seeds that are in no campaign of a file of results."""
    known = seeds_run(results)
    while True:
        first = LEAST_FRESH + secrets.randbelow(MOST_FRESH - LEAST_FRESH)
        if not any(first < other.stop and other.start < first + seeds for other in known):
            return first


def note_progress(journal: Journal, tally: Tally) -> None:
    """Write down how far it has come."""
    fabrics = {name: (count.seeds, count.failed) for name, count in tally.fabrics.items()}
    journal.progress(tally.seeds, len(tally.failing), fabrics)


def add_uncounted(tally: Tally, failures: list[Failed]) -> None:
    """Add schedules that failed in portions which were not finished; the rest of such a portion is not counted."""
    known = {outcome.seed for outcome in tally.failing}
    for one in failures:
        if one.seed not in known:
            tally.failing.append(Outcome(seed=one.seed, fabric=one.fabric, violations=one.violations, about=one.about))
