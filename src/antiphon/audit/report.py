"""The report of an audit: each promise, the number of violations, and an example with its rows."""

from __future__ import annotations

import msgspec

from antiphon.trace.contract import HOLES, REQUESTS, STUCK

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
MORE_CHECKS = (HOLES, REQUESTS, STUCK)
"""Checks of simulated runs."""

DURABILITY = "durability"
"""A check of live campaigns, which know the disk contents of nodes."""

CAMPAIGN_CHECKS = (DURABILITY, "content", "drops", "stalls")
"""Checks of the journals of live campaigns."""

CLEAN = "clean"
VIOLATED = "violated"

NO_SCENARIO = "Whether all requests of the application were fulfilled is not judged: the audit has no scenario."


class Check(msgspec.Struct):
    """One promise: whether it applies, the number of violations, and an example."""

    applies: bool
    violations: int = 0
    example: str | None = None
    story: list[str] = []
    """The rows that show the example, in words."""


class Audit(msgspec.Struct):
    """The result of an audit of a run."""

    messages: int
    deliveries: int
    seconds: float
    checks: dict[str, Check]
    verdict: str
    missing_nodes: list[int]
    judge: str
    """The judge: ``memory`` or ``spark``."""
    losses: int = 0
    """The losses that nodes reported, each publication at each node."""
    unjudged: list[str] = []
    """The parts that could not be judged, and why, in sentences."""


def verdict_of(checks: dict[str, Check]) -> str:
    """The overall verdict."""
    return VIOLATED if any(check.violations for check in checks.values()) else CLEAN
