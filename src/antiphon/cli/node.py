"""``antiphon node``: one node of a cluster, from flags or a TOML file, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from antiphon.cli import output, running
from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.api.lifecycle import Starting
    from antiphon.mqtt import MqttDoor
    from antiphon.mqtt.settings import MqttSettings
    from antiphon.node.handle import Node
    from antiphon.node.settings import Settings

LogLevel = Literal["debug", "info", "warning", "error"]


TABLE_FLAGS = [f"--{name}" for name, fabric in FABRICS.items() if fabric.has_table]
"""The flags for the file with the options of a fabric: each has the name of its fabric."""


def setting(metavar: str, meaning: str, *flags: str) -> Any:
    """A flag for the field of :class:`antiphon.node.settings.Settings` with the same name."""
    return typer.Option(*flags, metavar=metavar, help=meaning, show_default=False, rich_help_panel="Settings")


Number = int | None
Seconds = float | None
Word = str | None


def node(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings with the names of the flags; flags win.", show_default=False),
    ] = None,
    listen: Annotated[
        Word, setting("HOST:PORT", "The address to listen at; port 0, the default, takes a free one.")
    ] = None,
    advertise: Annotated[Word, setting("HOST:PORT", "The address that other nodes and clients use.")] = None,
    join: Annotated[
        list[str] | None, setting("HOST:PORT", "A node of the cluster; repeatable. None: found one.")
    ] = None,
    data: Annotated[Word, setting("DIRECTORY", "The directory of the log.")] = None,
    durability: Annotated[
        Word, setting("disk|memory", "When a message is accepted; disk is the default with --data.")
    ] = None,
    fabric: Annotated[Word, setting("|".join(FABRICS), f"How nodes are connected; {DEFAULT_FABRIC}.")] = None,
    table: Annotated[
        Word, setting("FILE.toml", "The options of the fabric, the same file for each node.", *TABLE_FLAGS)
    ] = None,
    order: Annotated[
        Word, setting("none|fifo|causal|total", "The order of messages that do not name one; the default is causal.")
    ] = None,
    cluster: Annotated[
        Word, setting("NAME", "Nodes of different clusters do not talk; the default is antiphon.")
    ] = None,
    retention_bytes: Annotated[
        Number, setting("BYTES", "The size of the log of each topic; the default is unlimited.")
    ] = None,
    retention_seconds: Annotated[Seconds, setting("S", "How long messages are kept; the default is for ever.")] = None,
    keep: Annotated[
        list[str] | None,
        setting("TOPIC", "A topic or pattern of which the node is a member from the start; repeatable."),
    ] = None,
    spaces: Annotated[
        list[str] | None,
        setting("NAME=TOPICS", "A space: shop=orders.>,payments.> has causal order across them; repeatable."),
    ] = None,
    space_names: Annotated[
        Number, setting("N", "The most others that a message of a space names before publishers wait; 16384.")
    ] = None,
    window: Annotated[Number, setting("N", "Batches in transit per topic before publishers wait; 64.")] = None,
    window_bytes: Annotated[Number, setting("BYTES", "The same in bytes; 16 MiB.")] = None,
    pending_bytes: Annotated[
        Number, setting("BYTES", "Bytes that wait for the disk before publishers wait; 64 MiB.")
    ] = None,
    backlog_bytes: Annotated[
        Number, setting("BYTES", "Bytes of all clients that wait before they do; 256 MiB.")
    ] = None,
    gather_seconds: Annotated[Seconds, setting("S", "How long a message waits for others to share a frame; 0.")] = None,
    aggregate: Annotated[
        bool | None, setting("", "Refused for live nodes: a cluster that aggregates stalls when a node fails.")
    ] = None,
    identifier: Annotated[Number, setting("N", "On a cube: the identifier to ask for, if it is free.")] = None,
    maximum_nodes: Annotated[Number, setting("N", "The most nodes in the cluster; 1024.")] = None,
    maximum_clients: Annotated[Number, setting("N", "The most clients of this node; 1024.")] = None,
    maximum_topics: Annotated[Number, setting("N", "The most topics that clients may create; 65536.")] = None,
    client_topics: Annotated[Number, setting("N", "The most topics of a client; 1024.")] = None,
    join_seconds: Annotated[Seconds, setting("S", "How long to try to join the cluster; 15.")] = None,
    leave_seconds: Annotated[Seconds, setting("S", "How long to wait for an orderly leave; 10.")] = None,
    lost_seconds: Annotated[
        Seconds, setting("S", "How long another node may be silent before it counts as lost; 5.")
    ] = None,
    forget_seconds: Annotated[Seconds, setting("S", "How long a cube waits for an unreachable node; 600.")] = None,
    metrics: Annotated[Word, setting("HOST:PORT", "The address of /metrics, /status, /health and /ready.")] = None,
    tls_certificate: Annotated[Word, setting("FILE.pem", "The certificate of this node (antiphon certs).")] = None,
    tls_key: Annotated[Word, setting("FILE.key", "Its key.")] = None,
    tls_authority: Annotated[
        Word, setting("FILE.pem", "The authority that signs the certificates of nodes and clients.")
    ] = None,
    tls_revoked: Annotated[
        Word, setting("FILE.pem", "Revoked certificates (antiphon certs revoke); read again when the file changes.")
    ] = None,
    rights: Annotated[Word, setting("FILE.toml", "The rights of clients; read again when the file changes.")] = None,
    audit: Annotated[
        Word, setting("FILE", "The audit log: who connected, subscribed, was refused, hit a limit.")
    ] = None,
    audit_bytes: Annotated[Number, setting("BYTES", "The size at which the audit log is rotated; 64 MiB.")] = None,
    handshake_seconds: Annotated[
        Seconds, setting("S", "How long a new connection may take to identify itself; 5.")
    ] = None,
    frame_seconds: Annotated[
        Seconds, setting("S", "How long a frame that has begun may bring less than 64 KiB per second; 10.")
    ] = None,
    insecure: Annotated[
        bool | None,
        setting("", "Listen without TLS where other machines can connect: each of them may do everything."),
    ] = None,
    trace: Annotated[Word, setting("FILE", "A .parquet or .arrow file for the trace of this node.")] = None,
    mqtt: Annotated[
        Word,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve MQTT 5 and 3.1.1 here, with TLS if the node has certificates; 1883 is the usual port.",
            show_default=False,
        ),
    ] = None,
    mqtt_websocket: Annotated[
        Word,
        typer.Option(
            metavar="HOST:PORT", help="Serve MQTT over WebSocket here; 8083 is the usual port.", show_default=False
        ),
    ] = None,
    mqtt_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Pages of this origin (https://example.com) may connect over WebSocket; * for all. Repeatable.",
            show_default=False,
        ),
    ] = None,
    console: Annotated[
        Word,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve a page about the cluster here; 127.0.0.1:7480 is the usual address.",
            show_default=False,
        ),
    ] = None,
    near: Annotated[
        bool,
        typer.Option(
            "--near", help="On a cube: measure how far nodes are, and ask for an identifier next to near ones."
        ),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="The lowest level to log, on standard error.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    until_input_ends: Annotated[
        bool, typer.Option("--until-input-ends", help="Leave when standard input ends, as under a supervisor.")
    ] = False,
    join_when_told: Annotated[
        bool,
        typer.Option("--join-when-told", help="Join the cluster when a line comes on standard input.", hidden=True),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Announce the ready node as one line of JSON.")] = False,
) -> None:
    """Run one node until it is told to stop (SIGTERM or Ctrl-C); it then leaves the cluster in an orderly way.

    The node prints its address when it has joined the cluster. On SIGHUP it reads the rights of clients and
    the certificates again.
    docs/reference/settings.md describes the settings.

    Example: antiphon node --listen 127.0.0.1:7401 --join 127.0.0.1:7400 --data ./data-1
    """
    import antiphon
    from antiphon.node.settings import Settings, read_settings, settings_from
    from antiphon.runtime.logging import write_logs

    given = locals()
    flags = {name: given[name] for name in Settings.__struct_fields__ if given[name] is not None}
    if spaces is not None:
        flags["spaces"] = spaces_in(spaces)
    doors: dict[str, Any] = {}
    if config is None:
        settings = settings_from(flags, "antiphon node")
    else:
        settings = read_settings(config, {"mqtt": doors}, **flags)
    told = {"listen": mqtt, "websocket": mqtt_websocket, "origins": mqtt_origin}
    doors |= {name: value for name, value in told.items() if value is not None}
    write_logs(log_level, log_json)
    antiphon.run(serve(settings, json, until_input_ends, join_when_told, checked_mqtt(doors), console, near))


def checked_mqtt(values: dict[str, Any]) -> MqttSettings | None:
    """The settings of the door for MQTT clients; None if there is to be none."""
    if not values:
        return None
    from antiphon.mqtt.settings import settings_of

    return settings_of(values)


def spaces_in(flags: list[str]) -> dict[str, list[str]]:
    """The spaces that flags name."""
    found: dict[str, list[str]] = {}
    for flag in flags:
        name, equals, topics = flag.partition("=")
        if not name or not equals or not topics:
            raise UsageError(f"--spaces takes a name and topics, such as shop=orders.>,payments.>; not {flag!r}")
        found.setdefault(name, []).extend(topics.split(","))
    return found


async def begin(settings: Settings, near: bool = False) -> Node:
    """Start a node; ``near`` if it is to ask for an identifier next to near nodes."""
    import antiphon

    if near:
        from antiphon.cli.places.nearby import with_near_identifier

        settings = await with_near_identifier(settings)
    return await antiphon.start(settings)


async def serve(
    settings: Settings,
    as_json: bool,
    until_input_ends: bool,
    join_when_told: bool,
    mqtt: MqttSettings | None,
    console: str | None,
    near: bool,
) -> None:
    """Serve from start to leave."""
    stop = running.until_signal()
    standard_input = running.StandardInput() if until_input_ends or join_when_told else None
    if standard_input is not None and join_when_told and not await running.first_of(standard_input.told(), stop):
        return
    if standard_input is not None and until_input_ends:
        watching = asyncio.ensure_future(standard_input.ended())
        watching.add_done_callback(lambda _: stop.set())
    started = await running.first_of(begin(settings, near), stop)
    if started is None:
        return
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, started._live.read_again)
    try:
        async with AsyncExitStack() as doors:
            door = None if mqtt is None else await doors.enter_async_context(open_mqtt(started, mqtt))
            page = "" if console is None else await doors.enter_async_context(open_console(started, console))
            announce(started, as_json, door, page)
            await running.first_of(started.until_stopped(), stop)
    finally:
        await started.close()


def open_mqtt(node: Node, settings: MqttSettings) -> Starting[MqttDoor]:
    """Serve MQTT clients at a node."""
    from antiphon.api.lifecycle import Starting
    from antiphon.mqtt import MqttDoor

    return Starting(MqttDoor(node._live, settings).open())


@asynccontextmanager
async def open_console(node: Node, address: str) -> AsyncIterator[str]:
    """Serve the console of the cluster at a node; the address of the page."""
    from antiphon.console.live.site import serve_console

    async with serve_console(node, address) as server:
        yield server.url


def announce(started: Node, as_json: bool, door: MqttDoor | None, console_url: str) -> None:
    """Announce the address of the node, for people or for programs."""
    about: dict[str, object] = {"node": started.identifier, "address": started.address}
    if started.metrics_address:
        about["metrics"] = started.metrics_address
    if door is not None and door.address:
        about["mqtt"] = door.address
    if door is not None and door.websocket_address:
        about["mqtt_websocket"] = door.websocket_address
    if console_url:
        about["console"] = console_url
    if as_json:
        output.print_line(about)
    else:
        served = f", metrics at http://{started.metrics_address}/metrics" if started.metrics_address else ""
        served += f", MQTT at {about['mqtt']}" if "mqtt" in about else ""
        served += f", MQTT over WebSocket at {about['mqtt_websocket']}" if "mqtt_websocket" in about else ""
        served += f", console at {console_url}" if console_url else ""
        print(f"node {started.identifier} is ready at {started.address}{served}", flush=True)
