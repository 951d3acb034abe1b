"""Delays of links: how long a copy travels from one node to another.

Delays are integers, at least 1 tick where they are random. Normal delays are drawn from a table of cumulative
probabilities with 32 bits each, so that all machines draw the same.
"""

from __future__ import annotations

from bisect import bisect_right
from math import erf, sqrt
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import RandomStream


@mypyc_attr(allow_interpreted_subclasses=True)
class Delay:
    """The delay of copies from one node to another."""

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        """The delay of one copy in ticks."""
        raise NotImplementedError

    def constant(self) -> i64:
        """The delay if it is the same for every copy, else -1; lets the engine skip the draw."""
        return -1


class ConstantDelay(Delay):
    """The same delay for every copy."""

    def __init__(self, ticks: i64) -> None:
        if ticks < 0:
            raise UsageError(f"a delay is a number of ticks and cannot be negative, not {ticks}")
        self._ticks: Final[i64] = ticks

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        return self._ticks

    def constant(self) -> i64:
        return self._ticks


class NormalDelay(Delay):
    """Normal with the given mean and standard deviation, rounded to ticks, at least 1; drawn anew for every copy."""

    def __init__(self, mean: float, deviation: float) -> None:
        if not (1 <= mean <= 1_000_000_000 and 0 < deviation <= 100_000):
            raise UsageError(
                f"a normal delay needs a mean from 1 to 1000000000 and a deviation above 0 and up to 100000, "
                f"not {mean} and {deviation}"
            )
        self._lowest: Final[i64] = max(1, int(mean - 7 * deviation))
        highest = int(mean + 7 * deviation) + 1
        # Entry k is the probability, in units of 2**-32, that the delay is at most lowest + k.
        self._cumulative: Final = [
            round(4294967296 * 0.5 * (1 + erf((int(self._lowest) + k + 0.5 - mean) / (deviation * sqrt(2)))))
            for k in range(highest - int(self._lowest))
        ]

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        return self._lowest + bisect_right(self._cumulative, random.word())


class QuantileDelay(Delay):
    """Given by points of its distribution: shares of copies, ascending from 0 to 1, and the delays they do not exceed.

    Between two points all delays are equally likely. Drawn anew for every copy.
    """

    def __init__(self, points: list[tuple[float, int]]) -> None:
        shares = [share for share, _ in points]
        ticks = [delay for _, delay in points]
        if len(points) < 2 or shares[0] != 0 or shares[-1] != 1 or sorted(set(shares)) != shares:
            raise UsageError(
                "a distribution needs ascending shares from 0 to 1; for example: [[0, 1], [0.5, 125], [1, 800]]"
            )
        if ticks[0] < 0 or sorted(ticks) != ticks:
            raise UsageError("the delays of a distribution are not negative and ascend; check their order")
        self._words: Final[vec[i64]] = vec[i64]([round(4294967296 * share) for share in shares])
        self._ticks: Final[vec[i64]] = vec[i64](ticks)

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        word = random.word()
        place: i64 = 1
        while self._words[place] <= word:
            place += 1
        low, high = self._ticks[place - 1], self._ticks[place]
        width = self._words[place] - self._words[place - 1]
        return low + ((word - self._words[place - 1]) * (high - low) + width // 2) // width


class LinkDelay(Delay):
    """Drawn once per link from another law and then kept; symmetric unless told otherwise.

    The draw depends on the seed and the two ends only, not on when the link is first used.
    """

    def __init__(self, law: Delay, seed: int, symmetric: bool = True) -> None:
        self._law: Final[Delay] = law
        self._seed: Final[int] = seed
        self._symmetric: Final[bool] = symmetric
        self._known: dict[i64, i64] = {}

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        low, high = sender, receiver
        if self._symmetric and low > high:
            low, high = high, low
        key = (low << 32) | high
        known = self._known.get(key, -1)
        if known < 0:
            known = self._law.draw(low, high, RandomStream(self._seed, low, high))
            self._known[key] = known
        return known


class MatrixDelay(Delay):
    """Given for every pair of places; node ``i`` is at place ``i mod places``, so a small matrix serves many nodes."""

    def __init__(self, rows: list[list[int]]) -> None:
        self._places: Final[i64] = len(rows)
        if len(rows) == 0 or any(len(row) != len(rows) for row in rows):
            raise UsageError("a delay matrix needs as many columns as rows, and at least one; check its lines")
        if any(ticks < 0 for row in rows for ticks in row):
            raise UsageError("a delay matrix cannot hold negative delays; check its lines")
        self._ticks: Final[vec[i64]] = vec[i64]([ticks for row in rows for ticks in row])

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        return self._ticks[(sender % self._places) * self._places + receiver % self._places]
