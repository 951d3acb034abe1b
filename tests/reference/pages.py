"""The pages of the reference that follow from the code.

python -m tests.reference.pages    # writes them
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.reference import commands, settings, trace, wire

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands.page,
    "settings.md": settings.page,
    "trace.md": trace.page,
    "wire.md": wire.page,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
