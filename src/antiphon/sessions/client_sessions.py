"""What clients need that come from another node: to go on as if they had always been here.

Three things are done for them:

* *Nothing is lost with a node.* A client keeps what it has handed in until its node says that it is **safe**: until all
  members of the topic are known to have it. What is not safe it hands in again at the next node.
* *Nothing is doubled.* Batches carry the number of their client and the client's own number for them; every node drops
  what it has delivered before. What other nodes have delivered before this one became a member is asked for.
* *What a client publishes follows what it has seen.* Before the first publication of such a client on a topic, a tree
  is asked for a **barrier**: an empty total publication about a key of its own. All brokers have to say that they are
  closed for it, and whatever they had before is in front of it, whatever the keys. So when this node delivers it,
  this node has got all that any living broker had then; what the client has seen is among it, or is gone with the
  broker that showed it, and nobody will ever see it. Where there are no barriers, the node waits until it has
  delivered what the client has seen. On a cube, what was past when a node became a member will not be delivered there;
  so it asks the others then whose batches they have seen.

*Nothing is missed between two nodes.* A node that was a member of a topic for as long as a client was subscribed shows
the client what it lacks by itself. One that became a member later lacks just what counted as past when it did. It asks
the others, and who was a member for long enough answers as soon as it has delivered that too: on a tree a barrier says
so, on a cube the node says itself what counts as past (:meth:`Sessions.fetch` argues it). A node that is about to go
answers for its clients, however late it became a member: they were here. If nobody was a member for that long, because
the client was the first who subscribed, say, all are asked what they have shown and the client has not seen. Only what
this node cannot get, or what somebody has shown and not kept, is missing then (:meth:`Sessions._from_oldest`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import Author, Columns, check_payload
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.outbox import Segment, set_if_waiting
from antiphon.api.replay_buffer import Resumption
from antiphon.api.topic_state import LiveTopic, TopicTable
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.kernel.message import BARRIER_KEY, ORDER_NAMES, TOTAL
from antiphon.kernel.process import Process
from antiphon.membership.messages import Control
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.runtime.dedup import SeenOfAll, numbers_from
from antiphon.runtime.errors import NoMajorityError
from antiphon.runtime.scatter_gather import Others, Questions
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.resume import KNOWN_SECONDS, LOOK_SECONDS, Crossing, NodeTraits
from antiphon.storage.disk import Disk
from antiphon.transport.client_messages import FollowRequest, NodeAddresses, SafeUpTo
from antiphon.transport.peer_messages import (
    DedupRequest,
    DedupResponse,
    FrontierRequest,
    FrontierResponse,
    ReplayRequest,
    ReplayResponse,
)

PAST_SECONDS: Final = 5.0
"""How long it waits for what is past elsewhere before it answers another node, or goes on without."""

AWAY_SECONDS: Final = 2.0
"""How long a node that leaves waits for its clients to go."""

SLACK_US: Final = 100_000
"""How long a question may have been on its way that says how long ago something was."""


def check_batches(sender: int, message: ReplayResponse) -> None:
    """Refuse batches of another node that clients could not be shown."""
    for _, _, order, payload in message.batches:
        if order not in ORDER_NAMES:
            raise ProtocolError(f"node {sender} sent a batch with the order {order!r}, which there is not")
        check_payload(payload)


def batches_of(topic: LiveTopic, answer: ReplayResponse) -> list[Batch]:
    """The batches of another node, for clients; they have no offsets here."""
    return [
        Batch(topic.name, publisher, order, 0, payload, sequence=sequence)
        for publisher, sequence, order, payload in answer.batches
    ]


class ConnectedClient(Protocol):
    """A client that is connected to this node."""

    client: int
    is_sent_away: bool

    def send(self, control: Control) -> None:
        """Send something to the client when the node settles."""


class Peers(Others, Protocol):
    """The other nodes, and where clients find them."""

    def addresses(self) -> list[str]:
        """Where the others are."""


class ProcessLoop(Protocol):
    """The loop that drives the process of the node."""

    @property
    def identifier(self) -> int:
        """The identifier of the node."""

    @property
    def process(self) -> Process | None:
        """The process, from the moment the node has its place."""

    @property
    def topics(self) -> TopicTable:
        """The topics of the node."""

    def publish_segment(self, topic: LiveTopic, segment: Segment) -> int:
        """Hand a batch to the process, whether there is room or not; gives its number."""

    def settle(self) -> None:
        """Bring the outside up to date with the process."""


class FabricTraits(NamedTuple):
    """How a fabric lets a node catch up with others."""

    # Elsewhere than on a tree a barrier would wait for a node that has crashed: processes say what counts as past.
    has_barriers: bool
    counts_past: bool
    # Whether a batch is published once more that others have and that does not come.
    publishes_again: bool


class Sessions:
    """The clients of one node; ``publish_on`` makes the node a publisher of a topic."""

    def __init__(
        self,
        traits: FabricTraits,
        loop: ProcessLoop,
        peers: Peers,
        disk: Disk,
        lifecycle: Lifecycle,
        tasks: Tasks,
        publish_on: Callable[[str], None],
    ) -> None:
        self._publishes_again = traits.publishes_again
        self._has_barriers = traits.has_barriers
        self._counts_past = traits.counts_past
        self._node = loop
        self._topics = loop.topics
        self._peers = peers
        self._disk = disk
        self._lifecycle = lifecycle
        self._tasks = tasks
        self._publish_on = publish_on
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, ConnectedClient] = {}
        self.resumed = 0
        # By topic, what was handed to the process for clients: number, client, and the client's own number.
        self._unsafe: dict[LiveTopic, deque[tuple[int, int, int]]] = {}
        self._is_looking = False
        self._questions: Questions[Control] = Questions(peers, loop.settle)

    def on_connect(self, session: ConnectedClient) -> None:
        """A client has connected."""
        self._sessions[session.client] = session

    def on_disconnect(self, session: ConnectedClient) -> None:
        """A client's connection has ended; the client may have opened another one before."""
        if self._sessions.get(session.client) is session:
            del self._sessions[session.client]

    # Where else clients can go.

    def tell_nodes(self, is_leaving: bool = False) -> None:
        """Tell all clients where the other nodes are."""
        if self._sessions:
            news = NodeAddresses(self._peers.addresses(), is_leaving)
            for session in self._sessions.values():
                session.send(news)
            self._node.settle()

    async def send_away(self) -> None:
        """This node is about to go: let clients go to others first. Nobody is sent away who has nowhere to go."""
        if not self._peers.addresses():
            return
        for session in self._sessions.values():
            session.is_sent_away = True
        self.tell_nodes(is_leaving=True)
        until = self._loop.time() + AWAY_SECONDS
        while self._sessions and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)

    # What is safe.

    def handed_in(self, topic: LiveTopic, number: int, author: Author) -> None:
        """A client's batch has become the process's publication of this number."""
        self._unsafe.setdefault(topic, deque()).append((number, author.client, author.number))
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_later(LOOK_SECONDS, self._poll)

    def _poll(self) -> None:
        """Tell clients what has become safe since the last time."""
        self._is_looking = False
        process = self._node.process
        if process is None or self._lifecycle.is_shut:
            return
        for topic, unsafe in list(self._unsafe.items()):
            first = process.first_unsettled(topic.number)
            safe: dict[int, int] = {}
            while unsafe and unsafe[0][0] < first:
                _, client, serial = unsafe.popleft()
                safe[client] = serial
            for client, serial in safe.items():
                session = self._sessions.get(client)
                if session is not None:
                    session.send(SafeUpTo(topic.name, serial))
            if not unsafe:
                del self._unsafe[topic]
        self._node.settle()
        if self._unsafe:
            self._is_looking = True
            self._loop.call_later(LOOK_SECONDS, self._poll)

    # What a client follows.

    async def follow(self, client: int, message: FollowRequest) -> Crossing:
        """Catch up with what a client has seen, and ask others what they have delivered of its batches.

        If this node cannot catch up, the crossing says why. It serves the batches that were accepted elsewhere: they
        are handed in again all the same, because accepted messages are not lost.
        """
        topic = self._topics.topic(message.topic)
        was_member = topic.is_member()
        self._publish_on(message.topic)
        assert topic.joined is not None, "who publishes on a topic is about to be a member"
        await asyncio.shield(topic.joined)
        failure: PeerError | None = None
        try:
            await self._catch_up(topic, message.past, was_member)
        except PeerError as error:
            failure = error
        answers = await self._questions.ask(lambda number: DedupRequest(number, topic.name, client))
        known = [numbers_from(answer.ranges) for answer in answers if isinstance(answer, DedupResponse)]
        return Crossing(
            NodeTraits(self._node.identifier, self._publishes_again), topic, client, known, self._counts_past, failure
        )

    async def _catch_up(self, topic: LiveTopic, past: dict[int, int], was_member: bool) -> None:
        """Wait until this node has delivered what a client has seen elsewhere."""
        if self._has_barriers:
            await self._barrier(topic)
        elif self._counts_past:
            if topic.learned is not None:
                await asyncio.shield(topic.learned)
            await self._until_delivered(topic, past)
        elif was_member:
            # A newcomer begins behind whatever the members had delivered.
            await self._until_delivered(topic, past)

    async def _barrier(self, topic: LiveTopic) -> int:
        """Publish an empty batch about a key of its own, and wait until it has its place; gives its number.

        Without a majority it has none. The node waits for a lost majority, but not for ever.
        """
        passed: asyncio.Future[None] | None = None
        number = 0
        refused_at: float | None = None
        while passed is None or not passed.done():
            now = self._loop.time()
            reason = None if self._node.process is None else self._node.process.refusal(TOTAL)
            if reason is None:
                refused_at = None
                if passed is None:
                    passed = self._loop.create_future()
                    nothing = Columns(0, wall_clock_us(), [])
                    key = BARRIER_KEY + secrets.randbelow(BARRIER_KEY)
                    number = self._node.publish_segment(topic, Segment("total", (key,), nothing, 0, passed))
            elif refused_at is None:
                refused_at = now
            elif now - refused_at >= KNOWN_SECONDS:
                raise NoMajorityError(
                    f"this client comes from another broker, and may have seen messages on {topic.name!r} there that "
                    f"are not here: {reason}; what you publish next does not follow them"
                )
            if passed is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await asyncio.wait([passed], timeout=LOOK_SECONDS)
        passed.result()
        return number

    async def _until_delivered(self, topic: LiveTopic, past: dict[int, int]) -> None:
        until = self._loop.time() + KNOWN_SECONDS
        while any(topic.seen.highest(author) < number for author, number in past.items()):
            if self._loop.time() >= until:
                raise PeerError(
                    f"this client has seen messages on {topic.name!r} at another node that did not come to node "
                    f"{self._node.identifier} in {KNOWN_SECONDS:g} seconds; what you publish now will not follow them"
                )
            await asyncio.sleep(LOOK_SECONDS)

    # What others know.

    def became_member(self, topic: LiveTopic) -> None:
        """This node is a member of a topic from now on."""
        if self._counts_past:
            topic.learned = self._loop.create_future()
            self._tasks.spawn(self._learn(topic, topic.learned))

    async def _learn(self, topic: LiveTopic, learned: asyncio.Future[None]) -> None:
        """Get to know whose batches came before this node was a member: nobody is to wait for them here.

        Whoever has learned that itself, and has delivered all that counts as past here, knows them all. What it knows
        may be more than that, and counts as having come only when it is past here too.
        """
        try:
            past = self._past(topic)
            answers = await self._questions.ask(
                lambda number: FrontierRequest(number, topic.name, past),
                lambda answer: isinstance(answer, FrontierResponse) and answer.is_whole,
            )
            for answer in answers:
                if isinstance(answer, FrontierResponse) and answer.is_whole:
                    if await self._until_come(topic, partial(self._is_past, topic, answer.past)):
                        topic.seen.merge(answer.seen)
                    break
        finally:
            set_if_waiting(learned)

    async def _tell_past(self, sender: int, message: FrontierRequest) -> None:
        """Answer another node that has become a member, when what is past there is past here."""
        answer = FrontierResponse(message.number, False, [], {})
        topic = self._topics.by_name.get(message.topic)
        has_learned = topic is not None and topic.learned is not None and topic.learned.done()
        if topic is not None and has_learned:
            has_come = await self._until_come(topic, partial(self._is_past, topic, message.past))
            if has_come:
                answer = FrontierResponse(message.number, True, self._past(topic), topic.seen.ranges())
        self._peers.tell(sender, answer)
        self._node.settle()

    async def _until_come(self, topic: LiveTopic, has_come: Callable[[], bool]) -> bool:
        """Wait for something that will come if this node stays a member, for a while; whether it has."""
        until = self._loop.time() + PAST_SECONDS
        while topic.is_member() and not has_come():
            if self._loop.time() >= until:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return topic.is_member()

    async def fetch(self, topic: LiveTopic, resumption: Resumption) -> None:
        """Find what a client may lack that was subscribed elsewhere before this node was a member.

        Any other member that was one long enough has it, as soon as it has delivered a barrier of this node, or, on a
        cube, all that counts as past here. For let a client lack a publication. Either this node delivers it after it
        became a member: then it is shown here, before or after this question. Or it counted as past when this node
        became one: then it is in the set that goes with the question, and whoever has delivered that set has shown it,
        or had delivered it before the client was subscribed. The set may be larger by what was delivered here since;
        that comes to all, and what comes twice is dropped by the client. Order holds, because what the other sends is
        whole, each publication behind all that it follows and the client has not seen; and what is shown here comes
        after that, and follows nothing but what was shown here before or is in the set.
        """
        seen = resumption.seen_on(topic.name)
        if not topic.recent.may_lack(seen, resumption.since_us) or not (self._has_barriers or self._counts_past):
            return
        barrier, past = 0, list[int]()
        if self._has_barriers:
            try:
                barrier = await self._barrier(topic)
            except NoMajorityError:
                # No node can say what the client lacks; the client is told that something may be missing.
                return
        else:
            past = self._past(topic)
        age_us = monotonic_us() - resumption.since_us

        def ask(number: int, wants_batches: bool = False) -> ReplayRequest:
            seen_by_author = seen.ranges()
            return ReplayRequest(
                number, topic.name, barrier, past, resumption.client, age_us, seen_by_author, wants_batches
            )

        answers = await self._questions.ask_each(
            ask, lambda answer: isinstance(answer, ReplayResponse) and answer.is_complete
        )
        recent = {sender: answer for sender, answer in answers.items() if isinstance(answer, ReplayResponse)}
        batches = next((batches_of(topic, answer) for answer in recent.values() if answer.is_complete), None)
        if batches is None and topic.recent.is_whole(seen, resumption.since_us):
            batches = await self._from_oldest(topic, recent, partial(ask, wants_batches=True))
        if batches is not None:
            resumption.fetched[topic.name] = batches

    async def _from_oldest(
        self, topic: LiveTopic, answers: dict[int, ReplayResponse], ask: Callable[[int], ReplayRequest]
    ) -> list[Batch] | None:
        """What a client lacks that was subscribed before any node was a member that is still there; None if it is gone.

        Whatever the client is owed was published at a node, which was a member then. If that node is still there it
        has shown it, and is asked as all others are. If it is not, and nobody else has shown it, nobody will see it.
        So nothing is missing if all have kept what they have shown and the client has not seen, and this node gets it
        from the node that is a member for longest, or shows it, sooner or later. What comes from that one is whole, as
        in :meth:`fetch`.
        """
        if not all(answer.is_whole for answer in answers.values()):
            return None
        elsewhere = {named for answer in answers.values() for named in answer.unseen}
        if not elsewhere:
            return []
        # This node may have learned that others have seen these batches (`_learn`). It does not show them for that, so
        # they come from the node that is a member for longest, also if they count as seen here.
        oldest = max(answers, key=lambda sender: (answers[sender].member_us, sender))
        again = (await self._questions.ask_each(ask, only=oldest)).get(oldest)
        if not isinstance(again, ReplayResponse) or not again.is_whole:
            return None
        batches = batches_of(topic, again)
        left = elsewhere - {(batch.author, batch.number) for batch in batches}
        has_come = await self._until_come(topic, lambda: all(topic.seen.has(*named) for named in left))
        return batches if has_come else None

    def _past(self, topic: LiveTopic) -> list[int]:
        """What counts as past here, on a cube."""
        process = self._node.process
        assert process is not None, "a node that is in the cluster has a process"
        return process.counted(topic.number)

    def _has_come(self, sender: int, message: ReplayRequest, topic: LiveTopic) -> bool:
        """Whether this node has delivered what another one waits for."""
        has_barrier = message.barrier == 0 or topic.seen.has(sender, message.barrier)
        return has_barrier and self._is_past(topic, message.past)

    def _is_past(self, topic: LiveTopic, past: list[int]) -> bool:
        """Whether all that counts as past somewhere else on a cube does here."""
        if not past or not self._counts_past:
            return True
        return Holdings(vec[i64](self._past(topic))).covers(Holdings(vec[i64](past)))

    async def _recent(self, sender: int, message: ReplayRequest) -> None:
        """Answer another node when what it waits for has come."""
        since_us = monotonic_us() - message.age_us - SLACK_US
        # It was sent away from here and waits until it has all.
        was_here = message.client in self._sessions
        seen = SeenOfAll(message.seen)
        topic = self._topics.by_name.get(message.topic)
        if topic is None or not topic.is_member():
            # It has shown nothing.
            answer = ReplayResponse(message.number, False, [], is_whole=True)
        else:
            has_come = await self._until_come(topic, partial(self._has_come, sender, message, topic))
            await self._disk.until_shown()
            is_whole = has_come and topic.is_member() and topic.recent.is_whole(seen, since_us, was_here)
            is_complete = is_whole and not topic.recent.may_lack(seen, since_us, was_here)
            unseen = topic.recent.unseen(seen, since_us) if is_whole else []
            sent = unseen if is_complete or message.wants_batches else []
            answer = ReplayResponse(
                message.number,
                is_complete,
                [(int(each.publisher), int(each.sequence), each.order, each.payload) for each in sent],
                is_whole,
                topic.recent.member_us(monotonic_us()),
                [(each.author, each.number) for each in unseen] if not sent else [],
            )
        self._peers.tell(sender, answer)
        self._node.settle()

    def on_message(
        self,
        sender: int,
        message: DedupRequest | DedupResponse | ReplayRequest | ReplayResponse | FrontierRequest | FrontierResponse,
    ) -> None:
        """Another node asks or answers."""
        if isinstance(message, ReplayResponse):
            check_batches(sender, message)
        if isinstance(message, (DedupResponse, ReplayResponse, FrontierResponse)):
            self._questions.answered(sender, message.number, message)
        elif isinstance(message, ReplayRequest):
            self._tasks.spawn(self._recent(sender, message))
        elif isinstance(message, FrontierRequest):
            self._tasks.spawn(self._tell_past(sender, message))
        else:
            topic = self._topics.by_name.get(message.topic)
            ranges = [0] if topic is None else topic.seen.ranges_of(message.client)
            self._peers.tell(sender, DedupResponse(message.number, ranges))

    def peer_gone(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._questions.peer_gone(identifier)
        self.tell_nodes()
