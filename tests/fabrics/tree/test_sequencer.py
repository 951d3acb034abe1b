"""The root's queues: which total publications may be locked, and in which order they are completed."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.tree.sequencer import Sequencer
from antiphon.kernel.message import TOTAL, Keyed


def total(source: int, sequence: int, *keys: int) -> Keyed:
    """A total publication."""
    return Keyed(source, sequence, 0, b"", 0, TOTAL, vec[i64](list(keys)))


def locked_by(sequencer: Sequencer, *keys: int) -> list[tuple[int, int]]:
    """Lock all that can be at the heads of some keys."""
    found = []
    for key in keys:
        while (publication := sequencer.take_ready(key)) is not None:
            found.append((int(publication.source), int(publication.sequence)))
    return found


def test_one_at_a_time_is_locked_for_a_key() -> None:
    sequencer = Sequencer()
    first, second = total(1, 1, 7), total(2, 1, 7)
    sequencer.add(first)
    sequencer.add(second)
    assert locked_by(sequencer, 7) == [(1, 1)]
    assert locked_by(sequencer, 7) == []
    sequencer.complete(first)
    assert locked_by(sequencer, 7) == [(2, 1)]


def test_unrelated_keys_never_wait() -> None:
    sequencer = Sequencer()
    sequencer.add(total(1, 1, 7))
    sequencer.add(total(2, 1, 8))
    assert locked_by(sequencer, 7, 8) == [(1, 1), (2, 1)]


def test_a_publication_about_two_keys_waits_for_both_and_holds_both() -> None:
    """A transfer between two accounts."""
    sequencer = Sequencer()
    first, transfer, last = total(1, 1, 8), total(2, 1, 7, 8), total(3, 1, 7)
    for publication in (first, transfer, last):
        sequencer.add(publication)
    assert locked_by(sequencer, 7, 8) == [(1, 1)]
    sequencer.complete(first)
    assert locked_by(sequencer, 8, 7) == [(2, 1)]
    sequencer.complete(transfer)
    assert locked_by(sequencer, 7) == [(3, 1)]


def test_those_of_one_source_are_locked_in_their_order() -> None:
    sequencer = Sequencer()
    blocking, first, second = total(9, 1, 7), total(1, 1, 7), total(1, 2, 8)
    sequencer.add(blocking)
    assert locked_by(sequencer, 7) == [(9, 1)]
    sequencer.add(first)
    sequencer.add(second)
    assert locked_by(sequencer, 8) == []
    sequencer.complete(blocking)
    assert locked_by(sequencer, 7, 8) == [(1, 1), (1, 2)]


def test_nobody_waits_for_keys_that_are_not_its_own() -> None:
    """The second publication of source 1 waits for its first, so it does not stand in the way at its own key."""
    sequencer = Sequencer()
    for publication in (total(9, 1, 7), total(1, 1, 7), total(1, 2, 8), total(2, 1, 8)):
        sequencer.add(publication)
    assert locked_by(sequencer, 7, 8) == [(9, 1), (2, 1)]


def test_locks_of_an_earlier_root_hold_their_keys() -> None:
    sequencer = Sequencer()
    found = total(1, 4, 7)
    sequencer.resume(found)
    sequencer.add(total(2, 1, 7))
    assert locked_by(sequencer, 7) == []
    following = sequencer.next_locked()
    assert following is not None and following.sequence == 4
    sequencer.complete(found)
    assert sequencer.next_locked() is None
    assert locked_by(sequencer, 7) == [(2, 1)]
