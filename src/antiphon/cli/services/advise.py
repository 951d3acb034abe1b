"""``antiphon advise``: says which order each operation of a service needs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.services.advise.advisor import Advice


def advise(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:SERVICE", help="A service, as shop.bank:Bank or bank.py:Bank.")
    ],
    order: Annotated[
        list[str] | None,
        typer.Option("--order", metavar="OPERATION=ORDER", help="Try another order than the declared one; repeatable."),
    ] = None,
    trust_callers: Annotated[
        bool,
        typer.Option(
            "--trust-callers", help="Assume that calls are made only where they neither raise nor break an invariant."
        ),
    ] = False,
    examples: Annotated[
        int, typer.Option("--examples", metavar="N", min=1, help="How many trials to draw for each pair of operations.")
    ] = 100,
    schedules: Annotated[
        int, typer.Option("--schedules", metavar="N", min=0, help="How many schedules to simulate on each fabric.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The same seed tries the same.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Say which order each operation of a service needs, with counterexamples.

    Runs pairs of calls in both orders, then schedules of several replicas with crashes and partitions. Exit code 1 if
    something declared is too weak, or no order is enough. It finds mistakes and proves nothing.
    """
    try:
        importlib.import_module("hypothesis")
    except ImportError as error:
        lacks = "antiphon advise draws with Hypothesis; install it with: pip install 'antiphon[advise]'"
        raise UsageError(lacks) from error
    from antiphon.services.advise.advisor import AdviceOptions, Advisor
    from antiphon.services.description import describe

    options = AdviceOptions(
        seed=seed, examples=examples, schedules=schedules, trust_callers=trust_callers, orders=orders_in(order or [])
    )
    advisor = Advisor(describe(service_at(target)), options)
    with output.progress("advise", advisor.steps()) as steps:
        advice = advisor.advise(steps.step)
    if json:
        output.print_json(advice)
    else:
        show(advice)
    if advice.has_failed:
        raise typer.Exit(1)


def orders_in(given: list[str]) -> dict[str, str]:
    """The orders of ``--order``."""
    found = {}
    for one in given:
        name, is_pair, order = one.partition("=")
        if not is_pair:
            raise UsageError(f"--order {one}: write OPERATION=ORDER, for example --order deposit=total")
        found[name] = order
    return found


def service_at(target: str) -> Any:
    """The class that ``module:Service`` or ``file.py:Service`` names."""
    home, colon, name = target.rpartition(":")
    if not colon or not name:
        raise UsageError(f"{target!r} names no service; write MODULE:SERVICE, for example bank:Bank or bank.py:Bank")
    module = module_in_file(Path(home)) if home.endswith(".py") else module_named(home)
    try:
        return getattr(module, name)
    except AttributeError:
        raise UsageError(f"{home} has no {name}; name a class that inherits from antiphon.Service") from None


def module_named(home: str) -> Any:
    """A module, also of the current directory."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(home)
    except ImportError as error:
        raise UsageError(f"{home} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)


def module_in_file(file: Path) -> Any:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    # Types are looked up in the module by its name.
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def show(advice: Advice) -> None:
    """Print the advice for people."""
    from antiphon.services.advise import report

    table = Table(box=None, pad_edge=False)
    for heading in report.HEADINGS:
        table.add_column(heading)
    for row in report.rows(advice):
        table.add_row(*row)
    output.console.print(table)
    for line in report.lines(advice):
        output.console.print(line, soft_wrap=True, markup=False)
