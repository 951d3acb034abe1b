"""Lists of a client that comes from another node: packed they say the same, and they take little memory."""

from __future__ import annotations

import tracemalloc

from antiphon.sessions.client_messages import FollowRequest
from antiphon.sessions.seen_lists import FollowedLists, batches_of, publications_of

BIGGEST = (1 << 62) - 1


def test_packed_lists_say_what_the_request_says() -> None:
    message = FollowRequest(3, "room", {1: 5, BIGGEST: BIGGEST, 9: 0}, {7: [10, 3, 4], 8: [2], 9: [0]})
    lists = FollowedLists(message)
    assert (lists.number, lists.topic) == (3, "room")
    assert lists.past == message.past and lists.publications == message.publications
    assert list(batches_of(lists)) == list(batches_of(message)) == list(message.past.items())
    assert list(publications_of(lists)) == list(publications_of(message)) == [(7, 1, 2), (7, 5, 10), (8, 1, 2)]


def test_nothing_seen_is_nothing() -> None:
    lists = FollowedLists(FollowRequest(1, "room", {}))
    assert list(batches_of(lists)) == [] and list(publications_of(lists)) == []
    assert lists.past == {} == lists.publications


def test_a_list_that_waits_takes_no_more_memory_than_is_counted() -> None:
    """As Python's integers the same list takes more than a megabyte."""
    tracemalloc.start()
    try:
        made = {author << 40: author << 40 for author in range(1, 8001)}
        before = tracemalloc.get_traced_memory()[0]
        lists = FollowedLists(FollowRequest(1, "room", made))
        waiting = batches_of(lists)
        next(waiting)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= lists.size_bytes < 400_000
