"""Finds weaker publications that no majority had in time: total order does not hold for them, and for no others.

On a broker tree total publications are completed in **epochs**, by brokers that hold a majority of a council. Each
broker records when it begins such an epoch, and its root records the members and their majorities. An epoch is **in
force** when all its members have begun it: before, nothing can be completed in it.

A weaker publication is **secured** when brokers with a majority of each council of the epoch in force have delivered
it. It is on one side of every total publication at all brokers, unless a broker that delivered it was left out before
that: an epoch came into force that is later than the last one which that broker had begun when it delivered the
publication, and the broker is not a member of it. (An epoch that never came into force does not count.) Such a
publication is **apart**. If the broker has crashed, that matters only if others were left out as well, which may have
the publication and come back with it.

This module reads records, and shares no code with the protocols that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.incarnations import ENDS

EPOCH = "epoch"

Apart = set[tuple[int, int, int]]
"""Topic, source and number of publications."""

FOREVER = 1 << 62
NONE = (-1, -1)


class Word(NamedTuple):
    """One row about an epoch: a node has begun it or, with a ``peer``, records the role of the peer."""

    place: int
    """Its index among the rows of the evidence."""
    node: int
    epoch: tuple[int, int]
    peer: int | None
    roles: int


@dataclass
class Epoch:
    """The records of one epoch."""

    number: tuple[int, int]
    members: set[int] = field(default_factory=set)
    councils: dict[int, set[int]] = field(default_factory=dict)
    begun_at: dict[int, int] = field(default_factory=dict)

    def in_force_at(self) -> int:
        """When the last of its members had begun it; never if one of them did not."""
        if not self.members or not self.members <= self.begun_at.keys():
            return FOREVER
        return max(self.begun_at[member] for member in self.members)

    def is_held_by(self, nodes: set[int]) -> bool:
        """Whether some nodes are a majority of each council: more than half, or half with the lowest member."""
        for council in self.councils.values():
            twice = 2 * len(council & nodes)
            if twice < len(council) or (twice == len(council) and min(council) not in nodes):
                return False
        return True


def words_in(rows: pa.Table) -> list[Word]:
    """The records about epochs in a trace, each with its index among the rows."""
    is_word = pc.equal(rows["event"], EPOCH).to_numpy(zero_copy_only=False)
    if not is_word.any():
        return []
    places = np.flatnonzero(is_word)
    words = rows.take(pa.array(places))
    columns = [words[name].to_pylist() for name in ("node", "source", "sequence", "peer", "value")]
    return [
        Word(place, node, (sequence, source), peer, roles or 0)
        for place, node, source, sequence, peer, roles in zip(places.tolist(), *columns, strict=True)
    ]


def epochs_of(words: Iterable[Word]) -> list[Epoch]:
    """The epochs that came into force, in that order."""
    found: dict[tuple[int, int], Epoch] = {}
    for word in words:
        epoch = found.setdefault(word.epoch, Epoch(word.epoch))
        if word.peer is None:
            epoch.begun_at.setdefault(word.node, word.place)
            continue
        if word.roles & 1:
            epoch.members.add(word.peer)
        for council in range(word.roles.bit_length() - 1):
            if word.roles >> (council + 1) & 1:
                epoch.councils.setdefault(council, set()).add(word.peer)
    return sorted((each for each in found.values() if each.in_force_at() < FOREVER), key=Epoch.in_force_at)


class Witnesses:
    """Checks the deliveries of publications, one publication at a time."""

    def __init__(self, words: list[Word], ends: dict[int, int]) -> None:
        self._epochs = [(each.in_force_at(), each) for each in epochs_of(words)]
        self._ends = ends
        # The first and the last row of each node.
        self._heard: dict[int, tuple[int, int]] = {}
        for word in words:
            first, _ = self._heard.get(word.node, (word.place, 0))
            self._heard[word.node] = (first, word.place)

    def _last_begun(self, node: int, place: int) -> tuple[int, int]:
        """The last epoch in force that a node had begun by then."""
        return max((each.number for _, each in self._epochs if each.begun_at.get(node, FOREVER) <= place), default=NONE)

    def _secured_at(self, deliveries: list[tuple[int, int]]) -> int:
        """When a majority had delivered it; deliveries are row indices and nodes."""
        holders: set[int] = set()
        for place, node in deliveries:
            if self._heard.get(node, NONE)[1] > self._ends.get(node, FOREVER):
                # It has crashed and restarted, and may have forgotten it.
                continue
            holders.add(node)
            in_force = [epoch for since, epoch in self._epochs if since <= place]
            if in_force and in_force[-1].is_held_by(holders):
                return place
        return FOREVER

    def is_apart(self, deliveries: list[tuple[int, int]]) -> bool:
        """Whether a publication with these deliveries was at a node that was left out before a majority had it."""
        secured_at = self._secured_at(deliveries)
        return any(
            self._is_left_out(node, self._last_begun(node, place), secured_at)
            for place, node in deliveries
            if place <= secured_at
        )

    def _is_left_out(self, node: int, last: tuple[int, int], secured_at: int) -> bool:
        for since, epoch in self._epochs:
            if since <= secured_at and epoch.number > last and node not in epoch.members:
                others = {other for other, (first, _) in self._heard.items() if first <= since} - epoch.members
                # A newcomer that stood still says only later that it has begun an earlier epoch.
                if any(self._lives(other, since) for other in {node, *others}):
                    return True
        return False

    def _lives(self, node: int, place: int) -> bool:
        """Whether a node had not crashed by then, or has later rows."""
        end = self._ends.get(node, FOREVER)
        return end > place or self._heard.get(node, NONE)[1] > end


def publications_apart(rows: pa.Table) -> Apart:
    """The weaker publications of a run that were at a node that was left out before a majority had them.

    The rows are the evidence of a run, in the order of events.
    """
    words = words_in(rows)
    return apart_by(words, rows) if words else set()


def apart_by(words: list[Word], rows: pa.Table) -> Apart:
    """The same from the records about epochs, each with its index among the rows."""
    ended: dict[int, int] = {}
    deliveries: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    columns = [rows[name].to_pylist() for name in ("event", "node", "topic", "source", "sequence", "order")]
    for place, (event, node, topic, source, sequence, order) in enumerate(zip(*columns, strict=True)):
        if event in ENDS:
            ended[node] = place
        elif event == "deliver" and order != "total":
            deliveries.setdefault((topic, source, sequence), []).append((place, node))
    witnesses = Witnesses(words, ended)
    return {name for name, found in deliveries.items() if witnesses.is_apart(found)}
