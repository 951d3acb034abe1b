"""``antiphon torture --spark``: a campaign as a job of Spark, which goes on where it was cut off."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.cli import output
from antiphon.cli.jobs import run_with_progress

if TYPE_CHECKING:
    from antiphon.pipeline.campaigns import CampaignJob
    from antiphon.simulator.campaign import Tally

PLACE = "torture-campaign"
"""The directory for what was found so far, in the one that ``--out`` names."""


def tally_by_spark(
    first_seed: int, count: int, order: str | None, fabric: str, out: Path, master: str | None, cores: int | None
) -> tuple[Tally, int]:
    """Run a campaign on Spark; what came of it, and how many of its seeds were run before."""
    from antiphon.pipeline.attempts import directory_held
    from antiphon.pipeline.campaigns import campaign_job
    from antiphon.pipeline.jobs import run_job
    from antiphon.pipeline.session import SessionOptions

    place = out / PLACE
    job = campaign_job(first_seed, count, order, fabric, place)
    before = job.tally().seeds
    options = SessionOptions(master=master, cores=cores, brief=True)
    with directory_held(place):
        run_with_progress(job, "torture", partial(run_job, job, options), lambda _: None)
    complain_of_failures(job)
    return job.tally(), before


def complain_of_failures(job: CampaignJob) -> None:
    """A portion that could not be run is no finding, but a campaign without it is no campaign."""
    for number, reason in sorted(job.failures.items()):
        output.complain(f"seeds from {job.units[number].first_seed} on could not be run: {reason}")
    if job.failures:
        raise typer.Exit(1)
