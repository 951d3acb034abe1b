"""``antiphon topics``: topics whose history several nodes keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.table import Table

import antiphon
from antiphon.api.streams.topics import PolicyChanges, changed_policy
from antiphon.cli import output, running
from antiphon.cli.streams import backup, policy
from antiphon.client.handle import Client
from antiphon.kernel.errors import UsageError
from antiphon.streams.requests import TopicInfo

app = typer.Typer(no_args_is_help=True, help="Topics with a history: make, change, list, look at, remove.")

Result = TypeVar("Result")
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.", show_default=False)]


def ask(access: running.ServerAccess, question: Callable[[Client], Awaitable[Result]]) -> Result:
    """Ask the cluster something through a client."""

    async def talk() -> Result:
        async with await running.connect_to_any(access) as client:
            return await question(client)

    return antiphon.run(talk())


@app.command()
@running.with_access()
def create(
    topic: Topic,
    replicas: policy.Replicas = None,
    retention_bytes: policy.RetentionBytes = None,
    retention_time: policy.RetentionTime = None,
    hold: policy.Hold = None,
    replace_after: policy.ReplaceAfter = None,
    compact: policy.Compact = None,
    *,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Keep the history of a topic from now on. A topic that has a history keeps it as it is.

    Example: antiphon topics create orders --replicas 3 --retention-bytes 10G --retention-time 7d
    """
    changes = policy.changes_of(replicas, retention_bytes, retention_time, hold, replace_after, compact)
    found = ask(access, lambda client: client.topics.create(topic, **changes))
    if json:
        output.print_json(described(found))
        return
    count = found.connected or found.replicas
    there = f"at {count} node{'s' * (count != 1)}"
    typer.echo(f"the history of {topic!r} is kept {there} (generation {found.generation})")
    if 0 < found.connected < found.replicas:
        missing = found.replicas - found.connected
        typer.echo(f"{missing} more nodes with a data directory are needed for {found.replicas} replicas")


@app.command("set")
@running.with_access()
def change(
    topic: Topic,
    replicas: policy.Replicas = None,
    retention_bytes: policy.RetentionBytes = None,
    retention_time: policy.RetentionTime = None,
    hold: policy.Hold = None,
    replace_after: policy.ReplaceAfter = None,
    compact: policy.Compact = None,
    *,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Keep the history of a topic differently from now on. Settings that are not named stay as they are.

    Example: antiphon topics set orders --retention-time 30d
    """
    changes = policy.changes_of(replicas, retention_bytes, retention_time, hold, replace_after, compact)
    if not changes:
        raise UsageError("name what is to change, for example --retention-time 30d")
    found = ask(access, lambda client: client.topics.set(topic, **changes))
    if json:
        output.print_json(described(found))
    else:
        typer.echo(f"the history of {topic!r} {policy.described_policy(found.policy)}")


@app.command("apply")
@running.with_access()
def apply_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Topics as tables: [topics.NAME].", show_default=False)],
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Make the topics of a TOML file, and change those that are kept otherwise. Other topics stay as they are.

    Applied twice, the second time changes nothing. Example: antiphon topics apply topics.toml
    """
    wanted = policy.topics_in(file)
    outcomes = ask(access, lambda client: applied(client, wanted))
    if json:
        output.print_json(outcomes)
        return
    for name, outcome in outcomes.items():
        typer.echo(f"{name}: {outcome}")


async def applied(client: Client, wanted: dict[str, PolicyChanges]) -> dict[str, str]:
    """Make or change topics; for each whether it was made, changed, or as it should be."""
    known = {topic.name: topic for topic in await client.topics.list()}
    outcomes: dict[str, str] = {}
    for name, changes in wanted.items():
        if name not in known:
            await client.topics.create(name, **changes)
            outcomes[name] = "created"
        elif changed_policy(known[name].policy, changes) != known[name].policy:
            await client.topics.set(name, **changes)
            outcomes[name] = "changed"
        else:
            outcomes[name] = "unchanged"
    return outcomes


@app.command("found")
@running.with_access()
def found_list(
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Begin the list of topics with a history at one node, if the cluster's first node has no data directory.

    Run it once, for a node with a data directory: antiphon topics found --servers 127.0.0.1:7400
    """
    ask(access, lambda client: client.topics.found())
    if json:
        output.print_json({"found": True})
        return
    typer.echo("the list of topics is kept here; other nodes with data directories keep it, too")


@app.command("ls")
@running.with_access()
def list_topics(
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """List the topics with a history."""
    topics = ask(access, lambda client: client.topics.list())
    if json:
        output.print_json([described(each) for each in topics])
        return
    if not topics:
        typer.echo("no topic has a history; make one with: antiphon topics create TOPIC")
    for each in topics:
        typer.echo(f"{each.name}  replicas {each.replicas}, generation {each.generation}")


@app.command()
@running.with_access()
def info(
    topic: Topic,
    access: running.ServerAccess,
    json: Json = False,
) -> None:
    """Show how far a topic's history is, how many replicas are connected, and its consumers."""
    found = ask(access, lambda client: client.topics.describe(topic))
    if json:
        output.print_json(described(found))
        return
    typer.echo(
        f"{found.name}: {found.end} messages, {found.connected} of {found.replicas} replicas connected, "
        f"generation {found.generation}"
    )
    typer.echo(
        f"it {policy.described_policy(found.policy)}; from position {found.earliest} on, {found.bytes:,} bytes are kept"
    )
    show_consumers(found)


@app.command("rm")
@running.with_access()
def remove(
    topic: Topic,
    access: running.ServerAccess,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Remove the history of a topic and its consumers. Publishing and subscribing go on."""
    if json and not yes:
        raise UsageError("--json cannot ask for confirmation; add --yes")
    if not yes and not typer.confirm(f"Remove the history of {topic!r} and its consumers for good?"):
        raise typer.Exit(1)
    ask(access, lambda client: client.topics.remove(topic))
    if json:
        output.print_json({"removed": topic})
    else:
        typer.echo(f"the history of {topic!r} is removed")


def described(topic: TopicInfo) -> dict[str, Any]:
    """A topic as JSON."""
    return {name: msgspec.to_builtins(getattr(topic, name)) for name in topic.__struct_fields__} | {
        "consumers": [msgspec.structs.asdict(each) for each in topic.consumers],
        "policy": msgspec.structs.asdict(topic.policy),
    }


def show_consumers(topic: TopicInfo) -> None:
    """Print the consumers of a topic as a table."""
    if not topic.consumers:
        typer.echo("it has no consumers")
        return
    table = Table("consumer", "hands out by", "done below", "lag", "handed out", "members", "missed")
    for each in topic.consumers:
        numbers = (each.done_below, each.lag, each.handed_out, each.members, each.missed)
        table.add_row(each.name, each.mode, *(str(number) for number in numbers))
    output.console.print(table)


app.command("export")(backup.export_topics)
app.command("import")(backup.import_topics)
