"""Writers: what is written again, anywhere, after whatever has happened, is in every log once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import antiphon
from antiphon import Node, UsageError
from antiphon.api.columns import Author, Columns
from antiphon.client import idempotent_producer as writing
from antiphon.client.idempotent_producer import ConflictError, Lane, NoLogError
from antiphon.kernel.errors import PeerError
from antiphon.runtime.clocks import wall_clock_us
from antiphon.runtime.logging import logger
from antiphon.sessions.writers import LANES_AT_MOST, LanePosition, Writers, number_of, owned_number, place_of, series_of
from antiphon.storage.log import DurableLog
from tests.node.support import child, cluster, running, until

PIECES = 5
ROWS = 3


def rows_of(piece: int, mark: str = "") -> list[bytes]:
    return [b"%d.%d%s" % (piece, row, mark.encode()) for row in range(ROWS)]


ALL_ROWS = [row for piece in range(PIECES) for row in rows_of(piece)]


async def write(
    address: str, series: int = 0, pieces: int = PIECES, mark: str = "", lane: int = 0, order: str = "causal"
) -> Lane:
    """Write a series as a program of its own would, from its connection to its end."""
    async with antiphon.connect(address, reconnect_seconds=0) as client:
        opened = await Lane.open(client._live, "query", lane, series, order, ["room"])
        for piece in range(pieces):
            await opened.write("room", Columns(1, 1, rows_of(piece, mark)))
        await opened.finish()
        return opened


async def log_of(node: Node, topic: str = "room") -> list[bytes]:
    """What the log of a node holds."""
    assert node._live.store is not None
    found: list[bytes] = []
    batches = node._live.subscriptions.read_log(node._live.topic(topic), node._live.store.earliest(topic), 1 << 30)
    for batch in batches:
        found += batch.columns.values
    return found


def test_what_is_written_again_is_in_the_log_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            first = await write(node.address)
            again = await write(node.address)
            assert (first.skipped, again.skipped) == (0, PIECES)
            assert await log_of(node) == ALL_ROWS
            await write(node.address, series=1)
            assert await log_of(node) == ALL_ROWS * 2

    running(test)


def test_the_second_attempt_may_go_to_another_node(tmp_path: Path) -> None:
    """The first attempt ended before its end; the second one writes it all, elsewhere."""

    async def test() -> None:
        async with (
            antiphon.start(data=str(tmp_path / "0"), keep=["room"]) as one,
            antiphon.start(data=str(tmp_path / "1"), keep=["room"], join=[one.address]) as other,
        ):
            async with antiphon.connect(one.address, reconnect_seconds=0) as client:
                lane = await Lane.open(client._live, "query", 0, 0, "causal", ["room"])
                await lane.write("room", Columns(1, 1, rows_of(0)))
                await lane.write("room", Columns(1, 1, rows_of(1)))
                await client.abandon()
            await write(other.address)
            assert await log_of(one) == ALL_ROWS
            assert await log_of(other) == ALL_ROWS

    running(test)


def test_two_attempts_at_the_same_time(tmp_path: Path) -> None:
    """As when Spark speculates, or thinks that a worker is dead which is not."""

    async def test() -> None:
        async with (
            antiphon.start(data=str(tmp_path / "0"), keep=["room"]) as one,
            antiphon.start(data=str(tmp_path / "1"), keep=["room"], join=[one.address]) as other,
        ):
            await asyncio.gather(write(one.address), write(other.address), write(one.address))
            assert await log_of(one) == ALL_ROWS
            assert await log_of(other) == ALL_ROWS

    running(test)


def test_a_node_that_was_killed_knows_what_was_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with child("serve", f"data={tmp_path / 'node'}") as first:
            await write(first.address)
            await first.kill()
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            again = await write(node.address)
            assert again.skipped == PIECES
            await write(node.address, series=1)
            assert await log_of(node) == ALL_ROWS * 2

    running(test)


def test_what_the_first_node_kept_to_itself_comes_to_the_others(tmp_path: Path) -> None:
    """A node dies with what only it has. Back again, it knows the rows, and the others still need them."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "0")) as one:
            await write(one.address)
        async with (
            antiphon.start(data=str(tmp_path / "1"), keep=["room"]) as other,
            antiphon.start(data=str(tmp_path / "0"), join=[other.address]) as one,
        ):
            assert await log_of(one) == ALL_ROWS
            await write(one.address)
            assert await log_of(one) == ALL_ROWS
            assert await log_of(other) == ALL_ROWS

    running(test)


def test_retention_does_not_remove_what_is_known_of_writers(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node"), retention_bytes=1) as node:
            await write(node.address)
        async with antiphon.start(data=str(tmp_path / "node"), retention_bytes=1) as node:
            assert node._live.store is not None
            while node._live.store.earliest("room") == 0:
                await asyncio.sleep(0.01)
            assert (await write(node.address)).skipped == PIECES

    running(test)


@pytest.mark.parametrize(
    ("pieces", "mark"), [(PIECES, "!"), (PIECES - 1, ""), (0, "")], ids=["other rows", "fewer", "none"]
)
def test_another_result_of_the_same_work_is_refused(tmp_path: Path, pieces: int, mark: str) -> None:
    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            await write(node.address)
            with pytest.raises(ConflictError, match="has written other rows in series 0 on 'room' before"):
                await write(node.address, 0, pieces, mark)
            assert await log_of(node) == ALL_ROWS

    running(test)


def test_more_rows_than_before_are_the_rest_of_the_same_work(tmp_path: Path) -> None:
    """The first attempt ended after two pieces, and nobody can tell that from a smaller result."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            await write(node.address, pieces=2)
            await write(node.address)
            assert await log_of(node) == ALL_ROWS

    running(test)


def test_an_older_series_is_refused(tmp_path: Path) -> None:
    """A checkpoint that was restored from a copy: the same numbers may stand for other rows."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            await write(node.address, series=7)
            with pytest.raises(ConflictError, match=r"has already written series 7 .* comes with series 6"):
                await write(node.address, series=6)

    running(test)


def test_a_node_without_a_log_is_refused() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(NoLogError, match="keeps no log"):
                await write(node.address)

    running(test)


def test_a_member_that_does_not_get_it_all_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks finished at one node is not while another member lacks something."""
    monkeypatch.setattr(writing, "STALLED_SECONDS", 0.2)

    async def test() -> None:
        async with (
            antiphon.start(data=str(tmp_path / "0"), keep=["room"]) as one,
            antiphon.start(data=str(tmp_path / "1"), keep=["room"], join=[one.address]) as other,
        ):
            monkeypatch.setattr(other._live.loop.writers, "take", lambda *_: None)
            with pytest.raises(PeerError, match="a member of room lacks batches"):
                await write(one.address)
            monkeypatch.undo()
            await write(one.address)
            assert await log_of(other) == ALL_ROWS

    running(test)


def author(lane: int, series: int, place: int, mark: int = 0) -> Author:
    """A batch whose digests say where it stands."""
    digest = hash((lane, series, place, mark)) & (1 << 61) - 1
    previous = hash((lane, series, place - 1, mark)) & (1 << 61) - 1 if place > 1 else 0
    return Author(1000 + lane, number_of(series, place), 7, lane, digest, previous)


def test_whatever_comes_a_lane_is_taken_in_order_without_gaps_and_once() -> None:
    """Attempts that begin anew, are cut short, overtake each other and skip: a log is a beginning of each series."""
    draw = random.Random(1)
    for _ in range(200):
        writers = Writers(logger("test"), wall_clock_us)
        taken: list[int] = []
        for _ in range(60):
            series, first = draw.randrange(3), draw.randrange(1, 6)
            for place in range(first, first + draw.randrange(6)):
                batch = author(0, series, place)
                if writers.take("room", batch) is not None:
                    taken.append(batch.number)
        assert taken == sorted(set(taken))
        for series in {series_of(number) for number in taken}:
            places = [place_of(number) for number in taken if series_of(number) == series]
            assert places == list(range(1, len(places) + 1))


def test_pieces_of_different_attempts_are_not_mixed() -> None:
    writers = Writers(logger("test"), wall_clock_us)
    assert writers.take("room", author(0, 0, 1)) is not None
    with pytest.raises(UsageError, match="has written something else in series 0"):
        writers.check("room", author(0, 0, 2, mark=1))
    assert writers.take("room", author(0, 0, 2, mark=1)) is None
    assert writers.conflicts == 1
    assert writers.take("room", author(0, 0, 2)) is not None


def test_batch_and_standing_are_committed_together(tmp_path: Path) -> None:
    """A log that is opened again has both or neither, whatever was committed."""
    for committed in (False, True):
        directory = tmp_path / str(committed)
        store = DurableLog.open(directory)
        writers = Writers(logger("test"), wall_clock_us)
        fact = writers.take("room", author(0, 0, 1))
        store.append("room", 1, 1, b"batch", fact)
        if committed:
            store.commit()
        store._store.close()  # as if the process had died
        with DurableLog.open(directory) as again:
            writers = Writers(logger("test"), wall_clock_us)
            writers.load(again)
            assert (again.latest("room"), len(writers.lane_states(7, None))) == ((1, 1) if committed else (0, 0))


def test_who_was_silent_longest_is_forgotten_first() -> None:
    writers = Writers(logger("test"), wall_clock_us)
    for lane in range(LANES_AT_MOST):
        writers.take("room", author(lane, 0, 1))
    writers.take("room", author(0, 0, 2))
    writers.take("room", author(LANES_AT_MOST, 0, 1))
    assert writers.forgotten == 1
    lanes: list[LanePosition] = writers.lane_states(7, None)
    assert {each.lane for each in lanes} == {0, *range(2, LANES_AT_MOST + 1)}
    assert len({each.slot for each in lanes}) == LANES_AT_MOST


def owned(owner: int, lane: int, number: int) -> Author:
    """A batch of a lane whose writer belongs to an identity."""
    return Author(owner << 32 | lane, number, owned_number(owner, 1), lane, 5, 0)


@pytest.fixture
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("antiphon.sessions.writers.LANES_AT_MOST", 64)
    return 64


def test_junk_of_one_identity_pushes_out_nothing_of_another(few_lanes: int) -> None:
    writers = Writers(logger("test"), wall_clock_us)
    payment = owned(1, 0, number_of(0, 1))
    assert writers.take("bank", payment) is not None
    for lane in range(3 * few_lanes):
        writers.take("shop", owned(2, lane, number_of(0, 1)))
    assert writers.count_of(payment.writer) == 1
    assert (writers.take("bank", payment), writers.repeated) == (None, 1)
    # Others come, and have room within their shares.
    for lane in range(10):
        assert writers.take("post", owned(3, lane, number_of(0, 1))) is not None
    assert writers.count_of(owned_number(3, 0)) == 10 and len(writers) == few_lanes
    assert writers.take("bank", payment) is None


def test_what_is_forgotten_is_refused_and_not_delivered_again(few_lanes: int, tmp_path: Path) -> None:
    store = DurableLog.open(tmp_path)
    writers = Writers(logger("test"), wall_clock_us)
    writers.load(store)
    for lane in range(few_lanes + 1):
        fact = writers.take("shop", owned(2, lane, number_of(3, 1)))
        store.append("shop", 1, 1, b"batch", fact)
    store.commit()
    store.close()
    again = Writers(logger("test"), wall_clock_us)
    with DurableLog.open(tmp_path) as reopened:
        again.load(reopened)
    for each in (writers, again):
        forgotten = owned(2, 0, number_of(3, 1))
        with pytest.raises(PeerError, match="has forgotten how far lane 0"):
            each.check("shop", forgotten)
        assert (each.take("shop", forgotten), each.refused) == (None, 1)
        # A later series, a lane that nobody has forgotten, and the same lane of another identity are new.
        each.check("shop", owned(2, 0, number_of(4, 1)))
        each.check("shop", owned(2, 900, number_of(3, 1)))
        each.check("shop", owned(1, 0, number_of(3, 1)))


def test_a_position_of_an_earlier_version_gets_the_number_of_its_writer() -> None:
    writers = Writers(logger("test"), wall_clock_us)
    batch = Author(9, number_of(0, 1), 12345, 0, 5, 0)
    writers.take("room", batch)
    renamed = batch._replace(writer=owned_number(7, 12345))
    # A writer that asks how far it has come finds the old position, so nothing is written again.
    assert [each.number for each in writers.lane_states(renamed.writer, None)] == [number_of(0, 1)]
    assert writers.take("room", renamed) is None
    (position,) = writers.lane_states(renamed.writer, None)
    assert (position.number, position.writer) == (number_of(0, 1), renamed.writer)


def test_a_node_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """It was no member of the topic; who asks all nodes must not ask it."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "0")) as node:
            async with child("serve", f"join={node.address}") as other:
                await write(node.address)
                await other.kill()
            await until(lambda: node._live.cluster.lost_nodes)
            await write(node.address, series=1)
            assert await log_of(node) == ALL_ROWS * 2

    running(test)


def test_in_fifo_order_everything_goes_through_one_node(tmp_path: Path) -> None:
    """Somebody who cannot be asked may get the beginning through another node, and later than the rest."""

    async def test() -> None:
        async with antiphon.start(data=str(tmp_path / "node")) as node:
            await write(node.address, order="fifo")
            assert (await write(node.address, order="fifo")).skipped == 0
            assert await log_of(node) == ALL_ROWS

    running(test)


def test_a_new_series_waits_for_those_who_catch_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member gets the end of a series late, as after it was cut off; it would drop that behind a new series."""
    monkeypatch.setattr(writing, "LEVEL_SECONDS", 20.0)

    async def test() -> None:
        async with (
            antiphon.start(data=str(tmp_path / "0"), keep=["room"]) as one,
            antiphon.start(data=str(tmp_path / "1"), keep=["room"], join=[one.address]) as other,
        ):
            with monkeypatch.context() as patch:
                patch.setattr(writing, "STALLED_SECONDS", 0.2)
                patch.setattr(other._live.loop.writers, "take", lambda *_: None)
                with pytest.raises(PeerError, match="lacks batches"):
                    await write(one.address)
            later = asyncio.ensure_future(write(one.address, series=1))
            await asyncio.sleep(0.1)
            await write(one.address)
            await later
            assert await log_of(other) == ALL_ROWS * 2

    running(test)
