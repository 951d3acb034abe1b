"""VCube-PS through crashes, returns and partitions: what a tree failed to carry, members give each other.

Goes beyond the thesis, which leaves failures as future work (section 6.2). Trees lead around those who are lost
(:mod:`antiphon.fabrics.cube.rerouting`); here is what makes up for the rest. ``docs/architecture.md`` argues it.

* **Compare.** Two members tell each other what they have: per source a number, and single publications beyond
  (:class:`~antiphon.fabrics.cube.fault_messages.Compare`), with the members of whom they know. Who has something that
  the other lacks sends it (``Filling``), from memory or from its log. Order is restored by the receiver, as always.
  Much comes in parts: who has got a part asks at once for the next, and one part at a time is on its way to each peer.
* **When.** When two find each other, and every ``compare_ticks`` while a topic is *restless*: after somebody was lost
  or found, while somebody is away, while something waits for what has not come in a whole round, after something came
  of a publisher that is out of reach, until three rounds have brought nothing new. In a round a member asks the first
  member of each of its clusters; news reach all in as many rounds as the cube has dimensions. So the last publications
  of a dead publisher are completed by those who have them. Newcomers count as past what they have not got; who lacks it
  asks all (:mod:`antiphon.fabrics.cube.lacks`).
* **Return.** A member is back in a view when the owner of the view has given it all that it has, over a link that keeps
  the order: what the owner hands on later comes later. Who was cut off and who restarts with its log do the same. The
  latter is a member at once, from where its log ends (``Environment.past``).
* **Loss.** Who lacks something that others wait for asks all nodes, former members too. If all have answered and it has
  not come, it is given up: at once if somebody has had it and has not any more, and nobody is away; or else after
  ``forget_ticks``, since whoever is away may bring it. ``Environment.lost`` names it.

Both sides of a partition go on by themselves, each with its own trees.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.fault_messages import ANSWER, ANSWERS_ALL, ASKS, ASKS_ALL, Compare, Filling, Gone
from antiphon.fabrics.cube.keeping import Possession, with_held
from antiphon.fabrics.cube.lacks import Lacks
from antiphon.fabrics.cube.lasting_totals import LastingTotals
from antiphon.fabrics.cube.messages import COUNTER_BITS, COUNTER_MASK, Question, Unsubscribe, member_entry
from antiphon.fabrics.cube.recalling import Recall, recall
from antiphon.fabrics.cube.rerouting import FaultOptions, mixed
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, Options, Topic
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import Ordered

COMPARING: Final[i64] = 1
"""The name of the timer."""

QUIET_ROUNDS: Final[i64] = 3
"""So many rounds without anything new, and a topic rests, if nothing is missing and nobody is away."""

LONGEST_PAUSE: Final[i64] = 16
"""Rounds become rarer while nothing new comes, down to one in so many."""

FILLING_AT_MOST: Final[i64] = 64
FILLING_BYTES: Final[i64] = 1 << 20
"""How much is sent at once to one who lacks something, about; then it asks for more."""

GIVEN_PART: Final[i64] = 0
GIVEN_ALL: Final[i64] = 1
GIVEN_WHAT_IS_HERE: Final[i64] = 2
"""Whether another one has got what it lacks: a part, all of it, or all but what counts as past here and is not here."""


@final
class Unrest:
    """A topic in which something is wrong, or was a while ago."""

    def __init__(self) -> None:
        self.quiet_rounds: i64 = 0
        self.pause: i64 = 0
        # Whether all there is to it is that something waits, for what is on its way if nothing is wrong.
        self.is_doubt: bool = False
        # What is missing, by the key of the first of its source, and since when.
        self.missing_since: dict[i64, i64] = {}
        # Who has not answered the question to all, and what those who answered have had and have not any more.
        self.unanswered: dict[i64, bool] | None = None
        self.gone: dict[i64, i64] = {}


@final
class Part:
    """A part of what somebody lacks, on its way: for which subscription, its last publication, and since when."""

    def __init__(self, counter: i64, last: i64, sent_at: i64) -> None:
        self.counter: Final[i64] = counter
        self.last: Final[i64] = last
        self.sent_at: Final[i64] = sent_at


class LastingVCubePs(LastingTotals):
    """One node of a topic system whose nodes fail, come back and lose each other."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        super().__init__(environment, cube, options, faults)
        self._restless: dict[i64, Unrest] = {}
        self._is_timer_set: bool = False
        # By topic and peer, what was read from the log for it.
        self._recalls: dict[tuple[i64, i64], Recall] = {}
        # By topic and peer, the part that was sent to it last, if there is more for it.
        self._under_way: dict[tuple[i64, i64], Part] = {}
        # By topic, who has left, and who is not expected back, under which counter: late hearsay brings neither back.
        # The former have said so, and others are told; of the latter only this node thinks so.
        self._departed: dict[i64, dict[i64, i64]] = {}
        self._forgotten: dict[i64, dict[i64, i64]] = {}
        # By topic, what others count as past and have not given.
        self._lacks: dict[i64, Lacks] = {}

    # When to compare.

    def disturb(self, topic: Topic) -> None:
        """Something has changed that others may not know."""
        unrest = self._restless.get(topic.name)
        if unrest is None:
            unrest = self._look_after(topic)
        unrest.quiet_rounds = 0
        unrest.pause = 0
        unrest.is_doubt = False

    def _look_after(self, topic: Topic) -> Unrest:
        unrest = Unrest()
        self._restless[topic.name] = unrest
        if not self._is_timer_set:
            self._is_timer_set = True
            self.environment.set_timer(self.faults.compare_ticks, COMPARING)
        return unrest

    def forget_member(self, topic: Topic, node: i64) -> None:
        super().forget_member(topic, node)
        self._recalls.pop((topic.name, node), None)
        self._under_way.pop((topic.name, node), None)
        self._not_answering(topic, node)
        if topic.state == MEMBER and node not in self.present and mixed(topic).counts_any_of(node):
            # It may have left the topic before not all had its last publications: nobody else hands those on now.
            self.disturb(topic)

    def member_lost(self, topic: Topic, peer: i64) -> None:
        self.disturb(topic)

    def orphaned(self, topic: Topic) -> None:
        self.disturb(topic)

    def member_met(self, topic: Topic, peer: i64) -> None:
        if peer in topic.away:
            self.disturb(topic)
        if topic.name in self._restless:
            # It has to be asked too, and what others have said may be out of date.
            self._restless[topic.name].unanswered = None
        self._compare(topic, peer, ASKS)

    def arrived(self, topic: Topic, publication: Ordered) -> None:
        super().arrived(topic, publication)
        if publication.source not in self.present and publication.source != self.me:
            # Its publisher does not see to it any more that all get it.
            self.disturb(topic)
        if topic.order.waiting() > 0 and topic.name not in self._restless:
            self._look_after(topic).is_doubt = True

    def expire(self, name: i64) -> None:
        if name != COMPARING:
            super().expire(name)
            return
        self._is_timer_set = False
        for topic_name, unrest in list(self._restless.items()):
            self._next_round(self.find_topic(topic_name), unrest)
        if len(self._restless) > 0:
            self._is_timer_set = True
            self.environment.set_timer(self.faults.compare_ticks, COMPARING)
        if self.options.total:
            self.go_on_opened()

    def _next_round(self, topic: Topic, unrest: Unrest) -> None:
        lacks = self._lacks_of(topic)
        if not lacks.is_empty():
            lacks.next_round(Possession(self._have(topic)))
        if unrest.is_doubt and self._is_only_doubt(topic, unrest, lacks):
            return
        self._forget_missing(topic, unrest)
        asks_all = self.has_orphans(topic) or self.is_returning(topic)
        # While something new comes, what is lacking may be part of it.
        asks_all = asks_all or (lacks.is_lasting() and unrest.quiet_rounds > 0)
        is_whole = len(topic.away) == 0 and topic.order.waiting() == 0 and not asks_all
        if topic.state != MEMBER or (is_whole and unrest.quiet_rounds >= QUIET_ROUNDS):
            self._rest(topic)
            return
        if unrest.pause > 0 and not lacks.is_lasting():
            unrest.pause -= 1
            return
        unrest.quiet_rounds += 1
        if unrest.quiet_rounds > QUIET_ROUNDS:
            unrest.pause = min(1 << (unrest.quiet_rounds - QUIET_ROUNDS), LONGEST_PAUSE)
        self._note_missing(topic, unrest)
        if self.options.total:
            self.break_circle(topic)
        if asks_all or len(unrest.missing_since) > 0 or len(unrest.gone) > 0:
            self._ask_all(topic, unrest)
            return
        for neighbour in self._neighbours(topic):
            self._compare(topic, neighbour, ASKS)

    def _is_only_doubt(self, topic: Topic, unrest: Unrest, lacks: Lacks) -> bool:
        """Something waits or is lacking. Nothing is wrong unless the same was missing in the last round."""
        is_lacking = lacks.is_young() or lacks.is_lasting()
        if (topic.order.waiting() == 0 and not is_lacking) or topic.state != MEMBER:
            self._rest(topic)
            return True
        before = unrest.missing_since
        self._note_missing(topic, unrest)
        if not lacks.is_lasting() and not any(first in before for first in unrest.missing_since):
            return True
        unrest.is_doubt = False
        return False

    def _rest(self, topic: Topic) -> None:
        del self._restless[topic.name]
        if topic.state != MEMBER or self._lacks_of(topic).is_empty():
            self._lacks.pop(topic.name, None)

    def _lacks_of(self, topic: Topic) -> Lacks:
        lacks = self._lacks.get(topic.name)
        if lacks is None:
            lacks = Lacks()
            self._lacks[topic.name] = lacks
        return lacks

    def _note_lacks(self, topic: Topic, theirs: Possession, mine: Possession) -> None:
        """Another member has what this one lacks: either it is on its way, or somebody else has to give it."""
        lacks = self._lacks_of(topic)
        lacks.note(theirs, mine)
        if lacks.is_young() and topic.name not in self._restless:
            self._look_after(topic).is_doubt = True

    def _note_missing(self, topic: Topic, unrest: Unrest) -> None:
        order = mixed(topic)
        now = self.environment.now()
        before = unrest.missing_since
        unrest.missing_since = {}
        for source, _ in order.gaps():
            first = publication_key(source, order.past(source) + 1)
            unrest.missing_since[first] = before.get(first, now)

    def _neighbours(self, topic: Topic) -> list[i64]:
        found: list[i64] = []
        s: i64 = 1
        while s <= self.cube.dimension:
            first = topic.view.first(self.me, s)
            if first != NO_NODE:
                found.append(first)
            s += 1
        # Those who are known, can be reached, and have not come back yet.
        return found + [member for member in topic.away if member in self.present]

    def _forget_missing(self, topic: Topic, unrest: Unrest) -> None:
        """Nobody waits for ever for those who are away."""
        now = self.environment.now()
        for member, counter in list(topic.away.items()):
            if member not in self.present and now - self.lost_at.setdefault(member, now) >= self.faults.forget_ticks:
                self.not_away(topic, member)
                self._forgotten.setdefault(topic.name, {})[member] = counter
                # What only it might have brought is asked for once more, and given up.
                unrest.quiet_rounds = 0
                unrest.pause = 0

    # Comparing.

    def _have(self, topic: Topic) -> vec[i64]:
        order = mixed(topic)
        held = order.held_keys() + self.held_back(topic)
        return with_held(order.frontier(), held) if len(held) > 0 else order.frontier()

    def _compare(self, topic: Topic, peer: i64, asks: i64) -> None:
        members = vec[i64]()
        # A view from the start holds its owner.
        for member in topic.view.active_members():
            members = append(members, member_entry(member, topic.view.counter_of(member), True))
        for member, counter in topic.away.items():
            members = append(members, member_entry(member, counter, False))
        is_member = topic.state == MEMBER
        message = Compare(self.me, topic.joined_counter, topic.name, members, self._have(topic), asks, is_member)
        self.environment.send(peer, message)

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Compare):
            self._receive_compare(sender, message)
        elif isinstance(message, Filling):
            self._receive_filling(sender, message)
        elif isinstance(message, Gone):
            self._receive_gone(message)
        else:
            super().receive(sender, message)
            if isinstance(message, Question):
                self._asked_by(sender, message)
        if self.options.total:
            self.go_on_opened()

    def _asked_by(self, newcomer: i64, question: Question) -> None:
        """A newcomer speaks for itself: whatever was known of it is out of date."""
        topic = self.topic(question.topic)
        if topic is None:
            return
        self.not_away(topic, newcomer)
        if newcomer not in self.present:
            # It was lost since it asked, or was found and this node does not know yet.
            self.forget_member(topic, newcomer)

    def _receive_compare(self, sender: i64, message: Compare) -> None:
        topic = self.find_topic(message.topic)
        # Who has left, or is about to join again, may still have what others lack, of itself above all.
        theirs, mine = Possession(message.have), Possession(self._have(topic))
        given = self._fill(topic, sender, message, theirs, mine) if message.is_member else GIVEN_ALL
        has_given_all = given != GIVEN_PART
        if topic.state == OUTSIDE:
            if has_given_all and message.asks in (ASKS, ASKS_ALL):
                # Whatever subscription of this node the other has heard of, in this life or before, is over.
                self.environment.send(sender, Unsubscribe(self.me, self.counter, topic.name))
            return
        self._hear_of_members(topic, sender, message.members)
        if message.is_member and topic.state != MEMBER and topic.view.counter_of(sender) < message.sequence:
            # Nobody has asked it, or it has not been asked; it is met when this node is a member.
            topic.away[sender] = message.sequence
        if not message.is_member or topic.state != MEMBER:
            # Either has surveys under way, and will meet the other as a member; or it has left, and may have something.
            if message.asks != ASKS:
                self._answer(topic, sender, message, has_given_all, False)
            elif topic.state == MEMBER and len(theirs.beyond(mine)) > 0:
                self._compare(topic, sender, ASKS)
            return
        if has_given_all:
            self._take_back(topic, sender, message.sequence)
        lacks = len(theirs.beyond(mine)) > 0
        if lacks:
            self._note_lacks(topic, theirs, mine)
        # Who lacks what counts as past here, and is not here, has to know that it lacks it.
        self._answer(topic, sender, message, has_given_all, lacks or given == GIVEN_WHAT_IS_HERE)

    def _answer(self, topic: Topic, sender: i64, message: Compare, has_given_all: bool, has_news: bool) -> None:
        if message.asks == ANSWERS_ALL:
            self._not_answering(topic, sender)
        elif message.asks == ASKS_ALL:
            # Who has not got all asks again, and the answer comes behind the rest.
            if has_given_all:
                self._compare(topic, sender, ANSWERS_ALL)
        elif message.asks == ASKS and (has_news or self._knows_more(topic, message)):
            self._compare(topic, sender, ANSWER)

    def _knows_more(self, topic: Topic, message: Compare) -> bool:
        """Whether this node knows of members of whom the other did not speak, or is away for it."""
        known = {entry >> (COUNTER_BITS + 1): entry & 1 == 1 for entry in message.members}
        return not known.get(self.me, False) or any(
            member not in known and member != message.source for member in [*topic.view.active_members(), *topic.away]
        )

    def _hear_of_members(self, topic: Topic, speaker: i64, members: vec[i64]) -> None:
        departed = self._departed.get(topic.name, {})
        forgotten = self._forgotten.get(topic.name, {})
        for entry in members:
            node, counter = entry >> (COUNTER_BITS + 1), (entry >> 1) & COUNTER_MASK
            if node == self.me or topic.view.counter_of(node) >= counter or topic.away.get(node, -1) >= counter:
                continue
            if departed.get(node, -1) >= counter:
                if node in self.present:
                    self.environment.send(speaker, Unsubscribe(node, departed[node], topic.name))
                continue
            if node not in self.present and forgotten.get(node, -1) >= counter:
                continue
            topic.away[node] = counter
            if topic.state == MEMBER:
                self.disturb(topic)
                if node in self.present:
                    self._compare(topic, node, ASKS)

    def _take_back(self, topic: Topic, peer: i64, counter: i64) -> None:
        """A member has been given all that is here: what follows goes to it as to all."""
        if peer not in self.present:
            return
        self._departed.get(topic.name, {}).pop(peer, None)
        self._forgotten.get(topic.name, {}).pop(peer, None)
        is_news = topic.view.counter_of(peer) < counter or peer in topic.away
        self.not_away(topic, peer)
        topic.view.add(peer, counter, True)
        if is_news:
            self.disturb(topic)
            if self.options.total:
                self.member_back(topic, peer)

    def receive_unsubscribe(self, sender: i64, message: Unsubscribe) -> None:
        topic = self.find_topic(message.topic)
        if topic.view.counter_of(message.source) >= 0 or topic.state != MEMBER:
            # Who is no member here need not be spoken of to others.
            super().receive_unsubscribe(sender, message)
        if topic.away.get(message.source, message.sequence + 1) <= message.sequence:
            self.not_away(topic, message.source)
        departed = self._departed.setdefault(topic.name, {})
        departed[message.source] = max(message.sequence, departed.get(message.source, -1))
        self._not_answering(topic, message.source)

    # Giving.

    def _fill(self, topic: Topic, peer: i64, message: Compare, theirs: Possession, mine: Possession) -> i64:
        """Send a part of what another one lacks; whether that was all."""
        counter = message.sequence
        # A question to all is asked once, and has to be answered: the part that is on its way may be lost.
        if message.asks != ASKS_ALL and self._is_under_way(topic, peer, counter, theirs):
            return GIVEN_PART
        found, is_all_here = self._lacking(topic, peer, theirs, mine)
        size: i64 = 0
        count: i64 = 0
        while count < len(found) and count < FILLING_AT_MOST and size < FILLING_BYTES:
            size += len(found[count].payload)
            count += 1
        if count > 0:
            self.environment.send(peer, Filling(found[:count], count == len(found)))
        if count < len(found):
            last = publication_key(found[count - 1].source, found[count - 1].sequence)
            self._under_way[topic.name, peer] = Part(counter, last, self.environment.now())
            return GIVEN_PART
        return GIVEN_ALL if is_all_here else GIVEN_WHAT_IS_HERE

    def _is_under_way(self, topic: Topic, peer: i64, counter: i64, theirs: Possession) -> bool:
        """Whether another one has asked before it got the part that was sent to it last; it asks again when it has.

        Members ask in every round. If each question were answered with the same part, each answer would lead to a
        question of its own, and all of these would go on beside each other, more of them with every round.
        """
        part = self._under_way.get((topic.name, peer))
        if part is None:
            return False
        is_recent = self.environment.now() - part.sent_at < LONGEST_PAUSE * self.faults.compare_ticks
        if (
            is_recent
            and part.counter == counter
            and not theirs.holds(part.last & SOURCE_MASK, part.last >> SOURCE_BITS)
        ):
            return True
        del self._under_way[topic.name, peer]
        return False

    def _lacking(self, topic: Topic, peer: i64, theirs: Possession, mine: Possession) -> tuple[list[Ordered], bool]:
        """What another one lacks and is here, and whether that is all that counts here."""
        found: list[Ordered] = []
        is_all_here = True
        older: list[tuple[i64, i64, i64]] = []
        keeping = self.keeping(topic)
        for source, reached, last in mine.beyond(theirs):
            number = last
            while number > reached:
                if not theirs.holds(source, number):
                    publication = keeping.get(publication_key(source, number))
                    if publication is not None:
                        found.append(publication)
                    elif mine.holds(source, number):
                        if self.environment.was_logged(topic.name, source, number):
                            break
                        is_all_here = False
                number -= 1
            if number > reached:
                older.append((source, reached + 1, number))
        found.reverse()
        if len(older) > 0:
            found = self._recalled(topic, peer, theirs, older) + found
        else:
            self._recalls.pop((topic.name, peer), None)
        if self.options.total:
            # What somebody published after a total publication must not come before it to who has no lock for it.
            found = [each for each in found if each.order == TOTAL] + [each for each in found if each.order != TOTAL]
        return found, is_all_here

    def _recalled(
        self, topic: Topic, peer: i64, theirs: Possession, older: list[tuple[i64, i64, i64]]
    ) -> list[Ordered]:
        """From the log what another one lacks; it is told what is not there either."""
        name = (topic.name, peer)
        known = self._recalls.get(name)
        if known is None or not known.covers(older):
            known = recall(self.environment, topic.name, older, theirs)
            self._recalls[name] = known
        left = known.unsent(theirs)
        gone = vec[i64]()
        for source, first, last in older:
            last_gone = known.gone_before(source, first, last)
            if last_gone >= first:
                gone = append(gone, publication_key(source, last_gone))
        if len(gone) > 0:
            self.environment.send(peer, Gone(self.me, topic.name, gone))
        return left

    # Getting.

    def _receive_filling(self, sender: i64, message: Filling) -> None:
        topic = self.find_topic(message.topic)
        if topic.state != MEMBER:
            return
        is_new = False
        if self.options.total:
            for publication in message.publications:
                self.lock_unannounced(topic, publication)
        for publication in message.publications:
            key = publication_key(publication.source, publication.sequence)
            if not mixed(topic).counts(key) and not mixed(topic).is_held(key) and not self.is_held_back(topic, key):
                is_new = True
                self.arrived(topic, publication)
        if is_new:
            self.disturb(topic)
        unrest = self._restless.get(topic.name)
        is_asked_with_all = unrest is not None and unrest.unanswered is not None and sender in unrest.unanswered
        # If nothing was new somebody else gives the same, and is quicker.
        if not message.is_last and (is_new or is_asked_with_all):
            self._compare(topic, sender, ASKS_ALL if is_asked_with_all else ASKS)

    # Giving up.

    def _receive_gone(self, message: Gone) -> None:
        topic = self.find_topic(message.topic)
        if topic.state != MEMBER:
            return
        for key in message.entries:
            source, last = key & SOURCE_MASK, key >> SOURCE_BITS
            if mixed(topic).past(source) < last:
                if topic.name not in self._restless:
                    self.disturb(topic)
                gone = self._restless[topic.name].gone
                gone[source] = max(last, gone.get(source, 0))

    def _ask_all(self, topic: Topic, unrest: Unrest) -> None:
        if unrest.unanswered is None or len(unrest.unanswered) == 0:
            # Also those who are no members any more.
            unrest.unanswered = dict(self.present)
            self._lacks_of(topic).ask()
            for node in unrest.unanswered:
                self._compare(topic, node, ASKS_ALL)
        # Else some take longer for their answer than a round, and the others have spoken. Nobody is asked twice: over a
        # connection the answer comes or the peer is lost, and a network that is slow would get slower with each round.
        self._look_what_is_lost(topic)

    def _not_answering(self, topic: Topic, peer: i64) -> None:
        """A peer has answered the question to all, or will not."""
        unrest = self._restless.get(topic.name)
        if unrest is not None and unrest.unanswered is not None and unrest.unanswered.pop(peer, False):
            self._look_what_is_lost(topic)

    def _look_what_is_lost(self, topic: Topic) -> None:
        """If all have answered, what is still missing is nowhere within reach."""
        unrest = self._restless.get(topic.name)
        if unrest is None or unrest.unanswered is None or len(unrest.unanswered) > 0:
            return
        unrest.unanswered = None
        self._lacks_of(topic).all_have_answered()
        if self.options.total:
            self.heard_from_all(topic)
        order = mixed(topic)
        now = self.environment.now()
        for source, last in order.gaps():
            since = unrest.missing_since.get(publication_key(source, order.past(source) + 1), now)
            if now - since >= self.faults.forget_ticks:
                self._give_up(topic, source, last)
        if len(topic.away) == 0:
            for source, last in sorted(unrest.gone.items()):
                self._give_up(topic, source, last)
        unrest.gone.clear()

    def _give_up(self, topic: Topic, source: i64, last: i64) -> None:
        order = mixed(topic)
        number = order.past(source) + 1
        until = number - 1
        while until < last and not order.is_held(publication_key(source, until + 1)):
            until += 1
        if until < number:
            return
        while number <= until:
            if not order.counts(publication_key(source, number)):
                self.environment.lost(topic.name, source, number)
            number += 1
        self.deliver_all(topic, order.pass_over(source, until))
        self.disturb(topic)

    # Coming, and coming back.

    def counted(self, topic: i64) -> list[int]:
        return list(mixed(self.find_topic(topic)).frontier())

    def after_joining(self, topic: Topic, early: list[Message]) -> None:
        super().after_joining(topic, early)
        topic.away = {node: counter for node, counter in topic.away.items() if topic.view.counter_of(node) < counter}
        for node in topic.away:
            if node in self.present:
                self._compare(topic, node, ASKS)
        # Owners of locks may have been excluded while this node joined.
        if len(topic.away) > 0 or self.has_orphans(topic):
            self.disturb(topic)

    def start_subscribing(self, topic: Topic) -> None:
        past = self.environment.past(topic.name)
        if past is None:
            super().start_subscribing(topic)
        else:
            self._resume(topic, vec[i64](past))

    def _resume(self, topic: Topic, past: vec[i64]) -> None:
        """Go on where an earlier life of this node ended; what it has missed it gets from those it meets."""
        self.counter += 1
        topic.joined_counter = self.counter
        topic.view = View(self.cube.dimension)
        topic.order.start_from(past)
        order = mixed(topic)
        topic.published = topic.begun = max(topic.begun, order.past(self.me))
        # What is published now follows all that was delivered then.
        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key < 0 or key & SOURCE_MASK != self.me]))
        topic.state = MEMBER
        self.returned(topic)
        self.environment.subscribed(topic.name)
        for peer in self.present:
            self._compare(topic, peer, ASKS)
        self.disturb(topic)
        self.go_on(topic)

    def state(self) -> str:
        restless = [
            (
                name,
                unrest.quiet_rounds,
                unrest.pause,
                unrest.is_doubt,
                sorted(unrest.missing_since),
                sorted(unrest.gone.items()),
            )
            for name, unrest in sorted(self._restless.items())
        ]
        departed = [(name, sorted(nodes.items())) for name, nodes in sorted(self._departed.items())]
        forgotten = [(name, sorted(nodes.items())) for name, nodes in sorted(self._forgotten.items())]
        recalls = [(name, one.text()) for name, one in sorted(self._recalls.items())]
        lacks = [(name, one.text()) for name, one in sorted(self._lacks.items()) if not one.is_empty()]
        parts = [(name, part.counter, part.last) for name, part in sorted(self._under_way.items())]
        return f"{super().state()} {restless} {departed} {forgotten} {recalls} {lacks} {parts}"
