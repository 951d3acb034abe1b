"""The ``antiphon`` command: one module per subcommand, one place where errors become exit codes.

A call imports the module of its own command only. The other commands are listed with a sentence from the table below,
so that ``antiphon --help`` and ``antiphon pub`` do not wait for the simulator, the judges or Spark.

Exit codes: 0 fine, 1 a check or the environment failed, 2 misuse.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Annotated, Final, NamedTuple

import typer

import antiphon
from antiphon.cli import output
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.plugins import COMMANDS, LABORATORY, entries_of

RUN: Final = "Run and use a cluster"
JUDGE: Final = "Judge and measure a run"
SIMULATE: Final = "Simulate and torture"
RESEARCH: Final = "Published experiments"


class Command(NamedTuple):
    """A command in the list of commands: where it is, what it does, and the part of the help that has it."""

    home: str
    """The module and the name in it: a function, or a ``typer.Typer`` with commands of its own."""
    summary: str
    panel: str


OWN: Final = {
    "demo": Command("antiphon.cli.demo.command:demo", "Show in a tour of two minutes what the system does.", RUN),
    "up": Command("antiphon.cli.up:up", "Run a cluster of local processes until Ctrl-C or SIGTERM.", RUN),
    "node": Command("antiphon.cli.node:node", "Run one node until SIGTERM or Ctrl-C.", RUN),
    "pub": Command("antiphon.cli.pub:pub", "Publish messages, and return when all are accepted.", RUN),
    "sub": Command("antiphon.cli.sub:sub", "Print messages as they arrive.", RUN),
    "topics": Command("antiphon.cli.streams.topics:app", "Topics whose history several nodes keep.", RUN),
    "consumers": Command("antiphon.cli.streams.consumers:app", "The named consumers of a topic.", RUN),
    "top": Command("antiphon.cli.top:top", "Watch rates, lag, drops and troubles of a cluster.", RUN),
    "doctor": Command("antiphon.cli.doctor:doctor", "Check whether this machine is ready for a node.", RUN),
    "dismiss": Command("antiphon.cli.dismiss:dismiss", "Continue without nodes that are gone for good.", RUN),
    "log": Command("antiphon.cli.maintenance.log:app", "Verify, repair or compact the log of a stopped node.", RUN),
    "dependencies": Command(
        "antiphon.cli.maintenance.dependencies:dependencies", "List installed packages and their licences.", RUN
    ),
    "certs": Command("antiphon.cli.certs:app", "Make certificates and tokens of a development authority.", RUN),
    "advise": Command(
        "antiphon.cli.services.advise:advise", "Say which order each operation of a service needs.", JUDGE
    ),
    "audit": Command("antiphon.cli.audit:audit", "Check a trace for lost, repeated and disordered messages.", JUDGE),
    "watch": Command("antiphon.cli.watch:watch", "Report violations of order on live topics as they happen.", JUDGE),
    "console": Command("antiphon.cli.console.recorded:console", "Look at a recorded run in the browser.", JUDGE),
    "metrics": Command("antiphon.cli.metrics:metrics", "Measure latencies, messages, bytes and load of a run.", JUDGE),
    "simulate": Command("antiphon.cli.simulate:simulate", "Run a scenario in virtual time.", SIMULATE),
    "play": Command("antiphon.cli.console.play:play", "Play a scenario in the browser, and intervene.", SIMULATE),
    "sweep": Command("antiphon.cli.sweep:sweep", "Run a grid of parameters on Apache Spark.", SIMULATE),
    "torture": Command("antiphon.cli.torture.command:torture", "Break fabrics with random schedules.", SIMULATE),
    "explore": Command("antiphon.cli.explore:explore", "Follow every schedule of a small system.", SIMULATE),
    "place": Command("antiphon.cli.places.command:place", "Choose identifiers on the cube by delays.", SIMULATE),
    "maelstrom": Command("antiphon.cli.maelstrom:app", "Run nodes for Maelstrom's workloads.", SIMULATE),
}
"""The commands of this distribution, in the order of the help."""

ELSEWHERE: Final = {
    "bench": "Run benchmarks, beside other systems.",
    "report": "Make a page with figures and tables from measured results.",
    "reproduce": "Run published experiments and compare measured with published numbers.",
    "universe": "Build and measure subscriptions of many processes to many topics.",
}
"""The commands of the laboratory, which are listed without it too."""


EXTRA: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        how = "compiled" if output.is_compiled() else "not compiled"
        typer.echo(f"antiphon {antiphon.__version__} ({how}, Python {sys.version.split()[0]})")
        raise typer.Exit


def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and whether it is compiled."
        ),
    ] = False,
) -> None:
    """Publish/subscribe in which an answer never arrives before its question."""


def app_for(wanted: str | None) -> typer.Typer:
    """The command line with one command loaded and the others only listed; with None all of them are loaded."""
    app = typer.Typer(
        name="antiphon",
        help="Publish/subscribe in which an answer never arrives before its question.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(common)
    for name, command in OWN.items():
        add(app, EntryPoint(name, command.home, COMMANDS), command.summary, command.panel, wanted)
    plugged = entries_of(COMMANDS)
    for entry in plugged:
        add(app, entry, ELSEWHERE.get(entry.name, f"Part of {entry.module.partition('.')[0]}."), RESEARCH, wanted)
    for name in ELSEWHERE.keys() - {entry.name for entry in plugged}:
        summary = f"{ELSEWHERE[name]} Part of {LABORATORY}."
        app.command(name, help=summary, rich_help_panel=RESEARCH, context_settings=EXTRA)(refusal(name))
    return app


def add(app: typer.Typer, entry: EntryPoint, summary: str, panel: str, wanted: str | None) -> None:
    """Add a command: itself if it is wanted, else only its name and its summary."""
    if wanted not in {None, entry.name}:
        app.command(entry.name, help=summary, rich_help_panel=panel)(nothing)
        return
    command = entry.load()
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name, short_help=summary, rich_help_panel=panel)
    else:
        app.command(entry.name, short_help=summary, rich_help_panel=panel)(command)


def nothing() -> None:
    """A command that is listed and not called."""


def refusal(name: str) -> Callable[[], None]:
    """A command that names its distribution and how to install it."""

    def refuse() -> None:
        raise UsageError(f"antiphon {name} is part of {LABORATORY}; install it with: pip install {LABORATORY}")

    return refuse


def wanted_command(arguments: list[str]) -> str | None:
    """The command that a call needs: its first word; "" for none, and None for all, where a shell completes a word."""
    if "_ANTIPHON_COMPLETE" in os.environ:
        return None
    return next((word for word in arguments if not word.startswith("-")), "")


def main() -> None:
    """Run the command line; an error becomes one sentence and an exit code."""
    try:
        app_for(wanted_command(sys.argv[1:]))()
    except UsageError as error:
        output.complain(str(error))
        sys.exit(2)
    except AntiphonError as error:
        output.complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        output.complain("interrupted")
        sys.exit(130)
