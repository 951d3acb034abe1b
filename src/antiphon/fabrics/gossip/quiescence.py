"""When the periodic work of a topic stops at a node, and what starts it again.

A topic on which nothing happens costs nothing. A node counts the periods without news. After ``patience`` of them it
compares what it has with a seed (:mod:`antiphon.fabrics.gossip.anti_entropy`), and stops the timer of the topic when
nothing is missing. Anything new starts the timer again, and what was compared before does not count any more.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.reach import Reach
from antiphon.fabrics.gossip.seeds import MOST_ATTEMPTS, RELAY_PERIODS, waiting_periods
from antiphon.kernel.process import Environment


@final
class Quiescence:
    """Whether one topic is awake at one node, for how long nothing has happened, and what was compared since then."""

    def __init__(self, environment: Environment, topic: i64, options: BrisaOptions, reach: Reach) -> None:
        self._environment: Final[Environment] = environment
        self._topic: Final[i64] = topic
        self._period: Final[i64] = options.period
        self._patience: Final[i64] = options.patience
        self._reach: Final[Reach] = reach
        self.is_ticking: bool = False
        # Periods without news.
        self.quiet: i64 = 0
        # Comparisons before silence since something happened, and how quiet it must be for the next one.
        self.comparisons: i64 = 0
        self._compare_after: i64 = 0
        self.has_compared: bool = False
        # Comparisons that this node has asked for, and how many of them before something happened.
        self.questions: i64 = 0
        self._stale_questions: i64 = 0

    # The timer.

    def begin(self, delay: i64) -> None:
        """Start the timer, if it does not run."""
        if not self.is_ticking:
            self.is_ticking = True
            self._environment.set_timer(delay, self._topic)

    def wake(self) -> None:
        """Something has happened: go on telling neighbours, and compare again before falling silent."""
        self.quiet = 0
        self.comparisons = 0
        self._compare_after = 0
        self.has_compared = False
        self._stale_questions = self.questions
        self.stir()

    def stir(self) -> None:
        """There is a pulse to tell the neighbours of: speak a few times before falling silent."""
        self.quiet = min(self.quiet, max(0, self._patience + 1 - RELAY_PERIODS))
        if not self.is_ticking:
            self.is_ticking = True
            self._reach.woke(self._environment.now())
            self._environment.set_timer(1 + self._environment.random().below(self._period), self._topic)

    def stop(self) -> None:
        """Let the timer run out."""
        self.is_ticking = False

    def next_period(self) -> None:
        """Set the timer for one more period."""
        self._environment.set_timer(self._period, self._topic)

    def is_quiet(self) -> bool:
        """Whether nothing has happened for longer than the patience."""
        return self.quiet > self._patience

    # Comparisons.

    def begin_comparison(self) -> bool:
        """Whether the next comparison before silence is due; if so it counts from now on."""
        if self.quiet < self._compare_after or self.has_given_up_comparing():
            return False
        self._compare_after = self.quiet + waiting_periods(self.comparisons)
        self.comparisons += 1
        return True

    def has_given_up_comparing(self) -> bool:
        """Whether no seed has answered, however often one was asked."""
        return self.comparisons >= MOST_ATTEMPTS

    def next_question(self) -> i64:
        """The number of a comparison that this node asks for now."""
        self.questions += 1
        return self.questions

    def has_asked(self) -> bool:
        """Whether this node has asked for a comparison since something happened."""
        return self.questions > self._stale_questions

    def nothing_missing(self, question: i64) -> None:
        """A seed has nothing that is missing here; an answer to an earlier question says nothing of what came since."""
        if question > self._stale_questions:
            self.has_compared = True
