"""A node in a process of its own, for tests that kill it or need it to run beside others.

    python node_child.py WHAT SETTING=VALUE...

It says ``listening ADDRESS`` when it listens and then does WHAT:

* ``serve``: nothing but be there, until standard input ends; then it leaves;
* ``witness``: publish on ``room`` each line that it is told; say ``ready`` when it would hear, ``heard VALUE`` of
  whatever comes there, and ``missed`` where something is missing;
* ``publish``: publish numbers on ``room`` one by one and say ``accepted NUMBER`` after each;
* ``converse:PLACE:COUNT:CHAINS:LENGTH:NOISE``: subscribe to the rooms and say ``ready``; after the first line begin
  its share of the chains, answer whatever falls to it, publish noise in between, and say ``done`` when it has heard
  all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import antiphon
from antiphon import Message, Node


def settings_of(words: list[str]) -> dict[str, Any]:
    """Settings from ``name=value``; ``join`` is a list."""
    settings: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        settings[name] = [value] if name == "join" else converted(name, value)
    return settings


def converted(name: str, value: str) -> Any:
    """The value of a setting: seconds and bytes are numbers."""
    if name.endswith("_seconds"):
        return float(value)
    return int(value) if name.endswith("_bytes") else value


def say(line: str) -> None:
    """Tell the test, at once."""
    os.write(1, f"{line}\n".encode())


async def publish(node: Node) -> None:
    """Publish as fast as publications are accepted."""
    number = 0
    while True:
        await node.publish("room", b"%d" % number)
        say(f"accepted {number}")
        number += 1


async def witness(node: Node) -> None:
    """Say what is heard, and publish what is told, until standard input ends."""

    def hear(message: Message) -> None:
        say(f"heard {message.value.decode()}")

    await node.subscribe("room", callback=hear, when_missed=lambda _: say("missed")).ready()
    say("ready")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await node.publish("room", line.strip().encode())


ROOMS = ("room.red", "room.green", "room.blue")


async def converse(node: Node, place: int, count: int, chains: int, length: int, noise: int) -> None:
    """Take part in chains of questions and answers: each message of a chain is published by the next of all nodes."""
    unheard = chains * length + count * noise
    everything = asyncio.Event()

    def hear(message: Message) -> None:
        nonlocal unheard
        unheard -= 1
        if message.order == "causal":
            chain, depth = map(int, message.value.split())
            if depth + 1 < length and (chain + depth + 1) % count == place:
                node.publish(message.topic, b"%d %d" % (chain, depth + 1))
        if unheard == 0:
            everything.set()

    await asyncio.gather(*(node.subscribe(room, callback=hear).ready() for room in ROOMS))
    say("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for number in range(max(chains, noise)):
        if number < chains and number % count == place:
            await node.publish(ROOMS[number % 3], b"%d 0" % number)
        if number < noise:
            await node.publish(ROOMS[number % 3], b"noise", order="fifo")
        await asyncio.sleep(0)
    await everything.wait()
    say("done")


async def main() -> None:
    """Start the node and do what is asked."""
    what, *words = sys.argv[1:]
    async with antiphon.start(**settings_of(words)) as node:
        say(f"listening {node.address}")
        if what == "publish":
            await publish(node)
        elif what == "witness":
            await witness(node)
        elif what.startswith("converse:"):
            await converse(node, *map(int, what.split(":")[1:]))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    antiphon.run(main())
