"""The network model: what one hop costs and what may go wrong on it.

A copy waits for the sender's output server, which is FIFO and takes ``transmission`` ticks per copy whatever its size;
then it travels for the link's delay; then the receiver processes it for ``processing`` ticks, a pure delay and not a
server. So a copy sent at ``now`` by a node whose server is free at ``free`` is handled at
``max(now, free) + transmission + delay + processing`` (section 5.6.1 of the thesis; the reading that reproduces its
figures). Acknowledgements and other control messages can be exempted from the output server, as the published
experiments did, by ``charge_control=False``.

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
    """How long a copy travels from one node to another."""

    def draw(self, sender: i64, receiver: i64, random: RandomStream) -> i64:
        """The delay of one copy in ticks."""
        raise NotImplementedError

    def constant(self) -> i64:
        """The delay if it is the same for every copy, else -1; lets the engine skip the drawing."""
        return -1


class ConstantDelay(Delay):
    """The same for every copy."""

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


class Network:
    """The parameters of every hop."""

    def __init__(
        self,
        delay: Delay,
        transmission: i64 = 1,
        processing: i64 = 1,
        charge_control: bool = True,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        reordering_window: i64 = 0,
        detection: i64 = 1000,
        in_order: bool = False,
        notices_pauses: bool = False,
    ) -> None:
        for name, share in (("loss", loss), ("duplication", duplication), ("reordering", reordering)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name} is a probability from 0 to 1, not {share}")
        if transmission < 0 or processing < 0 or reordering_window < 0 or detection < 0:
            raise UsageError(
                "transmission, processing, reordering_window and detection are numbers of ticks and cannot be negative"
            )
        if reordering_window >= 1 << 31:
            raise UsageError(f"a reordering_window has at most 2147483647 ticks, not {reordering_window}")
        self.delay: Final[Delay] = delay
        self.transmission: Final[i64] = transmission
        self.processing: Final[i64] = processing
        self.charge_control: Final[bool] = charge_control
        self.loss: Final[float] = loss
        self.duplication: Final[float] = duplication
        self.reordering: Final[float] = reordering
        self.reordering_window: Final[i64] = reordering_window
        # How long after a watched link broke, or is back, those who watch it know.
        self.detection: Final[i64] = detection
        # Whether copies from one node to another never overtake each other, as on a connection.
        self.in_order: Final[bool] = in_order
        # Whether a node that is paused for longer than detection is lost to those who watch it, as live nodes are.
        self.notices_pauses: Final[bool] = notices_pauses

    def is_simple(self) -> bool:
        """Whether every copy travels for the same time and arrives exactly once, so that no number need be drawn."""
        if self.in_order and not self.charge_control:
            return False
        return self.delay.constant() >= 0 and self.loss == 0.0 and self.duplication == 0.0 and self.reordering == 0.0


class Cut:
    """A partition from ``start`` to ``end``: copies between different groups are lost.

    Nodes that are in no group form a group of their own. A one-way cut loses only what goes from the first group
    to others. Where groups are linked as a chain or a ring, those that are beside each other lose nothing: a node
    alone in the middle of a chain of three is a bridge. A node that stands still, when others have noticed
    (``is_standstill``), has lost its connections, however soon it goes on.
    """

    def __init__(
        self,
        start: i64,
        end: i64,
        groups: list[list[int]],
        one_way: bool = False,
        linked: str = "apart",
        is_standstill: bool = False,
    ) -> None:
        self.start: Final[i64] = start
        self.end: Final[i64] = end
        self.is_standstill: Final[bool] = is_standstill
        self._one_way: Final[bool] = one_way
        self._is_linked: Final[bool] = linked != "apart"
        # How far apart the first and the last are that reach each other; nowhere else are numbers so far apart.
        self._around: Final[i64] = len(groups) - 1 if linked == "ring" else 0
        self._group_of: dict[i64, i64] = {node: number for number, group in enumerate(groups, 1) for node in group}

    def is_between(self, one: i64, other: i64, now: i64) -> bool:
        """Whether at this moment nothing gets through in one of the two directions."""
        return self.severs(one, other, now, now) or self.severs(other, one, now, now)

    def severs(self, sender: i64, receiver: i64, departed: i64, arrived: i64) -> bool:
        """Whether a copy that was on the link during this time is lost."""
        if arrived < self.start or departed >= self.end:
            return False
        origin = self._group_of.get(sender, 0)
        goal = self._group_of.get(receiver, 0)
        if origin == goal or (origin != 1 and self._one_way):
            return False
        return not self._is_linked or not self._are_beside(origin, goal)

    def _are_beside(self, one: i64, other: i64) -> bool:
        """Whether two groups of a chain or a ring reach each other; who is in no group reaches nobody."""
        if one == 0 or other == 0:
            return False
        distance = one - other if one > other else other - one
        return distance == 1 or distance == self._around
