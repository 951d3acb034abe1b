"""``antiphon torture --spark``: a campaign as a job of Spark, which resumes after an interruption."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.cli.jobs import run_with_progress

if TYPE_CHECKING:
    from antiphon.cli.output import Steps
    from antiphon.pipeline.campaigns import CampaignJob
    from antiphon.torture.progress import CampaignProgress
    from antiphon.torture.results import CampaignJournal

PLACE = "torture-campaign"
"""The directory of finished portions, below the one that ``--out`` names."""


def tally_by_spark(journal: CampaignJournal, out: Path, master: str | None, cores: int | None) -> CampaignProgress:
    """Run a campaign on Spark; returns its progress, including the seeds that were run before."""
    from antiphon.pipeline.atomic_output import directory_held
    from antiphon.pipeline.campaigns import campaign_job
    from antiphon.pipeline.jobs import run_job
    from antiphon.pipeline.session import SessionOptions
    from antiphon.torture.progress import CampaignProgress, note_progress
    from antiphon.torture.results import FINISHED, INTERRUPTED, STOPPED

    place = out / PLACE
    plan = journal.plan
    job = campaign_job(plan.first_seed, plan.seeds, plan.order, plan.fabric, place, journal)
    before = job.tally()
    course = CampaignProgress(before, STOPPED, before.seeds)
    options = SessionOptions(master=master, cores=cores, brief=True)

    def write_down(_: Steps) -> None:
        if journal.is_due():
            note_progress(journal, job.tally())

    with directory_held(place):
        try:
            run_with_progress(job, "torture", partial(run_job, job, options), write_down)
            course.how = FINISHED
        except (typer.Exit, KeyboardInterrupt):
            course.how = INTERRUPTED
        except Exception as error:  # finished portions are kept, and count
            course.complaints.append(f"the campaign could not continue: {error}")
        job.poll()
    course.tally = job.tally()
    course.complaints += failures_of(job)
    if job.failures:
        course.how = STOPPED
    return course


def failures_of(job: CampaignJob) -> list[str]:
    """The portions that could not be run: they are not findings, but the campaign is incomplete without them."""
    return [
        f"seeds from {job.units[number].first_seed} on could not be run: {reason}"
        for number, reason in sorted(job.failures.items())
    ]
