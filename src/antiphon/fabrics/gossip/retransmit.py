"""Sends publications again to nodes that lack them, from the buffer or from the log, and says which are gone.

Buffers keep some publications of each source for neighbours that are late. A node that was cut off for longer asks
for publications that are in no buffer any more; a node that has a log sends them from there. A node that has not kept
them asks its neighbours in turn (:class:`Searches`). A publication that no log holds may be gone; the asker is told so
(:mod:`antiphon.fabrics.gossip.recovery`, *Loss*).
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import Activate, FetchRequest, FetchResponse, NotKept
from antiphon.fabrics.gossip.stream import Stream, stream_of
from antiphon.kernel.message import Publication, publication_key
from antiphon.kernel.process import Environment

MOST_SOUGHT: Final = 1024
"""For so many publications of a topic a node asks its neighbours at a time, on behalf of others."""

MOST_ASKERS: Final = 16
"""So many nodes are remembered that want the same one; others ask again."""

MOST_GONE: Final = 1024
"""Of so many publications beyond those that were asked for a node says that they are gone."""

SEARCH_HOPS: Final = 3
"""So far a question travels through nodes that have not kept what is asked for."""


def serve(environment: Environment, stream: Stream, asker: i64, fetch: FetchRequest) -> vec[i64]:
    """Send those of the requested publications that the buffer or the log holds; say up to which others are gone.

    The word covers all requested numbers from the first one on, so it ends before the first number that this node has
    sent or never had: other nodes may have that one. If this node has none of them, its word also covers numbers that
    follow, so that a node that misses many need not ask for each of them. The result lists the requested numbers that
    count as received here and are gone.
    """
    has_sent = False
    is_gone = True
    gone: i64 = 0
    forgotten = vec[i64]()
    for number in fetch.numbers:
        publication = still_there(environment, stream, fetch.topic, number)
        if publication is not None:
            has_sent = True
            environment.send(asker, FetchResponse(publication))
        elif stream.is_here(number):
            forgotten = append(forgotten, number)
        is_gone = is_gone and publication is None and stream.had(number)
        if is_gone:
            gone = number
    if gone > 0:
        if not has_sent:
            gone = last_gone(environment, stream, fetch.topic, gone)
        environment.send(asker, NotKept(fetch.source, gone, fetch.topic))
    return forgotten


def last_gone(environment: Environment, stream: Stream, topic: i64, gone: i64) -> i64:
    """The last of the numbers that were here and are gone, from one on without a gap."""
    last = gone + MOST_GONE
    while gone < last and stream.is_here(gone + 1) and still_there(environment, stream, topic, gone + 1) is None:
        gone += 1
    return gone


def serve_after_leaving(environment: Environment, asker: i64, fetch: FetchRequest, published: i64) -> None:
    """Serve a topic that this node has left: from the log, and with its word for what it has ``published`` itself."""
    left = Stream(fetch.source)
    if fetch.source == environment.identifier:
        left.start_from(published)
    for number in fetch.numbers:
        read_logged = environment.read_logged(fetch.topic, fetch.source, number)
        if isinstance(read_logged, Publication):
            left.take(read_logged)
    serve(environment, left, asker, fetch)


@final
class Searches:
    """Asks neighbours for publications that this node has not kept, on behalf of nodes that lack them.

    A node lacks something, and all its neighbours had it and forgot it; somebody else holds it, in its log or because
    it has lost a neighbour. The first do not ask any more, so nothing would lead from one to the other. A node asks for
    a number once in ``lifetime`` ticks for all that want it, and remembers a limited number of questions.
    """

    def __init__(self, environment: Environment, topic: i64, lifetime: i64) -> None:
        self._environment: Final[Environment] = environment
        self._topic: Final[i64] = topic
        self._lifetime: Final[i64] = lifetime
        self._askers: Final[dict[i64, list[i64]]] = {}
        self._begun: i64 = 0

    def begin(self, asker: i64, source: i64, numbers: vec[i64], hops: i64, neighbours: list[i64]) -> None:
        """Ask all neighbours for numbers that were here, and remember the asker."""
        now = self._environment.now()
        if now - self._begun > self._lifetime:
            self._begun = now
            self._askers.clear()
        sought = vec[i64]()
        for number in numbers:
            askers = self._askers.get(publication_key(source, number))
            if askers is not None:
                if asker not in askers and len(askers) < MOST_ASKERS:
                    askers.append(asker)
            elif len(self._askers) < MOST_SOUGHT:
                self._askers[publication_key(source, number)] = [asker]
                sought = append(sought, number)
        if len(sought) > 0:
            for peer in neighbours:
                if peer != asker:
                    self._environment.send(peer, FetchRequest(source, self._topic, sought, hops - 1))

    def found(self, publication: Publication) -> None:
        """A publication has come that may be sought."""
        if len(self._askers) > 0:
            askers = self._askers.pop(publication_key(publication.source, publication.sequence), None)
            if askers is not None:
                for asker in askers:
                    self._environment.send(asker, FetchResponse(publication))


@final
class GossipRetransmission:
    """Sends publications of one topic again, to nodes that ask for them and to new children."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        neighbours: list[i64],
        streams: dict[i64, Stream],
        search_lifetime: i64,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._neighbours: Final[list[i64]] = neighbours
        self._streams: Final[dict[i64, Stream]] = streams
        self._searches: Final = Searches(environment, topic, search_lifetime)

    def on_fetch(self, sender: i64, fetch: FetchRequest) -> None:
        """Somebody lacks publications: send what is here, and look for what is not."""
        forgotten = serve(self._environment, stream_of(self._streams, fetch.source), sender, fetch)
        if fetch.hops > 0 and len(forgotten) > 0:
            self._searches.begin(sender, fetch.source, forgotten, fetch.hops, self._neighbours)

    def on_activate(self, sender: i64, message: Activate) -> None:
        """A new child has all of the root up to a number: send what follows."""
        for publication in stream_of(self._streams, message.source).kept_after(message.last):
            self._environment.send(sender, FetchResponse(publication))

    def found(self, publication: Publication) -> None:
        """A publication has come again that others may have asked this node to look for."""
        self._searches.found(publication)


def still_there(environment: Environment, stream: Stream, topic: i64, number: i64) -> Publication | None:
    """A publication that was here."""
    kept = stream.kept.get(number)
    if kept is not None:
        return kept
    read_logged = environment.read_logged(topic, stream.source, number)
    return read_logged if isinstance(read_logged, Publication) else None
