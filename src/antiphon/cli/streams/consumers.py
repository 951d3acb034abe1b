"""``antiphon consumers``: the named consumers of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from antiphon.cli import output, running
from antiphon.cli.streams.topics import Json, Topic, ask, described, show_consumers

app = typer.Typer(no_args_is_help=True, help="The named consumers of a topic: list, remove.")


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


@app.command("rm")
@running.with_access()
def remove(
    topic: Topic,
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="The name of the consumer.", show_default=False)],
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Forget a consumer, and which messages are done for it."""
    ask(access, lambda client: client.topics.remove_consumer(topic, name))
    if json:
        output.print_json({"removed": name})
    else:
        typer.echo(f"the consumer {name!r} of {topic!r} is removed")
