"""Floods over the overlays of topics: CrosspostFlood, and SimpleFlood to compare it with.

Thesis of M. Matos, section 3.2.4 and Algorithm 3. An event may be posted to several topics. A node that receives it for
the first time delivers it in all its topics among these, and relays it once to each neighbour in any of them (infect
and die). A neighbour in three topics gets one copy and not three: one per physical link instead of one per logical
link. SimpleFlood posts the event to each topic by itself.

Where this departs from the thesis: nothing is sent back to where it came from (``echoes`` counts copies that the
published algorithm would have sent in addition), and a node remembers a bounded number of events.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.message import NONE, Publication, publication_key
from antiphon.kernel.process import Environment
from antiphon_lab.protocols.gossip.stan_messages import Post
from antiphon_lab.protocols.gossip.stan_view import AlignedView


class CrosspostFlood:
    """Events at one node, over the views of its topics."""

    def __init__(self, environment: Environment, views: dict[i64, AlignedView], remembered: i64) -> None:
        self.environment: Final[Environment] = environment
        self._views: Final[dict[i64, AlignedView]] = views
        self._remembered: Final[i64] = remembered
        # Insertion order is the order of arrival: the first is the oldest.
        self._seen: Final[dict[i64, bool]] = {}
        self._posted: i64 = 0
        self._sequences: Final[dict[i64, i64]] = {}
        self.sent: i64 = 0
        """Copies that were sent; ``echoes`` more if they also went back to where the event came from."""
        self.echoes: i64 = 0
        self.duplicates: i64 = 0
        self.hops_of_first: i64 = 0
        self.firsts: i64 = 0
        """Events that came from others for the first time, and over how many links together."""

    def post(self, payload: bytes, topics: list[i64]) -> i64:
        """Post an event to topics; the answer is its sequence number in the first of them."""
        places, numbers = vec[i64](), vec[i64]()
        for topic in topics:
            places = append(places, topic)
            numbers = append(numbers, self.next_sequence(topic))
        self.begin(payload, places, numbers)
        return numbers[0]

    def next_sequence(self, topic: i64) -> i64:
        """The sequence number of this node's next event in a topic."""
        sequence = self._sequences.get(topic, 0) + 1
        self._sequences[topic] = sequence
        return sequence

    def begin(self, payload: bytes, topics: vec[i64], sequences: vec[i64]) -> None:
        """Send a new event."""
        self._posted += 1
        me, now = self.environment.identifier, self.environment.now()
        self._handle(me, Post(me, self._posted, now, payload, topics, sequences, 0))

    def receive(self, sender: i64, post: Post) -> None:
        """A copy has come."""
        if publication_key(post.source, post.number) in self._seen:
            self.duplicates += 1
        else:
            self.firsts += 1
            self.hops_of_first += post.hops
            self._handle(sender, post)

    def _handle(self, sender: i64, post: Post) -> None:
        """Deliver and relay an event that is new here (Algorithm 3, lines 4 to 12)."""
        self._remember(publication_key(post.source, post.number))
        targets: dict[i64, bool] = {}
        is_wanted = False
        for position in range(len(post.topics)):
            topic = post.topics[position]
            view = self._views.get(topic)
            if view is None:
                continue
            is_wanted = True
            sequence = post.sequences[position]
            self.environment.deliver(Publication(post.source, sequence, post.timestamp, post.payload, topic, NONE))
            for peer in view.neighbours():
                targets[peer] = True
        if not is_wanted:
            self.environment.unwanted(post)
            return
        copy = Post(post.source, post.number, post.timestamp, post.payload, post.topics, post.sequences, post.hops + 1)
        for peer in targets:
            if peer == sender:
                self.echoes += 1
            else:
                self.sent += 1
                self.environment.send(peer, copy)

    def _remember(self, key: i64) -> None:
        if len(self._seen) >= self._remembered:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = True


class SimpleFlood(CrosspostFlood):
    """An event that is posted to several topics is flooded in each of them by itself."""

    def post(self, payload: bytes, topics: list[i64]) -> i64:
        first: i64 = 0
        for topic in topics:
            sequence = self.next_sequence(topic)
            self.begin(payload, append(vec[i64](), topic), append(vec[i64](), sequence))
            if first == 0:
                first = sequence
        return first
