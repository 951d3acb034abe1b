"""What a node shows a client that comes from another one: what it has not seen, and nothing that is too late."""

from __future__ import annotations

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import Columns, encode_columns
from antiphon.sessions.dedup import SeenOfAll
from antiphon.sessions.replay_buffer import PER_KEY, Budget, Recent, TotalOrder


def recent(
    *shown: tuple[int, int, str] | tuple[int, int, str, bytes], total_order: TotalOrder = PER_KEY
) -> Recent[Batch]:
    """The publisher, number, order and key of each batch that a node has shown, one after the other."""
    found: Recent[Batch] = Recent(Budget(), total_order)
    found.begin(0)
    for publisher, sequence, order, *keys in shown:
        payload = encode_columns(Columns(1, 0, [b"value"], about=keys or None))
        found.add(1, Batch("room", publisher, order, 0, payload, sequence=sequence))
    return found


def unseen(kept: Recent[Batch], *seen: tuple[int, int]) -> list[tuple[int, int]]:
    known = SeenOfAll()
    for publisher, sequence in seen:
        known.add(publisher, sequence)
    return [(batch.publisher, batch.sequence) for batch in kept.unseen(known, 0)]


def test_what_was_not_seen_is_shown_in_its_order() -> None:
    kept = recent((1, 1, "fifo"), (2, 1, "causal"), (1, 2, "total"), (2, 2, "none"))
    assert unseen(kept) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert unseen(kept, (1, 1), (2, 1)) == [(1, 2), (2, 2)]


def test_what_the_former_node_passed_over_is_not_shown() -> None:
    """Something later of its author was seen that waits for it, or something total that is after it."""
    assert unseen(recent((1, 1, "total"), (1, 2, "fifo")), (1, 2)) == []
    assert unseen(recent((1, 1, "none"), (1, 2, "fifo")), (1, 2)) == []
    assert unseen(recent((1, 1, "total"), (2, 1, "total")), (2, 1)) == []


def test_what_is_only_overtaken_is_shown() -> None:
    """What has no order waits for nothing, and weaker messages of others pass total ones."""
    assert unseen(recent((1, 1, "fifo"), (1, 2, "none")), (1, 2)) == [(1, 1)]
    assert unseen(recent((1, 1, "total"), (2, 1, "causal")), (2, 1)) == [(1, 1)]
    assert unseen(recent((1, 1, "causal"), (2, 1, "total")), (2, 1)) == [(1, 1)]


def test_what_was_shown_before_something_older_is_not_passed_over() -> None:
    """What has no order overtakes what its author published before, which has not waited for it anywhere."""
    assert unseen(recent((1, 2, "none"), (1, 1, "fifo")), (1, 1)) == [(1, 2)]
    assert unseen(recent((1, 2, "none"), (1, 1, "total")), (1, 1)) == [(1, 2)]


def test_total_messages_about_other_keys_wait_for_nobody() -> None:
    """On a tree two nodes may show them in different orders; in gossip there is one order for all keys."""
    shown = ((1, 1, "total", b"anna"), (2, 1, "total", b"ben"))
    assert unseen(recent(*shown), (2, 1)) == [(1, 1)]
    assert unseen(recent(*shown, total_order=TotalOrder(is_over_all_keys=True)), (2, 1)) == []
    assert unseen(recent((1, 1, "total", b"anna"), (2, 1, "total", b"anna")), (2, 1)) == []


def test_without_strict_sessions_only_total_messages_wait_for_total_ones() -> None:
    loose = TotalOrder(is_strict=False)
    assert unseen(recent((1, 1, "total"), (1, 2, "fifo"), total_order=loose), (1, 2)) == [(1, 1)]
    assert unseen(recent((1, 1, "total", b"anna"), (1, 2, "total", b"ben"), total_order=loose), (1, 2)) == []
