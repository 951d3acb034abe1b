"""Attacks of tenants: what they are refused is named by its quota, and made messages are the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from antiphon.kernel.errors import ProtocolError
from antiphon.torture.hostile.honest import HonestFindings
from antiphon.torture.hostile.lies import Lies
from antiphon.torture.hostile.raw_client import named
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import FABRIC_KINDS


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (
            "client 'shop' uses 60 connections of this node, all that it may (quota connections); close one",
            "quota connections",
        ),
        ("client 'shop' may not subscribe to 'honest.>'; have it added to its rights", "no right"),
        ("a client asked 16 times about 'x'", "a client asked N times about ..."),
    ],
)
def test_refusals_are_counted_by_the_quota_that_they_name(reason: str, name: str) -> None:
    assert named(reason) == name


def test_percentiles_are_of_all_waits() -> None:
    assert HonestFindings().percentile_seconds(0.99) == 0.0
    assert HonestFindings(waits=[each / 100 for each in range(100, 0, -1)]).percentile_seconds(0.99) == 1.0


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_lies_are_of_all_kinds_and_mostly_taken_by_the_decoder(fabric: str) -> None:
    first, again, other = (Lies(fabric, seed, [0, 1, 2], [5]) for seed in (7, 7, 8))
    made = [first.message() for _ in range(1500)]
    assert [again.message() for _ in range(50)] == made[:50]
    assert [other.message() for _ in range(50)] != made[:50]
    codec = Codec(PEER_CONTROLS, FABRIC_KINDS[fabric])
    refused: Counter[str] = Counter()
    for kind, frame in made:
        try:
            codec.decode(frame)
        except ProtocolError:
            refused[kind] += 1
    assert refused.total() < 100
    kinds = {kind for kind, _ in made}
    assert len(kinds) > 0.8 * len(first._kinds)
