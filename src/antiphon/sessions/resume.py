"""The publications of a client at a node, also of one from another node: they stay in order, and come once.

A client hands in again what it does not know to be safe (:mod:`antiphon.sessions.unacked`). Some of that has been
delivered already: here, or at other nodes, which were asked when the client came (:meth:`NodeEnd.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from antiphon.kernel.errors import AntiphonError, NoMajorityError, PeerError
from antiphon.kernel.interval_set import IntervalSet
from antiphon.sessions.backlog import Backlog
from antiphon.sessions.client_messages import FollowRequest, PublishRequest
from antiphon.sessions.dedup import DedupTable
from antiphon.sessions.host import FabricTraits, NodeHost, SessionTopic
from antiphon.sessions.replay_buffer import ShownBatch
from antiphon.sessions.seen_lists import FollowedLists, SeenElsewhere, batches_of, publications_of
from antiphon.sessions.steps import Promise, Scope, Steps, Turns, start, wait
from antiphon.sessions.writers import place_of

KNOWN_US: Final = 30_000_000
"""How long a node waits for batches that a client has seen or published elsewhere: they exist, and should come."""

AGAIN_US: Final = 15_000_000
"""How long it waits where it publishes such a batch once more. Other nodes wait for the batch too, for ``KNOWN_US`` and
for clients that have seen it: their publications follow it only if it comes in that time. The client that hands it in
may have looked for its node for ten seconds before."""

LOOK_US: Final = 20_000
"""How often a node asks its process what has become safe, and whether it has a majority: processes do not tell."""

B = TypeVar("B", bound=ShownBatch)


class CatchingUp(Protocol[B]):
    """The node's end of sessions, which catches up with other nodes."""

    @property
    def traits(self) -> FabricTraits:
        """How the fabric lets the node catch up."""

    @property
    def host(self) -> NodeHost[B]:
        """The node."""

    def until(self, topic: SessionTopic[B], condition: Callable[[], bool], until_us: int) -> Steps[bool]:
        """Wait for something that is delivered, until some time; whether it has come."""

    def follow(self, client: int, message: SeenElsewhere) -> Steps[ResumedTopic[B]]:
        """Catch up with what a client has seen."""


class ResumedTopic(Generic[B]):
    """The publications on one topic of a client from elsewhere: they stay in one order, and come once.

    ``known`` is what others had delivered of its batches when it came. The node waits for these (``is_waited_for``), so
    that they are in its log when it accepts them, and so that what follows is published after them. A broker of a tree
    does not know what was past when it became a member, may never deliver that, and does not wait. ``failure`` says why
    the node could not catch up with what the client has seen.
    """

    def __init__(
        self,
        end: CatchingUp[B],
        topic: SessionTopic[B],
        client: int,
        known: Sequence[IntervalSet],
        failure: PeerError | None = None,
    ) -> None:
        self.failure = failure
        self._end = end
        self._topic = topic
        self._client = client
        self._known = known
        # For all batches together, not for each: what does not come in that time does not come.
        self._wait_until_us = end.host.now_us() + (AGAIN_US if end.traits.publishes_again else KNOWN_US)
        # Whether the last publication for the client follows all that came before it.
        self._is_bound = False
        # Batches that come while an earlier one is waited for must not overtake it.
        self.turns = Turns()

    def has_come(self, serial: int) -> Steps[bool]:
        """Whether a batch need not be published; to be asked in turn."""
        if not any(seen.has(serial) for seen in self._known):
            has_come = self._is_here(serial)
        elif self._end.traits.counts_past:
            yield from self._end.until(self._topic, partial(self._is_here, serial), self._wait_until_us)
            has_come = self._is_here(serial)
            if not has_come and not self._end.traits.publishes_again:
                raise PeerError(
                    f"a message on {self._topic.name!r} that was handed in at another node has not come to node "
                    f"{self._end.host.identifier} in {KNOWN_US // 1_000_000} seconds; it may yet come"
                )
        else:
            has_come = True
        if has_come and self._end.traits.publishes_again and not self._was_shown(serial):
            # It counted as past when this node became a member, so what this node publishes does not follow it. Where
            # it has not come yet, it would be too late behind the next batch of its author.
            return False
        if has_come:
            self._is_bound = False
        return has_come

    def has_time(self) -> bool:
        """Whether the node still waits for what does not come at once."""
        return self._end.host.now_us() < self._wait_until_us

    def _is_here(self, serial: int) -> bool:
        return self._topic.seen.has(self._client, serial)

    def _was_shown(self, serial: int) -> bool:
        return self._topic.replay_buffer.shown.has(self._client, serial)

    def order_of(self, order: str) -> str:
        """In which order a batch is published that the client wants in this one; to be asked in turn.

        Publications of the client at other nodes have another source. A publication in ``causal`` or ``total`` order
        follows all that was delivered here; one in ``fifo`` order follows only what this node has published. So the
        first of these is published in ``causal`` order, and the others follow it.
        """
        chosen = "causal" if order == "fifo" and not self._is_bound else order
        self._is_bound = self._is_bound or chosen != "none"
        return chosen


class CaughtUp(Generic[B]):
    """Whether all that a client has seen has come to this node, or counts as past: then it never comes.

    If the only members are gone, nobody can say whose batches are past here (:meth:`NodeEnd._learn`). The client can
    say which publications brought them. ``counted`` gives the publications that count as past, where processes know.

    The node asks after each delivery, perhaps for many clients with long lists. A batch that has come
    stays, so this looks at each number once, and an answer that has not changed costs one comparison.
    """

    def __init__(
        self, topic: SessionTopic[B], message: SeenElsewhere, counted: Callable[[], DedupTable] | None
    ) -> None:
        self._topic = topic
        self._batches = batches_of(message)
        self._awaited = next(self._batches, None)
        self._publications = publications_of(message)
        self._publication = next(self._publications, None)
        self._counted = counted if message.publications else None

    def __call__(self) -> bool:
        seen = self._topic.seen
        while self._awaited is not None and seen.highest(self._awaited[0]) >= self._awaited[1]:
            self._awaited = next(self._batches, None)
        if self._awaited is None:
            return True
        if self._counted is None:
            return False
        counted = self._counted()
        while self._publication is not None and counted.has_range(*self._publication):
            self._publication = next(self._publications, None)
        return self._publication is None


class PublishingPort(Protocol):
    """The connection of a client and the node behind it, as far as publishing goes."""

    def is_open(self, topic: str) -> bool:
        """Whether a batch of the client can be handed over at once: it has the right, and nothing waits for room."""

    def check_publishing(self, topic: str) -> None:
        """Raise the reason why the client may not publish on a topic, if there is one."""

    def until_room(self, topic: str) -> Promise[None] | None:
        """Kept when a batch may be handed over on a topic; nothing if it may now."""

    def hand_over(self, message: PublishRequest, order: str) -> Promise[None] | None:
        """Publish a batch for the client; a promise that it is accepted, unless it is now."""

    def respond(
        self,
        message: PublishRequest,
        failure: AntiphonError | None = None,
        is_known: bool = False,
        is_stale: bool = False,
    ) -> None:
        """Tell the client that a batch is accepted, or why not, or that it is to hand the batch in again."""

    def followed(self, message: SeenElsewhere, failure: AntiphonError | None) -> None:
        """Tell the client that what it publishes follows what it has seen, or why not."""

    def check_list(self, size_bytes: int) -> None:
        """Raise the reason why the client may not list so much more of what it has seen, if there is one."""

    def keep_list(self, size_bytes: int) -> None:
        """A list of the client is kept from now on, or, if negative, no more."""


class ClientPublishing(Generic[B]):
    """The publications of one connected client."""

    def __init__(self, end: CatchingUp[B], client: int, port: PublishingPort, backlog: Backlog, scope: Scope) -> None:
        self._end = end
        self._client = client
        self._port = port
        self._backlog = backlog
        self._scope = scope
        # Batches that have not been handed over; later ones wait behind them.
        self._waiting = 0
        # The lanes that have written here.
        self._lanes: set[tuple[str, str, int]] = set()
        # By topic, how many batches were refused.
        self._refusals: dict[str, int] = {}
        self._turns: dict[str, Turns] = {}
        # The topics on which the client continues what it began at another node.
        self._resumed_topics: dict[str, ResumedTopic[B]] = {}

    def on_publish(self, message: PublishRequest) -> None:
        """The client hands a batch in."""
        if self._waiting or not self._publish_at_once(message):
            self._waiting += 1
            self._backlog.add(len(message.payload))
            start(self._publish(message), self._scope)

    def on_follow(self, message: FollowRequest) -> None:
        """The client comes from another node and is about to publish on a topic."""
        lists = FollowedLists(message)
        try:
            self._port.check_list(lists.size_bytes)
        except AntiphonError as error:
            self._port.followed(lists, error)
            return
        self._waiting += 1
        self._backlog.add(lists.size_bytes)
        self._port.keep_list(lists.size_bytes)
        start(self._follow(lists), self._scope)

    def _publish_at_once(self, message: PublishRequest) -> bool:
        """Publish a batch that need not wait for anything; false if it must."""
        if message.topic in self._resumed_topics or not self._port.is_open(message.topic) or self._is_known(message):
            return False
        if self._is_stale(message):
            self._port.respond(message, is_stale=True)
            return True
        try:
            accepted = self._port.hand_over(message, self._order_of(message, None))
        except AntiphonError as failure:
            self._refuse(message, failure)
            return True
        if accepted is None:
            self._port.respond(message)
        else:
            self._backlog.add(len(message.payload))
            accepted.then(partial(self._accepted, message, accepted))
        return True

    def _refuse(self, message: PublishRequest, failure: AntiphonError) -> None:
        if message.lane is None:
            self._refusals[message.topic] = self._refusals.get(message.topic, 0) + 1
        self._port.respond(message, failure)

    def _is_stale(self, message: PublishRequest) -> bool:
        """Whether the client has sent an ordered batch before it heard of a refusal.

        If its connection ends first, it never hears of that, and hands in the refused batch at another node. So this
        one, which is behind it in order, must not be published here.
        """
        if message.refusals is None or message.order == "none":
            return False
        return message.refusals < self._refusals.get(message.topic, 0)

    def _accepted(self, message: PublishRequest, accepted: Promise[None], is_known: bool = False) -> None:
        """A batch is accepted, or is not after all."""
        if self._scope.is_over:
            return
        self._backlog.remove(len(message.payload))
        try:
            accepted.result()
        except AntiphonError as failure:
            self._refuse(message, failure)
        else:
            self._port.respond(message, is_known=is_known)

    def _publish(self, message: PublishRequest) -> Steps[None]:
        """Publish a batch when it is its turn."""
        resumed = self._resumed_topics.get(message.topic) if message.lane is None else None
        turns = self._turns.setdefault(message.topic, Turns()) if resumed is None else resumed.turns
        has_waited = False
        yield from turns.enter()
        try:
            is_known = self._is_known(message) if resumed is None else (yield from resumed.has_come(message.serial))
            if is_known:
                accepted: Promise[None] | None = self._end.host.until_shown()
            elif self._is_stale(message):
                self._done(message, is_stale=True)
                return
            else:
                self._port.check_publishing(message.topic)
                while (room := self._port.until_room(message.topic)) is not None:
                    has_waited = True
                    yield from wait(room)
                accepted = yield from self._hand_over(message, self._order_of(message, resumed), resumed)
            if accepted is None:
                self._done(message)
            else:
                accepted.then(partial(self._accepted, message, accepted, is_known))
        except AntiphonError as failure:
            self._backlog.remove(len(message.payload))
            self._refuse(message, failure)
        finally:
            self._waiting -= 1
            if has_waited:
                # Others who wait for the same room have their turn in between.
                self._end.host.after(0, turns.leave)
            else:
                turns.leave()

    def _order_of(self, message: PublishRequest, resumed: ResumedTopic[B] | None) -> str:
        """In which order a batch is published; a lane too may have written at other nodes before.

        So the first batch of a lane here, and the first of each series, follows all that was delivered here.
        """
        if resumed is not None:
            return resumed.order_of(message.order)
        lane = message.lane
        if lane is None or message.order != "fifo":
            return message.order
        key = (message.topic, lane.writer, lane.lane)
        is_first = key not in self._lanes or place_of(message.serial) == 1
        self._lanes.add(key)
        return "causal" if is_first else message.order

    def _hand_over(
        self, message: PublishRequest, order: str, resumed: ResumedTopic[B] | None
    ) -> Steps[Promise[None] | None]:
        """Publish a batch. If an earlier node had accepted it, it waits for a lost majority, but not for ever."""
        while True:
            try:
                return self._port.hand_over(message, order)
            except NoMajorityError:
                if resumed is None or not message.was_accepted or not resumed.has_time():
                    raise
            later: Promise[None] = Promise()
            self._end.host.after(LOOK_US, partial(later.resolve, None))
            yield later

    def _done(self, message: PublishRequest, is_stale: bool = False) -> None:
        self._backlog.remove(len(message.payload))
        self._port.respond(message, is_stale=is_stale)

    def _is_known(self, message: PublishRequest) -> bool:
        """Whether a batch that the client hands in has been delivered already."""
        if message.lane is not None:
            # Others may lack what is known here. Each node knows for itself what a lane has written before.
            return False
        topic = self._end.host.find_topic(message.topic)
        return topic is not None and topic.seen.has(self._client, message.serial)

    def _follow(self, lists: FollowedLists) -> Steps[None]:
        failure: AntiphonError | None = None
        try:
            self._port.check_publishing(lists.topic)
            resumed = yield from self._end.follow(self._client, lists)
            earlier = self._resumed_topics.get(lists.topic)
            if earlier is not None:
                # Batches that wait there must not be overtaken.
                resumed.turns = earlier.turns
            self._resumed_topics[lists.topic] = resumed
            failure = resumed.failure
        except AntiphonError as error:
            failure = error
        finally:
            self._waiting -= 1
            self._backlog.remove(lists.size_bytes)
            self._port.keep_list(-lists.size_bytes)
        self._port.followed(lists, failure)
