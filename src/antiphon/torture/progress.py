"""The progress of one campaign: its first seed, how far it is, and how it ended."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.torture.results import CampaignJournal, Failed, seeds_run
from antiphon.torture.schedules.operations import FIRST_FRESH
from antiphon.torture.tally import Outcome, Tally

LEAST_FRESH, MOST_FRESH = FIRST_FRESH, 10**15
"""Fresh seeds are drawn from this range: far above seeds that people choose, and large enough that no seed is drawn
twice.
"""


@dataclass
class CampaignProgress:
    """How far a campaign is, and how it ended."""

    tally: Tally
    how: str
    before: int = 0
    """The number of seeds that an earlier command ran."""
    complaints: list[str] = field(default_factory=list)


def fresh_seed(results: Path, seeds: int) -> int:
    """Draw a first seed, far above seeds that people choose, such that no campaign in the results file ran any of these
    seeds.
    """
    known = seeds_run(results)
    while True:
        first = LEAST_FRESH + secrets.randbelow(MOST_FRESH - LEAST_FRESH)
        if not any(first < other.stop and other.start < first + seeds for other in known):
            return first


def note_progress(journal: CampaignJournal, tally: Tally) -> None:
    """Append the progress of a campaign to its journal."""
    fabrics = {name: (count.seeds, count.failed) for name, count in tally.fabrics.items()}
    journal.progress(tally.seeds, len(tally.failing), fabrics)


def add_uncounted(tally: Tally, failures: list[Failed]) -> None:
    """Add failing schedules of unfinished portions to the tally. Other schedules of such a portion are not counted."""
    known = {outcome.seed for outcome in tally.failing}
    for one in failures:
        if one.seed not in known:
            tally.failing.append(Outcome(seed=one.seed, fabric=one.fabric, violations=one.violations, about=one.about))
