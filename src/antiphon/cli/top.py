"""``antiphon top``: shows the activity of the nodes of a cluster, per node and per topic."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output, running
from antiphon.kernel.errors import AntiphonError, PeerError, UsageError

if TYPE_CHECKING:
    from antiphon.client.handle import Client

ANSWER_SECONDS = 5.0
TOPICS_SHOWN = 20
"""The most topics on a terminal; the lines of nodes sum up the rest, and the JSON has all of them."""

CLIENTS_SHOWN = 10
"""The most clients at quotas on a terminal."""

# The keys are quantities; docs/metrics.md and /metrics of a node define them.
COUNTERS = {
    "delivered_messages": "delivered_per_second",
    "published": "published_per_second",
    "delivered_bytes": "bytes_per_second",
    "publisher_waits": "publisher_waits_per_second",
}
GAUGES = ("lag", "dropped", "unsent")


class Figures(msgspec.Struct):
    """The figures of one topic at one node, or of all its topics: rates over the last interval, and present values."""

    delivered_per_second: float = 0.0
    published_per_second: float = 0.0
    bytes_per_second: float = 0.0
    publisher_waits_per_second: float = 0.0
    lag: int = 0
    dropped: int = 0
    unsent: int = 0


class ClientFigures(msgspec.Struct):
    """The use of one client's quotas at one node, and how often it was refused or slowed since the last picture."""

    used: dict[str, int]
    bounds: dict[str, int]
    hits: dict[str, int]

    def at_quotas(self) -> list[str]:
        """The quotas at which the client is now."""
        full = {quota for quota, bound in self.bounds.items() if self.used[quota] >= bound}
        return sorted(full | self.hits.keys())


class ConsumerFigures(msgspec.Struct):
    """One named consumer, at the node that leads the history of its topic."""

    topic: str
    consumer: str
    lag: int
    handed_out: int
    members: int
    redelivered: int
    missed: int


class NodeFigures(msgspec.Struct):
    """One node."""

    node: int
    address: str
    total: Figures
    topics: dict[str, Figures]
    clients: int
    bytes_uncommitted: int
    bytes_unwritten: int
    troubles: list[str]
    quotas: dict[str, ClientFigures] = {}
    """The clients that have quotas."""
    consumers: list[ConsumerFigures] = []
    """The consumers of the topics whose histories the node leads."""
    round_trips_ms: dict[str, float] = {}
    """The round trips to other nodes, by their addresses."""


class Picture(msgspec.Struct):
    """All nodes at one moment; ``unreachable`` are the addresses of nodes that did not answer."""

    seconds: float
    nodes: list[NodeFigures]
    unreachable: list[str]


@running.with_access()
def top(
    access: running.ServerAccess,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="The time between two pictures of the cluster.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Stop after the first picture.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per picture and line.")] = False,
) -> None:
    """Watch a cluster: rates, lag, drops, waiting publishers and troubles of every node and topic, until Ctrl-C.

    It asks one node for the others. On a terminal it redraws the tables with every picture; elsewhere each picture is a
    few lines.

    Examples: antiphon top    antiphon top --once --json
    """
    import antiphon

    if not interval > 0:
        raise UsageError(f"an interval is positive, not {interval:g} seconds")
    antiphon.run(watch(access, interval, once, json))


async def watch(access: running.ServerAccess, interval: float, once: bool, as_json: bool) -> None:
    """Take pictures until a signal."""
    stop = running.until_signal()
    watcher = Watcher(access)
    try:
        if output.console.is_terminal and not as_json and not once:
            with Live(console=output.console, screen=True, auto_refresh=False) as screen:
                await running.first_of(
                    look(watcher, interval, once, lambda p: screen.update(drawn(p), refresh=True)), stop
                )
        else:
            await running.first_of(look(watcher, interval, once, output.print_line if as_json else print_plain), stop)
    finally:
        await watcher.close()


async def look(watcher: Watcher, interval: float, once: bool, show: Any) -> None:
    """Take a picture per interval and show it."""
    await watcher.picture()
    while True:
        await asyncio.sleep(interval)
        show(await watcher.picture())
        if once:
            return


class Watcher:
    """Asks all nodes for their figures, and keeps the last ones to compute rates."""

    def __init__(self, access: running.ServerAccess) -> None:
        self._access = access
        self._clients: dict[str, Client] = {}
        self._unreachable: set[str] = set()
        self._before: dict[tuple[int, str], dict[str, Any]] = {}
        self._hits_before: dict[tuple[int, str], dict[str, int]] = {}
        self._looked_at = 0.0

    async def close(self) -> None:
        """End all connections."""
        for client in self._clients.values():
            await client.abandon()

    async def picture(self) -> Picture:
        """The nodes that answer now. Rates are those since the last picture; the first picture has none."""
        if not self._clients:
            first = await running.connect_to_any(self._access)
            self._clients[first.address] = first
        statuses = await self._ask(list(self._clients))
        unknown = {peer["address"] for status in statuses for peer in status["peers"]} - self._clients.keys()
        answers = await asyncio.gather(*(self._connect(address) for address in sorted(unknown)))
        self._unreachable = {address for address, answer in zip(sorted(unknown), answers, strict=True) if not answer}
        statuses += await self._ask([address for address in sorted(unknown) if address in self._clients])
        if not statuses:
            raise PeerError("no node of the cluster answers any more; check that it runs (antiphon up)")
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at if self._looked_at else 0.0, now
        nodes = [self._figures(status, seconds) for status in sorted(statuses, key=lambda each: int(each["node"]))]
        return Picture(seconds, nodes, sorted(self._unreachable))

    async def _connect(self, address: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._clients[address] = await running.connect_to_any(replace(self._access, servers=address))
        except (AntiphonError, TimeoutError):
            return False
        return True

    async def _ask(self, addresses: list[str]) -> list[dict[str, Any]]:
        answers = await asyncio.gather(*(self._status(address) for address in addresses))
        return [answer for answer in answers if answer is not None]

    async def _status(self, address: str) -> dict[str, Any] | None:
        from antiphon.kernel.errors import DeniedError

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._clients[address].status()
        except DeniedError:
            # This is not a failure of the node.
            raise
        except (AntiphonError, TimeoutError):
            await self._clients.pop(address).abandon()
            return None

    def _figures(self, status: dict[str, Any], seconds: float) -> NodeFigures:
        node = int(status["node"])
        topics = {}
        for name, now in sorted(status["topics"].items()):
            # All figures of a new topic are from this interval.
            before = self._before.get((node, name), {})
            rates = {
                rate: max(0, now[counter] - before.get(counter, 0)) / seconds if seconds > 0 else 0.0
                for counter, rate in COUNTERS.items()
            }
            topics[name] = msgspec.convert({**rates, **{gauge: now[gauge] for gauge in GAUGES}}, Figures)
            self._before[node, name] = now
        return NodeFigures(
            node,
            str(status["address"]),
            summed(list(topics.values())),
            topics,
            int(status["clients"]),
            int(status["bytes_uncommitted"]),
            int(status["bytes_unwritten"]),
            list(status["troubles"]),
            {name: self._quotas(node, name, figures) for name, figures in status.get("quotas", {}).items()},
            msgspec.convert(status.get("consumers", []), list[ConsumerFigures]),
            # Nodes of earlier versions do not tell them.
            {each["address"]: each["microseconds"] / 1000 for each in status.get("round_trips", [])},
        )

    def _quotas(self, node: int, name: str, figures: dict[str, Any]) -> ClientFigures:
        # Nodes of earlier versions do not tell the bounds.
        bounds = figures.get("bounds", {})
        before, now = self._hits_before.get((node, name), {}), figures["hits"]
        self._hits_before[node, name] = now
        hits = {quota: count - before.get(quota, 0) for quota, count in now.items() if count > before.get(quota, 0)}
        return ClientFigures({quota: figures[quota] for quota in bounds}, bounds, hits)


def summed(figures: list[Figures]) -> Figures:
    """All topics of a node together; the lag is that of the slowest subscription."""
    sums = {name: sum(getattr(each, name) for each in figures) for name in Figures.__struct_fields__}
    return msgspec.convert({**sums, "lag": max((each.lag for each in figures), default=0)}, Figures)


FIGURE_HEADINGS = ("delivered/s", "published/s", "MB/s", "waits/s", "lag", "dropped", "unsent")


def figure_cells(figures: Figures) -> list[str]:
    """Figures as text."""
    return [
        f"{figures.delivered_per_second:,.0f}",
        f"{figures.published_per_second:,.0f}",
        f"{figures.bytes_per_second / 1e6:,.2f}",
        f"{figures.publisher_waits_per_second:,.0f}",
        f"{figures.lag:,}",
        f"{figures.dropped:,}",
        f"{figures.unsent:,}",
    ]


def distances_of(node: NodeFigures) -> str:
    """The round trips to the nearest and to the farthest of the other nodes."""
    if not node.round_trips_ms:
        return "unknown"
    return f"{min(node.round_trips_ms.values()):.1f} to {max(node.round_trips_ms.values()):.1f}"


def troubles_in(picture: Picture) -> list[str]:
    """The troubles of all nodes."""
    troubles = [f"node {node.node}: {trouble}" for node in picture.nodes for trouble in node.troubles]
    return troubles + [f"{address} does not answer" for address in picture.unreachable]


def at_quotas_in(picture: Picture) -> list[str]:
    """The clients that are at a quota, at all nodes."""
    return [
        f"node {node.node}: client {name} is at its quota {quota}"
        + (f" ({each.used[quota]:,} of {each.bounds[quota]:,})" if quota in each.bounds else "")
        + (f", {each.hits[quota]:,} times refused or slowed" if quota in each.hits else "")
        for node in picture.nodes
        for name, each in sorted(node.quotas.items())
        for quota in each.at_quotas()
    ]


CONSUMER_HEADINGS = ("topic", "consumer", "lag", "handed out", "members", "came back", "missed")


def consumers_in(picture: Picture) -> list[ConsumerFigures]:
    """The named consumers, those that are furthest behind first."""
    return sorted((each for node in picture.nodes for each in node.consumers), key=lambda each: -each.lag)


def consumer_cells(each: ConsumerFigures) -> list[str]:
    """A consumer as text."""
    numbers = (each.lag, each.handed_out, each.members, each.redelivered, each.missed)
    return [each.topic, each.consumer, *(f"{number:,}" for number in numbers)]


def drawn(picture: Picture) -> Group:
    """A picture for a terminal."""
    nodes = Table(title=f"{len(picture.nodes)} nodes", title_justify="left", box=None, pad_edge=False)
    nodes.add_column("node")
    nodes.add_column("address")
    for heading in (*FIGURE_HEADINGS, "clients", "uncommitted", "unwritten", "round trips, ms"):
        nodes.add_column(heading, justify="right")
    for node in picture.nodes:
        sizes = [f"{node.clients}", f"{node.bytes_uncommitted:,}", f"{node.bytes_unwritten:,}"]
        nodes.add_row(str(node.node), node.address, *figure_cells(node.total), *sizes, distances_of(node))
    topics = Table(title="\nbusiest topics", title_justify="left", box=None, pad_edge=False)
    topics.add_column("topic")
    topics.add_column("node")
    for heading in FIGURE_HEADINGS:
        topics.add_column(heading, justify="right")
    found = [(name, node.node, figures) for node in picture.nodes for name, figures in node.topics.items()]
    found.sort(key=lambda each: (-each[2].delivered_per_second, each[0], each[1]))
    for name, number, figures in found[:TOPICS_SHOWN]:
        topics.add_row(escape(name), str(number), *figure_cells(figures))
    consumers = Table(title="\nconsumers that are furthest behind", title_justify="left", box=None, pad_edge=False)
    for heading in CONSUMER_HEADINGS:
        consumers.add_column(heading, justify="left" if heading in ("topic", "consumer") else "right")
    for each in consumers_in(picture)[:TOPICS_SHOWN]:
        consumers.add_row(*(escape(cell) for cell in consumer_cells(each)))
    limited = [f"[yellow]{escape(line)}[/]" for line in at_quotas_in(picture)[:CLIENTS_SHOWN]]
    lines = limited + [f"[bold red]{escape(trouble)}[/]" for trouble in troubles_in(picture)]
    return Group(nodes, topics, *([consumers] if consumers.rows else []), *lines)


def print_plain(picture: Picture) -> None:
    """A picture as plain lines."""
    for node in picture.nodes:
        words = ", ".join(
            f"{cell} {name}" for name, cell in zip(FIGURE_HEADINGS, figure_cells(node.total), strict=True)
        )
        print(
            f"node {node.node} {node.address}: {words}, {node.clients} clients, "
            f"{node.bytes_uncommitted:,} bytes uncommitted, {node.bytes_unwritten:,} unwritten, "
            f"round trips in ms {distances_of(node)}"
        )
        for name, figures in node.topics.items():
            words = ", ".join(
                f"{cell} {name}" for name, cell in zip(FIGURE_HEADINGS, figure_cells(figures), strict=True)
            )
            print(f"  {name}: {words}")
    for each in consumers_in(picture):
        words = ", ".join(
            f"{cell} {name}" for name, cell in list(zip(CONSUMER_HEADINGS, consumer_cells(each), strict=True))[2:]
        )
        print(f"consumer {each.consumer} of {each.topic}: {words}")
    for line in at_quotas_in(picture):
        print(line)
    for trouble in troubles_in(picture):
        print(f"trouble: {trouble}")
    print(flush=True)
