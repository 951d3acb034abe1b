"""Properties of overlays as graphs: reachability, distances, and the similarity of neighbours' views.

A graph is a square matrix of truth values: row ``p`` has the view of node ``p``. Definitions as in section 2.2 of the
thesis of M. Matos; clustering of directed views counts ordered pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

MOST_STARTS = 256
"""The number of nodes from which paths are followed; a sample of this size has the mean to two digits."""


def graph_of(views: Mapping[int, Sequence[int]]) -> np.ndarray:
    """The views of some nodes, without entries of any others; rows are in the order of the mapping."""
    place = {node: number for number, node in enumerate(views)}
    graph = np.zeros((len(views), len(views)), dtype=bool)
    for node, view in views.items():
        known = [place[peer] for peer in view if peer in place]
        graph[place[node], known] = True
    return graph


def hops_from(graph: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """For each start a row with the number of hops to every node; -1 where there is no way."""
    links = graph.astype(np.float32)
    hops = np.full((len(starts), len(graph)), -1)
    hops[np.arange(len(starts)), starts] = 0
    edge = hops == 0
    distance = 0
    while edge.any():
        distance += 1
        edge = (edge.astype(np.float32) @ links > 0) & (hops < 0)
        hops[edge] = distance
    return hops


def largest_component(graph: np.ndarray) -> int:
    """The size of the largest set of nodes that hangs together, whichever way links point."""
    both = graph | graph.T
    unseen = np.ones(len(graph), dtype=bool)
    largest = 0
    while unseen.any():
        reached = hops_from(both, np.array([int(np.argmax(unseen))]))[0] >= 0
        largest = max(largest, int(reached.sum()))
        unseen &= ~reached
    return largest


def largest_strong_component(graph: np.ndarray) -> int:
    """The size of the largest set of nodes that all reach each other along the links."""
    unseen = np.ones(len(graph), dtype=bool)
    largest = 0
    while unseen.sum() > largest:
        start = np.array([int(np.argmax(unseen))])
        together = (hops_from(graph, start)[0] >= 0) & (hops_from(graph.T, start)[0] >= 0)
        largest = max(largest, int(together.sum()))
        unseen &= ~together
    return largest


def clustering(graph: np.ndarray) -> float:
    """Of the links that could be among the entries of a view, the share that is; the mean over views of two or more."""
    links = graph.astype(np.float32)
    present = ((links @ links) * links).sum(axis=1)
    sizes = graph.sum(axis=1)
    chosen = sizes > 1
    if not chosen.any():
        return 0.0
    return float((present[chosen] / (sizes[chosen] * (sizes[chosen] - 1))).mean())


def path_lengths(graph: np.ndarray) -> tuple[float, int]:
    """The mean number of hops between two nodes of which one reaches the other, and the largest."""
    count = len(graph)
    starts = np.unique(np.linspace(0, count - 1, min(count, MOST_STARTS)).astype(int))
    hops = hops_from(graph, starts)
    reached = hops[hops > 0]
    return (float(reached.mean()), int(reached.max())) if len(reached) else (0.0, 0)
