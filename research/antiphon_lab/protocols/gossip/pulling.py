"""Shared by the rivals of BRISA that pull: a node lists its publications, and receives missing ones.

Anti-entropy (thesis of M. Matos, section 2.3.3): the asking node names everything that it has, up to a number per
source and single publications beyond it; the answer has missing publications, the oldest first, at most ``batch`` at a
time. The asked node sees too whether the asking one has something that it misses itself. If it was silent it wakes up
and asks back. A question with a batch of 0 only requests to be asked back.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import FetchRequest
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.retransmit import serve
from antiphon.fabrics.gossip.stream import Stream, stream_of
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, ProtocolMessage, publication_key
from antiphon.kernel.process import Environment

MOST_SINGLES: Final = 100
"""The most publications beyond a gap that are named for each source; others beyond it may arrive again."""


@mypyc_attr(acyclic=True)
class Pull(ProtocolMessage):
    """The sender has these publications, written as frontiers are, and wants up to ``batch`` missing ones.

    ``is_silent`` if it may not ask again unless it learns of something new: it has asked a contact to compare since
    something happened, or sleeps already. ``questions`` counts its comparisons so far.
    """

    def __init__(
        self, source: i64, topic: i64, frontier: vec[i64], batch: i64, is_silent: bool, questions: i64
    ) -> None:
        super().__init__(source, 0, topic)
        self.frontier: Final[vec[i64]] = frontier
        self.batch: Final[i64] = batch
        self.is_silent: Final[bool] = is_silent
        self.questions: Final[i64] = questions

    def entries_carried(self) -> i64:
        return len(self.frontier)


@final
class Pulling:
    """Asks other nodes for missing publications of a topic, up to ``batch`` at a time, and answers such questions."""

    def __init__(
        self, environment: Environment, topic: i64, streams: dict[i64, Stream], quiescence: Quiescence, batch: i64
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._streams: Final[dict[i64, Stream]] = streams
        self._quiescence: Final[Quiescence] = quiescence
        self._batch: Final[i64] = batch

    def pull(self, peer: i64) -> None:
        """Ask a node for its publications that are missing here."""
        self._send(peer, self._batch)

    def call(self, peer: i64) -> None:
        """Let a node ask back."""
        self._send(peer, 0)

    def _send(self, peer: i64, batch: i64) -> None:
        frontier = vec[i64]()
        for stream in self._streams.values():
            frontier = append(frontier, publication_key(stream.source, stream.received.complete))
            named: i64 = 0
            for number in stream.received.beyond():
                if named < MOST_SINGLES:
                    frontier = append(frontier, ~publication_key(stream.source, number))
                    named += 1
        quiescence = self._quiescence
        is_silent = not quiescence.is_ticking or quiescence.has_asked()
        self._environment.send(peer, Pull(self._me, self._topic, frontier, batch, is_silent, quiescence.questions))

    def on_pull(self, sender: i64, pull: Pull) -> None:
        """Answer with publications that the asking node misses."""
        complete: dict[i64, i64] = {}
        singles: set[i64] = set()
        was_silent = not self._quiescence.is_ticking
        for key in pull.frontier:
            if key < 0:
                singles.add(~key)
                continue
            source, number = key & SOURCE_MASK, key >> SOURCE_BITS
            complete[source] = number
            if number > 0:
                self._note(sender, stream_of(self._streams, source), number)
        if pull.batch == 0 or (was_silent and self._quiescence.is_ticking):
            self.pull(sender)
        left = pull.batch
        for stream in self._streams.values():
            if left > 0:
                wanted = lacking(stream, complete.get(stream.source, 0), singles, left)
                left -= len(wanted)
                if len(wanted) > 0:
                    serve(self._environment, stream, sender, FetchRequest(stream.source, self._topic, wanted))

    def _note(self, sender: i64, stream: Stream, number: i64) -> None:
        """A node has everything of a source up to a number."""
        stream.peer_has(sender, number)
        if stream.hear(number):
            self._quiescence.wake()


def lacking(stream: Stream, complete: i64, singles: set[i64], most: i64) -> vec[i64]:
    """The first numbers of a stream that are missing at a node that has all up to ``complete``, and singles."""
    wanted = vec[i64]()
    number = max(complete + 1, stream.oldest_kept)
    while number <= stream.heard and len(wanted) < most:
        if number in stream.kept and publication_key(stream.source, number) not in singles:
            wanted = append(wanted, number)
        number += 1
    return wanted
