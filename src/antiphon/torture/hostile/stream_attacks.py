"""Attackers with a token at the node that keeps histories: readers, waiting publishers, consumers and their members.

All of it happens on a history of the attacker's own, where it has all rights but those of an operator. Small frames in
great numbers are here, too: each of them costs a node more than its sender.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

from antiphon.sessions.client_messages import (
    FollowRequest,
    HeartbeatRequest,
    ProducerRequest,
    PublishRequest,
    StatusRequest,
    StreamRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.requests import (
    EARLIEST,
    LATEST,
    AckMessages,
    AttachConsumer,
    AwaitPosition,
    CreateTopic,
    DescribeTopic,
    ListTopics,
    Policy,
    ReadHistory,
    Request,
    ReturnMessage,
    encode,
)
from antiphon.torture.hostile.attacker import OWN, Attacker, batch
from antiphon.torture.hostile.raw_client import RawClient

HISTORY: Final = f"{OWN}.history"
"""A topic of the attacker with a history, which an operator has begun for it."""

FOREVER_US: Final = 1 << 61
EVERYTHING: Final = 1 << 61
WINDOW: Final = 65_536
QUESTIONS: Final[list[Request]] = [ListTopics(), DescribeTopic(HISTORY)]


def ask(client: RawClient, number: int, *requests: Request) -> None:
    """Send requests about streams."""
    client.send(*(StreamRequest(number + place, encode(each)) for place, each in enumerate(requests)))


def fill(client: RawClient, batches: int, values: Sequence[bytes]) -> None:
    """Publish on the history."""
    payload = batch(list(values))
    client.send(*(PublishRequest(number, HISTORY, "causal", payload) for number in range(batches)))


def attach(attacker: Attacker, name: str, settings: ConsumerSettings, start: int = EARLIEST) -> AttachConsumer:
    """A request to be a member of a consumer of the history."""
    member = attacker.chance.getrandbits(60)
    return AttachConsumer(HISTORY, name, settings, start, member, [], WINDOW)


async def consumer_names(attacker: Attacker) -> None:
    """Consumers with new names, which the cluster keeps."""
    async with attacker.clients(1, place=-1) as (client,):
        for number in range(attacker.chance.randrange(200, 2000)):
            ask(client, number, attach(attacker, f"c{attacker.chance.getrandbits(40):x}", ConsumerSettings()))
        await client.drain()
        await attacker.linger(0.5, 2.0)


async def member_numbers(attacker: Attacker) -> None:
    """Members in great numbers, of connections that end before the members have joined."""
    for _ in range(10):
        async with attacker.clients(1, place=-1) as (client,):
            for number in range(attacker.chance.randrange(10, 300)):
                ask(client, number, attach(attacker, "crowd", ConsumerSettings()))
            await client.drain()
            await attacker.linger(0.0, 0.2)


async def short_leases(attacker: Attacker) -> None:
    """A member that acknowledges nothing, of a consumer whose messages come back at once."""
    settings = ConsumerSettings("any", attacker.chance.choice((0, 1, 100_000)), 0, 1 << 20)
    async with attacker.clients(1, place=-1) as (client,):
        fill(client, 20, [b"work"] * 500)
        ask(client, 100, attach(attacker, f"short-{settings.ack_us}", settings))
        await client.drain()
        await attacker.linger(2.0, 5.0)


async def unread_consumers(attacker: Attacker) -> None:
    """Members that take 65,536 messages at a time and read none of them."""
    settings = ConsumerSettings("any", 100_000, 0, 1 << 20)
    async with attacker.clients(1, place=-1) as (writer,), attacker.clients(4, reads=False, place=-1) as readers:
        fill(writer, 8, [bytes(512 << 10)])
        for number, reader in enumerate(readers):
            ask(reader, 1, attach(attacker, f"unread-{number}", settings))
        await writer.drain()
        await attacker.linger(2.0, 5.0)


async def returned_messages(attacker: Attacker) -> None:
    """A member that gives each message back as soon as it may have it."""
    settings = ConsumerSettings("any", 30_000_000, attacker.chance.choice((0, 1)), 1 << 20)
    async with attacker.clients(1, place=-1) as (client,):
        fill(client, 10, [b"work"] * 200)
        request = attach(attacker, f"returned-{settings.deliveries_at_most}", settings)
        ask(client, 100, request)
        await client.drain()
        await attacker.linger(0.2, 0.5)
        for position in islice(cycle(range(2000)), attacker.chance.randrange(2000, 40_000)):
            ask(client, 200 + position, ReturnMessage(HISTORY, request.consumer, request.member, position, 0))
        await client.drain()
        await attacker.linger(0.5, 2.0)


async def long_acknowledgements(attacker: Attacker) -> None:
    """Acknowledgements of 65,536 messages that the member does not have."""
    async with attacker.clients(1, place=-1) as (client,):
        request = attach(attacker, "long", ConsumerSettings(), LATEST)
        ask(client, 1, request)
        positions = list(range(1 << 30, (1 << 30) + WINDOW))
        for number in range(40):
            ask(client, number + 2, AckMessages(HISTORY, request.consumer, request.member, positions))
            await client.drain()
        await attacker.linger(0.2, 1.0)


async def waiting_readers(attacker: Attacker) -> None:
    """Thousands of readers that wait for the next message, and then all want it."""
    reads = attacker.chance.random() < 0.5
    async with attacker.clients(4, reads=reads, place=-1) as readers, attacker.clients(1, place=-1) as (writer,):
        for reader in readers:
            ask(reader, 1, *[ReadHistory(HISTORY, LATEST, EVERYTHING, FOREVER_US)] * 3000)
            await reader.drain()
        await attacker.linger(0.3, 0.6)
        fill(writer, 4, [bytes(256 << 10)])
        await attacker.linger(1.0, 3.0)


async def whole_histories(attacker: Attacker) -> None:
    """Requests for all that there is, of which no answer is read."""
    async with attacker.clients(2, reads=False, place=-1) as readers:
        for reader in readers:
            ask(reader, 1, *[ReadHistory(HISTORY, EARLIEST, EVERYTHING, 0)] * 2000)
        await attacker.linger(1.0, 3.0)


async def awaited_positions(attacker: Attacker) -> None:
    """Publishers that wait for positions of messages that never come."""
    async with attacker.clients(2, place=-1) as clients:
        for client in clients:
            for number in range(10_000):
                author = attacker.chance.choice((7, attacker.chance.getrandbits(50)))
                ask(client, number, AwaitPosition(HISTORY, author, 1 << 50, FOREVER_US))
            await client.drain()
        fill(clients[0], 50, [b"x"] * 10)
        await attacker.linger(1.0, 3.0)


async def new_histories(attacker: Attacker) -> None:
    """New histories, without bounds and with large ones."""
    async with attacker.clients(1, place=-1) as (client,):
        for number in range(attacker.chance.randrange(100, 1000)):
            size = attacker.chance.choice((0, 1000, 1 << 40))
            name = f"{OWN}.kept.{attacker.chance.getrandbits(40):x}"
            ask(client, number, CreateTopic(name, Policy(1, size)))
        await client.drain()
        await attacker.linger(0.5, 2.0)


async def small_questions(attacker: Attacker) -> None:
    """Tens of thousands of questions about streams, each of twenty bytes."""
    async with attacker.clients(2, reads=attacker.chance.random() < 0.5, place=-1) as clients:
        for client in clients:
            ask(client, 1, *QUESTIONS * 10_000)
        await attacker.linger(1.0, 3.0)


async def small_frames(attacker: Attacker) -> None:
    """Tens of thousands of the smallest frames, over several connections."""
    kind = attacker.chance.randrange(5)
    async with attacker.clients(8, reads=attacker.chance.random() < 0.7) as clients:
        for client in clients:
            for number in range(3000):
                if kind == 0:
                    client.send(HeartbeatRequest())
                elif kind == 1:
                    client.send(SubscribeRequest(number, f"{OWN}.churn", "latest", False, "drop_oldest", 1))
                    client.send(UnsubscribeRequest(number))
                elif kind == 2:
                    client.send(ProducerRequest(number, f"writer-{number}", None, [f"{OWN}.1"]))
                elif kind == 3:
                    client.send(FollowRequest(number, f"{OWN}.follow", {}))
                else:
                    client.send(StatusRequest(number, False))
            await client.drain()
        await attacker.linger(0.5, 2.0)
