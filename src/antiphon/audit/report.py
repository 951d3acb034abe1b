"""What an audit says: each promise, how often it was broken, and an example with its story."""

from __future__ import annotations

import msgspec

from antiphon.trace.contract import HOLES, REQUESTS, STUCK

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
MORE_CHECKS = (HOLES, REQUESTS, STUCK)
"""Judged where they were promised: in simulated runs."""

DURABILITY = "durability"
"""Judged where what nodes had on their disks is known: in live campaigns."""

CAMPAIGN_CHECKS = (DURABILITY, "content", "drops", "stalls")
"""Judged of what live campaigns wrote down."""

CLEAN = "clean"
VIOLATED = "violated"

NO_SCENARIO = "Whether all that the application asked for happened is not judged: the audit was not given the scenario."


class Check(msgspec.Struct):
    """One promise: whether it was made, how often it was broken, and an example."""

    applies: bool
    violations: int = 0
    example: str | None = None
    story: list[str] = []
    """The rows that show the example, in words."""


class Audit(msgspec.Struct):
    """What was found in the traces of a run."""

    messages: int
    deliveries: int
    seconds: float
    checks: dict[str, Check]
    verdict: str
    missing_nodes: list[int]
    judge: str
    """Who judged: ``memory``, or ``spark``."""
    losses: int = 0
    """What nodes have said to be lost, each publication at each node."""
    unjudged: list[str] = []
    """What could not be judged, and why, in sentences."""


def verdict_of(checks: dict[str, Check]) -> str:
    """The word for it all."""
    return VIOLATED if any(check.violations for check in checks.values()) else CLEAN
