"""How far an event has spread after some rounds, and the probabilities that follow from it.

**Who knows an event.** In a round everybody who relays an event sends it to ``fanout`` of the ``n - 1`` others, each
copy lost with probability ``loss``. So one relaying node reaches a given other with probability
``q = fanout (1 - loss) / (n - 1)``, and a node that does not know the event hears of it from ``j`` relaying ones with
probability ``1 - (1 - q)**j``. Where whoever knows the event relays it in every round, the number ``i`` of those who
know is a Markov chain: of the ``n - i`` others each hears of it with probability ``1 - (1 - q)**i``. It is computed for
small systems as if they did so independently of each other, which is exact where the fanout is everybody, and a little
cautious elsewhere: one node's copies go to different nodes. In large systems the share ``x`` of those who know and the
share ``y`` of those who relay are near their means: ``x' = 1 - (1 - x)(1 - q)**(n y)``. As published only those relay
who have received the event again in the last round: ``y' = 1 - (1 - q)**(n y)``. The number of those who know nothing
is then about Poisson.

**Stable.** An event is stable when everybody knows it: with probability ``S(t) = P(i = n)`` after ``t`` rounds.

**Age is not rounds.** Rounds of different nodes are not in step, and the age of an event counts the relays of the
quickest way that it took, so others may be behind. A copy arrives ``delay`` after it was sent and is relayed at most
one period later. So an ordinary hop takes up to ``period + delay`` where age grows by one in a period, and an event of
age ``a`` counts as ``a * period / (period + delay)`` rounds. Where messages take about a period this is cautious. Where
they take a small part of it, age runs ahead of rounds: a copy may meet several nodes shortly before theirs. So nodes
do not stop relaying by age, but after as many rounds as the event was short of ``ttl`` relays when it came first. With
that events reach everybody nearly as often as ``S(ttl)`` says, also where rounds are not in step
(:mod:`antiphon.torture.schedules.epto_expectation` plays it through).

**Deliverable.** An event may be delivered when no event that comes before it can still arrive. Let ``r`` events begin
per round in the whole system. With a global clock those before it began before it: one that began ``k`` rounds earlier
is unknown here with probability ``1 - x(a + k)``. The number of the unknown is about Poisson with mean
``r * sum(1 - x(a + k) for k >= 0)``, and the event is deliverable with probability ``exp`` of minus that. With a
logical clock an event may come before this one as long as its publisher does not know this one: to the mean are added
those that began ``k`` rounds after it, ``r * sum((1 - x(k)) (1 - x(a - k)) for 0 <= k < a)``.
"""

from __future__ import annotations

from math import comb, exp, log
from typing import Final, final

from mypy_extensions import i64

LARGEST_EXACT: Final[i64] = 64
"""Up to this size the chain is computed, above it the mean."""

MOST_ROUNDS: Final[i64] = 256


@final
class Spread:
    """The spread of one event in a system of ``nodes``. Rounds may be fractions: between two the line is straight."""

    def __init__(self, nodes: i64, fanout: i64, loss: float = 0.0, persists: bool = True) -> None:
        self.nodes: Final[i64] = nodes
        self.fanout: Final[i64] = fanout if fanout < nodes - 1 else nodes - 1
        reach = float(self.fanout) * (1.0 - loss) / float(nodes - 1) if nodes > 1 else 0.0
        self._missed: Final[float] = 1.0 - reach
        self._known: Final[list[float]] = []
        self._stable: Final[list[float]] = []
        if persists and nodes <= LARGEST_EXACT:
            self._follow_chain()
        else:
            self._follow_mean(persists)

    def known(self, rounds: float) -> float:
        """The mean share of nodes that know the event after so many rounds."""
        return between(self._known, rounds)

    def stable(self, rounds: float) -> float:
        """The probability that all know it."""
        return between(self._stable, rounds)

    def rounds_for(self, probability: float) -> i64:
        """After how many rounds all know it with a probability; -1 if that never happens."""
        for rounds in range(len(self._stable)):
            if self._stable[rounds] >= probability:
                return rounds
        return -1

    def deliverable(self, rounds: float, begun_per_round: float, is_logical: bool) -> float:
        """The probability that nothing that comes before the event can still arrive."""
        unknown = 0.0
        older = rounds
        while older < float(len(self._known)):
            unknown += 1.0 - self.known(older)
            older += 1.0
        if is_logical:
            younger = 0.0
            while younger < rounds:
                unknown += (1.0 - self.known(younger)) * (1.0 - self.known(rounds - younger))
                younger += 1.0
        return exp(-begun_per_round * unknown)

    def _follow_chain(self) -> None:
        """The distribution of the number of nodes that know, round by round, until it does not change."""
        size = int(self.nodes)
        steps = [self._step_from(informed) for informed in range(size + 1)]
        share = [0.0] * (size + 1)
        share[1] = 1.0
        for _ in range(MOST_ROUNDS):
            self._known.append(sum(number * chance for number, chance in enumerate(share)) / size)
            self._stable.append(share[size])
            following = [0.0] * (size + 1)
            for informed in range(1, size + 1):
                if share[informed] > 0.0:
                    for more, chance in enumerate(steps[informed]):
                        following[informed + more] += share[informed] * chance
            if following[size] - share[size] < 1e-15 and share[size] > 0.5:
                return
            share = following

    def _step_from(self, informed: int) -> list[float]:
        """With so many nodes that know: the probabilities that 0, 1, 2 ... more do in the next round."""
        others = int(self.nodes) - informed
        misses: float = self._missed**informed
        return [comb(others, more) * (1.0 - misses) ** more * misses ** (others - more) for more in range(others + 1)]

    def _follow_mean(self, persists: bool) -> None:
        size = float(self.nodes)
        known = 1.0 / size
        relaying = known
        for _ in range(MOST_ROUNDS):
            self._known.append(known)
            self._stable.append(exp(-size * (1.0 - known)) if self.nodes > 1 else 1.0)
            misses: float = self._missed ** (size * relaying)
            following = 1.0 - (1.0 - known) * misses
            relaying = following if persists else 1.0 - misses
            if following - known < 1e-15:
                return
            known = following


def between(values: list[float], place: float) -> float:
    """The value at a place of a list, on the line between its neighbours; beyond the end the last."""
    below = int(place)
    if below >= len(values) - 1:
        return values[len(values) - 1]
    share = place - float(below)
    return values[below] * (1.0 - share) + values[below + 1] * share


def published_fanout(nodes: i64) -> i64:
    """``ceil(2 e ln n / ln ln n)`` as published, at most everybody else (thesis, Lemma 7; Koldehofe 2002)."""
    others = nodes - 1 if nodes > 1 else 1
    if nodes < 4:
        return others
    size = log(float(nodes))
    wanted: i64 = ceiling(2.0 * 2.718281828459045 * size / log(size))
    return wanted if wanted < others else others


def published_ttl(nodes: i64) -> i64:
    """``ceil(log2 n)`` as published, at least 1."""
    rounds: i64 = 1
    while (1 << rounds) < nodes:
        rounds += 1
    return rounds


def ceiling(value: float) -> i64:
    """The next integer from a positive number up."""
    whole: i64 = i64(int(value))
    return whole if float(whole) >= value else whole + 1
