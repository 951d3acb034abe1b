"""The cost of accounting: processor time of a node per message, with the accounts of its clients and without.

    python benchmarks/quotas.py [--pairs 10] [--messages 20000]

A node in a process of its own serves two clients with all quotas, none of which is reached. One publishes messages of
100 bytes, the other receives them. Slices of work with and without accounting take turns in the same process, so that a
machine that is busy with other work disturbs both. *Batched* messages are published as quickly as they go; a *lone* one
is published when the one before it has been received. Without accounting means: frames have no turns, nothing that
waits is metered, and no rate is charged. The result is the median over the pairs of the quotients of a pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import antiphon
from antiphon.node.acl import new_token, token_hash

VALUE = bytes(100)
TOGETHER = 500
"""So many messages are published before one of them is awaited."""

LONE_PART = 20
"""A lone message takes so many times as long as a batched one, about."""

RIGHTS = """
[clients.shop]
token = "{hash}"
publish = ["shop"]
subscribe = ["shop"]

[clients.shop.quotas]
connections = 100
subscriptions = 100
topics = 100
messages_per_second = 1e9
bytes_per_second = 1e12
memory = 1000000000
series = 100
policies = ["block"]
block_seconds = 60.0
"""


async def serve(rights: str) -> None:
    """The process of the node: a line on standard input switches accounting, and the answer is the time used so far."""
    loop = asyncio.get_running_loop()
    async with antiphon.start(rights=rights, insecure=True) as node:
        live: Any = node._live
        print(node.address, flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            used = time.process_time()
            account = next(iter(live.ledger._accounts.values()))
            is_counted = line.strip() == "with"
            account.has_rates = is_counted
            for connection in live.host.incoming():
                connection.share = account.turns if is_counted else None
            for subscription in live.subscriptions._ready:
                subscription._waiting.meter = account if is_counted else None
            print(used, flush=True)


async def switch(node: Process, how: str) -> float:
    """Switch accounting; the processor time that the node has used so far."""
    assert node.stdin is not None and node.stdout is not None, "it was made with pipes"
    node.stdin.write(f"{how}\n".encode())
    return float(await node.stdout.readline())


async def batched(publisher: antiphon.Client, messages: Any, count: int) -> None:
    """Publish and receive messages as quickly as they go."""

    async def publish() -> None:
        for number in range(count):
            receipt = publisher.publish("shop", VALUE)
            if number % TOGETHER == TOGETHER - 1:
                await receipt
        await receipt

    publishing = asyncio.ensure_future(publish())
    for _ in range(count):
        await anext(messages)
    await publishing


async def lone(publisher: antiphon.Client, messages: Any, count: int) -> None:
    """Publish a message when the one before it has come."""
    for _ in range(count // LONE_PART):
        await publisher.publish("shop", VALUE)
        await anext(messages)


async def measure(pairs: int, count: int) -> dict[str, Any]:
    """Measure pairs of slices, in the order with, without, without, with."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        token, rights = new_token(), Path(directory) / "rights.toml"
        rights.write_text(RIGHTS.format(hash=token_hash(token)))
        node = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--node", str(rights), stdin=PIPE, stdout=PIPE
        )
        assert node.stdin is not None and node.stdout is not None, "it was made with pipes"
        address = (await node.stdout.readline()).decode().strip()
        async with antiphon.connect(address, token=token) as publisher, antiphon.connect(address, token=token) as other:
            messages = aiter(await other.subscribe("shop").ready())
            for name, work, each in (("batched", batched, count), ("lone", lone, count // LONE_PART)):
                await work(publisher, messages, count)
                quotients, micros = [], {"with": [], "without": []}
                for pair in range(pairs):
                    used = {}
                    for how in ("with", "without") if pair % 2 else ("without", "with"):
                        before = await switch(node, how)
                        await work(publisher, messages, count)
                        used[how] = await switch(node, how) - before
                        micros[how].append(used[how] / each * 1e6)
                    quotients.append(used["with"] / used["without"])
                found[name] = {
                    "quotient": statistics.median(quotients),
                    "quotients": sorted(round(one, 3) for one in quotients),
                    **{f"us_{how}": statistics.median(values) for how, values in micros.items()},
                }
        node.stdin.close()
        await node.wait()
    return found


def main() -> None:
    """Measure, or be the node that is measured."""
    parser = argparse.ArgumentParser(description="The cost of accounting, in processor time of a node per message.")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--node", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.node:
        antiphon.run(serve(asked.node))
    else:
        print(json.dumps(antiphon.run(measure(asked.pairs, asked.messages)), indent=2))


if __name__ == "__main__":
    main()
