"""``antiphon pub``: publishes arguments, lines of standard input, or a generated load."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.cli import output, running
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import OrderName

if TYPE_CHECKING:
    from antiphon.api.receipts import Publishing
    from antiphon.client.handle import Client

GROUPS_IN_FLIGHT = 48
"""Fewer batches than a client may have in transit, so that its queue stays short."""

LOAD_GROUP = 256
PACE_SECONDS = 0.005
"""How often a load with a rate sends the messages that are due."""

DEFAULT_SIZE = 100


@running.with_access(moves=True)
def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="One message each. Without any, each line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    *,
    access: running.ServerAccess,
    order: Annotated[
        OrderName | None,
        typer.Option(help="The order of the messages; causal by default.", show_default=False),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="The key of all messages; repeatable on a tree.",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; repeatable.", show_default=False)
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Messages are not shown to new readers after that.", show_default=False),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Publish a generated load of this many messages.", show_default=False)
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="BYTES", help=f"The size of each message of a load; {DEFAULT_SIZE}.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="Messages of a load per second; as fast as possible.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Publish messages; returns when all are accepted. docs/guarantees.md says what that promises.

    If some are not accepted it prints how many and why, and ends with 1.

    Examples: antiphon pub room "why?"    seq 1000 | antiphon pub numbers    antiphon pub load --count 100000
    """
    import antiphon

    if count is None and (size is not None or rate is not None):
        raise UsageError("--size and --rate describe a load; give the number of messages with --count")
    if count is not None and values:
        raise UsageError("--count makes its own messages; give either values or --count")
    if rate is not None and not rate > 0:
        raise UsageError(f"a rate is positive, not {rate:g}; leave it out to publish as fast as possible")
    options: dict[str, Any] = {"order": order, "headers": headers_from(header or []), "ttl_seconds": ttl}
    if key and len(key) > 1:
        options["keys"] = key
    elif key:
        options["key"] = key[0]
    if count is not None:
        source = load(count, size or DEFAULT_SIZE, rate)
    else:
        source = given(values) if values else typed_lines()
    sent = antiphon.run(publish_all(access, topic, options, source))
    report(sent, json)


@dataclass
class Sent:
    """The fate of the messages."""

    node: str = ""
    accepted: int = 0
    seconds: float = 0.0
    # Messages that are not known to be accepted yet, in the groups in which they were sent.
    _pending: deque[list[Publishing]] = field(default_factory=deque)

    @property
    def messages_per_second(self) -> float:
        """The rate from the first publication to the last acceptance."""
        return self.accepted / self.seconds if self.seconds > 0 else 0.0

    def add(self, group: list[Publishing]) -> None:
        """Add more messages."""
        self._pending.append(group)

    async def settle(self, client: Client, groups_left: int) -> None:
        """Wait until at most so many groups are in transit; raises if a message was not accepted."""
        while self._pending and (len(self._pending) > groups_left or self._pending[0][-1].done()):
            group = self._pending[0]
            for publishing in group:
                await publishing.settled()
            if not all(publishing.is_accepted for publishing in group):
                # The error also says how many there were.
                await client.flush()
            self._pending.popleft()
            self.accepted += len(group)

    def forget(self) -> None:
        """Stop waiting: count the messages that were accepted."""
        while self._pending:
            self.accepted += sum(publishing.is_accepted for publishing in self._pending.popleft())


async def publish_all(
    access: running.ServerAccess,
    topic: str,
    options: dict[str, Any],
    source: AsyncIterator[list[bytes]],
) -> Sent:
    """Publish the messages of the source, until it ends or a signal stops it."""
    stop = running.until_signal()
    sent = Sent()
    client = await running.connect_to_any(access)
    try:
        sent.node = client.address
        await running.first_of(publish_from(source, client, topic, options, sent), stop)
    except BaseException:
        sent.forget()
        if sent.accepted:
            output.complain(f"{sent.accepted:,} messages had been accepted before this:")
        raise
    finally:
        sent.forget()
        await client.abandon()
    return sent


async def publish_from(
    source: AsyncIterator[list[bytes]], client: Client, topic: str, options: dict[str, Any], sent: Sent
) -> None:
    """Publish with many batches in transit."""
    started = 0.0
    try:
        async for values in source:
            started = started or time.perf_counter()
            sent.add([client.publish(topic, value, **options) for value in values])
            await sent.settle(client, GROUPS_IN_FLIGHT)
        await sent.settle(client, 0)
        await client.flush()
    finally:
        sent.seconds = time.perf_counter() - started if started else 0.0


async def given(values: list[str]) -> AsyncIterator[list[bytes]]:
    """The arguments of the command."""
    for first in range(0, len(values), LOAD_GROUP):
        yield [value.encode() for value in values[first : first + LOAD_GROUP]]


async def typed_lines() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, in pieces that keep queues short."""
    if sys.stdin.isatty():
        output.errors.print("antiphon: each line is a message; end with Ctrl-D")
    async for lines in running.StandardInput().lines():
        for first in range(0, len(lines), LOAD_GROUP):
            yield lines[first : first + LOAD_GROUP]


async def load(count: int, size: int, rate: float | None) -> AsyncIterator[list[bytes]]:
    """Numbered messages of one size, as fast as they are accepted or at a rate."""
    made = 0
    started = time.perf_counter()
    while made < count:
        if rate is None:
            until = min(count, made + LOAD_GROUP)
        else:
            due = int((time.perf_counter() - started) * rate) + 1
            until = min(count, due, made + LOAD_GROUP)
            if until == made:
                await asyncio.sleep(max(PACE_SECONDS, 1 / rate - PACE_SECONDS))
                continue
        yield [f"{number} ".encode().ljust(size, b".")[:size] for number in range(made + 1, until + 1)]
        made = until


def headers_from(words: list[str]) -> dict[str, bytes] | None:
    """Headers from NAME=VALUE."""
    headers = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise UsageError(f"a header is NAME=VALUE, not {word!r}")
        headers[name] = value.encode()
    return headers or None


def report(sent: Sent, as_json: bool) -> None:
    """Print how many were accepted and how fast."""
    if as_json:
        figures = {"accepted": sent.accepted, "seconds": sent.seconds, "messages_per_second": sent.messages_per_second}
        output.print_line({"node": sent.node, **figures})
        return
    words = "message" if sent.accepted == 1 else "messages"
    print(
        f"{sent.accepted:,} {words} accepted by {sent.node} in {sent.seconds:.3f} seconds, "
        f"{sent.messages_per_second:,.0f} per second",
        file=sys.stderr,
    )
