"""Partitions, drawn as Jepsen draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

Cuts = dict[str, frozenset[str]]
"""By node, the nodes whose messages do not reach it."""


def separated(parts: Sequence[Sequence[str]]) -> Cuts:
    """No message passes between parts."""
    everybody = {node for part in parts for node in part}
    return {node: frozenset(everybody - set(part)) for part in parts for node in part}


def shuffled(nodes: Sequence[str], random: Random) -> list[str]:
    """The nodes in random order."""
    return random.sample(list(nodes), len(nodes))


def one(nodes: Sequence[str], random: Random) -> Cuts:
    """Isolate one node."""
    alone = random.choice(list(nodes))
    return separated([[alone], [node for node in nodes if node != alone]])


def minority_third(nodes: Sequence[str], random: Random) -> Cuts:
    """Isolate less than a third of the nodes, but at least one of three."""
    mixed = shuffled(nodes, random)
    size = max(0, (len(nodes) - 1) // 3)
    return separated([mixed[:size], mixed[size:]])


def halves(nodes: Sequence[str], random: Random) -> Cuts:
    """Split the nodes into two halves."""
    mixed = shuffled(nodes, random)
    return separated([mixed[: len(nodes) // 2], mixed[len(nodes) // 2 :]])


def majorities_ring(nodes: Sequence[str], random: Random) -> Cuts:
    """Every node hears a different majority: its neighbourhood on a ring."""
    ring = shuffled(nodes, random)
    count = len(ring)
    reach = (count // 2 + 1) // 2
    near = [{ring[(place + step) % count] for step in range(-reach, reach + 1)} for place in range(count)]
    return {node: frozenset(set(ring) - near[place]) for place, node in enumerate(ring)}


PARTITIONS: Final[dict[str, Callable[[Sequence[str], Random], Cuts]]] = {
    "one": one,
    "minority-third": minority_third,
    "majority": halves,
    "majorities-ring": majorities_ring,
}
"""The kinds of partitions, by Jepsen's names."""
