"""A figure as a file of its own, for pages that are not reports."""

from __future__ import annotations

from pathlib import Path

from antiphon.kernel.errors import UsageError
from antiphon_lab.report.chart import Size, svg
from antiphon_lab.report.page import resource
from antiphon_lab.reproduction.figures import Figure

ALONE = Size("alone", 760, 400)
"""Shown on screens of every width; its name keeps the rules for narrow pages away from it."""


def standing_alone(figure: Figure) -> str:
    """An SVG document that brings its colours along."""
    drawn = svg(figure, ALONE, figure.name).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    opening, _, rest = drawn.partition(">")
    return f"{opening}>\n<style>\n{resource('page.css')}</style>{rest}\n"


def write_alone(figure: Figure, path: Path) -> None:
    """Write a figure to a file."""
    try:
        path.write_text(standing_alone(figure), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write the figure to {path}: {error.strerror or error}; choose another place"
        ) from error
