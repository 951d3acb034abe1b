"""How a client publishes through its node: it keeps what may be lost, and hands it in again at the next node.

What a client publishes follows what it has seen. When it has changed its node, the new one first catches up with that,
and with what the client has handed in before (:class:`FollowRequest`); until then nothing is handed in on the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from antiphon.api.batch_codec import encode_columns
from antiphon.api.outbox import Segment
from antiphon.membership.messages import Control
from antiphon.runtime.errors import error_from
from antiphon.runtime.logging import logger
from antiphon.sessions.client_messages import FollowRequest, FollowResponse, PublishRequest, PublishResponse
from antiphon.sessions.unacked import Kept, KeptBatches

log = logger("client")


class PublishingClient(Protocol):
    """The client that publishes, and its connection to whichever node it has at the time."""

    reconnects: int

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""

    def author_number(self) -> int:
        """The number under which what the client publishes is known."""

    def next_number(self) -> int:
        """A number for something that the node is to answer."""

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""

    def write(self) -> None:
        """Write what was queued."""


class HandingIn:
    """What one client publishes; ``seen_on`` says which batch of each author it has seen last on a topic."""

    def __init__(self, client: PublishingClient, seen_on: Callable[[str], dict[int, int]]) -> None:
        self._client = client
        self._seen_on = seen_on
        self._serials: dict[str, int] = {}
        self._kept = KeptBatches()
        # The topics on which publications follow what was seen at earlier nodes, and those that are to.
        self._following: set[str] = set()
        self._follows: set[str] = set()

    def __len__(self) -> int:
        """How many batches are not known to be safe."""
        return len(self._kept)

    def unaccepted(self) -> list[asyncio.Future[None]]:
        """The receipts of batches that are not accepted yet."""
        return self._kept.unaccepted()

    # What outboxes do.

    @property
    def has_room(self) -> bool:
        """Whether a batch of any topic may be handed in now."""
        return self._client.is_up and self._kept.room() > 0

    def room(self, topic: str) -> int:
        """How many more batches of a topic may be handed in now."""
        if not self._client.is_up:
            return 0
        if self._client.reconnects and topic not in self._follows:
            self._follow(topic)
            return 0
        return 0 if self._kept.has_to_repeat(topic) else self._kept.room()

    def send_segment(self, topic: str, segment: Segment) -> None:
        """Hand a batch in at the node, and keep it."""
        serial = self._serials[topic] = self._serials.get(topic, 0) + 1
        payload = encode_columns(segment.columns)
        kept = Kept(self._client.next_number(), topic, serial, segment.order, payload, segment.about, segment.receipt)
        self._kept.add(kept)
        self._hand_in(kept)
        self._client.write()

    def _hand_in(self, kept: Kept) -> None:
        self._client.send(PublishRequest(kept.number, kept.topic, kept.order, kept.payload, kept.about, kept.serial))

    # What the node says.

    def accepted(self, message: PublishResponse) -> bool:
        """The node has accepted a batch, or refused it; whether it is one of those that were handed in here."""
        kept = self._kept.answered(message.number)
        if kept is None:
            return False
        if message.error:
            self._kept.remove(kept)
            if kept.is_accepted:
                log.error("what had been accepted was refused later", topic=kept.topic, reason=message.error)
            set_exception(kept.receipt, error_from(message.error, message.is_denied, message.kind))
        else:
            self._kept.accepted(kept)
            if message.is_known:
                self._kept.done(kept)
            if not kept.receipt.done():
                kept.receipt.set_result(None)
        self._repeat()
        return True

    def safe(self, topic: str, serial: int) -> None:
        """Batches of a topic up to this one would survive the node."""
        self._kept.safe(topic, serial)

    def followed(self, message: FollowResponse) -> None:
        """The node has caught up with what was seen elsewhere, or cannot."""
        self._following.discard(message.topic)
        self._follows.add(message.topic)
        if message.error:
            error = error_from(message.error, message.is_denied, message.kind)
            for kept in self._kept.give_up_unaccepted(message.topic):
                set_exception(kept.receipt, error)
            log.warning("what is published next may not follow what was seen", topic=message.topic, cause=error)
        self._repeat()

    # Another node.

    def connection_lost(self) -> None:
        """The node is gone: nothing of what is kept is on its way any more."""
        self._following.clear()
        self._follows.clear()
        self._kept.connection_lost()

    def resume(self) -> None:
        """There is another node: hand in there what may be lost."""
        for topic in self._kept.topics():
            self._follow(topic)

    def _follow(self, topic: str) -> None:
        """See to it that what is published from now on follows what was seen at other nodes."""
        if topic not in self._following:
            self._following.add(topic)
            past = self._seen_on(topic)
            # What it has published itself comes first too, though it may not have been shown to it.
            author = self._client.author_number()
            past[author] = max(past.get(author, 0), self._kept.done_up_to(topic))
            self._client.send(FollowRequest(self._client.next_number(), topic, past))
            self._client.write()

    def _repeat(self) -> None:
        """Hand in again what may be lost, as much of it as may be on its way."""
        for topic in self._kept.topics_to_repeat():
            while topic in self._follows and (kept := self._kept.next_again(topic)) is not None:
                self._hand_in(kept)

    def fail(self, error: BaseException) -> None:
        """Nothing can be handed in any more."""
        for receipt in self._kept.unaccepted():
            set_exception(receipt, error)
        self._kept.clear()


def set_exception(future: Any, error: BaseException) -> None:
    """Let something fail for which somebody may wait; not everybody waits for every one of them."""
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()
