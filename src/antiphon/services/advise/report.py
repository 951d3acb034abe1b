"""An advice in words: a table of operations, then counterexamples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.services.advise.advisor import Advice, OperationAdvice

PRICE: Final = (
    "a total message takes 9.5 hops on a cube of eight nodes, where a causal one takes 1.7, and waits for other "
    "messages about its keys"
)
"""The figures of the table in guarantees.md."""

HEADINGS: Final = ("operation", "needed", "declared", "verdict", "why")


def rows(advice: Advice) -> list[tuple[str, ...]]:
    """The table: one row for each operation."""
    return [(one.name, one.needed, one.declared, one.verdict, one.why) for one in advice.operations]


def lines(advice: Advice) -> Iterator[str]:
    """The lines below the table."""
    for one in advice.operations:
        yield from about(one)
    for problem in advice.problems:
        yield f"wrong: {problem.what}"
        yield from (f"    {line}" for line in problem.script)
    stronger = [one.name for one in advice.operations if one.verdict == "stronger than needed"]
    if stronger:
        yield f"stronger than needed: {', '.join(stronger)}; {PRICE}"
    yield tried(advice)


def about(one: OperationAdvice) -> Iterator[str]:
    """The counterexample of an operation, if it has one."""
    if one.script:
        weaker = f"{one.declared} is too weak" if one.verdict == "too weak" else f"needs {one.needed}"
        yield (
            f"{one.name}: {weaker}, it {one.why}"
            if not one.why.startswith("it ")
            else f"{one.name}: {weaker}, {one.why}"
        )
        yield from (f"    {line}" for line in one.script)


def tried(advice: Advice) -> str:
    """How much was tried. That is no proof."""
    end = "something is wrong" if advice.has_failed else "no counterexample to the declared orders"
    return (
        f"{end}: {advice.scripts:,} scripts with two calls, {advice.schedules:,} schedules of several replicas with "
        f"crashes and partitions, seed {advice.options.seed}"
    )
