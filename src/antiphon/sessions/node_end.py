"""The node's end of its clients' connections: everything that a node decides about a client that resumes.

A client may come from another node and continue as if it had always been here. The node keeps four promises for it:

* *Nothing is lost with a node.* A client keeps a batch until its node says that it is **safe**: until all members of
  the topic are known to have it. It hands in the others again at the next node.
* *Nothing is duplicated.* A batch carries the number of its client and the client's own number for it. Every node drops
  batches that it has delivered before. This node asks the others which batches they have delivered (:meth:`follow`).
* *A client's publications follow what the client has seen.* Before the first publication of such a client on a topic, a
  tree passes a **barrier**: an empty total publication about a key of its own. All brokers close for it, and whatever
  they had is in front of it. So when this node delivers it, this node has everything that any living broker had. The
  rest is gone with the broker that showed it. Elsewhere the node waits until it has delivered what the client has seen.
* *Nothing is missed silently* between two nodes (:meth:`MissedBatches.fetch` argues it).

It is a pure state machine. Its host calls it when something has happened and offers :class:`NodeHost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, TypeVar

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.errors import NoMajorityError, PeerError
from antiphon.kernel.message import SOURCE_MASK
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import NodeAddresses
from antiphon.sessions.dedup import DedupTable, numbers_from, publications_in
from antiphon.sessions.host import ConnectedClient, FabricTraits, NodeHost, SessionTopic
from antiphon.sessions.missed_batches import PAST_US, MissedBatches
from antiphon.sessions.peer_messages import (
    DedupRequest,
    DedupResponse,
    FrontierRequest,
    FrontierResponse,
    ReplayRequest,
    ReplayResponse,
)
from antiphon.sessions.replay_buffer import Resumption, ShownBatch
from antiphon.sessions.resume import KNOWN_US, LOOK_US, CaughtUp, ResumedTopic
from antiphon.sessions.safety import SafetyReports
from antiphon.sessions.scatter_gather import ScatterGather
from antiphon.sessions.seen_lists import SeenElsewhere
from antiphon.sessions.steps import Promise, Steps, start, wait
from antiphon.sessions.writers import PLACE_BITS

AUTHORS_US: Final = 10_000_000
"""How long a broker waits for a batch that only a lost broker had, and that its author may hand in at another one."""

AUTHORS_AGAIN_US: Final = 500_000
"""How often it asks meanwhile where the authors are, and whether they have anything to hand in."""

SETTLED_US: Final = 1_000_000
"""A client that comes from another node asks at once to follow what it has seen, on each topic on which it has
something to hand in. So one that has not done so for this long has nothing."""

AWAY_US: Final = 2_000_000
"""How long a node that leaves waits for its clients to go."""

KEY_PART: Final = 1 << 30
"""A barrier has a key of its own, which is drawn in two parts."""

B = TypeVar("B", bound=ShownBatch)

NOTHING_TO_LEARN: Final[Promise[None]] = Promise()
"""Shared by all topics on which nothing was published before their node was a member."""
NOTHING_TO_LEARN.resolve(None)


class LostPeers:
    """The nodes that were lost within the last ``memory_us``; others were lost before, or before this node began.

    A node does not wait for what a client has seen if those who had it are gone for long.
    """

    def __init__(self, began_us: int, memory_us: int) -> None:
        self._began_us = began_us
        self._memory_us = memory_us
        self._at_us: dict[int, int] = {}

    def add(self, identifier: int, now_us: int) -> None:
        """A node is lost."""
        self._at_us.pop(identifier, None)
        self._at_us[identifier] = now_us
        while (oldest := next(iter(self._at_us))) != identifier and self._at_us[oldest] + self._memory_us < now_us:
            del self._at_us[oldest]

    def since_us(self, identifiers: Iterable[int]) -> int:
        """When the last of some nodes was lost that are not there; not before this node began, as it cannot know."""
        return max(self._began_us, *(self._at_us.get(identifier, 0) for identifier in identifiers))


class NodeEnd(Generic[B]):
    """The clients of one node."""

    def __init__(self, traits: FabricTraits, host: NodeHost[B]) -> None:
        self.traits = traits
        self.host = host
        self.resumed = 0
        self._clients: dict[int, ConnectedClient] = {}
        # Since when each is connected; and its last batch, by topic, that it need not hand in again, if it has others.
        self._since_us: dict[int, int] = {}
        self._done_up_to: dict[int, dict[str, int]] = {}
        self._lost = LostPeers(host.now_us(), KNOWN_US)
        self._last_left: Promise[None] = Promise()
        self.safety = SafetyReports(host, self._clients)
        self.scatter_gather: ScatterGather[Control] = ScatterGather(host, host)
        self._missed: MissedBatches[B] = MissedBatches(self)
        # By topic: kept when something was delivered there.
        self._changes: dict[SessionTopic[B], Promise[None]] = {}
        # The publications that count as past on a topic that has changed, while sessions hear of it.
        self._counted: dict[SessionTopic[B], DedupTable | None] = {}
        # The topics of which no node could say it.
        self._unlearned: dict[SessionTopic[B], None] = {}

    # Clients that come and go.

    def on_connect(self, client: ConnectedClient) -> None:
        """A client has connected."""
        self._clients[client.client] = client
        self._since_us[client.client] = self.host.now_us()
        self._done_up_to.pop(client.client, None)

    def on_disconnect(self, client: ConnectedClient) -> None:
        """A client's connection has ended; the client may have opened another one before."""
        if self._clients.get(client.client) is client:
            del self._clients[client.client]
            del self._since_us[client.client]
            self._done_up_to.pop(client.client, None)
        if not self._clients:
            self._last_left.resolve(None)

    def client(self, number: int) -> ConnectedClient | None:
        """The client with this number, if it is connected."""
        return self._clients.get(number)

    def tell_nodes(self, is_leaving: bool = False) -> None:
        """Tell all clients where the other nodes are."""
        if self._clients:
            news = NodeAddresses(self.host.addresses(), is_leaving)
            for client in self._clients.values():
                client.send(news)

    def send_away(self) -> Steps[None]:
        """This node is about to go: let its clients go first, if there is another node for them."""
        if not self.host.addresses() or not self._clients:
            return
        for client in self._clients.values():
            client.is_sent_away = True
        self.tell_nodes(is_leaving=True)
        self._last_left = Promise()
        yield self._within(AWAY_US, self._last_left)

    def on_peer_lost(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._lost.add(identifier, self.host.now_us())
        self.scatter_gather.on_peer_lost(identifier)
        self.tell_nodes()

    # Waiting.

    def topics_changed(self) -> None:
        """Something was delivered on watched topics, or counts as past there, or a membership has begun or ended."""
        changes, self._changes = self._changes, {}
        for topic, changed in changes.items():
            topic.is_watched = False
            self._counted[topic] = None
            changed.resolve(None)
            self._counted.pop(topic, None)

    def until(self, topic: SessionTopic[B], condition: Callable[[], bool], until_us: int) -> Steps[bool]:
        """Wait for something that will come if this node stays a member, until some time; whether it has."""
        if condition():
            return topic.is_member()
        deadline: Promise[None] = Promise()
        deadline.then(self.topics_changed)
        self.host.after(max(0, until_us - self.host.now_us()), lambda: deadline.resolve(None))
        while topic.is_member() and not condition():
            if deadline.is_done:
                return False
            changed = self._changes.get(topic)
            if changed is None:
                changed = self._changes[topic] = Promise()
                topic.is_watched = True
            yield changed
        return topic.is_member()

    def _within(self, delay_us: int, promise: Promise[None] | None = None) -> Promise[None]:
        """Kept after a while, or when another promise is."""
        either: Promise[None] = Promise()
        self.host.after(delay_us, lambda: either.resolve(None))
        if promise is not None:
            promise.then(lambda: either.resolve(None))
        return either

    # What a client follows.

    def follow(self, client: int, message: SeenElsewhere) -> Steps[ResumedTopic[B]]:
        """Catch up with what a client has seen, and ask others what they have delivered of its batches.

        If this node cannot catch up, the crossing says why. It still serves the batches that were accepted elsewhere:
        they are handed in again all the same, because accepted messages are not lost.
        """
        done_up_to = self._done_up_to.setdefault(client, {})
        done_up_to[message.topic] = max(done_up_to.get(message.topic, 0), message.past.get(client, 0))
        topic = self.host.topic(message.topic)
        was_member = topic.is_member()
        yield from wait(self.host.publish_on(topic))
        failure: PeerError | None = None
        try:
            yield from self._catch_up(topic, client, message, was_member)
        except PeerError as error:
            failure = error
        answers = yield from self.scatter_gather.ask(lambda number: DedupRequest(number, topic.name, client))
        known = [numbers_from(answer.ranges) for answer in answers.values() if isinstance(answer, DedupResponse)]
        return ResumedTopic(self, topic, client, known, failure)

    def _catch_up(self, topic: SessionTopic[B], client: int, message: SeenElsewhere, was_member: bool) -> Steps[None]:
        """Wait until this node has delivered what a client has seen elsewhere."""
        if self.traits.has_barriers:
            yield from self.barrier(topic)
            yield from self._wait_for_authors(topic, client, message)
            return
        if self.traits.counts_past:
            if topic in self._unlearned:
                del self._unlearned[topic]
                topic.learned = start(self._learn(topic))
            learned = topic.learned
            if learned is not None:
                yield from wait(learned)
        elif not was_member:
            # A newcomer begins behind whatever the members had delivered.
            return
        counted = partial(self._counted_on, topic) if self.traits.counts_past else None
        has_come = CaughtUp(topic, message, counted)
        if not (yield from self.until(topic, has_come, self._known_until_us(topic, message))):
            raise PeerError(
                f"this client has seen messages on {topic.name!r} at another node that did not come to node "
                f"{self.host.identifier} in {KNOWN_US // 1_000_000} seconds; what you publish now will not follow them"
            )

    def _counted_on(self, topic: SessionTopic[B]) -> DedupTable:
        """The publications that count as past on a topic; made once for all that ask after one change."""
        known = self._counted.get(topic)
        if known is None:
            known = publications_in(self.host.frontier_keys(topic.number))
            if topic in self._counted:
                self._counted[topic] = known
        return known

    def _known_until_us(self, topic: SessionTopic[B], message: SeenElsewhere) -> int:
        """Until when to wait for what a client has seen: not if all nodes that published it are gone for long."""
        since_us = self.host.now_us()
        if self.traits.knows_all and self.traits.counts_past:
            past = publications_in(self.host.frontier_keys(topic.number)).ranges()
            publishers = DedupTable(message.publications).without(past).ranges().keys()
            if publishers and publishers.isdisjoint({*self.host.identifiers(), self.host.identifier}):
                since_us = self._lost.since_us(publishers)
        return since_us + KNOWN_US

    def barrier(self, topic: SessionTopic[B]) -> Steps[int]:
        """Publish an empty batch about a key of its own, and wait until it has its place; gives its number.

        Without a majority it has none. The node waits for a lost majority, but not for ever.
        """
        number = 0
        passed: Promise[None] | None = None
        refused_at_us = -1
        while passed is None or not passed.is_done:
            now_us = self.host.now_us()
            reason = self.host.refusal()
            if reason is None:
                refused_at_us = -1
                if passed is None:
                    key = self.host.draw(KEY_PART) * KEY_PART + self.host.draw(KEY_PART)
                    number, passed = self.host.publish_barrier(topic, key)
            elif refused_at_us < 0:
                refused_at_us = now_us
            elif now_us - refused_at_us >= KNOWN_US:
                raise NoMajorityError(
                    f"this client comes from another broker, and may have seen messages on {topic.name!r} there that "
                    f"are not here: {reason}; what you publish next does not follow them"
                )
            yield self._within(LOOK_US, passed)
        passed.result()
        return number

    def _wait_for_authors(self, topic: SessionTopic[B], client: int, message: SeenElsewhere) -> Steps[None]:
        """Wait for what no living broker had at the barrier, and the client has seen: its author may hand it in again.

        A broker does not know what came before it was a member. The others do, and what they name has come here by the
        next barrier, or came before. After all brokers have crashed, what only logs hold comes to nobody by itself: if
        a broker that has returned lacks it, or one has not returned, it was perhaps not safe, and its author has it.
        """
        known = DedupTable()
        settled: set[int] = set()
        named = {
            author: number
            for author, number in message.past.items()
            if author > SOURCE_MASK
            # Repeated messages of a writer have no order with messages of others.
            and number >> PLACE_BITS == 0
            and author != client
            and topic.seen.highest(author) < number
        }

        def lacks() -> dict[int, int]:
            return {
                author: number
                for author, number in named.items()
                if author not in settled and max(topic.seen.highest(author), known.highest(author)) < number
            }

        if not (awaited := lacks()):
            return
        has_all = self.host.has_returned and (yield from self.all_found()) and not self.host.absent()
        logged = DedupTable(topic.replay_buffer.shown.ranges() if has_all else None)
        answers = yield from self.scatter_gather.ask(lambda number: FrontierRequest(number, topic.name, []))
        for answer in answers.values():
            if isinstance(answer, FrontierResponse):
                known.merge(answer.seen)
                if answer.logged is not None:
                    logged = logged.in_common(answer.logged)
        known.merge(logged.ranges())
        if len(lacks()) < len(awaited):
            yield from self.barrier(topic)
        until_us = self.host.now_us() + AUTHORS_US
        while (awaited := lacks()) and self.host.now_us() < until_us:
            settled.update((yield from self._settled_authors(topic, awaited)))
            again_us = min(until_us, self.host.now_us() + AUTHORS_AGAIN_US)
            yield from self.until(topic, lambda: not lacks(), again_us)

    def _settled_authors(self, topic: SessionTopic[B], awaited: dict[int, int]) -> Steps[list[int]]:
        """The awaited authors that are clients of some node and have nothing to hand in."""
        answers = yield from self.scatter_gather.ask(lambda number: FrontierRequest(number, topic.name, [], awaited))
        told = [answer.settled for answer in answers.values() if isinstance(answer, FrontierResponse)]
        return [author for each in (self._settled_here(topic.name, awaited), *told) for author in each]

    def _settled_here(self, topic: str, awaited: dict[int, int]) -> list[int]:
        """The awaited authors that are clients of this node and have nothing more under way."""
        since_us = self.host.now_us() - SETTLED_US
        return [
            author
            for author, number in awaited.items()
            if self._since_us.get(author, since_us + 1) <= since_us
            and self._done_up_to.get(author, {}).get(topic, number) >= number
        ]

    # What others know.

    def became_member(self, topic: SessionTopic[B]) -> None:
        """This node is a member of a topic from now on."""
        if self.traits.counts_past:
            past = self.host.frontier_keys(topic.number)
            if not past:
                # Nothing came before, so all that others have seen comes here too.
                topic.learned = NOTHING_TO_LEARN
                return
            topic.replay_buffer.starts_behind(publications_in(past))
            learned = topic.learned = Promise()
            # Later: this is called from inside the process.
            self.host.after(0, lambda: start(self._learn(topic)).then(lambda: learned.resolve(None)))

    def _learn(self, topic: SessionTopic[B]) -> Steps[None]:
        """Get to know whose batches came before this node was a member: nobody is to wait for them here.

        A node that has learned that itself, and has delivered all that counts as past here, knows them all. Its answer
        may hold more, and counts only when that is past here too.
        """
        past = self.host.frontier_keys(topic.number)
        answers = yield from self.scatter_gather.ask(
            lambda number: FrontierRequest(number, topic.name, past),
            lambda answer: isinstance(answer, FrontierResponse) and answer.is_whole,
        )
        for answer in answers.values():
            if isinstance(answer, FrontierResponse) and answer.is_whole:
                until_us = self.host.now_us() + PAST_US
                if (yield from self.until(topic, partial(self.is_past, topic, answer.past), until_us)):
                    topic.seen.merge(answer.seen)
                    self.topics_changed()
                    return
        # The only node that knows may be lost for a while; it is asked again when a client needs it.
        self._unlearned[topic] = None

    def _tell_past(self, sender: int, message: FrontierRequest) -> Steps[None]:
        """Answer another node that has become a member, when what is past there is past here."""
        settled = self._settled_here(message.topic, message.authors)
        answer = FrontierResponse(message.number, False, [], {}, None, settled)
        topic = self.host.find_topic(message.topic)
        learned = None if topic is None else topic.learned
        if topic is not None and not self.traits.counts_past:
            is_old = self.host.has_returned and topic.is_member()
            logged = topic.replay_buffer.shown.ranges() if is_old else None
            # They are asked for more than once, and named only at first.
            told = topic.seen.ranges() if not message.authors else {}
            answer = FrontierResponse(message.number, True, [], told, logged, settled)
        elif topic is not None and learned is not None and learned.is_done:
            until_us = self.host.now_us() + PAST_US
            if (yield from self.until(topic, partial(self.is_past, topic, message.past), until_us)):
                past = self.host.frontier_keys(topic.number)
                # What its log held when it returned is past, too; an author may hand it in again.
                seen = DedupTable(topic.replay_buffer.shown.ranges())
                seen.merge(topic.seen.ranges())
                answer = FrontierResponse(message.number, True, past, seen.ranges())
        self.host.send_control(sender, answer)

    def is_past(self, topic: SessionTopic[B], past: list[int]) -> bool:
        """Whether all that counts as past somewhere else does here, where processes can say it."""
        if not past or not self.traits.counts_past:
            return True
        return Holdings(vec[i64](self.host.frontier_keys(topic.number))).covers(Holdings(vec[i64](past)))

    def fetch(self, topic: SessionTopic[B], resumption: Resumption[B]) -> Steps[None]:
        """Find what a client may lack that was subscribed elsewhere before this node was a member."""
        return self._missed.fetch(topic, resumption)

    def all_found(self) -> Steps[bool]:
        """Wait until this node has found all that a barrier passes: after a cut the tree may be whole before."""
        until_us = self.host.now_us() + PAST_US
        while not (are_found := self.host.counted() <= self.host.identifiers()) and self.host.now_us() < until_us:
            yield self._within(LOOK_US)
        return are_found

    def on_message(
        self,
        sender: int,
        message: DedupRequest | DedupResponse | ReplayRequest | ReplayResponse | FrontierRequest | FrontierResponse,
    ) -> None:
        """Another node asks or answers."""
        if isinstance(message, (DedupResponse, ReplayResponse, FrontierResponse)):
            self.scatter_gather.on_response(sender, message.number, message)
        elif isinstance(message, ReplayRequest):
            start(self._missed.replay(sender, message))
        elif isinstance(message, FrontierRequest):
            start(self._tell_past(sender, message))
        else:
            topic = self.host.find_topic(message.topic)
            ranges = [0] if topic is None else topic.seen.ranges_of(message.client)
            self.host.send_control(sender, DedupResponse(message.number, ranges))
