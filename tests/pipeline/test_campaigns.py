"""Campaigns of torture on Spark: the same findings as in one process, and nothing twice."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from antiphon.cli import main as command
from antiphon.pipeline import campaigns, jobs
from antiphon.pipeline.campaigns import CampaignJob, Portion, PortionRecord, campaign_job, read_portion, run_portion
from antiphon.pipeline.jobs import run_here, run_on_spark
from antiphon.torture import campaign
from antiphon.torture.campaign import run_campaign
from antiphon.torture.schedules import ALL
from antiphon.torture.tally import Outcome, Tally


def ignore(done: int, running: int) -> None:
    """A watcher that does not look."""


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of four seeds."""
    monkeypatch.setattr(campaign, "SEEDS_PER_TASK", 4)


def counted(portion: Portion, out: Path) -> PortionRecord:
    """What a portion has in which each schedule takes a tick, and the seeds that can be divided by seven fail."""
    seeds = range(portion.first_seed, portion.first_seed + portion.count)
    failing = [Outcome(seed=seed, violations={"fifo": 1}) for seed in seeds if seed % 7 == 0]
    tally = Tally(seeds=portion.count, ticks=portion.count, failing=failing)
    return PortionRecord(portion=portion, tally=tally)


@pytest.mark.usefixtures("small_portions")
def test_spark_finds_what_one_process_finds(spark: SparkSession, tmp_path: Path) -> None:
    job = campaign_job(1, 10, None, ALL, tmp_path)
    assert [(portion.first_seed, portion.count) for portion in job.units] == [(1, 4), (5, 4), (9, 2)]
    run_on_spark(spark, job, ignore)
    assert job.failures == {}
    assert job.tally() == run_campaign(1, 10, fabric=ALL)


@pytest.mark.usefixtures("small_portions")
def test_what_was_cut_off_goes_on(tmp_path: Path) -> None:
    first = campaign_job(1, 6, "fifo", "cube", tmp_path)
    run_portion(first.units[0], tmp_path)
    ran: list[int] = []

    def run(portion: Portion, out: Path) -> PortionRecord:
        ran.append(portion.first_seed)
        return run_portion(portion, out)

    again = replace(campaign_job(1, 6, "fifo", "cube", tmp_path), run=run)
    assert again.tally().seeds == 4
    run_here(again, ignore)
    assert ran == [5]
    assert again.tally() == run_campaign(1, 6, "fifo", fabric="cube")


def test_failures_are_in_the_order_of_seeds(tmp_path: Path) -> None:
    job = replace(campaign_job(1, 120, None, "tree", tmp_path), run=counted)
    run_here(job, ignore)
    assert [outcome.seed for outcome in job.tally().failing] == list(range(7, 120, 7))
    assert job.tally().seeds == 120


def test_what_another_product_found_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (portion,) = campaign_job(1, 2, None, "cube", tmp_path).units
    run_portion(portion, tmp_path)
    assert read_portion(portion, tmp_path) is not None
    monkeypatch.setattr(campaigns, "product_digest", lambda: "another")
    job: CampaignJob = campaign_job(1, 2, None, "cube", tmp_path)
    assert job.left() == job.units
    assert read_portion(msgspec.structs.replace(portion, order="none"), tmp_path) is None


def test_half_a_record_is_none(tmp_path: Path) -> None:
    (portion,) = campaign_job(1, 1, None, "cube", tmp_path).units
    run_portion(portion, tmp_path)
    place = portion.place(tmp_path)
    place.write_bytes(place.read_bytes()[:-20])
    assert read_portion(portion, tmp_path) is None


def called(arguments: list[object], monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]) -> Any:
    """What the command prints for programs."""
    monkeypatch.setattr(sys, "argv", ["antiphon", "torture", "--json", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code in (0, None)
    return json.loads(capture.readouterr().out)


@pytest.mark.usefixtures("spark")
def test_the_command_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds = ["--fabric", "cube", "--seed", 3, "--seeds", 6]
    shared = [*seeds, "--spark", "--out", tmp_path]
    alone, first, again = (called(each, monkeypatch, capfdbinary) for each in ([*seeds, "--jobs", 1], shared, shared))
    assert (first["seeds_before"], again["seeds_before"]) == (0, 6)
    for found in (alone, first, again):
        for key in ("seconds", "seeds_per_hour", "seeds_before", "results"):
            found.pop(key)
    assert alone == first == again


@pytest.mark.usefixtures("spark", "small_portions")
def test_a_fresh_campaign_that_was_interrupted_goes_on_with_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ["torture", "--json", "--fabric", "epto", "--seeds", "6", "--fresh", "--spark", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["antiphon", *arguments])

    def interrupted(job: CampaignJob, options: object, watch: object) -> None:
        run_portion(job.units[0], job.out)
        raise KeyboardInterrupt

    def ended() -> tuple[object, Any]:
        with pytest.raises(SystemExit) as stopped:
            command.main()
        return stopped.value.code, json.loads(capfdbinary.readouterr().out)

    with monkeypatch.context() as changed:
        changed.setattr(jobs, "run_job", interrupted)
        code, first = ended()
    assert (code, first["ended"], first["seeds"], first["fresh"]) == (130, "interrupted", 4, True)
    code, again = ended()
    assert (code, again["ended"], again["seeds"], again["seeds_before"]) == (0, "finished", 6, 4)
    assert again["first_seed"] == first["first_seed"]
    code, new = ended()
    assert (code, new["seeds_before"]) == (0, 0)
    assert new["first_seed"] != again["first_seed"]
