"""Attackers with a token: each way in which one tenant once harmed others, as a generator.

An attack takes a few seconds and is drawn with its sizes by a seeded generator. At its end it closes all that it has
opened. Refusals of nodes are counted, by quota. :mod:`antiphon.torture.hostile.tenant_campaign` runs attacks beside
honest clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from antiphon.api.columns import BATCH_MESSAGES_AT_MOST
from antiphon.sessions.client_messages import (
    FollowRequest,
    LaneOf,
    LogsRequest,
    ProducerRequest,
    PublishRequest,
    Resume,
    SubscribeRequest,
)
from antiphon.torture.hostile import stream_attacks
from antiphon.torture.hostile.attacker import HIDDEN, OWN, SHARED, Attacker, batch
from antiphon.torture.hostile.raw_client import RawClient
from antiphon.transport.links import split_address
from antiphon.transport.schema import LENGTH_BYTES

HTTP_REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"


async def stalled_frames(attacker: Attacker) -> None:
    """Most of a long frame on each of some connections, and then nothing."""
    size = attacker.chance.randrange(1 << 20, 8 << 20)
    async with attacker.clients(11) as clients:
        for client in clients:
            client.send_bytes(size.to_bytes(LENGTH_BYTES, "little") + bytes(size * 3 // 4))
        await attacker.linger(1.0, 4.0)


async def log_positions(attacker: Attacker) -> None:
    """Requests for the positions of many times in the logs of many topics."""
    topics = [f"{OWN}.{number}" for number in range(20)]
    async with attacker.clients(1) as (client,):
        for number in range(attacker.chance.randrange(1, 16)):
            client.send(LogsRequest(number, topics, tuple(range(attacker.chance.choice((200_000, 13_000))))))
            await client.drain()
        await attacker.linger(0.5, 2.0)


async def resume_lists(attacker: Attacker) -> None:
    """Subscriptions that resume with long lists of what they have seen."""
    seen = {author: [1 << 40] for author in range(1, 8001)}
    topics = attacker.chance.choice((20, 25, 100))
    async with attacker.clients(1) as (client,):
        for number in range(12):
            lists = {f"{OWN}.{topic}": seen for topic in range(topics)}
            client.send(SubscribeRequest(number, f"{OWN}.>", "latest", False, "drop_oldest", 100, Resume(0, lists)))
            await client.drain()
        await attacker.linger(0.5, 2.0)


async def junk_series(attacker: Attacker) -> None:
    """Many writers and lanes, each of which writes once."""
    name, payload = f"junk-{attacker.chance.getrandbits(40):x}", batch([b"junk"])
    async with attacker.clients(1) as (client,):
        for lane in range(attacker.chance.randrange(300, 2000)):
            written = LaneOf(name, lane, 7, 0)
            client.send(PublishRequest(lane, f"{OWN}.series", "causal", payload, serial=1, lane=written))
        await client.drain()
        await attacker.linger(0.5, 2.0)


async def new_topics(attacker: Attacker) -> None:
    """New topics, some over each of many connections."""
    payload = batch([b"new"])
    for _ in range(10):
        async with attacker.clients(1) as (client,):
            for number in range(100):
                client.send(PublishRequest(number, f"{OWN}.new.{attacker.chance.getrandbits(40):x}", "causal", payload))
            await client.drain()
            await attacker.linger(0.05, 0.2)


async def unread_subscriptions(attacker: Attacker) -> None:
    """Subscriptions that are never read, and empty messages for them."""
    payload = batch([b""] * 1000)
    async with attacker.clients(1, reads=False) as (reader,), attacker.clients(1) as (writer,):
        for number in range(attacker.chance.randrange(20, 200)):
            reader.send(SubscribeRequest(number, f"{OWN}.unread", "latest", False, "drop_oldest", 1 << 20))
        for number in range(60):
            writer.send(PublishRequest(number, f"{OWN}.unread", "none", payload))
            await writer.drain()
        await attacker.linger(0.5, 2.0)


async def policy_block(attacker: Attacker) -> None:
    """Subscriptions that let publishers wait, to a topic of others, and never take a message."""
    async with attacker.clients(2) as clients:
        for client in clients:
            for number in range(10):
                client.send(SubscribeRequest(number, SHARED, "latest", False, "block", 1))
        await attacker.linger(1.0, 3.0)


async def follow_requests(attacker: Attacker) -> None:
    """Long requests that what follows is to follow what others have published."""
    past = dict.fromkeys(range(1, 8001), 1 << 40)
    async with attacker.clients(1) as (client,):
        for number in range(120):
            client.send(FollowRequest(number, f"{OWN}.follow", past))
            await client.drain()
        await attacker.linger(0.5, 1.0)


async def empty_messages(attacker: Attacker) -> None:
    """Batches of a great many empty messages, more than one may hold and as many as it may."""
    count = attacker.chance.choice((15_000_000, 3_000_000, BATCH_MESSAGES_AT_MOST))
    values = b"\xdd" + count.to_bytes(4, "big") + b"\xc4\x00" * count
    payload = count.to_bytes(4, "little") + b"\x93\x01\x00" + values
    async with attacker.clients(1) as (client,):
        client.send(SubscribeRequest(1, f"{OWN}.empty", "latest", False, "drop_oldest", 1000))
        client.send(PublishRequest(2, f"{OWN}.empty", "causal", payload))
        await client.drain()
        await attacker.linger(0.5, 2.0)


async def client_places(attacker: Attacker) -> None:
    """More connections than a node has places."""
    async with attacker.clients(attacker.chance.randrange(100, 1100)):
        await attacker.linger(0.5, 2.0)


async def odd_names(attacker: Attacker) -> None:
    """Clients, topics and patterns with names that mean something elsewhere, and tokens that nobody has."""
    odd = ("", "/", "a/b", "../honest", "*", ">", "honest.>", "a..b", "\x00", "x" * 200, "node/alpha", "shop/other")
    for instance in odd:
        client = RawClient(attacker.reasons)
        token = attacker.token if attacker.chance.random() < 0.7 else attacker.token[:-1]
        await client.open(attacker.address, token, instance)
        for number, name in enumerate(odd):
            client.send(PublishRequest(number, name, "causal", batch([b"odd"])))
            client.send(SubscribeRequest(number, name, "latest", False, "drop_oldest", 10))
        await client.drain()
        await attacker.linger(0.05, 0.1)
        client.close()


async def forbidden_members(attacker: Attacker) -> None:
    """Questions for the members of topics on which the attacker has no rights."""
    async with attacker.clients(1) as (client,):
        for number in range(20):
            client.send(ProducerRequest(number, f"writer-{number}", None, [HIDDEN, f"{OWN}.1", SHARED]))
        await client.drain()
        await attacker.linger(0.5, 1.0)
        if any(not topic.startswith(f"{OWN}.") for topic in client.told):
            attacker.violations.append(f"a node told who is a member of {sorted(set(client.told))}")


async def flood(attacker: Attacker) -> None:
    """As many messages as fit on the way, small or large."""
    payload = batch([b"x" * 20] * 500) if attacker.chance.random() < 0.5 else batch([bytes(256 << 10)])
    async with attacker.clients(2) as clients:
        for number in range(60):
            for client in clients:
                client.send(PublishRequest(number, f"{OWN}.flood", "causal", payload))
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await client.drain()


async def metrics_requests(attacker: Attacker) -> None:
    """Many requests for metrics, whose answers are not waited for."""
    address = split_address(attacker.chance.choice(attacker.metrics))
    for _ in range(attacker.chance.randrange(5, 20)):
        with suppress(OSError):
            _, writer = await asyncio.open_connection(*address)
            try:
                writer.write(HTTP_REQUEST)
                await attacker.linger(0.01, 0.1)
            finally:
                writer.transport.abort()


async def silent_http(attacker: Attacker) -> None:
    """Connections to the status server that ask for nothing."""
    address = split_address(attacker.chance.choice(attacker.metrics))
    writers = []
    try:
        for _ in range(attacker.chance.randrange(64, 200)):
            with suppress(OSError):
                writers.append((await asyncio.open_connection(*address))[1])
        await attacker.linger(1.0, 3.0)
    finally:
        for writer in writers:
            writer.transport.abort()


Attack = Callable[[Attacker], Awaitable[None]]

ATTACKS: Final[dict[str, Attack]] = {
    "stalled frames": stalled_frames,
    "log positions": log_positions,
    "resume lists": resume_lists,
    "junk series": junk_series,
    "new topics": new_topics,
    "unread subscriptions": unread_subscriptions,
    "policy block": policy_block,
    "follow requests": follow_requests,
    "empty messages": empty_messages,
    "client places": client_places,
    "odd names": odd_names,
    "forbidden members": forbidden_members,
    "flood": flood,
    "metrics requests": metrics_requests,
    "silent http": silent_http,
    "small frames": stream_attacks.small_frames,
}
"""All attacks with a token, by their names."""

ATTACKS_ON_HISTORIES: Final[dict[str, Attack]] = {
    "consumer names": stream_attacks.consumer_names,
    "member numbers": stream_attacks.member_numbers,
    "short leases": stream_attacks.short_leases,
    "unread consumers": stream_attacks.unread_consumers,
    "returned messages": stream_attacks.returned_messages,
    "long acknowledgements": stream_attacks.long_acknowledgements,
    "waiting readers": stream_attacks.waiting_readers,
    "whole histories": stream_attacks.whole_histories,
    "awaited positions": stream_attacks.awaited_positions,
    "new histories": stream_attacks.new_histories,
    "small questions": stream_attacks.small_questions,
}
"""Further attacks, where topics have a history."""
