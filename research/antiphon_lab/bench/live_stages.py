"""The cost of a message from ``publish`` to the subscriber's loop, stage by stage.

Each stage is run alone, in one process, on full batches, and timed in processor time, which other programs on the
machine disturb little. The stages are those of a publisher and a subscriber with no other node between them; the
kernel's work on sockets is measured by sending the frames over a loopback connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final

import msgspec
from librt.vecs import vec
from mypy_extensions import i64

import antiphon
from antiphon.api.batch import Batch, Message
from antiphon.api.batch_codec import decode_columns, encode_columns
from antiphon.api.columns import Columns
from antiphon.api.outbox import BATCH_BYTES, BATCH_MESSAGES
from antiphon.kernel.message import CAUSAL, Publication
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Ordered
from antiphon.transport.codec import Codec

TURNS: Final = 200
"""How often each stage is repeated; the fastest of ``ROUNDS`` counts."""

ROUNDS: Final = 5
PUBLISHED: Final = 100_000


class Stage(msgspec.Struct, frozen=True):
    """One stage and its cost."""

    name: str
    payload_bytes: int
    microseconds_per_message: float


def measure_stages(payload_bytes: int) -> list[Stage]:
    """All stages for messages of one size, in the order in which a message passes them."""
    count = min(BATCH_MESSAGES, max(1, BATCH_BYTES // payload_bytes))
    values = [bytes(payload_bytes) for _ in range(count)]
    columns = Columns(1, 1, values)
    payload = encode_columns(columns)
    publication = Ordered(0, 1, 1, payload, vec[i64](), 1, CAUSAL)
    frame = Codec().encode(publication)
    stages = {
        "publish, one call per message": antiphon.run(measure_publish(values[0])),
        "batch into bytes": quickest(lambda: encode_columns(columns), count),
        "message of the protocol into bytes": quickest(new_encoding(publication), count),
        "order": measure_order(payload, count),
        "loopback, write and read": measure_loopback(frame, count),
        "bytes into message of the protocol": quickest(new_decoding(frame), count),
        "bytes into batch": quickest(lambda: decode_columns(payload), count),
        "objects and async iteration": antiphon.run(measure_iteration(payload, columns)),
    }
    return [Stage(name, payload_bytes, microseconds) for name, microseconds in stages.items()]


def quickest(step: Callable[[], object], messages: int, turns: int = TURNS) -> float:
    """Microseconds of processor time per message."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(turns):
            step()
        best = min(best, time.process_time() - begun)
    return best / turns / messages * 1e6


def new_encoding(publication: Publication) -> Callable[[], object]:
    """Encoding with one codec, whose cache is cleared each time."""
    codec = Codec()

    def step() -> bytes:
        codec.forget()
        return codec.encode(publication)

    return step


def new_decoding(frame: bytes) -> Callable[[], object]:
    """Decoding by one codec, as a node has one."""
    codec = Codec()
    return lambda: codec.decode(frame)


def measure_order(payload: bytes, count: int) -> float:
    """Stamping at the publisher and checking at the subscriber, once per batch."""
    publisher, subscriber = MixedOrder(0), MixedOrder(1)
    sequence = 0

    def step() -> None:
        nonlocal sequence
        sequence += 1
        dependencies = publisher.stamp(sequence, CAUSAL)
        subscriber.arrived(Ordered(0, sequence, 1, payload, dependencies, 1, CAUSAL))

    return quickest(step, count)


def measure_loopback(frame: bytes, count: int) -> float:
    """The cost of the operating system for one frame, at both ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        buffer = bytearray(len(frame))
        with receiver:

            def step() -> None:
                sender.sendall(frame)
                missing = len(frame)
                while missing:
                    missing -= receiver.recv_into(buffer, missing)

            return quickest(step, count)


async def measure_publish(value: bytes) -> float:
    """Calls of ``publish`` at a single node, including batches and their delivery without a subscriber."""
    async with antiphon.start() as node:
        best = float("inf")
        for _ in range(ROUNDS):
            begun = time.process_time()
            for _ in range(PUBLISHED):
                await node.publish("room", value)
            best = min(best, time.process_time() - begun)
        return best / PUBLISHED * 1e6


async def measure_iteration(payload: bytes, columns: Columns) -> float:
    """``async for`` over a subscription whose messages have already arrived."""
    async with antiphon.start() as node:
        subscription = await node.subscribe("room", limit=1 << 30).ready()
        topic = node._live.topic("room")
        best = float("inf")
        for _ in range(ROUNDS):
            batches = [Batch("room", 0, "causal", 0, payload, columns) for _ in range(TURNS)]
            for batch in batches:
                subscription._live.push(topic, batch)
            expected = sum(len(batch) for batch in batches)
            begun = time.process_time()
            await take(subscription, expected)
            best = min(best, (time.process_time() - begun) / expected)
            await asyncio.sleep(0)
        return best * 1e6


async def take(subscription: antiphon.Subscription, expected: int) -> Message:
    """Take so many messages; returns the last one."""
    taken = 0
    async for message in subscription:
        taken += 1
        if taken == expected:
            return message
    raise AssertionError("the subscription does not end")
