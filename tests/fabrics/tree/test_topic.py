"""What a broker knows of a topic: which part of the stream it keeps, and what it tells others about the rest."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.tree.messages import COMPLETION, Item, Skip
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.kernel.message import TOTAL, Keyed


def completion(number: int, source: int, sequence: int) -> Item:
    """The root, broker 2, has completed a total publication."""
    return Item(2, number, COMPLETION, Keyed(source, sequence, 0, b"", 0, TOTAL, vec[i64]([7])))


def test_a_completion_that_is_taken_back_from_the_log_counts_as_kept_whatever_neighbours_keep() -> None:
    """Else a broker that returns is told that it was completed, and does not deliver it when it comes."""
    topic = TreeTopic(0, 22)
    items = [completion(1, 11, 1), completion(2, 11, 2)]
    for item in items:
        topic.take(item)
        topic.completed[item.source] = item.sequence
    topic.forget({2: 2})
    assert topic.known()[1] == {11: 2}
    topic.take_back(items, {2: 0})
    assert topic.known()[:2] == ({2: 0}, {11: 0})
    topic.skip_to(Skip(0, None, {2: 2}, {11: 2}, []))
    assert topic.known()[:2] == ({2: 0}, {11: 0})


def test_a_completion_that_a_neighbour_cannot_send_is_skipped() -> None:
    topic = TreeTopic(0, 22)
    topic.take(completion(1, 11, 1))
    topic.completed[11] = 1
    topic.skip_to(Skip(0, None, {2: 3}, {11: 3, 12: 1}, []))
    assert topic.known()[:2] == ({2: 3}, {11: 3, 12: 1})
    assert topic.completed == {11: 3, 12: 1}


def test_what_two_roots_have_completed_is_not_kept_twice() -> None:
    """The second completion of a publication is kept; what is skipped reaches beyond the first."""
    topic = TreeTopic(0, 22)
    topic.base_completed[11] = 1
    topic.take(completion(5, 11, 1))
    topic.skip_to(Skip(0, None, {3: 1}, {11: 2}, []))
    assert topic.known()[1] == {11: 2}
