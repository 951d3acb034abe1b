"""Rows of chapter 4: each quantity with fitted start times, with the published ones, and with other laws.

The start times cannot be recovered, and the documents leave open whether delays are drawn per packet or per link.
Calibrated ones were fitted to Table 4.1, so its rows are no evidence; all other rows are predictions of that choice.
Where a prediction fails, the other laws that were tried decide. If one of them gives both Table 4.1 and the number, the
number is fitted by that law. If none does, the number and Table 4.1 contradict each other, and the number is refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    FIXED,
    LAWS,
    MEAN_TICKS,
    POISSON_MEAN_TICKS,
    WINDOW_TICKS,
    AggregationCase,
    AggregationMeasures,
)
from antiphon_lab.reproduction.documents import Number, document
from antiphon_lab.reproduction.experiment import Results, Row, Sample
from antiphon_lab.reproduction.verdicts import Fitted, Refutation, agrees

TRIED = (
    FIXED,
    "window 430, deviation 60 per link",
    "window 550, deviation 33 per packet",
    "window 550, deviation 60 per link",
    "window 1000, deviation 75 per link",
)
"""The laws that stand beside the calibrated one; others of the model are farther from Table 4.1 at 1024 nodes."""

LAW_NODES = (16, 256, 1024)
"""Where other laws are tried: the sizes of which the documents give numbers beside Table 4.1."""

LARGEST_TRIED = ("window 550, deviation 60 per link", "window 1000, deviation 75 per link")
"""The laws that default plans try at the largest size, where a run takes seconds.

Full plans try all. The fixed delays then do not give Table 4.1, and the other two laws give no number that these two or
the calibrated law do not give.
"""

SLACK = 0.02
"""How far beyond the values of the fitting laws a refuted value may lie, relative: repetitions scatter."""


def laws_tried(nodes: int, full: bool) -> tuple[str, ...]:
    """The laws beside the calibrated one that a plan tries at a size."""
    if nodes not in LAW_NODES:
        return ()
    return TRIED if full or nodes < max(LAW_NODES) else LARGEST_TRIED


def law_cases(
    nodes: int, protocols: Sequence[str], payload_bytes: int = 50, full: bool = False
) -> list[AggregationCase]:
    """The cases of the laws that are tried, and those that Table 4.1 is checked with, but for the calibrated ones."""
    laws = laws_tried(nodes, full)
    checked = [AggregationCase(nodes, AGGREGATION, law) for law in laws]
    asked = [AggregationCase(nodes, protocol, law, payload_bytes) for law in laws for protocol in protocols]
    return list(dict.fromkeys(checked + asked))


class FittingLaws:
    """The laws, beside the calibrated one, that give Table 4.1 at one size."""

    def __init__(self, results: Results[AggregationCase, AggregationMeasures], nodes: int) -> None:
        self._results = results
        self.nodes = nodes
        self.tried = [law for law in laws_tried(nodes, full=True) if results.has(AggregationCase(nodes, starts=law))]
        self.calibrated_fits = nodes in LAW_NODES and self._fits(CALIBRATED)
        self.names = [law for law in self.tried if self._fits(law)] if self.calibrated_fits else []

    def _fits(self, law: str) -> bool:
        case = AggregationCase(self.nodes, AGGREGATION, law)
        saved = self._results.sample(case, lambda found: found.reduction_percent(self.nodes))
        several = self._results.sample(case, aggregated_percent)
        numbers = document("thesis").numbers
        return agrees(numbers[f"table-4.1/reduction-{self.nodes}"], saved.values) and agrees(
            numbers[f"table-4.1/aggregated-{self.nodes}"], several.values
        )

    def under(self, quantity: Callable[[str], Sample]) -> ByLaw:
        """A quantity by law."""
        return ByLaw(self, {law: quantity(law) for law in self.names})

    def of(self, protocol: str, quantity: Callable[[AggregationMeasures], float], payload_bytes: int = 50) -> ByLaw:
        """A quantity of single runs by law."""
        return self.under(
            lambda law: self._results.sample(AggregationCase(self.nodes, protocol, law, payload_bytes), quantity)
        )


@dataclass(frozen=True)
class ByLaw:
    """One quantity under each of the fitting laws."""

    laws: FittingLaws
    values: Mapping[str, Sample]

    def agreeing(self, number: Number) -> list[str]:
        """The laws that give the number too."""
        return [law for law, sample in self.values.items() if agrees(number, sample.values)]

    def contradiction(self, number: Number, calibrated: Sample) -> Refutation:
        """That no law which gives Table 4.1 gives the number."""
        means = [sample.mean for sample in (calibrated, *self.values.values())]
        low, high = min(means), max(means)
        spread = SLACK * max(abs(low), abs(high))
        return Refutation(
            f"{number.value:g} {number.unit} with {self.laws.nodes} nodes, beside Table 4.1",
            f"of {1 + len(self.laws.tried)} laws (windows of 430 to 1000 ticks, delays that deviate by 33 to 75) "
            f"{1 + len(self.values)} give the packets of Table 4.1, and these give {low:.4g} to {high:.4g}",
            self.laws.calibrated_fits and len(self.values) > 0,
            low - spread,
            high + spread,
        )

    def fitted(self, label: str, number: Number, agreeing: Sequence[str]) -> Row:
        """The row of the law that comes nearest to a number, out of those that give it."""
        nearest = min(agreeing, key=lambda law: abs(self.values[law].mean - number.value))
        basis = Fitted(
            f"the law of start times and delays ({LAWS[nearest]})",
            f"Table 4.1; {len(agreeing)} of the {len(self.values)} other laws that give Table 4.1 give this number too",
        )
        return Row(f"{label}, {nearest}", number.unit, self.values[nearest], number, None, basis)


def aggregated_percent(found: AggregationMeasures) -> float:
    """The share of packets with several messages."""
    return 100 * found.aggregated / found.packets


def side_by_side(
    label: str,
    number: Number | None,
    calibrated: Sample,
    literal: Sample,
    *,
    unit: str = "%",
    fitted: bool = False,
    why: Refutation | None = None,
    others: ByLaw | None = None,
) -> Iterator[Row]:
    """One quantity with both start times; ``unit`` is for rows without a published number.

    ``others`` has the same quantity by the laws that also give Table 4.1. They decide where the calibrated law fails.
    """
    unit = unit if number is None else number.unit
    basis = CHOSEN if fitted else None
    if number is not None and others is not None and others.values and not agrees(number, calibrated.values):
        agreeing = others.agreeing(number)
        if agreeing:
            yield others.fitted(label, number, agreeing)
            number = None
        else:
            why = others.contradiction(number, calibrated)
    yield Row(f"{label}, calibrated", unit, calibrated, number, why, basis)
    yield Row(f"{label}, literal", unit, literal)


LEAST_NODES = 128
"""From this size on the published start times are held to the published savings."""

CHOSEN = Fitted(f"the {LAWS[CALIBRATED]}", "Tables 4.2 and 4.3 and Figures 4.3 to 4.9")


def literal_starts(nodes: int, number: Number, calibrated: Sample) -> Refutation:
    """The published start times against the published savings.

    Poisson variables of mean 1000 have a deviation of 32 ticks, so that most nodes have started before the first packet
    has crossed a link: what overtakes is decided by delays alone, and about half of the savings is left.
    """
    spread = sqrt(POISSON_MEAN_TICKS)
    return Refutation(
        f"start times by a Poisson law of mean {POISSON_MEAN_TICKS}, and {number.value:g} % at {nodes} nodes",
        f"such start times differ by {spread:.0f} ticks, less than a hop takes, so that nearly all messages have no "
        f"dependencies; in a window of {WINDOW_TICKS} ticks the same model gives {calibrated.mean:.3g} %",
        2 * spread < MEAN_TICKS and agrees(number, calibrated.values),
        0.02 * number.value,
        0.8 * number.value,
    )


def table_rows(label: str, nodes: int, number: Number | None, calibrated: Sample, literal: Sample) -> Iterator[Row]:
    """One cell of Table 4.1, with the fitted start times and with the published ones."""
    rows = side_by_side(label, number, calibrated, literal, fitted=True)
    yield next(rows)
    if number is None or nodes < LEAST_NODES:
        # In small systems one or two packets decide.
        yield Row(f"{label}, literal", "%", literal)
        return
    yield Row(f"{label}, literal", "%", literal, number, literal_starts(nodes, number, calibrated))
