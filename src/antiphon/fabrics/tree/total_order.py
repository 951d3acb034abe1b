"""Total order: one broker decides, all agree to be silent first.

A total publication is a synchronisation point for its keys (section 1.2 of the dissertation): whatever one subscriber
gets about these keys before it, all get before it. The document locks keys level by level on the way to the root of the
topic, by rules that deadlock or break the order even without failures. Here:

1. The publisher's broker sends a **proposal** to the root. The root queues it by its keys; those that are first in the
   queues of all their keys it puts into the stream as a **lock**.
2. A broker that gets a lock publishes nothing about these keys any more: what its own publishers want to say waits.
   When all its children have said that they are **closed**, it says so too.
3. When all are closed the root puts the **completion** into the stream. Who gets it delivers the publication, opens the
   keys and lets go what waited.

Streams are causal. Everything about a key that anybody published before it closed is in the past of its ``Closed``, so
of the completion; everything after has the completion in its past. So all brokers agree on what comes before and after.
Nothing waits but publications about closed keys, and proposals for earlier proposals at the root; so nothing waits in a
circle.

``Closed`` is said anew in each epoch, because a broker that failed may have published what only some have got. An
epoch begins when all living brokers are in one tree, and over new links streams are completed before ``Closed`` is
said. A lock outlives the root: the next one finds it in the streams of the others, and completes it in its own epoch.
"""

from __future__ import annotations

from collections import deque
from typing import final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import VOTE, Wait
from antiphon.fabrics.tree.messages import COMPLETION, DATA, LOCK, Carry, Closed, Item, LockItem, Proposal
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.streams import Streams
from antiphon.fabrics.tree.topic import OPEN, Lock, Topic
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import TOTAL, Keyed, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment


@final
class KeyQueue:
    """Who holds a key at the root, and who waits for it: one total publication, or any number of others."""

    def __init__(self) -> None:
        self.totals: i64 = 0
        self.others: i64 = 0
        self.waiting: deque[Keyed] = deque()

    def admits(self, publication: Keyed) -> bool:
        """Whether a publication is the first that waits, and those who hold the key let it in."""
        if not self.waiting or self.waiting[0] is not publication or self.totals > 0:
            return False
        return self.others == 0 or publication.order != TOTAL

    def hold(self, publication: Keyed, by: i64) -> None:
        """Note that a publication holds the key from now on (1), or does not any more (-1)."""
        if publication.order == TOTAL:
            self.totals += by
        else:
            self.others += by

    def is_free(self) -> bool:
        """Whether nobody holds the key or waits for it."""
        return self.totals == 0 and self.others == 0 and not self.waiting


@final
class Sequencer:
    """The root's queues for one topic: which publications may be locked now, and in which order they are completed.

    Those of one source are locked in the order of their numbers. So a publication stands in the queues of its keys only
    when all before it from its source are locked: nobody waits there for keys that are not its own. All are completed
    in the order in which they were locked.
    """

    def __init__(self) -> None:
        self._of_key: dict[i64, KeyQueue] = {}
        self._waiting_of: dict[i64, deque[Keyed]] = {}
        self._locked: deque[Keyed] = deque()
        self._known: set[i64] = set()

    def knows(self, name: i64) -> bool:
        """Whether a publication is locked or waits."""
        return name in self._known

    def resume(self, publication: Keyed) -> None:
        """Take over a publication that an earlier root has locked, in the order in which they are to be completed."""
        self._known.add(publication_key(publication.source, publication.sequence))
        self._locked.append(publication)
        for key in publication.keys:
            self._queue(key).hold(publication, 1)

    def add(self, publication: Keyed) -> None:
        """Let a publication wait behind those of its source, and then behind those about the same keys."""
        self._known.add(publication_key(publication.source, publication.sequence))
        waiting = self._waiting_of.setdefault(publication.source, deque())
        waiting.append(publication)
        if len(waiting) == 1:
            self._stand_in_line(publication)

    def _queue(self, key: i64) -> KeyQueue:
        queue = self._of_key.get(key)
        if queue is None:
            queue = KeyQueue()
            self._of_key[key] = queue
        return queue

    def _stand_in_line(self, publication: Keyed) -> None:
        for key in publication.keys:
            self._queue(key).waiting.append(publication)

    def take_ready(self, key: i64) -> Keyed | None:
        """The first that waits for a key, if it may be locked now; it counts as locked from then on."""
        queue = self._of_key.get(key)
        if queue is None or not queue.waiting:
            return None
        first = queue.waiting[0]
        if not all(self._of_key[other].admits(first) for other in first.keys):
            return None
        for other in first.keys:
            line = self._of_key[other]
            line.waiting.popleft()
            line.hold(first, 1)
        self._locked.append(first)
        waiting = self._waiting_of[first.source]
        waiting.popleft()
        if waiting:
            self._stand_in_line(waiting[0])
        else:
            del self._waiting_of[first.source]
        return first

    def next_waiting(self, source: i64) -> Keyed | None:
        """The first publication of a source that is not locked."""
        waiting = self._waiting_of.get(source)
        return waiting[0] if waiting else None

    def waiting(self) -> list[Keyed]:
        """The first publication of each source that is not locked."""
        return [waiting[0] for waiting in self._waiting_of.values()]

    def locked(self) -> list[Keyed]:
        """The publications that are locked, in the order in which they are to be completed."""
        return list(self._locked)

    def next_locked(self) -> Keyed | None:
        """The publication that is to be completed next."""
        return self._locked[0] if self._locked else None

    def complete(self, publication: Keyed) -> bool:
        """Forget a publication if it is the one that is to be completed next; the answer is whether it was."""
        if not self._locked:
            return False
        first = self._locked[0]
        if first.source != publication.source or first.sequence != publication.sequence:
            return False
        self._locked.popleft()
        self._known.discard(publication_key(first.source, first.sequence))
        for key in first.keys:
            queue = self._of_key[key]
            queue.hold(first, -1)
            if queue.is_free():
                del self._of_key[key]
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Totals(Streams):
    """The part of a broker that agrees on total order."""

    def __init__(self, environment: Environment, options: TreeOptions, overlay: Overlay) -> None:
        super().__init__(environment, options, overlay)
        self._sequencers: dict[i64, Sequencer] = {}
        # Whether the way to the root has broken in this epoch: what is proposed over another one would overtake what
        # was lost on it. All is proposed again, in order, when the next epoch begins.
        self._is_cut_off: bool = False
        # The epoch in which this broker, as root, may lock: all have begun it.
        self._locks_in: i64 = -1 if self.is_returning else overlay.epoch
        # The item that came last.
        self.handled: Item | None = None

    def start(self) -> None:
        super().start()
        self._note_epoch()

    def _note_epoch(self) -> None:
        """Say which epoch orders from now on; nobody needs to know where failures are taken at their word."""
        if self.options.quorum and self.can_order:
            members = sorted(self.current.parents) if self.is_root else []
            councils = self.current.council.bodies if self.is_root else []
            self.environment.ordering_epoch(self.epoch, members, councils)

    # What the part above adds.

    def deliver(self, topic: Topic, publication: Keyed) -> None:
        """A publication is to be given to the subscriber here, if there is one."""
        raise NotImplementedError

    def let_go(self, topic: Topic, keys: vec[i64]) -> None:
        """A total publication is completed; its keys are open, unless others have closed them."""
        raise NotImplementedError

    # Items.

    def handle_item(self, topic: Topic, item: Item) -> None:
        publication = item.publication
        self.handled = item
        if item.kind == DATA:
            self.deliver(topic, publication)
        elif item.kind == LOCK:
            topic.add_lock(item)
            self._close(topic, publication_key(publication.source, publication.sequence))
        elif item.kind == COMPLETION:
            self._complete(topic, publication)

    def _complete(self, topic: Topic, publication: Keyed) -> None:
        name = publication_key(publication.source, publication.sequence)
        if publication.sequence <= topic.completed.get(publication.source, 0):
            # Two roots have completed it, on the two sides of a partition, after everybody had closed.
            return
        topic.remove_outlived_locks(publication)
        topic.remove_lock(name)
        topic.completed[publication.source] = publication.sequence
        topic.proposed.pop(name, None)
        self.deliver(topic, publication)
        # What waited for this goes before what is locked next.
        self.let_go(topic, publication.keys)
        if self.is_root:
            is_next = self._sequencer(topic).complete(publication)
            self._lock_ready(topic, publication.keys)
            if not is_next:
                # An earlier root has completed it; perhaps that was all that others waited for.
                self._decide(topic)

    # Closing.

    def _close(self, topic: Topic, name: i64) -> None:
        """Say that everything below is closed for a total publication, once in an epoch, when it is."""
        if self.options.quorum:
            self._let_all_carry(topic)
        lock = topic.locks.get(name)
        if lock is None or not self._is_closed(topic, lock) or not self._is_safe(topic, lock, name):
            return
        publication = lock.publication
        if self.is_root:
            self._decide(topic)
        elif topic.up == OPEN:
            lock.said_in = self.epoch
            closed = Closed(publication.source, publication.sequence, publication.topic, self.epoch)
            self.environment.send(self.parent, closed)

    def _is_closed(self, topic: Topic, lock: Lock) -> bool:
        """Whether all children are closed for a publication in this epoch, and that is news."""
        if lock.said_in == self.epoch or lock.epoch != self.epoch:
            # What only an earlier root has locked has no place in this epoch's order yet.
            return False
        if self.options.quorum and any(
            below is not None and child not in topic.children for child, below in self.children.items()
        ):
            # Whoever orders after a partition needs a majority, of which somebody has to know of this one.
            return False
        return all(lock.closed_in.get(child, 0) == self.epoch for child in topic.children)

    def _is_safe(self, topic: Topic, lock: Lock, name: i64) -> bool:
        """Whether this broker knows of a lock whatever happens: only then it votes. Else it does so later."""
        if lock.safe_epoch < lock.epoch and lock.saved_epoch < lock.epoch:
            self.write_down(topic)
            lock.saved_epoch = lock.epoch
            if self.journal.is_safe(VOTE, topic.name, name, lock.epoch):
                lock.safe_epoch = lock.epoch
        return lock.safe_epoch >= lock.epoch

    def is_on_disk(self, wait: Wait) -> None:
        if wait.kind != VOTE:
            super().is_on_disk(wait)
            return
        topic = self.topics.get(wait.topic)
        lock = None if topic is None else topic.locks.get(wait.name)
        if topic is not None and lock is not None and wait.epoch > lock.safe_epoch:
            lock.safe_epoch = wait.epoch
            self._close(topic, wait.name)

    def _let_all_carry(self, topic: Topic) -> None:
        """With total publications a topic goes to all brokers."""
        topic.is_needed = True
        for child, below in self.children.items():
            if below is not None and child not in topic.children and child not in topic.told:
                topic.told.add(int(child))
                self.environment.send(child, Carry(self.me, 0, topic.name))

    def _receive_closed(self, sender: i64, closed: Closed) -> None:
        topic = self.topic(closed.topic)
        name = publication_key(closed.source, closed.sequence)
        lock = topic.locks.get(name)
        if lock is not None and sender in topic.children:
            lock.closed_in[sender] = closed.epoch
            self._close(topic, name)

    def _close_all(self, topic: Topic) -> None:
        for name in list(topic.locks):
            self._close(topic, name)

    def skipped(self, topic: Topic) -> None:
        """What this broker proposed may have been completed on the other side of a partition, among what is skipped.

        It is known here, and behind everything that was delivered before: so it is not lost with the rest.
        """
        for name, publication in list(topic.proposed.items()):
            if publication.sequence <= topic.completed.get(publication.source, 0):
                del topic.proposed[name]
                self.deliver(topic, publication)
                self.let_go(topic, publication.keys)

    def links_changed(self, topic: Topic) -> None:
        self._close_all(topic)

    # The root.

    def _sequencer(self, topic: Topic) -> Sequencer:
        sequencer = self._sequencers.get(topic.name)
        if sequencer is None:
            sequencer = Sequencer()
            self._sequencers[topic.name] = sequencer
        return sequencer

    def _decide(self, topic: Topic) -> None:
        """Complete the publications for which everybody is closed, in the order in which they were locked."""
        while self.is_complete and self.can_order:
            publication = self._sequencer(topic).next_locked()
            if publication is None:
                return
            if publication.sequence <= topic.completed.get(publication.source, 0):
                # An earlier root has completed it, and that came with somebody who has just come back.
                self._sequencer(topic).complete(publication)
                self._lock_ready(topic, publication.keys)
                continue
            name = publication_key(publication.source, publication.sequence)
            lock = topic.locks.get(name)
            if lock is None or not self._is_closed(topic, lock) or not self._is_safe(topic, lock, name):
                return
            lock.said_in = self.epoch
            self.inject(topic, COMPLETION, lock.publication)

    def _lock_ready(self, topic: Topic, keys: vec[i64]) -> None:
        """Lock those at the heads of the queues of some keys, and what these let come forward."""
        if not (self.is_complete and self.can_order) or self._locks_in != self.epoch:
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

    def _lock(self, topic: Topic, publication: Keyed) -> None:
        self.put(topic, LockItem(self.journal.origin, topic.injected + 1, self.epoch, publication))

    def _receive_proposal(self, proposal: Proposal) -> None:
        if self.parent != NO_NODE:
            if not self._is_cut_off:
                self.environment.send(self.parent, proposal)
        elif self.is_root and self.is_complete and self.can_order and proposal.epoch == self.epoch:
            topic = self.topic(proposal.topic)
            self._queue(topic, proposal.publication)
            self._lock_ready(topic, proposal.publication.keys)
        # Else it is proposed again when the next epoch begins, after those that its source proposed before.

    def _queue(self, topic: Topic, publication: Keyed) -> None:
        sequencer = self._sequencer(topic)
        is_known = sequencer.knows(publication_key(publication.source, publication.sequence))
        if not is_known and publication.sequence > topic.completed.get(publication.source, 0):
            sequencer.add(publication)

    def propose(self, topic: Topic, publication: Keyed) -> None:
        """Ask the root to lock a publication of this broker."""
        topic.proposed[publication_key(publication.source, publication.sequence)] = publication
        self._receive_proposal(Proposal(publication, self.epoch))

    def parent_gone(self) -> None:
        super().parent_gone()
        self._is_cut_off = True

    def began_epoch(self) -> None:
        super().began_epoch()
        self._note_epoch()
        self._is_cut_off = False
        topics = list(self.topics.values())
        proposed = [publication for topic in topics for publication in topic.proposed.values()]
        if self.is_root:
            # What is locked is known; all that waited in queues is proposed again, this broker's own first.
            self._sequencers.clear()
            for topic in topics:
                for publication in topic.pending():
                    self._sequencer(topic).resume(publication)
            for publication in proposed:
                self._queue(self.topic(publication.topic), publication)
            if not self.options.quorum:
                self.all_began()
        else:
            for publication in proposed:
                self._receive_proposal(Proposal(publication, self.epoch))
        for topic in topics:
            self._close_all(topic)
        if self.is_root:
            self.settle_all()

    def all_began(self) -> None:
        """Lock again what earlier roots have locked, in its order, and then what waits.

        Not before all have begun the epoch: whoever gets a lock of it must know that it counts more than all locks of
        earlier epochs, and whoever has not begun it could still help an earlier root to order something else.
        """
        if self._locks_in == self.epoch:
            return
        self._locks_in = self.epoch
        for topic in list(self.topics.values()):
            sequencer = self._sequencers.get(topic.name)
            if sequencer is None:
                continue
            for publication in sequencer.locked():
                self._lock(topic, publication)
            for publication in sequencer.waiting():
                self._lock_ready(topic, publication.keys)

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Closed):
            self._receive_closed(sender, message)
        elif isinstance(message, Proposal):
            if sender in self.children:
                self._receive_proposal(message)
        else:
            super().receive(sender, message)
