"""Measures what EpTO would have to be told: how long messages take, and how many nodes there are.

**Delay.** A probe goes to one sampled node per round and comes back; half of the time is taken for one way. The median
is followed step by step: up when a sample is above it, down when below, by a small part of it. No list is kept.

**Size.** Every node draws ``DRAWS`` numbers from the exponential distribution with mean 1, and all nodes keep the
smallest of each, which travel with the probes (Baquero, Almeida and Menezes, 2009). The smallest of ``n`` such numbers
is exponential with mean ``1 / n``. So ``(DRAWS - 1) / sum(smallest)`` is an unbiased estimate of ``n``, with a relative
standard deviation of ``1 / sqrt(DRAWS - 2)``, 13 % for 64 draws. Both sides of a probe keep the smaller of each, so
after about ``log2 n`` rounds all have the same. A node that leaves would count for ever; therefore numbers are drawn
anew in each **epoch**, which lasts some rounds and begins at a node when it ends here or has begun anywhere else.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.analysis import ceiling, published_ttl
from antiphon.kernel.randomness import RandomStream

DRAWS: Final = 64
ONE: Final = 4294967296.0
"""Numbers are kept as multiples of this part of 1."""

STEPS: Final[i64] = 32
"""By which part of itself the median moves per sample."""


@final
class DelayEstimate:
    """The median of the time that a message takes, in ticks; at first what was ``assumed``."""

    def __init__(self, assumed: i64) -> None:
        self.median: i64 = assumed

    def add(self, ticks: i64) -> None:
        """One more measurement."""
        step = max(1, self.median // STEPS)
        if ticks > self.median:
            self.median += min(step, ticks - self.median)
        else:
            self.median = max(1, self.median - min(step, self.median - ticks))


@final
class SizeEstimate:
    """How many nodes there are. Before the first epoch has ended it is what was ``assumed``."""

    def __init__(self, random: RandomStream, assumed: i64) -> None:
        self._random: Final[RandomStream] = random
        self.nodes: i64 = assumed
        self.epoch: i64 = 0
        self.rounds: i64 = 0
        self.minima: vec[i64] = self._drawn()

    def _drawn(self) -> vec[i64]:
        numbers = vec[i64](capacity=DRAWS)
        for _ in range(DRAWS):
            numbers = append(numbers, i64(int(-log(1.0 - self._random.uniform()) * ONE)))
        return numbers

    def round_passed(self) -> None:
        """One more round; at the end of an epoch there is a new estimate."""
        self.rounds += 1
        if self.rounds >= self.epoch_rounds():
            self._begin(self.epoch + 1)

    def epoch_rounds(self) -> i64:
        """Long enough for the numbers to reach everybody."""
        return 3 * published_ttl(self.nodes) + 10

    def _begin(self, epoch: i64) -> None:
        # A node that a new epoch reaches before the numbers have come has nothing to estimate from.
        if 2 * self.rounds >= self.epoch_rounds():
            self.nodes = self.current()
        self.epoch = epoch
        self.rounds = 0
        self.minima = self._drawn()

    def current(self) -> i64:
        """The estimate from the numbers so far."""
        total = 0.0
        for number in self.minima:
            total += float(number)
        return max(1, i64(int(float(DRAWS - 1) * ONE / max(total, 1.0) + 0.5)))

    def merge(self, epoch: i64, minima: vec[i64]) -> None:
        """Another node's numbers."""
        if epoch > self.epoch:
            self._begin(epoch)
        if epoch < self.epoch:
            return
        # The vector may be on its way in a message, so a new one takes its place.
        merged = vec[i64](capacity=DRAWS)
        position: i64 = 0
        while position < DRAWS:
            merged = append(merged, min(self.minima[position], minima[position]))
            position += 1
        self.minima = merged

    def cautious(self) -> i64:
        """An estimate that is too small in one case of forty: two standard deviations above."""
        return ceiling(float(self.nodes) * (1.0 + 2.0 / sqrt(float(DRAWS - 2))))
