"""The law of synthetic universes: subscriptions drawn topic by topic, on one machine or on many.

The traces of section 3.3.1 of the thesis of M. Matos are not published, so this law replaces them. It has the three
properties that the thesis requires (section 3.3.2): the popularity of topics is a power law, so is the activity of
processes, and subscriptions are correlated. Every topic and every process belongs to one community. A topic has as many
distinct subscribers as it is popular, drawn one after the other: a process is drawn in proportion to its activity, and
``mix`` times as likely if it is of another community. Where topics are journals, a journal is of the community of its
owner.

The draws of a topic depend on the seed and on the number of the topic alone. So any topic of a universe can be drawn
from the seed: the jobs on Spark distribute topics over tasks, and still get the universe that one process gets alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from antiphon.kernel.errors import UsageError

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

FEWEST_SUBSCRIBERS = 30
"""Topics with fewer subscribers are no part of a universe (section 3.3.1)."""

ACTIVITY_STREAM, COMMUNITY_STREAM, POPULARITY_STREAM, TOPIC_COMMUNITY_STREAM, SUBSCRIBER_STREAM = range(5)

DENSE_SHARE = 4
"""A topic with more subscribers than one process in this many is drawn by visiting every process once."""
MOST_ROUNDS = 8
"""After so many rounds of draws with too many repetitions, the rest is drawn by visiting every process,"""
LOOKS_PER_DRAW = 32
"""if that takes at most so many visits for each draw that was made; else it is cheaper to continue drawing."""


@dataclass(frozen=True)
class Law:
    """How large a universe is, and how it is drawn. Exponents are those of densities."""

    name: str
    processes: int
    topics: int
    popularity_exponent: float
    largest_popularity: int
    activity_exponent: float
    largest_activity: float
    communities: int
    mix: float
    least_popularity: float = FEWEST_SUBSCRIBERS
    owned: bool = False
    """Whether topics are journals: topic ``i`` is that of process ``i``, and of its community."""

    def __post_init__(self) -> None:
        if min(self.processes, self.topics, self.communities, self.largest_popularity) < 1:
            raise UsageError(f"a universe has at least one process, topic and community, not {self.size_in_words()}")
        if min(self.popularity_exponent, self.activity_exponent) <= 1:
            raise UsageError("the exponent of a power law is above 1; thesis-like universes have 2 to 2.5")
        if not 0 <= self.mix <= 1:
            raise UsageError(f"mix is from 0 (communities apart) to 1 (no communities), not {self.mix:g}")
        if self.owned and self.topics > self.processes:
            raise UsageError(f"every journal has an owner: {self.topics:,} need as many processes; raise --processes")
        if self.least_popularity < 1:
            raise UsageError(f"a topic has at least 1 subscriber, not {self.least_popularity:g}")

    def size_in_words(self) -> str:
        """How large it is, for people."""
        return f"{self.processes:,} processes, {self.topics:,} topics, {self.communities:,} communities"

    def scaled(self, processes: int, topics: int | None = None) -> Law:
        """The same law for another size.

        Communities stay as large as they are, so there are more of them; the share of subscriptions that leave the
        community stays the same. Both decide how correlated topics are. The most popular topic keeps its share of all
        processes. Without a number of topics there are as many per process as before.
        """
        if processes < 1:
            raise UsageError(f"a universe has at least one process, not {processes}; raise --processes")
        factor = processes / self.processes
        communities = max(1, round(self.communities * factor))
        others = self.mix * (self.communities - 1)
        return replace(
            self,
            processes=processes,
            topics=max(1, round(self.topics * factor)) if topics is None else topics,
            largest_popularity=max(1, round(self.largest_popularity * factor)),
            communities=communities,
            mix=min(1.0, others / (communities - 1)) if communities > 1 else 1.0,
        )


WIKIPEDIA = Law(
    name="wikipedia",
    processes=1381,
    topics=576,
    popularity_exponent=2.5,
    largest_popularity=900,
    activity_exponent=2.0,
    largest_activity=2000,
    communities=10,
    mix=0.05,
)
"""Like the universe W8 of Table 3.1: chosen such that StaN has the gain of the thesis."""

LIVEJOURNAL = Law(
    name="livejournal",
    processes=4689,
    topics=253,
    popularity_exponent=2.0,
    largest_popularity=2000,
    activity_exponent=2.0,
    largest_activity=500,
    communities=10,
    mix=0.05,
    owned=True,
)
"""Like the universe L8 of Table 3.1, as far as one law can be."""

LAWS = {law.name: law for law in (WIKIPEDIA, LIVEJOURNAL)}


def law_named(name: str) -> Law:
    """The law of this name."""
    if name not in LAWS:
        raise UsageError(f"there is no law {name!r} of synthetic universes; choose one of {', '.join(LAWS)}")
    return LAWS[name]


def stream(seed: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Random numbers for one purpose; the same everywhere."""
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, 0, number]))


def scattered(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The same as :func:`antiphon.kernel.randomness.mix64`, for many numbers."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def power_law(random: Reals, least: float, exponent: float, largest: float) -> Reals:
    """Numbers of a power law from uniform ones of [0, 1)."""
    return np.minimum(largest, least * (1.0 - random) ** (-1.0 / (exponent - 1.0)))


class Population:
    """All processes, and the popularity of topics among them; made from a law and a seed.

    Processes are in the order of their communities, so that a draw, from a community or from all, is a look-up in one
    sum of activities.
    """

    def __init__(self, law: Law, seed: int) -> None:
        if not 0 <= seed < 1 << 63:
            raise UsageError(f"a seed is a number from 0 to 2**63 - 1, not {seed}")
        self.law = law
        self._seed = seed
        activity = power_law(
            stream(seed, ACTIVITY_STREAM).random(law.processes), 1.0, law.activity_exponent, law.largest_activity
        )
        community = (stream(seed, COMMUNITY_STREAM).random(law.processes) * law.communities).astype(np.int64)
        self._order: Integers = np.argsort(community, kind="stable")
        self._activity = activity[self._order]
        self._sums = np.concatenate(([0.0], np.cumsum(self._activity)))
        self._starts = np.searchsorted(community[self._order], np.arange(law.communities + 1))
        wanted = power_law(
            stream(seed, POPULARITY_STREAM).random(law.topics),
            law.least_popularity,
            law.popularity_exponent,
            law.largest_popularity,
        )
        self.popularity: Integers = np.minimum(wanted.astype(np.int64), law.processes)
        """How many subscribers each topic has."""
        drawn = (stream(seed, TOPIC_COMMUNITY_STREAM).random(law.topics) * law.communities).astype(np.int64)
        self.community_of_topic: Integers = community[: law.topics] if law.owned else drawn

    def subscribers(self, topic: int) -> Integers:
        """The processes that subscribe to a topic, in ascending order."""
        random = stream(self._seed, SUBSCRIBER_STREAM, topic)
        wanted, community = int(self.popularity[topic]), int(self.community_of_topic[topic])
        found: Integers = np.empty(0, np.int64)
        rounds = draws = 0
        while len(found) < wanted:
            tired = rounds >= MOST_ROUNDS and draws * LOOKS_PER_DRAW >= self.law.processes
            if tired or wanted * DENSE_SHARE >= self.law.processes:
                found = np.concatenate((found, self._rest(random, community, found, wanted - len(found))))
                break
            drawn = self._with_repeats(random, community, 2 * (wanted - len(found)))
            draws += len(drawn)
            # In the order in which they were drawn: that makes it a draw without repetition.
            both = np.concatenate((found, drawn))
            firsts = np.unique(both, return_index=True)[1]
            found = both[np.sort(firsts)][:wanted]
            rounds += 1
        return np.sort(self._order[found])

    def _with_repeats(self, random: np.random.Generator, community: int, count: int) -> Integers:
        """Draws in proportion to activity, with possible repetitions."""
        start, end = int(self._starts[community]), int(self._starts[community + 1])
        own = (1.0 - self.law.mix) * (self._sums[end] - self._sums[start])
        everybody = self.law.mix * self._sums[-1]
        inside = random.random(count) * (own + everybody) < own
        low = np.where(inside, self._sums[start], 0.0)
        high = np.where(inside, self._sums[end], self._sums[-1])
        places = np.searchsorted(self._sums, low + random.random(count) * (high - low), side="right") - 1
        # Values that rounding has put beyond an end belong to the last one before it.
        clipped: Integers = np.clip(places, np.where(inside, start, 0), np.where(inside, end, len(self._order)) - 1)
        return clipped

    def _rest(self, random: np.random.Generator, community: int, found: Integers, count: int) -> Integers:
        """Further processes beside those found: the ones with the earliest of exponential times."""
        weights = self._activity * self.law.mix
        start, end = int(self._starts[community]), int(self._starts[community + 1])
        weights[start:end] = self._activity[start:end]
        with np.errstate(divide="ignore"):
            times = -np.log1p(-random.random(len(weights))) / weights
        times[found] = np.inf
        return np.argpartition(times, count - 1)[:count]

    def subscriptions(self, first: int, end: int) -> tuple[Integers, Integers]:
        """The subscriptions to some topics in a row: processes and topics, by topic."""
        lists = [self.subscribers(topic) for topic in range(first, end)]
        topics = np.repeat(np.arange(first, end), [len(one) for one in lists])
        return np.concatenate([np.empty(0, np.int64), *lists]), topics
