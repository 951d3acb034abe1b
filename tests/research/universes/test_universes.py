"""Universes in memory: the law of sections 3.3.1 and 3.3.2 of the thesis of M. Matos, and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.universes.law import LIVEJOURNAL, WIKIPEDIA, Law, Population
from antiphon_lab.universes.universe import (
    GRID_FEWEST_SUBSCRIBERS,
    Universe,
    grid_universe,
    read_universe,
    synthetic_universe,
    universe_of,
    write_universe,
)


def same(one: Universe, other: Universe) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("topic_offsets", "topic_processes", "process_offsets", "process_topics")
    )


def test_both_sides_of_a_universe_tell_the_same() -> None:
    universe = universe_of(np.array([3, 0, 3, 1, 0]), np.array([1, 1, 0, 0, 1]), processes=5, topics=3)
    assert (universe.processes, universe.topics, universe.subscriptions) == (5, 3, 4)
    assert [universe.processes_of(topic).tolist() for topic in range(3)] == [[1, 3], [0, 3], []]
    assert [universe.topics_of(process).tolist() for process in range(5)] == [[1], [0], [], [0, 1], []]
    assert universe.popularity.tolist() == [2, 2, 0]
    assert universe.activity.tolist() == [1, 1, 0, 2, 0]


@pytest.mark.parametrize(
    ("process", "topic", "processes", "complaint"),
    [([0, 1], [0], None, "no list"), ([-1], [0], None, "negative"), ([4], [0], 3, "more than the 3")],
)
def test_what_is_no_universe_is_refused(
    process: list[int], topic: list[int], processes: int | None, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        universe_of(np.array(process), np.array(topic), processes)


@pytest.mark.parametrize(("law", "published"), [(WIKIPEDIA, (1381, 576)), (LIVEJOURNAL, (4689, 253))])
def test_stand_ins_are_as_large_as_w8_and_l8(law: Law, published: tuple[int, int]) -> None:
    """Table 3.1; no topic has fewer than 30 subscribers."""
    universe = synthetic_universe(law.name)
    assert (universe.processes, universe.topics) == published
    assert universe.popularity.min() >= 30
    assert universe.popularity.max() <= law.largest_popularity


def test_a_seed_names_a_universe() -> None:
    assert same(synthetic_universe("wikipedia", 300, seed=5), synthetic_universe("wikipedia", 300, seed=5))
    assert not same(synthetic_universe("wikipedia", 300, seed=5), synthetic_universe("wikipedia", 300, seed=6))


def test_any_part_can_be_drawn_alone() -> None:
    """A task that draws some topics gets what it would have got for them among all."""
    law = WIKIPEDIA.scaled(400)
    everything = Population(law, 3).subscriptions(0, law.topics)
    part = Population(law, 3).subscriptions(50, 60)
    chosen = (everything[1] >= 50) & (everything[1] < 60)
    assert np.array_equal(everything[0][chosen], part[0])
    assert np.array_equal(everything[1][chosen], part[1])


def test_processes_are_drawn_by_activity_and_community() -> None:
    """Both ways to draw give each process the share that its weight asks for; the first of a draw shows it purely."""
    law = Law("test", 40, 4000, 2.0, 1, 2.0, 20, 4, 0.1, least_popularity=1)
    population = Population(law, 11)
    counts = np.zeros((law.communities, law.processes))
    for topic in range(law.topics):
        subscribers = population.subscribers(topic)
        assert len(subscribers) == 1
        counts[population.community_of_topic[topic], subscribers[0]] += 1
    weights = np.full((law.communities, law.processes), law.mix)
    starts = population._starts
    for community in range(law.communities):
        weights[community, population._order[starts[community] : starts[community + 1]]] = 1.0
    weights[:, population._order] *= population._activity
    expected = weights / weights.sum(axis=1, keepdims=True) * counts.sum(axis=1, keepdims=True)
    # Pearson's statistic over 160 cells has a mean of about 156 and a deviation of about 18.
    assert ((counts - expected) ** 2 / expected).sum() < 156 + 5 * 18


def test_looking_at_everybody_and_drawing_again_are_one_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that hit somebody twice are repeated, or everybody is looked at: the chances are the same."""
    law = Law("test", 60, 3000, 2.0, 6, 2.0, 20, 2, 0.2, least_popularity=6)
    shares = []
    for dense_share in (1, 1000):
        monkeypatch.setattr("antiphon_lab.universes.law.DENSE_SHARE", dense_share)
        members, _ = Population(law, 7).subscriptions(0, law.topics)
        shares.append(np.bincount(members, minlength=law.processes))
    assert shares[0].sum() == shares[1].sum() == 6 * law.topics
    assert not np.array_equal(shares[0], shares[1])
    spread = ((shares[0] - shares[1]) ** 2 / (shares[0] + shares[1])).sum()
    assert spread < 60 + 5 * np.sqrt(120)


def test_a_larger_universe_keeps_communities_and_what_leaves_them() -> None:
    law = LIVEJOURNAL.scaled(46_890)
    assert (law.topics, law.communities, law.largest_popularity) == (2530, 100, 20_000)
    assert law.mix * (law.communities - 1) == pytest.approx(LIVEJOURNAL.mix * (LIVEJOURNAL.communities - 1))
    assert LIVEJOURNAL.scaled(301_315, 28_904).topics == 28_904


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"processes": 0}, "at least one"),
        ({"activity_exponent": 1.0}, "above 1"),
        ({"mix": 1.5}, "from 0"),
        ({"least_popularity": 0}, "at least 1 subscriber"),
    ],
)
def test_a_law_that_cannot_be_is_refused(change: dict[str, float], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(WIKIPEDIA, **change)  # type: ignore[arg-type]


def test_unknown_kinds_are_met_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="wikipedia, livejournal"):
        synthetic_universe("usenet")


def test_interests_on_a_grid() -> None:
    """Section 3.3.2: who is near a topic subscribes to it; a topic has no subscribers or at least two."""
    universe = grid_universe(100, 16, seed=2)
    assert (universe.processes, universe.topics) == (100, 16)
    crowded = universe.popularity[universe.popularity > 0]
    assert crowded.min() >= GRID_FEWEST_SUBSCRIBERS
    assert same(universe, grid_universe(100, 16, seed=2))


def test_a_universe_comes_back_from_its_files(tmp_path: Path) -> None:
    universe = synthetic_universe("livejournal", 500, seed=4)
    write_universe(universe, tmp_path / "u", "a test")
    assert same(read_universe(tmp_path / "u"), universe)


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="antiphon universe make"):
        read_universe(tmp_path)
