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
* *Nothing is missed silently* between two nodes (:meth:`NodeEnd.fetch` argues it).

It is a pure state machine. Its host calls it when something has happened and offers :class:`NodeHost`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.errors import NoMajorityError, PeerError
from antiphon.kernel.message import SOURCE_MASK
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import FollowRequest, NodeAddresses
from antiphon.sessions.dedup import DedupTable, Ranges, numbers_from, publications_in
from antiphon.sessions.host import ConnectedClient, FabricTraits, NodeHost, SessionTopic
from antiphon.sessions.lost_peers import LostPeers
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
from antiphon.sessions.steps import Promise, Steps, start, wait

PAST_US: Final = 5_000_000
"""How long a node waits for what is past elsewhere before it answers another node, or goes on without."""

AUTHORS_US: Final = 10_000_000
"""How long a broker waits for a batch that only a lost broker had, and that its author may hand in at another one."""

AWAY_US: Final = 2_000_000
"""How long a node that leaves waits for its clients to go."""

KEY_PART: Final = 1 << 30
"""A barrier has a key of its own, which is drawn in two parts."""

BARRIERS_AT_MOST: Final = 3
"""How many barriers a node publishes for one question, if nodes become members while it asks."""

SLACK_US: Final = 100_000
"""How long a request that says how long ago something was may have been on its way."""

B = TypeVar("B", bound=ShownBatch)

NOTHING_TO_LEARN: Final[Promise[None]] = Promise()
"""Shared by all topics on which nothing was published before their node was a member."""
NOTHING_TO_LEARN.resolve(None)


class NodeEnd(Generic[B]):
    """The clients of one node."""

    def __init__(self, traits: FabricTraits, host: NodeHost[B]) -> None:
        self.traits = traits
        self.host = host
        self.resumed = 0
        self._clients: dict[int, ConnectedClient] = {}
        self._lost = LostPeers(host.now_us(), KNOWN_US)
        self._last_left: Promise[None] = Promise()
        self.safety = SafetyReports(host, self._clients)
        self._scatter_gather: ScatterGather[Control] = ScatterGather(host, host)
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

    def on_disconnect(self, client: ConnectedClient) -> None:
        """A client's connection has ended; the client may have opened another one before."""
        if self._clients.get(client.client) is client:
            del self._clients[client.client]
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
        self._scatter_gather.on_peer_lost(identifier)
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

    def follow(self, client: int, message: FollowRequest) -> Steps[ResumedTopic[B]]:
        """Catch up with what a client has seen, and ask others what they have delivered of its batches.

        If this node cannot catch up, the crossing says why. It still serves the batches that were accepted elsewhere:
        they are handed in again all the same, because accepted messages are not lost.
        """
        topic = self.host.topic(message.topic)
        was_member = topic.is_member()
        yield from wait(self.host.publish_on(topic))
        failure: PeerError | None = None
        try:
            yield from self._catch_up(topic, client, message, was_member)
        except PeerError as error:
            failure = error
        answers = yield from self._scatter_gather.ask(lambda number: DedupRequest(number, topic.name, client))
        known = [numbers_from(answer.ranges) for answer in answers.values() if isinstance(answer, DedupResponse)]
        return ResumedTopic(self, topic, client, known, failure)

    def _catch_up(self, topic: SessionTopic[B], client: int, message: FollowRequest, was_member: bool) -> Steps[None]:
        """Wait until this node has delivered what a client has seen elsewhere."""
        if self.traits.has_barriers:
            yield from self._barrier(topic)
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

    def _known_until_us(self, topic: SessionTopic[B], message: FollowRequest) -> int:
        """Until when to wait for what a client has seen: not if all nodes that published it are gone for long."""
        since_us = self.host.now_us()
        if self.traits.knows_all and self.traits.counts_past:
            past = publications_in(self.host.frontier_keys(topic.number)).ranges()
            publishers = DedupTable(message.publications).without(past).ranges().keys()
            if publishers and publishers.isdisjoint({*self.host.identifiers(), self.host.identifier}):
                since_us = self._lost.since_us(publishers)
        return since_us + KNOWN_US

    def _barrier(self, topic: SessionTopic[B]) -> Steps[int]:
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

    def _wait_for_authors(self, topic: SessionTopic[B], client: int, message: FollowRequest) -> Steps[None]:
        """Wait for what no living broker had at the barrier, and the client has seen: its author may hand it in again.

        A broker does not know what came before it was a member. The others do, and what they name has come here by the
        next barrier, or came before.
        """
        # What the log of an earlier life holds was shown too.
        known = DedupTable(topic.replay_buffer.shown.ranges())

        def lacks() -> list[int]:
            return [
                author
                for author, number in message.past.items()
                if author > SOURCE_MASK
                and author != client
                and max(topic.seen.highest(author), known.highest(author)) < number
            ]

        if not (awaited := lacks()):
            return
        answers = yield from self._scatter_gather.ask(lambda number: FrontierRequest(number, topic.name, []))
        for answer in answers.values():
            if isinstance(answer, FrontierResponse):
                known.merge(answer.seen)
        if len(lacks()) < len(awaited):
            yield from self._barrier(topic)
        yield from self.until(topic, lambda: not lacks(), self.host.now_us() + AUTHORS_US)

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
        answers = yield from self._scatter_gather.ask(
            lambda number: FrontierRequest(number, topic.name, past),
            lambda answer: isinstance(answer, FrontierResponse) and answer.is_whole,
        )
        for answer in answers.values():
            if isinstance(answer, FrontierResponse) and answer.is_whole:
                until_us = self.host.now_us() + PAST_US
                if (yield from self.until(topic, partial(self._is_past, topic, answer.past), until_us)):
                    topic.seen.merge(answer.seen)
                    self.topics_changed()
                    return
        # The only node that knows may be lost for a while; it is asked again when a client needs it.
        self._unlearned[topic] = None

    def _tell_past(self, sender: int, message: FrontierRequest) -> Steps[None]:
        """Answer another node that has become a member, when what is past there is past here."""
        answer = FrontierResponse(message.number, False, [], {})
        topic = self.host.find_topic(message.topic)
        learned = None if topic is None else topic.learned
        if topic is not None and not self.traits.counts_past:
            answer = FrontierResponse(message.number, True, [], topic.seen.ranges())
        elif topic is not None and learned is not None and learned.is_done:
            until_us = self.host.now_us() + PAST_US
            if (yield from self.until(topic, partial(self._is_past, topic, message.past), until_us)):
                past = self.host.frontier_keys(topic.number)
                # What its log held when it returned is past, too; an author may hand it in again.
                seen = DedupTable(topic.replay_buffer.shown.ranges())
                seen.merge(topic.seen.ranges())
                answer = FrontierResponse(message.number, True, past, seen.ranges())
        self.host.send_control(sender, answer)

    def _is_past(self, topic: SessionTopic[B], past: list[int]) -> bool:
        """Whether all that counts as past somewhere else does here, where processes can say it."""
        if not past or not self.traits.counts_past:
            return True
        return Holdings(vec[i64](self.host.frontier_keys(topic.number))).covers(Holdings(vec[i64](past)))

    def fetch(self, topic: SessionTopic[B], resumption: Resumption[B]) -> Steps[None]:
        """Find what a client may lack that was subscribed elsewhere before this node was a member.

        Any other member that was one long enough has it, as soon as it has delivered a barrier of this node, or,
        without barriers, all that counts as past here. For let a client lack a publication. Either this node delivers
        it after it became a member: then it is shown here, before or after this question. Or it counted as past when
        this node became one: then it is in the set that goes with the question, and a node that has delivered that set
        has shown it, or had delivered it before the client was subscribed. The set may be larger by what was delivered
        here since; that comes to all, and the client drops what comes twice. Order holds, because the answer is whole,
        each publication behind all that it follows and the client has not seen; and what is shown here comes after
        that, and follows nothing but what was shown here before or is in the set.
        """
        seen = resumption.seen_on(topic.name)
        can_ask = self.traits.has_barriers or self.traits.counts_past
        if not can_ask or not topic.replay_buffer.may_lack(seen, resumption.since_us):
            return
        past = [] if self.traits.has_barriers else self.host.frontier_keys(topic.number)
        barrier, asked_at_us = 0, 0

        def ask(number: int, wants_batches: bool = False) -> ReplayRequest:
            now_us, client, ranges = self.host.now_us(), resumption.client, seen.ranges()
            # Both ages as of now: a barrier may have waited for a majority for long.
            age_us, waited_us = now_us - resumption.since_us, now_us - asked_at_us
            return ReplayRequest(number, topic.name, barrier, past, client, age_us, ranges, wants_batches, waited_us)

        for _ in range(BARRIERS_AT_MOST):
            asked_at_us = self.host.now_us()
            if self.traits.has_barriers:
                try:
                    barrier = yield from self._barrier(topic)
                except NoMajorityError:
                    # No node can say what the client lacks; the client is told that something may be missing.
                    return
            answers = yield from self._scatter_gather.ask(
                ask, lambda answer: isinstance(answer, ReplayResponse) and answer.is_complete
            )
            replies = {sender: answer for sender, answer in answers.items() if isinstance(answer, ReplayResponse)}
            if barrier == 0 or all(answer.has_come for answer in replies.values()):
                break
        batches = next((self._batches(topic, answer) for answer in replies.values() if answer.is_complete), None)
        if batches is None and topic.replay_buffer.is_whole(seen, resumption.since_us):
            own = {(batch.author, batch.number) for batch in topic.replay_buffer.unseen(seen, resumption.since_us)}
            if resumption.is_behind(topic.name, self._before_all(topic, replies)):
                batches = yield from self._from_oldest(topic, own, replies, partial(ask, wants_batches=True))
        if batches is not None:
            resumption.fetched[topic.name] = batches

    def _before_all(self, topic: SessionTopic[B], answers: dict[int, ReplayResponse]) -> dict[int, Ranges]:
        """The publications that no node which was asked has shown: they counted as past when each became a member.

        A node that has delivered what counts as past here has shown the rest of that, now or in an earlier life.
        """
        before = DedupTable(topic.replay_buffer.before)
        for answer in answers.values():
            if answer.member_us > 0:
                before = before.in_common(answer.before)
        return before.ranges()

    def _from_oldest(
        self,
        topic: SessionTopic[B],
        own: set[tuple[int, int]],
        answers: dict[int, ReplayResponse],
        ask: Callable[[int], ReplayRequest],
    ) -> Steps[list[B] | None]:
        """Find what a client lacks that was subscribed before any living node was a member; None if it is gone.

        Let the client lack a publication that does not come to this node any more. It counted as past when this node
        became a member. If it did so too when each of the others became one, no node that was asked has shown it. A
        node that has may be out of reach, or gone. So this is called only if the client has all that
        (:meth:`_before_all`). Otherwise a node has shown it that was asked: the one that is a member for longest, or
        one whose log holds it. So nothing is missing if all have kept what they have shown and the client has not seen,
        and this node gets it from the oldest member, or shows it, sooner or later. The answer of that node is whole, as
        in :meth:`fetch`. ``own`` is what this node shows the client anyway.
        """
        if not all(answer.is_whole for answer in answers.values()):
            return None
        # This node may have learned that others have seen these batches (`_learn`). It does not show them for that, so
        # they come from the node that is a member for longest, also if they count as seen here.
        elsewhere = {named for answer in answers.values() for named in answer.unseen} - own
        if not elsewhere:
            return []
        oldest = max(answers, key=lambda sender: (answers[sender].member_us, sender))
        if topic.replay_buffer.member_us(self.host.now_us()) >= answers[oldest].member_us:
            # This node is. The answer of a later member would lack batches that are before those here.
            return [] if (yield from self._are_shown(topic, elsewhere)) else None
        again = (yield from self._scatter_gather.ask(ask, only=oldest)).get(oldest)
        if not isinstance(again, ReplayResponse) or not again.is_whole:
            return None
        batches = self._batches(topic, again)
        left = elsewhere - {(batch.author, batch.number) for batch in batches}
        return batches if (yield from self._are_shown(topic, left)) else None

    def _are_shown(self, topic: SessionTopic[B], named: set[tuple[int, int]]) -> Steps[bool]:
        """Whether this node has shown these batches, or soon does; not if it has only learned that others have."""
        until_us = self.host.now_us() + PAST_US
        yield from self.until(topic, lambda: all(topic.seen.has(*each) for each in named), until_us)
        yield from wait(self.host.until_shown())
        return all(topic.replay_buffer.shown.has(*each) for each in named)

    def _batches(self, topic: SessionTopic[B], answer: ReplayResponse) -> list[B]:
        return [self.host.batch(topic, *each) for each in answer.batches]

    def _replay(self, sender: int, message: ReplayRequest) -> Steps[None]:
        """Answer another node when what it waits for has come."""
        since_us = self.host.now_us() - message.age_us - SLACK_US
        # It was sent away from here and waits until it has all.
        was_here = message.client in self._clients
        seen = DedupTable(message.seen)
        topic = self.host.find_topic(message.topic)
        if topic is None or not topic.is_member():
            # It has shown nothing.
            self.host.send_control(sender, ReplayResponse(message.number, False, [], is_whole=True))
            return
        # If this node became a member after the barrier, the barrier never comes; the sender publishes another one.
        member_us = topic.replay_buffer.member_us(self.host.now_us())
        is_later = message.barrier and member_us < message.barrier_age_us + SLACK_US
        until_us = self.host.now_us() + (SLACK_US if is_later else PAST_US)
        has_come = yield from self.until(topic, partial(self._has_come, sender, message, topic), until_us)
        yield from wait(self.host.until_shown())
        is_whole = has_come and topic.is_member() and topic.replay_buffer.is_whole(seen, since_us, was_here)
        is_complete = is_whole and not topic.replay_buffer.may_lack(seen, since_us, was_here)
        unseen = topic.replay_buffer.unseen(seen, since_us) if is_whole else []
        sent = unseen if is_complete or message.wants_batches else []
        answer = ReplayResponse(
            message.number,
            is_complete,
            [(int(each.publisher), int(each.sequence), each.order, each.payload) for each in sent],
            is_whole,
            topic.replay_buffer.member_us(self.host.now_us()),
            [(each.author, each.number) for each in unseen] if not sent else [],
            topic.replay_buffer.before,
            has_come,
        )
        self.host.send_control(sender, answer)

    def _has_come(self, sender: int, message: ReplayRequest, topic: SessionTopic[B]) -> bool:
        """Whether this node has delivered what another one waits for."""
        has_barrier = message.barrier == 0 or topic.seen.has(sender, message.barrier)
        return has_barrier and self._is_past(topic, message.past)

    def on_message(
        self,
        sender: int,
        message: DedupRequest | DedupResponse | ReplayRequest | ReplayResponse | FrontierRequest | FrontierResponse,
    ) -> None:
        """Another node asks or answers."""
        if isinstance(message, (DedupResponse, ReplayResponse, FrontierResponse)):
            self._scatter_gather.on_response(sender, message.number, message)
        elif isinstance(message, ReplayRequest):
            start(self._replay(sender, message))
        elif isinstance(message, FrontierRequest):
            start(self._tell_past(sender, message))
        else:
            topic = self.host.find_topic(message.topic)
            ranges = [0] if topic is None else topic.seen.ranges_of(message.client)
            self.host.send_control(sender, DedupResponse(message.number, ranges))
