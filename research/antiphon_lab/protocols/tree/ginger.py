"""Ginger as published: brokers that repair their tree when others crash (chapter 4 of the dissertation).

The children of a failed broker look for a new parent in their local view, and its parent waits for as many of them as
it has room for (Algorithms 3 to 6); the children of a failed root elect one of them (Algorithm 7). A broker that does
not answer in time has failed too (Algorithm 8). Meanwhile publications are held (Algorithm 9). A new parent and its
child compare their buffers, resend missing publications, resume interrupted total publications, and continue
(Algorithms 10 to 14).

The listings do not run as printed. Contradictions in them, or with the text and the logs around them, are corrected,
and each correction has a name (D9 and so on: the table is in ``docs/proofs/ginger-as-published.md``). Where a defect
shows from outside, and the protocol runs with it, ``PublishedGingerOptions`` has a switch. The gaps of the protocol
itself are left open: they lose, repeat or reorder publications, or stop for ever. :mod:`antiphon.fabrics.tree.broker`
does better.

Departures: a broker's applications are part of it and die with it, so no client looks for a new broker (section
4.2.3.1); each topic that its application subscribes to counts as one client in its degree, as in the experiments, where
a client has one topic. Where the local view is exhausted, for which the listing recurs for ever (D14), a broker takes
itself for a root.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import TOTAL, Keyed, ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.tree.ginger_buffers import completions_after, missing_at, needed_from, note_missed
from antiphon_lab.protocols.tree.ginger_messages import (
    LastNumbers,
    LostMessageRequest,
    Metadata,
    ParentBuffer,
    ParentRequest,
    ParentResponse,
    PathEntry,
    PublishedGingerOptions,
    Register,
    RootElection,
    Subscribe,
    TreeViewUpdate,
)
from antiphon_lab.protocols.tree.ginger_topic import PublishedGingerTopic
from antiphon_lab.protocols.tree.ginger_total_order import PublishedTotals
from antiphon_lab.protocols.tree.ginger_view import PublishedTreeView

PARENT: Final[i64] = 1
CHILDREN: Final[i64] = 2
"""Names of timers. One for both, as printed, would end the wrong wait (D16)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishedBroker(PublishedTotals):
    """One broker, with an application that publishes and subscribes."""

    def __init__(self, environment: Environment, options: PublishedGingerOptions) -> None:
        super().__init__(environment, options)
        self.view: Final[PublishedTreeView] = PublishedTreeView(self.me, options)
        # The search for a parent: asked brokers, refusing brokers, and the topics that the new parent must serve.
        self.expects_parent: bool = False
        self.asked: i64 = NO_NODE
        self.rounds: i64 = 0
        self._declined: set[int] = set()
        self._is_forced: bool = False
        self._to_preserve: list[int] = []
        self._parent_timer: i64 = -1
        # Orphans that may come here; the topics that they may still need.
        self.expected_children: i64 = 0
        self._children_timer: i64 = -1
        self._topics_of_orphans: set[int] = set()
        # How many new neighbours this broker still compares its buffers with.
        self.synchronising: i64 = 0
        self.is_electing: bool = False
        self._elected_with: dict[int, int] = {}
        self._own_vote: i64 = 0

    # The start.

    def begin(
        self, parent: i64, children: dict[int, int], ancestors: list[PathEntry], siblings: list[PathEntry]
    ) -> None:
        """Have neighbours, children with the number of theirs, and a view from the start (before ``start``)."""
        self.parent = parent
        self.children = children
        self.view.begin(ancestors, siblings)

    def register_with(self, parent: i64) -> None:
        """Open the channel to the configured parent (section 3.1)."""
        self.environment.send(parent, Register(self.me, 0))
        self.parent = parent
        self._add_neighbour(parent)

    def subscribe(self, topic: i64) -> None:
        state = self.topic(topic)
        if state.is_subscribed:
            raise UsageError(f"node {self.me} is subscribed to topic {topic} already; Ginger cannot unsubscribe")
        state.is_subscribed = True
        # A subscription is not confirmed.
        self.environment.subscribed(topic)
        self._flood(topic, [], NO_NODE)
        self._tell_all(self.me, False)

    def unsubscribe(self, topic: i64) -> None:
        raise UsageError("Ginger as published knows no end of a subscription; use the protocol broker-tree")

    def _flood(self, topic: i64, path: list[PathEntry], sender: i64) -> None:
        """Pass a subscription on, with this broker in front of the path."""
        if self.parent not in (NO_NODE, sender):
            up = [PathEntry(entry.address, entry.hops, entry.is_down, entry.ups + 1) for entry in path]
            self.environment.send(self.parent, Subscribe(topic, [PathEntry(self.me, 0, False, 1), *up]))
        for child in self.children:
            if child != sender:
                self.environment.send(child, Subscribe(topic, [PathEntry(self.me, 0, True, 0), *path]))

    def _receive_subscribe(self, sender: i64, message: Subscribe) -> None:
        path = self.view.learn(message.path, sender == self.parent, self.neighbours())
        self.add_subscriber(self.topic(message.topic), sender)
        self._flood(message.topic, path, sender)

    # Neighbours and the local view: Algorithms 2 and 3.

    def _add_neighbour(self, neighbour: i64) -> None:
        self.environment.watch(neighbour)
        self.view.remove(neighbour)
        if neighbour != self.parent:
            # Its first status message has its number of children (D12).
            self.children[int(neighbour)] = 0
        self._tell_all(neighbour, False)

    def _tell_all(self, other: i64, has_failed: bool) -> None:
        """Send the parent the number of children, and the children all that is known of the tree (D8)."""
        self._tell_parent(other, has_failed)
        path = [PathEntry(self.me, 0, True, 0)]
        path += [PathEntry(child, 1, False, 1) for child in self.children]
        if self.parent != NO_NODE:
            path.append(PathEntry(self.parent, 1, True, 0))
        path += self.view.siblings + self.view.ancestors
        for child in self.children:
            self.environment.send(child, TreeViewUpdate(other, has_failed, self._child_count(), path))

    def _tell_parent(self, other: i64, has_failed: bool) -> None:
        if self.parent != NO_NODE:
            self.environment.send(self.parent, TreeViewUpdate(other, has_failed, self._child_count(), []))

    def _child_count(self) -> i64:
        """The number of child brokers; as printed it has clients too, but those here do not look for new brokers."""
        return len(self.children)

    def _receive_update(self, sender: i64, message: TreeViewUpdate) -> None:
        if message.has_failed:
            self.view.remove(message.source)
        if sender in self.children:
            self.children[int(sender)] = int(message.child_count)
        path = self.view.learn(message.path, sender == self.parent, self.neighbours())
        if not path:
            # Nothing that those below could use; else each failure would go through the whole tree.
            return
        onward = [PathEntry(self.me, 0, True, 0), *path]
        for child in self.children:
            if child != sender:
                update = TreeViewUpdate(message.source, message.has_failed, self._child_count(), onward)
                self.environment.send(child, update)

    def _remove_neighbour(self, neighbour: i64) -> i64:
        """Forget a neighbour; the answer is the number of children that it had, if it was a child (D10)."""
        was_parent = neighbour == self.parent
        count = 0 if was_parent else self.children.pop(int(neighbour), 0)
        if was_parent:
            self.parent = NO_NODE
        for name, topic in self.topics.items():
            if was_parent and topic.has_parent:
                topic.has_parent = False
                if topic.is_needed_below() and name not in self._to_preserve:
                    # The text speaks of child brokers; brokers with clients alone ask for their topics too (D44).
                    self._to_preserve.append(name)
            elif neighbour in topic.children:
                topic.children.discard(int(neighbour))
                self._topics_of_orphans.add(name)
                for pending in topic.pending.values():
                    pending.acknowledged.discard(int(neighbour))
        self._tell_all(neighbour, True)
        return count

    # Algorithm 4: a neighbour has failed.

    def peer_lost(self, peer: i64) -> None:
        if peer not in self.neighbours():
            return
        was_parent = peer == self.parent
        orphans = self._remove_neighbour(peer)
        if was_parent:
            for topic in self.topics.values():
                for pending in topic.pending.values():
                    pending.has_gone_up = False
            self._replace_parent()
        else:
            self.expected_children += min(orphans, max(self.residual_degree(), 0))
            self._wait_for_children()

    def _replace_parent(self) -> None:
        if self.view.ancestors:
            self.expects_parent = True
            self._search()
        elif self.view.siblings:
            self._start_election()
        else:
            self._check_done()

    def _wait_for_children(self) -> None:
        """Wait for orphans if any may come (D17)."""
        if self.expected_children > 0:
            if self._children_timer < 0:
                self._children_timer = self.environment.set_timer(self.options.patience_ticks, CHILDREN)
        else:
            self._check_done()

    def _search(self) -> None:
        """Ask the next candidate; when all have refused, ask again and break the degree (D13)."""
        candidates = self.view.candidates()
        if not candidates:
            self.expects_parent = False
            self._check_done()
            return
        left = [candidate for candidate in candidates if candidate not in self._declined]
        if not left:
            self._declined.clear()
            if self._is_forced:
                # All have refused even that, because of the guard against cycles: not again at once.
                self._wait_for_answer(NO_NODE)
                return
            self._is_forced = True
            left = candidates
        self._ask(left[0])

    def _ask(self, candidate: i64) -> None:
        self.rounds += 1
        self.environment.send(candidate, ParentRequest(self.me, list(self._to_preserve), self._is_forced))
        self._wait_for_answer(candidate)

    def _wait_for_answer(self, candidate: i64) -> None:
        self.asked = candidate
        self._cancel_parent_timer()
        self._parent_timer = self.environment.set_timer(self.options.patience_ticks, PARENT)

    def _cancel_parent_timer(self) -> None:
        if self._parent_timer >= 0:
            self.environment.cancel_timer(self._parent_timer)
            self._parent_timer = -1

    # Algorithms 5 and 6: requests and answers.

    def _serves(self, topics: list[int]) -> bool:
        """Whether topics have subscribers below, now or before the failure that is being repaired (D45)."""
        for name in topics:
            known = self.topics.get(name)
            is_needed = known is not None and known.is_needed_below()
            if not is_needed and name not in self._topics_of_orphans:
                return False
        return True

    def _receive_request(self, sender: i64, message: ParentRequest) -> None:
        is_accepted = message.is_forced or (self.residual_degree() > 0 and self._serves(message.topics))
        if self.options.guards_cycles and (self.expects_parent or self.is_electing):
            is_accepted = False
        self.environment.send(sender, ParentResponse(self.me, is_accepted))
        if is_accepted:
            self._add_neighbour(sender)
            for name in message.topics:
                topic = self.topic(name)
                is_unknown = not topic.is_needed_below() and not topic.has_parent
                self.add_subscriber(topic, sender)
                if is_unknown and self.options.announces_forced_topics:
                    self._flood(name, [], sender)
            self.synchronising += 1
            last = {name: self.topic(name).last_numbers() for name in message.topics}
            self.environment.send(sender, ParentBuffer(self.me, last))
        if self.expected_children > 0:
            # Every answered request counts, not only the refused ones (D19).
            self.expected_children -= 1
            self._check_done()

    def _receive_response(self, sender: i64, message: ParentResponse) -> None:
        if sender != self.asked:
            # A late answer.
            return
        self._cancel_parent_timer()
        self.asked = NO_NODE
        if not message.is_accepted:
            self._declined.add(int(sender))
            self._search()
            return
        self._declined.clear()
        self._is_forced = False
        self.expects_parent = False
        self.parent = sender
        self.view.siblings = []
        self._add_neighbour(sender)
        # The child holds publications until buffers are compared, too (D36).
        self.synchronising += 1

    # Algorithm 7: the election of a root.

    def _start_election(self) -> None:
        # The degree after the loss of the root, kept: it may change before all have spoken (D21).
        self._own_vote = self.residual_degree()
        for sibling in self.view.siblings:
            self.environment.send(sibling.address, RootElection(self.me, self._own_vote))
        self.is_electing = True
        self._wait_for_answer(NO_NODE)
        self._try_to_elect()

    def _receive_election(self, message: RootElection) -> None:
        self._elected_with[int(message.source)] = int(message.residual_degree)
        self._try_to_elect()

    def _try_to_elect(self) -> None:
        if self.is_electing and all(int(sibling.address) in self._elected_with for sibling in self.view.siblings):
            self._elect()

    def _elect(self) -> None:
        votes = [(-degree, broker) for broker, degree in self._elected_with.items()]
        winner = min([*votes, (-int(self._own_vote), int(self.me))])[1]
        siblings = len(self.view.siblings)
        self.is_electing = False
        self._elected_with.clear()
        self._cancel_parent_timer()
        if winner == self.me:
            room = int(self.residual_degree())
            self.expected_children += max(siblings, room) if self.options.expects_most else min(siblings, room)
            self.view.siblings = []
            self._to_preserve = []
            self._wait_for_children()
        else:
            self.expects_parent = True
            self._declined.clear()
            self._ask(winner)

    # Algorithm 8: a timer has run out.

    def expire(self, name: i64) -> None:
        if name == CHILDREN:
            # All that have not come by now are given up, not one of them (D23).
            self._children_timer = -1
            self.expected_children = 0
            self._check_done()
            return
        self._parent_timer = -1
        if self.is_electing:
            # A broker that has not answered is dead; as printed a set is compared with a number (D22).
            self.view.siblings = [one for one in self.view.siblings if int(one.address) in self._elected_with]
            self._elect()
        elif self.expects_parent:
            if self.asked != NO_NODE:
                self.view.remove(self.asked)
                self.asked = NO_NODE
            self._search()

    # Algorithm 9: publications are held during a repair.

    def is_reconfiguring(self) -> bool:
        """Whether a repair is in progress here."""
        return self.expects_parent or self.expected_children > 0 or self.synchronising > 0 or self.is_electing

    def arrive(self, topic: PublishedGingerTopic, publication: Keyed, sender: i64) -> None:
        source = int(publication.source)
        awaited = topic.missed.get(source, 0)
        if sender == self.parent and sender != NO_NODE and publication.sequence <= awaited:
            self.process(topic, publication, sender)
        elif self.is_reconfiguring():
            topic.on_hold.append((publication, int(sender)))
        else:
            # The listing forgets this case (D25).
            self.process(topic, publication, sender)

    def receive_metadata(self, sender: i64, message: Metadata) -> None:
        super().receive_metadata(sender, message)
        if sender == self.parent:
            self._received_missed(self.topic(message.topic), message.publication)

    def _received_missed(self, topic: PublishedGingerTopic, publication: Keyed) -> None:
        """A new parent resends something; perhaps it had come before, out of order, and is not missed at all."""
        source = int(publication.source)
        if topic.missed.get(source, 0) == publication.sequence:
            del topic.missed[source]
            if not self._misses_anything():
                self._synchronised()

    def _misses_anything(self) -> bool:
        return any(len(topic.missed) > 0 for topic in self.topics.values())

    def _synchronised(self) -> None:
        """One comparison of buffers is finished."""
        self.synchronising = 0 if self.options.ends_all_synchronisations else max(self.synchronising - 1, 0)
        self._check_done()

    def _check_done(self) -> None:
        """When a repair is over: resume interrupted total publications, then release held ones (D43)."""
        if self.is_reconfiguring() or self._misses_anything():
            return
        self._to_preserve = []
        self._topics_of_orphans.clear()
        if self._children_timer >= 0:
            self.environment.cancel_timer(self._children_timer)
            self._children_timer = -1
        for topic in list(self.topics.values()):
            self._verify_pending(topic)
        for topic in list(self.topics.values()):
            held = topic.on_hold
            topic.on_hold = []
            for publication, sender in held:
                self.process(topic, publication, sender)

    # Algorithms 10 to 12: buffers.

    def _receive_buffer(self, message: ParentBuffer) -> None:
        needed: dict[int, LastNumbers] = {}
        pushed: dict[int, list[Metadata]] = {}
        completed: dict[int, LastNumbers] = {}
        for name, theirs in message.last.items():
            topic = self.topic(name)
            self.add_subscriber(topic, self.parent)
            needed[name] = note_missed(topic, theirs)
            pushed[name] = missing_at(topic, theirs, self.options.pushes_unknown)
            completed[name] = topic.last_completed() if self.options.tells_completed else {}
        self.environment.send(self.parent, LostMessageRequest(self.me, needed, pushed, completed))
        # As printed, only if something was missed (D24).
        if not self._misses_anything():
            self._synchronised()

    def _receive_lost(self, sender: i64, message: LostMessageRequest) -> None:
        for name, needed in message.needed.items():
            topic = self.topic(name)
            resent = needed_from(topic, needed)
            for item in resent:
                self.environment.send(sender, item)
            if self.options.tells_completed:
                for told in completions_after(topic, message.completed.get(name, {}), resent):
                    self.environment.send(sender, told)
        for name, pushed in message.pushed.items():
            for item in pushed:
                self._take_pushed(self.topic(name), item, sender)
        self._synchronised()

    def _take_pushed(self, topic: PublishedGingerTopic, item: Metadata, sender: i64) -> None:
        publication = item.publication
        if not topic.is_new(publication) and self.options.drops_duplicates:
            return
        if item.is_completed and publication.order == TOTAL:
            self.process_completed(topic, publication, sender)
        else:
            self.process(topic, publication, sender)

    # Algorithms 13 and 14: total publications that were interrupted.

    def _verify_pending(self, topic: PublishedGingerTopic) -> None:
        """Resume pending publications, the oldest first; the listings show the body of this loop alone (D37)."""
        for pending in list(topic.pending.values()):
            if pending.has_gone_up:
                continue
            if pending.has_asked and self.options.counts_acknowledgements:
                # As printed: begin again with all children.
                pending.acknowledged.clear()
            if pending.has_asked or not pending.is_from_above or not topic.has_parent:
                # The root of the topic completes it, unlocks and continues (D38); a lone child sends it up (D41).
                self.ask_children(topic, pending)
            # Otherwise the new parent asks for it again, or reports that it is completed.

    # Messages.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, ParentRequest):
            self._receive_request(sender, message)
        elif isinstance(message, ParentResponse):
            self._receive_response(sender, message)
        elif isinstance(message, RootElection):
            self._receive_election(message)
        elif isinstance(message, Register):
            self._add_neighbour(sender)
        elif sender in self.neighbours():
            # The channels of all other brokers are closed.
            self._receive_from_neighbour(sender, message)

    def _receive_from_neighbour(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Subscribe):
            self._receive_subscribe(sender, message)
        elif isinstance(message, TreeViewUpdate):
            self._receive_update(sender, message)
        elif isinstance(message, ParentBuffer):
            self._receive_buffer(message)
        elif isinstance(message, LostMessageRequest):
            self._receive_lost(sender, message)
        else:
            super().receive(sender, message)

    def unfinished(self) -> i64:
        return super().unfinished() + (1 if self.is_reconfiguring() or self._misses_anything() else 0)
