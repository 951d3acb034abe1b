"""Anti-entropy on the cube: members give each other the publications that trees failed to carry.

Trees lead around lost nodes (:mod:`antiphon.fabrics.cube.repair.tree_repair`); this part makes up for the rest.
``docs/proofs/cube-through-faults.md`` argues it.

* **Compare.** Two members exchange digests (:class:`~antiphon.fabrics.cube.repair.messages.Digest`): per source a
  number up to which they have everything, single publications beyond, and the members that they know. Each sends the
  publications that the other lacks (``RepairBatch``). The receiver restores the order.
* **When.** Two members compare when they find each other, and every ``compare_ticks`` while a topic is *unsettled*:
  after a node was lost or found, while a member is away, while a publication waits for the same predecessor for a whole
  round, and after a publication came whose publisher is out of reach; until three rounds have brought nothing new. In a
  round a member asks the first member of each of its clusters, so news reaches all in as many rounds as the cube has
  dimensions. So the members that have the last publications of a dead publisher pass them on. A newcomer counts
  publications as past that it never had; a member that lacks such a publication asks all nodes
  (:mod:`antiphon.fabrics.cube.repair.missing`).
* **Return.** A member is back in a view when the owner of the view has sent it everything that the owner has, over a
  link that keeps the order: later packets come later. Members that were cut off, and members that restart with their
  logs, do the same. A restarted member continues at once from the end of its log (``Environment.restored_frontier``).
* **Loss.** A member that lacks a publication for which others wait asks all nodes, former members too. If all have
  answered and it has not come, the member gives it up: at once if a node had it and has it no more, and no member is
  away; otherwise after ``forget_ticks``, because a member that is away may bring it. ``Environment.lost`` names it.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.membership import MembershipListener
from antiphon.fabrics.cube.messages import COUNTER_BITS, COUNTER_MASK, Unsubscribe, member_entries
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.delivery import RepairedDelivery, lock_unannounced
from antiphon.fabrics.cube.repair.messages import (
    REQUEST,
    REQUEST_TO_ALL,
    RESPONSE,
    RESPONSE_TO_ALL,
    Digest,
    RepairBatch,
    Unavailable,
)
from antiphon.fabrics.cube.repair.missing import MissingPublications
from antiphon.fabrics.cube.repair.presence import FormerMembers, Presence, known_members, knows_more
from antiphon.fabrics.cube.repair.retransmission import (
    GIVEN_ALL,
    GIVEN_PART,
    GIVEN_WHAT_IS_HERE,
    MOST_DOUBLINGS,
    CubeRetransmission,
)
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.fabrics.cube.repair.unsettled import Unsettled, UnsettledTopics
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, CubeTopic, CubeTopicTable, FaultOptions, Options, mixed
from antiphon.fabrics.cube.total_order.repair import RepairedTotalOrder
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, ProtocolMessage, publication_key
from antiphon.kernel.process import NO_NODE, Environment

QUIET_ROUNDS: Final[i64] = 3
"""So many rounds without anything new, and a topic rests, if nothing is missing and nobody is away."""

GIVEN_UP_AT_ONCE: Final[i64] = 1 << 14
"""So many of one source are given up in a round. A peer that lies may name a trillion that never were."""


@final
class CubeAntiEntropy(MembershipListener):
    """Compares what this node has with what others have, and gets what it lacks."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        presence: Presence,
        unsettled_topics: UnsettledTopics,
        delivery: RepairedDelivery,
        retransmission: CubeRetransmission,
        total_order: RepairedTotalOrder,
        faults: FaultOptions,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self._options: Final[Options] = topics.options
        self._nodes: Final[CubeNodes] = nodes
        self._agenda: Final[Agenda] = agenda
        self._presence: Final[Presence] = presence
        self._unsettled: Final[UnsettledTopics] = unsettled_topics
        self._delivery: Final[RepairedDelivery] = delivery
        self._retransmission: Final[CubeRetransmission] = retransmission
        self._total_order: Final[RepairedTotalOrder] = total_order
        self._faults: Final[FaultOptions] = faults
        self._former: Final = FormerMembers()
        # By topic, what others count as past and have not given.
        self._missing_by_topic: dict[i64, MissingPublications] = {}

    # When to compare.

    def on_member_lost(self, topic: CubeTopic, node: i64) -> None:
        """A node is lost, member or not."""
        self._retransmission.forget(topic, node)
        self._settle_answer(topic, node)
        if topic.state == MEMBER and node not in self._presence.present and mixed(topic).counts_any_of(node):
            # It may have left the topic before not all had its last publications: nobody else hands those on now.
            self._unsettled.disturb(topic)

    def on_member_found(self, topic: CubeTopic, peer: i64) -> None:
        """Somebody who may be a member of a topic of which this node is one can be reached."""
        self._total_order.on_member_found(topic, peer)
        if peer in topic.away or self._delivery.meet_after_return(topic):
            self._unsettled.disturb(topic)
        unsettled = self._unsettled.of(topic)
        if unsettled is not None:
            # It has to be asked too, and what others have said may be out of date.
            unsettled.unanswered = None
        self._compare(topic, peer, REQUEST)

    def expire(self) -> None:
        """It is time for a round in all topics that are restless."""
        for name, unsettled in self._unsettled.begin_round():
            self._next_round(self._topics.find(name), unsettled)
        self._unsettled.end_round()
        if self._options.total:
            self._agenda.advance_opened()

    def _next_round(self, topic: CubeTopic, unsettled: Unsettled) -> None:
        missing = self._missing_of(topic)
        if not missing.is_empty():
            missing.next_round(Holdings(self._delivery.have(topic)))
        if unsettled.is_doubt and self._is_only_doubt(topic, unsettled, missing):
            return
        self._forget_absent(topic, unsettled)
        asks_all = self._total_order.has_orphans(topic) or self._delivery.is_returning(topic)
        # While something new comes, what is lacking may be part of it.
        asks_all = asks_all or (missing.is_lasting() and unsettled.quiet_rounds > 0)
        is_whole = len(topic.away) == 0 and topic.order.waiting() == 0 and not asks_all
        if topic.state != MEMBER or (is_whole and unsettled.quiet_rounds >= QUIET_ROUNDS):
            self._rest(topic)
            return
        if unsettled.pause > 0 and not missing.is_lasting():
            unsettled.pause -= 1
            return
        unsettled.quiet_rounds += 1
        if unsettled.quiet_rounds > QUIET_ROUNDS:
            # Compiled shifts are those of C: the number of rounds has no bound, and the shift must have one.
            unsettled.pause = 1 << min(unsettled.quiet_rounds - QUIET_ROUNDS, MOST_DOUBLINGS)
        self._note_missing(topic, unsettled)
        if self._options.total:
            self._total_order.break_circle(topic)
        if asks_all or len(unsettled.missing_since) > 0 or len(unsettled.gone) > 0:
            self._ask_all(topic, unsettled)
            return
        for neighbour in self._neighbours(topic):
            self._compare(topic, neighbour, REQUEST)

    def _is_only_doubt(self, topic: CubeTopic, unsettled: Unsettled, missing: MissingPublications) -> bool:
        """Something waits or is lacking. Nothing is wrong unless the same was missing in the last round."""
        is_lacking = missing.is_young() or missing.is_lasting()
        if (topic.order.waiting() == 0 and not is_lacking) or topic.state != MEMBER:
            self._rest(topic)
            return True
        before = unsettled.missing_since
        self._note_missing(topic, unsettled)
        if not missing.is_lasting() and not any(first in before for first in unsettled.missing_since):
            return True
        unsettled.is_doubt = False
        return False

    def _rest(self, topic: CubeTopic) -> None:
        self._unsettled.rest(topic)
        if topic.state != MEMBER or self._missing_of(topic).is_empty():
            self._missing_by_topic.pop(topic.name, None)

    def _missing_of(self, topic: CubeTopic) -> MissingPublications:
        missing = self._missing_by_topic.get(topic.name)
        if missing is None:
            missing = MissingPublications()
            self._missing_by_topic[topic.name] = missing
        return missing

    def _note_missing_at(self, topic: CubeTopic, theirs: Holdings, mine: Holdings) -> None:
        """Another member has what this one lacks: either it is on its way, or somebody else has to give it."""
        missing = self._missing_of(topic)
        missing.note(theirs, mine)
        if missing.is_young():
            self._unsettled.doubt(topic)

    def _note_missing(self, topic: CubeTopic, unsettled: Unsettled) -> None:
        order = mixed(topic)
        firsts = [publication_key(source, order.past(source) + 1) for source, _ in order.gaps()]
        unsettled.note_missing(firsts, self._environment.now())

    def _neighbours(self, topic: CubeTopic) -> list[i64]:
        found: list[i64] = []
        s: i64 = 1
        while s <= self._nodes.cube.dimension:
            first = topic.view.first(self._me, s)
            if first != NO_NODE:
                found.append(first)
            s += 1
        # Those who are known, can be reached, and have not come back yet.
        return found + [member for member in topic.away if member in self._presence.present]

    def _forget_absent(self, topic: CubeTopic, unsettled: Unsettled) -> None:
        """Nobody waits for ever for those who are away."""
        now = self._environment.now()
        for member, counter in list(topic.away.items()):
            if (
                member not in self._presence.present
                and now - self._presence.lost_at.setdefault(member, now) >= self._faults.forget_ticks
            ):
                self.not_away(topic, member)
                self._former.forget(topic, member, counter)
                # What only it might have brought is asked for once more, and given up.
                unsettled.quiet_rounds = 0
                unsettled.pause = 0

    # Comparing.

    def _compare(self, topic: CubeTopic, peer: i64, asks: i64, question: i64 = 0) -> None:
        members, have, is_member = known_members(topic), self._delivery.have(topic), topic.state == MEMBER
        message = Digest(self._me, topic.joined_counter, topic.name, members, have, asks, is_member, question)
        self._environment.send(peer, message)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """Another member says what it has, gives something, or has had it."""
        if isinstance(message, Digest):
            self._on_digest(sender, message)
        elif isinstance(message, RepairBatch):
            self._on_repair_batch(sender, message)
        elif isinstance(message, Unavailable):
            self._on_unavailable(message)

    def _on_digest(self, sender: i64, message: Digest) -> None:
        """Another node says what it has: give it what it lacks, and ask for what is lacking here."""
        topic = self._topics.find(message.topic)
        # Who has left, or is about to join again, may still have what others lack, of itself above all.
        theirs, mine = Holdings(message.have), Holdings(self._delivery.holdings(topic))
        given = self._retransmission.give(topic, sender, message, theirs, mine) if message.is_member else GIVEN_ALL
        has_given_all = given != GIVEN_PART
        if topic.state == OUTSIDE:
            if has_given_all and message.asks in (REQUEST, REQUEST_TO_ALL):
                # Whatever subscription of this node the other has heard of, in this life or before, is over.
                self._environment.send(sender, Unsubscribe(self._me, self._topics.counter, topic.name))
            return
        self._learn_members(topic, sender, message.members)
        if message.is_member and topic.state != MEMBER:
            self._meet_when_member(topic, sender, message)
        if not message.is_member or topic.state != MEMBER:
            # Either has surveys under way, and will meet the other as a member; or it has left, and may have something.
            if message.asks != REQUEST:
                self._answer(topic, sender, message, has_given_all, False)
            elif topic.state == MEMBER and len(theirs.beyond(mine)) > 0:
                self._compare(topic, sender, REQUEST)
            return
        if self._options.total and self._delivery.hear_of_absence(topic, message):
            self._ask_again(topic, sender)
        if has_given_all:
            self._take_back(topic, sender, message.sequence)
        missing = len(theirs.beyond(mine)) > 0
        if missing:
            self._note_missing_at(topic, theirs, mine)
        # Who lacks what counts as past here, and is not here, has to know that it lacks it.
        self._answer(topic, sender, message, has_given_all, missing or given == GIVEN_WHAT_IS_HERE)

    def _meet_when_member(self, topic: CubeTopic, sender: i64, message: Digest) -> None:
        """A member compares while this node joins: note it if the two have to compare when this node is a member."""
        if topic.view.counter_of(sender) < message.sequence:
            # Nobody has asked it, or it has not been asked.
            topic.add_away(sender, message.sequence)
        elif not member_entries(message.members).get(self._me, False):
            # It has lost and found this node since it answered, and does not send to this node until they compare.
            self._presence.meet(topic, sender)

    def _answer(self, topic: CubeTopic, sender: i64, message: Digest, has_given_all: bool, has_news: bool) -> None:
        if message.asks == RESPONSE_TO_ALL:
            unsettled = self._unsettled.of(topic)
            # An answer to an earlier question was given before the publications of this one existed. Nodes of earlier
            # versions do not number their answers.
            is_to_this = unsettled is not None and message.question in (0, unsettled.question)
            if is_to_this and not self._delivery.is_unfound(topic, message):
                self._settle_answer(topic, sender)
        elif message.asks == REQUEST_TO_ALL:
            # Who has not got all asks again, and the answer comes behind the rest.
            if has_given_all:
                self._compare(topic, sender, RESPONSE_TO_ALL, message.question)
        elif message.asks == REQUEST and (has_news or knows_more(topic, self._me, sender, message.members)):
            self._compare(topic, sender, RESPONSE)

    def _learn_members(self, topic: CubeTopic, speaker: i64, members: vec[i64]) -> None:
        for entry in members:
            node, counter = entry >> (COUNTER_BITS + 1), (entry >> 1) & COUNTER_MASK
            if node == self._me or topic.view.counter_of(node) >= counter or topic.away.get(node, -1) >= counter:
                continue
            departed = self._former.departed(topic, node)
            if departed >= counter:
                if node in self._presence.present:
                    self._environment.send(speaker, Unsubscribe(node, departed, topic.name))
                continue
            if node not in self._presence.present and self._former.forgotten(topic, node) >= counter:
                continue
            topic.add_away(node, counter)
            if topic.state == MEMBER:
                self._unsettled.disturb(topic)
                if node in self._presence.present:
                    self._compare(topic, node, REQUEST)

    def _take_back(self, topic: CubeTopic, peer: i64, counter: i64) -> None:
        """A member has been given all that is here: what follows goes to it as to all."""
        if peer not in self._presence.present:
            return
        self._former.take_back(topic, peer)
        is_news = topic.view.counter_of(peer) < counter or peer in topic.away
        self.not_away(topic, peer)
        topic.view.add(peer, counter, True)
        if is_news:
            self._unsettled.disturb(topic)
            if self._options.total:
                self._total_order.on_member_back(topic, peer)

    def not_away(self, topic: CubeTopic, member: i64) -> None:
        """Nobody has to wait for a member to come back."""
        if topic.away.pop(member, NO_NODE) != NO_NODE:
            self._agenda.advance_later(topic)

    def is_news(self, topic: CubeTopic, word: Unsubscribe) -> bool:
        # Who is no member here need not be spoken of to others.
        return topic.view.counter_of(word.source) >= 0 or topic.state != MEMBER

    def on_member_left(self, topic: CubeTopic, word: Unsubscribe) -> None:
        if topic.away.get(word.source, word.sequence + 1) <= word.sequence:
            self.not_away(topic, word.source)
        self._former.depart(topic, word.source, word.sequence)
        self._settle_answer(topic, word.source)

    def on_leaving(self, topic: CubeTopic) -> None:
        self._delivery.stop_returning(topic)
        if self._unsettled.of(topic) is not None:
            self._retransmission.hand_on(topic, self._neighbours(topic), self._presence.present)

    # Getting.

    def _on_repair_batch(self, sender: i64, message: RepairBatch) -> None:
        """Here is something that this node lacks."""
        topic = self._topics.find(message.topic)
        if topic.state != MEMBER:
            return
        is_new = False
        if self._options.total:
            for publication in message.publications:
                lock_unannounced(topic, publication)
        for publication in message.publications:
            key = publication_key(publication.source, publication.sequence)
            if not self._delivery.has_arrived(topic, key):
                is_new = True
                self._delivery.arrived(topic, publication)
        if is_new:
            self._unsettled.disturb(topic)
        if message.is_last:
            return
        if not self._ask_again(topic, sender) and is_new:
            # If nothing was new another node gives the same, and is quicker.
            self._compare(topic, sender, REQUEST)

    # Giving up.

    def _on_unavailable(self, message: Unavailable) -> None:
        """Another one has had what this node lacks, and does not have it any more."""
        topic = self._topics.find(message.topic)
        if topic.state != MEMBER:
            return
        for key in message.entries:
            source, last = key & SOURCE_MASK, key >> SOURCE_BITS
            if mixed(topic).past(source) < last:
                unsettled = self._unsettled.of(topic)
                if unsettled is None:
                    unsettled = self._unsettled.disturb(topic)
                unsettled.gone[source] = max(last, unsettled.gone.get(source, 0))

    def _ask_all(self, topic: CubeTopic, unsettled: Unsettled) -> None:
        if unsettled.unanswered is None or len(unsettled.unanswered) == 0:
            # Also those who are no members any more.
            peers = list(self._presence.present)
            self._unsettled.begin_question(unsettled, peers)
            self._missing_of(topic).ask()
            for node in peers:
                self._compare(topic, node, REQUEST_TO_ALL, unsettled.question)
        # Else some take longer for their answer than a round, and the others have spoken. Nobody is asked twice: over a
        # connection the answer comes or the peer is lost, and a network that is slow would get slower with each round.
        self._give_up_missing(topic)

    def _ask_again(self, topic: CubeTopic, peer: i64) -> bool:
        """Ask a peer whose answer to all has not come, or was not its last word; whether there is such an answer."""
        unsettled = self._unsettled.of(topic)
        if unsettled is None or unsettled.unanswered is None or not unsettled.unanswered.waits_for(peer):
            return False
        self._compare(topic, peer, REQUEST_TO_ALL, unsettled.question)
        return True

    def _settle_answer(self, topic: CubeTopic, peer: i64) -> None:
        """A peer has answered the question to all, or will not."""
        unsettled = self._unsettled.of(topic)
        if unsettled is not None and unsettled.unanswered is not None and unsettled.unanswered.settle(peer):
            self._give_up_missing(topic)

    def _give_up_missing(self, topic: CubeTopic) -> None:
        """If all have answered, what is still missing is nowhere within reach."""
        unsettled = self._unsettled.of(topic)
        if unsettled is None or unsettled.unanswered is None or len(unsettled.unanswered) > 0:
            return
        unsettled.unanswered = None
        self._missing_of(topic).all_have_answered()
        if self._options.total:
            self._delivery.end_returning(topic)
            self._total_order.give_up_orphans(topic)
        order = mixed(topic)
        now = self._environment.now()
        for source, last in order.gaps():
            since = unsettled.missing_since.get(publication_key(source, order.past(source) + 1), now)
            if now - since >= self._faults.forget_ticks:
                self._give_up(topic, source, last)
        if len(topic.away) == 0:
            for source, last in sorted(unsettled.gone_when_asked.items()):
                self._give_up(topic, source, last)
        unsettled.gone = {
            source: last
            for source, last in unsettled.gone.items()
            if last > unsettled.gone_when_asked.get(source, 0) and order.past(source) < last
        }

    def _give_up(self, topic: CubeTopic, source: i64, last: i64) -> None:
        order = mixed(topic)
        until = order.past(source)
        number = until + 1
        last = min(last, until + GIVEN_UP_AT_ONCE)
        while until < last and not order.is_held(publication_key(source, until + 1)):
            until += 1
        if until < number:
            return
        while number <= until:
            if not order.counts(publication_key(source, number)):
                self._environment.lost(topic.name, source, number)
            number += 1
        self._delivery.deliver_all(topic, order.pass_over(source, until))
        self._unsettled.disturb(topic)

    # Coming, and coming back.

    def on_joined(self, topic: CubeTopic, early: list[ProtocolMessage]) -> None:
        self._delivery.follow_past(topic)
        for peer in self._presence.end_asking(topic):
            self.on_member_found(topic, peer)
        if len(topic.away) > 0:
            topic.away = {node: since for node, since in topic.away.items() if topic.view.counter_of(node) < since}
        for node in topic.away:
            if node in self._presence.present:
                self._compare(topic, node, REQUEST)
        # Owners of locks may have been excluded while this node joined.
        if len(topic.away) > 0 or self._total_order.has_orphans(topic):
            self._unsettled.disturb(topic)

    def resume(self, topic: CubeTopic) -> bool:
        past = self._delivery.take_restored(topic)
        if past is None:
            self._presence.begin_asking(topic)
            return False
        self._resume_from(topic, past)
        return True

    def _resume_from(self, topic: CubeTopic, past: vec[i64]) -> None:
        """Go on where an earlier life of this node ended; what it has missed it gets from those it meets."""
        topic.joined_counter = self._topics.next_counter()
        topic.view = View(self._nodes.cube.dimension)
        topic.order.start_from(past)
        topic.published = topic.begun = max(topic.begun, mixed(topic).past(self._me))
        self._delivery.follow_past(topic)
        topic.state = MEMBER
        if self._options.total:
            self._delivery.begin_returning(topic)
            self._total_order.send_unlocked(topic)
        self._environment.subscribed(topic.name)
        for peer in self._presence.present:
            self._total_order.on_member_found(topic, peer)
            self._compare(topic, peer, REQUEST)
        self._unsettled.disturb(topic)
        self._agenda.advance(topic)

    def text(self) -> str:
        """The state as text, to compare states."""
        missing = [(name, one.text()) for name, one in sorted(self._missing_by_topic.items()) if not one.is_empty()]
        return f"{self._former.text()} {missing}"
