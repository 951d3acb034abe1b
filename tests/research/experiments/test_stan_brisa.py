"""BRISA over StaN's overlays: what the experiment measures, and that trees survive when views change below them."""

from __future__ import annotations

from collections import Counter

from antiphon_lab.experiments.stan.dissemination import (
    CHANGING,
    HYPARVIEW,
    TREES_OVER_STAN,
    TopicTrees,
    TreesOverStanCase,
    measure,
    symmetric_views,
)
from antiphon_lab.experiments.stan.overlays import INITIAL, STAN
from antiphon_lab.experiments.stan.runs import WIKIPEDIA, universe_named
from antiphon_lab.protocols.gossip.stan_brisa import GivenView
from antiphon_lab.reproduction.experiment import Plan

NODES = 32


def test_views_are_the_same_seen_from_either_end() -> None:
    views = symmetric_views(NODES, STAN, 1)
    universe = universe_named(WIKIPEDIA, NODES)
    for node, topics in views.items():
        assert sorted(topics) == universe.topics_of(node).tolist()
        for topic, peers in topics.items():
            assert node not in peers
            assert max(Counter(peers).values(), default=0) <= 1
            assert all(node in views[peer][topic] for peer in peers)


def test_trees_share_links_where_topics_are_aligned_and_survive_that_they_become_so() -> None:
    before, after, changing = (measure(TreesOverStanCase(NODES, each), 1) for each in (INITIAL, STAN, CHANGING))
    assert before.missing == after.missing == changing.missing == 0
    assert after.links < 0.8 * before.links
    assert after.carrying < before.carrying
    assert after.trees_per_link > before.trees_per_link
    # A tree brings one copy; the views that change bring some more until links are told to stop.
    assert before.copies < 1.1 and after.copies < 1.1 < changing.copies < 3
    assert changing.links == after.links


def test_views_that_change_are_known_above() -> None:
    system = TopicTrees(TreesOverStanCase(NODES, CHANGING), 1)
    system.engine.run(system.end_ms)
    wanted = symmetric_views(NODES, STAN, 1)
    for node, topics in wanted.items():
        process = system.engine.nodes[node].process
        for topic, peers in topics.items():
            group = process.brisa.group(topic)  # type: ignore[union-attr]
            assert isinstance(group.sampling, GivenView)
            assert {int(peer) for peer in group.sampling.neighbours()} == set(peers) == set(group.trees.links)


def test_the_report_has_every_arrangement() -> None:
    report = TREES_OVER_STAN.run(Plan((NODES,), 1, 1), 1, lambda _text: None)
    labels = [row.label for row in report.rows if row.label.startswith("physical links")]
    assert len(labels) == 4 and any(HYPARVIEW in label for label in labels)
    assert not report.differs
