"""``antiphon log``: verifies, repairs and compacts the log of a node that is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from antiphon.cli import output

app = typer.Typer(name="log", no_args_is_help=True, help="Verify, repair or compact the log of a node that is stopped.")

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The data directory of the node.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DAMAGES_SHOWN = 20


@app.command("verify")
def verify(directory: Directory, json: Json = False) -> None:
    """Read every page, record and batch of a log and say what is damaged; change nothing.

    Exit codes: 0 the log is whole, 1 it is damaged, 2 there is no log or a node has it open.

    Example: antiphon log verify /var/lib/antiphon
    """
    from antiphon.storage.repair import verified

    with output.progress("verify", total=100) as steps:
        survey = verified(directory, lambda done, of: steps.reach(100 * done // of, f"% of {of} pages"))
    output.end_with(survey.result(), json, show_verdict, has_failed=not survey.is_whole)


@app.command("repair")
def repair(
    directory: Directory,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="NEW", help="Write the new log here, and leave the old one in its place."),
    ] = None,
    json: Json = False,
) -> None:
    """Salvage what is whole of a damaged log into a new one, and say exactly what is lost.

    The damaged log stays beside it as DIRECTORY.damaged-1. Batches keep their topics and offsets. If anything is lost,
    the node's own state is left out, and the node joins its cluster as a new node. A log that is whole is left as it
    is. Exit codes: 0 nothing was lost, 1 something was lost, 2 there is no log or a node has it open.

    Example: antiphon log repair /var/lib/antiphon
    """
    from antiphon.storage.repair import Repair

    work = Repair(directory, out)
    with output.progress("repair", total=100) as steps:
        survey = work.run(lambda done, of: steps.reach(100 * done // of, f"% of {of} pages"))
    output.end_with(work.result(survey), json, show_repair, has_failed=survey.lacks_state)


@app.command("compact")
def compact(directory: Directory, json: Json = False) -> None:
    """Write the file of a log anew, without the space of removed messages.

    It needs as much free space as the messages take. A log of an earlier version gives space back by itself afterwards.

    Example: antiphon log compact /var/lib/antiphon
    """
    from antiphon.storage.repair import compacted

    with output.progress("compact", total=1) as steps:
        found = compacted(directory, lambda: steps.reach(0, "files"))
        steps.reach(1, "files")
    output.end_with(found, json, show_compact, has_failed=False)


def show_verdict(found: dict[str, Any]) -> None:
    """Print the findings for people."""
    for topic in found["topics"]:
        name = "(name missing)" if topic["topic"] is None else topic["topic"]
        there = f"offsets {topic['earliest']} to {topic['next_offset'] - 1}" if topic["batches"] else "no messages"
        print(f"{name}: {topic['batches']:,} batches, {topic['bytes']:,} bytes, {there}")
    for damage in found["damages"][:DAMAGES_SHOWN]:
        print(f"damaged: {damage}")
    more = len(found["damages"]) - DAMAGES_SHOWN
    if more > 0:
        print(f"and {more} more; --json has all of them")
    if found["verdict"] == "whole":
        print(f"{found['directory']} is whole: {found['pages']:,} pages, of which {found['free_pages']:,} are free")
    elif "repaired" not in found:
        print(f"{found['directory']} is damaged; antiphon log repair {found['directory']} salvages what is whole")


def show_repair(found: dict[str, Any]) -> None:
    """Print what was salvaged and what was lost."""
    show_verdict(found)
    repaired = found["repaired"]
    if repaired["log"] is None:
        print("nothing was changed")
        return
    for each in repaired["lost"]:
        print(f"lost: topic {each['topic']}, offsets {each['first']} to {each['end'] - 1}")
    if repaired["lost_batches_without_a_name"]:
        print(f"lost: {repaired['lost_batches_without_a_name']} batches of topics whose names are missing")
    print(f"salvaged {repaired['batches']:,} batches, {repaired['bytes']:,} bytes, into {repaired['log']}")
    print(f"the damaged log is in {repaired['damaged_log']}")
    if not repaired["keeps_state"]:
        print("the node's own state is left out: start it with --join, and it joins its cluster as a new node")


def show_compact(found: dict[str, Any]) -> None:
    """Print how much smaller the files are."""
    print(
        f"{found['directory']}: {found['batches']:,} batches, {found['bytes_before']:,} bytes before, "
        f"{found['bytes']:,} now"
    )
