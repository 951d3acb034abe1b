"""The broker tree through the scenarios of section 5.3 of the dissertation, and those of the holes found in it.

The overlay is that of the experiments: 0 above 1, 2 and 3; 1 above 4 and 5; 2 above 6; 3 above 7; clients of topic 0 at
4, 6 and 7, of topic 1 at 5 and 6. Where the rules as published fail on the same schedule, the test says so: it is then
known to reach what it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from antiphon.fabrics.tree.assembly.scenario import tree_builder
from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.fabrics.tree.messages import Closed
from antiphon.simulator.scenario.scenario import PublishTable
from tests.fabrics.tree.schedules import (
    CLIENTS,
    EIGHT_BROKERS,
    PUBLISHED,
    REPAIRED,
    Outcome,
    Schedule,
    experiment,
    load,
    said,
)
from tests.fabrics.tree.table import Table, over

ONE, OTHER = 0, 1
"""The topics."""


def survive(schedule: Schedule, **options: Any) -> Outcome:
    """Run a schedule on the broker tree: every promise is kept, and all who are left are in one tree."""
    outcome = schedule.run(REPAIRED, **options)
    assert outcome.is_clean, outcome.judgement
    assert len(outcome.roots()) == 1
    return outcome


def breaks_of(schedules: Sequence[Schedule], **options: Any) -> set[str]:
    """The promises that the published rules break in some of these schedules."""
    return set().union(*(schedule.run(PUBLISHED, **options).broken for schedule in schedules))


def test_t5_a_total_in_progress_when_its_way_fails() -> None:
    """Annex V: whenever broker 3 fails, broker 7 delivers the total publication once, as all do."""
    for crash in range(1000, 1800, 60):
        outcome = survive(experiment(said((1000, 6, "total"), (3000, 7, "total")), [(crash, 3)]))
        for client in CLIENTS[ONE]:
            assert outcome.delivered(client) == [(6, 1), (7, 1)]
        assert outcome.parents()[7] == 0


@pytest.mark.parametrize("failed", [0, 1, 2, 3])
def test_t7_nothing_is_lost_or_overtaken_during_a_repair(failed: int) -> None:
    """Annex VII, under load: what is published meanwhile comes after the repair, in its order."""
    outcome = survive(experiment(load(1500), [(700, failed)]))
    for topic, clients in enumerate(CLIENTS):
        expected = sum(item.topic == topic for item in load(1500))
        for client in clients:
            assert len(outcome.delivered(client, topic)) == expected


def test_t10_two_orphans_that_nobody_has_room_for() -> None:
    """Both are refused by the root, ask each other at the same time, and as published adopt each other."""
    schedule = Schedule(
        EIGHT_BROKERS,
        [(4, 5, 6, 7)],
        said((100, 4, "causal"), (3000, 5, "total")),
        crashes=[(150, 1)],
        total_degree=2,
    )
    published = schedule.run(PUBLISHED)
    assert (published.parents()[4], published.parents()[5]) == (5, 4)
    assert "stuck" in published.broken
    parents = survive(schedule).parents()
    assert (parents[4], parents[5]) != (5, 4)


def test_t11_a_sibling_fails_while_the_root_is_replaced() -> None:
    """Brokers 1, 2 and 3 are to replace the root; one of them fails soon after, at any moment."""
    for sibling in (1, 2, 3):
        for after in range(0, 300, 60):
            crashes = [(1000, 0), (1050 + after, sibling)]
            survive(replace(experiment(load(1400, 100, 900), crashes), transmission=5))


def test_t12_parent_and_child_fail_together() -> None:
    """Broker 1 loses its parent, the root, and its child 4."""
    outcome = survive(experiment(load(1500, 100), [(700, 0), (700, 4)]))
    assert 1 in outcome.parents()


LATE = 1000
"""Ticks after which a crash is noticed; until then everybody talks to the dead."""


def test_t13_an_orphan_with_more_to_give_than_a_buffer_holds() -> None:
    """Broker 5 publishes thirty times to its dead parent. As published it has the last ten to push, and is silent."""
    many = said(*((1000 + 20 * number, 5, "causal") for number in range(30)), topic=OTHER)
    schedule = experiment([*said((500, 5, "causal"), topic=OTHER), *many], [(1000, 1)], detection=LATE)
    assert "completeness" in schedule.run(PUBLISHED, buffer=10).broken
    outcome = survive(schedule, collect=20)
    assert outcome.delivered(6, OTHER) == [(5, number) for number in range(1, 32)]


def test_t14_an_orphan_that_lacks_more_than_a_buffer_holds() -> None:
    """Thirty publications of broker 6 go past broker 5. As published the first twenty never come."""
    many = said(*((1000 + 20 * number, 6, "causal") for number in range(30)), topic=OTHER)
    schedule = experiment([*said((500, 6, "causal"), topic=OTHER), *many], [(1000, 1)], detection=LATE)
    assert "completeness" in schedule.run(PUBLISHED, buffer=10).broken
    outcome = survive(schedule, collect=20)
    assert outcome.delivered(5, OTHER) == [(6, number) for number in range(1, 32)]


def test_t15_a_publisher_of_whom_the_new_parent_has_never_heard() -> None:
    """All that broker 5 ever published went to its dead parent; as printed only known publishers are compared (D32)."""
    schedule = experiment(said((1000, 5, "causal"), (1010, 5, "none"), topic=OTHER), [(1000, 1)])
    assert "completeness" in schedule.run(PUBLISHED, pushes_unknown=False).broken
    assert schedule.run(PUBLISHED).is_clean
    assert sorted(survive(schedule).delivered(6, OTHER)) == [(5, 1), (5, 2)]


def test_t16_an_acknowledgement_that_comes_twice() -> None:
    """The root hears twice that broker 2 and 3 are closed; it waits for broker 1 all the same."""
    options = TreeTableOptions(parents=list(EIGHT_BROKERS))
    table = Table(8, tree_builder(options, 8, "causal", CLIENTS))
    table.publish(6, "total")
    table.settle(hold=over(1, 0))
    said_closed = {int(copy.sender): copy for copy in table.handed_over if isinstance(copy.message, Closed)}
    for child in (2, 3):
        table.brokers[0].receive(child, said_closed[child].message)
        table.settle(hold=over(1, 0))
    assert not any(table.delivered)
    table.settle()
    for client in CLIENTS[ONE]:
        assert table.delivered[client] == [(6, 1)]


def test_t17_a_publication_that_is_forwarded_and_resent() -> None:
    """Nothing comes twice, though buffers are compared while others go on (D31)."""
    schedules = [experiment(load(1500), [(700, failed)]) for failed in (1, 3)]
    assert "duplicates" in breaks_of(schedules, drops_duplicates=False)
    for schedule in schedules:
        survive(schedule)


def test_t18_a_forced_parent_that_does_not_know_the_topic() -> None:
    """With 0, 1 and 2 gone, nobody near broker 5 or 6 serves topic 1; as published they never meet again (D46)."""
    publications = said((500, 5, "causal"), (20_000, 5, "causal"), (20_500, 6, "total"), topic=OTHER)
    schedule = experiment(publications, [(1000, 0), (1000, 1), (1000, 2)])
    assert "completeness" in schedule.run(PUBLISHED).broken
    outcome = survive(schedule)
    assert outcome.delivered(5, OTHER) == outcome.delivered(6, OTHER) == [(5, 1), (5, 2), (6, 1)]


def test_t19_a_publication_orphaned_with_its_broker() -> None:
    """G1: broker 5 has delivered what its parent took into the grave; total publications of 6 go on meanwhile."""
    schedules = [
        experiment(said((1000, 5, "causal"), (1000 + after, 6, "total"), topic=OTHER), [(1020, 1)])
        for after in range(0, 500, 50)
    ]
    assert "total" in breaks_of(schedules)
    for schedule in schedules:
        survive(schedule)


def test_t20_a_publication_in_flight_meets_a_lock() -> None:
    """Section 3.5, no fault: at whatever moment broker 7 publishes, all agree on which side of the total it is."""
    schedules = [experiment(said((1000, 4, "total"), (1000 + after, 7, "causal")), []) for after in range(0, 500, 50)]
    assert "total" in breaks_of(schedules, blocking="single")
    for schedule in schedules:
        outcome = survive(schedule)
        assert outcome.delivered(4) == outcome.delivered(6) == outcome.delivered(7)


def test_t21_transfers_between_two_accounts_from_different_branches() -> None:
    """Two keys each, at the same time, in no fault; as published with one lock per key they wait for each other."""
    publications = said((1000, 4, "total"), (1000, 6, "total"), (1000, 7, "total"), keys=(1, 2))
    schedule = experiment(publications, [])
    assert "stuck" in schedule.run(PUBLISHED, blocking="single").broken
    outcome = survive(schedule)
    assert len(outcome.delivered(4)) == 3
    assert outcome.delivered(4) == outcome.delivered(6) == outcome.delivered(7)


def test_t22_the_root_fails_between_two_words_about_a_completion() -> None:
    """G4: one child of the root knows that a total publication is completed, and another does not."""
    schedules = [
        replace(experiment(said((1000, 7, "total"), (6000, 6, "total")), [(crash, 0)], 500), transmission=20)
        for crash in range(1640, 1840, 10)
    ]
    assert {"stuck", "completeness"} <= breaks_of(schedules)
    for schedule in schedules:
        outcome = survive(schedule)
        for client in CLIENTS[ONE]:
            assert outcome.delivered(client) == [(7, 1), (6, 1)]


@pytest.mark.parametrize("patience", [20, 60, 100])
def test_t23_answers_that_come_after_the_patience_has_ended(patience: int) -> None:
    """Each round trip takes at least 74 ticks; who was accepted too late has asked somebody else by then."""
    for failed in (0, 1, 3):
        survive(experiment(load(1000, 100), [(500, failed)]), patience=patience)


@pytest.mark.parametrize("last", [0, 4, 6])
@pytest.mark.parametrize("apart", [0, 200])
def test_t24_the_last_broker_standing(last: int, apart: int) -> None:
    """All others fail, at once or one after the other; what the last one publishes is still completed."""
    others = [broker for broker in range(8) if broker != last]
    crashes = [(1000 + apart * place, broker) for place, broker in enumerate(others)]
    topics = [topic for topic, clients in enumerate(CLIENTS) if last in clients]
    after = [PublishTable(at=9000, node=last, topic=topic, order="total", keys=[1]) for topic in topics]
    outcome = survive(experiment([*load(1200, 100), *after], crashes))
    assert outcome.parents() == {last: -1}
    for topic in topics:
        assert outcome.delivered(last, topic)[-1][0] == last


@pytest.mark.parametrize("second", [0, 2, 4])
def test_t25_a_second_failure_in_the_middle_of_synchronising(second: int) -> None:
    """G6: whoever takes in the orphans of broker 1 fails soon after, at any moment."""
    for after in range(50, 650, 120):
        survive(experiment(load(1500, 100, 500), [(700, 1), (700 + after, second)]))


@pytest.mark.parametrize("failed", [(1,), (0,), (1, 4), (0, 1), (1, 2, 3)])
def test_the_faults_of_the_experiments(failed: tuple[int, ...]) -> None:
    """S1 to S5 of section 5.2: broker 1; the root; 1 and 4; 0 and 1; 1, 2 and 3, each together."""
    outcome = survive(experiment(load(2000), [(1000, broker) for broker in failed]))
    assert set(outcome.parents()) == set(range(8)) - set(failed)
