"""A live node as the host of its streams: the loop, the links to other nodes, and subscriptions to topics."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from antiphon.api.batch import Batch
from antiphon.api.publisher import Publisher
from antiphon.api.pubsub import PubSubHost
from antiphon.api.streams.stored_batches import StoredBatches
from antiphon.api.subscription import LiveSubscription
from antiphon.api.topic_names import checked_name
from antiphon.api.waiting import Mark
from antiphon.membership.membership import Membership
from antiphon.node.loop import NodeLoop
from antiphon.node.subscriptions import Subscriptions
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.logging import logger
from antiphon.storage.stream_store import StreamStore
from antiphon.streams.service.host import StreamBatch
from antiphon.streams.service.service import StreamService
from antiphon.streams.service.stream_gateway import StreamAccess, StreamGateway
from antiphon.transport.peer_messages import StreamFrame

TURN_SECONDS: Final = 0.005
"""How long the streams work before others have their turn."""

PublishLetter = Callable[[str, bytes, dict[str, bytes], Callable[[], object]], None]


def letters_of(live: PubSubHost) -> PublishLetter:
    """Publishes dead letters at a node, as its applications publish."""

    def publish(topic: str, value: bytes, headers: dict[str, bytes], then: Callable[[], object]) -> None:
        Publisher(live).publish(topic, value, headers=headers).add_done_callback(lambda _: then())

    return publish


class Following:
    """The batches of one topic from an offset on, each as soon as it is delivered.

    Most are taken before they are on disk. Those that were delivered earlier come from the log, when they are shown.
    """

    def __init__(self, first_offset: int, take: Callable[[StreamBatch], None]) -> None:
        self._next = first_offset
        self._take = take

    def early(self, batch: Batch) -> None:
        """A batch is delivered."""
        if batch.first_offset == self._next:
            self.shown(batch)

    def shown(self, batch: Batch) -> None:
        """A batch is delivered, and on disk if the node waits for that."""
        if batch.first_offset >= self._next:
            self._next = batch.end_offset
            self._take(batch)


class StreamHost(StoredBatches):
    """The host of the streams of one live node; :class:`antiphon.streams.service.host.ServiceHost`."""

    log: Final = logger("streams")

    def __init__(
        self, directory: Path, loop: NodeLoop, cluster: Membership, subscriptions: Subscriptions, bury: PublishLetter
    ) -> None:
        assert loop.commit is not None, "only a node with a data directory keeps histories"
        self.files = StreamStore(directory, loop.commit)
        self.bury = bury
        self.settle = loop.settle
        self.identifiers: Callable[[], Iterable[int]] = cluster.identifiers
        self._loop = loop
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._event_loop = asyncio.get_running_loop()
        self._is_over = False
        # Work for one of the next turns of the event loop.
        self._put_off: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def new_service(self, access: StreamAccess) -> StreamService:
        """The service of this host, which takes what comes through ``access`` from now on."""
        service = StreamService(self)
        access.gateway = StreamGateway(service)
        return service

    def close(self) -> None:
        """Call nothing any more; the files close with the log of the node."""
        self._is_over = True

    # Time and chance.

    def now_us(self) -> int:
        return int(monotonic_us())

    def clock_us(self) -> int:
        return time.time_ns() // 1000

    def draw(self, below: int) -> int:
        return secrets.randbelow(below)

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        if delay_us > 0:
            self._event_loop.call_later(delay_us / 1_000_000, partial(self._call, call))
        else:
            self._put_off.append(call)
            self._schedule()

    def _schedule(self) -> None:
        if self._put_off and not self._is_scheduled:
            self._is_scheduled = True
            self._event_loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Do work of all streams that was put off, for a few milliseconds; the rest when others had their turn."""
        until = time.perf_counter() + TURN_SECONDS
        try:
            while self._put_off and time.perf_counter() < until:
                self._call(self._put_off.popleft())
        finally:
            self._is_scheduled = False
            self._schedule()

    def _call(self, call: Callable[[], object]) -> None:
        if not self._is_over:
            call()
            self._loop.settle()

    # Other nodes.

    def send(self, identifier: int, is_replica: bool, payload: bytes) -> None:
        self._cluster.send_control(identifier, StreamFrame(is_replica, payload))

    def address(self, identifier: int) -> str | None:
        return next((peer.address for peer in self._cluster.peers() if peer.identifier == identifier), None)

    # Topics.

    def check_name(self, topic: str) -> None:
        checked_name(topic)

    def end_offset(self, topic: str) -> int:
        return int(self._loop.topics.topic(topic).end_offset)

    def follow(self, topic: str, first_offset: int, take: Callable[[StreamBatch], None]) -> Callable[[], None]:
        live = self._loop.topics.topic(topic)
        following = Following(first_offset, take)
        subscription = self._subscriptions.add(topic, first_offset)
        subscription.reads_messages = False
        live.takers = (*live.takers, following.early)
        self._event_loop.create_task(self._take(subscription, following.shown))

        def end() -> None:
            live.takers = tuple(each for each in live.takers if each != following.early)
            subscription.end()

        return end

    async def _take(self, subscription: LiveSubscription, take: Callable[[Batch], None]) -> None:
        while not self._is_over:
            arrival = subscription.arrival()
            if arrival is not None:
                await arrival
            if subscription.is_closed:
                return
            while not subscription.is_empty:
                _, batch, _ = subscription.take_raw()
                if not isinstance(batch, Mark):
                    take(batch)
