"""Results of campaigns: on disk from the moment that they are found."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from antiphon.kernel.errors import PeerError
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture import campaign
from antiphon.torture.campaign import run_campaign, run_schedule, run_seeds
from antiphon.torture.results import (
    FINISHED,
    INTERRUPTED,
    RESULTS,
    Began,
    CampaignJournal,
    Ended,
    Failed,
    Progress,
    SeedPlan,
    append,
    records_in,
    seeds_run,
    unfinished,
)
from antiphon.torture.schedules import SCHEDULES
from antiphon.torture.tally import Outcome

PLAN = SeedPlan(first_seed=1, seeds=8, fabric="cube", product="this")


def fails_by_seed(scenario: Scenario) -> Outcome:
    """Every third seed fails."""
    return Outcome(seed=scenario.seed, fabric="cube", violations={"fifo": 1} if scenario.seed % 3 == 0 else {})


def test_a_failing_seed_is_on_disk_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = CampaignJournal(tmp_path, PLAN)
    seen: list[list[int]] = []

    def run(scenario: Scenario) -> Outcome:
        seen.append([one.seed for one in journal.failures()])
        return fails_by_seed(scenario)

    monkeypatch.setattr(campaign, "run_schedule", run)
    tally = run_campaign(1, 8, fabric="cube", journal=journal)
    assert seen == [[], [], [], [3], [3], [3], [3, 6], [3, 6]]
    assert [outcome.seed for outcome in tally.failing] == [3, 6]
    assert journal.failures()[0].violations == {"fifo": 1}


def test_what_cannot_be_drawn_or_run_is_a_finding_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = SCHEDULES["tree"]

    def stumbling(seed: int, order: str | None) -> Scenario:
        if seed == 2:
            raise TypeError("a list is no number")
        return draw(seed, order)

    monkeypatch.setitem(SCHEDULES, "tree", stumbling)
    tally = run_seeds(range(1, 4), None, "tree", tmp_path / RESULTS, PLAN)
    assert (tally.seeds, tally.fabrics["tree"].seeds, tally.fabrics["tree"].failed) == (3, 3, 1)
    (failed,) = tally.failing
    assert (failed.seed, failed.violations) == (2, {"error": 1})
    assert failed.about == "the schedule cannot be run: TypeError: a list is no number"
    assert [record.seed for record in records_in(tmp_path / RESULTS) if isinstance(record, Failed)] == [2]


def test_what_is_not_judged_has_not_been_survived() -> None:
    scenario = SCHEDULES["cube"](1, None)
    unseen = msgspec.structs.replace(scenario, trace=msgspec.structs.replace(scenario.trace, level="counts"))
    outcome = run_schedule(unseen)
    assert outcome.violations == {"unjudged": 1}
    assert "not judged: the level of the trace is counts" in outcome.about


def test_lines_are_whole_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "new" / RESULTS
    writers = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            for seed in range(100):
                append(path, Failed(at="", plan=PLAN, seed=seed, fabric="cube", violations={}, about="x" * 5000))
            os._exit(number)
        writers.append(child)
    for child in writers:
        os.waitpid(child, 0)
    assert len(list(records_in(path))) == 300
    with path.open("ab") as file:
        file.write(b'{"record":"failed","at')
    assert len(list(records_in(path))) == 300


def test_totals_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = CampaignJournal(tmp_path, PLAN)
    for seeds in (2, 4, 6):
        journal.progress(seeds, 1, {"cube": (seeds, 1)})
    monkeypatch.setattr("antiphon.torture.results.SECONDS_BETWEEN_TOTALS", 0.0)
    journal = CampaignJournal(tmp_path, PLAN)
    for seeds in (2, 4):
        journal.progress(seeds, 0, {"cube": (seeds, 0)})
    written = [one.seeds for one in records_in(journal.path) if isinstance(one, Progress)]
    assert written == [2, 2, 4]


def test_a_fresh_campaign_that_was_cut_off_is_found_again(tmp_path: Path) -> None:
    fresh = SeedPlan(first_seed=10**12, seeds=8, fabric="cube", fresh=True, product="this")
    like = msgspec.structs.replace(fresh, first_seed=1)
    journal = CampaignJournal(tmp_path, fresh)
    assert unfinished(journal.path, like) == fresh
    journal.end(INTERRUPTED, {})
    assert unfinished(journal.path, like) == fresh
    for other in ({"product": "another"}, {"seeds": 9}, {"fabric": "tree"}, {"order": "fifo"}):
        assert unfinished(journal.path, msgspec.structs.replace(like, **other)) is None
    CampaignJournal(tmp_path, fresh).end(FINISHED, {})
    assert unfinished(journal.path, like) is None
    assert seeds_run(journal.path) == [range(10**12, 10**12 + 8)] * 2
    assert [type(one) for one in records_in(journal.path)] == [Began, Ended, Began, Ended]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PeerError, match=r"^cannot write .*; choose another directory with --out$"):
        CampaignJournal(tmp_path / "file", PLAN)
