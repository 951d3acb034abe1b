"""Defects of the listings of Ginger that show from outside: each switch makes a difference, and this is it.

Those of views (D5), candidates (D15), election (D18) and of acknowledgements that are counted (D39) are in
``test_published_scenarios.py``; duplicates (D31) and unknown publishers (D32) are in ``test_broker_scenarios.py``, the
guard against cycles (D47) in ``test_published_gaps.py``.
"""

from __future__ import annotations

import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.protocols.tree.ginger_messages import LostMessageRequest, PublishedGingerOptions
from antiphon_lab.scenarios.tree import PublishedTreeOptions, published_tree_builder
from tests.fabrics.tree.schedules import PUBLISHED, REPAIRED, Schedule, experiment, load, said
from tests.fabrics.tree.table import Table, either, over

SIX_BROKERS = (-1, 0, 0, 0, 1, 1)


@pytest.mark.parametrize("ends_all", [False, True])
def test_d26_the_end_of_one_synchronisation_ends_all(ends_all: bool) -> None:
    """The root takes in brokers 4 and 5; when it is done with one, it goes on as if it were with both."""
    options = PublishedTreeOptions(parents=list(SIX_BROKERS), total_degree=5, ends_all_synchronisations=ends_all)
    table = Table(6, published_tree_builder(options, 6, "causal", [(2, 3, 4, 5)]))
    table.crash(1)
    table.notice(1)
    table.settle(hold=either(over(4, 0), over(5, 0)))
    for orphan in (4, 5):
        table.hand_over(over(orphan, 0))
    table.settle(hold=over(5, 0))
    assert len(table.received(0, LostMessageRequest)) == 1
    assert table.brokers[0].is_reconfiguring() is not ends_all
    table.settle()
    assert not table.brokers[0].is_reconfiguring()


def test_d34_the_word_that_a_total_is_completed_is_lost_with_a_broker() -> None:
    """Broker 1 dies with it. If nobody compares what is completed, its children wait for it for ever."""
    schedule = Schedule(SIX_BROKERS, [(2, 3, 4, 5)], said((100, 2, "total")), crashes=[(155, 1)], total_degree=5)
    assert schedule.run(PUBLISHED).is_clean
    outcome = schedule.run(PUBLISHED, tells_completed=False)
    assert outcome.broken == {"completeness", "stuck"}
    assert outcome.delivered(3) == [(2, 1)]
    assert outcome.delivered(4) == outcome.delivered(5) == []
    assert schedule.run(REPAIRED).is_clean


def test_d42_who_has_locked_acknowledges_though_those_below_have_not() -> None:
    """Broker 2 is asked again by its new parent while the lock is on its way to broker 3, which publishes meanwhile."""
    schedule = Schedule(
        (-1, 0, 1, 2, 0),
        [(3, 4)],
        said((100, 4, "total"), (350, 3, "causal")),
        crashes=[(135, 1)],
        delays={(2, 3): 400},
        total_degree=5,
    )
    assert schedule.run(PUBLISHED).is_clean
    outcome = schedule.run(PUBLISHED, acknowledges_blocked=True)
    assert outcome.broken == {"total"}
    assert outcome.delivered(3) == [(3, 1), (4, 1)]
    assert outcome.delivered(4) == [(4, 1), (3, 1)]
    assert schedule.run(REPAIRED).is_clean


def test_d46_a_forced_parent_that_announces_the_topics_of_its_child() -> None:
    """As published brokers 5 and 6, whose topic their new parents do not know, never hear of each other again.

    To announce the topics helps only half: broker 4 takes in broker 5 while it has no parent to whom it could.
    """
    publications = said((500, 5, "causal"), (20_000, 5, "causal"), (20_500, 6, "total"), topic=1)
    schedule = experiment(publications, [(1000, 0), (1000, 1), (1000, 2)])
    assert schedule.run(PUBLISHED).violations["completeness"] == 2
    assert schedule.run(PUBLISHED, announces_forced_topics=True).violations["completeness"] == 1


@pytest.mark.parametrize("crash", [475, 1168, 1293])
def test_repairs_end_where_no_gap_is_hit(crash: int) -> None:
    """Under load, with broker 1 lost: order suffers (G1), but everything comes and nothing waits for ever.

    Orphans that are taken in by orphans are asked for total publications in progress. What had come before, out of its
    order, is not missed.
    """
    broken = experiment(load(1500), [(crash, 1)]).run(PUBLISHED).broken
    assert broken.isdisjoint({"completeness", "stuck", "duplicates"})


def test_what_was_never_published_is_refused() -> None:
    """There is no end of a subscription, and no other reading of a lock."""
    table = Table(2, published_tree_builder(PublishedTreeOptions(), 2, "causal", [(0, 1)]))
    with pytest.raises(UsageError, match="broker-tree"):
        table.brokers[1].unsubscribe(0)
    with pytest.raises(UsageError, match="already"):
        table.brokers[1].subscribe(0)
    with pytest.raises(UsageError, match="not subscribed"):
        table.brokers[1].publish(b"", 1)
    with pytest.raises(UsageError, match="no order"):
        table.brokers[1].publish(b"", 0, 9)
    with pytest.raises(UsageError, match="single, direct, barrier"):
        PublishedGingerOptions(blocking="never")
    with pytest.raises(UsageError, match="none, fifo"):
        PublishedGingerOptions("best")
