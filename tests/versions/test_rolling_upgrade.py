"""A cluster of two versions: nodes are upgraded one after the other under load, and one of them goes back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.membership.messages import PROTOCOL_VERSION
from antiphon.node.local_cluster import free_addresses
from tests.node.support import CHILD, Child, running, until
from tests.versions.next_version import build_next

THIS = Path(antiphon.__file__).parent.parent
NODES = 3

NODE = f"""
import runpy
from antiphon.runtime.logging import write_logs

write_logs("warning", True)
runpy.run_path({str(CHILD)!r}, run_name="__main__")
"""
"""A node that says on standard error why it refuses connections."""

GUEST = """
import antiphon, sys

async def main():
    async with antiphon.connect(sys.argv[1]) as client:
        heard = await client.subscribe("guests").ready()
        await client.publish("guests", b"of the next version")
        async for message in heard:
            print(message.value.decode(), client._live._connection.version)
            return

antiphon.run(main())
"""
"""A client that talks to itself through a node."""


@pytest.fixture(scope="module")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the next version."""
    return build_next(tmp_path_factory.mktemp("next"))


class Cluster:
    """Nodes in processes of their own, each of one version or another."""

    def __init__(self, fabric: str, directory: Path) -> None:
        self.fabric = fabric
        self.addresses = free_addresses(NODES)
        # What nodes of the next version have heard, and what all nodes have logged.
        self.tones = directory / "tones"
        self.log = directory / "log"
        for file in (self.tones, self.log):
            file.touch()
        self._directory = directory
        self._table = directory / "tree.toml"
        listed = ", ".join(f'"{address}"' for address in self.addresses)
        self._table.write_text(f"[tree]\nbrokers = [{listed}]\npatience_seconds = 0.1\n")
        self._stacks: dict[int, AsyncExitStack] = {}

    def _settings(self, place: int) -> list[str]:
        settings = [f"fabric={self.fabric}", f"listen={self.addresses[place]}", f"data={self._directory / str(place)}"]
        if self.fabric == "tree":
            return [*settings, f"tree={self._table}"]
        others = [each for each in self._stacks if each != place]
        return [*settings, *([f"join={self.addresses[others[0]]}"] if others else [])]

    async def start(self, place: int, version: Path) -> None:
        """Start a node of some version, with the data that it has."""
        stack = AsyncExitStack()
        node = process(version, self, "-c", NODE, "serve", *self._settings(place))
        self._stacks[place] = stack
        child = await stack.enter_async_context(node)
        word, _, _ = (await child.line()).partition(" ")
        assert word == "listening", "the node has not started"

    async def stop(self, place: int) -> None:
        """Let a node leave in an orderly way."""
        await self._stacks.pop(place).aclose()

    async def status_of(self, place: int) -> dict[str, object]:
        """What a node says of itself."""
        async with antiphon.connect(self.addresses[place]) as client:
            return await client.status()

    async def close(self) -> None:
        """End all nodes."""
        await asyncio.gather(*(self.stop(place) for place in list(self._stacks)))


@asynccontextmanager
async def process(version: Path, cluster: Cluster, *arguments: str) -> AsyncIterator[Child]:
    """A Python process with some version; it leaves when its input ends."""
    paths = os.pathsep.join([str(version), str(CHILD.parent.parent.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "ANTIPHON_TONES": str(cluster.tones)}
    with cluster.log.open("ab") as log:
        started = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
        )
    yield Child(started)
    assert started.stdin is not None
    started.stdin.close()
    await started.wait()


async def guest_at(cluster: Cluster, place: int, version: Path) -> str:
    """What a client of the next version says at a node of this one or of the next."""
    async with process(version, cluster, "-c", GUEST, cluster.addresses[place]) as guest:
        return await guest.line()


class Conversation:
    """A client of this version that publishes and hears itself all the time."""

    def __init__(self, client: antiphon.Client, orders: tuple[str, ...]) -> None:
        self._client = client
        self._orders = orders
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.is_over = False

    async def speak(self) -> None:
        """Publish, in all orders in turn."""
        while not self.is_over:
            value = b"%d" % len(self.said)
            self.said.append(value)
            await self._client.publish("room", value, order=self._orders[len(self.said) % len(self._orders)])
            await asyncio.sleep(0.01)

    async def listen(self, room: antiphon.Subscription) -> None:
        """Note whatever comes."""
        async for message in room:
            self.heard.append(message.value)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_cluster_is_upgraded_node_by_node_and_one_node_goes_back(
    fabric: str, next_version: Path, tmp_path: Path
) -> None:
    orders = ("fifo", "causal") if fabric == "gossip" else ("fifo", "causal", "total")

    async def test() -> None:
        cluster = Cluster(fabric, tmp_path)
        try:
            await rolled(cluster)
        finally:
            await cluster.close()

    async def rolled(cluster: Cluster) -> None:
        if fabric == "tree":
            await asyncio.gather(*(cluster.start(place, THIS) for place in range(NODES)))
        else:
            for place in range(NODES):
                await cluster.start(place, THIS)
        # A client of the next version at a node of this one speaks this version.
        assert await guest_at(cluster, 0, next_version) == f"of the next version {PROTOCOL_VERSION}"
        async with antiphon.connect(cluster.addresses, reconnect_seconds=30) as client:
            conversation = Conversation(client, orders)
            room = await client.subscribe("room").ready()
            tasks = [asyncio.create_task(conversation.listen(room)), asyncio.create_task(conversation.speak())]
            for place in range(NODES):
                await cluster.stop(place)
                await cluster.start(place, next_version)
                until_later = len(conversation.said) + 20
                await until(lambda until_later=until_later: len(conversation.said) > until_later)  # type: ignore[misc]
            assert await guest_at(cluster, 1, next_version) == f"of the next version {PROTOCOL_VERSION + 1}"
            await cluster.stop(0)
            await cluster.start(0, THIS)
            assert (await cluster.status_of(0))["protocol"] == PROTOCOL_VERSION
            conversation.is_over = True
            await tasks[1]
            await until(lambda: len(conversation.heard) >= len(conversation.said))
            assert sorted(conversation.heard, key=int) == conversation.said and room.gaps == 0
            tasks[0].cancel()
        logged = cluster.log.read_text()
        assert "no message" not in logged and "speaks versions" not in logged
        # Nodes of the next version have used what only they know.
        assert cluster.tones.read_text()

    running(test)
