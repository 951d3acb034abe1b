"""A cluster inside one test: real nodes and clients in this process, on a virtual clock, with faults to order."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from antiphon.api.lifecycle import Starting
from antiphon.client.handle import Client, connect
from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.node.handle import Node, start
from antiphon.node.local_cluster import free_addresses
from antiphon.testing.network import OUTSIDE, PLACE, ClusterNetwork
from antiphon.testing.tallies import AcceptedProtocol
from antiphon.testing.virtual_loop import VirtualTimeLoop, virtual_clocks
from antiphon.testing.wires import Wire
from antiphon.transport.links import split_address

TIMEOUT_SECONDS: Final = 600.0
"""How much virtual time a test may take."""

Result = TypeVar("Result")
Closing = TypeVar("Closing", Node, Client)


class ClusterLoop(VirtualTimeLoop):
    """The event loop of a cluster: it opens connections over the network of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.network = ClusterNetwork(self)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect as the network allows it."""
        network, source, target = self.network, PLACE.get(OUTSIDE), self.network.place_at(port)
        if target == OUTSIDE:
            # Nothing of this test listens there: its delays and cuts say nothing about it.
            return await super().create_connection(protocol_factory, host, port, **options)
        network.check_alive(source)
        places = frozenset({source, target})
        await network.until_reachable(places)
        network.check_alive(source)
        protocol = protocol_factory()
        self.tallies.connecting += 1
        try:
            _, wire = await super().create_connection(
                lambda: Wire(network, self.tallies, places, protocol), host, port, **options
            )
        finally:
            self.tallies.connecting -= 1
        return wire.near, protocol

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], sock: socket.socket, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Accept a connection, and count what comes over it."""
        tally = self.tallies.of(sock.getpeername()[1])
        return await super().connect_accepted_socket(
            lambda: AcceptedProtocol(tally, protocol_factory()), sock, **options
        )


class Cluster:
    """The nodes and clients of a test, and what may happen to them.

    Nodes have numbers from 0, in the order in which they were started; they keep them through crashes. Clients are
    named by the call that connects them. Times are virtual: ``await asyncio.sleep(3600)`` takes a moment.
    """

    def __init__(self, loop: ClusterLoop, data: Path, settings: dict[str, Any]) -> None:
        self._network = loop.network
        self._data = data
        self._settings = settings
        self._is_durable = bool(settings.pop("durable", False))
        self.nodes: list[Node] = []
        """The nodes by number; a crashed one stays here until it is restarted."""
        self._addresses: list[str] = []
        self._is_up: list[bool] = []
        self._clients: list[Client] = []

    # Nodes.

    async def found(self, count: int) -> None:
        """Start the first nodes."""
        self._addresses = free_addresses(count)
        policy = FABRICS[self._settings.get("fabric", DEFAULT_FABRIC)].membership
        if policy.has_founders:
            fabric = self._settings["fabric"]
            self._settings[fabric] = {"quorum": True, **self._settings.get(fabric, {}), "brokers": self._addresses}
            self.nodes = list(await asyncio.gather(*(self._start(number, ()) for number in range(count))))
            self._is_up = [True] * count
            return
        for number in range(count):
            self.nodes.append(await self._start(number, self._addresses[:number][:1]))
            self._is_up.append(True)

    async def add_node(self) -> Node:
        """Start another node, which joins the others."""
        number = len(self._addresses)
        others = [address for address, is_up in zip(self._addresses, self._is_up, strict=True) if is_up]
        self._addresses += free_addresses(1)
        self.nodes.append(await self._start(number, others))
        self._is_up.append(True)
        return self.nodes[-1]

    async def crash(self, number: int) -> None:
        """End a node as ``kill -9`` does: its connections break, and what was not on its disk is gone."""
        self._check_up(number)
        self._is_up[number] = False
        self._network.dies(place_of(number))
        await self.nodes[number].abandon()

    async def stop(self, number: int) -> None:
        """Stop a node in an orderly way."""
        self._check_up(number)
        self._is_up[number] = False
        await self.nodes[number].close()

    async def restart(self, number: int) -> Node:
        """Start a node again that was crashed or stopped, with its data if the cluster is ``durable``."""
        if self._is_up[number]:
            raise UsageError(f"node {number} is running; crash or stop it first")
        others = [self._addresses[each] for each, is_up in enumerate(self._is_up) if is_up]
        self.nodes[number] = await self._start(number, others)
        self._is_up[number] = True
        return self.nodes[number]

    async def _start(self, number: int, join: Sequence[str]) -> Node:
        values = {**self._settings, "listen": self._addresses[number], "join": list(join)}
        if self._is_durable:
            values["data"] = str(self._data / f"node-{number}")
        self._network.listens(place_of(number), split_address(self._addresses[number])[1])
        return await at_place(place_of(number), begin(start(**values)))

    def _check_up(self, number: int) -> None:
        if not 0 <= number < len(self.nodes) or not self._is_up[number]:
            raise UsageError(f"node {number} does not run; running: {self.running}")

    @property
    def running(self) -> list[int]:
        """The numbers of the nodes that run."""
        return [number for number, is_up in enumerate(self._is_up) if is_up]

    # Clients.

    async def connect(self, *numbers: int, name: str = "", **options: Any) -> Client:
        """Connect a client to one of these nodes, the first that answers; without numbers, to any that runs.

        The client is closed when the test ends. ``name`` is for :meth:`partition` and :meth:`delay`.
        """
        addresses = [self._addresses[number] for number in numbers or self.running]
        place = name or f"client {len(self._clients)}"
        client = await at_place(place, begin(connect(addresses, **options)))
        self._clients.append(client)
        return client

    # The network.

    def partition(self, *groups: Sequence[int | str]) -> None:
        """Let only nodes of one group reach each other, until :meth:`heal`. Nodes that are in no group are a group.

        A group has numbers of nodes and names of clients. A client in no group reaches the nodes in no group.
        """
        self._network.partition([[place_of(member) for member in group] for group in groups])

    def delay(self, one: int | str, other: int | str, seconds: float) -> None:
        """Let everything between two nodes, or a node and a client, take so long, until :meth:`heal`."""
        self._network.delay(frozenset({place_of(one), place_of(other)}), seconds)

    def heal(self) -> None:
        """End all partitions and delays."""
        self._network.heal()

    async def close(self) -> None:
        """End everything that runs."""
        self.heal()
        for client in self._clients:
            await client.abandon()
        await asyncio.gather(*(self.nodes[number].close() for number in self.running))


def place_of(member: int | str) -> str:
    """The name of a node or a client in the network."""
    return f"node {member}" if isinstance(member, int) else member


async def begin(starting: Starting[Closing]) -> Closing:
    """Wait for something that is started."""
    return await starting


async def at_place(place: str, work: Coroutine[Any, Any, Result]) -> Result:
    """Do something on behalf of a node or a client, which everything inherits that it starts."""
    context = contextvars.copy_context()
    context.run(PLACE.set, place)
    return await asyncio.get_running_loop().create_task(work, context=context)


def run(
    scenario: Callable[[Cluster], Coroutine[Any, Any, Result]],
    nodes: int = 3,
    *,
    timeout: float = TIMEOUT_SECONDS,
    **settings: Any,
) -> Result:
    """Start a cluster, run a scenario with it, and end the cluster.

    ``settings`` are those of :func:`antiphon.start`, the same for all nodes, and ``durable=True`` gives each node a
    data directory that lasts as long as the test. A scenario that takes longer than ``timeout`` virtual seconds raises
    ``TimeoutError``.
    """
    if nodes < 1:
        raise UsageError("a cluster has at least one node")
    for name in ("listen", "join", "data"):
        if name in settings:
            raise UsageError(f"the cluster chooses {name!r} for each node itself; durable=True gives nodes a disk")
    loop = ClusterLoop()

    async def main() -> Result:
        with TemporaryDirectory(prefix="antiphon-testing-") as directory:
            cluster = Cluster(loop, Path(directory), dict(settings))
            try:
                async with asyncio.timeout(timeout):
                    await cluster.found(nodes)
                    return await scenario(cluster)
            finally:
                await cluster.close()

    with virtual_clocks(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def with_cluster(
    nodes: int = 3, *, timeout: float = TIMEOUT_SECONDS, **settings: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Make an ``async`` test with an argument ``cluster`` an ordinary test, which pytest or unittest calls.

    Its other arguments are fixtures as usual. The arguments of the decorator are those of :func:`run`.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        if "cluster" not in signature.parameters:
            raise UsageError(f"{test.__name__} has no argument named 'cluster'; add one")

        @wraps(test)
        def called(*arguments: Any, **named: Any) -> None:
            run(lambda cluster: test(*arguments, cluster=cluster, **named), nodes, timeout=timeout, **settings)

        kept = [each for each in signature.parameters.values() if each.name != "cluster"]
        called.__signature__ = signature.replace(parameters=kept, return_annotation=None)  # type: ignore[attr-defined]
        return called

    return decorate
