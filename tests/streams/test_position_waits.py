"""Publishers that wait for positions: they ask when they publish, and what is refused holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from antiphon.api.receipts import BatchReceipt, Publishing, Refusals
from antiphon.api.streams.leader_links import LeaderLinks, StreamPeer
from antiphon.api.streams.position_waits import PositionWaits
from antiphon.kernel.errors import PeerError
from antiphon.streams.requests import AwaitPosition, PositionFound, Request, Response
from tests.node.support import running

AUTHOR = 17
GENERATION = 7
BATCH = 2


class Leader:
    """A node that knows the positions of an author's messages, but for some that never come."""

    address = "leader"
    is_up = True
    reconnects = 0

    def __init__(self, missing: set[int]) -> None:
        self._missing = missing
        self.asked: list[tuple[int, int]] = []

    def ask_streams(
        self, payload: bytes, on_more: Callable[[Response], None] | None = None
    ) -> asyncio.Future[Response]:
        request: Request = msgspec.msgpack.decode(payload, type=Request)
        assert isinstance(request, AwaitPosition)
        self.asked.append((request.sequence, request.count))
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if not self._missing & set(range(request.sequence, request.sequence + request.count)):
            answer.set_result(PositionFound(GENERATION, 100 + request.sequence, 2))
        return answer

    async def abandon(self) -> None:
        """Nothing to end."""


async def nowhere(address: str) -> StreamPeer:
    raise PeerError(f"there is no {address}")


def published(batches: int) -> tuple[list[BatchReceipt], list[Publishing]]:
    """Messages on their way, in batches of two."""
    loop = asyncio.get_running_loop()
    receipts = [BatchReceipt(loop.create_future(), Refusals()) for _ in range(batches)]
    count = BATCH * batches
    return receipts, [Publishing(receipts[n // BATCH], "orders", lambda: AUTHOR, n + 1) for n in range(count)]


def test_a_window_is_one_question_asked_before_it_is_accepted() -> None:
    async def test() -> None:
        leader = Leader(set())
        waits = PositionWaits(LeaderLinks(leader, nowhere))
        _, publishings = published(3)
        settlings = [waits.settle(each, 5.0, 0.0) for each in publishings]
        assert not settlings[0].done()
        found = [await each for each in settlings]
        assert leader.asked == [(1, 6)]
        assert [(each.sequence, int(each.position), each.generation) for each in found] == [
            (number, 100 + number, GENERATION) for number in range(1, 7)
        ]
        # Whoever awaits it again, or with others, gets the same.
        assert await asyncio.gather(*settlings) == found
        assert settlings[3].result() == found[3] and settlings[3].exception() is None

    running(test)


def test_what_is_refused_is_told_to_its_publisher_and_the_others_are_asked_for_alone() -> None:
    async def test() -> None:
        leader = Leader({3, 4})
        waits = PositionWaits(LeaderLinks(leader, nowhere))
        batches, publishings = published(3)
        settlings = [waits.settle(each, 5.0, 0.0) for each in publishings]
        waiting = asyncio.ensure_future(asyncio.wait_for(settlings[5], 90.0))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        batches[0].future.set_result(None)
        batches[1].future.set_exception(PeerError("the quota is used up"))
        batches[2].future.set_result(None)
        assert (await waiting).position == 106
        for place in (0, 1, 4):
            assert (await settlings[place]).position == 101 + place
        for place in (2, 3):
            with pytest.raises(PeerError, match="the quota is used up"):
                await settlings[place]
        assert leader.asked == [(1, 6), (1, 2), (5, 2)]

    running(test)


def test_messages_asked_for_in_any_order_are_asked_for_in_runs() -> None:
    async def test() -> None:
        leader = Leader(set())
        waits = PositionWaits(LeaderLinks(leader, nowhere))
        _, publishings = published(4)
        places = (5, 0, 6, 1, 5)
        found = await asyncio.gather(*(waits.settle(publishings[place], 5.0, 0.0) for place in places))
        assert [int(each.position) for each in found] == [101 + place for place in places]
        assert leader.asked == [(1, 2), (6, 2)]

    running(test)
