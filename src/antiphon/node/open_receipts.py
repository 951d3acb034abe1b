"""The receipts of a node's own batches that nobody has yet: kept when the batch is delivered here, and is on disk."""

from __future__ import annotations

import asyncio
from functools import partial

from mypy_extensions import i64

from antiphon.api.outbox import set_if_waiting
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import PeerError
from antiphon.kernel.message import Publication
from antiphon.storage.group_commit import GroupCommit


class OpenReceipts:
    """The receipts that wait, and of which publication each is if that has not been delivered."""

    def __init__(self) -> None:
        # If the disk comes first, a receipt is kept after the next commit.
        self.disk_first: GroupCommit | None = None
        self._open: set[asyncio.Future[None]] = set()
        # By topic and number.
        self.undelivered: dict[tuple[int, int], asyncio.Future[None]] = {}
        # The own batch that was delivered last. Its payload may be another one than was published: with a header.
        self._last_own: Publication | None = None

    def add(self, topic: LiveTopic, number: int, receipt: asyncio.Future[None], is_delivered: bool) -> None:
        """A batch with a receipt has been published; mostly this node has delivered it at once."""
        self._open.add(receipt)
        receipt.add_done_callback(self._open.discard)
        if is_delivered:
            self._accept(receipt)
        else:
            self.undelivered[topic.number, number] = receipt

    def accept_own(self, publication: Publication) -> None:
        """A batch of this node is delivered here."""
        self._last_own = publication
        if self.undelivered:
            self.delivered(publication.topic, publication.sequence)

    def was_accepted(self, topic: i64, number: i64) -> bool:
        """Whether a batch is the own one that was delivered last."""
        last = self._last_own
        return last is not None and last.topic == topic and last.sequence == number

    def delivered(self, topic: int, number: int) -> None:
        """A batch of this node has been delivered here."""
        receipt = self.undelivered.pop((topic, number), None)
        if receipt is not None:
            self._accept(receipt)

    def _accept(self, receipt: asyncio.Future[None]) -> None:
        if self.disk_first is not None:
            self.disk_first.then(partial(set_if_waiting, receipt))
        else:
            set_if_waiting(receipt)

    def lost(self, topic: LiveTopic, number: int) -> None:
        """A batch of this node will never be delivered here."""
        receipt = self.undelivered.pop((topic.number, number), None)
        if receipt is not None and not receipt.done():
            reason = f"others went on without this node, and its message on {topic.name!r} lost its place"
            receipt.set_exception(PeerError(f"{reason}; publish it again"))

    def fail(self, error: BaseException) -> None:
        """The node ends: no receipt that waits will be kept."""
        for receipt in tuple(self._open):
            if not receipt.done():
                receipt.set_exception(error)
