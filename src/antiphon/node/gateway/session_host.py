"""The live host of the node's end of sessions: the clock, the process, the disk, the other nodes. It decides nothing.

Promises of sessions (:mod:`antiphon.sessions.steps`) meet the futures of the event loop here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import check_payload
from antiphon.api.columns import Columns
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.segment import Segment
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import BARRIER_KEY, ORDER_NAMES, TOTAL
from antiphon.membership.membership import Membership
from antiphon.node.loop import NodeLoop
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.sessions.host import SessionTopic
from antiphon.sessions.peer_messages import ReplayResponse
from antiphon.sessions.steps import Promise
from antiphon.storage.disk import Disk

T = TypeVar("T")


def check_batches(sender: int, message: ReplayResponse) -> None:
    """Refuse batches of another node that clients could not be shown."""
    for _, _, order, payload in message.batches:
        if order not in ORDER_NAMES:
            raise ProtocolError(f"node {sender} sent a batch with the order {order!r}, which there is not")
        check_payload(payload)


def future_of(promise: Promise[T]) -> asyncio.Future[T]:
    """A promise of sessions, for code that awaits."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if future.done():
            return
        try:
            future.set_result(promise.result())
        except Exception as error:
            future.set_exception(error)

    promise.then(finish)
    return future


class SessionHost:
    """The actions of a live node's sessions on the world; ``publish_on`` makes the node a publisher of a topic."""

    def __init__(
        self, loop: NodeLoop, peers: Membership, disk: Disk, lifecycle: Lifecycle, publish_on: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._peers = peers
        self._disk = disk
        self._lifecycle = lifecycle
        self._publish_on = publish_on
        self._event_loop = asyncio.get_running_loop()
        self.identifiers = peers.identifiers
        self.counted, self.absent = peers.counted, peers.absent
        self.addresses = peers.addresses
        self.send_control = peers.send_control
        self.topic = loop.topics.topic
        self.now_us = monotonic_us

    @property
    def identifier(self) -> int:
        """The identifier of the node."""
        return self._loop.identifier

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while, unless the node has ended by then."""
        # What still waits when a node has ended is thrown away later, perhaps after its event loop.
        if not self._event_loop.is_closed():
            self._event_loop.call_later(delay_us / 1_000_000, self._call, call)

    def _call(self, call: Callable[[], None]) -> None:
        if self._loop.process is None or self._lifecycle.is_shut:
            return
        try:
            call()
        except Exception as error:
            self._loop.unhandled(error)
        self._loop.settle()

    def promise_of(self, future: asyncio.Future[Any]) -> Promise[None]:
        """A future of the event loop, as a promise; the node settles when it is kept."""
        promise: Promise[None] = Promise()
        future.add_done_callback(partial(self._keep, promise))
        return promise

    def _keep(self, promise: Promise[None], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._call(lambda: promise.fail(error))
        else:
            self._call(lambda: promise.resolve(None))

    @property
    def has_returned(self) -> bool:
        """Whether the node has returned with the log of an earlier life."""
        return self._loop.log.is_continued and self._loop.cluster.is_returning

    def draw(self, below: int) -> int:
        """A random number below another one."""
        return secrets.randbelow(below)

    def find_topic(self, name: str) -> LiveTopic | None:
        """A topic that this node has used."""
        return self._loop.topics.by_name.get(name)

    def publish_on(self, topic: SessionTopic[Batch]) -> Promise[None]:
        """Be a publisher of a topic; kept when the node is a member."""
        self._publish_on(topic.name)
        joined = self._loop.topics.topic(topic.name).joined
        assert joined is not None, "a node that publishes on a topic is about to be a member"
        if joined.done():
            done: Promise[None] = Promise()
            done.resolve(None)
            return done
        return self.promise_of(joined)

    def publish_barrier(self, topic: SessionTopic[Batch], key: int) -> tuple[int, Promise[None]]:
        """Publish an empty total batch about a key: its number, and a promise that it has its place."""
        passed: asyncio.Future[None] = self._event_loop.create_future()
        promise = self.promise_of(passed)
        nothing = Columns(0, wall_clock_us(), [])
        segment = Segment("total", (BARRIER_KEY + key,), nothing, 0, passed)
        return self._loop.publish_segment(self._loop.topics.topic(topic.name), segment), promise

    def batch(self, topic: SessionTopic[Batch], publisher: int, sequence: int, order: str, payload: bytes) -> Batch:
        """A batch of another node, for clients; it has no offset here."""
        return Batch(topic.name, publisher, order, 0, payload, sequence=sequence)

    def refusal(self) -> str | None:
        """Why the process cannot order totally now, if it cannot."""
        process = self._loop.process
        return None if process is None else process.refusal(TOTAL)

    def first_unsettled(self, topic: int) -> int:
        """The first publication of this node on a topic that not all members are known to have."""
        process = self._loop.process
        assert process is not None, "a node with clients has a process"
        return process.first_unsettled(topic)

    def frontier_keys(self, topic: int) -> list[int]:
        """The publications that count as past on a topic."""
        process = self._loop.process
        assert process is not None, "a node that is in the cluster has a process"
        return process.frontier_keys(topic)

    # The disk.

    @property
    def has_log(self) -> bool:
        """Whether the node keeps what it delivers on a disk."""
        return self._disk.store is not None

    def is_member_of(self, topic: str) -> bool:
        """Whether the node is a member of a topic."""
        found = self.find_topic(topic)
        return found is not None and found.is_member()

    def until_shown(self) -> Promise[None]:
        """Kept when subscribers may see what was delivered so far."""
        return self._until(self._disk.first)

    def until_committed(self) -> Promise[None]:
        """Kept when what was delivered so far is on disk."""
        return self._until(self._disk.commit)

    def _until(self, commit: Any) -> Promise[None]:
        kept: Promise[None] = Promise()
        if commit is None:
            kept.resolve(None)
        else:
            commit.then(lambda: self._call(lambda: kept.resolve(None)))
        return kept
