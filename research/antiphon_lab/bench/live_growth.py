"""The cost of a message that travels alone, and how the cost of messages grows with the number of topics.

Two live nodes share one process, and so do two clients where there are any: processor time is then that of all ends
together, and other programs on the machine disturb it little.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

import antiphon
from antiphon.api.pubsub import PubSub

PAYLOAD: Final = bytes(100)
WARM_UP: Final = 300
ALONE: Final = 3000
ROUNDS: Final = 5
FEW_TOPICS: Final = 100
TURN: Final = 100
"""So many messages are published before the publisher lets others have a turn."""


class LoneMessage(msgspec.Struct, frozen=True):
    """A message that travels alone, and is taken before the next one is published."""

    ends: str
    user_us: float
    system_us: float


class TopicCosts(msgspec.Struct, frozen=True):
    """New topics with one message each, then messages on one after the other; two nodes, one wildcard subscriber."""

    topics: int
    new_topic_us: float
    kib_per_topic_and_node: float
    message_us: float
    message_us_on_few_topics: float


async def measure_lone(ends: str) -> LoneMessage:
    """Processor time per message from one node to another, or from a client of the one to a client of the other."""
    async with antiphon.start() as here, antiphon.start(join=[here.address]) as there:
        if ends == "nodes":
            return await alone(ends, here, there)
        async with antiphon.connect(here.address) as publisher, antiphon.connect(there.address) as subscriber:
            return await alone(ends, publisher, subscriber)


async def alone(ends: str, publisher: PubSub, subscriber: antiphon.Client | antiphon.Node) -> LoneMessage:
    """Publish a message, take it, and publish the next one; the round with the least user time counts."""
    messages = aiter(await subscriber.subscribe("room").ready())
    await one_by_one(publisher, messages, WARM_UP)
    rounds = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_SELF)
        await one_by_one(publisher, messages, ALONE)
        after = resource.getrusage(resource.RUSAGE_SELF)
        rounds.append((after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime))
    # Linux counts in ticks and divides them between user and system: single rounds mean little.
    user, system = sorted(rounds)[ROUNDS // 2]
    return LoneMessage(ends, user / ALONE * 1e6, system / ALONE * 1e6)


async def one_by_one(publisher: PubSub, messages: AsyncIterator[antiphon.Message], count: int) -> None:
    """Publish and take so many."""
    for _ in range(count):
        await publisher.publish("room", PAYLOAD)
        await anext(messages)


async def measure_topics(topics: int) -> TopicCosts:
    """Processor time and memory for so many topics."""
    async with antiphon.start() as here, antiphon.start(join=[here.address]) as there:
        batches = (await there.subscribe(">").ready()).batches()
        await round_robin(here, batches, "before", 1, 1)
        gc.collect()
        memory, began = resident_bytes(), time.process_time()
        await round_robin(here, batches, "topic", topics, topics)
        new_us = (time.process_time() - began) / topics * 1e6
        gc.collect()
        kib = (resident_bytes() - memory) / topics / 2 / 1024
        costs = {}
        for width in (min(FEW_TOPICS, topics), topics):
            rounds = []
            for _ in range(3):
                began = time.process_time()
                await round_robin(here, batches, "topic", width, topics)
                rounds.append((time.process_time() - began) / topics * 1e6)
            costs[width] = min(rounds)
        return TopicCosts(topics, new_us, kib, costs[topics], costs[min(FEW_TOPICS, topics)])


async def round_robin(
    publisher: PubSub, batches: AsyncIterator[list[antiphon.Message]], name: str, topics: int, count: int
) -> None:
    """Publish so many messages on one topic after the other, until all have come."""

    async def take() -> None:
        taken = 0
        while taken < count:
            taken += len(await anext(batches))

    taking = asyncio.create_task(take())
    for number in range(count):
        await publisher.publish(f"{name}.{number % topics}", PAYLOAD)
        if number % TURN == TURN - 1:
            await asyncio.sleep(0)
    await taking


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not say."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * resource.getpagesize() if path.exists() else 0
