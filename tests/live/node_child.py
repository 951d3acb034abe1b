"""A node in a process of its own, for tests that kill it or need it to run beside others.

    python node_child.py WHAT SETTING=VALUE...

It says ``listening ADDRESS`` when it listens and then does WHAT:

* ``serve``: nothing but be there, until standard input ends; then it leaves;
* ``publish``: publish numbers on ``room`` one by one and say ``accepted NUMBER`` after each.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import antiphon
from antiphon import Node


def settings_of(words: list[str]) -> dict[str, Any]:
    """Settings from ``name=value``; ``join`` is a list."""
    settings: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        settings[name] = [value] if name == "join" else value
    return settings


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


async def main() -> None:
    """Start the node and do what is asked."""
    what, *words = sys.argv[1:]
    async with antiphon.start(**settings_of(words)) as node:
        say(f"listening {node.address}")
        if what == "publish":
            await publish(node)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    antiphon.run(main())
