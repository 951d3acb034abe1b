"""The ``antiphon`` command: one module per subcommand, one place where errors become exit codes.

Exit codes: 0 fine, 1 a check or the environment failed, 2 misuse.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

import antiphon
from antiphon.cli import (
    audit,
    certs,
    dismiss,
    explore,
    maelstrom,
    metrics,
    node,
    output,
    pub,
    simulate,
    sub,
    sweep,
    top,
    up,
    watch,
)
from antiphon.cli.demo import command as demo
from antiphon.cli.torture import command as torture
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.plugins import COMMANDS, LABORATORY, plugins

app = typer.Typer(
    name="antiphon",
    help="Publish/subscribe in which an answer never arrives before its question.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        how = "compiled" if output.is_compiled() else "not compiled"
        typer.echo(f"antiphon {antiphon.__version__} ({how}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and whether it is compiled."
        ),
    ] = False,
) -> None:
    """Publish/subscribe in which an answer never arrives before its question."""


app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("node")(node.node)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.command("top")(top.top)
app.command("audit")(audit.audit)
app.command("watch")(watch.watch)
app.command("dismiss")(dismiss.dismiss)
app.command("metrics")(metrics.metrics)
app.command("simulate")(simulate.simulate)
app.command("sweep")(sweep.sweep)
app.command("torture")(torture.torture)
app.command("explore")(explore.explore)
app.add_typer(certs.app)
app.add_typer(maelstrom.app)

ELSEWHERE = {
    "bench": "Benchmarks, beside other systems.",
    "report": "A page with figures and tables from measured results.",
    "reproduce": "Run published experiments and compare.",
    "universe": "Subscriptions of many processes to many topics.",
}
"""The commands of the laboratory, for installations without it."""


def refusal(name: str) -> Callable[[], None]:
    """A command that names its distribution and how to install it."""

    def refuse() -> None:
        raise UsageError(f"antiphon {name} is part of {LABORATORY}; install it with: pip install {LABORATORY}")

    return refuse


def add_plugged_commands() -> None:
    """Add the commands of other distributions; without the laboratory, its commands say how to install it."""
    found = plugins(COMMANDS)
    for name, command in found.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    for name, what in ELSEWHERE.items():
        if name not in found:
            extra = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, help=f"{what} Part of {LABORATORY}.", context_settings=extra)(refusal(name))


add_plugged_commands()


def main() -> None:
    """Run the command line; an error becomes one sentence and an exit code."""
    try:
        app()
    except UsageError as error:
        output.complain(str(error))
        sys.exit(2)
    except AntiphonError as error:
        output.complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        output.complain("interrupted")
        sys.exit(130)
