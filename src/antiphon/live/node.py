"""A live node: one process of a fabric, its links to peers, its topics, its log.

Everything happens on one event loop. Whatever enters (bytes from a link, a batch from an outbox, a timer) is handed to
the process; the process calls back (:mod:`antiphon.live.environment`); then the node *settles*: it shows to subscribers
what was delivered, fills the room that has opened with waiting batches and writes what queued on links. Applications
are called while the node settles and never from inside the process, so what they publish cannot come between two
deliveries of one step.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any

from antiphon.fabrics.cube.topic import Options
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.fabrics.cube.vcube_ps import VCubePs
from antiphon.kernel.errors import AntiphonError, PeerError, ProtocolError, UsageError
from antiphon.kernel.message import Message as ProtocolMessage
from antiphon.kernel.message import Publication
from antiphon.kernel.process import Process
from antiphon.live.batch import Batch
from antiphon.live.columns import Columns, encode_columns
from antiphon.live.environment import LiveEnvironment
from antiphon.live.links import OutgoingLink
from antiphon.live.logs import logger
from antiphon.live.names import checked_name, checked_pattern, is_pattern, matches
from antiphon.live.outbox import Outbox, Publisher, Segment, set_if_waiting
from antiphon.live.settings import Settings
from antiphon.live.subscription import Callback, Start, Subscription
from antiphon.live.topics import LiveTopic
from antiphon.live.wire import Codec

log = logger("node")


class Node(Publisher):
    """Use :func:`antiphon.start`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.order)
        self.settings = settings
        self.with_receipts = settings.durability == "disk"
        self.loop = asyncio.get_running_loop()
        self.codec = Codec()
        self.topics: dict[str, LiveTopic] = {}
        self._by_number: dict[int, LiveTopic] = {}
        self.links: dict[int, OutgoingLink] = {}
        self.process: Process | None = None
        self._accepted: asyncio.Future[None] = self.loop.create_future()
        self._accepted.set_result(None)
        self._to_show: list[tuple[LiveTopic, Batch]] = []
        self._dirty: set[OutgoingLink] = set()
        self._blocked: set[Outbox] = set()
        self._held_credit: dict[LiveTopic, list[tuple[int, ProtocolMessage]]] = {}
        self._own: tuple[bytes, Columns] | None = None
        self._is_settling = False

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        live = self.topic(checked_name(topic))
        outbox = Outbox(
            live.name,
            self.default_order,
            self.loop,
            self._accepted,
            partial(self._room, live),
            partial(self._send_segment, live),
            wall_clock_us,
            self._blocked,
        )
        live.outbox = outbox
        self.outboxes[live.name] = outbox
        self.join_topic(live)
        return outbox

    def _room(self, topic: LiveTopic) -> int:
        process = self.process
        if process is None or not topic.may_publish():
            return 0
        return process.room(topic.number)

    def _send_segment(self, topic: LiveTopic, segment: Segment) -> None:
        payload = encode_columns(segment.columns)
        process = self.process
        assert process is not None, "there is room only when there is a process"
        # This node delivers it too, and has its columns already.
        self._own = (payload, segment.columns)
        process.publish(payload, topic.number)
        self._own = None
        if segment.receipt is not None:
            set_if_waiting(segment.receipt)
        self.settle()

    # What the process does.

    def transmit(self, destination: int, message: ProtocolMessage) -> None:
        """Send a message of the process, unless it would let a publisher go on whom this node cannot follow."""
        if message.is_credit():
            topic = self._by_number.get(message.topic)
            if topic is not None and topic.is_behind:
                self._held_credit.setdefault(topic, []).append((destination, message))
                return
        link = self.links[destination]
        link.send(self.codec.encode(message))
        self._dirty.add(link)

    def delivered(self, publication: Publication) -> None:
        """The process delivers: the messages get their offsets; subscribers see them when the node settles."""
        topic = self._by_number[publication.topic]
        columns = self._own[1] if self._own is not None and self._own[0] is publication.payload else None
        batch = Batch(topic.name, publication.source, "causal", topic.end_offset, publication.payload, columns)
        topic.end_offset = batch.end_offset
        topic.delivered_messages += batch.count
        topic.delivered_bytes += len(publication.payload)
        self._to_show.append((topic, batch))

    def settle(self) -> None:
        """Bring the outside up to date with the process."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            while self._to_show or self._blocked:
                shown, self._to_show = self._to_show, []
                for topic, batch in shown:
                    topic.show(batch)
                if not self._fill_room() and not self._to_show:
                    break
        finally:
            self._is_settling = False
        for link in self._dirty:
            link.flush()
        self._dirty.clear()

    def _fill_room(self) -> bool:
        moved = False
        for outbox in tuple(self._blocked):
            before = len(outbox)
            outbox.flush()
            moved = moved or len(outbox) != before
        return moved

    def received(self, sender: int, message: ProtocolMessage) -> None:
        """A message of a peer's process."""
        assert self.process is not None
        self.process.receive(sender, message)

    def expired(self, name: int) -> None:
        """A timer of the process has run out."""
        assert self.process is not None
        self.process.expire(name)
        self.settle()

    # Topics.

    def topic(self, name: str) -> LiveTopic:
        found = self.topics.get(name)
        if found is None:
            found = LiveTopic(name)
            self.topics[name] = found
            self._by_number[found.number] = found
        return found

    def join_topic(self, topic: LiveTopic) -> None:
        if topic.joined is None:
            topic.joined = self.loop.create_future()
            topic.announced = self.loop.create_task(asyncio.sleep(0))
            self.process.subscribe(topic.number)
            self.settle()

    def membership_began(self, number: int) -> None:
        topic = self._by_number[number]
        assert topic.joined is not None
        topic.joined.set_result(None)

    def membership_ended(self, number: int) -> None:
        pass

    # Subscribing
    def subscribe(self, topic: str, start: Start = "latest", callback: Callback | None = None, policy: str = "block", limit: int = 65536) -> Subscription:
        sub = Subscription(self, topic, start, callback, policy, limit)
        live = self.topic(topic)
        self.join_topic(live)
        sub.begin(live)
        return sub

    async def subscription_ready(self, sub):
        for t in sub._topics:
            await t.joined

    has_log = False
    def first_offset(self, topic, start):
        return topic.visible_offset

    def release_credit(self, topic: LiveTopic, sink: Any) -> None:
        if topic.caught_up(sink):
            for destination, message in self._held_credit.pop(topic, []):
                self.transmit(destination, message)
            self.settle()

    def subscription_closed(self, sub, topics):
        pass


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
