"""Publishers that wait for the positions of their messages: those of one turn of the loop ask together.

They ask when they publish, and not when the messages are accepted: the answer comes when there are positions, and costs
no other way to the node and back. Thousands of messages wait for one answer, so each of them is one small object
(:class:`Settling`), with a future only if its program waits for it before the answer is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NamedTuple

from antiphon.api.columns import Receipt
from antiphon.api.receipts import BatchReceipt, Publishing
from antiphon.api.streams.leader_links import LeaderLinks, NoAnswerError
from antiphon.runtime.tasks import Tasks
from antiphon.streams.position import Position
from antiphon.streams.requests import MESSAGES_AWAITED, AwaitPosition, PositionFound


class SettledReceipt(NamedTuple):
    """Of a message in the history of its topic: its author and number, its position, and on how many disks it is."""

    topic: str
    author: int
    sequence: int
    generation: int
    position: Position
    disks: int


Lot = tuple[str, int, float, float]
"""What messages that are asked for together have in common: topic, author, and how long their publishers wait."""


class AwaitedMessages:
    """Messages of one author whose positions are asked for together: each is the next one, or the same once more."""

    def __init__(self, lot: Lot, first: int) -> None:
        self.lot = lot
        self.first = self.last = first
        self.settlings: list[Settling] = []
        # What they wait for to be accepted.
        self.batches: list[BatchReceipt] = []
        self.found: PositionFound | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.task: asyncio.Task[None] | None = None
        self.is_parting = False

    def takes(self, sequence: int) -> bool:
        """Whether a message can be asked for with these."""
        return 0 <= sequence - self.last <= 1 and sequence - self.first < MESSAGES_AWAITED

    def add(self, settling: Settling) -> None:
        """One more message."""
        settling.group = self
        self.last = settling.sequence
        self.settlings.append(settling)
        publishing = settling.publishing
        if publishing is not None and (not self.batches or self.batches[-1] is not publishing.batch):
            self.batches.append(publishing.batch)

    def finish(self, found: PositionFound | None, error: BaseException | None = None) -> None:
        """The answer is here, or there will be none."""
        self.found, self.error, self.is_done = found, error, True
        for settling in self.settlings:
            settling.finish()
        self.settlings = []

    @property
    def are_accepted(self) -> bool:
        """Whether all of them are accepted, or refused."""
        return all(batch.future.done() for batch in self.batches)


class Settling:
    """A message on its way to its position. Awaiting it gives its :class:`SettledReceipt`, or raises why there is none.

    It can be used wherever :mod:`asyncio` takes a future. To stop waiting takes nothing back.
    """

    __slots__ = ("_own", "group", "publishing", "sequence")

    group: AwaitedMessages
    # What tells asyncio that this is as good as a future.
    _asyncio_future_blocking: ClassVar[bool] = False

    def __init__(self, sequence: int, publishing: Publishing | None) -> None:
        self.sequence = sequence
        self.publishing = publishing
        self._own: asyncio.Future[SettledReceipt] | None = None

    def __await__(self) -> Generator[Any, Any, SettledReceipt]:
        if self._own is None and self.group.is_done:
            return self._outcome()
        return (yield from self._future().__await__())

    def _future(self) -> asyncio.Future[SettledReceipt]:
        if self._own is None:
            self._own = asyncio.get_running_loop().create_future()
            if self.group.is_done:
                self.finish()
        return self._own

    def finish(self) -> None:
        """Tell whoever waits."""
        own = self._own
        if own is None or own.done():
            return
        try:
            own.set_result(self._outcome())
        except asyncio.CancelledError:
            own.cancel()
        except BaseException as error:
            own.set_exception(error)
            # Its publisher may wait no more.
            own.exception()

    def _outcome(self) -> SettledReceipt:
        group = self.group
        found = group.found
        if found is None:
            if self.publishing is not None and self.publishing.batch.has_failed:
                self.publishing.result()
            assert group.error is not None, "there are positions, or a reason why not"
            raise group.error
        position = Position(found.position_of(self.sequence - group.first), found.generation)
        topic, author, _, _ = group.lot
        return SettledReceipt(topic, author, self.sequence, found.generation, position, found.disks)

    def done(self) -> bool:
        """Whether there is an answer."""
        return self.group.is_done if self._own is None else self._own.done()

    def result(self) -> SettledReceipt:
        """The receipt; raises why there is none, or if there is none yet."""
        return self._outcome() if self._own is None and self.group.is_done else self._future().result()

    def exception(self) -> BaseException | None:
        """Why there is no receipt; None if there is one."""
        return self._future().exception()

    def cancelled(self) -> bool:
        """Whether somebody has said that nobody waits for it."""
        return self._own is not None and self._own.cancelled()

    def cancel(self, msg: Any = None) -> bool:
        """Do not wait for it any longer; it is published all the same."""
        return self._future().cancel(msg)

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Have something called when there is an answer."""
        self._future().add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Do not have it called."""
        return self._future().remove_done_callback(callback)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which it is published."""
        return self._future().get_loop()


class PositionWaits:
    """The messages of one program whose positions are awaited."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links
        # What is asked for when the turn of the loop ends.
        self._groups: dict[Lot, list[AwaitedMessages]] = {}
        self._tasks = Tasks()

    def settled(self, receipt: Receipt, timeout: float, all_seconds: float) -> Settling:
        """The receipt of a message when a majority of the replicas has it on disk; or all, for so many seconds."""
        settling = Settling(receipt.sequence, None)
        self._add((receipt.topic, receipt.author, timeout, all_seconds), settling)
        return settling

    def settle(self, publishing: Publishing, timeout: float, all_seconds: float) -> Settling:
        """The same for a message on its way."""
        expected = publishing.expected
        settling = Settling(expected.sequence, publishing)
        self._add((expected.topic, expected.author, timeout, all_seconds), settling)
        return settling

    def _add(self, lot: Lot, settling: Settling) -> None:
        groups = self._groups.get(lot)
        if groups is None:
            if not self._groups:
                asyncio.get_running_loop().call_soon(self._ask_for_all)
            groups = self._groups[lot] = [AwaitedMessages(lot, settling.sequence)]
        elif not groups[-1].takes(settling.sequence):
            groups.append(AwaitedMessages(lot, settling.sequence))
        groups[-1].add(settling)

    def _ask_for_all(self) -> None:
        lots, self._groups = self._groups, {}
        for lot, groups in lots.items():
            if len(groups) == 1:
                self._begin(groups[0])
            else:
                self._regroup(lot, [settling for group in groups for settling in group.settlings])

    def _regroup(self, lot: Lot, settlings: list[Settling]) -> None:
        """Ask for messages that came in any order, or without some that were to be asked for with them."""
        group: AwaitedMessages | None = None
        for settling in sorted(settlings, key=lambda each: each.sequence):
            if group is None or not group.takes(settling.sequence):
                if group is not None:
                    self._begin(group)
                group = AwaitedMessages(lot, settling.sequence)
            group.add(settling)
        if group is not None:
            self._begin(group)

    def _begin(self, group: AwaitedMessages) -> None:
        group.task = self._tasks.spawn(self._ask(group))
        for batch in group.batches:
            batch.future.add_done_callback(lambda _, batch=batch: self._accepted(group, batch))

    @staticmethod
    def _accepted(group: AwaitedMessages, batch: BatchReceipt) -> None:
        if batch.has_failed and not group.is_done and group.task is not None:
            # Its messages never get positions, and no answer would come for the others.
            group.is_parting = True
            group.task.cancel()

    def _part(self, group: AwaitedMessages) -> None:
        """Some messages were refused: ask for the others alone."""
        refused, others = AwaitedMessages(group.lot, group.first), list[Settling]()
        for settling in group.settlings:
            if settling.publishing is not None and settling.publishing.batch.has_failed:
                refused.add(settling)
            else:
                others.append(settling)
        refused.finish(None)
        self._regroup(group.lot, others)

    async def _ask(self, group: AwaitedMessages) -> None:
        try:
            found = await self._answer(group)
        except BaseException as error:
            if group.is_parting:
                self._part(group)
                return
            group.finish(None, error)
            if not isinstance(error, Exception):
                raise
            return
        group.finish(found)

    async def _answer(self, group: AwaitedMessages) -> PositionFound:
        topic, author, timeout, all_seconds = group.lot
        request = AwaitPosition(topic, author, group.first, round(all_seconds * 1e6), group.last - group.first + 1)
        while True:
            were_accepted = group.are_accepted
            try:
                _, found = await self._links.ask(topic, request, timeout + all_seconds)
                assert isinstance(found, PositionFound)
                return found
            except Exception as error:
                # What the node has refused has the reason that the node gave; what it has not accepted yet may still
                # get its position.
                if group.batches:
                    await asyncio.wait([batch.future for batch in group.batches])
                if were_accepted or not isinstance(error, NoAnswerError):
                    raise
