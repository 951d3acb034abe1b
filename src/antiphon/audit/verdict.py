"""The judge of any run: its trace against its promises.

It judges runs of every fabric, simulated and live: for ``antiphon simulate`` and ``antiphon torture`` while the rows
are in memory, and for ``antiphon audit`` from files. Spark judges large traces with independent code
(:mod:`antiphon.audit.columns.verdict`), which the tests compare with this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.findings import Excuses, Findings, Loss
from antiphon.audit.incarnations import (
    incarnations_in,
    incarnations_of,
    is_first_delivery,
    separate_incarnations,
    without_unshown,
)
from antiphon.audit.majorities import publications_apart
from antiphon.audit.oracle import evidence, judge, losses_in
from antiphon.audit.out_of_reach import publications_out_of_reach
from antiphon.audit.spaces import judge_spaces
from antiphon.audit.total_order import judge_total_order
from antiphon.kernel.message import ORDER_NAMES, UNSPECIFIED
from antiphon.trace.contract import (
    COMPLETENESS,
    CUT,
    FINISHED,
    HOLES,
    REQUESTS,
    STUCK,
    TOLD_ALWAYS,
    TOLD_FAILED,
    TOLD_UNKEPT,
    TOTAL_ORDER,
    Contract,
)
from antiphon.trace.schema import ORDER

SESSION_ORDERS = ("fifo", "causal")
"""The orders of publications that keep their order in every session, and their promises."""

STUCK_TEXT = "a node has unfinished work that cannot complete"

Delivery = Loss
"""An incarnation, a topic, a source and the number there."""


@dataclass
class Verdict:
    """The number of violations of each promise, with an example of each, and how much was judged."""

    checks: tuple[str, ...]
    """The promises that apply."""
    publications: int = 0
    deliveries: int = 0
    losses: int = 0
    """The losses that nodes reported."""
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def broken(self) -> list[str]:
        """The promises that were broken."""
        return [name for name in self.checks if self.counts.get(name, 0)]


def ending_of(table: pa.Table) -> str | None:
    """How the run ended according to its rows: ``finished``, or cut off by a limit; None if they do not record it."""
    ends = table.filter(pc.equal(table["event"].cast(pa.string()), "end"))
    if ends.num_rows == 0:
        return None
    return FINISHED if ends["value"][0].as_py() == 0 else CUT


def stuck_in(table: pa.Table) -> int:
    """The work that nodes had begun, or were asked for, and had not finished at the end."""
    rows = table.filter(pc.equal(table["event"].cast(pa.string()), "stuck"))
    return int(pc.sum(rows["value"]).as_py() or 0)


def judge_trace(table: pa.Table, contract: Contract, stopped: str, stuck: int = 0) -> Verdict:
    """Judge everything that a trace alone allows; ``stopped`` tells whether the run came to its end."""
    checks = contract.checks(stopped)
    rows = without_unshown(evidence(table))
    placed = is_placed(rows, contract)
    nodes = rows["node"].to_numpy().astype(np.int64)
    if contract.returns:
        rows = separate_incarnations(rows)
    incarnations = incarnations_in(rows, contract.remembers)
    of_rows = incarnations_of(rows, incarnations)
    losses = losses_in(rows, of_rows)
    holes_in = UNSPECIFIED if contract.holes_in is None else ORDER_NAMES.index(contract.holes_in)
    findings = judge(
        rows,
        contract.nodes,
        contract.everybody,
        COMPLETENESS in checks,
        ORDER_NAMES.index(contract.default),
        contract.leavers,
        incarnations,
        Excuses(incarnations.mortal, losses, contract.told, holes_in, contract.loose_sessions),
        stopped != FINISHED,
        contract.all_asked,
    )
    judge_spaces(rows, of_rows, contract.spaces, findings)
    verdict = Verdict(checks, findings.publications, findings.deliveries, len(losses))
    if contract.loose_sessions:
        among = judge_sessions(ordered_rows(rows), contract)
        for kind in SESSION_ORDERS:
            findings.counts[kind], findings.examples[kind] = among.counts[kind], among.examples.get(kind, "")
    verdict.counts = {**findings.counts, STUCK: stuck}
    verdict.examples = {**findings.examples, STUCK: STUCK_TEXT}
    if TOTAL_ORDER in checks:
        circles, circle = judge_total_order(rows.filter(placed), apart_from(rows, contract), of_rows[placed])
        if contract.returns and circles == 0:
            # A restarted node continues the order of total publications that it had begun.
            first = is_first_delivery(rows, nodes)
            sources = pc.unique(rows["source"]).to_pylist()
            circles, circle = judge_total_order(rows.filter(first), sources, nodes[first])
        verdict.counts[TOTAL_ORDER], verdict.examples[TOTAL_ORDER] = circles, circle or ""
    if HOLES in checks:
        # Reports of nodes that fail or join count as right.
        said = [loss for loss in losses if incarnations.node(loss[0]) not in incarnations.changing]
        verdict.counts[HOLES] = judge_words(
            verdict, contract, said, deliveries_in(rows, incarnations.changing), incarnations.mortal
        )
    return verdict


def add_requests(verdict: Verdict, complaints: list[str]) -> None:
    """Add the complaints about requests of the application."""
    verdict.counts[REQUESTS] = len(complaints)
    verdict.examples[REQUESTS] = "".join(complaints[:1])


def apart_from(rows: pa.Table, contract: Contract) -> Collection[int]:
    """The sources of which only total publications are in one order with others."""
    return pc.unique(rows["source"]).to_pylist() if contract.weaker_pass else contract.apart


def judge_sessions(rows: pa.Table, contract: Contract) -> Findings:
    """Judge the order of some publications alone; completeness is not judged."""
    return judge(
        rows,
        contract.nodes,
        contract.everybody,
        complete=False,
        default=ORDER_NAMES.index(contract.default),
        incarnations=incarnations_in(rows, contract.remembers),
        all_asked=contract.all_asked,
    )


def ordered_rows(rows: pa.Table) -> pa.Table:
    """The rows without publications in total order and without order: others may overtake both in a loose session."""
    columns = (rows[name].to_pylist() for name in ("topic", "source", "sequence"))
    names = list(zip(*columns, strict=True))
    orders = rows[ORDER].to_pylist()
    overtaken = {name for name, order in zip(names, orders, strict=True) if order not in (None, *SESSION_ORDERS)}
    is_about = pc.is_in(rows["event"], pa.array(["publish", "deliver"])).to_pylist()
    return rows.filter(
        pa.array([not (is_it and name in overtaken) for is_it, name in zip(is_about, names, strict=True)])
    )


def is_placed(rows: pa.Table, contract: Contract) -> npt.NDArray[np.bool_]:
    """For each row, whether it must be in one order with others.

    Where majorities secure weaker publications, one had the publication in time. Elsewhere no total publication about
    its keys was out of reach when it began.
    """
    placed = np.ones(len(rows), np.bool_)
    gone: set[tuple[int, int, int]] = set()
    if TOTAL_ORDER in contract.always:
        if contract.secured:
            gone = publications_apart(rows)
        elif contract.remembers and not contract.all_asked:
            gone = publications_out_of_reach(rows)
    if gone:
        columns = (rows[name].to_pylist() for name in ("event", "topic", "source", "sequence"))
        for place, (event, *name) in enumerate(zip(*columns, strict=True)):
            placed[place] = event != "deliver" or tuple(name) not in gone
    return placed


def judge_words(
    verdict: Verdict, contract: Contract, losses: list[Loss], delivered: set[Delivery], mortal: Collection[int]
) -> int:
    """The number of wrong loss reports and of unreported holes."""
    false = wrong_words(losses, delivered)
    excused = contract.told == TOLD_ALWAYS or contract.holes_in is not None or contract.counts_all
    may_fail = contract.told in (TOLD_FAILED, TOLD_UNKEPT)
    accused = [] if excused else [loss for loss in losses if not may_fail or loss[2] not in mortal]
    unspoken = unspoken_holes(losses, delivered) if contract.counts_all else 0
    verdict.examples[HOLES] = text_of_holes(false, len(accused), unspoken)
    return false + len(accused) + unspoken


def text_of_holes(false: int, accused: int, unspoken: int) -> str:
    """The violations in loss reports, in words; empty without violations."""
    found = {
        f"{false} were reported as lost twice, or were delivered": false,
        f"{accused} were reported as lost though their publishers are up": accused,
        f"{unspoken} were passed over without a report": unspoken,
    }
    return ", and ".join(text for text, count in found.items() if count)


def wrong_words(losses: Collection[Loss], delivered: set[Delivery]) -> int:
    """The number of losses that were reported twice, or were delivered at the same node."""
    return len(losses) - len(set(losses) - delivered)


def unspoken_holes(losses: Collection[Loss], delivered: set[Delivery]) -> int:
    """Count publications before the last of a source at a node that were neither delivered nor reported as lost."""
    had = delivered | set(losses)
    last: dict[tuple[int, int, int], int] = {}
    for node, topic, source, sequence in had:
        last[node, topic, source] = max(sequence, last.get((node, topic, source), 0))
    return sum(last.values()) - len(had)


def deliveries_in(rows: pa.Table, changing: Collection[int]) -> set[Delivery]:
    """The deliveries of nodes that are up all the time, which have one incarnation."""
    deliveries = rows.filter(pc.equal(rows["event"], "deliver"))
    columns = (deliveries[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
    return {(node, topic or 0, *name) for node, topic, *name in zip(*columns, strict=True) if node not in changing}
