"""One client process of a durable measurement: it does one job and prints what that took, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time

import antiphon
from antiphon_lab.bench.durable.stores import STORES, WINDOW, DurableClient

IDLE_SECONDS = 3.0
"""A member stops when nothing has come for so long."""


async def publish(client: DurableClient, messages: int, size: int) -> tuple[int, float]:
    """Publish, a window at a time."""
    payloads = [os.urandom(size) for _ in range(WINDOW)]
    begun = time.monotonic()
    for first in range(0, messages, WINDOW):
        await client.publish(payloads[: messages - first])
    return messages, time.monotonic() - begun


async def consume(client: DurableClient, messages: int, group: str) -> tuple[int, float]:
    """Take and acknowledge, a window at a time, until so many are done or nothing comes."""
    await client.consume(group)
    begun = last = time.monotonic()
    done = 0
    while done < messages:
        found = await client.take(WINDOW, IDLE_SECONDS)
        if not found:
            break
        done += found
        last = time.monotonic()
    return done, last - begun


async def work(store: str, port: int, job: str, messages: int, size: int) -> None:
    """Do a job."""
    chosen = STORES[store]
    client = chosen.client(port, chosen.replicas)
    await client.open()
    before = time.process_time()
    if job == "create":
        await client.create()
        done, seconds = 0, 0.0
    elif job == "publish":
        done, seconds = await publish(client, messages, size)
    elif job == "read":
        begun = time.monotonic()
        done = await client.read()
        seconds = time.monotonic() - begun
    else:
        done, seconds = await consume(client, messages, job)
    spent = time.process_time() - before
    print(json.dumps({"messages": done, "seconds": seconds, "processor_seconds": spent}), flush=True)
    await client.close()


if __name__ == "__main__":
    store, port, job, messages, size = sys.argv[1:6]
    antiphon.run(work(store, int(port), job, int(messages), int(size)))
