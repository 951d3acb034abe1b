"""Outboxes: where what the application publishes on one topic waits for the turn of the loop to end.

``publish`` is called once per message, so it does next to nothing: it adds the value to a column. The columns become
one batch when the turn ends or when they are long enough, and only while the protocol has room for another
publication; until then they go on growing, so the busier a system is, the larger are its batches. When they have
reached their bound, publishers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.api.batch_codec import size_beside_value, size_of_follows
from antiphon.api.columns import NEVER, NO_AUTHOR, Author, Columns, Follows
from antiphon.api.receipts import BatchReceipt, Publishing, Refusals
from antiphon.api.segment import Segment
from antiphon.runtime.errors import OverloadedError

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

KEYS_TOGETHER: Final = 64
"""How many keys a batch may be about whose messages have different ones."""

TRIED_ALWAYS: Final = 4
"""So many blocked outboxes are tried whenever a node settles, beside those on whose topics something happened."""

TRIED_AT_ONCE: Final = 64
"""So many are tried if room may have opened on any topic; the others have their turn soon after."""

NO_KEY: Final = (0,)
"""What names no key is about this one."""


@final
class BlockedOutboxes:
    """The outboxes that hold more than there was room for, and which of them to try next.

    Room opens on one topic when another node acknowledges something there, and on any topic when a node is lost or the
    disk has caught up. If every event tried every outbox, a message would cost more the more topics there are. So an
    event on a topic names its outbox, any other event gives each outbox a turn, and no call tries more than a few.
    """

    def __init__(self) -> None:
        self.ring: dict[Outbox, None] = {}
        """In the order in which they have their turn; an outbox that is tried and still blocked goes to the end."""
        self._named: dict[Outbox, None] = {}
        # How many of the ring are still to have a turn because of an event that may have opened room anywhere.
        self._owed: i64 = 0

    def __len__(self) -> int:
        return len(self.ring)

    def __iter__(self) -> Iterator[Outbox]:
        return iter(list(self.ring))

    def add(self, outbox: Outbox) -> None:
        """An outbox holds more than there is room for."""
        self.ring[outbox] = None

    def discard(self, outbox: Outbox) -> None:
        """An outbox holds nothing that waits for room."""
        self.ring.pop(outbox, None)
        self._named.pop(outbox, None)

    def name(self, outbox: Outbox) -> None:
        """There may be room for this one: it is tried next."""
        if outbox in self.ring:
            self._named[outbox] = None

    def name_all(self) -> None:
        """There may be room for any of them: each has a turn."""
        self._owed = len(self.ring)

    @property
    def has_more(self) -> bool:
        """Whether some outbox is still to have the turn that an event gave it."""
        return self._owed > 0 and len(self.ring) > 0

    def take_due(self, count: int) -> list[Outbox]:
        """The outboxes that were named, and the next ``count`` of the others; each is to be flushed by the caller."""
        due = list(self._named)
        self._named.clear()
        for outbox in due:
            del self.ring[outbox]
        for outbox in list(islice(self.ring, count)):
            del self.ring[outbox]
            due.append(outbox)
        for outbox in due:
            self.ring[outbox] = None
        self._owed = max(0, self._owed - count)
        return due

    def flush_due(self) -> bool:
        """Let a few of them send what there is room for now; whether anything was sent."""
        moved = False
        for outbox in self.take_due(TRIED_AT_ONCE if self.has_more else TRIED_ALWAYS):
            before = len(outbox)
            outbox.flush()
            moved = moved or len(outbox) != before
        return moved


# Shared by all outboxes that hold nothing: they stay empty.
NO_VALUES: Final[list[bytes]] = []
NOTHING_CLOSED: Final[list[Segment]] = []


@final
class OutboxOwner:
    """The node or client that outboxes belong to: one for all of them, because there may be very many.

    ``room`` says how many more publications the protocol takes now about a subject; ``send`` hands one over. Of
    ``loop`` only ``call_soon`` and ``create_future`` are used. ``author`` says who publishes, and ``refusals`` count
    what it was refused. ``blocked`` are the outboxes that have more than there was room for.
    """

    def __init__(
        self,
        loop: Any,
        accepted: Any,
        room: Callable[[Any], int],
        send: Callable[[Any, Segment], object],
        clock_us: Callable[[], int],
        blocked: BlockedOutboxes,
        author: Callable[[], int],
        refusals: Refusals,
    ) -> None:
        self.loop: Final[Any] = loop
        self.accepted: Final = BatchReceipt(accepted, None)
        self.room: Final = room
        self.send: Final = send
        self.clock_us: Final = clock_us
        self.blocked: Final = blocked
        self.author: Final = author
        self.refusals: Final = refusals


@mypyc_attr(allow_interpreted_subclasses=True)
class Outbox:
    """The publications of this node on one topic that have not left yet.

    ``subject`` is the topic as the owner knows it, and as it wants to be asked about it.
    """

    def __init__(self, topic: str, order: str, owner: OutboxOwner, subject: Any) -> None:
        self.topic: Final[str] = topic
        self.order: str = order
        # The keys that what is collected is about: their numbers, and their names if they are no column.
        self.about: tuple[int, ...] = ()
        self.names: tuple[bytes, ...] = ()
        self.first_sequence: i64 = 1
        self.next_sequence: i64 = 1
        self._owner: Final[OutboxOwner] = owner
        self._subject: Final[Any] = subject
        # What has another order or other keys than the values below and had to wait before them.
        self._closed: list[Segment] = NOTHING_CLOSED
        self._closed_count: i64 = 0
        self._closed_bytes: i64 = 0
        self._values: list[bytes] = NO_VALUES
        self._keys: list[bytes | None] | None = None
        self._headers: list[dict[str, bytes] | None] | None = None
        self._expires_us: list[int] | None = None
        self._follows: list[Follows | None] | None = None
        # Whether any of these columns has begun.
        self._has_columns: bool = False
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

    def clock_us(self) -> int:
        """The clock of whoever publishes here, in microseconds since 1970."""
        return self._owner.clock_us()

    def begin_at(self, sequence: int) -> None:
        """Number messages from here on."""
        self.first_sequence = sequence
        self.next_sequence = sequence

    def post(
        self,
        value: bytes,
        with_receipt: bool,
        key: bytes | None = None,
        headers: dict[str, bytes] | None = None,
        expires_us: int = NEVER,
        follows: Follows | None = None,
    ) -> Publishing:
        """Take a message; the answer is what the publisher is to await.

        The columns beside the values begin with the first message that uses them.
        """
        count = len(self._values)
        size: i64 = len(value)
        if self._has_columns or key is not None or headers is not None or expires_us != NEVER or follows is not None:
            self._add_beside(count, key, headers, expires_us, follows)
            size += size_beside_value(key, headers) + (0 if follows is None else size_of_follows(follows))
        if count == 0:
            self._values = [value]
        else:
            self._values.append(value)
        self._bytes += size
        number = self.next_sequence + count
        if count + 1 >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES or self._closed_count > 0:
            batch = self._post_full(size, with_receipt)
        else:
            if not self._is_scheduled and not self.is_blocked:
                self._is_scheduled = True
                self._owner.loop.call_soon(self.flush)
            batch = self._current_receipt() if with_receipt else self._owner.accepted
        return Publishing(batch, self.topic, self._owner.author, number)

    def _add_beside(
        self,
        count: i64,
        key: bytes | None,
        headers: dict[str, bytes] | None,
        expires_us: int,
        follows: Follows | None,
    ) -> None:
        """Add what a message has beside its value to the columns, behind those of ``count`` messages."""
        self._has_columns = True
        if key is not None and self._keys is None:
            self._keys = [None] * int(count)
        if headers is not None and self._headers is None:
            self._headers = [None] * int(count)
        if expires_us != NEVER and self._expires_us is None:
            self._expires_us = [NEVER] * int(count)
        if follows is not None and self._follows is None:
            self._follows = [None] * int(count)
        if self._keys is not None:
            self._keys.append(key)
        if self._headers is not None:
            self._headers.append(headers)
        if self._expires_us is not None:
            self._expires_us.append(expires_us)
        if self._follows is not None:
            self._follows.append(follows)

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
            self._add_closed(self._close())
        size: i64 = 0
        for value in columns.values:
            size += len(value)
        receipt = self._owner.loop.create_future() if with_receipt else None
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
            columns.follows,
        )
        self.next_sequence += len(columns.values)
        self._add_closed(Segment(order, about, numbered, size, receipt, author, is_foreign=True))
        self.flush()
        if with_receipt:
            return receipt
        return self.until_room() if self.is_blocked else None

    @property
    def is_full(self) -> bool:
        """Whether so much waits that publishers wait."""
        count = len(self._values) + self._closed_count
        return count >= WAITING_MESSAGES or self._bytes + self._closed_bytes >= WAITING_BYTES

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
            self._add_closed(self._close())
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
        if self._follows is not None:
            self._follows.pop()

    def change(self, order: str, about: tuple[int, ...], names: tuple[bytes, ...]) -> None:
        """The next messages have another order or are about other keys, and so belong to another batch.

        Batches stay in the order of the calls: what one publisher asks for in order is one line, whatever the keys.
        """
        if len(self._values) > 0 and not self.flush():
            self._add_closed(self._close())
        self.order = order
        self.about = about
        self.names = names

    def widen(self, about: tuple[int, ...]) -> None:
        """The next messages are about other keys. They may join the batch, which is then about all of these keys."""
        if len(self._values) > 0:
            together = tuple(sorted({*(self.about or NO_KEY), *(about or NO_KEY)}))
            if len(together) > KEYS_TOGETHER:
                self.change(self.order, about, ())
                return
            about = together
        self.about = about

    def _a_turn(self) -> Any:
        future = self._owner.loop.create_future()
        self._owner.loop.call_soon(set_if_waiting, future)
        return future

    def until_room(self) -> Any:
        """A future that is done when publishers need not wait any more."""
        if self._waiting is None:
            self._waiting = self._owner.loop.create_future()
        return self._waiting

    def _room_receipt(self) -> BatchReceipt:
        if self._waiting is None or self._waiting_receipt is None:
            self._waiting_receipt = BatchReceipt(self.until_room(), None)
        return self._waiting_receipt

    def _current_receipt(self) -> BatchReceipt:
        receipt = self._receipt
        if receipt is None:
            receipt = self._receipt = BatchReceipt(self._owner.loop.create_future(), self._owner.refusals)
        return receipt

    def flush(self) -> bool:
        """Make a batch of what waits and send it; false if the protocol has no room for all of it."""
        self._is_scheduled = False
        if len(self._values) + self._closed_count == 0:
            return True
        if self.failure is not None:
            self.fail(self.failure)
            return True
        was_blocked = self.is_blocked
        has_moved = not was_blocked
        while len(self._values) + self._closed_count > 0 and self._owner.room(self._subject) > 0:
            has_moved = True
            self._owner.send(self._subject, self._close() if len(self._closed) == 0 else self._first_closed())
        self.is_blocked = len(self._values) + self._closed_count > 0
        if self.is_blocked:
            if has_moved:
                self.blocked_at_us = self._owner.clock_us()
            self._owner.blocked.add(self)
        elif was_blocked:
            self._owner.blocked.discard(self)
        if self._waiting is not None and not self.is_blocked:
            waiting = self._waiting
            self._waiting = self._waiting_receipt = None
            set_if_waiting(waiting)
        return not self.is_blocked

    def _close(self) -> Segment:
        """The messages that have been collected; nothing more is added to it."""
        values = self._values
        names = list(self.names) if len(self.names) > 0 else None
        columns = Columns(
            int(self.next_sequence),
            self._owner.clock_us(),
            values,
            self._keys,
            self._headers,
            self._expires_us,
            names,
            None,
            self._follows,
        )
        self.next_sequence += len(values)
        self._owner.refusals.published += len(values)
        receipt = self._receipt
        if receipt is not None:
            receipt.count = len(values)
        future = None if receipt is None else receipt.future
        segment = Segment(self.order, self.about, columns, self._bytes, future)
        self._values = NO_VALUES
        self._keys = None
        self._headers = None
        self._expires_us = None
        self._follows = None
        self._has_columns = False
        self._bytes = 0
        self._receipt = None
        return segment

    def _first_closed(self) -> Segment:
        """The first batch that waits, which leaves now."""
        segment = self._closed.pop(0)
        if len(self._closed) == 0:
            self._closed = NOTHING_CLOSED
        self._closed_count -= len(segment.columns.values)
        self._closed_bytes -= segment.size
        return segment

    def _add_closed(self, segment: Segment) -> None:
        """A batch waits to be sent."""
        if len(self._closed) == 0:
            self._closed = [segment]
        else:
            self._closed.append(segment)
        self._closed_count += len(segment.columns.values)
        self._closed_bytes += segment.size

    def fail(self, error: BaseException) -> None:
        """Nothing can be sent any more: whoever waits is told why."""
        self.failure = error
        if len(self._values) > 0:
            self._add_closed(self._close())
        futures = [segment.receipt for segment in self._closed]
        futures.append(self._waiting)
        for segment in self._closed:
            if segment.receipt is None and not segment.is_foreign:
                # Its publisher was told that it is taken, as it mostly is; flush and close say that it was not.
                refusal = self._owner.refusals.add(error, len(segment.columns.values))
                if self._waiting_receipt is not None:
                    self._waiting_receipt.counted(refusal)
        self._closed = NOTHING_CLOSED
        self._closed_count = 0
        self._closed_bytes = 0
        self._waiting = self._waiting_receipt = None
        for future in futures:
            if future is not None and not future.done():
                future.set_exception(error)


def set_if_waiting(future: Any) -> None:
    """Finish a future that nobody may have cancelled."""
    if not future.done():
        future.set_result(None)
