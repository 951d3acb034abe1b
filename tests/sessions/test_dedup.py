"""What has come already, what was shown lately, and what a client keeps: the memories that fail-over needs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import decode_columns, encode_columns, read_header
from antiphon.api.columns import Author, Columns
from antiphon.client.requests import set_exception
from antiphon.client.server_pool import addresses_of
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import publication_key
from antiphon.sessions.dedup import GAPS_AT_MOST, Arrivals, DedupTable, publications_in
from antiphon.sessions.replay_buffer import BATCHES_AT_MOST, BYTES_AT_MOST, Budget, ReplayBuffer
from antiphon.sessions.unacked import KEPT_AT_MOST, WINDOW, UnackedBatch, UnackedBatches
from tests.node.support import running

ANNA, BEN = 1 << 61, 7

numbers = st.lists(st.integers(1, 60), max_size=80)


@given(numbers)
def test_each_batch_is_new_once(arriving: list[int]) -> None:
    seen = DedupTable()
    known: set[int] = set()
    for number in arriving:
        assert seen.add(ANNA, number) == (number not in known)
        known.add(number)
    assert [seen.has(ANNA, number) for number in range(1, 62)] == [number in known for number in range(1, 62)]
    copy = DedupTable(seen.ranges())
    assert [copy.has(ANNA, number) for number in range(1, 62)] == [number in known for number in range(1, 62)]
    assert copy.highest(ANNA) == max(known, default=0)


@given(numbers, numbers)
def test_a_node_that_merges_has_seen_what_either_has(one: list[int], other: list[int]) -> None:
    seen, others = DedupTable(), DedupTable()
    for number in one:
        seen.add(ANNA, number)
    for number in other:
        others.add(ANNA, number)
    seen.merge(others.ranges())
    assert {number for number in range(1, 62) if seen.has(ANNA, number)} == {*one, *other}


@given(numbers)
def test_what_is_below_the_number_of_a_writer_counts_as_come(arriving: list[int]) -> None:
    seen, highest = DedupTable(), 0
    for number in arriving:
        assert seen.add(ANNA, number, only_grows=True) == (number > highest)
        highest = max(highest, number)
    assert seen.ranges_of(ANNA) == [highest]


def test_all_that_a_client_may_have_under_way_can_overtake_and_nothing_counts_as_come() -> None:
    """While keys are closed, messages about others overtake those that wait for them, by the hundreds."""
    seen = DedupTable()
    for number in range(2, 2 * KEPT_AT_MOST, 2):
        assert seen.add(ANNA, number)
    for number in range(1, 2 * KEPT_AT_MOST, 2):
        assert seen.add(ANNA, number)


def test_the_oldest_of_too_many_gaps_counts_as_filled() -> None:
    seen = DedupTable()
    for number in range(2, 2 * GAPS_AT_MOST + 4, 2):
        assert seen.add(ANNA, number)
    assert seen.has(ANNA, 1) and not seen.add(ANNA, 1)
    assert not seen.has(ANNA, 3) and seen.add(ANNA, 3)
    assert len(seen.ranges_of(ANNA)) <= 1 + 2 * GAPS_AT_MOST


def test_who_was_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sessions.dedup.AUTHORS_AT_MOST", 3)
    seen = DedupTable()
    for author in (1, 2, 3, 1, 4):
        seen.add(author, 1 if author != 1 else seen.highest(1) + 1)
    assert [author for author in (1, 2, 3, 4) if seen.has(author, 1)] == [1, 3, 4]


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["none", "fifo", "total"])), max_size=24), st.booleans())
def test_an_ordered_batch_behind_a_later_one_of_its_author_is_too_late(
    arriving: list[tuple[int, str]], is_strict: bool
) -> None:
    """The model looks at all that came before; without strict sessions a total batch waits for total ones only."""
    seen = Arrivals()
    came: dict[int, str] = {}
    for number, order in arriving:
        waits = ("total",) if order == "total" and not is_strict else ("fifo", "total")
        is_late = order != "none" and any(other > number and came[other] in waits for other in came)
        assert seen.take(ANNA, number, order, is_strict) == (number not in came and not is_late)
        came.setdefault(number, order)


def test_how_far_a_forgotten_author_had_come_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sessions.dedup.AUTHORS_AT_MOST", 1)
    seen = Arrivals()
    assert seen.take(ANNA, 2, "causal", True) and seen.take(BEN, 1, "causal", True)
    assert seen.take(ANNA, 1, "causal", True)


def test_a_batch_of_a_client_says_whose_it_is() -> None:
    columns = Columns(3, 5, [b"a", b"b"])
    payload = encode_columns(columns, Author(ANNA, 12))
    assert (read_header(payload)[2], read_header(payload)[0], decode_columns(payload)) == (Author(ANNA, 12), 2, columns)
    batch = Batch("room", BEN, "causal", 0, payload, sequence=4)
    assert (batch.client, batch.author, batch.number) == (ANNA, ANNA, 12)
    own = Batch("room", BEN, "causal", 0, encode_columns(columns), sequence=4)
    assert (own.client, own.author, own.number) == (0, BEN, 4)


def batch(author: int, number: int, size: int = 1) -> Batch:
    payload = encode_columns(Columns(1, 1, [bytes(size)]))
    return Batch("room", author, "causal", 0, payload, sequence=number)


def test_what_was_not_seen_is_found_again() -> None:
    replay_buffer: ReplayBuffer[Batch] = ReplayBuffer(Budget())
    replay_buffer.begin(100)
    for number in (1, 2, 3):
        replay_buffer.add(100 + number, batch(BEN, number))
    seen = DedupTable({BEN: [2, 1, 1]})
    # The second follows the first, so who has seen it was told of a gap in the place of the first.
    assert [each.number for each in replay_buffer.unseen(seen, 100)] == [3]
    assert [each.number for each in replay_buffer.unseen(DedupTable(), 100)] == [1, 2, 3]
    assert [each.number for each in replay_buffer.unseen(seen, 102)] == [3]
    assert not replay_buffer.may_lack(seen, 100)
    assert replay_buffer.may_lack(seen, 99) and not replay_buffer.may_lack(seen, 99, was_here=True)
    replay_buffer.end()
    assert replay_buffer.may_lack(seen, 1 << 60) and replay_buffer.unseen(seen, 0) == []


@pytest.mark.parametrize(("size", "last"), [(1, BATCHES_AT_MOST + 10), (BYTES_AT_MOST // 16, 40)])
def test_who_lacks_what_is_not_kept_any_more_is_told(size: int, last: int) -> None:
    replay_buffer: ReplayBuffer[Batch] = ReplayBuffer(Budget())
    replay_buffer.begin(0)
    for number in range(1, last + 1):
        replay_buffer.add(number, batch(BEN, number, size))
    kept = len(replay_buffer.unseen(DedupTable(), 0))
    assert 0 < kept <= BATCHES_AT_MOST and kept * size <= BYTES_AT_MOST
    dropped = last - kept
    assert not replay_buffer.may_lack(DedupTable({BEN: [dropped]}), 0)
    assert replay_buffer.may_lack(DedupTable({BEN: [dropped - 1]}), 0)
    # Who came later is not owed it.
    assert not replay_buffer.may_lack(DedupTable(), dropped + 1)


def test_all_topics_together_keep_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sessions.replay_buffer.BYTES_OF_ALL_AT_MOST", 10_000)
    budget = Budget()
    topics: list[ReplayBuffer[Batch]] = [ReplayBuffer(budget) for _ in range(4)]
    for number in range(1, 101):
        for topic in topics:
            topic.add(number, batch(BEN, number, 50))
    # A batch of 50 bytes takes ten times as much.
    assert 5000 < budget.bytes <= 10_000
    for topic in topics:
        topic.end()
    assert budget.bytes == 0


def kept_of(number: int, topic: str, serial: int, receipt: Any = None) -> UnackedBatch:
    return UnackedBatch(number, topic, serial, "causal", b"", (), receipt)


def test_what_is_not_safe_is_handed_in_again_in_order() -> None:
    kept = UnackedBatches()
    for number in range(1, 7):
        kept.add(kept_of(number, "room" if number % 2 else "hall", (number + 1) // 2))
    for number in (1, 2, 3, 5):
        found = kept.on_ack(number)
        assert found is not None
        kept.accepted(found)
    kept.safe("room", 2)
    assert [each.number for each in kept] == [2, 4, 5, 6]
    assert kept.room() == WINDOW - 2
    kept.connection_lost()
    assert kept.has_to_repeat("room") and kept.has_to_repeat("hall")
    again = [kept.next_again("hall"), kept.next_again("hall"), kept.next_again("hall"), kept.next_again("hall")]
    assert [each and each.number for each in again] == [2, 4, 6, None]
    assert not kept.has_to_repeat("hall") and kept.topics() == ["room", "hall"]


def test_what_is_safe_before_it_is_accepted_is_kept_until_then() -> None:
    kept = UnackedBatches()
    kept.add(kept_of(1, "room", 1))
    kept.safe("room", 1)
    assert len(kept) == 1
    found = kept.on_ack(1)
    assert found is not None
    kept.accepted(found)
    assert len(kept) == 0


def test_how_much_is_under_way_and_kept_is_bounded() -> None:
    kept = UnackedBatches()
    for number in range(KEPT_AT_MOST):
        assert kept.room() > 0
        kept.add(kept_of(number, "room", number + 1))
        found = kept.on_ack(number)
        assert found is not None
        kept.accepted(found)
    assert kept.room() == 0
    kept.connection_lost()
    for _ in range(WINDOW):
        assert kept.next_again("room") is not None
    assert kept.next_again("room") is None and kept.has_to_repeat("room")
    assert len(kept.give_up("room")) == KEPT_AT_MOST and not kept.has_to_repeat("room") and len(kept) == 0


def test_what_was_accepted_is_handed_in_again_where_the_rest_is_given_up() -> None:
    kept = UnackedBatches()
    for number in range(4):
        kept.add(kept_of(number, "room", number + 1))
    for number in (0, 2):
        found = kept.on_ack(number)
        assert found is not None
        kept.accepted(found)
    kept.connection_lost()
    assert [each.serial for each in kept.give_up_unaccepted("room")] == [2, 4]
    again = [kept.next_again("room"), kept.next_again("room"), kept.next_again("room")]
    assert [each.serial for each in again if each is not None] == [1, 3] and len(kept) == 2
    assert kept.give_up_unaccepted("hall") == [] and not kept.has_to_repeat("hall")


def test_addresses_are_checked() -> None:
    assert addresses_of(["a:1", " b:1 ", "a:1"]) == ["a:1", "b:1"]
    with pytest.raises(UsageError, match="is no address"):
        addresses_of("a:1,b")


def test_a_receipt_that_nobody_awaits_may_fail() -> None:
    async def test() -> None:
        receipt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        set_exception(receipt, ValueError("lost"))
        set_exception(receipt, ValueError("again"))
        set_exception(None, ValueError("nobody"))
        assert str(receipt.exception()) == "lost"

    running(test)


def test_a_set_of_publications_has_all_of_another_only_if_none_is_missing() -> None:
    keys = [publication_key(3, 5), ~publication_key(3, 8), ~publication_key(4, 2)]
    publications = publications_in(keys)
    assert publications.ranges() == {3: [8, 6, 7], 4: [2, 1, 1]}
    assert publications.has_all({}) and publications.has_all({3: [8, 6, 7]}) and publications.has_all({3: [4], 4: [0]})
    assert publications.has_all({4: [2, 1, 1]}) and publications.has_all(publications.ranges())
    assert not publications.has_all({3: [6]}) and not publications.has_all({4: [2]})
    assert not publications.has_all({5: [1]})


def test_sets_of_publications_have_differences_and_common_parts() -> None:
    some = DedupTable({3: [8, 6, 7], 4: [2], 5: [1]})
    assert some.without({3: [4], 4: [2]}).ranges() == {3: [8, 1, 4, 6, 7], 5: [1]}
    assert some.in_common({3: [8, 5, 5], 4: [5], 6: [9]}).ranges() == {3: [8, 5, 7], 4: [2]}
    assert some.without({}).ranges() == some.ranges() and some.in_common({}).ranges() == {}
