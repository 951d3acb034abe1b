"""Locks on keys: whatever is requested, held and removed, the queues do what a scan over all requests does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.orders.lock_queue import LockQueue, LockRequest
from tests.support import lists_up_to

KEYS = range(4)
requests = st.tuples(st.sets(st.sampled_from(KEYS), min_size=1, max_size=3), st.booleans())
steps = lists_up_to(40, st.one_of(requests, st.integers(0, 30)))
"""A request with its keys, and whether it is shared; or the place of one that is removed, among those that are left."""


class Scan:
    """Requests in the order in which they came, and which of them hold their keys."""

    def __init__(self) -> None:
        self.all: list[LockRequest] = []
        self.holding: list[LockRequest] = []

    def may_hold(self, request: LockRequest) -> bool:
        """Nothing that shares a key with it holds it, unless both are shared, and nothing before it waits for one."""
        meeting = [one for one in self.all if one is not request and set(one.keys) & set(request.keys)]
        held = [one for one in meeting if one in self.holding and not (one.is_shared and request.is_shared)]
        before = [one for one in meeting if one not in self.holding and self.all.index(one) < self.all.index(request)]
        return not held and not before


@given(steps)
def test_a_request_holds_its_keys_when_those_before_it_let_it(taken: list[tuple[set[int], bool] | int]) -> None:
    queue, scan = LockQueue(), Scan()
    for number, step in enumerate(taken):
        if isinstance(step, tuple):
            request = LockRequest(1, number + 1, vec[i64](sorted(step[0])), is_shared=step[1])
            queue.add(request)
            scan.all.append(request)
        elif scan.all:
            request = scan.all.pop(step % len(scan.all))
            queue.remove(request)
            scan.holding = [one for one in scan.holding if one is not request]
        for request in scan.all:
            if request not in scan.holding:
                expected = scan.may_hold(request)
                assert queue.grant(request) == expected
                if expected:
                    scan.holding.append(request)
        assert list(queue.requests.values()) == scan.all
        assert [request.holds for request in scan.all] == [request in scan.holding for request in scan.all]
        for key in KEYS:
            waiting = [one for one in scan.all if key in one.keys and one not in scan.holding]
            assert queue.first(key) is (waiting[0] if waiting else None)
        firsts = {id(queue.first(key)) for key in KEYS} - {id(None)}
        assert {id(one) for one in queue.first_of_all()} == firsts


def test_locks_that_were_taken_over_are_held_until_the_last_of_them_is_removed() -> None:
    """Two keepers may have granted the same key."""
    queue = LockQueue()
    one, other, third = (LockRequest(source, 1, vec[i64]([7])) for source in range(3))
    queue.resume(one)
    queue.resume(other)
    queue.add(third)
    queue.remove(other)
    assert not queue.grant(third)
    queue.remove(one)
    assert queue.grant(third) and queue.first(7) is None
