"""Ginger as published does what its logs show: the scenarios of section 5.3 and of annexes II to VIII.

Brokers are those of the experiments: 0 above 1, 2 and 3; 1 above 4 and 5; 2 above 6; 3 above 7. Clients of topic 0 are
at 4, 6 and 7, of topic 1 at 5 and 6. A publication is named by the broker of its publisher and its number.
"""

from __future__ import annotations

from typing import Any

import pytest

from antiphon_lab.protocols.tree.ginger import CHILDREN, PARENT, PublishedBroker
from antiphon_lab.protocols.tree.ginger_messages import (
    LostMessageRequest,
    Metadata,
    ParentBuffer,
    ParentRequest,
    ParentResponse,
    PublishedGingerOptions,
    RootElection,
    Subscribe,
    TotalAck,
    TotalProcessed,
    TreeViewUpdate,
)
from antiphon_lab.scenarios.tree import PublishedTreeOptions, published_tree_builder
from tests.fabrics.tree.schedules import CLIENTS, EIGHT_BROKERS
from tests.fabrics.tree.table import Table, either, kind, over


def empty(brokers: int = 8, **switches: Any) -> Table:
    """Brokers that do not know each other."""
    options = PublishedGingerOptions(**switches)
    return Table(brokers, lambda environment: PublishedBroker(environment, options))


def grow(table: Table, *brokers: int) -> None:
    """Start brokers, one after the other."""
    for broker in brokers:
        table.brokers[broker].register_with(EIGHT_BROKERS[broker])
        table.settle()


def running(**switches: Any) -> Table:
    """The overlay of the experiments, with all clients subscribed."""
    options = PublishedTreeOptions(parents=list(EIGHT_BROKERS), **switches)
    return Table(8, published_tree_builder(options, 8, "causal", CLIENTS))


def names(entries: list[Any]) -> list[int]:
    return [int(entry.address) for entry in entries]


def places(entries: list[Any]) -> dict[int, int]:
    return {int(entry.address): int(entry.hops) for entry in entries}


class TestViews:
    """T1 and T2, annexes II and III: what brokers learn of the tree."""

    def test_t1_a_broker_learns_its_siblings_as_they_come(self) -> None:
        table = empty()
        seen = []
        for broker in (1, 2, 3):
            grow(table, broker)
            seen.append(names(table.brokers[1].view.siblings))
        assert seen == [[], [2], [2, 3]]
        assert table.brokers[1].view.ancestors == []
        (first,) = [copy.message for copy in table.handed_over if copy[:2] == (1, 0) and kind(TreeViewUpdate)(copy)]
        assert isinstance(first, TreeViewUpdate)
        assert (first.child_count, first.path) == (0, [])
        paths = [[repr(entry) for entry in update.path] for update in table.received(1, TreeViewUpdate)]
        assert paths == [
            ["0 h0 down", "1 h1 up"],
            ["0 h0 down", "1 h1 up", "2 h1 up"],
            ["0 h0 down", "1 h1 up", "2 h1 up", "3 h1 up"],
        ]

    def test_t2_of_two_uncles_in_a_row_only_the_first_is_taken(self) -> None:
        """D5, visible in annex III: broker 4 learns of 3 at once, of 2 only when a subscription passes through it."""
        table = empty()
        grow(table, 3, 2, 1, 4, 5)
        view = table.brokers[4].view
        last = [repr(entry) for entry in table.received(4, TreeViewUpdate)[0].path]
        assert last == ["1 h0 down", "4 h1 up", "0 h1 down", "3 h2 up", "2 h2 up"]
        assert places(view.ancestors) == {0: 2, 3: 3}
        assert places(view.siblings) == {5: 2}
        grow(table, 6)
        table.brokers[6].subscribe(1)
        table.settle()
        path = [repr(entry) for entry in table.received(4, Subscribe)[0].path]
        assert path == ["1 h0 down", "0 h1 down", "2 h2 up", "6 h3 up"]
        assert places(view.ancestors) == {0: 2, 3: 3, 2: 3}
        assert not view.knows(6), "four hops are too far"

    def test_t2_counting_moves_up_needs_no_order(self) -> None:
        table = empty(counts_upward_moves=True)
        grow(table, 3, 2, 1, 4, 5)
        view = table.brokers[4].view
        assert places(view.ancestors) == {0: 2, 3: 3, 2: 3}
        assert places(view.siblings) == {5: 2}

    @pytest.mark.parametrize("counts_upward_moves", [False, True])
    def test_brokers_that_start_knowing_all_know_what_the_others_learn(self, counts_upward_moves: bool) -> None:
        """The overlay of section 5.2: views, free degrees, and the links of each topic."""
        grown = empty(counts_upward_moves=counts_upward_moves)
        grow(grown, 1, 2, 3, 4, 5, 6, 7)
        for topic, clients in enumerate(CLIENTS):
            for client in clients:
                grown.brokers[client].subscribe(topic)
                grown.settle()
        known = running()
        for broker in range(8):
            one, other = grown.brokers[broker], known.brokers[broker]
            assert places(one.view.ancestors) == places(other.view.ancestors)
            assert places(one.view.siblings) == places(other.view.siblings)
            assert one.residual_degree() == other.residual_degree()
            assert one.children == other.children
            for topic in range(2):
                assert one.topic(topic).children == other.topic(topic).children
                assert one.topic(topic).has_parent == other.topic(topic).has_parent
        assert [known.brokers[broker].residual_degree() for broker in range(8)] == [0, 0, 1, 1, 1, 1, 0, 1]
        assert set(names(known.brokers[4].view.ancestors)) == {0, 2, 3}
        assert set(names(known.brokers[6].view.ancestors)) == {0, 1, 3}


class TestDegrees:
    """T3 and T4, annex IV: room for neighbours."""

    def test_t3_an_orphan(self) -> None:
        table = empty()
        grow(table, 1, 2, 3, 4, 5, 6)
        seven = table.brokers[7]
        degrees = [seven.residual_degree()]
        grow(table, 7)
        degrees.append(seven.residual_degree())
        for client in (4, 6, 7):
            table.brokers[client].subscribe(0)
            table.settle()
        degrees.append(seven.residual_degree())
        table.crash(3)
        table.notice(3)
        degrees.append(seven.residual_degree())
        assert 0 in names(seven.view.ancestors)
        table.settle()
        degrees.append(seven.residual_degree())
        assert degrees == [3, 2, 1, 2, 1]
        (request,) = table.received(0, ParentRequest)
        assert (request.topics, request.is_forced) == ([0], False)
        assert seven.parent == 0
        assert 0 not in names(seven.view.ancestors)

    def test_t4_the_parent_of_the_failed_broker(self) -> None:
        """Publications that come through broker 1 meanwhile are held, and let go in their order."""
        table = running()
        root = table.brokers[0]
        assert root.residual_degree() == 0
        table.crash(3)
        table.notice(3, 0)
        assert root.residual_degree() == 1
        assert root.expected_children == 1
        for order in ("none", "causal", "causal", "none", "total"):
            table.publish(4, order)
        table.settle(hold=over(7, 0))
        held = [(int(publication.sequence), sender) for publication, sender in root.topic(0).on_hold]
        assert held == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
        assert table.delivered[6] == []
        table.notice(3, 7)
        table.settle()
        assert table.brokers[7].parent == 0
        assert 7 in root.topic(0).children
        assert root.residual_degree() == 0
        assert not root.is_reconfiguring()
        assert table.delivered[6] == table.delivered[7] == table.delivered[4] == [(4, number) for number in range(1, 6)]

    def test_t7_totals_in_progress_are_taken_up_before_what_was_held_is_let_go(self) -> None:
        """Annex VII. What is about another key is held too, but need not wait for their completion."""
        table = running()
        table.publish(6, "total")
        table.settle(hold=over(0, 3))
        table.crash(3)
        table.notice(3, 0)
        table.publish(4, "causal")
        table.publish(4, "none", keys=[2])
        table.settle()
        assert [int(locked.sequence) for locked, _ in table.brokers[4].topic(0).pool_own.waiting] == [1]
        assert [int(held.sequence) for held, _ in table.brokers[0].topic(0).on_hold] == [2]
        table.notice(3, 7)
        table.settle()
        assert table.delivered[7] == [(4, 2), (6, 1), (4, 1)]


class TestInterruptedTotals:
    """T5, annex V: a total publication is in progress when broker 3 fails and 7 comes to the root."""

    def interrupted(self, **switches: bool) -> Table:
        table = running(**switches)
        table.publish(6, "total")
        table.settle(hold=either(over(1, 0), over(0, 3)))
        assert [set(pending.acknowledged) for pending in table.brokers[0].topic(0).pending.values()] == [{2}]
        table.crash(3)
        table.notice(3)
        table.settle(hold=over(1, 0))
        return table

    def test_t5_the_root_waits_for_each_child(self) -> None:
        table = self.interrupted()
        root = table.brokers[0]
        assert root.topic(0).children == {1, 2, 7}
        (pending,) = root.topic(0).pending.values()
        assert pending.acknowledged == {2, 7}
        root.receive(7, TotalAck(6, 1, 0))
        assert len(root.topic(0).pending) == 1, "a second word of broker 7 is not one of broker 1"
        assert not any(table.delivered)
        table.settle()
        assert table.delivered[4] == table.delivered[6] == table.delivered[7] == [(6, 1)]
        for child in (1, 2, 7):
            assert len(table.received(child, TotalProcessed)) == 1

    def test_t5_counting_acknowledgements_closes_the_barrier_without_one(self) -> None:
        """D39: the log shows two acknowledgements of broker 7, one of 2 and none of 1, and the end of the wait."""
        table = self.interrupted(counts_acknowledgements=True)
        root = table.brokers[0]
        root.receive(7, TotalAck(6, 1, 0))
        assert len(root.topic(0).pending) == 0

    def test_t5_a_broker_that_is_asked_again_acknowledges_again(self) -> None:
        """Broker 7 with a pending total: it waits, and answers its new parent without a second lock."""
        table = running()
        table.publish(6, "total")
        table.settle(hold=over(3, 0))
        assert len(table.brokers[7].topic(0).pending) == 1
        table.crash(3, loses=lambda _: True)
        table.notice(3)
        table.settle(hold=over(0, 7))
        assert table.delivered[7] == []
        table.settle()
        asked = [item for item in table.received(7, Metadata) if item.source == 6]
        assert len(asked) == 2
        assert table.delivered[7] == [(6, 1)]
        assert table.brokers[7].topic(0).locked_from_above == {}


class TestElection:
    """T6, annex VI: the root fails."""

    def test_t6_most_room_wins_then_the_lowest_number(self) -> None:
        table = running()
        table.crash(0)
        table.notice(0)
        assert table.brokers[2].residual_degree() == 2
        table.settle(hold=kind(ParentRequest))
        votes = {
            (copy.sender, copy.message.residual_degree)
            for copy in table.handed_over
            if isinstance(copy.message, RootElection)
        }
        assert votes == {(1, 1), (2, 2), (3, 2)}
        assert sum(kind(RootElection)(copy) for copy in table.handed_over) == 6
        table.hand_over(over(1, 2))
        assert table.brokers[2].residual_degree() == 1
        table.settle()
        assert table.brokers[2].residual_degree() == 0
        asked = {int(request.source): sorted(request.topics) for request in table.received(2, ParentRequest)}
        assert asked == {1: [0, 1], 3: [0]}
        assert {broker: int(table.brokers[broker].parent) for broker in (1, 2, 3)} == {1: 2, 2: -1, 3: 2}
        assert not any(broker.is_reconfiguring() for broker in table.brokers.values())
        table.publish(7, "total")
        table.settle()
        assert table.delivered[4] == table.delivered[6] == table.delivered[7] == [(7, 1)]

    @pytest.mark.parametrize("expects_most", [False, True])
    def test_t6_how_many_the_winner_expects(self, expects_most: bool) -> None:
        """D18: with the larger of the two the winner may wait for somebody who does not exist, until its timer ends."""
        table = running(expects_most=expects_most, total_degree=6)
        table.crash(0)
        table.notice(0)
        table.settle()
        assert table.brokers[2].is_reconfiguring() == expects_most
        if expects_most:
            table.expire(2, CHILDREN)
            assert not table.brokers[2].is_reconfiguring()

    def test_a_vote_that_does_not_come(self) -> None:
        """Scenario S4 of section 5.2: 0 and 1 fail together; the others wait for the vote of 1, and then elect 2."""
        table = running()
        table.crash(0)
        table.crash(1)
        table.notice(0)
        table.notice(1)
        table.settle()
        assert table.brokers[2].is_electing
        table.expire(2, PARENT)
        table.expire(3, PARENT)
        table.settle()
        assert int(table.brokers[3].parent) == 2


class TestRounds:
    """T8, annex VIII: broker 1 fails, and 4 reaches the root before 5."""

    def repaired(self) -> Table:
        table = running()
        table.publish(6, "causal", topic=1)
        table.settle()
        table.publish(5, "causal", topic=1)
        table.settle()
        table.publish(5, "total", topic=1)
        table.crash(1)
        for order in ("causal", "none", "none"):
            table.publish(6, order, topic=1, keys=[2])
        table.notice(1)
        for order in ("total", "none"):
            table.publish(5, order, topic=1, keys=[3])
        table.settle(hold=over(5, 0))
        assert int(table.brokers[4].parent) == 0
        return table

    def test_t8_refused_for_room_and_for_topics_then_accepted(self) -> None:
        table = self.repaired()
        assert table.delivered[5] == [(6, 1), (5, 1)]
        table.settle()
        asked = [copy.receiver for copy in table.handed_over if copy.sender == 5 and kind(ParentRequest)(copy)]
        assert asked == [0, 4, 2], "by hops: the root and the sibling are two away, broker 2 three"
        assert [response.is_accepted for response in table.received(5, ParentResponse)] == [False, False, True]
        assert table.brokers[5].rounds == 3
        assert int(table.brokers[5].parent) == 2
        for_four, for_five = table.received(4, ParentBuffer), table.received(5, ParentBuffer)
        assert [list(buffer.last) for buffer in for_four] == [[0]]
        assert [buffer.last for buffer in for_five] == [{1: {6: 4, 5: 1}}]

    def test_t8_what_was_missed_comes_in_order_and_what_was_held_after_it(self) -> None:
        table = self.repaired()
        table.settle()
        (request,) = table.received(2, LostMessageRequest)
        assert request.needed == {1: {6: 1}}
        assert [(item.source, item.sequence) for item in request.pushed[1]] == [(5, 2)]
        assert table.delivered[5] == [(6, 1), (5, 1), (6, 2), (6, 3), (6, 4), (5, 2), (5, 3), (5, 4)]
        assert sorted(name for name in table.delivered[6] if name[0] == 5) == [(5, 1), (5, 2), (5, 3), (5, 4)]
        assert not any(broker.unfinished() for broker in table.brokers.values())

    def test_t8_ancestors_first_takes_two_rounds(self) -> None:
        """D15: the order that the text gives; the log follows the other."""
        table = running(ancestors_first=True)
        table.crash(1)
        table.notice(1)
        table.settle(hold=over(5, 0))
        table.settle()
        asked = [copy.receiver for copy in table.handed_over if copy.sender == 5 and kind(ParentRequest)(copy)]
        assert asked == [0, 2]
