"""The ``antiphon`` command: one module per subcommand, one place where errors become exit codes.

Exit codes: 0 fine, 1 a check failed or the world did something wrong, 2 misuse.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import antiphon
from antiphon.cli import (
    audit,
    bench,
    certs,
    demo,
    dismiss,
    explore,
    maelstrom,
    metrics,
    node,
    output,
    pub,
    report,
    reproduce,
    simulate,
    sub,
    sweep,
    top,
    torture,
    universe,
    universe_links,
    up,
    watch,
)
from antiphon.kernel.errors import AntiphonError, UsageError

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
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("torture")(torture.torture)
app.command("explore")(explore.explore)
app.add_typer(bench.app)
universe.app.command("links")(universe_links.links)
app.add_typer(universe.app)
app.add_typer(certs.app)
app.add_typer(maelstrom.app)


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
