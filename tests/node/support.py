"""What tests of the live host share: a loop that ends in any case, clusters on loopback, nodes in processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import antiphon
from antiphon import Message, Node, Subscription
from antiphon.kernel.process import LogReader
from antiphon.node.local_cluster import free_addresses
from antiphon.transport.links import OutgoingLink

PATIENCE_SECONDS = 180.0
"""A test that has not come to its end by then has failed: it hangs."""

Result = TypeVar("Result")
CHILD = Path(__file__).with_name("node_child.py")


def running(test: Callable[[], Coroutine[Any, Any, Result]], patience_seconds: float = PATIENCE_SECONDS) -> Result:
    """Run a test on the loop that nodes run on; whatever it left running is cancelled, and nothing may fail unseen."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> Result:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(patience_seconds):
            return await test()

    result = antiphon.run(bounded())
    assert not unseen, f"something failed where nobody looked: {unseen}"
    return result


@asynccontextmanager
async def cluster(count: int, **settings: Any) -> AsyncIterator[list[Node]]:
    """Nodes of one cluster in this process, each joined through the one before it."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for _ in range(count):
            join = [nodes[-1].address] if nodes else []
            nodes.append(await stack.enter_async_context(antiphon.start(join=join, leave_seconds=5.0, **settings)))
        yield nodes


@asynccontextmanager
async def tree(count: int, *, table: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[list[Node]]:
    """Brokers of one tree in this process, a binary one unless the table says otherwise."""
    brokers = free_addresses(count)
    begun = [
        antiphon.start(fabric="tree", tree={"brokers": brokers, **(table or {})}, listen=address, **settings)
        for address in brokers
    ]
    nodes = await asyncio.gather(*begun)
    try:
        yield list(nodes)
    finally:
        await asyncio.gather(*(node.close() for node in nodes))


async def subscribed(nodes: list[Node], topic: str = "room") -> list[Subscription]:
    """A subscription at each node, all of them effective."""
    subscriptions = [node.subscribe(topic) for node in nodes]
    await asyncio.gather(*(subscription.ready() for subscription in subscriptions))
    return subscriptions


async def take(subscription: Subscription, count: int) -> list[Message]:
    """The next messages of a subscription; they may be taken in several calls, but not beyond the end of a batch."""
    taken: list[Message] = []
    async for messages in subscription.batches():
        taken += messages
        if len(taken) >= count:
            assert len(taken) == count, f"{len(taken)} messages came at once where {count} were awaited"
            return taken
    raise AssertionError(f"the subscription ended after {len(taken)} of {count} messages")


async def take_values(subscription: Subscription, count: int) -> list[bytes]:
    """The values of the next messages."""
    return [message.value for message in await take(subscription, count)]


async def take_exactly(subscription: Subscription, count: int) -> list[Message]:
    """So many messages, in batches of any size."""
    messages: list[Message] = []
    async for message in subscription:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


async def exact_values(subscription: Subscription, count: int) -> list[bytes]:
    """The values of so many messages, in batches of any size."""
    return [message.value for message in await take_exactly(subscription, count)]


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody announces; the test's patience is the bound."""
    while not condition():
        await asyncio.sleep(0.002)


async def outcome(awaitable: Awaitable[Any]) -> BaseException | None:
    """How something ended: with this error, or well."""
    try:
        await awaitable
    except Exception as error:
        return error
    return None


class Child:
    """A node in a process of its own, which says what it did on lines and does what lines tell it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.address = ""

    async def line(self) -> str:
        """What it says next; empty when it has ended."""
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def tell(self, line: str) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()

    async def kill(self) -> None:
        """End it as a machine that loses power would, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def child(*arguments: str, script: Path = CHILD) -> AsyncIterator[Child]:
    """Start ``node_child.py``, or another script, with arguments; it is gone afterwards."""
    paths = [str(Path(antiphon.__file__).parent.parent), str(CHILD.parent.parent.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    found = Child(process)
    try:
        word, _, found.address = (await found.line()).partition(" ")
        assert word == "listening", f"the node in the process did not start: {word} {found.address}"
        yield found
    finally:
        if process.returncode is None:
            await found.kill()


def pieces_of(reader: LogReader | None) -> list[list[int]]:
    """The numbers of publications that are read back, as long as there are any."""
    assert reader is not None
    found: list[list[int]] = []
    while piece := reader.earlier():
        found.append([int(message.sequence) for message in piece])
    return found


class HeldTransport:
    """A connection that takes nothing for now."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def is_closing(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def hold_link(link: OutgoingLink) -> Callable[[], None]:
    """Let nothing leave over a link, whose connection stays; what is returned lets it leave."""
    transport = link._transport
    link._transport = HeldTransport(transport)  # type: ignore[assignment]

    def release() -> None:
        link._transport = transport
        link.flush()

    return release
