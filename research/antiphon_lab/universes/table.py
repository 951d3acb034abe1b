"""Table 3.1 of the thesis of M. Matos: small universes taken from the traces of LiveJournal and Wikipedia.

The traces are not published. Their replacement is drawn by the law of :mod:`antiphon_lab.universes.law`, with as many
processes and topics as the traces had, or a share of both. About half of the topics have fewer than 30 subscribers, as
in the trace of LiveJournal, of which 13,652 topics out of 28,904 are left after pruning; that much is an input. The
resulting numbers of topics and processes for a number of seeds are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series, published_series
from antiphon_lab.universes.law import FEWEST_SUBSCRIBERS, Law, Population, law_named
from antiphon_lab.universes.method import CANDIDATES, Method
from antiphon_lab.universes.samples import UniverseSampler
from antiphon_lab.universes.universe import Universe, universe_of

DOCUMENT = "thesis of M. Matos, section 3.3.1"
DATA = document("universes")
SEEDS, TOPICS, PROCESSES = (DATA.tables[f"table-3.1/{name}"] for name in ("seeds", "topics", "processes"))
KINDS = {"livejournal": "L", "wikipedia": "W"}
LEFT_AFTER_PRUNING = 13_652 / 28_904
"""The share of topics of L0 that are in L1, where all are seeds. Nothing like it is known of Wikipedia."""

FEWEST_SEEDS = 10
"""A universe of fewer seeds is luck."""
DEFAULT_PROCESSES, FULL_PROCESSES = 40_000, 301_315
DEFAULT_CANDIDATES = 11
LEAST_PROCESSES = 3000

READINGS = {
    "enlarged": {"members": "enlarged", "prune_by": "universe"},
    "seeds": {"members": "seeds", "prune_by": "source"},
    "inside": {"members": "seeds", "prune_by": "universe"},
}
IN_WORDS = {
    "enlarged": "processes are the subscribers of the enlarged set",
    "seeds": "processes are the subscribers of the seed set, and topics are pruned by their subscribers in the source",
    "inside": "processes are the subscribers of the seed set, and topics are pruned by their subscribers in there",
}
IN_SHORT = {"enlarged": ", enlarged set", "seeds": "", "inside": ", pruned inside"}

STAND_IN = Note(
    "The traces of LiveJournal and Wikipedia are not published: everything here is measured on synthetic stand-ins. "
    "What agrees speaks for the method and for the stand-in together; it is no test of the traces."
)


@dataclass(frozen=True)
class TableCase:
    """A stand-in for a trace, of which universes are made."""

    kind: str
    nodes: int
    """The processes of the stand-in."""
    candidates: int

    def __str__(self) -> str:
        return f"stand-in for {self.kind}, {self.nodes} processes, {self.candidates} candidates"

    @property
    def share(self) -> float:
        """How large it is beside the trace."""
        return self.nodes / PROCESSES.columns[self.kind].values[0]

    def seeds(self, index: int) -> int | None:
        """How many seeds make the universe of this index; none for all topics."""
        wanted = SEEDS.columns[self.kind].values[index]
        return None if wanted == TOPICS.columns[self.kind].values[0] else round(wanted * self.share)

    def method(self, index: int, reading: str) -> Method | None:
        """How the universe of this index is made; none if it would have too few seeds."""
        seeds = self.seeds(index)
        if seeds is not None and seeds < FEWEST_SEEDS:
            return None
        enlarge = "own" if self.kind == "livejournal" else "random"
        return Method(seeds, enlarge, candidates=self.candidates, **READINGS[reading])  # type: ignore[arg-type]

    def indices(self) -> list[int]:
        """The universes that can be made."""
        return [index for index in range(1, len(SEEDS.rows)) if self.method(index, "seeds") is not None]


class Made(msgspec.Struct, frozen=True):
    """The median universe of one size, in one reading."""

    index: int
    reading: str
    topics: int
    processes: int
    smallest: int
    """The number of subscribers of its smallest topic, where they are counted for pruning."""


def source_law(kind: str, processes: int) -> Law:
    """The law of the stand-in for a trace, or for a share of it."""
    share = processes / PROCESSES.columns[kind].values[0]
    law = law_named(kind).scaled(processes, max(1, round(TOPICS.columns[kind].values[0] * share)))
    least = FEWEST_SUBSCRIBERS * LEFT_AFTER_PRUNING ** (1.0 / (law.popularity_exponent - 1.0))
    return replace(law, least_popularity=least)


def source(kind: str, processes: int, seed: int) -> Universe:
    """The stand-in for a trace, or for a share of it."""
    law = source_law(kind, processes)
    members, topics = Population(law, seed).subscriptions(0, law.topics)
    return universe_of(members, topics, law.processes, law.topics)


def measure(case: TableCase, seed: int) -> list[Made]:
    """Make all universes of the table in all readings."""
    whole = source(case.kind, case.nodes, seed)
    sampler = UniverseSampler(whole)
    found = []
    for index in case.indices():
        for reading in READINGS:
            method = case.method(index, reading)
            assert method is not None, "only these are listed"
            sample = sampler.median(replace(method, seed=seed))
            counts = whole.popularity if method.prune_by == "source" else sampler.universe(sample).popularity
            kept = counts[sample.topics] if method.prune_by == "source" else counts
            found.append(Made(index, reading, int(sample.topics.sum()), int(sample.processes.sum()), int(np.min(kept))))
    return found


def size_of(plan: Plan) -> int:
    """How many processes the stand-ins have; of fewer nothing is left after pruning."""
    return max(LEAST_PROCESSES, *plan.sizes)


def cases(plan: Plan) -> list[TableCase]:
    """Both traces."""
    candidates = CANDIDATES if plan.full else DEFAULT_CANDIDATES
    return [TableCase(kind, size_of(plan), candidates) for kind in KINDS]


Found = Results[TableCase, list[Made]]


def counted(case: TableCase, results: Found, index: int, reading: str, what: str) -> Sample:
    """Topics or processes of a universe, as many as a whole trace would have."""

    def pick(made: list[Made]) -> float:
        one = next(each for each in made if (each.index, each.reading) == (index, reading))
        return (one.topics if what == "topics" else one.processes) / case.share

    return results.sample(case, pick)


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """Every universe beside the table, in the reading that fits and in the others."""
    yield STAND_IN
    for case in cases(plan):
        smallest = results.sample(case, lambda made: min(one.smallest for one in made if one.reading == "enlarged"))
        label = f"subscribers of the smallest topic, stand-in for {case.kind} of {case.nodes} processes"
        yield compared(label, smallest, DATA.numbers["table-3.1/fewest"])
        for index in case.indices():
            yield from compare_universe(case, results, index)
        yield figure(case, results)
    yield Note(
        "Counts are those of the stand-in divided by its share of the trace. The text can be read in several ways. "
        f"Rows without a remark: {IN_WORDS['seeds']}; that is near the table. Enlarged set, word by word: "
        f"{IN_WORDS['enlarged']}; then small universes get a large part of all processes, many times what the table "
        f"has. Pruned inside: {IN_WORDS['inside']}. `antiphon universe make` does all of them."
    )


def compare_universe(case: TableCase, results: Found, index: int) -> Iterator[Finding]:
    """One column of the table."""
    name = f"{KINDS[case.kind]}{index}"
    for what, table in (("topics", TOPICS), ("processes", PROCESSES)):
        number = table.number(case.kind, index)
        fitting = counted(case, results, index, "seeds", what)
        literal = counted(case, results, index, "enlarged", what)
        # The traces are lost: what stand-ins give is shown, and not held to the table.
        yield Row(f"{what} of {name} (published {number.value:g})", number.unit, fitting)
        if what == "processes":
            yield Row(f"{what} of {name}{IN_SHORT['enlarged']}", number.unit, literal)
        inside = counted(case, results, index, "inside", what)
        yield Row(f"{what} of {name}{IN_SHORT['inside']}", number.unit, inside)


def figure(case: TableCase, results: Found) -> Figure:
    """Topics and processes by seeds."""
    series: list[Series] = []
    for variant, (what, table) in enumerate((("topics", TOPICS), ("processes", PROCESSES))):
        places = [(index, SEEDS.columns[case.kind].values[index]) for index in case.indices()]
        points = tuple(counted(case, results, index, "seeds", what).point(x) for index, x in places)
        series.append(Series(what, case.kind, points, variant=variant))
        known = [Point(x, table.number(case.kind, index).value) for index, x in places]
        series += published_series(what, case.kind, known, variant)
    return Figure(
        case.kind,
        f"Universes by seeds, stand-in for {case.kind}",
        Axis("seeds", "topics", scale="log10"),
        Axis("topics or processes", scale="log10"),
        tuple(series),
        caption=f"Here {IN_WORDS['seeds']}.",
    )


TABLE_3_1: Experiment[TableCase, list[Made]] = Experiment(
    name="stan/table-3.1",
    document=f"{DOCUMENT}, Table 3.1",
    description="universes of subscriptions: how many topics and processes the method makes of a number of seeds",
    default=Plan((DEFAULT_PROCESSES,), repetitions=3, large_repetitions=3),
    full=Plan((FULL_PROCESSES,), repetitions=3, large_repetitions=3, full=True),
    parameters={
        "candidates": {"default": DEFAULT_CANDIDATES, "full": CANDIDATES},
        "left_after_pruning": LEFT_AFTER_PRUNING,
        "readings": IN_WORDS,
        "source": "synthetic stand-ins; the traces are not published",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Small universes are taken from large ones by seeds, their subscribers, and what these add. The traces are "
    "not published, so stand-ins are measured. Read word by word the method makes universes with nearly all processes; "
    "the table agrees with the reading in which the subscribers of the first seeds are the processes.",
)
