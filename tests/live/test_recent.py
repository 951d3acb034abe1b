"""What a node shows a client that comes from another one: what it has not seen, and nothing that is too late."""

from __future__ import annotations

from antiphon.live.batch import Batch
from antiphon.live.columns import Columns, encode_columns
from antiphon.live.recent import Budget, Recent
from antiphon.live.seen import SeenOfAll


def recent(*shown: tuple[int, int, str]) -> Recent:
    """The publisher, the number and the order of each batch that a node has shown, one after the other."""
    found = Recent(Budget())
    found.begin(0)
    payload = encode_columns(Columns(1, 0, [b"value"]))
    for publisher, sequence, order in shown:
        found.add(1, Batch("room", publisher, order, 0, payload, sequence=sequence))
    return found


def unseen(kept: Recent, *seen: tuple[int, int]) -> list[tuple[int, int]]:
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
