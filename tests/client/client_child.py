"""A client in a process of its own, for tests that stop it.

    python client_child.py ADDRESS TOPIC

It says ``listening ADDRESS``, and ``ready`` when its subscription is effective. Then it says ``heard N BYTES`` of each
message, ``missed`` where something is missing, and ``moved`` when it has reconnected. It ends when standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

import antiphon
from tests.node.node_child import say


async def main() -> None:
    """Subscribe, and say what happens."""
    address, topic = sys.argv[1:]

    def hear(message: antiphon.Message) -> None:
        say(f"heard {message.author_sequence} {len(message.value)}")

    async with antiphon.connect(address, on_reconnect=lambda _: say("moved")) as client:
        say(f"listening {client.address}")
        await client.subscribe(topic, callback=hear, when_missed=lambda _: say("missed")).ready()
        say("ready")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    antiphon.run(main())
