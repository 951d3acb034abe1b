"""CubeDelivery where nodes may fail: copies kept for others, members that return, and publications that come too late.

* **Places.** A total publication carries the place that the lock manager gave it. No node delivers two publications
  about a key with the lower place second. A publication that comes too late, because it was on the other side of a
  partition, is reported as lost. So two nodes that deliver the same two total publications deliver them in the same
  order, whatever has failed.
* **Returns.** A member that comes back from its log holds back weaker publications until all nodes within reach have
  found it and said what they have: such a publication may belong behind a total one of which this node has not heard.
  So does a member that others find later than it finds them. Before it is a member again, a node gives others what
  its log holds: a total publication that its earlier life has begun, above all.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.messages import member_entries
from antiphon.fabrics.cube.repair.messages import REQUEST, RESPONSE, Digest
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.repair.retransmission import CubeRetransmission
from antiphon.fabrics.cube.repair.retransmit_buffer import with_held
from antiphon.fabrics.cube.repair.unsettled import UnsettledTopics
from antiphon.fabrics.cube.topic import OUTSIDE, CubeTopic, mixed, total
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import SOURCE_MASK, TOTAL, Publication, publication_key
from antiphon.kernel.process import Environment, LogReader
from antiphon.orders.order import Placed, merged_frontiers
from antiphon.orders.total import keys_of

PLACES_AT_MOST: Final = 1 << 16
"""Of so many keys of a topic the last place is remembered."""

RECALLED_PIECES: Final = 64
"""So much of its log a node reads at most that has returned, to know what is too late."""

DISORDER: Final = 1024
"""No total publication was delivered after so many whose places are all before its own."""


@final
class Places:
    """The last total publication about each key that was delivered, of the keys that were used last.

    The deliveries of an earlier incarnation are read from the log, but only if a publication comes that may be older.
    """

    def __init__(self, log: LogReader | None) -> None:
        self._last: Final[dict[i64, tuple[i64, i64]]] = {}
        # Of those that are forgotten the highest: whatever is new is far above it.
        self._forgotten: tuple[i64, i64] = (0, 0)
        # What was not read of the log, and the places of what was read last, as many as tell; 0 for what has none.
        self._log: LogReader | None = log
        self._pieces_read: i64 = 0
        self._read_last: list[i64] = []

    def take(self, publication: Placed) -> bool:
        """Whether a total publication may be delivered now; it is then."""
        name = (publication.place, publication.source)
        while self._log is not None and self._may_be_before(publication.place):
            self._read_back(self._log)
        keys = keys_of(publication)
        for key in keys:
            if name <= self._last.get(key, self._forgotten):
                return False
        for key in keys:
            self._put(key, name)
        return True

    def _may_be_before(self, place: i64) -> bool:
        """Whether something may have been delivered, in what was not read, that has a later place."""
        return len(self._read_last) < DISORDER or max(self._read_last) >= place

    def _read_back(self, log: LogReader) -> None:
        piece = log.earlier()
        self._pieces_read += 1
        if piece is None or len(piece) == 0 or self._pieces_read == RECALLED_PIECES:
            self._log = None
        places: list[i64] = []
        for message in reversed(piece or []):
            places.append(message.place if isinstance(message, Placed) else 0)
            if isinstance(message, Placed):
                name = (message.place, message.source)
                for key in keys_of(message):
                    if name > self._last.get(key, self._forgotten):
                        self._put(key, name)
        self._read_last = (self._read_last + places)[-DISORDER:]

    def _put(self, key: i64, name: tuple[i64, i64]) -> None:
        self._last.pop(key, None)
        self._last[key] = name
        if len(self._last) > PLACES_AT_MOST:
            oldest = next(iter(self._last))
            self._forgotten = max(self._forgotten, self._last.pop(oldest))

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{sorted(self._last.items())} {self._forgotten} {self._pieces_read} {self._log is None}"


HELD_AT_MOST: Final[i64] = 1 << 16
"""So many publications wait on a topic for others. A publisher has no more than its window under way."""


@final
class RepairedDelivery(CubeDelivery):
    """Delivers what an order releases, unless it is too late, and keeps what arrives for others."""

    def __init__(
        self,
        environment: Environment,
        agenda: Agenda,
        presence: Presence,
        retransmission: CubeRetransmission,
        unsettled_topics: UnsettledTopics,
    ) -> None:
        super().__init__(environment, agenda)
        self._presence: Final[Presence] = presence
        self._retransmission: Final[CubeRetransmission] = retransmission
        self._unsettled: Final[UnsettledTopics] = unsettled_topics
        self._places: dict[i64, Places] = {}
        # Topics in which this node is a member again and has not heard from all what it missed; what came meanwhile.
        self._returning: dict[i64, dict[i64, Publication]] = {}
        # Topics in which this node is a member again, where no other node was within reach when it went on.
        self._returned_alone: set[i64] = set()
        # By topic, the deliveries of an earlier life, until this node is a member again; None if there are none.
        self._restored: dict[i64, vec[i64] | None] = {}

    # What arrives.

    def arrived(self, topic: CubeTopic, publication: Publication) -> None:
        order = mixed(topic)
        # The next one of its publisher is taken always: others may wait for it.
        if order.waiting() >= HELD_AT_MOST and publication.sequence > order.past(publication.source) + 1:
            raise ProtocolError(
                f"{HELD_AT_MOST} publications wait on topic {topic.name}: no correct nodes have so many on the way"
            )
        if len(self._returning) > 0 and publication.order != TOTAL and self.is_returning(topic):
            # It may belong behind a total publication that has not come yet, and of which nobody has told this node.
            key = publication_key(publication.source, publication.sequence)
            self._returning[topic.name][key] = publication
        else:
            if publication.order == TOTAL:
                lock_unannounced(topic, publication)
                self._agenda.advance_later(topic)
            self._retransmission.keep(topic, publication, order.past(publication.source))
            self.deliver_all(topic, order.arrived(publication))
        if publication.source not in self._presence.present and publication.source != self._me:
            # Its publisher does not see to it any more that all get it.
            self._unsettled.disturb(topic)
        if topic.order.waiting() > 0:
            self._unsettled.doubt(topic)

    def deliver_one(self, topic: CubeTopic, publication: Publication) -> None:
        if isinstance(publication, Placed) and not self._places_of(topic).take(publication):
            self._environment.lost(topic.name, publication.source, publication.sequence)
        else:
            self._environment.deliver(publication)

    def _places_of(self, topic: CubeTopic) -> Places:
        places = self._places.get(topic.name)
        if places is None:
            places = Places(None)
            self._places[topic.name] = places
        return places

    def have(self, topic: CubeTopic) -> vec[i64]:
        """All that has arrived on a topic, or counts as past, as a set of publications."""
        order = mixed(topic)
        returning = self._returning.get(topic.name)
        held = order.held_keys() + ([] if returning is None else list(returning))
        return with_held(order.frontier(), held) if len(held) > 0 else order.frontier()

    def holdings(self, topic: CubeTopic) -> vec[i64]:
        """All that this node can give: a node that has not subscribed again has the log of its earlier life."""
        have = self.have(topic)
        restored = self._restored_frontier(topic) if topic.state == OUTSIDE else None
        return have if restored is None else merged_frontiers(have, restored)

    def _restored_frontier(self, topic: CubeTopic) -> vec[i64] | None:
        """The deliveries of an earlier life; the host is asked until it has an answer.

        A live host has none before somebody there uses the topic.
        """
        if topic.name in self._restored:
            return self._restored[topic.name]
        past = self._environment.restored_frontier(topic.name)
        if past is None:
            return None
        found = vec[i64](past)
        self._restored[topic.name] = found
        return found

    def take_restored(self, topic: CubeTopic) -> vec[i64] | None:
        """The deliveries of an earlier life, from which this node goes on as a member; None if it had left."""
        past = self._restored_frontier(topic)
        if past is not None:
            self._restored[topic.name] = None
        return past

    def follow_past(self, topic: CubeTopic) -> None:
        """A publication of this node from now on follows all that counts as past.

        An earlier life has delivered it; or this is a newcomer, and a client that came here may have seen it elsewhere.
        """
        order = mixed(topic)
        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key < 0 or key & SOURCE_MASK != self._me]))

    def has_arrived(self, topic: CubeTopic, key: i64) -> bool:
        """Whether a publication counts as past, or waits."""
        order = mixed(topic)
        if order.counts(key) or order.is_held(key):
            return True
        held = self._returning.get(topic.name)
        return held is not None and key in held

    # Coming back.

    def begin_returning(self, topic: CubeTopic) -> None:
        """This node is a member again, from its log, and not all nodes have said what it missed."""
        self._returning[topic.name] = {}
        self._returned_alone.discard(topic.name)
        self._places[topic.name] = Places(self._environment.log_reader(topic.name))

    def hear_of_absence(self, topic: CubeTopic, message: Digest) -> bool:
        """A member that finds this node later than this node found it has not sent to it for a while.

        It may have begun total publications meanwhile, which lock nothing here. A newcomer gives what was published
        behind these, and cannot give them. So weaker publications wait until all within reach have said what they have.

        If one asks that this node did not take for a member, this node has lost it too, or it has returned. Then the
        two compare before they send to each other, and nobody waits. If it answers, it has not found this node yet.

        The result is whether the other one has found this node just now: what it had answered before was not all.
        """
        is_found = member_entries(message.members).get(self._me, False)
        if is_found or message.asks not in (REQUEST, RESPONSE):
            return False
        if message.asks == RESPONSE or topic.view.counter_of(message.source) == message.sequence:
            self._returning.setdefault(topic.name, {})
            self._unsettled.disturb(topic)
        return message.asks == REQUEST and self.is_returning(topic)

    def is_unfound(self, topic: CubeTopic, message: Digest) -> bool:
        """Whether an answer does not end the return of this node: the member that answers has not found it yet.

        Until it does, it may begin total publications without this node. It asks when it has found this node, and is
        asked once more then.
        """
        if not self.is_returning(topic) or not message.is_member:
            return False
        return not member_entries(message.members).get(self._me, False)

    def stop_returning(self, topic: CubeTopic) -> None:
        """This node is about to be no member: what is held back is not for it."""
        self._returning.pop(topic.name, None)

    def is_returning(self, topic: CubeTopic) -> bool:
        """Whether this node has not heard yet what it missed."""
        return topic.name in self._returning

    def meet_after_return(self, topic: CubeTopic) -> bool:
        """Whether this is the first peer since this node returned, so that it has to hear what it missed only now.

        Until then it went on alone: nobody could tell it which total publications others had begun.
        """
        if topic.name not in self._returned_alone:
            return False
        self._returned_alone.discard(topic.name)
        self._returning[topic.name] = {}
        return True

    def end_returning(self, topic: CubeTopic) -> None:
        """All nodes within reach have said what they have: use the publications that were held back."""
        if self.is_returning(topic):
            if len(self._presence.present) == 0:
                self._returned_alone.add(topic.name)
            order = total(topic)
            for key, publication in self._returning.pop(topic.name).items():
                if not order.counts(key) and not order.is_held(key):
                    self.arrived(topic, publication)
            self._agenda.advance_later(topic)

    def text(self) -> str:
        """The state as text, to compare states."""
        returning = [(name, sorted(held)) for name, held in sorted(self._returning.items())]
        places = [(name, each.text()) for name, each in sorted(self._places.items())]
        restored = [(name, list(past)) for name, past in sorted(self._restored.items()) if past is not None]
        return f"{places} {returning} {sorted(self._returned_alone)} {restored}"


def lock_unannounced(topic: CubeTopic, publication: Publication) -> None:
    """Lock a total publication whose lock has not come, so that later publications of other nodes wait for it.

    It carries the place that counts: a lock that is here may be from an earlier grant.
    """
    if isinstance(publication, Placed):
        total(topic).lock(publication.source, publication.sequence, keys_of(publication), publication.place)
