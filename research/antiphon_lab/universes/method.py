"""How a small universe is taken from a large one: the method of section 3.3.1 of the thesis of M. Matos.

1. Some topics are drawn: the seed set.
2. Their subscribers are found.
3. The seed set is enlarged: by the journal of each of these (LiveJournal), or by a random topic of each (Wikipedia).
4. The subscribers of the enlarged set are the processes of the universe, and the enlarged set has its topics.
5. Topics with fewer than 30 subscribers are pruned, and processes without a topic too.
6. This is done a hundred times; the universe with the median ratio of topics to processes is kept.

The sentence behind step 4 can be read in two ways, and so can the one behind step 5. ``members`` chooses whether
the processes are the subscribers of the enlarged set, or those of the seed set; ``prune_by`` whether the subscribers in
the universe are counted, or those in the whole source. The defaults follow the text word by word.

All draws depend on the seed, the number of the candidate, and the process; so the job on Spark and the one in memory
draw the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64
from antiphon_lab.universes.files import Candidate
from antiphon_lab.universes.law import FEWEST_SUBSCRIBERS, Integers, scattered, stream

CANDIDATES = 100
"""How many universes of a size are made; section 3.3.1."""

SEED_STREAM = 32
Enlarge = Literal["own", "random"]
Members = Literal["enlarged", "seeds"]
PruneBy = Literal["universe", "source"]


@dataclass(frozen=True)
class Method:
    """The parameters of the method."""

    seeds: int | None
    """How many topics the seed set has; none for all."""
    enlarge: Enlarge = "random"
    members: Members = "enlarged"
    prune_by: PruneBy = "universe"
    fewest_subscribers: int = FEWEST_SUBSCRIBERS
    candidates: int = CANDIDATES
    seed: int = 1

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise UsageError(f"the seed set has at least one topic, not {self.seeds}; raise --seeds")
        if self.candidates < 1:
            raise UsageError(f"at least one universe is made, not {self.candidates}; raise --candidates")
        if self.fewest_subscribers < 1:
            raise UsageError(f"a topic has at least one subscriber, not {self.fewest_subscribers}; raise --prune")
        if not 0 <= self.seed < 1 << 63:
            raise UsageError(f"a seed is a number from 0 to 2**63 - 1, not {self.seed}")

    def seeds_of(self, topics: int) -> int:
        """How many of the topics are drawn."""
        if self.seeds is not None and self.seeds > topics:
            raise UsageError(f"there are {topics:,} topics and {self.seeds:,} are to be drawn; lower --seeds")
        return topics if self.seeds is None else self.seeds

    def distinct_candidates(self, topics: int) -> int:
        """How many universes are worth making: where all topics are seeds, all of them are the same."""
        return 1 if self.seeds_of(topics) == topics else self.candidates


def seed_topics(method: Method, candidate: int, topics: int) -> Integers:
    """The seed set of a candidate: topics by number."""
    count = method.seeds_of(topics)
    if count == topics:
        return np.arange(topics, dtype=np.int64)
    drawn = stream(method.seed, SEED_STREAM, candidate).random(topics)
    return np.argpartition(drawn, count)[:count]


def picked_positions(method: Method, candidate: int, processes: Integers, topics: Integers) -> Integers:
    """Which of its topics each process adds: a position below its number of topics."""
    start = np.uint64(mix64(mix64(method.seed + GOLDEN_GAMMA) + (candidate + 1) * GOLDEN_GAMMA))
    words = scattered(start + processes.astype(np.uint64) * np.uint64(GOLDEN_GAMMA))
    # 53 bits make a number of [0, 1) that is never rounded up to 1.
    share = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (share * topics).astype(np.int64)


def median_of(candidates: list[Candidate]) -> int:
    """The number of the candidate with the median of topics per process; of two in the middle the smaller."""
    usable = [number for number, one in enumerate(candidates) if one.processes and one.topics]
    if not usable:
        raise UsageError(
            "no topic is left after pruning; draw more topics with --seeds, or lower the number of subscribers that a "
            "topic must have with --prune"
        )
    ordered = sorted(usable, key=lambda number: (candidates[number].ratio, number))
    return ordered[(len(ordered) - 1) // 2]
