"""Torture campaigns as jobs: portions of seeds are units, and their results are kept until all are done.

One command runs a night's worth of schedules: Spark distributes the portions, and the same command resumes after an
interruption. The record of a portion names the version of the product, so that a campaign starts over after a change.
Seeds are independent and tallies are added up in the order of the portions: the result equals that of one process, to
the last digit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec

import antiphon
from antiphon.pipeline.atomic_output import attempt_in
from antiphon.pipeline.jobs import Job
from antiphon.torture.campaign import run_seeds, tasks
from antiphon.torture.results import CampaignJournal, SeedPlan
from antiphon.torture.tally import Tally

MICROSECONDS_PER_SEED = 20_000
"""An approximate value. Portions take equally long; it only has to be large enough that no two share a task."""

PACKAGES = ("kernel", "orders", "fabrics", "simulator", "trace", "audit", "torture")
"""The packages that determine the outcome of a schedule."""


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive seeds."""

    number: int
    first_seed: int
    count: int
    fabric: str
    order: str | None
    product: str
    """The version of the product that runs them."""

    @property
    def work(self) -> int:
        """An estimate, to begin with the largest."""
        return self.count * MICROSECONDS_PER_SEED

    def place(self, out: Path) -> Path:
        """The file of its record."""
        last = self.first_seed + self.count - 1
        return out / f"{self.fabric}-{self.order or 'drawn'}" / f"seeds-{self.first_seed}-{last}.json"


class PortionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a portion."""

    portion: Portion
    tally: Tally


@dataclass(kw_only=True)
class CampaignJob(Job[Portion, PortionRecord]):
    """A campaign, and its finished portions."""

    def tally(self) -> Tally:
        """The result of the finished portions."""
        total = Tally()
        for portion in self.units:
            if portion.number in self.records:
                total.add(self.records[portion.number].tally)
        return total


@cache
def product_digest() -> str:
    """A digest that changes with the protocols, the simulator or the judge."""
    root = Path(antiphon.__file__).parent
    digest = hashlib.sha256(antiphon.__version__.encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def campaign_job(
    first_seed: int, count: int, order: str | None, fabric: str, out: Path, journal: CampaignJournal | None = None
) -> CampaignJob:
    """A campaign over some seeds, with the portions that were finished before in the same directory.

    Each failing schedule is appended to the ``journal`` at once, by the process that runs it.
    """
    portions = [
        Portion(
            number=number,
            first_seed=seeds.start,
            count=len(seeds),
            fabric=fabric,
            order=order,
            product=product_digest(),
        )
        for number, seeds in enumerate(tasks(first_seed, count))
    ]
    run = run_portion
    if journal is not None:
        run = partial(run_portion, results=journal.path.absolute(), plan=journal.plan)
    job = CampaignJob(title="torture", called="portions", units=portions, out=out, read=read_portion, run=run)
    job.poll()
    return job


def read_portion(portion: Portion, out: Path) -> PortionRecord | None:
    """The record of a finished portion; None if it must be run."""
    try:
        record = msgspec.json.decode(portion.place(out).read_bytes(), type=PortionRecord)
    except (OSError, msgspec.DecodeError):
        return None
    same = msgspec.structs.replace(record.portion, number=portion.number) == portion
    return record if same else None


def run_portion(
    portion: Portion, out: Path, results: Path | None = None, plan: SeedPlan | None = None
) -> PortionRecord:
    """Run a portion and put its record into place; do nothing if it is finished."""
    record = read_portion(portion, out)
    if record is not None:
        return record
    with attempt_in(out, portion.number) as attempt:
        seeds = range(portion.first_seed, portion.first_seed + portion.count)
        tally = run_seeds(seeds, portion.order, portion.fabric, results, plan)
        record = PortionRecord(portion=portion, tally=tally)
        written = attempt / "record.json"
        written.write_bytes(msgspec.json.encode(record))
        place = portion.place(out)
        place.parent.mkdir(parents=True, exist_ok=True)
        written.replace(place)
    return record
