"""Thicket and SplitStream beside BRISA, and trees that others than their roots use (thesis of M. Matos, 4.2.8, 4.4)."""

from __future__ import annotations

import numpy as np

from antiphon_lab.experiments.brisa.several_trees import (
    BRISA,
    FANOUT,
    PUBLISHERS,
    SPARE_LOAD,
    SPLITSTREAM,
    SYSTEMS,
    THICKET,
    ReuseCase,
    TreesCase,
    interior,
    loads,
    measure_reuse,
    measure_trees,
)

NODES = 48


def test_rivals_spread_the_work_that_brisa_leaves_to_chance() -> None:
    found = {system: measure_trees(TreesCase(NODES, 40, 8, trees=4, system=system), 1) for system in SYSTEMS}
    assert all(each.missing == 0 for each in found.values())
    # Each node has a parent in each tree; in Thicket some are still looking for one.
    assert found[BRISA].children.sum() == 4 * (NODES - 1)
    assert np.mean(interior(found[BRISA]) == 0) > 0.4
    assert np.mean(interior(found[THICKET]) == 0) < 0.1
    assert np.mean(interior(found[SPLITSTREAM]) == 0) < 0.35
    for rival in (THICKET, SPLITSTREAM):
        assert loads(found[rival]).std() < 0.75 * loads(found[BRISA]).std()
    # Everybody has a place in every stripe, and nobody more children than allowed.
    assert found[SPLITSTREAM].children.sum() == 4 * (NODES - 1)
    assert loads(found[SPLITSTREAM]).max() <= FANOUT + SPARE_LOAD
    # The way to the roots comes before the way down.
    assert found[SPLITSTREAM].reception.mean() > found[BRISA].reception.mean()


def test_a_publisher_near_a_root_begins_no_tree() -> None:
    own, shared, one = (measure_reuse(ReuseCase(NODES, 3, 4, reuse_depth=depth), 1) for depth in (0, 1, 6))
    assert own.missing == shared.missing == one.missing == 0
    assert own.roots == own.structures == PUBLISHERS
    assert PUBLISHERS > shared.roots > one.roots == 1
    # The first publication of each tree is a flood, and a way up to a root makes others longer.
    assert own.copies > shared.copies > one.copies
    assert own.latency_ms < shared.latency_ms < one.latency_ms
