"""The page: a template, a style sheet, a small script, and everything that the three are given.

All text is escaped by the template engine. Only pictures, which escape their own words, are put in as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import jinja2
import msgspec
from markupsafe import Markup

import antiphon
from antiphon_lab.report.chart import MARKER, NARROW, WIDE, marker, svg, x_text
from antiphon_lab.report.colours import colour_of, dash_of, shade_of
from antiphon_lab.report.ledger import counts_of, ledger
from antiphon_lab.report.stored import Result, StoredRow
from antiphon_lab.report.tables import figure_file
from antiphon_lab.reproduction.experiment import shown
from antiphon_lab.reproduction.figures import Figure, Series
from antiphon_lab.reproduction.verdicts import VERDICTS


def page(results: Sequence[Result], folder: str, made: str, ledger_file: str = "") -> str:
    """The whole page; ``folder`` has the tables, ``made`` is a line about when and how it was made."""
    template = environment().get_template("page.html.j2")
    return template.render(
        results=results,
        counts={verdict: sum(result.count(verdict) for result in results) for verdict in VERDICTS},
        places=sources(results),
        folder=folder,
        made=made,
        ledger=ledger_file,
        version=antiphon.__version__,
        style=Markup(resource("page.css")),
        script=Markup(resource("page.js")),
    )


def ledger_page(results: Sequence[Result], report: str) -> str:
    """The page with every published number; ``report`` is the name of the file with the figures."""
    entries = ledger(results)
    template = environment().get_template("page.ledger.html.j2")
    return template.render(
        entries=entries,
        counts=counts_of(entries),
        report=report,
        version=antiphon.__version__,
        style=Markup(resource("page.css")),
    )


@cache
def environment() -> jinja2.Environment:
    """Templates that escape everything and refuse missing values."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(shown=shown, signed=signed, words=words, anchor=anchor, ends=ends)
    made.globals.update(
        verdicts=VERDICTS,
        pictures=pictures,
        swatch=swatch,
        compared=compared,
        measured_only=measured_only,
        parameters_of=parameters_of,
        figure_file=figure_file,
        x_text=x_text,
    )
    return made


def resource(name: str) -> str:
    """A file that belongs to the page."""
    return files("antiphon_lab.report").joinpath(name).read_text(encoding="utf-8")


def pictures(figure: Figure, identifier: str) -> Markup:
    """A figure for wide screens and one for narrow ones; the style sheet shows one of them."""
    return Markup("\n").join(Markup(svg(figure, size, identifier)) for size in (WIDE, NARROW))


def swatch(series: Series) -> Markup:
    """The appearance of a series, for the legend."""
    colour = colour_of(series.system)
    if series.published:
        inside = '<path class="dot" d="M13 1L18.5 6.5L13 12L7.5 6.5z"/>'
        return Markup(
            f'<svg class="swatch" viewBox="0 0 26 13"><g class="series published {colour}">{inside}</g></svg>'
        )
    if series.kind == "bars":
        inside = f'<rect class="dot" x="6" y="0.5" width="14" height="12" fill-opacity="{shade_of(series.variant):g}"/>'
    else:
        dash = dash_of(series.variant)
        line = f'<path d="M1 6.5H25" stroke-dasharray="{dash}"/>'
        inside = ("" if series.kind == "points" else line) + marker(13, 6.5, series.variant, MARKER, "")
    return Markup(
        f'<svg class="swatch" viewBox="0 0 26 13"><g class="series {series.kind} {colour}">{inside}</g></svg>'
    )


def compared(result: Result) -> list[StoredRow]:
    """The rows that have a published number."""
    return [row for row in result.rows if row.published is not None]


def measured_only(result: Result) -> list[StoredRow]:
    """The rows of which nothing was published."""
    return [row for row in result.rows if row.published is None]


def parameters_of(result: Result) -> dict[str, object]:
    """The parameters to show."""
    return dict(result.parameters)


def sources(results: Sequence[Result]) -> list[str]:
    """On which machines, with which versions, the results were measured, and when."""
    found: dict[str, list[str]] = {}
    for result in results:
        machine = result.machine
        if machine is not None:
            cores = f"{machine.cores} core{'s' if machine.cores != 1 else ''}"
            where = f"Antiphon {result.antiphon}, Python {machine.python}, {machine.system}, {cores}"
            found.setdefault(where, []).append(machine.date)
    return [f"{where}; {span(sorted(dates))}" for where, dates in found.items()]


def span(dates: list[str]) -> str:
    """From the first date to the last."""
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def signed(share: float | None) -> str:
    """A relative difference in percent, with its sign."""
    if share is None:
        return ""
    return f"{100 * share:+.1f} %".replace("-", "\u2212")


def ends(interval: tuple[float | None, float | None] | None) -> str:
    """An interval in words; it is open where a document gives a border and a side."""
    if interval is None:
        return ""
    low, high = interval
    if low is None or high is None:
        return f"below {shown(high)}" if high is not None else f"above {shown(low or 0.0)}"
    return shown(low) if low == high else f"{shown(low)} to {shown(high)}"


def words(value: object) -> str:
    """A parameter as people read it: words as they are, everything else as short JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and all(isinstance(each, str | int | float) for each in value.values()):
        return "; ".join(f"{name}: {each}" for name, each in value.items())
    return msgspec.json.encode(value).decode()


def anchor(name: str) -> str:
    """The address of an experiment on the page."""
    return name.replace("/", "-")
