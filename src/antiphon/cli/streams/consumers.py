"""``antiphon consumers``: the named consumers of a topic."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from antiphon.api.streams.starts import StreamStart
from antiphon.cli import output, running
from antiphon.cli.streams.topics import Json, Topic, ask, described, show_consumers
from antiphon.kernel.errors import UsageError
from antiphon.streams.position import Position

Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="The name of the consumer.", show_default=False)]

app = typer.Typer(no_args_is_help=True, help="The named consumers of a topic: list, look at, reset, remove.")


@app.command("ls")
@running.with_access()
def list_consumers(
    topic: Topic,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """List the consumers of a topic: how far each has come, its lag, and what its members hold."""
    found = ask(access, lambda client: client.topics.describe(topic))
    if json:
        output.print_json(described(found)["consumers"])
    else:
        show_consumers(found)


@app.command()
@running.with_access()
def info(
    topic: Topic,
    name: Name,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Show how far a consumer is: its lag, what its members hold, what came back, and how it hands out."""
    found = next(
        (each for each in ask(access, lambda client: client.topics.describe(topic)).consumers if each.name == name),
        None,
    )
    if found is None:
        raise UsageError(f"{topic!r} has no consumer {name!r}; antiphon consumers ls {topic} lists those it has")
    if json:
        output.print_json(msgspec.structs.asdict(found))
        return
    dead = f"dead letters after {found.max_deliveries}" if found.max_deliveries else "no dead letters"
    kind = ", ephemeral" if found.is_ephemeral else ""
    typer.echo(f"{name} of {topic}: by {found.mode}, {found.ack_us / 1e6:g} seconds for each message, {dead}{kind}")
    typer.echo(f"done below position {found.done_below}, {found.lag} behind the end; {found.members} members")
    typer.echo(f"{found.handed_out} messages are handed out, {found.returned} came back and are not done")
    typer.echo(f"{found.redelivered} came back in all, {found.missed} were removed before they were done")


@app.command()
@running.with_access()
def reset(
    topic: Topic,
    name: Name,
    access: running.ServerAccess,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="earliest, latest, a position (7-1200) or a time (2026-11-18T14:00:00+00:00)."
        ),
    ] = "earliest",
    json: Json = False,
) -> None:
    """Let a consumer begin at another place: what was done behind it comes again. It must have no members.

    Example: antiphon consumers reset orders billing --to 2026-11-18T14:00:00+00:00
    """
    start = place_in(to)
    ask(access, lambda client: client.topics.reset_consumer(topic, name, start))
    if json:
        output.print_json({"reset": name})
    else:
        typer.echo(f"the consumer {name!r} of {topic!r} begins at {to}")


def place_in(text: str) -> StreamStart:
    """The place that a text names."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    if re.fullmatch(r"\d+-\d+", text):
        return Position.parse(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no place; write earliest, latest, 7-1200 or 2026-11-18T14:00:00+00:00"
        ) from error
    return time if time.tzinfo is not None else time.astimezone()


@app.command("rm")
@running.with_access()
def remove(
    topic: Topic,
    name: Name,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Forget a consumer, and which messages are done for it."""
    ask(access, lambda client: client.topics.remove_consumer(topic, name))
    if json:
        output.print_json({"removed": name})
    else:
        typer.echo(f"the consumer {name!r} of {topic!r} is removed")
