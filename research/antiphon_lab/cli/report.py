"""``antiphon report``: a page with figures and tables from results that were measured before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli import output
from antiphon.kernel.errors import UsageError


def report(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PLACE...",
            help="Files that `antiphon reproduce --json` printed, or its output directories.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes.")] = Path(
        "report.html"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print the written files as JSON and nothing else.")] = False,
) -> None:
    """Make one page of stored results: figures, tables, parameters and explanations.

    The page needs no network and no other files. A folder with every table as CSV and Parquet is written too.

    Example: antiphon reproduce vcube-ps/fig-5.8a

    and then: antiphon report reproduced -o report.html
    """
    from antiphon_lab.report.stored import load
    from antiphon_lab.report.write import folder_of, write_results

    if not places:
        raise UsageError("there is nothing to report on; name a place, for example: antiphon report reproduced")
    results = load(places)
    write_results(results, to)
    if json:
        names = [result.name for result in results]
        output.print_json({"page": str(to), "tables": str(folder_of(to)), "experiments": names})
        return
    number = f"{len(results)} experiment{'s' if len(results) != 1 else ''}"
    output.console.print(f"{number}: {to}, tables in {folder_of(to)}", markup=False, soft_wrap=True)
