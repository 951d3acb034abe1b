"""Random schedules of the broker tree: clean as it is, and each of several planted defects is found."""

from __future__ import annotations

import pytest

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.messages import Joined, Lost, Stable
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topic import Lock, Topic
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import Keyed, Message, Publication, publication_key
from antiphon.simulator import tree_protocol, tree_schedules
from antiphon.simulator.campaign import run_seeds
from antiphon.simulator.tree_schedules import draw_tree_schedule

SEEDS = 120


def test_schedules_hold_what_they_promise() -> None:
    """Crashes of the root, of several at once and of publishers, total publications and several keys: all occur."""
    scenarios = [draw_tree_schedule(seed) for seed in range(SEEDS)]
    faults = [sum(type(fault).__name__ == "CrashFault" for fault in scenario.faults) for scenario in scenarios]
    assert max(faults) > 3 and faults.count(0) > 5
    assert any(len(one.keys) > 1 and one.order == "total" for scenario in scenarios for one in scenario.publications)
    assert max(scenario.nodes for scenario in scenarios) > 16


def test_no_schedule_breaks_the_tree() -> None:
    tally = run_seeds(range(SEEDS), None, "tree")
    assert tally.violations == {}, [outcome.about for outcome in tally.failing]
    assert tally.deliveries > 10_000


class DoesNotWaitForChildren(TreeBroker):
    """Says that everybody below is closed when it is closed itself."""

    def _is_closed(self, topic: Topic, lock: Lock) -> bool:
        return bool(lock.said_in != self.epoch)


class WaitsForNobody(TreeBroker):
    """As root, begins an epoch although living brokers have no way to it."""

    def _missing(self) -> list[int]:
        return []


class KeepsTalking(TreeBroker):
    """Publishes about keys that are closed."""

    def _publish_free(self, topic: Topic, publication: Keyed) -> None:
        self.inject(topic, 0, publication)


class SendsNothingAfterRepair(TreeBroker):
    """Does not tell its new parent what that one has not got."""

    def _receive_joined(self, joined: Joined) -> None:
        topic = self.topics[joined.topic]
        items = topic.items
        if topic.is_carried:
            topic.items = []
        super()._receive_joined(joined)
        topic.items = items


class SaysNothingOfLosses(TreeBroker):
    """Does not report that a child has failed."""

    def _receive_lost(self, sender: int, lost: Lost) -> None:
        self.children[sender] = dict(self.children[sender] or {})


class ForgetsProposals(TreeBroker):
    """Proposes a total publication once, whatever happens to it."""

    def propose(self, topic: Topic, publication: Keyed) -> None:
        super().propose(topic, publication)
        topic.proposed.pop(publication_key(publication.source, publication.sequence), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (DoesNotWaitForChildren, {"total"}),
        (WaitsForNobody, {"total", "causal", "error", "stuck", "endless", "completeness"}),
        (KeepsTalking, {"total", "fifo", "causal"}),
        (SendsNothingAfterRepair, {"completeness", "error", "causal", "fifo"}),
        (SaysNothingOfLosses, {"stuck", "endless", "total", "completeness"}),
        (ForgetsProposals, {"completeness", "stuck", "requests", "fifo", "causal"}),
    ],
)
def test_the_campaign_finds_a_planted_defect(
    broken: type[TreeBroker], found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_protocol, "TreeBroker", broken)
    # A broken tree may look for a parent for ever; sound ones need a few thousand events.
    monkeypatch.setattr(tree_schedules, "EVENT_LIMIT", 10_000)
    tally = run_seeds(range(400, 460), None, "tree")
    assert found & set(tally.violations), tally.violations


class OrdersWithoutMajority(TreeBroker):
    """Goes on to order totally, whoever is missing."""

    def _next_overlay(self, council: Council) -> Overlay:
        overlay = super()._next_overlay(council)
        return Overlay(overlay.epoch, overlay.root, overlay.parents, overlay.absent, overlay.council, True)


class ForgetsTheAbsent(TreeBroker):
    """Keeps nothing for those who are cut off."""

    def _spread_stable(self, stable: Stable) -> None:
        super()._spread_stable(Stable(stable.frontiers, True))


class RecordsNoPlaces(TreeBroker):
    """Its log does not say where in the streams publications stood, and is of no use to those who were given up."""

    def recorded(self, publication: Publication) -> Message:
        return publication


@pytest.mark.parametrize(
    ("broken", "found", "seeds"),
    [
        (OrdersWithoutMajority, {"total"}, range(50)),
        (ForgetsTheAbsent, {"completeness"}, range(30)),
        (RecordsNoPlaces, {"completeness"}, range(90, 150)),
    ],
)
def test_the_campaign_finds_a_defect_of_partitions(
    broken: type[TreeBroker], found: set[str], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_protocol, "TreeBroker", broken)
    tally = run_seeds(seeds, None, "tree")
    assert found & set(tally.violations), tally.violations


def test_a_pause_and_a_short_partition_do_not_reorder_what_is_on_a_connection() -> None:
    """What had come to a node that stood still was held up behind what came later, and a lock was passed over."""
    tally = run_seeds(range(2350500, 2350501), None, "tree")
    assert tally.violations == {}
