"""The interface of a system that keeps messages on disk: its servers, and its client in one process.

Every client does what its documentation advises for speed, in windows of :data:`WINDOW`: it publishes so many messages
and waits for all their receipts, or takes so many and waits until all are acknowledged.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final

from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.peers.contender import HOST, Contender
from antiphon_lab.bench.peers.nats_peers import Nats
from antiphon_lab.bench.peers.redis_peers import Redis

WINDOW: Final = 256
TOPIC: Final = "orders"


class DurableClient(ABC):
    """A client of such a system. ``open`` comes first."""

    def __init__(self, port: int, replicas: int) -> None:
        self.port = port
        self.replicas = replicas

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def create(self) -> None:
        """Make the topic."""

    @abstractmethod
    async def publish(self, payloads: list[bytes]) -> None:
        """Publish messages; all of them are safe when this returns."""

    @abstractmethod
    async def consume(self, group: str) -> None:
        """Be a member of a consumer from now on; it begins at the first message."""

    @abstractmethod
    async def take(self, most: int, seconds: float) -> int:
        """Take messages, at most so many, and acknowledge them, so that the server knows; how many they were."""

    @abstractmethod
    async def read(self) -> int:
        """Read the whole history; how many messages it has."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class DurableStore(ABC):
    """A system that keeps messages on disk."""

    name: ClassVar[str]
    title: ClassVar[str]
    settings: ClassVar[str]
    client: ClassVar[type[DurableClient]]
    replicas: ClassVar[int] = 1
    rival: ClassVar[Contender | None] = None
    """Where its server and client come from, if they are not ours."""

    @abstractmethod
    def commands(self, ports: list[int], directory: Path) -> list[list[str]]:
        """The command lines of its servers, one for each replica."""

    def missing(self) -> str:
        """The missing packages, as a sentence; empty if nothing is missing."""
        return "" if self.rival is None else self.rival.missing()


class AntiphonClient(DurableClient):
    """Our client: receipts with ``quorum``, a named consumer."""

    async def open(self) -> None:
        import antiphon

        self._client = await antiphon.connect(f"{HOST}:{self.port}")

    async def create(self) -> None:
        while True:
            found = await self._client.topics.create(TOPIC, replicas=self.replicas)
            described = await self._client.topics.describe(found.name)
            if described.connected >= self.replicas:
                return
            await asyncio.sleep(0.1)

    async def publish(self, payloads: list[bytes]) -> None:
        publish = self._client.publish
        for receipt in [publish(TOPIC, each, acks="quorum") for each in payloads]:
            await receipt

    async def consume(self, group: str) -> None:
        self._work = await self._client.consume(TOPIC, group, window=2 * WINDOW).ready()

    async def take(self, most: int, seconds: float) -> int:
        found = await self._work.fetch(most, timeout=seconds)
        for done in [message.ack() for message in found]:
            await done
        return len(found)

    async def read(self) -> int:
        count = 0
        async for _ in self._client.history(TOPIC, follow=False):
            count += 1
        return count

    async def close(self) -> None:
        await self._client.close()


class AntiphonStore(DurableStore):
    """One node."""

    name = "antiphon"
    title = "Antiphon, 1 replica"
    settings = "one node with fsync, a client with acks=quorum, a consumer of mode any"
    client = AntiphonClient

    def commands(self, ports: list[int], directory: Path) -> list[list[str]]:
        first = f"{HOST}:{ports[0]}"
        found = []
        for number, port in enumerate(ports):
            data = str(directory / f"node{number}")
            join = ["--join", first] if number else []
            found.append(python_module("antiphon", "node", "--listen", f"{HOST}:{port}", "--data", data, *join))
        return found


class ReplicatedAntiphonStore(AntiphonStore):
    """Three nodes."""

    name = "antiphon-3"
    title = "Antiphon, 3 replicas"
    settings = "three nodes with fsync, a client with acks=quorum, a consumer of mode any"
    replicas = 3


class RedisStreamsClient(DurableClient):
    """redis-py: pipelines of 256 ``XADD``; ``XREADGROUP`` with 256 and one ``XACK`` for all."""

    async def open(self) -> None:
        import redis.asyncio

        self._client = redis.asyncio.Redis(host=HOST, port=self.port, protocol=2)
        await self._client.ping()

    async def create(self) -> None:
        return

    async def publish(self, payloads: list[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for each in payloads:
            pipeline.xadd(TOPIC, {b"v": each})
        await pipeline.execute()

    async def consume(self, group: str) -> None:
        import redis

        self._group, self._name = group, f"member{os.getpid()}"
        try:
            await self._client.xgroup_create(TOPIC, group, "0", mkstream=True)
        except redis.ResponseError:
            return

    async def take(self, most: int, seconds: float) -> int:
        wait_ms = max(1, round(seconds * 1000))
        found = await self._client.xreadgroup(self._group, self._name, {TOPIC: ">"}, count=most, block=wait_ms)
        if not found:
            return 0
        identifiers = [identifier for identifier, _ in found[0][1]]
        await self._client.xack(TOPIC, self._group, *identifiers)
        return len(identifiers)

    async def read(self) -> int:
        count, last = 0, "-"
        while found := await self._client.xrange(TOPIC, min=last, count=4096):
            count += len(found)
            last = f"({found[-1][0].decode()}"
        return count

    async def close(self) -> None:
        await self._client.aclose()


class RedisStreamsStore(DurableStore):
    """redis-server with a file that is synced after each command."""

    name = "redis"
    title = "Redis streams"
    settings = "appendfsync always, redis-py, pipelines of 256, XREADGROUP and XACK of 256"
    client = RedisStreamsClient
    rival = Redis()

    def commands(self, ports: list[int], directory: Path) -> list[list[str]]:
        program = Redis().find_program() or "redis-server"
        place = ("--bind", HOST, "--port", str(ports[0]), "--dir", str(directory))
        return [[program, *place, "--save", "", "--appendonly", "yes", "--appendfsync", "always"]]


class JetStreamClient(DurableClient):
    """nats-py: 256 awaited publications at a time; a pull consumer with batches of 256 and awaited acknowledgements."""

    async def open(self) -> None:
        import nats

        self._client = await nats.connect(f"nats://{HOST}:{self.port}", allow_reconnect=False)
        self._stream = self._client.jetstream()

    async def create(self) -> None:
        from nats.js.api import StorageType

        await self._stream.add_stream(name=TOPIC, subjects=[TOPIC], storage=StorageType.FILE)

    async def publish(self, payloads: list[bytes]) -> None:
        await asyncio.gather(*[self._stream.publish(TOPIC, each) for each in payloads])

    async def consume(self, group: str) -> None:
        from nats.js.api import ConsumerConfig

        config = ConsumerConfig(max_ack_pending=65536)
        self._work = await self._stream.pull_subscribe(TOPIC, durable=group, config=config)

    async def take(self, most: int, seconds: float) -> int:
        found = await self._fetched(most, seconds)
        await asyncio.gather(*[message.ack_sync() for message in found])
        return len(found)

    async def read(self) -> int:
        count = 0
        await self.consume("reader")
        while found := await self._fetched(WINDOW, 1):
            for message in found:
                await message.ack()
            count += len(found)
        return count

    async def _fetched(self, most: int, seconds: float) -> list[Any]:
        import nats

        try:
            return list(await self._work.fetch(most, timeout=seconds))
        except (TimeoutError, nats.errors.TimeoutError):
            return []

    async def close(self) -> None:
        await self._client.close()


class JetStreamStore(DurableStore):
    """nats-server with a file store; it does not sync after each message."""

    name = "jetstream"
    title = "JetStream"
    settings = "file store, one replica, no fsync after a message; nats-py, ack_sync"
    client = JetStreamClient
    rival = Nats()

    def commands(self, ports: list[int], directory: Path) -> list[list[str]]:
        program = Nats().find_program() or "nats-server"
        return [[program, "-js", "-a", HOST, "-p", str(ports[0]), "-sd", str(directory)]]


STORES: dict[str, DurableStore] = {
    store.name: store for store in (AntiphonStore(), ReplicatedAntiphonStore(), RedisStreamsStore(), JetStreamStore())
}
