"""Claims to keys: granted one after the other for each key, whatever others want, through changes of the keeper."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.errors import ProtocolError
from antiphon.orders.claims import Claims
from antiphon.orders.lock_queue import NOT_GRANTED, LockRequest

key_sets = st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=12)


def claim(source: int, *keys: int) -> LockRequest:
    return LockRequest(source, 1, vec[i64](sorted(keys)))


def sources(claims: list[LockRequest]) -> list[int]:
    return [int(each.source) for each in claims]


def taken_over(claims: Claims, held: list[LockRequest], arrived: list[LockRequest], granted: dict[int, int]) -> Claims:
    """What another keeper makes of what claimants tell it: what was granted first, and then the rest."""
    successor = Claims(max(granted.values(), default=0))
    for each in held:
        successor.resume(each)
    for each in arrived:
        if each.place == NOT_GRANTED:
            assert successor.add(each) == []
    assert len(successor) == len(claims)
    return successor


def test_claims_to_one_key_are_granted_in_the_order_in_which_they_came() -> None:
    claims = Claims()
    assert sources(claims.add(claim(1, 7))) == [1]
    assert sources(claims.add(claim(2, 7))) == []
    assert sources(claims.add(claim(3, 7))) == []
    assert sources(claims.release(1, 1)) == [2]
    assert sources(claims.release(2, 1)) == [3]
    assert claims.release(3, 1) == []
    assert len(claims) == 0


def test_claims_without_a_common_key_do_not_wait_for_each_other() -> None:
    claims = Claims()
    claims.add(claim(1, 7))
    assert sources(claims.add(claim(2, 8, 9))) == [2]


def test_a_claim_to_two_keys_waits_for_both_and_holds_its_place_for_both() -> None:
    """A transfer between two accounts: whoever comes later about either of them comes after it."""
    claims = Claims()
    claims.add(claim(1, 7))
    claims.add(claim(2, 8))
    assert claims.add(claim(3, 7, 8)) == []
    assert claims.add(claim(4, 8)) == []
    assert claims.release(2, 1) == []
    assert sources(claims.release(1, 1)) == [3]
    assert sources(claims.release(3, 1)) == [4]


@given(key_sets, st.randoms(use_true_random=False))
def test_every_claim_is_granted_and_places_follow_the_order_of_arrival_for_each_key(
    wanted: list[set[int]], random: Random
) -> None:
    """Whatever is released when, and though the claims are handed to another keeper after every step."""
    claims = Claims()
    held: list[LockRequest] = []
    granted: dict[int, int] = {}
    arrived: list[LockRequest] = []
    waiting = [LockRequest(source, 1, vec[i64](sorted(keys))) for source, keys in enumerate(wanted)]
    while waiting or held:
        if waiting and (not held or random.random() < 0.5):
            arrived.append(waiting.pop(0))
            found = claims.add(arrived[-1])
        else:
            done = held.pop(random.randrange(len(held)))
            found = claims.release(done.source, done.sequence)
        for each in found:
            granted[int(each.source)] = int(each.place)
            # Nobody who shares a key holds it at the same time.
            assert all(not wanted[each.source] & wanted[other.source] for other in held)
            held.append(each)
        claims = taken_over(claims, held, arrived, granted)
    assert sorted(granted) == list(range(len(wanted)))
    for one, place in granted.items():
        for other in range(one):
            if wanted[one] & wanted[other]:
                assert granted[other] < place


def test_what_no_correct_publisher_says_is_the_peers_fault() -> None:
    claims = Claims()
    claims.add(claim(1, 7))
    claims.add(claim(2, 7))
    with pytest.raises(ProtocolError, match="node 1 claims its publication 1 twice"):
        claims.add(claim(1, 7))
    for source in (3, 2):
        with pytest.raises(ProtocolError, match=f"node {source} releases its publication 1, which was not granted"):
            claims.release(source, 1)
