"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A bug: ``old`` becomes ``new`` in a module; campaigns of a fabric, perhaps in one order, are to find it."""

    name: str
    fabric: str
    module: str
    old: str
    new: str
    order: str | None = None
