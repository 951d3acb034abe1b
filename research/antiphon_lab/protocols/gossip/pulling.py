"""What the rivals of BRISA that pull have in common: a node says what it has, and gets what it lacks.

Anti-entropy (thesis of M. Matos, section 2.3.3): the asker names everything that it has, up to a number per source and
single publications beyond it; the answer is what it lacks, the oldest first, at most ``batch`` publications at a time.
Whoever is asked sees too whether the asker has something that it lacks itself. If it was silent it wakes up and asks
back. Who asks for nothing, with a batch of 0, wants only to be asked.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import Fetch
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.retransmit import serve
from antiphon.fabrics.gossip.stream import Stream, stream_of
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Message, publication_key
from antiphon.kernel.process import Environment

MOST_SINGLES: Final = 100
"""So many publications beyond a gap are named for each source; what else came after it may come again."""


@mypyc_attr(acyclic=True)
class Pull(Message):
    """The sender has these publications, written as frontiers are, and wants up to ``batch`` of those that it lacks.

    ``is_silent`` if it may not ask again unless it hears of something new: it has asked a contact to compare since
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
    """How one node asks others for what it lacks of a topic, up to ``batch`` publications at a time, and answers."""

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
        """Ask somebody for what it has and this node lacks."""
        self._send(peer, self._batch)

    def call(self, peer: i64) -> None:
        """Let somebody ask back."""
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
        """Answer with what the asker lacks."""
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
                    serve(self._environment, stream, sender, Fetch(stream.source, self._topic, wanted))

    def _note(self, sender: i64, stream: Stream, number: i64) -> None:
        """Somebody has everything of a source up to a number."""
        stream.peer_has(sender, number)
        if stream.hear(number):
            self._quiescence.wake()


def lacking(stream: Stream, complete: i64, singles: set[i64], most: i64) -> vec[i64]:
    """The first numbers of a stream that are here and not at somebody who has all up to ``complete``, and singles."""
    wanted = vec[i64]()
    number = max(complete + 1, stream.oldest_kept)
    while number <= stream.heard and len(wanted) < most:
        if number in stream.kept and publication_key(stream.source, number) not in singles:
            wanted = append(wanted, number)
        number += 1
    return wanted
