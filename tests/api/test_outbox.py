"""Outboxes: how single messages become batches, and who waits when there is no room."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from antiphon import DeniedError, OverloadedError, PeerError, Receipt, UsageError
from antiphon.api.batch import Batch
from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import NEVER
from antiphon.api.outbox import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    CLOSED_BYTES,
    OVERRUN,
    OVERRUN_BYTES,
    WAITING_BYTES,
    WAITING_MESSAGES,
    BlockedOutboxes,
    Outbox,
    OutboxOwner,
)
from antiphon.api.publisher import Publisher, PublishHost
from antiphon.api.segment import Segment
from antiphon.runtime.errors import ClosedError
from tests.node.support import running

AUTHOR = 12


class World(PublishHost):
    """A host of a publisher with one outbox, whose room the test decides."""

    def __init__(self, room: int = 1 << 30, mixes_keys: bool = True) -> None:
        super().__init__("causal")
        self.mixes_keys = mixes_keys
        self.publish = Publisher(self).publish
        self.room = room
        self.sent: list[Segment] = []
        self.blocked = BlockedOutboxes()
        self.now_us = 1_000_000
        self.loop = asyncio.get_running_loop()
        self.accepted: asyncio.Future[None] = self.loop.create_future()
        self.accepted.set_result(None)

    def open_outbox(self, topic: str) -> Outbox:
        outbox = Outbox(
            topic,
            "causal",
            OutboxOwner(
                self.loop,
                self.accepted,
                self.room_now,
                self.send,
                lambda: self.now_us,
                self.blocked,
                self.author_number,
                self.refusals,
            ),
            topic,
        )
        self.outboxes[topic] = outbox
        return outbox

    def author_number(self) -> int:
        return AUTHOR

    def room_now(self, topic: str) -> int:
        return self.room

    def send(self, topic: str, segment: Segment) -> None:
        self.room -= 1
        self.sent.append(segment)

    @property
    def outbox(self) -> Outbox:
        return self.outboxes["room"]

    def batches(self) -> list[tuple[str, int, list[bytes]]]:
        """What was sent: order, number of the first message, values."""
        return [(segment.order, segment.columns.first_sequence, segment.columns.values) for segment in self.sent]


async def a_turn() -> None:
    await asyncio.sleep(0)


def test_what_is_published_in_one_turn_is_one_batch() -> None:
    async def test() -> None:
        world = World()
        for value in (b"1", b"2", b"3"):
            await world.publish("room", value)
        assert world.sent == [] and len(world.outbox) == 3
        await a_turn()
        await world.publish("room", b"4")
        await a_turn()
        assert world.batches() == [("causal", 1, [b"1", b"2", b"3"]), ("causal", 4, [b"4"])]
        assert world.sent[0].columns.timestamp_us == world.now_us

    running(test)


@pytest.mark.parametrize(("size", "per_batch"), [(1, BATCH_MESSAGES), (BATCH_BYTES // 4, 4), (BATCH_BYTES * 2, 1)])
def test_a_full_batch_leaves_before_the_turn_ends(size: int, per_batch: int) -> None:
    async def test() -> None:
        world = World()
        for _ in range(per_batch - 1):
            assert world.publish("room", bytes(size)).done()
        assert world.sent == []
        turn = world.publish("room", bytes(size))
        assert [len(segment.columns.values) for segment in world.sent] == [per_batch]
        assert not turn.done(), "who fills a batch gives up its turn"
        await turn

    running(test)


def test_another_order_begins_another_batch_and_nothing_is_overtaken() -> None:
    async def test() -> None:
        world = World(room=0)
        for value, order in ((b"1", None), (b"2", "fifo"), (b"3", "fifo"), (b"4", "none"), (b"5", None)):
            world.publish("room", value, order=order)
        await a_turn()
        assert world.sent == [] and list(world.blocked) == [world.outbox]
        world.room = 3
        assert not world.outbox.flush()
        world.room = 100
        assert world.outbox.flush() and not world.blocked
        assert world.batches() == [
            ("causal", 1, [b"1"]), ("fifo", 2, [b"2", b"3"]), ("none", 4, [b"4"]), ("causal", 5, [b"5"]),
        ]  # fmt: skip

    running(test)


def test_columns_begin_with_the_first_message_that_uses_them() -> None:
    async def test() -> None:
        world = World()
        world.publish("room", b"plain")
        world.publish("room", b"key", key=b"k")
        world.publish("room", b"headers", headers={"a": b"1"})
        world.publish("room", b"ttl", ttl_seconds=2.5)
        world.publish("room", b"plain again")
        await a_turn()
        world.publish("room", b"next batch")
        await a_turn()
        first, second = (segment.columns for segment in world.sent)
        assert first.keys == [None, b"k", None, None, None]
        assert first.headers == [None, None, {"a": b"1"}, None, None]
        assert first.expires_us == [NEVER, NEVER, NEVER, world.now_us + 2_500_000, NEVER]
        assert (second.keys, second.headers, second.expires_us) == (None, None, None)

    running(test)


def test_publishers_wait_at_the_bound_and_are_woken_when_all_has_left() -> None:
    async def test() -> None:
        world = World(room=0)
        world.publish("room", b"")
        await a_turn()
        waiting = None
        for _ in range(WAITING_MESSAGES - 1):
            waiting = world.publish("room", b"")
        another = world.publish("room", b"")
        assert waiting is not None and not waiting.done() and not another.done()
        assert world.outbox.waits == 2
        world.room = 1
        world.outbox.flush()
        await asyncio.gather(waiting, another)
        assert [len(segment.columns.values) for segment in world.sent] == [WAITING_MESSAGES + 1]

    running(test)


@pytest.mark.parametrize("size", [0, 1000])
def test_the_overrun_is_refused_and_gives_the_message_back(size: int) -> None:
    async def test() -> None:
        world = World(room=0)
        count = 0
        with suppress(OverloadedError):
            while count < 10_000_000:
                world.publish("room", bytes(size), key=b"k", headers={"a": b""}, ttl_seconds=1)
                count += 1
        bound = min(WAITING_MESSAGES * OVERRUN, OVERRUN_BYTES // (size + 2)) + 2
        assert count <= bound and len(world.outbox) == count
        with pytest.raises(OverloadedError):
            world.publish("room", b"")
        assert len(world.outbox) == count
        world.room = 1000
        world.outbox.flush()
        assert sum(len(segment.columns.values) for segment in world.sent) == count
        for segment in world.sent:
            columns = segment.columns
            assert columns.keys is not None and columns.headers is not None and columns.expires_us is not None
            assert len(columns.values) == len(columns.keys) == len(columns.headers) == len(columns.expires_us)
            assert segment.size <= CLOSED_BYTES + size + 2

    running(test)


def test_one_message_larger_than_all_that_may_wait_is_taken() -> None:
    async def test() -> None:
        world = World(room=0)
        each = 10 << 20
        count = OVERRUN_BYTES // each + 1
        waiting = [world.publish("room", bytes(each)) for _ in range(count)]
        assert not any(each.done() for each in waiting)
        with pytest.raises(OverloadedError):
            world.publish("room", b"one more")
        world.room = count
        world.outbox.flush()
        await asyncio.gather(*waiting)
        # Two of them would not fit a frame.
        assert [len(segment.columns.values) for segment in world.sent] == [1] * count

    running(test)


def test_whole_batches_stay_whole_and_are_numbered() -> None:
    async def test() -> None:
        world = World(room=0)
        other = World()
        other.publish("room", b"a", key=b"k")
        other.publish("room", b"b")
        await a_turn()
        columns = other.sent[0].columns
        world.publish("room", b"before")
        waiting = world.outbox.post_columns("fifo", (), columns, False)
        receipt = world.outbox.post_columns("fifo", (), columns, True)
        world.publish("room", b"after")
        assert not waiting.done() and not receipt.done()
        world.room = 10
        world.outbox.flush()
        await waiting
        assert world.batches() == [
            ("causal", 1, [b"before"]), ("fifo", 2, [b"a", b"b"]), ("fifo", 4, [b"a", b"b"]), ("causal", 6, [b"after"]),
        ]  # fmt: skip
        assert world.sent[2].receipt is receipt
        assert world.outbox.post_columns("fifo", (), columns, False) is None, "there is room: nothing to wait for"

    running(test)


def test_receipts_belong_to_batches() -> None:
    async def test() -> None:
        world = World(room=0)
        world.with_receipts = True
        first, second = world.publish("room", b"1"), world.publish("room", b"2")
        third = world.publish("room", b"3", order="none")
        world.room = 2
        world.outbox.flush()
        world.sent[0].receipt.set_result(None)
        assert first.done() and second.done() and not third.done()
        assert await first == Receipt("room", AUTHOR, 1) and await second == Receipt("room", AUTHOR, 2)
        world.sent[1].receipt.set_result(None)
        assert await third == Receipt("room", AUTHOR, 3)

    running(test)


def answer(segment: Segment, error: Exception | None = None) -> None:
    """What a node does with a batch."""
    if error is None:
        segment.receipt.set_result(None)
    else:
        segment.receipt.set_exception(error)


def test_refusals_at_which_nobody_has_looked_are_counted() -> None:
    async def test() -> None:
        world = World()
        world.with_receipts = True
        asked = [world.publish("room", b"", order=order) for order in ("fifo", "fifo", "fifo", "none", "causal")]
        await a_turn()
        for segment, error in zip(world.sent, (DeniedError("not here"), None, DeniedError("not here")), strict=True):
            answer(segment, error)
        with pytest.raises(DeniedError, match="not here"):
            await asked[0]
        assert await asked[3] == Receipt("room", AUTHOR, 4)
        await a_turn()
        refused = world.refusals.take()
        assert type(refused) is DeniedError
        text = "3 of 5 messages published since the last flush were not accepted: not here"
        assert str(refused) == text and isinstance(refused.__cause__, DeniedError)
        assert world.refusals.take() is None, "each is told once"
        with pytest.raises(DeniedError):
            await asked[1]
        assert world.refusals.take() is None

    running(test)


def test_different_refusals_are_told_in_one_error() -> None:
    async def test() -> None:
        world = World()
        world.with_receipts = True
        orders = ("fifo", "none") * 12
        for order in orders:
            world.publish("room", b"", order=order)
        await a_turn()
        for number, segment in enumerate(world.sent):
            answer(segment, DeniedError("not here") if number % 2 else OverloadedError(f"too much, {number}"))
        await a_turn()
        refused = world.refusals.take()
        assert type(refused) is PeerError
        text = str(refused)
        assert text.startswith("24 of 24 messages") and "12 of them: not here" in text and "other reasons" in text
        assert len(text) < 500

    running(test)


def test_whoever_stops_waiting_takes_nothing_from_others() -> None:
    async def test() -> None:
        world = World()
        world.with_receipts = True
        asked = [world.publish("room", b"") for _ in range(4)]
        await a_turn()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked[0], 0.001)
        gathered = asyncio.gather(*asked[1:3])
        await a_turn()
        answer(world.sent[0])
        assert await gathered == [Receipt("room", AUTHOR, 2), Receipt("room", AUTHOR, 3)]
        done, pending = await asyncio.wait([asked[3]])  # type: ignore[type-var]
        assert not pending and [each.result() for each in done] == [Receipt("room", AUTHOR, 4)]
        assert asked[0].cancelled() and world.refusals.take() is None

    running(test)


@pytest.mark.parametrize("with_receipts", [False, True])
def test_a_failure_wakes_all_who_wait(with_receipts: bool) -> None:
    async def test() -> None:
        world = World(room=0)
        world.with_receipts = with_receipts
        waiting = [world.publish("room", bytes(WAITING_BYTES)), world.publish("room", b"", order="fifo")]
        world.outbox.fail(ClosedError("over"))
        for each in waiting:
            with pytest.raises(ClosedError, match="over"):
                await each
        assert len(world.outbox) == 0
        await a_turn()
        assert world.refusals.take() is None, "who waited has seen it"
        world.outbox.failure = None
        world.publish("room", b"")
        world.publish("room", b"")
        world.outbox.fail(ClosedError("over"))
        await a_turn()
        assert str(world.refusals.take()).startswith("2 of 2 messages")

    running(test)


def test_expired_messages_are_left_out_and_offsets_stay() -> None:
    async def test() -> None:
        world = World()
        for ttl_seconds in (None, 1, 3):
            world.publish("room", b"%r" % ttl_seconds, ttl_seconds=ttl_seconds)
        await a_turn()
        batch = Batch("room", 7, "causal", 100, encode_columns(world.sent[0].columns))
        assert [message.offset for message in batch.messages(0, world.now_us + 999_999)] == [100, 101, 102]
        assert [message.offset for message in batch.messages(0, world.now_us + 1_000_000)] == [100, 102]
        assert [message.value for message in batch.messages(101, world.now_us + 9_000_000)] == []
        assert [message.value for message in batch.messages(102)] == [b"3"]

    running(test)


def test_an_order_that_does_not_exist_changes_nothing() -> None:
    async def test() -> None:
        world = World()
        world.publish("room", b"1")
        with pytest.raises(UsageError, match="none, fifo, causal, total"):
            world.publish("room", b"2", order="exact")
        await a_turn()
        assert world.batches() == [("causal", 1, [b"1"])]

    running(test)


def test_a_batch_is_about_the_keys_of_its_messages_and_batches_keep_the_order_of_the_calls() -> None:
    async def test() -> None:
        world = World(mixes_keys=False)
        world.publish("room", b"1", keys=["anna", "ben"])
        world.publish("room", b"2", keys=["ben", b"anna", "ben"])
        world.publish("room", b"3", key=b"anna")
        world.publish("room", b"4", order="total", key=b"anna")
        world.publish("room", b"5", order="total")
        world.publish("room", b"6", order="total", keys=[7])
        world.publish("room", b"7", order="total", keys=["7"])
        await a_turn()
        assert [segment.columns.values for segment in world.sent] == [
            [b"1", b"2"],
            [b"3"],
            [b"4"],
            [b"5"],
            [b"6", b"7"],
        ]
        assert [len(segment.about) for segment in world.sent] == [2, 1, 1, 0, 1]
        assert [segment.columns.about for segment in world.sent] == [[b"anna", b"ben"], None, None, None, [b"7"]]
        both, anna, same, _, _ = (set(segment.about) for segment in world.sent)
        assert anna == same and anna < both

    running(test)


def test_one_key_may_be_what_one_of_several_may_be() -> None:
    async def test() -> None:
        world = World()
        for key in ("anna", b"anna", 7, "7"):
            world.publish("room", b"", key=key)
        await a_turn()
        assert world.sent[0].columns.keys == [b"anna", b"anna", b"7", b"7"]
        assert len(world.sent[0].about) == 2

    running(test)


def test_what_is_no_key_is_refused() -> None:
    async def test() -> None:
        world = World()
        for key in (1.5, True, ["anna"], None.__class__, "\ud800"):
            with pytest.raises(UsageError, match=r"a key is .* write for example key='anna'|give its bytes"):
                world.publish("room", b"", key=key)  # type: ignore[arg-type]
        for keys in ("anna", [1.5], [True], ["anna"] * 1025):
            with pytest.raises(UsageError, match=r"keys are a list|a key is"):
                world.publish("room", b"", keys=keys)  # type: ignore[arg-type]
        assert len(world.outbox) == 0

    running(test)
