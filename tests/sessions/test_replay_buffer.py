"""What a node shows a client that comes from another one: what it has not seen, and nothing that is too late."""

from __future__ import annotations

import pytest

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.sessions.dedup import DedupTable
from antiphon.sessions.replay_buffer import PER_KEY, Budget, ReplayBuffer, Resumption, TotalOrderScope


def shown_batches(
    *shown: tuple[int, int, str] | tuple[int, int, str, bytes], total_order: TotalOrderScope = PER_KEY
) -> ReplayBuffer[Batch]:
    """The publisher, number, order and key of each batch that a node has shown, one after the other."""
    found: ReplayBuffer[Batch] = ReplayBuffer(Budget(), total_order)
    found.begin(0)
    for publisher, sequence, order, *keys in shown:
        payload = encode_columns(Columns(1, 0, [b"value"], about=keys or None))
        found.add(1, Batch("room", publisher, order, 0, payload, sequence=sequence))
    return found


def unseen(kept: ReplayBuffer[Batch], *seen: tuple[int, int]) -> list[tuple[int, int]]:
    known = DedupTable()
    for publisher, sequence in seen:
        known.add(publisher, sequence)
    return [(batch.publisher, batch.sequence) for batch in kept.unseen(known, 0)]


def test_what_was_not_seen_is_shown_in_its_order() -> None:
    kept = shown_batches((1, 1, "fifo"), (2, 1, "causal"), (1, 2, "total"), (2, 2, "none"))
    assert unseen(kept) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert unseen(kept, (1, 1), (2, 1)) == [(1, 2), (2, 2)]


def test_what_the_former_node_passed_over_is_not_shown() -> None:
    """Something later of its author was seen that waits for it, or something total that is after it."""
    assert unseen(shown_batches((1, 1, "total"), (1, 2, "fifo")), (1, 2)) == []
    assert unseen(shown_batches((1, 1, "none"), (1, 2, "fifo")), (1, 2)) == []
    assert unseen(shown_batches((1, 1, "total"), (2, 1, "total")), (2, 1)) == []


def test_what_is_only_overtaken_is_shown() -> None:
    """What has no order waits for nothing, and weaker messages of others pass total ones."""
    assert unseen(shown_batches((1, 1, "fifo"), (1, 2, "none")), (1, 2)) == [(1, 1)]
    assert unseen(shown_batches((1, 1, "total"), (2, 1, "causal")), (2, 1)) == [(1, 1)]
    assert unseen(shown_batches((1, 1, "causal"), (2, 1, "total")), (2, 1)) == [(1, 1)]


def test_what_was_shown_before_something_older_is_not_passed_over() -> None:
    """What has no order overtakes what its author published before, which has not waited for it anywhere."""
    assert unseen(shown_batches((1, 2, "none"), (1, 1, "fifo")), (1, 1)) == [(1, 2)]
    assert unseen(shown_batches((1, 2, "none"), (1, 1, "total")), (1, 1)) == [(1, 2)]


def test_total_messages_about_other_keys_wait_for_nobody() -> None:
    """On a tree two nodes may show them in different orders; in gossip there is one order for all keys."""
    shown = ((1, 1, "total", b"anna"), (2, 1, "total", b"ben"))
    assert unseen(shown_batches(*shown), (2, 1)) == [(1, 1)]
    assert unseen(shown_batches(*shown, total_order=TotalOrderScope(is_over_all_keys=True)), (2, 1)) == []
    assert unseen(shown_batches((1, 1, "total", b"anna"), (2, 1, "total", b"anna")), (2, 1)) == []


def test_without_strict_sessions_only_total_messages_wait_for_total_ones() -> None:
    loose = TotalOrderScope(is_strict=False)
    assert unseen(shown_batches((1, 1, "total"), (1, 2, "fifo"), total_order=loose), (1, 2)) == [(1, 1)]
    assert unseen(shown_batches((1, 1, "total", b"anna"), (1, 2, "total", b"ben"), total_order=loose), (1, 2)) == []


def test_a_node_vouches_for_what_its_log_holds_of_its_past() -> None:
    """The last batches of its earlier life are shown as all others, so they are none that only lost nodes have."""
    kept = shown_batches((1, 2, "causal"))
    kept.starts_behind(DedupTable({1: [2], 2: [1]}))
    assert kept.before == {1: [1], 2: [1]} and kept.past.ranges() == {1: [2], 2: [1]}
    kept.begin(2)
    kept.starts_behind(DedupTable({1: [2]}))
    assert kept.before == {1: [2]}


@pytest.mark.parametrize(("lost_at_us", "is_gap"), [(400, False), (600, True)])
def test_what_a_node_misses_while_others_are_asked_is_told(lost_at_us: int, is_gap: bool) -> None:
    """The others answer for what had come here when they were asked, and not for what came later."""
    kept = shown_batches((1, 1, "total"))
    kept.lost(lost_at_us)
    resumption: Resumption[Batch] = Resumption(9, 0, {"room": {1: [1]}})
    found = kept.unseen(DedupTable(), 0)
    resumption.fetch("room", 500, found)
    assert resumption.replay("room", kept) == (is_gap, found)
    assert resumption.replay("room", kept) == (True, []), "without an answer of others the node may lack something"
