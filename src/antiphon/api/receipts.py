"""The fate of published messages: receipts, and the refusals that nobody has looked at yet.

``publish`` answers with a :class:`Publishing`, one for each message and as cheap as an object can be. The messages of a
batch share what they wait for, a :class:`BatchReceipt`. An awaited publishing becomes its receipt, or raises the error
that it met. Errors at which nobody has looked are counted, and ``flush`` and ``close`` raise them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final, final

from mypy_extensions import i64

from antiphon.api.columns import Receipt
from antiphon.kernel.errors import PeerError

KINDS_AT_MOST: Final = 16
"""So many different refusals are told apart between two flushes; the rest are counted together."""

KINDS_TOLD: Final = 4
"""So many of them are in the text of the error."""


@final
class PublishRefusal:
    """An error, and how many messages met it that nobody has looked at."""

    def __init__(self, error: BaseException) -> None:
        self.error: Final[BaseException] = error
        self.count: i64 = 0


@final
class Refusals:
    """Errors of messages that were published since the last flush."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self._kinds: dict[str, PublishRefusal] = {}

    def add(self, error: BaseException, count: i64) -> PublishRefusal:
        """So many messages met an error."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._kinds and len(self._kinds) >= KINDS_AT_MOST:
            kind, error = "", PeerError("for other reasons")
        refusal = self._kinds.get(kind)
        if refusal is None:
            refusal = self._kinds[kind] = PublishRefusal(error)
        refusal.count += count
        return refusal

    def take(self) -> BaseException | None:
        """One error for all of them, and begin anew; None if all was accepted, or somebody has seen why not.

        It is of the class of the errors if they have one in common, else a :class:`PeerError`.
        """
        found = [refusal for refusal in self._kinds.values() if refusal.count > 0]
        published = self.published
        self._kinds = {}
        self.published = 0
        if len(found) == 0:
            return None
        refused: i64 = 0
        for refusal in found:
            refused += refusal.count
        if len(found) == 1:
            reasons = str(found[0].error)
        else:
            reasons = "; ".join([f"{refusal.count} of them: {refusal.error}" for refusal in found[:KINDS_TOLD]])
            reasons += f"; and {len(found) - KINDS_TOLD} other reasons" if len(found) > KINDS_TOLD else ""
        kinds = {type(refusal.error) for refusal in found}
        kind: Any = kinds.pop() if len(kinds) == 1 else PeerError
        text = f"{refused} of {max(published, refused)} messages published since the last flush were not accepted: "
        error: BaseException = kind(text + reasons)
        error.__cause__ = found[0].error
        return error


@final
class BatchReceipt:
    """The future that the messages of one batch wait for: it is done when they are accepted or refused."""

    def __init__(self, future: Any, refusals: Refusals | None) -> None:
        self.future: Final[Any] = future
        # How many messages the batch has, when it is closed, and how many of their publishers have seen its error.
        self.count: i64 = 0
        self._seen: i64 = 0
        self._refusals: Final = refusals
        self._refusal: PublishRefusal | None = None
        self._awaited: list[Publishing] | None = None
        if refusals is not None:
            future.add_done_callback(self._finished)

    def add(self, publishing: Publishing) -> None:
        """Somebody waits for a message of the batch."""
        if self._awaited is None:
            self._awaited = []
            if self._refusals is None:
                self.future.add_done_callback(self._finished)
        self._awaited.append(publishing)

    def _finished(self, future: Any) -> None:
        """Called when the future is done: an error counts for all who have not seen it."""
        awaited = self._awaited
        self._awaited = None
        if awaited is not None:
            for publishing in awaited:
                publishing.finish()
        if self._refusals is not None and not future.cancelled():
            error = future.exception()
            if error is not None:
                self._refusal = self._refusals.add(error, self.count - self._seen)

    @property
    def has_failed(self) -> bool:
        """Whether its messages were not accepted, and never will be."""
        future = self.future
        return bool(future.done() and (future.cancelled() or future.exception() is not None))

    def counted(self, refusal: PublishRefusal) -> None:
        """Its error has been counted already."""
        self._refusal = refusal

    def seen(self) -> None:
        """The publisher of one of its messages has seen the error."""
        if self._refusal is None:
            self._seen += 1
        else:
            self._refusal.count -= 1


@final
class Publishing:
    """A message on its way. Awaiting it gives its :class:`Receipt` when it is accepted, or raises why it is not.

    It can be used wherever :mod:`asyncio` takes a future. To stop waiting takes nothing back: the message is
    published all the same. The messages of a batch are accepted together, but each has a future of its own as soon as
    somebody waits for it, so nobody notices that others do not wait any longer.
    """

    __slots__ = ("_author", "_batch", "_is_seen", "_number", "_own", "_topic")

    # What tells asyncio that this is as good as a future.
    _asyncio_future_blocking: ClassVar[bool] = False

    def __init__(self, batch: BatchReceipt, topic: str, author: Callable[[], int], number: i64) -> None:
        self._batch: Final[BatchReceipt] = batch
        self._topic: Final[str] = topic
        self._author: Final = author
        self._number: Final[i64] = number
        self._is_seen: bool = False
        self._own: Any = None

    def __await__(self) -> Generator[Any, Any, Receipt]:
        if self._own is None and self._batch.future.done():
            return self._outcome()
        receipt: Receipt = yield from self._future().__await__()
        return receipt

    def _future(self) -> Any:
        own = self._own
        if own is None:
            own = self._own = self._batch.future.get_loop().create_future()
            if self._batch.future.done():
                self.finish()
            else:
                self._batch.add(self)
        return own

    def finish(self) -> None:
        """The batch has been accepted or refused: tell whoever waits."""
        own = self._own
        if own.done():
            return
        try:
            own.set_result(self._outcome())
        except asyncio.CancelledError:
            own.cancel()
        except BaseException as error:
            own.set_exception(error)

    def _outcome(self) -> Receipt:
        try:
            self._batch.future.result()
        except Exception:
            if not self._is_seen:
                self._is_seen = True
                self._batch.seen()
            raise
        return Receipt(self._topic, self._author(), self._number)

    @property
    def batch(self) -> BatchReceipt:
        """The receipt of its batch, which it waits for."""
        return self._batch

    @property
    def expected(self) -> Receipt:
        """The receipt that it becomes when it is accepted."""
        return Receipt(self._topic, self._author(), self._number)

    async def settled(self) -> None:
        """Wait until the message is accepted or refused, and look at neither: ``flush`` tells of what was refused."""
        if not self._batch.future.done():
            await asyncio.wait([self._batch.future])

    @property
    def is_accepted(self) -> bool:
        """Whether the message has been accepted."""
        future = self._batch.future
        return bool(future.done() and not future.cancelled() and future.exception() is None)

    def done(self) -> bool:
        """Whether the message has been accepted or refused."""
        return bool(self._batch.future.done() if self._own is None else self._own.done())

    def result(self) -> Receipt:
        """The receipt of a message that was accepted; raises if it was refused, or is under way."""
        receipt: Receipt = self._outcome() if self._own is None and self.done() else self._future().result()
        return receipt

    def exception(self) -> BaseException | None:
        """Why the message was not accepted; None if it was."""
        error: BaseException | None = self._future().exception()
        return error

    def cancelled(self) -> bool:
        """Whether somebody has said that nobody waits for it."""
        return self._own is not None and bool(self._own.cancelled())

    def cancel(self, msg: Any = None) -> bool:
        """Do not wait for it any longer; it is published all the same."""
        return bool(self._future().cancel(msg))

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Have something called when the message has been accepted or refused."""
        self._future().add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Do not have it called."""
        return int(self._future().remove_done_callback(callback))

    def get_loop(self) -> Any:
        """The loop on which it is published."""
        return self._batch.future.get_loop()
