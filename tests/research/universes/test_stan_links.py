"""The fixed point of StaN: computed with arrays, on Spark and one by one, it is the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from antiphon.kernel.errors import UsageError
from antiphon_lab.experiments.stan.runs import subscriptions_of
from antiphon_lab.protocols.gossip.stan_options import view_size
from antiphon_lab.protocols.gossip.stan_weights import Ranking
from antiphon_lab.universes import stan_links
from antiphon_lab.universes.law import Integers
from antiphon_lab.universes.stan_job import ROWS_AT_A_TIME, by_whole_processes, to_batch
from antiphon_lab.universes.stan_job import stan_links as stan_links_on_spark
from antiphon_lab.universes.stan_links import (
    TopicMembers,
    aligned_views,
    counted_up,
    links_of,
    random_views,
    secrets_of,
)
from antiphon_lab.universes.universe import synthetic_universe

UNIVERSE = synthetic_universe("wikipedia", 200, seed=4)
TOPICS = TopicMembers(UNIVERSE.topic_offsets, UNIVERSE.topic_processes, UNIVERSE.processes)
OWNERS, OF = subscriptions_of(UNIVERSE)


def lowest_one_by_one(process: int, topic: int, key: int) -> list[int]:
    """Those members of a topic that a process ranks lowest, found by sorting all of them."""
    ranking = Ranking(process, key)
    others = [int(node) for node in UNIVERSE.processes_of(topic) if node != process]
    return sorted(others, key=ranking.rank_of)[: view_size(len(others) + 1)]


@pytest.mark.parametrize("key", [0, 12345])
def test_every_view_holds_the_members_of_lowest_weight(key: int) -> None:
    views = aligned_views(TOPICS, OWNERS, OF, key)
    entries = np.split(views.neighbour, np.searchsorted(views.place, np.arange(1, len(OF))))
    for place in range(0, len(OF), 7):
        assert entries[place].tolist() == lowest_one_by_one(int(OWNERS[place]), int(OF[place]), key)


def test_counting_ranks_up_finds_the_same_view_as_ranking_all_members() -> None:
    views = aligned_views(TOPICS, OWNERS, OF)
    largest = np.flatnonzero(TOPICS.sizes[OF] == TOPICS.sizes.max())[:3]
    for place in largest.tolist():
        counted = counted_up(TOPICS, OWNERS, OF, secrets_of(OWNERS, 0), place)
        assert counted.neighbour.tolist() == views.neighbour[views.place == place].tolist()


def test_large_topics_are_counted_and_small_ones_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = aligned_views(TOPICS, OWNERS[:40], OF[:40])
    monkeypatch.setattr(stan_links, "COUNTING_COST", 1e-4)
    topics = TopicMembers(UNIVERSE.topic_offsets, UNIVERSE.topic_processes, UNIVERSE.processes)
    assert 0 < topics.is_large[OF[:40]].sum() < 40
    both = aligned_views(topics, OWNERS[:40], OF[:40])
    assert both.place.tolist() == ranked.place.tolist()
    assert both.neighbour.tolist() == ranked.neighbour.tolist()


def test_a_bound_that_was_too_low_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = aligned_views(TOPICS, OWNERS, OF)
    eager = TopicMembers(UNIVERSE.topic_offsets, UNIVERSE.topic_processes, UNIVERSE.processes)
    # So few are expected below the bound that most views lack some at first.
    monkeypatch.setattr(eager, "wanted", eager.view_sizes * 0.9)
    found = aligned_views(eager, OWNERS, OF)
    assert found.place.tolist() == expected.place.tolist()
    assert found.neighbour.tolist() == expected.neighbour.tolist()


def test_random_views_have_the_size_that_connects_and_differ_between_topics() -> None:
    views = random_views(TOPICS, OWNERS, OF, seed=3)
    assert np.bincount(views.place).tolist() == TOPICS.view_sizes[OF].tolist()
    assert not np.any(views.neighbour == OWNERS[views.place])
    links = links_of(TOPICS, OWNERS, OF, seed=3)
    # Drawn independently, views share few neighbours; aligned ones share many.
    assert links.initial.mean() > 1.5 * links.aligned.mean()
    assert links.logical.tolist() == np.bincount(OWNERS[views.place], minlength=UNIVERSE.processes).tolist()


def test_a_random_view_depends_on_nothing_but_its_process_and_topic() -> None:
    """So it does not matter how subscriptions are dealt out; and nobody is in a view twice, in small topics neither."""
    lists = [np.arange(2), np.arange(5), np.arange(3, 19), np.arange(100), np.arange(20, 90, 2)]
    topics = TopicMembers(np.cumsum([0, *map(len, lists)]), np.concatenate(lists), 100)
    owners, of = np.concatenate(lists), np.repeat(np.arange(len(lists)), [len(members) for members in lists])
    views = random_views(topics, owners, of, seed=3)
    for place, (owner, topic) in enumerate(zip(owners.tolist(), of.tolist(), strict=True)):
        view = views.neighbour[views.place == place].tolist()
        assert len(set(view)) == len(view) == topics.view_sizes[topic]
        assert set(view) <= set(lists[topic].tolist()) - {owner}
        alone = random_views(topics, owners[place : place + 1], of[place : place + 1], seed=3)
        assert alone.neighbour.tolist() == view


def test_random_views_are_uniform() -> None:
    views = random_views(TOPICS, OWNERS, OF, seed=8)
    topic = int(np.argmax(TOPICS.sizes))
    chosen = views.neighbour[OF[views.place] == topic]
    counts = np.bincount(chosen)[UNIVERSE.processes_of(topic)]
    expected = len(chosen) / len(counts)
    # A chi-square statistic has the number of members as its mean; three deviations above are rare.
    assert float(((counts - expected) ** 2 / expected).sum()) < len(counts) + 3 * np.sqrt(2 * len(counts))


def test_more_processes_than_identifiers_are_refused() -> None:
    with pytest.raises(UsageError, match="ranks up to 4,194,304 processes"):
        TopicMembers(np.array([0]), np.empty(0, np.int64), (1 << 22) + 1)


def test_spark_computes_the_links_of_every_process_that_arrays_do(spark: SparkSession) -> None:
    rows = list(zip(OWNERS.tolist(), OF.tolist(), strict=True))
    frame = spark.createDataFrame(rows, "process long, topic long")
    found = stan_links_on_spark(spark, frame, UNIVERSE.processes, UNIVERSE.topics, seed=3, key=9).toArrow()
    expected = to_batch(links_of(TOPICS, OWNERS, OF, seed=3, key=9))
    assert sorted(found.to_pylist(), key=lambda row: int(row["process"])) == expected.to_pylist()


def test_a_task_never_cuts_a_process_in_two() -> None:
    owners: Integers = np.repeat(np.arange(50), ROWS_AT_A_TIME // 20)
    links = np.arange(len(owners))
    size = ROWS_AT_A_TIME // 3
    batches = [
        pa.record_batch({"process": owners[start : start + size], "topic": links[start : start + size]})
        for start in range(0, len(owners), size)
    ]
    cut = list(by_whole_processes(batches))
    assert len(cut) > 1
    assert np.concatenate([some for some, _ in cut]).tolist() == owners.tolist()
    assert np.concatenate([of for _, of in cut]).tolist() == links.tolist()
    for (before, _), (after, _) in pairwise(cut):
        assert before[-1] != after[0]
