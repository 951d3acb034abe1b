"""The experiments on BRISA: what a run must give whatever is published (thesis of M. Matos, chapter 4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import Data, TreePosition
from antiphon.kernel.message import FIFO
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import Ordered
from antiphon_lab.experiments.brisa.churn import CHURN_MINUTES, BrisaChurnCase
from antiphon_lab.experiments.brisa.churn import measure as measure_churn
from antiphon_lab.experiments.brisa.floods import FIG_4_3, FLOOD_VIEWS, crossing, flood_cases, named_view, view_label
from antiphon_lab.experiments.brisa.hops import NODE_BYTES, ping_ms, places, size_of
from antiphon_lab.experiments.brisa.model import CONSTRUCTION, StreamCase, depths, hops_from, measure, published
from antiphon_lab.experiments.brisa.structure import FIG_4_9

NODES = 48
MESSAGES = 30


def test_a_flood_crosses_each_link_twice_but_for_those_of_its_tree() -> None:
    """Mean duplicates are the mean degree less two (section 4.2.1, Figure 4.3)."""
    found = measure(StreamCase(NODES, MESSAGES, parents=0), 1)
    assert found.missing == 0
    assert found.last_links > 0
    assert found.last_duplicates.sum() == found.last_links - 2 * (NODES - 1)


@pytest.mark.parametrize(
    ("duplicates", "half"),
    [
        ([0, 0, 1, 1], 0.0),  # half of the processes have none
        ([0, 1, 1, 2], 0.5),  # the line from 25 % at 0 to 75 % at 1
        ([1, 2, 2, 2, 3, 3, 3, 3], 2.0),  # half of them have no more than 2
        ([3, 3, 3, 3], 2.5),
    ],
)
def test_where_the_curve_of_a_figure_is_at_half_of_the_processes(duplicates: list[int], half: float) -> None:
    """Figure 4.3: points at whole numbers of duplicates of one message, joined by lines."""
    found = measure(StreamCase(8, 2, parents=0), 1)
    assert crossing(replace(found, last_duplicates=np.array(duplicates))) == pytest.approx(half)


@pytest.mark.parametrize(("view", "seed"), [(4, 1), (8, 2)])
def test_a_tree_gives_one_copy_to_everybody(view: int, seed: int) -> None:
    """Section 4.3.2: exactly one copy of each message, once the first have built the tree."""
    found = measure(StreamCase(NODES, MESSAGES, view), seed)
    assert found.missing == 0
    assert found.is_steady
    assert found.active_links == NODES - 1
    assert set(found.copies_received[found.others].tolist()) == {MESSAGES - CONSTRUCTION}
    assert found.copies_received[found.source] == 0
    assert found.copies_sent.sum() == found.copies_received.sum()
    assert (found.depth >= 0).all()
    assert found.depth[found.parent[found.others]].tolist() == (found.depth[found.others] - 1).tolist()


def test_in_a_graph_everybody_who_can_has_two_parents() -> None:
    """Section 4.2.7: two copies, but for those near the source."""
    found = measure(StreamCase(NODES, MESSAGES, 4, parents=2), 3)
    assert found.missing == 0
    assert found.unserved == 0
    assert (found.depth >= 0).all(), "no cycle"
    assert float(np.median(found.copies_received[found.others])) == 2 * (MESSAGES - CONSTRUCTION)
    assert found.shortest < found.depth.mean()


def test_each_of_several_trees_reaches_everybody() -> None:
    """Section 4.2.8."""
    found = measure(StreamCase(NODES, MESSAGES, 8, trees=4), 4)
    assert found.missing == 0
    assert found.children.sum(axis=1).tolist() == [NODES - 1] * 4
    assert len({tuple(row) for row in found.children.tolist()}) == 4, "each tree is another one"


def test_the_longest_way_counts_and_cycles_are_left_out() -> None:
    parents = {0: [], 1: [0], 2: [0, 1], 3: [2, 0], 4: [5], 5: [4]}
    assert depths(parents, 0) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert hops_from(0, parents) == {0: 0, 1: 1, 2: 1, 3: 1}


def test_a_path_costs_48_bits_per_process() -> None:
    """Section 4.2.4; a depth costs the same whatever it is."""

    def size(position: TreePosition) -> int:
        return size_of(Data(Ordered(0, 1, 0, b"", NO_DEPENDENCIES, 0, FIFO), 0, position, False))

    assert size(TreePosition(vec[i64]([1, 2, 3]), 2)) - size(TreePosition(vec[i64]([1]), 0)) == 2 * NODE_BYTES == 12
    assert size(TreePosition(vec[i64](), 1)) == size(TreePosition(vec[i64](), 9))


def test_pings_have_the_published_percentiles_and_mean() -> None:
    """Figure 5.7: 15, 125 and 366 at 5, 50 and 95 %, mean 157; places are symmetric."""
    assert [ping_ms(share) for share in (0.05, 0.5, 0.95)] == [15, 125, 366]
    assert np.mean([ping_ms(share) for share in np.linspace(0, 1, 10_001)]) == pytest.approx(157, abs=1)
    delays, random = places(5, 1), RandomStream(1)
    pairs = [(one, other) for one in range(5) for other in range(one)]
    assert all(delays.draw(one, other, random) == delays.draw(other, one, random) >= 1 for one, other in pairs)
    assert len({delays.draw(one, other, random) for one, other in pairs}) > 5


def test_nobody_who_stays_misses_anything_under_churn() -> None:
    """Section 4.3.3: quick recovery of parents lets processes recover what they missed."""
    found = measure_churn(BrisaChurnCase(32, 5, 1), 1)
    assert (found.missing, found.left_out) == (0, 0)
    assert found.parents_failed == found.orphaned_by_failure, "with one parent every loss makes an orphan"
    assert found.parents_lost >= found.parents_failed - 1
    assert found.soft + found.hard > 0


def test_soft_repairs_are_shares_of_the_parents_lost() -> None:
    """Table 4.1 for 128 processes: each percentage is a whole number of the parents lost in ten minutes."""
    tables = published().tables
    lost = tables["table-4.1/rates-128"].columns["parents lost"].values
    soft = tables["table-4.1/repairs-128"].columns["soft repairs"].values
    for rate, share in zip(lost, soft, strict=True):
        parents = round(rate * CHURN_MINUTES)
        assert round(100 * round(parents * share / 100) / parents, 1) == share


def test_a_drawn_tree_has_every_process_at_its_depth() -> None:
    report = FIG_4_9.run(FIG_4_9.plan(False, 32, 1), 1, lambda _: None)
    for figure in report.figures:
        (series,) = figure.series
        places_drawn = {(point.x, point.y) for point in series.points}
        assert len(places_drawn) == 32
        radii = [float(np.hypot(x, y)) for x, y in places_drawn]
        assert all(radius == pytest.approx(round(radius)) for radius in radii)
        assert sum(radius < 0.5 for radius in radii) == 1, "the source alone is in the middle"


def test_a_view_within_its_named_size_never_has_more_links_than_that() -> None:
    """Three rules for every named size: views that grow to twice the size, full ones, and ones filled to a share."""
    cases = flood_cases(FIG_4_3.full)
    assert sorted(named_view(case) for case in cases) == sorted(3 * FLOOD_VIEWS)
    assert len({view_label(case) for case in cases}) == len(cases)
    for case in cases:
        growth = 2 if case.expansion == 2 else 1
        assert int(case.options().view.capacity) == growth * named_view(case)
    assert {named_view(case) for case in flood_cases(FIG_4_3.default)} == {4, 10}
