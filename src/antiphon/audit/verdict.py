"""The judge of any run: a trace on one side, what was promised on the other.

Runs of every fabric, simulated and live, are judged here, by ``antiphon simulate`` and ``antiphon torture`` while the
rows are in memory and by ``antiphon audit`` from files. Large traces are judged on Spark by code of its own
(:mod:`antiphon.audit.columns.verdict`), which the tests compare with this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.findings import Excuses, Loss
from antiphon.audit.incarnations import is_first_delivery, lanes_of, lives_in, separate_incarnations, without_unshown
from antiphon.audit.majorities import publications_apart
from antiphon.audit.oracle import evidence, judge, losses_in
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
    TOTAL_ORDER,
    Contract,
)

STUCK_TEXT = "something was begun and cannot be finished"

Delivery = Loss
"""A lane, a topic, a source and the number there."""


@dataclass
class Verdict:
    """How often each promise was broken, with an example of each, and how much there was to judge."""

    checks: tuple[str, ...]
    """The promises that apply."""
    publications: int = 0
    deliveries: int = 0
    losses: int = 0
    """What nodes have said to be lost."""
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def broken(self) -> list[str]:
        """The promises that were broken."""
        return [name for name in self.checks if self.counts.get(name, 0)]


def ending_of(table: pa.Table) -> str | None:
    """How the rows say that the run ended: ``finished``, or cut off by a limit; nothing if they do not."""
    ends = table.filter(pc.equal(table["event"].cast(pa.string()), "end"))
    if ends.num_rows == 0:
        return None
    return FINISHED if ends["value"][0].as_py() == 0 else CUT


def stuck_in(table: pa.Table) -> int:
    """What nodes had begun, or were asked for, and had not finished at the end."""
    rows = table.filter(pc.equal(table["event"].cast(pa.string()), "stuck"))
    return int(pc.sum(rows["value"]).as_py() or 0)


def judge_trace(table: pa.Table, contract: Contract, stopped: str, stuck: int = 0) -> Verdict:
    """Judge what can be judged from a trace alone; ``stopped`` says whether the run came to its end."""
    checks = contract.checks(stopped)
    rows = without_unshown(evidence(table))
    placed = is_placed(rows, contract)
    nodes = rows["node"].to_numpy().astype(np.int64)
    if contract.returns:
        rows = separate_incarnations(rows)
    lives = lives_in(rows, contract.remembers)
    lanes = lanes_of(rows, lives)
    losses = losses_in(rows, lanes)
    holes_in = UNSPECIFIED if contract.holes_in is None else ORDER_NAMES.index(contract.holes_in)
    findings = judge(
        rows,
        contract.nodes,
        contract.everybody,
        COMPLETENESS in checks,
        ORDER_NAMES.index(contract.default),
        contract.leavers,
        lives,
        Excuses(lives.mortal, losses, contract.told, holes_in),
        stopped != FINISHED,
        contract.all_asked,
    )
    verdict = Verdict(checks, findings.publications, findings.deliveries, len(losses))
    verdict.counts = {**findings.counts, STUCK: stuck}
    verdict.examples = {**findings.examples, STUCK: STUCK_TEXT}
    if TOTAL_ORDER in checks:
        circles, circle = judge_total_order(rows.filter(placed), apart_from(rows, contract), lanes[placed])
        if contract.returns and circles == 0:
            # A node that returns goes on in the order of total publications that it had begun.
            first = is_first_delivery(rows, nodes)
            sources = pc.unique(rows["source"]).to_pylist()
            circles, circle = judge_total_order(rows.filter(first), sources, nodes[first])
        verdict.counts[TOTAL_ORDER], verdict.examples[TOTAL_ORDER] = circles, circle or ""
    if HOLES in checks:
        # Of nodes that fail or join all words are believed.
        said = [loss for loss in losses if lives.node(loss[0]) not in lives.changing]
        verdict.counts[HOLES] = judge_words(verdict, contract, said, deliveries_in(rows, lives.changing), lives.mortal)
    return verdict


def add_requests(verdict: Verdict, complaints: list[str]) -> None:
    """Add whether what the application asked for happened."""
    verdict.counts[REQUESTS] = len(complaints)
    verdict.examples[REQUESTS] = "".join(complaints[:1])


def apart_from(rows: pa.Table, contract: Contract) -> Collection[int]:
    """The sources of whose publications only the total ones are in one order with others."""
    return pc.unique(rows["source"]).to_pylist() if contract.weaker_pass else contract.apart


def is_placed(rows: pa.Table, contract: Contract) -> npt.NDArray[np.bool_]:
    """For each row, whether it is to be in one order with others: a majority had the publication in time."""
    placed = np.ones(len(rows), np.bool_)
    gone = publications_apart(rows) if contract.secured and TOTAL_ORDER in contract.always else set()
    if gone:
        columns = (rows[name].to_pylist() for name in ("event", "topic", "source", "sequence"))
        for place, (event, *name) in enumerate(zip(*columns, strict=True)):
            placed[place] = event != "deliver" or tuple(name) not in gone
    return placed


def judge_words(
    verdict: Verdict, contract: Contract, losses: list[Loss], delivered: set[Delivery], mortal: Collection[int]
) -> int:
    """How often a node said what is not so, or passed over something without a word."""
    false = wrong_words(losses, delivered)
    excused = contract.told == TOLD_ALWAYS or contract.holes_in is not None or contract.counts_all
    accused = [] if excused else [loss for loss in losses if contract.told != TOLD_FAILED or loss[2] not in mortal]
    unspoken = unspoken_holes(losses, delivered) if contract.counts_all else 0
    verdict.examples[HOLES] = text_of_holes(false, len(accused), unspoken)
    return false + len(accused) + unspoken


def text_of_holes(false: int, accused: int, unspoken: int) -> str:
    """What was wrong with what nodes said to be lost, in words; empty if nothing was."""
    found = {
        f"{false} were said to be lost twice, or were delivered all the same": false,
        f"{accused} were said to be lost, whose publishers live": accused,
        f"{unspoken} were passed over without a word": unspoken,
    }
    return ", and ".join(text for text, count in found.items() if count)


def wrong_words(losses: Collection[Loss], delivered: set[Delivery]) -> int:
    """How often something was said to be lost twice, or was delivered there all the same."""
    return len(losses) - len(set(losses) - delivered)


def unspoken_holes(losses: Collection[Loss], delivered: set[Delivery]) -> int:
    """How many numbers before the last that a node delivered of a source it neither delivered nor said to be lost."""
    had = delivered | set(losses)
    last: dict[tuple[int, int, int], int] = {}
    for node, topic, source, sequence in had:
        last[node, topic, source] = max(sequence, last.get((node, topic, source), 0))
    return sum(last.values()) - len(had)


def deliveries_in(rows: pa.Table, changing: Collection[int]) -> set[Delivery]:
    """What was delivered by nodes that live all the time, which have one lane."""
    deliveries = rows.filter(pc.equal(rows["event"], "deliver"))
    columns = (deliveries[name].to_pylist() for name in ("node", "topic", "source", "sequence"))
    return {(node, topic or 0, *name) for node, topic, *name in zip(*columns, strict=True) if node not in changing}
