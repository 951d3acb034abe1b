"""Small universes out of large ones, in memory: the method of section 3.3.1 of the thesis of M. Matos.

The job on Spark (:mod:`antiphon_lab.universes.jobs`) makes all candidates at once, for sources that do not fit into
memory. Here they are made one after the other, as the method is written; both find the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon_lab.universes.files import Candidate
from antiphon_lab.universes.law import Integers
from antiphon_lab.universes.method import Method, median_of, picked_positions, seed_topics
from antiphon_lab.universes.universe import Universe, universe_of

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class UniverseSample:
    """The median universe, and all from which it was taken."""

    topics: Flags
    processes: Flags
    chosen: int
    candidates: list[Candidate]


class UniverseSampler:
    """Takes universes from a source. In a source of journals, topic ``i`` is the journal of process ``i``."""

    def __init__(self, source: Universe) -> None:
        self._source = source
        self._process, self._topic = source.pairs()
        self._popularity = source.popularity
        self._activity = source.activity

    def median(self, method: Method) -> UniverseSample:
        """Make all candidates and keep the median."""
        found = [self.candidate(method, number) for number in range(method.distinct_candidates(self._source.topics))]
        counted = [Candidate(int(topics.sum()), int(processes.sum())) for topics, processes in found]
        chosen = median_of(counted)
        topics, processes = found[chosen]
        return UniverseSample(topics, processes, chosen, counted)

    def candidate(self, method: Method, number: int) -> tuple[Flags, Flags]:
        """One universe: which topics and which processes are in it."""
        topics = np.zeros(self._source.topics, np.bool_)
        topics[seed_topics(method, number, self._source.topics)] = True
        first = self._subscribers(topics)
        topics[self._added(method, number, np.flatnonzero(first))] = True
        members = self._subscribers(topics) if method.members == "enlarged" else first
        if method.prune_by == "universe":
            inside = topics[self._topic] & members[self._process]
            counts = np.bincount(self._topic[inside], minlength=len(topics))
        else:
            counts = self._popularity
        topics &= counts >= method.fewest_subscribers
        return topics, members & self._subscribers(topics)

    def _subscribers(self, topics: Flags) -> Flags:
        """The subscribers of at least one of these topics."""
        found = np.zeros(self._source.processes, np.bool_)
        found[self._process[topics[self._topic]]] = True
        return found

    def _added(self, method: Method, number: int, processes: Integers) -> Integers:
        """The topics by which these processes enlarge the seed set."""
        if method.enlarge == "own":
            return processes[processes < self._source.topics]
        places = picked_positions(method, number, processes, self._activity[processes])
        added: Integers = self._source.process_topics[self._source.process_offsets[processes] + places]
        return added

    def universe(self, sample: UniverseSample) -> Universe:
        """The chosen universe, with processes and topics renumbered in the same order."""
        inside = sample.topics[self._topic] & sample.processes[self._process]
        process_numbers, topic_numbers = np.cumsum(sample.processes) - 1, np.cumsum(sample.topics) - 1
        return universe_of(
            process_numbers[self._process[inside]],
            topic_numbers[self._topic[inside]],
            int(sample.processes.sum()),
            int(sample.topics.sum()),
        )
