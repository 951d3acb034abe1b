"""``antiphon up``: runs a local cluster of processes on loopback, until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output, running
from antiphon.cli.node import LogLevel
from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.kernel.message import OrderName
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file, free_ports

CONSOLE_PORT = 7480
ALL_GONE = "all nodes have ended"


def up(
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, max=64, help="The number of nodes.")] = 8,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Keep logs in DIRECTORY/node-0 and so on.", show_default=False),
    ] = None,
    durability: Annotated[
        Literal["disk", "memory"] | None,
        typer.Option(help="When a message is accepted; disk is the default with --data.", show_default=False),
    ] = None,
    fabric: Annotated[
        str,
        typer.Option(
            metavar="|".join(FABRICS),
            help=f"How they are connected: {', '.join(each.shape for each in FABRICS.values())}.",
        ),
    ] = DEFAULT_FABRIC,
    order: Annotated[OrderName, typer.Option(help="The order of messages that do not name one.")] = "causal",
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help=f"The port of the first node; the others follow. 0 takes any. By default {running.DEFAULT_PORT}, or "
            "the next free ones.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve metrics, each node at a port of its own.")] = False,
    mqtt: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="Serve MQTT: the port of the first node, and the others follow. 0 takes any.",
            show_default=False,
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Serve a page about the cluster, at 127.0.0.1:7480 or a free port.")
    ] = False,
    tls_certificate: running.TlsCertificate = None,
    tls_key: running.TlsKey = None,
    tls_authority: running.TlsAuthority = None,
    rights: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="The rights of clients.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write traces to DIRECTORY/node-0.parquet ...", show_default=False),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="The lowest level that nodes log, on standard error.")
    ] = "warning",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when all are up.")] = False,
) -> None:
    """Run a cluster of local processes until Ctrl-C or SIGTERM; all nodes then leave in an orderly way.

    Nodes are numbered from 0: in the table, in the names of directories and before the lines that they log. If one
    ends, the others continue without it.

    Examples, in three terminals: antiphon up -n 4 --data ./data    antiphon sub room    antiphon pub room hello
    """
    import antiphon
    from antiphon.api.publisher import check_order
    from antiphon.node.settings import choose

    check_order(order)
    choose("fabric", fabric, tuple(FABRICS))
    if durability == "disk" and data is None:
        raise UsageError("durability 'disk' needs a place: give a data directory with --data")
    if port != 0:
        base = free_ports(running.DEFAULT_PORT if port is None else port, nodes, port is not None)
    else:
        # Founders know each other's ports from the start.
        base = any_ports(nodes) if FABRICS[fabric].needs_addresses else 0
    settings = ["--order", order, "--log-level", log_level]
    settings += [] if durability is None else ["--durability", durability]
    settings += ["--log-json"] if log_json else []
    files = {"--tls-certificate": tls_certificate, "--tls-key": tls_key, "--tls-authority": tls_authority}
    for flag, path in {**files, "--rights": rights}.items():
        settings += [] if path is None else [flag, str(path)]
    page = f"127.0.0.1:{free_ports(CONSOLE_PORT, 1, False)}" if console else None
    with TemporaryDirectory(prefix="antiphon-") as directory:
        table = founders_file(Path(directory), fabric, nodes, base)
        plan = Plan(nodes, base, data, trace, metrics, mqtt, page, settings, table, fabric)
        antiphon.run(keep_up(plan, json, log_json))


async def keep_up(plan: Plan, as_json: bool, log_json: bool) -> None:
    """Run the cluster until the end of the last process."""
    stop = running.until_signal()
    gone = asyncio.Event()

    def ended(member: Member) -> None:
        output.complain(
            f"node {member.index} at {member.address} ended with exit code {member.process.returncode}; "
            "the others continue without it"
        )
        if not cluster.alive:
            gone.set()

    cluster = ProcessCluster(plan, relay_json if log_json else relay_text, ended)
    try:
        await running.first_of(cluster.start(), stop)
        if not stop.is_set():
            announce(cluster, as_json)
            await running.first_of(gone.wait(), stop)
    finally:
        killed = await cluster.stop()
    if killed:
        raise PeerError(f"the processes {', '.join(map(str, killed))} did not leave in time and were killed")
    if gone.is_set():
        raise PeerError(ALL_GONE)


def announce(cluster: ProcessCluster, as_json: bool) -> None:
    """Announce the addresses of the nodes, for people or for programs."""
    members = cluster.members
    servers = ",".join(member.address for member in members)
    if as_json:
        nodes = [{**member.about, "process": member.index, "pid": member.process.pid} for member in members]
        output.print_line({"nodes": nodes, "servers": servers})
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "address", "process"):
        table.add_column(heading)
    # A node that restarts with its data may have a new identifier, which the others use.
    has_others = any(member.about["node"] != member.index for member in members)
    if has_others:
        table.add_column("identifier")
    has_metrics = any("metrics" in member.about for member in members)
    if has_metrics:
        table.add_column("metrics")
    has_mqtt = any("mqtt" in member.about for member in members)
    if has_mqtt:
        table.add_column("mqtt")
    for member in members:
        served = [f"http://{member.about['metrics']}/metrics"] if has_metrics else []
        served += [str(member.about["mqtt"])] if has_mqtt else []
        identifier = [str(member.about["node"])] if has_others else []
        table.add_row(str(member.index), member.address, str(member.process.pid), *identifier, *served)
    output.console.print(table)
    if "console" in members[0].about:
        print(f"The console is at {members[0].about['console']}", flush=True)
    if members[0].address == running.DEFAULT_SERVERS:
        print("antiphon pub, sub and top find it by default; Ctrl-C ends it.", flush=True)
    else:
        print(f"export {running.SERVERS_VARIABLE}={servers}", flush=True)
        print("With this line antiphon pub, sub and top find it; Ctrl-C ends it.", flush=True)


def relay_text(index: int, line: str) -> None:
    """Print a log line of a node, with its number."""
    print(f"{index} | {line}", file=sys.stderr, flush=True)


def relay_json(index: int, line: str) -> None:
    """The same for programs; a line that is not JSON (a crash of the interpreter) becomes an event."""
    try:
        values = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        values = {"event": line}
    print(msgspec.json.encode({"process": index, **values}).decode(), file=sys.stderr, flush=True)
