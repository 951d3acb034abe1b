"""Outboxes: where what the application publishes on one topic waits for the turn of the loop to end.

``publish`` is called once per message, so it does next to nothing: it adds the value to a column. The columns become
one batch when the turn ends or when they are long enough, and only while the protocol has room for another
publication; until then they go on growing, so the busier a system is, the larger are its batches. When they have
reached their bound, publishers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, final, overload

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.live.columns import NEVER, NO_AUTHOR, Author, Columns
from antiphon.live.errors import OverloadedError, WrongTypeError
from antiphon.live.names import key_number
from antiphon.live.receipts import BatchReceipt, Publishing, Refusals

BATCH_MESSAGES: Final = 256
BATCH_BYTES: Final = 64 << 10
"""A batch of this size leaves before the turn of the loop ends."""

WAITING_MESSAGES: Final = 4096
WAITING_BYTES: Final = 256 << 10
"""When so much waits because the protocol has no room, publishers wait."""

OVERRUN: Final = 16
OVERRUN_BYTES: Final = 64 << 20
"""How many times as many messages, and how many bytes, may wait when publishers do not: several of the largest."""

CLOSED_BYTES: Final = 4 << 20
"""Nothing more is added to a batch of so many bytes that waits: with one more message it still fits a frame."""

VALUE_BYTES_AT_MOST: Final = 10 << 20
BESIDE_BYTES_AT_MOST: Final = 64 << 10
"""A message's value, and its key and headers together: so much that a batch with all that may wait beside it still fits
the log."""

TTL_SECONDS_AT_MOST: Final = 10 * 366 * 86_400


KEYS_TOGETHER: Final = 64
"""How many keys a batch may be about whose messages have different ones."""

NO_KEY: Final = (0,)
"""What names no key is about this one."""

KEYS_AT_MOST: Final = 1024
"""How many keys one message may be about."""

Value = bytes | bytearray | memoryview

Key = bytes | str | int
"""What names a key: bytes, or a text or number that stands for the bytes of its text."""


@final
class Segment:
    """Messages that follow each other and become one batch; ``receipt`` is finished when they are accepted.

    ``about`` are the numbers of the keys that all of them are about; ``author`` is the client that published them, with
    its own number for the batch.
    """

    def __init__(
        self,
        order: str,
        about: tuple[int, ...],
        columns: Columns,
        size: i64,
        receipt: Any,
        author: Author = NO_AUTHOR,
        is_foreign: bool = False,
    ) -> None:
        self.order: Final[str] = order
        self.about: Final[tuple[int, ...]] = about
        self.columns: Final[Columns] = columns
        self.size: Final[i64] = size
        self.receipt: Final[Any] = receipt
        self.author: Final[Author] = author
        # Whether a client published them, which is told itself what becomes of them.
        self.is_foreign: Final[bool] = is_foreign


@mypyc_attr(allow_interpreted_subclasses=True)
class Outbox:
    """The publications of this node on one topic that have not left yet.

    ``room`` says how many more publications the protocol takes now; ``send`` hands one over. Both come from the node,
    as does ``loop``, of which only ``call_soon`` and ``create_future`` are used.
    """

    def __init__(
        self,
        topic: str,
        order: str,
        loop: Any,
        accepted: Any,
        room: Callable[[], int],
        send: Callable[[Segment], None],
        clock_us: Callable[[], int],
        blocked: set[Outbox],
        author: Callable[[], int],
        refusals: Refusals,
    ) -> None:
        self.topic: Final[str] = topic
        self.order: str = order
        # The keys that what is collected is about: their numbers, and their names if they are no column.
        self.about: tuple[int, ...] = ()
        self.names: tuple[bytes, ...] = ()
        self.first_sequence: i64 = 1
        self.next_sequence: i64 = 1
        self._loop: Final[Any] = loop
        self._accepted: Final = BatchReceipt(accepted, None)
        # Who publishes here, and where what it was refused is counted.
        self._author: Final = author
        self._refusals: Final = refusals
        self._room: Final = room
        self._send: Final = send
        self.clock_us: Final = clock_us
        # All outboxes of the node that have more than there was room for.
        self._blocked: Final = blocked
        # What has another order or other keys than the values below and had to wait before them.
        self._closed: list[Segment] = []
        self._closed_count: i64 = 0
        self._closed_bytes: i64 = 0
        self._values: list[bytes] = []
        self._keys: list[bytes | None] | None = None
        self._headers: list[dict[str, bytes] | None] | None = None
        self._expires_us: list[int] | None = None
        self._bytes: i64 = 0
        self._is_scheduled: bool = False
        self._receipt: BatchReceipt | None = None
        self._waiting: Any = None
        self._waiting_receipt: BatchReceipt | None = None
        self.is_blocked: bool = False
        self.failure: BaseException | None = None
        self.waits: i64 = 0
        # While it is blocked: when that began, or when something was last sent.
        self.blocked_at_us: int = 0

    def __len__(self) -> int:
        return len(self._values) + self._closed_count

    def begin_at(self, sequence: int) -> None:
        """Number messages from here on."""
        self.first_sequence = sequence
        self.next_sequence = sequence

    def post(self, value: bytes, with_receipt: bool) -> Publishing:
        """Take a value; the answer is what the publisher is to await."""
        if self._keys is not None:
            self._keys.append(None)
        if self._headers is not None:
            self._headers.append(None)
        if self._expires_us is not None:
            self._expires_us.append(NEVER)
        return self._take(value, len(value), with_receipt)

    def post_with(
        self, value: bytes, key: bytes | None, headers: dict[str, bytes] | None, expires_us: int, with_receipt: bool
    ) -> Publishing:
        """Take a value with more than itself; a column begins with the first message that uses it."""
        count = len(self._values)
        if key is not None and self._keys is None:
            self._keys = [None] * count
        if headers is not None and self._headers is None:
            self._headers = [None] * count
        if expires_us != NEVER and self._expires_us is None:
            self._expires_us = [NEVER] * count
        if self._keys is not None:
            self._keys.append(key)
        if self._headers is not None:
            self._headers.append(headers)
        if self._expires_us is not None:
            self._expires_us.append(expires_us)
        return self._take(value, len(value) + size_beside_value(key, headers), with_receipt)

    def _take(self, value: bytes, size: i64, with_receipt: bool) -> Publishing:
        number = self.next_sequence + len(self._values)
        self._values.append(value)
        self._bytes += size
        if len(self._values) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES or self._closed_count > 0:
            batch = self._post_full(size, with_receipt)
        else:
            if not self._is_scheduled and not self.is_blocked:
                self._is_scheduled = True
                self._loop.call_soon(self.flush_in_turn)
            batch = self._current_receipt() if with_receipt else self._accepted
        return Publishing(batch, self.topic, self._author, number)

    def post_columns(
        self,
        order: str,
        about: tuple[int, ...],
        columns: Columns,
        with_receipt: bool,
        author: Author = NO_AUTHOR,
    ) -> Any:
        """Take a whole batch, which stays one; the answer is to be awaited, unless it is None."""
        if self._has_overrun(len(self), self._bytes + self._closed_bytes):
            raise self._overload()
        if len(self._values) > 0:
            self._close()
        size: i64 = 0
        for value in columns.values:
            size += len(value)
        receipt = self._loop.create_future() if with_receipt else None
        numbered = Columns(
            int(self.next_sequence),
            columns.timestamp_us,
            columns.values,
            columns.keys,
            columns.headers,
            columns.expires_us,
            columns.about,
            # A lane of a writer counts what it has written in another way.
            columns.first_sequence if author.client != 0 and author.writer == 0 else None,
        )
        self.next_sequence += len(columns.values)
        self._add(Segment(order, about, numbered, size, receipt, author, is_foreign=True))
        self.flush()
        if with_receipt:
            return receipt
        return self.until_room() if self.is_blocked else None

    @property
    def is_full(self) -> bool:
        """Whether so much waits that publishers wait."""
        return len(self) >= WAITING_MESSAGES or self._bytes + self._closed_bytes >= WAITING_BYTES

    def _post_full(self, size: i64, with_receipt: bool) -> BatchReceipt:
        receipt = self._current_receipt() if with_receipt else None
        self.flush()
        if len(self) < WAITING_MESSAGES and self._bytes + self._closed_bytes < WAITING_BYTES:
            # Unless the publisher gives up its turn now and then, nothing would be written or read.
            return BatchReceipt(self._a_turn(), None) if receipt is None else receipt
        # One message may be larger than all that may wait: what counts is what waited before it.
        if self._has_overrun(len(self) - 1, self._bytes + self._closed_bytes - size):
            self._give_back(size)
            raise self._overload()
        if self._bytes >= CLOSED_BYTES:
            self._close()
        self.waits += 1
        return self._room_receipt() if receipt is None else receipt

    def _has_overrun(self, count: i64, size: i64) -> bool:
        return count > WAITING_MESSAGES * OVERRUN or size > OVERRUN_BYTES

    def _overload(self) -> OverloadedError:
        return OverloadedError(
            f"{len(self)} messages wait on topic {self.topic!r} because it takes them more slowly; "
            "await what publish returns, which slows the publisher down"
        )

    def _give_back(self, size: i64) -> None:
        """The last message was too much: who is told that it was refused may publish it again."""
        self._values.pop()
        self._bytes -= size
        if len(self._values) == 0:
            # It was made for this message, and nobody has it.
            self._receipt = None
        if self._keys is not None:
            self._keys.pop()
        if self._headers is not None:
            self._headers.pop()
        if self._expires_us is not None:
            self._expires_us.pop()

    def change(self, order: str, about: tuple[int, ...], names: tuple[bytes, ...]) -> None:
        """What follows has another order or is about other keys, and so belongs to another batch.

        Batches stay in the order of the calls: what one publisher asks for in order is one line, whatever the keys.
        """
        if len(self._values) > 0 and not self.flush():
            self._close()
        self.order = order
        self.about = about
        self.names = names

    def widen(self, about: tuple[int, ...]) -> None:
        """What follows is about other keys, and may be in the same batch: that is then about all of them."""
        if len(self._values) > 0:
            together = tuple(sorted({*(self.about or NO_KEY), *(about or NO_KEY)}))
            if len(together) > KEYS_TOGETHER:
                self.change(self.order, about, ())
                return
            about = together
        self.about = about

    def _a_turn(self) -> Any:
        future = self._loop.create_future()
        self._loop.call_soon(set_if_waiting, future)
        return future

    def until_room(self) -> Any:
        """A future that is done when publishers need not wait any more."""
        if self._waiting is None:
            self._waiting = self._loop.create_future()
        return self._waiting

    def _room_receipt(self) -> BatchReceipt:
        if self._waiting is None or self._waiting_receipt is None:
            self._waiting_receipt = BatchReceipt(self.until_room(), None)
        return self._waiting_receipt

    def _current_receipt(self) -> BatchReceipt:
        receipt = self._receipt
        if receipt is None:
            receipt = self._receipt = BatchReceipt(self._loop.create_future(), self._refusals)
        return receipt

    def flush_in_turn(self) -> None:
        """What ``call_soon`` calls."""
        self._is_scheduled = False
        self.flush()

    def flush(self) -> bool:
        """Make a batch of what waits and send it; false if the protocol has no room for all of it."""
        if len(self) == 0:
            return True
        if self.failure is not None:
            self.fail(self.failure)
            return True
        has_moved = not self.is_blocked
        while self._room() > 0:
            if len(self._closed) == 0:
                if len(self._values) == 0:
                    break
                self._close()
            has_moved = True
            segment = self._closed.pop(0)
            self._closed_count -= len(segment.columns.values)
            self._closed_bytes -= segment.size
            self._send(segment)
        self.is_blocked = len(self) > 0
        if self.is_blocked:
            if has_moved:
                self.blocked_at_us = self.clock_us()
            self._blocked.add(self)
        else:
            self._blocked.discard(self)
        if self._waiting is not None and not self.is_blocked:
            waiting = self._waiting
            self._waiting = self._waiting_receipt = None
            set_if_waiting(waiting)
        return not self.is_blocked

    def _close(self) -> None:
        """Nothing more is added to what has been collected."""
        values = self._values
        names = list(self.names) if len(self.names) > 0 else None
        columns = Columns(
            int(self.next_sequence), self.clock_us(), values, self._keys, self._headers, self._expires_us, names
        )
        self.next_sequence += len(values)
        self._refusals.published += len(values)
        receipt = self._receipt
        if receipt is not None:
            receipt.count = len(values)
        self._add(Segment(self.order, self.about, columns, self._bytes, None if receipt is None else receipt.future))
        self._values = []
        self._keys = None
        self._headers = None
        self._expires_us = None
        self._bytes = 0
        self._receipt = None

    def _add(self, segment: Segment) -> None:
        self._closed.append(segment)
        self._closed_count += len(segment.columns.values)
        self._closed_bytes += segment.size

    def fail(self, error: BaseException) -> None:
        """Nothing can be sent any more: whoever waits is told why."""
        self.failure = error
        if len(self._values) > 0:
            self._close()
        futures = [segment.receipt for segment in self._closed]
        futures.append(self._waiting)
        for segment in self._closed:
            if segment.receipt is None and not segment.is_foreign:
                # Its publisher was told that it is taken, as it mostly is; flush and close say that it was not.
                refusal = self._refusals.add(error, len(segment.columns.values))
                if self._waiting_receipt is not None:
                    self._waiting_receipt.counted(refusal)
        self._closed.clear()
        self._closed_count = 0
        self._closed_bytes = 0
        self._waiting = self._waiting_receipt = None
        for future in futures:
            if future is not None and not future.done():
                future.set_exception(error)


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher:
    """What nodes and clients share: publishing, one message at a time, as quickly as Python can call a function."""

    def __init__(self, default_order: str) -> None:
        self.default_order: Final[str] = default_order
        self.outboxes: dict[str, Outbox] = {}
        # What was refused since the last flush.
        self.refusals: Final = Refusals()
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
    ) -> Publishing: ...

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
    ) -> Publishing:
        """Publish a message. Await the answer: it gives a receipt when the message is accepted.

        The :class:`Receipt` names the author and the author's own number for the message. Whoever does not await is
        told by ``flush`` and ``close`` of what was not accepted.

        On a cube or a tree the message is about its ``key``, or about several ``keys``; subscribers see them. A key is
        bytes, or a text or a number, which stand for the bytes of their text.
        ``order="total"`` puts it into one order with all others about the same keys.

        The message has been taken when the call returns; several can be in flight. Whoever does not await is not
        slowed down by a system that cannot keep up, and gets :class:`OverloadedError` in the end.
        """
        outbox = self.outboxes.get(topic)
        if outbox is None:
            outbox = self.open_outbox(topic)
        if order is None:
            order = self.default_order
        if order == "total" or self.asks_majority:
            self.check_majority(topic, order)
        if order != outbox.order:
            check_order(order)
            outbox.change(order, outbox.about, outbox.names)
        name = None if key is None else bytes_of_key(key)
        if name is not None or keys is not None or len(outbox.about) > 0:
            self._change_keys(outbox, name, keys)
        plain = value if isinstance(value, bytes) and len(value) <= VALUE_BYTES_AT_MOST else checked_value(value)
        if name is None and headers is None and ttl_seconds is None:
            return outbox.post(plain, self.with_receipts)
        check_beside_value(name, headers)
        expires_us = NEVER if ttl_seconds is None else outbox.clock_us() + checked_ttl_us(ttl_seconds)
        return outbox.post_with(plain, name, headers, expires_us, self.with_receipts)

    def _change_keys(self, outbox: Outbox, key: bytes | None, keys: object) -> None:
        """See to it that what follows is in a batch about these keys, where there are keys."""
        names = names_of_keys(keys)
        about = numbers_of_keys(key, names)
        if about == outbox.about and names == outbox.names:
            return
        if self.mixes_keys and outbox.order != "total" and len(names) == 0 and len(outbox.names) == 0:
            outbox.widen(about)
        else:
            outbox.change(outbox.order, about, names)


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


def set_if_waiting(future: Any) -> None:
    """Finish a future that nobody may have cancelled."""
    if not future.done():
        future.set_result(None)


def checked_value(value: object) -> bytes:
    """What may be published, as bytes."""
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


def size_beside_value(key: bytes | None, headers: dict[str, bytes] | None) -> i64:
    """How many bytes a message holds beside its value."""
    size: i64 = 0 if key is None else len(key)
    if headers is not None:
        for name, content in headers.items():
            size += len(name) + len(content)
    return size


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
    """What holds bytes beside the value."""
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
