"""Unsettled topics: something is wrong in them, or was a while ago, and their members compare digests in rounds."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.topic import CubeTopic
from antiphon.kernel.pending_replies import PendingReplies
from antiphon.kernel.process import Environment

COMPARING: Final[i64] = 1
"""The name of the timer."""


@final
class Unsettled:
    """A topic in which something is wrong, or was a while ago."""

    def __init__(self) -> None:
        self.quiet_rounds: i64 = 0
        self.pause: i64 = 0
        # Whether all there is to it is that something waits, for what is on its way if nothing is wrong.
        self.is_doubt: bool = False
        # What is missing, by the key of the first of its source, and since when.
        self.missing_since: dict[i64, i64] = {}
        # Who has not answered the question to all, and what those who answered have had and have not any more. What was
        # gone when the question was asked is given up when all have answered. Of what is said to be gone later, others
        # may have spoken before it was published.
        self.unanswered: PendingReplies | None = None
        self.question: i64 = 0
        self.gone: dict[i64, i64] = {}
        self.gone_when_asked: dict[i64, i64] = {}

    def note_missing(self, firsts: list[i64], now: i64) -> None:
        """The first publication that is missing of each source, by its key."""
        before = self.missing_since
        self.missing_since = {first: before.get(first, now) for first in firsts}


@final
class UnsettledTopics:
    """The restless topics of one node, and the timer of their rounds."""

    def __init__(self, environment: Environment, compare_ticks: i64) -> None:
        self._environment: Final[Environment] = environment
        self._compare_ticks: Final[i64] = compare_ticks
        self._unsettled: dict[i64, Unsettled] = {}
        self._is_timer_set: bool = False
        self._questions: i64 = 0

    def of(self, topic: CubeTopic) -> Unsettled | None:
        """The state of a topic that is unsettled; None if it is settled."""
        return self._unsettled.get(topic.name)

    def disturb(self, topic: CubeTopic) -> Unsettled:
        """Something has changed that others may not know."""
        unsettled = self._unsettled.get(topic.name)
        if unsettled is None:
            unsettled = self._begin(topic)
        unsettled.quiet_rounds = 0
        unsettled.pause = 0
        unsettled.is_doubt = False
        return unsettled

    def begin_question(self, unsettled: Unsettled, peers: list[i64]) -> None:
        """All peers are asked; answers to earlier questions do not count."""
        self._questions += 1
        unsettled.question = self._questions
        unsettled.unanswered = PendingReplies(peers)
        unsettled.gone_when_asked = dict(unsettled.gone)

    def doubt(self, topic: CubeTopic) -> None:
        """Something waits or is lacking, which may be on its way."""
        if topic.name not in self._unsettled:
            self._begin(topic).is_doubt = True

    def rest(self, topic: CubeTopic) -> None:
        """Nothing is wrong any more."""
        del self._unsettled[topic.name]

    def _begin(self, topic: CubeTopic) -> Unsettled:
        unsettled = Unsettled()
        self._unsettled[topic.name] = unsettled
        if not self._is_timer_set:
            self._set_timer()
        return unsettled

    def _set_timer(self) -> None:
        self._is_timer_set = True
        self._environment.set_timer(self._compare_ticks, COMPARING)

    def begin_round(self) -> list[tuple[i64, Unsettled]]:
        """The timer has run out; the answer is which topics are restless."""
        self._is_timer_set = False
        return list(self._unsettled.items())

    def end_round(self) -> None:
        """If topics are still restless there is another round."""
        if len(self._unsettled) > 0:
            self._set_timer()

    def text(self) -> str:
        """The state as text, to compare states."""
        unsettled_topics = [
            (
                name,
                unsettled.quiet_rounds,
                unsettled.pause,
                unsettled.is_doubt,
                sorted(unsettled.missing_since),
                sorted(unsettled.gone.items()),
            )
            for name, unsettled in sorted(self._unsettled.items())
        ]
        return str(unsettled_topics)
