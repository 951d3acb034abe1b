"""``antiphon topics``: topics whose history several nodes keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.table import Table

import antiphon
from antiphon.cli import output, running
from antiphon.client.handle import Client
from antiphon.kernel.errors import UsageError
from antiphon.streams.requests import TopicInfo

app = typer.Typer(no_args_is_help=True, help="Topics whose history several nodes keep: make, list, look at, remove.")

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
def create(
    topic: Topic,
    replicas: Annotated[int, typer.Option(min=1, max=7, metavar="N", help="How many nodes keep the history.")] = 3,
    servers: running.Servers = running.DEFAULT_SERVERS,
    cluster: running.ClusterName = "antiphon",
    tls_authority: running.TlsAuthority = None,
    tls_certificate: running.TlsCertificate = None,
    tls_key: running.TlsKey = None,
    token_file: running.TokenFile = None,
    json: Json = False,
) -> None:
    """Keep the history of a topic from now on. A topic that has a history keeps it.

    Example: antiphon topics create orders --replicas 3
    """
    access = running.access_to(servers, cluster, 0.0, tls_authority, tls_certificate, tls_key, token_file)
    found = ask(access, lambda client: client.topics.create(topic, replicas=replicas))
    if json:
        output.print_json(described(found))
        return
    there = f"at {found.connected} nodes" if found.connected > 0 else f"at {found.replicas} nodes"
    typer.echo(f"the history of {topic!r} is kept {there} (generation {found.generation})")
    if 0 < found.connected < found.replicas:
        missing = found.replicas - found.connected
        typer.echo(f"{missing} more nodes with a data directory are needed for {found.replicas} replicas")


@app.command("ls")
def list_topics(
    servers: running.Servers = running.DEFAULT_SERVERS,
    cluster: running.ClusterName = "antiphon",
    tls_authority: running.TlsAuthority = None,
    tls_certificate: running.TlsCertificate = None,
    tls_key: running.TlsKey = None,
    token_file: running.TokenFile = None,
    json: Json = False,
) -> None:
    """List the topics with a history."""
    access = running.access_to(servers, cluster, 0.0, tls_authority, tls_certificate, tls_key, token_file)
    topics = ask(access, lambda client: client.topics.list())
    if json:
        output.print_json([described(each) for each in topics])
        return
    if not topics:
        typer.echo("no topic has a history; make one with: antiphon topics create TOPIC")
    for each in topics:
        typer.echo(f"{each.name}  replicas {each.replicas}, generation {each.generation}")


@app.command()
def info(
    topic: Topic,
    servers: running.Servers = running.DEFAULT_SERVERS,
    cluster: running.ClusterName = "antiphon",
    tls_authority: running.TlsAuthority = None,
    tls_certificate: running.TlsCertificate = None,
    tls_key: running.TlsKey = None,
    token_file: running.TokenFile = None,
    json: Json = False,
) -> None:
    """Show how far a topic's history is, how many replicas are connected, and its consumers."""
    access = running.access_to(servers, cluster, 0.0, tls_authority, tls_certificate, tls_key, token_file)
    found = ask(access, lambda client: client.topics.describe(topic))
    if json:
        output.print_json(described(found))
        return
    typer.echo(
        f"{found.name}: {found.end} messages, {found.connected} of {found.replicas} replicas connected, "
        f"generation {found.generation}"
    )
    show_consumers(found)


@app.command("rm")
def remove(
    topic: Topic,
    servers: running.Servers = running.DEFAULT_SERVERS,
    cluster: running.ClusterName = "antiphon",
    tls_authority: running.TlsAuthority = None,
    tls_certificate: running.TlsCertificate = None,
    tls_key: running.TlsKey = None,
    token_file: running.TokenFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Remove the history of a topic and its consumers. Publishing and subscribing go on."""
    if json and not yes:
        raise UsageError("--json cannot ask for confirmation; add --yes")
    if not yes and not typer.confirm(f"Remove the history of {topic!r} and its consumers for good?"):
        raise typer.Exit(1)
    access = running.access_to(servers, cluster, 0.0, tls_authority, tls_certificate, tls_key, token_file)
    ask(access, lambda client: client.topics.remove(topic))
    if json:
        output.print_json({"removed": topic})
    else:
        typer.echo(f"the history of {topic!r} is removed")


def described(topic: TopicInfo) -> dict[str, Any]:
    """A topic as JSON."""
    return {name: msgspec.to_builtins(getattr(topic, name)) for name in topic.__struct_fields__} | {
        "consumers": [{name: getattr(each, name) for name in each.__struct_fields__} for each in topic.consumers]
    }


def show_consumers(topic: TopicInfo) -> None:
    """Print the consumers of a topic as a table."""
    if not topic.consumers:
        typer.echo("it has no consumers")
        return
    table = Table("consumer", "hands out by", "done below", "lag", "handed out", "members")
    for each in topic.consumers:
        table.add_row(
            each.name, each.mode, *(str(n) for n in (each.done_below, each.lag, each.handed_out, each.members))
        )
    output.console.print(table)
