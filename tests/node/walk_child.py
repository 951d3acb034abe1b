"""Counts the Python calls of messages that travel alone; a process of its own, with plain or compiled sources.

Called with the ends of the walk (``nodes`` or ``clients``) and a number of topics, over which the messages go in turn.
Prints how many calls one message takes, with its acknowledgements.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

import antiphon
from antiphon import Client, Node

MESSAGES = 200


async def count(publisher: Client | Node, subscriber: Client | Node, topics: int) -> float:
    """The calls per message, when each topic has had some."""
    messages = aiter(await subscriber.subscribe(">").ready())

    async def send(number: int) -> None:
        await publisher.publish(f"room.{number % topics}", b"hello")
        await anext(messages)

    for number in range(3 * topics):
        await send(number)
    # What is left of the beginning, such as acknowledgements that wait for others, is not counted.
    await asyncio.sleep(0.1)
    calls = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    for number in range(MESSAGES):
        await send(number)
    sys.setprofile(None)
    return calls / MESSAGES


async def main(ends: str, topics: int) -> None:
    async with antiphon.start() as here, antiphon.start(join=[here.address]) as there:
        if ends == "nodes":
            print(await count(here, there, topics))
            return
        async with antiphon.connect(here.address) as publisher, antiphon.connect(there.address) as subscriber:
            print(await count(publisher, subscriber, topics))


if __name__ == "__main__":
    antiphon.run(main(sys.argv[1], int(sys.argv[2])))
