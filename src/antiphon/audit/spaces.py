"""The judge of causal order across the topics of a space.

It is told what the applications could see: requests to publish, and deliveries. It keeps, for each node, everything
that the node has published or delivered and what that follows, on all topics of the space, and finds a delivery of
something that was followed here before. It knows no protocol and shares no code with one. Each topic has its own judge
too (:mod:`antiphon.audit.oracle`), for all other promises.

A publication follows what its publisher had requested or delivered when the publication was requested. A request on a
topic to which its node is not subscribed counts from the moment when it is. A node need not be subscribed to the topics
that lie between two publications.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from antiphon.audit.findings import Findings

Name = tuple[int, int, int]
"""Topic, source and number of a publication."""

Knowledge = dict[tuple[int, int], int]
"""By topic and source: the last number that was published or delivered, or that something of that follows."""


class SpaceOracle:
    """Judges one space. Findings are counted as ``causal``."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._knows: dict[int, Knowledge] = {}
        # What each publication follows.
        self._follows: dict[Name, Knowledge] = {}
        self._seen: dict[int, set[Name]] = {}
        self._members: set[tuple[int, int]] = set()
        # What was requested on topics to which the node is not subscribed: by node and topic, sources and numbers, and
        # None where the end of a subscription was requested before it was effective.
        self._early: dict[tuple[int, int], list[tuple[int, int] | None]] = {}

    def subscribed(self, node: int, topic: int) -> None:
        """A subscription is effective."""
        self._members.add((node, topic))
        early = self._early.get((node, topic), [])
        while early:
            request = early.pop(0)
            if request is None:
                self._members.discard((node, topic))
                return
            self.requested(node, topic, *request)

    def leaving(self, node: int, topic: int) -> None:
        """The application asks for the end of a subscription."""
        if (node, topic) in self._members:
            self._members.discard((node, topic))
        else:
            self._early.setdefault((node, topic), []).append(None)

    def requested(self, node: int, topic: int, source: int, sequence: int) -> None:
        """The application at a node, which is the source, asks to publish."""
        if (node, topic) not in self._members:
            self._early.setdefault((node, topic), []).append((source, sequence))
            return
        knows = self._knows.setdefault(node, {})
        self._follows[topic, source, sequence] = dict(knows)
        knows[topic, source] = max(sequence, knows.get((topic, source), 0))

    def delivered(self, node: int, topic: int, source: int, sequence: int) -> None:
        """A node delivers a publication."""
        name = (topic, source, sequence)
        seen = self._seen.setdefault(node, set())
        if name in seen:
            return
        seen.add(name)
        knows = self._knows.setdefault(node, {})
        if node != source and sequence <= knows.get((topic, source), 0):
            self._findings.add(
                "causal",
                f"publication {sequence} of node {source} on topic {topic} at node {node}: delivered after something "
                "of its space that follows it",
            )
        for place, number in self._follows.get(name, {}).items():
            knows[place] = max(number, knows.get(place, 0))
        knows[topic, source] = max(sequence, knows.get((topic, source), 0))

    def state(self) -> str:
        """The state that further judgement depends on, as text."""
        knows = [(node, sorted(known.items())) for node, known in sorted(self._knows.items())]
        follows = [(name, sorted(known.items())) for name, known in sorted(self._follows.items())]
        early = sorted(self._early.items())
        return f"{knows} {follows} {early} {[(node, sorted(seen)) for node, seen in sorted(self._seen.items())]}"


def judge_spaces(
    rows: pa.Table, incarnations: npt.NDArray[np.int64], spaces: Sequence[Sequence[int]], findings: Findings
) -> None:
    """Judge the spaces of a trace; ``incarnations`` has the incarnation of each row."""
    if not spaces:
        return
    oracles = [SpaceOracle(findings) for _ in spaces]
    judge_of = {topic: oracles[number] for number, topics in enumerate(spaces) for topic in topics}
    columns = (rows[name].to_pylist() for name in ("event", "topic", "source", "sequence"))
    for node, event, topic, source, sequence in zip(incarnations.tolist(), *columns, strict=True):
        oracle = judge_of.get(topic)
        if oracle is None:
            continue
        if event == "subscribed":
            oracle.subscribed(node, topic)
        elif event == "unsubscribe":
            oracle.leaving(node, topic)
        elif event == "publish":
            oracle.requested(node, topic, source, sequence)
        elif event == "deliver":
            oracle.delivered(node, topic, source, sequence)
