"""Three processes on real sockets: one asks, one answers what it hears, and a third hears the question first.

Run it: .venv/bin/python examples/live_question_and_answer.py
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

import antiphon

EXCHANGES = 3


async def answer(address: str) -> None:
    """Join the cluster, say that we listen, and answer every question."""
    async with antiphon.start(join=[address]) as node, node.subscribe("room") as room:
        print("listening", flush=True)
        answered = 0
        async for message in room:
            if message.value.startswith(b"question"):
                await node.publish("room", b"answer to " + message.value)
                answered += 1
            if answered == EXCHANGES:
                break


async def ask(address: str) -> None:
    """Connect as a thin client and ask."""
    async with antiphon.connect(address) as client:
        for number in range(1, EXCHANGES + 1):
            await client.publish("room", f"question {number}".encode())


async def listen() -> list[str]:
    """Found a cluster, let the two others work, and write down what comes."""
    heard: list[str] = []
    async with antiphon.start() as node, node.subscribe("room") as room:
        answering = role("answer", node.address)
        assert answering.stdout is not None
        # A node that joins needs this one to answer, so nothing here may block the loop.
        await asyncio.get_running_loop().run_in_executor(None, answering.stdout.readline)
        asking = role("ask", node.address)
        async for message in room:
            heard.append(message.value.decode())
            if len(heard) == 2 * EXCHANGES:
                break
        for process in (asking, answering):
            await asyncio.get_running_loop().run_in_executor(None, process.communicate)
    return heard


def role(name: str, address: str) -> subprocess.Popen[str]:
    """This program again, in another process and another role."""
    return subprocess.Popen([sys.executable, __file__, name, address], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    roles = {"answer": answer, "ask": ask}
    if len(sys.argv) == 3 and sys.argv[1] in roles:
        antiphon.run(roles[sys.argv[1]](sys.argv[2]))
    else:
        for line in antiphon.run(listen()):
            print(line)
