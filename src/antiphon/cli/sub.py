"""``antiphon sub``: prints the messages of a topic, or of all topics that match a pattern."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from antiphon.cli import running
from antiphon.kernel.errors import UsageError
from antiphon.streams.position import Position

if TYPE_CHECKING:
    from antiphon.api.batch import Message
    from antiphon.api.pubsub import Subscription
    from antiphon.api.subscription import Start

DEFAULT_LIMIT = 65_536
SECONDS_BETWEEN_LINES = 1.0


@running.with_access(moves=True)
def sub(
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN", help="A topic, or a pattern: orders.*, orders.>", show_default=False),
    ],
    access: running.ServerAccess,
    start: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="latest, earliest, an offset, a position such as 7-1200, or a time such as 2026-01-31T12:00.",
        ),
    ] = "latest",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.", show_default=False)] = None,
    policy: Annotated[
        Literal["block", "drop_oldest", "drop_newest", "disconnect"],
        typer.Option(help="The policy when messages arrive faster than they are printed."),
    ] = "block",
    limit: Annotated[
        int, typer.Option(min=1, help="How many messages may wait at the node before that.")
    ] = DEFAULT_LIMIT,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print no messages, only the rate, on standard error.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per message and line.")] = False,
) -> None:
    """Print messages as they arrive, until Ctrl-C, SIGTERM or --count.

    Each message is a line with its value; with a pattern, the topic and a tab precede it. A line on standard error
    announces that the subscription is effective: every message published from then on arrives.

    Examples: antiphon sub room    antiphon sub 'orders.>' --json    antiphon sub room --start earliest --count 10
    """
    import antiphon
    from antiphon.api.topic_names import is_pattern

    printer = Printer(count, quiet, json, with_topic=is_pattern(pattern))
    begin = start_from(start)
    try:
        antiphon.run(follow(access, pattern, begin, policy, limit, printer))
    except BrokenPipeError:
        # The reader of our output has closed it; the rest of the buffer must not raise an error at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        printer.report_total()


def start_from(word: str) -> Start:
    """The start of a subscription: a name, an offset or a time."""
    if word in ("latest", "earliest"):
        return word
    if word.isdecimal():
        return int(word)
    if word.replace("-", "", 1).isdecimal():
        return Position.parse(word)
    try:
        # A time without a zone is local time.
        return datetime.fromisoformat(word).astimezone()
    except ValueError as error:
        raise UsageError(
            f"a subscription starts at latest, earliest, an offset, a position such as 7-1200 or a time such as "
            f"2026-01-31T12:00, not at {word!r}"
        ) from error


async def follow(
    access: running.ServerAccess,
    pattern: str,
    start: Start,
    policy: str,
    limit: int,
    printer: Printer,
) -> None:
    """Subscribe, and print until the end."""
    stop = running.until_signal()
    client = await running.connect_to_any(access)
    try:
        subscription = client.subscribe(pattern, start, policy=policy, limit=limit, when_missed=tell_gap)
        reporting = asyncio.ensure_future(printer.report()) if printer.is_quiet else None
        await running.first_of(print_all(subscription, printer, client.address), stop)
        if reporting is not None:
            reporting.cancel()
        printer.dropped = subscription.dropped
    finally:
        await client.abandon()


async def print_all(subscription: Subscription, printer: Printer, address: str) -> None:
    """Print messages until there were enough."""
    await subscription.ready()
    print(f"antiphon: subscribed to {subscription.pattern} at {address}", file=sys.stderr, flush=True)
    async for messages in subscription.batches():
        printer.print(messages)
        if printer.has_enough:
            break


def tell_gap(topic: str) -> None:
    """Report that messages may be missing, because the client has moved to another node."""
    print(f"antiphon: messages on {topic} may be missing here (the node has changed)", file=sys.stderr, flush=True)


class Printer:
    """Prints messages, and counts."""

    def __init__(self, count: int | None, is_quiet: bool, as_json: bool, with_topic: bool) -> None:
        self.is_quiet = is_quiet
        self.dropped = 0
        self._left = count
        self._as_json = as_json
        self._with_topic = with_topic
        self._messages = 0
        self._bytes = 0
        self._began = 0.0
        self._last = 0.0

    @property
    def has_enough(self) -> bool:
        """Whether as many messages have arrived as were wanted."""
        return self._left == 0

    def print(self, messages: list[Message]) -> None:
        """Print some messages at once."""
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self._last = time.perf_counter()
        self._began = self._began or self._last
        self._messages += len(messages)
        self._bytes += sum(len(message.value) for message in messages)
        if self.is_quiet:
            return
        line = self._json_line if self._as_json else self._plain_line
        sys.stdout.buffer.write(b"".join(map(line, messages)))
        sys.stdout.buffer.flush()

    def _plain_line(self, message: Message) -> bytes:
        if self._with_topic:
            return message.topic.encode() + b"\t" + message.value + b"\n"
        return message.value + b"\n"

    def _json_line(self, message: Message) -> bytes:
        key, keys = message.key, message.keys
        about = {
            "topic": message.topic,
            **text_or_base64("value", message.value),
            **({} if key is None else text_or_base64("key", key)),
            **({} if key is not None or not keys else {"keys": [name.decode(errors="replace") for name in keys]}),
            "headers": {name: text.decode(errors="replace") for name, text in message.headers.items()},
            "publisher": message.publisher,
            "sequence": message.sequence,
            "order": message.order,
            "offset": message.offset,
            "timestamp": message.timestamp.isoformat(),
        }
        if message.position is not None:
            about["position"] = str(message.position)
        return msgspec.json.encode(about) + b"\n"

    async def report(self) -> None:
        """Print the rate now and then."""
        while True:
            messages, size = self._messages, self._bytes
            await asyncio.sleep(SECONDS_BETWEEN_LINES)
            per_second = (self._messages - messages) / SECONDS_BETWEEN_LINES
            megabytes = (self._bytes - size) / SECONDS_BETWEEN_LINES / 1e6
            print(f"{self._messages:,} messages, {per_second:,.0f} per second, {megabytes:.1f} MB/s", file=sys.stderr)

    def report_total(self) -> None:
        """Print the totals, if nothing else was printed, and how many messages were dropped."""
        if self.is_quiet:
            seconds = self._last - self._began
            rate = f", {self._messages / seconds:,.0f} per second" if seconds > 0 else ""
            print(f"{self._messages:,} messages in {seconds:.3f} seconds{rate}", file=sys.stderr)
        if self.dropped:
            print(f"antiphon: {self.dropped:,} messages were dropped (--policy)", file=sys.stderr)


def text_or_base64(name: str, value: bytes) -> dict[str, str]:
    """Bytes under their name if they are text, and otherwise under NAME_base64."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
