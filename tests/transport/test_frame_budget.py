"""Frames under way: budgets of peers and of identities are apart, and a frame that makes no progress ends."""

from __future__ import annotations

import pytest

from antiphon.kernel.errors import ProtocolError
from antiphon.transport import frame_budget
from antiphon.transport.frame_budget import FRAME_BYTES_PER_SECOND, FrameBudget, FrameConnection

MEGABYTE = 1 << 20


class Connection:
    """A connection whose frames are under way."""

    def __init__(self, owner: str, is_client: bool = True) -> None:
        self.owner = owner
        self.is_client = is_client
        self.is_held = False
        self.unfinished_bytes = 1
        self.received = (1, 0)

    def bring(self, size: int) -> None:
        self.received = (self.received[0] + size, self.received[1])


class World:
    """A budget with a clock of its own, and the connections that it has cut off."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cut: list[FrameConnection] = []
        self.budget = FrameBudget(10.0, lambda: self.now, lambda connection, _: self.cut.append(connection))

    def pass_seconds(self, seconds: float, *connections: Connection, pace: int = 0) -> None:
        for _ in range(round(seconds * 2)):
            self.now += 0.5
            for connection in connections:
                connection.bring(pace // 2)
                self.budget.look(connection)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(frame_budget, "LONG_FRAME_BYTES_AT_MOST", 10 * MEGABYTE)
    return World()


def test_a_frame_that_stops_is_cut_off_however_much_of_it_has_come(world: World) -> None:
    stalled = Connection("shop")
    stalled.bring(30 * MEGABYTE)
    world.pass_seconds(10, stalled)
    assert world.cut == []
    world.pass_seconds(1, stalled)
    assert world.cut == [stalled]


@pytest.mark.parametrize(("pace", "is_cut"), [(FRAME_BYTES_PER_SECOND, False), (FRAME_BYTES_PER_SECOND // 2, True)])
def test_a_frame_has_a_least_pace(world: World, pace: int, is_cut: bool) -> None:
    connection = Connection("shop")
    world.pass_seconds(100, connection, pace=pace)
    assert bool(world.cut) is is_cut


def test_a_connection_that_is_not_read_from_has_time(world: World) -> None:
    connection = Connection("shop")
    connection.is_held = True
    world.pass_seconds(100, connection)
    assert world.cut == []
    connection.is_held = False
    world.pass_seconds(10.5, connection)
    assert world.cut == [connection]


def test_clients_take_nothing_from_the_budget_of_peers(world: World) -> None:
    for number in range(10):
        world.budget.changed(Connection(f"client {number}"), MEGABYTE)
    peer = Connection("node", is_client=False)
    world.budget.changed(peer, 10 * MEGABYTE)
    assert world.cut == []


def test_the_owner_of_most_gives_up_its_stalest_frame(world: World) -> None:
    attackers = [Connection("shop") for _ in range(5)]
    for connection in attackers:
        world.budget.changed(connection, 2 * MEGABYTE)
    world.now += 0.5
    attackers[0].bring(1)
    honest = Connection("bank")
    world.budget.changed(honest, MEGABYTE)
    assert world.cut == [attackers[1]]
    # The frame grows, and still takes less than the other owner.
    world.budget.changed(honest, 3 * MEGABYTE)
    assert honest not in world.cut


def test_an_owner_that_takes_everything_waits_for_itself_unless_its_frames_have_stalled(world: World) -> None:
    first = Connection("shop")
    world.budget.changed(first, 9 * MEGABYTE)
    with pytest.raises(ProtocolError, match="too many send long frames"):
        world.budget.changed(Connection("shop"), 2 * MEGABYTE)
    world.now += 2.0
    world.budget.changed(Connection("shop"), 2 * MEGABYTE)
    assert world.cut == [first]


def test_a_frame_that_is_finished_or_gone_gives_its_memory_back(world: World) -> None:
    first, second = Connection("shop"), Connection("shop")
    world.budget.changed(first, 9 * MEGABYTE)
    world.budget.changed(first, 0)
    world.budget.changed(second, 9 * MEGABYTE)
    world.budget.ended(second)
    world.budget.changed(first, 9 * MEGABYTE)
    assert world.cut == []
