"""The seeds, as one node knows them, and how it finds out whether it is still connected with them.

Seeds (``contacts`` in the options) are nodes through which others enter; they belong to the overlay of every topic.
They are listed by seniority, the same way at all nodes. The first founds topics. Where nodes are given once and for
all, so are the seeds; where nodes come and go the host says which nodes they are (:meth:`Seeds.become`).

**Pulses.** An overlay may fall into parts that have the same. Comparing what there is does not show it, and what is
published later stays in one part. So a node that has lost a neighbour is in *doubt*. Before it falls silent it asks a
seed for a pulse, a number that the seed raises and that travels in periodic messages, from neighbour to neighbour and
in no other way. If the pulse comes, neighbours connect the node with the seed. If not, it enters the overlay again
through the seed. One pulse serves all nodes that doubt at that time. Where a topic is never silent, a node in doubt
asks after ``BUSY_PATIENCE`` times the patience: parts in which much is published would stay apart otherwise.

A part of the overlay that has come off holds a node that lost a neighbour, so some node in it doubts. If there is a
seed in it too, that one is asked. A seed that is asked by a node that is none doubts itself and asks the seeds before
it in the list of all; the first never doubts. So every part in which a node doubts is connected with the first seed in
the end.

*Why a pulse is new enough.* A node that lost a neighbour asks ``patience`` periods later at the earliest. A seed
answers with a pulse that is younger than half of that. It was raised after the neighbour was lost, and came over what
was left. Pulses are times of the seed's clock, so that those of a new life of it are higher than those of an old one.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.process import NO_NODE

MOST_ATTEMPTS: Final = 64
"""So often a node tries to join, to fetch a publication or to compare with a seed before it gives up."""

USUAL_WAIT: Final = 8
"""So many periods lie between two attempts; before that each wait is twice as long as the one before.

A seed that many turn to at once answers late, and must not be asked again meanwhile by all of them.
"""

PERSISTENT_AFTER: Final = 40
"""From so many attempts on waits grow again, to double with every ``ATTEMPTS_PER_DOUBLING``: a network that was apart
for long may be for longer, and a node that gives up never hears of anything again."""

ATTEMPTS_PER_DOUBLING: Final = 4
LONGEST_DOUBLING: Final = 6

RELAY_PERIODS: Final = 3
"""So many periods a node that has nothing else to say tells its neighbours of a pulse."""

PULSE_PATIENCE: Final = 2
"""So many times the patience a pulse that was promised may take."""

BUSY_PATIENCE: Final = 2
"""After so many times the patience a node in doubt asks for a pulse, however much is published meanwhile."""


@final
class Seeds:
    """The seeds, shared by all topics of one node."""

    def __init__(self, me: i64, seeds: list[i64]) -> None:
        self._me: Final[i64] = me
        # All except this node itself.
        self.others: Final[list[i64]] = []
        self.first: i64 = NO_NODE
        self.includes_me: bool = False
        self.become(seeds)

    def become(self, seeds: list[i64]) -> None:
        """These are the seeds from now on."""
        self.others.clear()
        for seed in seeds:
            if seed != self._me:
                self.others.append(seed)
        self.first = seeds[0] if len(seeds) > 0 else NO_NODE
        self.includes_me = self._me in seeds

    def to_ask(self, attempt: i64) -> i64:
        """Whom to turn to: seeds ask their seniors first, others spread their questions."""
        return self.others[(attempt if self.includes_me else self._me + attempt) % len(self.others)]

    def is_first(self) -> bool:
        """Whether this node is the senior seed."""
        return self.first == self._me


@final
class Pulses:
    """The pulses of one topic, as one node knows them, and its doubt."""

    def __init__(self, me: i64, seeds: Seeds) -> None:
        self._me: Final[i64] = me
        self._seeds: Final[Seeds] = seeds
        # Pairs of a seed and its last pulse, by seed. Every beat carries them and is compared with them, so they
        # are made anew when one is new and shared otherwise.
        self._heard: vec[i64] = vec[i64]()
        self.is_in_doubt: bool = False
        self._promised_by: i64 = NO_NODE
        self._promised: i64 = 0
        self._waited: i64 = 0
        # Periods since the doubt began or a seed was last asked; how often one was, since the doubt began.
        self._unasked: i64 = 0
        self._questions: i64 = 0

    def doubt(self) -> None:
        """A neighbour has gone, or a node in doubt has asked; an earlier promise proves nothing."""
        if not self._seeds.is_first():
            if not self.is_in_doubt:
                self._questions = 0
            self.is_in_doubt = True
            self._promised_by = NO_NODE
            self._unasked = 0

    def is_due(self, patience: i64) -> bool:
        """A period has passed: whether a seed must be asked for a pulse although the topic is not silent."""
        self._unasked += 1
        is_late = self._unasked > BUSY_PATIENCE * patience
        return is_late and self.is_in_doubt and self._promised_by == NO_NODE

    def ask(self) -> i64:
        """A seed is asked: how many were before, since the doubt began."""
        self._unasked = 0
        self._questions += 1
        return self._questions - 1

    def asked(self, sender: i64, now: i64, oldest: i64) -> bool:
        """Somebody asks this seed for a pulse; true if a new one begins."""
        if sender not in self._seeds.others and self._promised_by == NO_NODE:
            self.doubt()
        last = self._last_of(self._me)
        if last >= 0 and now - last < oldest:
            return False
        self._heard = merged_pulses(self._heard, append(append(vec[i64](), self._me), now), NO_NODE)
        return True

    def as_pairs(self) -> vec[i64]:
        """The pairs that neighbours and askers are told; nobody changes them."""
        return self._heard

    def on_numbers(self, pairs: vec[i64]) -> bool:
        """A neighbour tells of pulses; true if one of them is new."""
        known = self._heard
        known_count: i64 = len(known)
        count: i64 = len(pairs)
        at: i64 = 0
        position: i64 = 0
        while position < count:
            seed = pairs[position]
            while at < known_count and known[at] < seed:
                at += 2
            is_known = at < known_count and known[at] == seed and known[at + 1] >= pairs[position + 1]
            if not is_known and seed != self._me:
                self._heard = merged_pulses(known, pairs, self._me)
                self._check_promise()
                return True
            position += 2
        return False

    def _last_of(self, seed: i64) -> i64:
        """The last pulse of a seed; -1 if there was none."""
        position: i64 = 0
        while position < len(self._heard):
            if self._heard[position] == seed:
                return self._heard[position + 1]
            position += 2
        return -1

    def promise(self, seed: i64, pairs: vec[i64]) -> None:
        """A seed has answered: its pulse is on its way, or has come."""
        position: i64 = 0
        while position < len(pairs):
            if pairs[position] == seed and self.is_in_doubt:
                self._promised_by = seed
                self._promised = pairs[position + 1]
                self._waited = 0
                self._check_promise()
            position += 2

    def _check_promise(self) -> None:
        if self._promised_by != NO_NODE and self._last_of(self._promised_by) >= self._promised:
            self._promised_by = NO_NODE
            self.is_in_doubt = False

    def is_waiting(self) -> bool:
        """Whether a pulse was promised and has not come."""
        return self._promised_by != NO_NODE

    def missed(self, patience: i64) -> i64:
        """A period has passed: the seed whose pulse has not come for so long that it never will, or NO_NODE."""
        if self._promised_by == NO_NODE:
            return NO_NODE
        self._waited += 1
        if self._waited <= PULSE_PATIENCE * patience:
            return NO_NODE
        seed = self._promised_by
        self._promised_by = NO_NODE
        return seed


def merged_pulses(one: vec[i64], other: vec[i64], excepted: i64) -> vec[i64]:
    """The later pulse of each seed; both are sorted by seed. Of one seed the other says nothing."""
    merged = vec[i64](capacity=len(one) + len(other))
    count: i64 = len(one)
    other_count: i64 = len(other)
    at: i64 = 0
    position: i64 = 0
    while at < count or position < other_count:
        if position < other_count and other[position] == excepted:
            position += 2
        elif position == other_count or (at < count and one[at] < other[position]):
            merged = append(append(merged, one[at]), one[at + 1])
            at += 2
        else:
            seed, pulse = other[position], other[position + 1]
            if at < count and one[at] == seed:
                pulse = max(pulse, one[at + 1])
                at += 2
            merged = append(append(merged, seed), pulse)
            position += 2
    return merged


def waiting_periods(attempts: i64) -> i64:
    """So many periods pass between an attempt, of which there were so many before, and the next one."""
    if attempts <= PERSISTENT_AFTER:
        return USUAL_WAIT if attempts > 3 else 1 << attempts
    return USUAL_WAIT << min(LONGEST_DOUBLING, (attempts - PERSISTENT_AFTER) // ATTEMPTS_PER_DOUBLING)
