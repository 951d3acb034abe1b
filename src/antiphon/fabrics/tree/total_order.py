"""Total order: one broker decides, all agree to be silent first.

A total publication is a synchronisation point for its keys (section 1.2 of the dissertation): whatever one subscriber
gets about these keys before it, all get before it. The document locks keys level by level on the way to the root of the
topic, by rules that deadlock or break the order even without failures. Here:

1. The publisher's broker sends a **proposal** to the root. The root queues it by its keys; those that are first in the
   queues of all their keys it puts into the stream as a **lock**.
2. A broker that receives a lock publishes nothing about these keys any more: publications of its own application wait.
   When all its children have said that they are **closed**, it says so too.
3. When all are closed the root puts the **completion** into the stream. A broker that receives it delivers the
   publication, opens the keys and publishes what waited for them.

Streams are causal. A publication about a key that a broker made before it closed is in the past of its ``Closed``, and
so of the completion; later publications have the completion in their past. So all brokers agree on what comes before
and after.
Nothing waits but publications about closed keys, and proposals for earlier proposals at the root; so nothing waits in a
circle.

``Closed`` is said anew in each epoch, because a broker that failed may have published what only some have got. An
epoch begins when all living brokers are in one tree, and over new links streams are completed before ``Closed`` is
said. A lock outlives the root: the next one finds it in the streams of the others, and completes it in its own epoch.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import VOTE, DurableState
from antiphon.fabrics.tree.messages import COMPLETION, DATA, LOCK, Carry, Closed, Item, LockItem, Proposal
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.sequencer import Sequencer
from antiphon.fabrics.tree.streams import Streams
from antiphon.fabrics.tree.topic import OPEN, TreeLock, TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import TOTAL, Keyed, publication_key
from antiphon.kernel.process import NO_NODE, Environment


@mypyc_attr(allow_interpreted_subclasses=True)
class TotalOrderEvents:
    """Total order tells this to the other parts of a broker."""

    def keys_opened(self, topic: TreeTopic, keys: list[int]) -> None:
        """Total publications are completed, or will never be; these keys of theirs are open."""
        raise NotImplementedError


@final
class TreeTotalOrder:
    """Agrees with the other brokers on the places of total publications, and delivers what comes."""

    def __init__(
        self,
        environment: Environment,
        options: TreeOptions,
        view: TreeView,
        topics: TreeTopicTable,
        durable: DurableState,
        streams: Streams,
        events: TotalOrderEvents,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._topics: Final[TreeTopicTable] = topics
        self._durable: Final[DurableState] = durable
        self._streams: Final[Streams] = streams
        self._events: Final[TotalOrderEvents] = events
        self._sequencers: dict[i64, Sequencer] = {}
        # Whether the way to the root has broken in this epoch: what is proposed over another one would overtake what
        # was lost on it. All is proposed again, in order, when the next epoch begins.
        self._is_cut_off: bool = False
        # The epoch in which this broker, as root, may lock: all have begun it.
        self._locks_in: i64 = -1 if view.is_returning else view.epoch
        # The item that came last.
        self.handled: Item | None = None

    def announce_epoch(self) -> None:
        """Announce the epoch that orders from now on; without a quorum no host needs it."""
        view = self._view
        if self._options.quorum and view.can_order:
            members = sorted(view.current.parents) if view.is_root else []
            councils = view.current.council.bodies if view.is_root else []
            self._environment.ordering_epoch(view.epoch, members, councils)

    # Items.

    def handle_item(self, topic: TreeTopic, item: Item) -> None:
        """Deliver an item of a stream, prepare for it, or complete what was prepared."""
        publication = item.publication
        self.handled = item
        if item.kind == DATA:
            self._deliver(topic, publication)
        elif item.kind == LOCK:
            topic.add_lock(item)
            self._close(topic, publication_key(publication.source, publication.sequence))
        elif item.kind == COMPLETION:
            self._complete(topic, publication)

    def _deliver(self, topic: TreeTopic, publication: Keyed) -> None:
        if topic.is_subscribed:
            self._environment.deliver(publication)

    def _complete(self, topic: TreeTopic, publication: Keyed) -> None:
        name = publication_key(publication.source, publication.sequence)
        if publication.sequence <= topic.completed.get(publication.source, 0):
            # Two roots have completed it, on the two sides of a partition, after all brokers had closed.
            return
        topic.remove_outlived_locks(publication)
        topic.remove_lock(name)
        topic.completed[publication.source] = publication.sequence
        topic.proposed.pop(name, None)
        self._deliver(topic, publication)
        # What waited for this goes before what is locked next.
        self._events.keys_opened(topic, topic.take_opened())
        if self._view.is_root:
            is_next = self._sequencer(topic).complete(publication)
            self._lock_ready(topic, publication.keys)
            if not is_next:
                # An earlier root has completed it; perhaps that was all that others waited for.
                self._decide(topic)

    # Closing.

    def _close(self, topic: TreeTopic, name: i64) -> None:
        """Say that everything below is closed for a total publication, once in an epoch, when it is."""
        view = self._view
        if self._options.quorum:
            self._let_all_carry(topic)
        lock = topic.locks.get(name)
        if lock is None or not self._is_closed(topic, lock) or not self._is_safe(topic, lock, name):
            return
        publication = lock.publication
        if view.is_root:
            self._decide(topic)
        elif topic.up == OPEN:
            lock.said_in = view.epoch
            closed = Closed(publication.source, publication.sequence, publication.topic, view.epoch)
            self._environment.send(view.parent, closed)

    def _is_closed(self, topic: TreeTopic, lock: TreeLock) -> bool:
        """Whether all children are closed for a publication in this epoch, and that is news."""
        epoch = self._view.epoch
        if lock.said_in == epoch or lock.epoch != epoch:
            # What only an earlier root has locked has no place in this epoch's order yet.
            return False
        if self._options.quorum and any(
            below is not None and child not in topic.children for child, below in self._view.children.items()
        ):
            # A root that orders after a partition needs a majority, and a broker of it must know of this publication.
            return False
        return all(lock.closed_in.get(child, 0) == epoch for child in topic.children)

    def _is_safe(self, topic: TreeTopic, lock: TreeLock, name: i64) -> bool:
        """Whether this broker knows of a lock whatever happens: only then it votes. Else it does so later."""
        if lock.safe_epoch < lock.epoch and lock.saved_epoch < lock.epoch:
            self._topics.write_down(topic)
            lock.saved_epoch = lock.epoch
            if self._durable.is_safe(VOTE, topic.name, name, lock.epoch):
                lock.safe_epoch = lock.epoch
        return lock.safe_epoch >= lock.epoch

    def vote_on_disk(self, number: i64, name: i64, epoch: i64) -> None:
        """It is on disk that this broker knows of a lock of some epoch."""
        topic = self._topics.get(number)
        lock = None if topic is None else topic.locks.get(name)
        if topic is not None and lock is not None and epoch > lock.safe_epoch:
            lock.safe_epoch = epoch
            self._close(topic, name)

    def _let_all_carry(self, topic: TreeTopic) -> None:
        """With total publications a topic goes to all brokers."""
        topic.is_needed = True
        for child, below in self._view.children.items():
            if below is not None and child not in topic.children and child not in topic.told:
                topic.told.add(int(child))
                self._environment.send(child, Carry(self._view.me, 0, topic.name))

    def on_closed(self, sender: i64, closed: Closed) -> None:
        """A child and all below it are closed for a publication."""
        topic = self._topics.of(closed.topic)
        name = publication_key(closed.source, closed.sequence)
        lock = topic.locks.get(name)
        if lock is not None and sender in topic.children:
            lock.closed_in[sender] = closed.epoch
            self._close(topic, name)

    def close_all(self, topic: TreeTopic) -> None:
        """Say of all locks of a topic that everything below is closed, where it is and that is news."""
        for name in list(topic.locks):
            self._close(topic, name)

    def skipped(self, topic: TreeTopic) -> None:
        """A proposal of this broker may be among the skipped ones: the other side of a partition has completed it.

        It is known here, and behind everything that was delivered before: so it is not lost with the rest.
        """
        is_over = False
        for name, publication in list(topic.proposed.items()):
            if publication.sequence <= topic.completed.get(publication.source, 0):
                del topic.proposed[name]
                self._deliver(topic, publication)
                is_over = True
        if is_over or topic.opened:
            self._events.keys_opened(topic, topic.take_opened())

    # The root.

    def _sequencer(self, topic: TreeTopic) -> Sequencer:
        sequencer = self._sequencers.get(topic.name)
        if sequencer is None:
            sequencer = Sequencer()
            self._sequencers[topic.name] = sequencer
        return sequencer

    def _decide(self, topic: TreeTopic) -> None:
        """Complete the publications for which all brokers are closed, in the order of their locks."""
        view = self._view
        while view.is_complete and view.can_order:
            publication = self._sequencer(topic).next_locked()
            if publication is None:
                return
            if publication.sequence <= topic.completed.get(publication.source, 0):
                # An earlier root has completed it, and a broker that has just come back brought the completion.
                self._sequencer(topic).complete(publication)
                self._lock_ready(topic, publication.keys)
                continue
            name = publication_key(publication.source, publication.sequence)
            lock = topic.locks.get(name)
            if lock is None or not self._is_closed(topic, lock) or not self._is_safe(topic, lock, name):
                return
            lock.said_in = view.epoch
            self._streams.inject(topic, COMPLETION, lock.publication)

    def _lock_ready(self, topic: TreeTopic, keys: vec[i64]) -> None:
        """TreeLock those at the heads of the queues of some keys, and what these let come forward."""
        view = self._view
        if not (view.is_complete and view.can_order) or self._locks_in != view.epoch:
            return
        sequencer = self._sequencer(topic)
        left = list(keys)
        while left:
            publication = sequencer.take_ready(left.pop())
            if publication is None:
                continue
            if publication.order != TOTAL:
                # The next one about the same keys may have no need to wait for it.
                left += list(publication.keys)
            following = sequencer.next_waiting(publication.source)
            if following is not None:
                left += list(following.keys)
            self._lock(topic, publication)

    def _lock(self, topic: TreeTopic, publication: Keyed) -> None:
        self._streams.put(topic, LockItem(self._durable.origin, topic.injected + 1, self._view.epoch, publication))

    def on_proposal(self, sender: i64, proposal: Proposal) -> None:
        """A broker below has a publication that needs a place in the order."""
        if sender in self._view.children:
            self._hand_up(proposal)

    def _hand_up(self, proposal: Proposal) -> None:
        """Send a proposal on its way to the root; at its end queue what it proposes."""
        view = self._view
        if view.parent != NO_NODE:
            if not self._is_cut_off:
                self._environment.send(view.parent, proposal)
        elif view.is_root and view.is_complete and view.can_order and proposal.epoch == view.epoch:
            topic = self._topics.of(proposal.topic)
            self._queue(topic, proposal.publication)
            self._lock_ready(topic, proposal.publication.keys)
        # Else it is proposed again when the next epoch begins, after those that its source proposed before.

    def _queue(self, topic: TreeTopic, publication: Keyed) -> None:
        sequencer = self._sequencer(topic)
        is_known = sequencer.knows(publication_key(publication.source, publication.sequence))
        if not is_known and publication.sequence > topic.completed.get(publication.source, 0):
            sequencer.add(publication)

    def propose(self, topic: TreeTopic, publication: Keyed) -> None:
        """Ask the root to lock a publication of this broker."""
        topic.proposed[publication_key(publication.source, publication.sequence)] = publication
        self._hand_up(Proposal(publication, self._view.epoch))

    def on_parent_lost(self) -> None:
        """The way to the root has broken."""
        self._is_cut_off = True

    def begins_epoch(self) -> None:
        """Let all brokers of an epoch know which topics have total publications, though they may lack them.

        Else one that is cut off then would begin such a topic anew, and publish before it has what was ordered before.
        """
        for topic in self._topics.by_number.values():
            if topic.is_needed:
                self._let_all_carry(topic)

    def began_epoch(self) -> None:
        """Propose and close again, in the new epoch."""
        view = self._view
        self.announce_epoch()
        self._is_cut_off = False
        topics = self._topics.all()
        proposed = [publication for topic in topics for publication in topic.proposed.values()]
        if view.is_root:
            # What is locked is known; all that waited in queues is proposed again, this broker's own first.
            self._sequencers.clear()
            for topic in topics:
                for publication in topic.pending():
                    self._sequencer(topic).resume(publication)
            for publication in proposed:
                self._queue(self._topics.of(publication.topic), publication)
            if not self._options.quorum:
                self.all_began()
        else:
            for publication in proposed:
                self._hand_up(Proposal(publication, view.epoch))
        for topic in topics:
            self.close_all(topic)

    def all_began(self) -> None:
        """TreeLock again what earlier roots have locked, in its order, and then what waits.

        Not before all have begun the epoch: a broker that gets a lock of it must know that it overrides all locks of
        earlier epochs, and a broker that has not begun it could still help an earlier root to order something else.
        """
        if self._locks_in == self._view.epoch:
            return
        self._locks_in = self._view.epoch
        for topic in self._topics.all():
            sequencer = self._sequencers.get(topic.name)
            if sequencer is None:
                continue
            for publication in sequencer.locked():
                self._lock(topic, publication)
            for publication in sequencer.waiting():
                self._lock_ready(topic, publication.keys)
