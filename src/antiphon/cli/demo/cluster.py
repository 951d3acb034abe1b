"""The live part of the tour: a cluster of processes, a question and its answer, traffic, and an audit of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.up import relay_text
from antiphon.kernel.errors import PeerError
from antiphon.node.local_cluster import Member, Plan, ProcessCluster

if TYPE_CHECKING:
    from antiphon.api.pubsub import Subscription
    from antiphon.audit.report import Audit
    from antiphon.client.handle import Client

NODES = 4
MESSAGES_EACH = 5000
VALUE = b"x" * 100
PATIENCE_SECONDS = 60.0
"""The limit after which the tour ends with an error."""


@dataclass(frozen=True)
class ClusterStory:
    """The results of the live part."""

    addresses: list[str]
    start_seconds: float
    conversation: list[str]
    deliveries: int
    traffic_seconds: float
    audit: Audit


def run_cluster() -> ClusterStory:
    """Run the live part; all files are removed afterwards."""
    import antiphon

    with tempfile.TemporaryDirectory() as directory:
        return antiphon.run(tell(Path(directory)))


async def tell(directory: Path) -> ClusterStory:
    """The story, from the first process to the audit."""
    import antiphon
    from antiphon.audit.auditor import audit_files, files_in

    def ended(member: Member) -> None:
        relay_text(member.index, f"ended with exit code {member.process.returncode}")

    cluster = ProcessCluster(Plan(NODES, trace=directory, settings=("--log-level", "warning")), relay_text, ended)
    started = time.perf_counter()
    await cluster.start()
    try:
        start_seconds = time.perf_counter() - started
        addresses = [member.address for member in cluster.members]
        async with asyncio.timeout(PATIENCE_SECONDS):
            clients = [await antiphon.connect(address) for address in addresses]
            conversation = await converse(clients)
            traffic_seconds = await exchange(clients)
            for client in clients:
                await client.close()
    except TimeoutError as error:
        raise PeerError(
            f"the cluster did not finish in {PATIENCE_SECONDS:.0f} seconds; is the machine busy?"
        ) from error
    finally:
        await cluster.stop()
    audit = audit_files(files_in([directory]))
    return ClusterStory(addresses, start_seconds, conversation, MESSAGES_EACH * NODES * NODES, traffic_seconds, audit)


async def converse(clients: Sequence[Client]) -> list[str]:
    """One client asks, another answers, and a third listens; returns the messages that the third receives."""
    listening = await clients[2].subscribe("room").ready()
    answering = await clients[1].subscribe("room").ready()

    async def answer() -> None:
        async for question in answering:
            await clients[1].publish("room", b"because you asked: " + question.value)
            return

    answered = asyncio.ensure_future(answer())
    await clients[0].publish("room", b"why?")
    heard: list[str] = []
    async for message in listening:
        heard.append(f"node {message.publisher}: {message.value.decode()}")
        if len(heard) == 2:
            break
    await answered
    await listening.close()
    await answering.close()
    return heard


async def exchange(clients: Sequence[Client]) -> float:
    """Every client publishes to all; returns the seconds until all had everything."""
    subscriptions = [await client.subscribe("traffic").ready() for client in clients]
    started = time.perf_counter()
    await asyncio.gather(
        *(publish_many(client) for client in clients), *(take_many(subscription) for subscription in subscriptions)
    )
    seconds = time.perf_counter() - started
    for subscription in subscriptions:
        await subscription.close()
    return seconds


async def publish_many(client: Client) -> None:
    """Publish one message after the other, with many in transit."""
    for number in range(MESSAGES_EACH):
        accepted = client.publish("traffic", VALUE)
        if number % 1000 == 999:
            await accepted
    await client.flush()


async def take_many(subscription: Subscription) -> None:
    """Receive the messages of all clients."""
    left = MESSAGES_EACH * NODES
    async for messages in subscription.batches():
        left -= len(messages)
        if left <= 0:
            return
