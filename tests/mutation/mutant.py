"""A mutant: the product with one planted bug."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change of one module: ``old`` becomes ``new``. Campaigns of ``fabric``, perhaps in one ``order``, find it."""

    name: str
    fabric: str
    module: str
    old: str
    new: str
    order: str | None = None
