"""Finds what a client lacks that was subscribed at another node before this one was a member.

A node asks all others what they have shown and the client has not seen. Their answers are batches, or a promise that
there are none. Where it gets neither, it tells the client of a gap (:meth:`MissedBatches.fetch` argues it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from antiphon.kernel.errors import NoMajorityError
from antiphon.membership.messages import Control
from antiphon.sessions.dedup import DedupTable
from antiphon.sessions.host import ConnectedClient, FabricTraits, NodeHost, SessionTopic
from antiphon.sessions.peer_messages import ReplayRequest, ReplayResponse
from antiphon.sessions.replay_buffer import Resumption, ShownBatch
from antiphon.sessions.scatter_gather import ScatterGather
from antiphon.sessions.steps import Steps, wait

PAST_US: Final = 5_000_000
"""How long a node waits for what is past elsewhere before it answers another node, or goes on without."""

BARRIERS_AT_MOST: Final = 3
"""How many barriers a node publishes for one question, if nodes become members while it asks."""

SLACK_US: Final = 100_000
"""How long a request that says how long ago something was may have been on its way."""

B = TypeVar("B", bound=ShownBatch)


class AskingEnd(Protocol[B]):
    """The node's end of sessions, for a part that asks others."""

    traits: FabricTraits
    host: NodeHost[B]
    scatter_gather: ScatterGather[Control]

    def client(self, number: int) -> ConnectedClient | None:
        """The client with this number, if it is connected."""

    def until(self, topic: SessionTopic[B], condition: Callable[[], bool], until_us: int) -> Steps[bool]:
        """Wait for something that is delivered, until some time; whether it has come."""

    def barrier(self, topic: SessionTopic[B]) -> Steps[int]:
        """Publish a barrier, and wait until it has its place; gives its number."""

    def all_found(self) -> Steps[bool]:
        """Wait until this node has found all that a barrier passes."""

    def is_past(self, topic: SessionTopic[B], past: list[int]) -> bool:
        """Whether all that counts as past somewhere else does here."""


class MissedBatches(Generic[B]):
    """The requests for what clients lack, of one node and to it."""

    def __init__(self, end: AskingEnd[B]) -> None:
        self._end = end

    def fetch(self, topic: SessionTopic[B], resumption: Resumption[B]) -> Steps[None]:
        """Find what a client may lack that was subscribed elsewhere before this node was a member.

        Any other member that was one long enough has it, as soon as it has delivered a barrier of this node, or,
        without barriers, all that counts as past here. For let a client lack a publication. Either this node delivers
        it after it became a member: then it is shown here, before or after this question. Or it counted as past when
        this node became one: then it is in the set that goes with the question, and a node that has delivered that set
        has shown it, or had delivered it before the client was subscribed. The set may be larger by what was delivered
        here since; that comes to all, and the client drops what comes twice. If this node misses some of it the client
        is told (:meth:`Resumption.replay`). Order holds, because the answer is whole, each publication behind all that
        it follows and the client has not seen; and what is shown here comes after that, and follows nothing but what
        was shown here before or is in the set.
        """
        seen = resumption.seen_on(topic.name)
        can_ask = self._end.traits.has_barriers or self._end.traits.counts_past
        if not can_ask or not topic.replay_buffer.may_lack(seen, resumption.since_us):
            return
        began_at_us = self._end.host.now_us()
        past = [] if self._end.traits.has_barriers else self._end.host.frontier_keys(topic.number)
        barrier, asked_at_us = 0, 0
        # The brokers that a barrier has passed, and those of them that have answered.
        passed: set[int] = set()
        answered: set[int] = set()

        def ask(number: int, wants_batches: bool = False) -> ReplayRequest:
            now_us, client, ranges = self._end.host.now_us(), resumption.client, seen.ranges()
            # Both ages as of now: a barrier may have waited for a majority for long.
            age_us, waited_us = now_us - resumption.since_us, now_us - asked_at_us
            return ReplayRequest(number, topic.name, barrier, past, client, age_us, ranges, wants_batches, waited_us)

        for _ in range(BARRIERS_AT_MOST):
            asked_at_us = self._end.host.now_us()
            if self._end.traits.has_barriers:
                try:
                    barrier = yield from self._end.barrier(topic)
                except NoMajorityError:
                    # No node can say what the client lacks; the client is told that something may be missing.
                    return
                passed |= self._end.host.counted()
            are_found = not self._end.traits.has_barriers or (yield from self._end.all_found())
            answers = yield from self._end.scatter_gather.ask(
                ask, lambda answer: isinstance(answer, ReplayResponse) and answer.is_complete
            )
            replies = {sender: answer for sender, answer in answers.items() if isinstance(answer, ReplayResponse)}
            batches = next((self._batches(topic, answer) for answer in replies.values() if answer.is_complete), None)
            # One that went behind a barrier without an answer may have shown what no other has.
            answered |= replies.keys()
            have_answered = passed <= answered
            has_come = have_answered and all(answer.has_come for answer in replies.values())
            is_gone = not passed <= answered | self._end.host.counted() if passed else False
            if barrier == 0 or batches is not None or has_come or is_gone or not are_found:
                break
        if batches is None and have_answered and topic.replay_buffer.is_whole(seen, resumption.since_us):
            own = {(batch.author, batch.number) for batch in topic.replay_buffer.unseen(seen, resumption.since_us)}
            members = [answer.before for answer in replies.values() if answer.member_us > 0]
            if resumption.is_behind(topic.name, topic.replay_buffer.before_all(members)):
                batches = yield from self._from_oldest(topic, own, replies, partial(ask, wants_batches=True))
        if batches is not None:
            resumption.fetch(topic.name, began_at_us, batches)

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
        (:meth:`ReplayBuffer.before_all`), and no node that the barrier passed has kept silent. Otherwise a node has
        shown it that was asked: the one that is a member for longest, or one whose log holds it. So nothing is missing
        if all have kept what they have shown and the client has not seen, and this node gets it from the oldest member,
        or shows it, sooner or later. The answer of that node is whole, as in :meth:`fetch`. ``own`` is what this node
        shows the client anyway.
        """
        if not all(answer.is_whole for answer in answers.values()):
            return None
        # This node may have learned that others have seen these batches (`_learn`). It does not show them for that, so
        # they come from the node that is a member for longest, also if they count as seen here.
        elsewhere = {named for answer in answers.values() for named in answer.unseen} - own
        if not elsewhere:
            return []
        oldest = max(answers, key=lambda sender: (answers[sender].member_us, sender))
        if topic.replay_buffer.member_us(self._end.host.now_us()) >= answers[oldest].member_us:
            # This node is. The answer of a later member would lack batches that are before those here.
            return [] if (yield from self._are_shown(topic, elsewhere)) else None
        again = (yield from self._end.scatter_gather.ask(ask, only=oldest)).get(oldest)
        if not isinstance(again, ReplayResponse) or not again.is_whole:
            return None
        batches = self._batches(topic, again)
        left = elsewhere - {(batch.author, batch.number) for batch in batches}
        return batches if (yield from self._are_shown(topic, left)) else None

    def _are_shown(self, topic: SessionTopic[B], named: set[tuple[int, int]]) -> Steps[bool]:
        """Whether this node has shown these batches, or soon does; not if it has only learned that others have."""
        until_us = self._end.host.now_us() + PAST_US
        yield from self._end.until(topic, lambda: all(topic.seen.has(*each) for each in named), until_us)
        yield from wait(self._end.host.until_shown())
        return all(topic.replay_buffer.shown.has(*each) for each in named)

    def _batches(self, topic: SessionTopic[B], answer: ReplayResponse) -> list[B]:
        return [self._end.host.batch(topic, *each) for each in answer.batches]

    def replay(self, sender: int, message: ReplayRequest) -> Steps[None]:
        """Answer another node when what it waits for has come."""
        since_us = self._end.host.now_us() - message.age_us - SLACK_US
        # It was sent away from here and waits until it has all.
        was_here = self._end.client(message.client) is not None
        seen = DedupTable(message.seen)
        topic = self._end.host.find_topic(message.topic)
        if topic is None or not topic.is_member():
            # It has shown nothing.
            self._end.host.send_control(sender, ReplayResponse(message.number, False, [], is_whole=True))
            return
        # If this node became a member after the barrier, the barrier never comes; the sender publishes another one.
        member_us = topic.replay_buffer.member_us(self._end.host.now_us())
        is_later = message.barrier and member_us < message.barrier_age_us + SLACK_US
        until_us = self._end.host.now_us() + (SLACK_US if is_later else PAST_US)
        has_come = yield from self._end.until(topic, partial(self._has_come, sender, message, topic), until_us)
        yield from wait(self._end.host.until_shown())
        is_whole = has_come and topic.is_member() and topic.replay_buffer.is_whole(seen, since_us, was_here)
        is_whole = is_whole and not topic.replay_buffer.has_passed(seen, since_us)
        is_complete = is_whole and not topic.replay_buffer.may_lack(seen, since_us, was_here)
        unseen = topic.replay_buffer.unseen(seen, since_us) if is_whole else []
        sent = unseen if is_complete or message.wants_batches else []
        answer = ReplayResponse(
            message.number,
            is_complete,
            [(int(each.publisher), int(each.sequence), each.order, each.payload) for each in sent],
            is_whole,
            topic.replay_buffer.member_us(self._end.host.now_us()),
            [(each.author, each.number) for each in unseen] if not sent else [],
            topic.replay_buffer.before,
            has_come,
        )
        self._end.host.send_control(sender, answer)

    def _has_come(self, sender: int, message: ReplayRequest, topic: SessionTopic[B]) -> bool:
        """Whether this node has delivered what another one waits for."""
        has_barrier = message.barrier == 0 or topic.seen.has(sender, message.barrier)
        return has_barrier and self._end.is_past(topic, message.past)
