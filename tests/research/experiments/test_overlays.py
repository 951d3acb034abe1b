"""Overlays of peer sampling: properties of known graphs, and what services promise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from antiphon_lab.experiments.brisa.graphs import (
    clustering,
    graph_of,
    hops_from,
    largest_component,
    largest_strong_component,
    path_lengths,
)
from antiphon_lab.experiments.brisa.peer_sampling import CYCLON, HYPARVIEW, NEWSCAST, SCAMP, SamplingCase, measure


def ring(size: int) -> dict[int, list[int]]:
    return {node: [(node + 1) % size] for node in range(size)}


def test_entries_of_nodes_that_are_not_there_do_not_count() -> None:
    assert graph_of({3: [7, 9], 7: [3]}).tolist() == [[False, True], [True, False]]


def test_a_directed_ring() -> None:
    graph = graph_of(ring(6))
    assert largest_component(graph) == largest_strong_component(graph) == 6
    assert clustering(graph) == 0
    assert path_lengths(graph) == (3.0, 5)
    assert hops_from(graph, np.array([4])).tolist() == [[2, 3, 4, 5, 0, 1]]


def test_everybody_knows_everybody() -> None:
    graph = graph_of({node: [peer for peer in range(5) if peer != node] for node in range(5)})
    assert clustering(graph) == 1
    assert path_lengths(graph) == (1.0, 1)


def test_a_chain_hangs_together_and_nobody_reaches_each_other() -> None:
    graph = graph_of({**{node: [peer] for node, peer in pairwise(range(5))}, 4: [], 5: []})
    assert (largest_component(graph), largest_strong_component(graph)) == (5, 1)


def test_half_of_the_links_among_neighbours() -> None:
    """Section 2.2: links that are there of those that could be."""
    graph = graph_of({0: [1, 2], 1: [2], 2: []})
    assert clustering(graph) == 0.5


@pytest.mark.parametrize("service", [HYPARVIEW, CYCLON, NEWSCAST, SCAMP])
def test_an_overlay_that_nothing_happens_to_is_connected(service: str) -> None:
    settled = measure(SamplingCase(service, 64), 1).settled
    assert settled.connected == settled.strongly_connected == 100
    assert settled.dead == 0


def test_hyparview_is_whole_again_after_80_percent_have_failed() -> None:
    """Section 4.2.1; at once it is not, because four of five links are gone."""
    observed = measure(SamplingCase(HYPARVIEW, 150, failing=80), 1)
    assert observed.settled.nodes == 150
    assert observed.struck.nodes == observed.repaired.nodes == 30
    assert observed.struck.connected < 100
    assert observed.repaired.connected == 100
    assert observed.repaired.dead == 0


def test_scamp_repairs_nothing() -> None:
    observed = measure(SamplingCase(SCAMP, 150, failing=80), 1)
    assert observed.repaired.strongly_connected == observed.struck.strongly_connected < 100


def test_under_churn_the_number_of_nodes_stays() -> None:
    observed = measure(SamplingCase(HYPARVIEW, 60, churn=20), 1)
    assert observed.struck.nodes == 60
    assert observed.struck.connected == 100
