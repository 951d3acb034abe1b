"""``antiphon dismiss``: lets a tree or a cube continue without nodes that are gone for good."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

import antiphon
from antiphon.cli import output, running
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.sessions.client_messages import DismissRequest, DismissResponse

WHAT_IS_GIVEN_UP = """The nodes {named} are to count as gone for good. The others then order totally without them.

This gives up:
- Total messages that only these nodes had completed. Their clients may have seen them, in an order that
  the other nodes will not keep.
- All data that only these nodes had, in every order.
- If one of them still runs where this part of the cluster cannot see it, both parts order totally without each other.
  On a tree subscribers then see total messages in different orders; on a cube those of one part are given up, and
  subscribers are told of it. Make sure that none of them runs.

A node that can be started again with its data directory needs none of this: it returns with its vote."""


@running.with_access()
def dismiss(
    brokers: Annotated[
        list[int] | None,
        typer.Argument(metavar="NODE...", help="Identifiers of nodes that are gone for good.", show_default=False),
    ] = None,
    *,
    access: running.ServerAccess,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else; needs --yes.")
    ] = False,
) -> None:
    """Let a tree or a cube continue without nodes that do not exist any more.

    Total order needs a majority of the council. Nodes that crash keep their votes and return with them. Nodes whose
    disks are lost do not return; if they are half of the council or more, an operator must dismiss them. Without
    arguments the command lists the unreachable nodes. On a cube each node has the identifier of its first incarnation.

    Example: antiphon dismiss --servers 10.0.0.1:7400    antiphon dismiss 4 5 6 7 --servers 10.0.0.1:7400
    """
    council = antiphon.run(council_at(access))
    gone = sorted(set(brokers or ()))
    if not gone:
        show(council, json)
        return
    there = sorted(set(gone) - set(council["missing"]))
    if there:
        raise UsageError(f"node {there[0]} is reachable, or is not in the council; choose from {council['missing']}")
    if not yes and json:
        raise UsageError("--json cannot ask for confirmation; add --yes")
    if not json:
        typer.echo(WHAT_IS_GIVEN_UP.format(named=", ".join(str(broker) for broker in gone)))
    if not yes and not typer.confirm("Continue without them?"):
        raise typer.Exit(1)
    after = antiphon.run(tell(access, gone))
    show(after, json)


async def council_at(access: running.ServerAccess) -> dict[str, Any]:
    """The council, as a broker knows it."""
    async with await running.connect_to_any(access) as client:
        return council_in(await client.status())


async def tell(access: running.ServerAccess, gone: list[int]) -> dict[str, Any]:
    """Tell a broker which nodes are gone, and wait for the new council."""
    async with await running.connect_to_any(access) as client:
        answer = await client._live.request(lambda number: DismissRequest(number, gone))
        assert isinstance(answer, DismissResponse), "a node answers a request with its response"
        if answer.error:
            raise PeerError(answer.error)
        council: dict[str, Any] = {}
        for _ in range(50):
            council = council_in(await client.status())
            if not set(gone) & set(council["council"]):
                break
            await asyncio.sleep(0.1)
        return council


def council_in(status: dict[str, Any]) -> dict[str, Any]:
    """The council in a status."""
    if "council" not in status:
        raise UsageError(
            "this node belongs neither to a tree with a quorum nor to a cube; nodes can be dismissed only there"
        )
    return {name: status[name] for name in ("council", "missing", "orders_totally")}


def show(council: dict[str, Any], json: bool) -> None:
    """Print the state of the council."""
    if json:
        output.print_json(council)
        return
    members = ", ".join(str(broker) for broker in council["council"])
    missing = ", ".join(str(broker) for broker in council["missing"]) or "none"
    can = "can" if council["orders_totally"] else "cannot"
    typer.echo(f"council: {members}; cannot be reached: {missing}; this part of the cluster {can} order totally")
