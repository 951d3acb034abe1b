"""Topics in which something is wrong, or was a while ago: their members compare what they have, round by round."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.topic import Topic
from antiphon.kernel.pending_replies import PendingReplies
from antiphon.kernel.process import Environment

COMPARING: Final[i64] = 1
"""The name of the timer."""


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
        # Who has not answered the question to all, and what those who answered have had and have not any more. What was
        # gone when the question was asked is given up when all have answered. Of what is said to be gone later, others
        # may have spoken before it was published.
        self.unanswered: PendingReplies | None = None
        self.gone: dict[i64, i64] = {}
        self.gone_when_asked: dict[i64, i64] = {}


@final
class RestlessTopics:
    """The restless topics of one node, and the timer of their rounds."""

    def __init__(self, environment: Environment, compare_ticks: i64) -> None:
        self._environment: Final[Environment] = environment
        self._compare_ticks: Final[i64] = compare_ticks
        self._restless: dict[i64, Unrest] = {}
        self._is_timer_set: bool = False

    def of(self, topic: Topic) -> Unrest | None:
        """What is wrong with a topic, if anything is."""
        return self._restless.get(topic.name)

    def disturb(self, topic: Topic) -> Unrest:
        """Something has changed that others may not know."""
        unrest = self._restless.get(topic.name)
        if unrest is None:
            unrest = self._look_after(topic)
        unrest.quiet_rounds = 0
        unrest.pause = 0
        unrest.is_doubt = False
        return unrest

    def doubt(self, topic: Topic) -> None:
        """Something waits or is lacking, which may be on its way."""
        if topic.name not in self._restless:
            self._look_after(topic).is_doubt = True

    def rest(self, topic: Topic) -> None:
        """Nothing is wrong any more."""
        del self._restless[topic.name]

    def _look_after(self, topic: Topic) -> Unrest:
        unrest = Unrest()
        self._restless[topic.name] = unrest
        if not self._is_timer_set:
            self._set_timer()
        return unrest

    def _set_timer(self) -> None:
        self._is_timer_set = True
        self._environment.set_timer(self._compare_ticks, COMPARING)

    def begin_round(self) -> list[tuple[i64, Unrest]]:
        """The timer has run out; the answer is which topics are restless."""
        self._is_timer_set = False
        return list(self._restless.items())

    def end_round(self) -> None:
        """If topics are still restless there is another round."""
        if len(self._restless) > 0:
            self._set_timer()

    def text(self) -> str:
        """Everything as text, for those who compare states."""
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
        return str(restless)
