"""Publishing, as nodes and clients offer it: what may be published, and what a message is about.

Everything that an application gives is checked here, before it is added to an outbox (:mod:`antiphon.api.outbox`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any, Final, overload

from mypy_extensions import i64, mypyc_attr

from antiphon.api.columns import FOLLOWED_AT_MOST, NEVER, Follows
from antiphon.api.heard import HeardTable, narrowed
from antiphon.api.outbox import Outbox
from antiphon.api.receipts import Publishing, Refusals
from antiphon.api.topic_names import key_number
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.runtime.errors import OverloadedError, WrongTypeError

VALUE_BYTES_AT_MOST: Final = 10 << 20
BESIDE_BYTES_AT_MOST: Final = 64 << 10
"""A message's value, and its key and headers together: so much that a batch with all that may wait beside it still fits
the log."""

TTL_SECONDS_AT_MOST: Final = 10 * 366 * 86_400

KEYS_AT_MOST: Final = 1024
"""How many keys one message may be about."""

Value = bytes | bytearray | memoryview

Key = bytes | str | int
"""What names a key: bytes, or a text or number that stands for the bytes of its text."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishHost:
    """The outboxes of a node or a client, one per topic, and what decides which messages may be added to them."""

    def __init__(self, default_order: str) -> None:
        self.default_order: Final[str] = default_order
        self.outboxes: dict[str, Outbox] = {}
        # What was refused since the last flush.
        self.refusals: Final = Refusals()
        # The messages that its program has received since it published on their topics.
        self.heard: Final = HeardTable()
        # Whether a message is accepted only later than it is taken, as when it must be on disk.
        self.with_receipts: bool = False
        # Whether messages about different keys may be in one batch, unless it is total. It then waits for all of them.
        self.mixes_keys: bool = False
        # Whether messages of weaker orders may need a majority too, on some topics.
        self.asks_majority: bool = False

    def open_outbox(self, topic: str) -> Outbox:
        """Called for the first message on a topic."""
        raise NotImplementedError

    def author_number(self) -> int:
        """The author of what is published here, as receipts and messages name it."""
        raise NotImplementedError

    def check_majority(self, topic: str, order: str) -> None:
        """Refuse what needs a majority where that is known to be out of reach now."""

    def settle_publishing(self, publishing: Publishing, acks: str) -> Awaitable[Any]:
        """The receipt of a message when it has its position in the history of its topic, on so many disks."""
        raise NotImplementedError

    def followed(self, topic: str, after: Sequence[Any] | None) -> Follows | None:
        """The predecessors of the next message on a topic: these alone, or all that its program received there."""
        if after is not None:
            return narrowed(topic, names_of(after))
        return self.heard.take(topic, self.author_number())

    def change_keys(self, outbox: Outbox, key: bytes | None, keys: object) -> None:
        """Make the next message of an outbox begin a batch about these keys, unless it has them already."""
        names = names_of_keys(keys)
        about = numbers_of_keys(key, names)
        if about == outbox.about and names == outbox.names:
            return
        if self.mixes_keys and outbox.order != "total" and len(names) == 0 and len(outbox.names) == 0:
            outbox.widen(about)
        else:
            outbox.change(outbox.order, about, names)


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher:
    """Publishing, as nodes and clients offer it."""

    def __init__(self, host: PublishHost) -> None:
        self._host: Final[PublishHost] = host

    @overload
    def publish(
        self,
        topic: str,
        value: Value,
        *,
        order: str | None = None,
        key: Key | None = None,
        headers: dict[str, bytes] | None = None,
        ttl_seconds: float | None = None,
        after: Sequence[Any] | None = None,
    ) -> Publishing: ...

    @overload
    def publish(
        self,
        topic: str,
        value: Value,
        *,
        order: str | None = None,
        key: Key | None = None,
        keys: Sequence[Key] | None,
        headers: dict[str, bytes] | None = None,
        ttl_seconds: float | None = None,
        after: Sequence[Any] | None = None,
    ) -> Publishing: ...

    @overload
    def publish(
        self,
        topic: str,
        value: Value,
        *,
        order: str | None = None,
        key: Key | None = None,
        keys: Sequence[Key] | None = None,
        headers: dict[str, bytes] | None = None,
        ttl_seconds: float | None = None,
        after: Sequence[Any] | None = None,
        acks: str,
    ) -> Awaitable[Any]: ...

    # The types are those above. A compiled function would refuse others with an error that does not say what to do.
    def publish(
        self,
        topic: str,
        value: object,
        *,
        order: str | None = None,
        key: object = None,
        keys: Any = None,
        headers: Any = None,
        ttl_seconds: Any = None,
        after: Any = None,
        acks: str = "one",
    ) -> Any:
        """Publish a message. Await the result: it becomes a ``Receipt`` when the message is accepted.

        The receipt names the author and the author's own number for the message. The call itself takes the message and
        returns at once, so several can be in flight. A program that does not await is not slowed when the system cannot
        keep up, and gets ``OverloadedError`` in the end; ``flush`` and ``close`` report what was refused.

        ``order`` is ``"none"``, ``"fifo"``, ``"causal"`` or ``"total"``; without it the default of the node or client
        counts. ``key`` or ``keys`` say what the message is about: ``"total"`` puts it into one order with all messages
        about the same keys. A key is bytes, or a text or a number, which stand for the bytes of their text.
        ``headers`` are shown to subscribers. After ``ttl_seconds`` no subscriber is shown the message any more.

        A message *follows* what its publisher published and received on the topic before: a consumer with ``mode``
        ``"causal"`` hands it out when all that is done. ``after`` lists messages or receipts that it follows instead.

        ``acks="quorum"``, on a topic with a history, waits for more: the message has its position there, on the disks
        of a majority of the topic's replicas. ``acks="all"`` waits for all of them; if one is away it raises after 10
        seconds. The result is then a ``SettledReceipt``.
        """
        if acks != "one" and acks != "quorum" and acks != "all":
            raise UsageError(f"acks is 'one', 'quorum' or 'all', not {acks!r}")
        host = self._host
        outbox = host.outboxes.get(topic)
        if outbox is None:
            outbox = host.open_outbox(topic)
        if order is None:
            order = host.default_order
        if order == "total" or host.asks_majority:
            host.check_majority(topic, order)
        if order != outbox.order:
            check_order(order)
            outbox.change(order, outbox.about, outbox.names)
        name = None if key is None else bytes_of_key(key)
        if name is not None or keys is not None or len(outbox.about) > 0:
            host.change_keys(outbox, name, keys)
        plain = value if isinstance(value, bytes) and len(value) <= VALUE_BYTES_AT_MOST else checked_value(value)
        if name is not None or headers is not None:
            check_beside_value(name, headers)
        expires_us = NEVER if ttl_seconds is None else outbox.clock_us() + checked_ttl_us(ttl_seconds)
        follows = host.followed(topic, after) if after is not None or topic in host.heard.by_topic else None
        try:
            publishing = outbox.post(plain, host.with_receipts, name, headers, expires_us, follows)
        except OverloadedError:
            host.heard.give_back(topic, follows)
            raise
        return publishing if acks == "one" else host.settle_publishing(publishing, acks)


def names_of(after: object) -> list[tuple[str, int, int]]:
    """Messages or receipts that a message follows: each with its topic, its author and the author's number."""
    if not isinstance(after, (list, tuple)) or len(after) > FOLLOWED_AT_MOST:
        raise WrongTypeError(f"after is a list of at most {FOLLOWED_AT_MOST} messages or receipts")
    found: list[tuple[str, int, int]] = []
    for each in after:
        number = getattr(each, "author_sequence", None) or getattr(each, "sequence", None)
        if number is None:
            raise WrongTypeError(f"after lists messages or receipts, not {type(each).__name__}")
        found.append((each.topic, each.author, number))
    return found


def check_order(order: str) -> None:
    """Refuse an order that there is not."""
    if order not in ORDER_NAMES:
        raise UsageError(f"a message is ordered by {', '.join(ORDER_NAMES)}, not {order!r}; choose one of these")


def names_of_keys(keys: object) -> tuple[bytes, ...]:
    """The keys that were listed, as bytes, each once and in order."""
    if keys is None:
        return ()
    if isinstance(keys, (bytes, str)) or not isinstance(keys, Collection) or len(keys) > KEYS_AT_MOST:
        raise WrongTypeError(f"keys are a list of at most {KEYS_AT_MOST} keys; write for example keys=['anna', 'ben']")
    names = {bytes_of_key(each) for each in keys}
    if sum([len(name) for name in names]) > BESIDE_BYTES_AT_MOST:
        raise UsageError(f"the keys of a message hold more than {BESIDE_BYTES_AT_MOST} bytes; use shorter ones")
    return tuple(sorted(names))


def numbers_of_keys(key: bytes | None, names: tuple[bytes, ...]) -> tuple[int, ...]:
    """The numbers of the keys that a message is about, in order: those listed, or else its only one."""
    if len(names) == 0:
        return () if key is None else (key_number(key),)
    return tuple(sorted({key_number(name) for name in names}))


def bytes_of_key(key: object) -> bytes:
    """A key as bytes: a text or a number stands for the bytes of its text."""
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if isinstance(key, str):
        try:
            key = key.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the key {key!r} is no text that can be written as UTF-8; give its bytes") from error
    if not isinstance(key, bytes):
        raise WrongTypeError(
            f"a key is bytes, a text or a number, not {type(key).__name__}; write for example key='anna', key=7 or "
            "key=b'anna', or turn it into a text"
        )
    return key


def checked_value(value: object) -> bytes:
    """A value that may be published, as bytes."""
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if not isinstance(value, bytes):
        raise WrongTypeError(
            f"a message holds bytes, not {type(value).__name__}; encode it, for example with .encode()"
        )
    if len(value) > VALUE_BYTES_AT_MOST:
        raise UsageError(
            f"a message of {len(value)} bytes is too long; at most {VALUE_BYTES_AT_MOST} fit: split it, or store it "
            "elsewhere and publish where it is"
        )
    return value


def check_beside_value(key: bytes | None, headers: object) -> None:
    """Keys and headers that subscribers can read: what one node sends in another form stops others."""
    size: i64 = 0
    if key is not None:
        size += len(key)
    if headers is not None:
        if not isinstance(headers, dict):
            raise WrongTypeError(f"headers are a dictionary of names and bytes, not {type(headers).__name__}")
        for name, content in headers.items():
            if not isinstance(name, str):
                raise WrongTypeError(f"the name of a header is a string, not {type(name).__name__}")
            size += len(name) + len(checked_part(content, "a header"))
    if size > BESIDE_BYTES_AT_MOST:
        raise UsageError(
            f"a key and headers of {size} bytes are too long; at most {BESIDE_BYTES_AT_MOST} fit: put it into the value"
        )


def checked_part(part: object, what: str) -> bytes:
    """The parts of a message that hold bytes beside the value."""
    if not isinstance(part, bytes):
        raise WrongTypeError(f"{what} holds bytes, not {type(part).__name__}; encode it, for example with .encode()")
    return part


def checked_ttl_us(ttl_seconds: object) -> int:
    """A time to live in microseconds."""
    if not isinstance(ttl_seconds, (int, float)):
        raise WrongTypeError(f"a time to live is a number of seconds, not {type(ttl_seconds).__name__}")
    if not 0 < ttl_seconds <= TTL_SECONDS_AT_MOST:
        raise UsageError(f"a time to live is more than 0 and at most {TTL_SECONDS_AT_MOST} seconds, not {ttl_seconds}")
    return int(ttl_seconds * 1_000_000)
