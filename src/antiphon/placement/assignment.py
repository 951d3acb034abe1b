"""Chooses the identifiers of nodes whose places are all known: at random, greedily, or by annealing.

* **random** is what a cluster gets whose nodes come in any order; improvements are measured against it.
* **greedy** fills the identifiers from 0 on, each with the place that adds least to the latencies so far.
* **annealed** exchanges two places again and again (simulated annealing, Kirkpatrick et al. 1983). An exchange that
  makes things worse is kept with a probability that falls with the temperature. It minimises the mean over all pairs.
* For the largest latency a second search starts from there. Exchanges that touch the longest way are tried, and kept
  where that gets shorter, or stays and the mean falls.

Everything follows from the seed. Work is done in steps, so that callers can show progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.tree_cost import TreeCost

PLACES_AT_MOST: Final = 1024
"""More places would take minutes, and gigabytes for the largest latency."""

EXCHANGES_PER_PLACE: Final = 16_000
"""Exchanges that annealing tries, for each place."""

STEPS: Final = 100
"""Temperatures, and steps of the second search."""

PATH_TRIALS_PER_STEP: Final = 160
"""Exchanges that a step of the second search tries; each costs a walk through all trees."""

START_SHARE: Final = 0.5
END_SHARE: Final = 0.002
"""The first and the last temperature, as shares of the mean change of an exchange at random."""

ANNEAL_STREAM: Final = 31
RANDOM_STREAM: Final = 32
GREEDY_STREAM: Final = 33
PATH_STREAM: Final = 34


def cost_of(delays_us: list[list[int]]) -> TreeCost:
    """The trees of as many nodes as there are places, with identifiers from 0 on."""
    if not 2 <= len(delays_us) <= PLACES_AT_MOST:
        raise UsageError(f"from 2 to {PLACES_AT_MOST} places can be assigned, not {len(delays_us)}")
    return TreeCost(full_or_partial(len(delays_us)), delays_us)


def at_random(places: int, seed: int) -> list[int]:
    """The place of each identifier, all equally likely."""
    random = RandomStream(seed, RANDOM_STREAM)
    found = list(range(places))
    for at in range(places - 1, 0, -1):
        other = int(random.below(at + 1))
        found[at], found[other] = found[other], found[at]
    return found


def greedily(cost: TreeCost, seed: int) -> list[int]:
    """The place of each identifier, chosen one after the other; the first place is drawn."""
    place_at: vec[i64] = vec[i64]([-1] * int(cost.count))
    free = list(range(int(cost.count)))
    place_at[0] = free.pop(int(RandomStream(seed, GREEDY_STREAM).below(cost.count)))
    member: i64 = 1
    while member < cost.count:
        best: i64 = 0
        least: i64 = -1
        at: i64 = 0
        while at < len(free):
            price = cost.cost_at(place_at, member, free[at])
            if least < 0 or price < least:
                least, best = price, at
            at += 1
        place_at[member] = free.pop(best)
        member += 1
    return [int(place) for place in place_at]


@final
class Annealing:
    """Improves an assignment in ``STEPS`` steps; ``best`` is the best so far."""

    def __init__(self, cost: TreeCost, start: Sequence[int], seed: int, effort: float = 1.0) -> None:
        self._cost: Final[TreeCost] = cost
        self._random: Final[RandomStream] = RandomStream(seed, ANNEAL_STREAM)
        self._exchanges: Final[i64] = max(1, int(EXCHANGES_PER_PLACE * effort * int(cost.count)) // STEPS)
        self._place_at: Final[vec[i64]] = vec[i64](list(start))
        self._total: i64 = cost.total(self._place_at)
        self._best_total: i64 = self._total
        self.best: list[int] = list(start)
        self._step: int = 0
        self._start: float = START_SHARE * self._mean_change()

    def _mean_change(self) -> float:
        """The mean size of a change by an exchange, over some exchanges that are taken back."""
        trials: i64 = 200
        size: i64 = 0
        trial: i64 = 0
        while trial < trials:
            one, other = self._random.below(self._cost.count), self._random.below(self._cost.count)
            change = self._cost.change_by_exchange(self._place_at, one, other)
            size += change if change > 0 else -change
            self._place_at[one], self._place_at[other] = self._place_at[other], self._place_at[one]
            trial += 1
        return max(1.0, float(size) / float(trials))

    def mean_us(self) -> float:
        """The mean latency of the best so far."""
        return float(self._best_total) / float(self._cost.pairs())

    def step(self) -> None:
        """Try many exchanges at one temperature."""
        temperature = self._start * (END_SHARE / START_SHARE) ** (self._step / (STEPS - 1))
        self._step += 1
        cost, place_at, random = self._cost, self._place_at, self._random
        count = cost.count
        trial: i64 = 0
        while trial < self._exchanges:
            trial += 1
            one, other = random.below(count), random.below(count)
            change = cost.change_by_exchange(place_at, one, other)
            if change > 0 and random.uniform() >= exp(-float(change) / temperature):
                place_at[one], place_at[other] = place_at[other], place_at[one]
                continue
            self._total += change
            if self._total < self._best_total:
                self._best_total = self._total
                self.best = [int(place) for place in place_at]


@final
class LongestWay:
    """Shortens the longest way of an assignment in ``STEPS`` steps; ``best`` is the best so far."""

    def __init__(self, cost: TreeCost, start: Sequence[int], seed: int, effort: float = 1.0) -> None:
        self._cost: Final[TreeCost] = cost
        self._random: Final[RandomStream] = RandomStream(seed, PATH_STREAM)
        self._trials: Final[i64] = max(1, int(PATH_TRIALS_PER_STEP * effort))
        self._place_at: Final[vec[i64]] = vec[i64](list(start))
        self.best: list[int] = list(start)
        self._total: i64 = cost.total(self._place_at)
        largest, publisher, receiver = cost.largest(self._place_at)
        self.largest_us: i64 = largest
        self._way: list[int] = []
        self._note_way(publisher, receiver)

    def _note_way(self, publisher: i64, receiver: i64) -> None:
        on_way = set(self._cost.way(self._place_at, publisher, receiver))
        self._way = [member for member, place in enumerate(self._place_at) if int(place) in on_way]

    def step(self) -> None:
        """Try exchanges of a node on the longest way with any other."""
        cost, place_at = self._cost, self._place_at
        trial: i64 = 0
        while trial < self._trials:
            trial += 1
            one: i64 = self._way[int(self._random.below(len(self._way)))]
            other = self._random.below(cost.count)
            change = cost.change_by_exchange(place_at, one, other)
            largest, publisher, receiver = cost.largest(place_at)
            if largest > self.largest_us or (largest == self.largest_us and change >= 0):
                place_at[one], place_at[other] = place_at[other], place_at[one]
                continue
            self._total += change
            self.largest_us = largest
            self._note_way(publisher, receiver)
        self.best = [int(place) for place in place_at]
