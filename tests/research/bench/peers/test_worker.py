"""A worker obeys: it publishes what it is told, counts what arrives and says when a round is complete."""

from __future__ import annotations

import asyncio

import pytest

from antiphon_lab.bench.peers.contender import Arrived, Contender, Place, Side
from antiphon_lab.bench.peers.control import (
    Answer,
    AnyOrder,
    Begin,
    Begun,
    Close,
    Closed,
    Failed,
    Heard,
    Open,
    Opened,
    Over,
    Probe,
    Probed,
    Publish,
    Published,
    Received,
    Spent,
    answers,
    line_of,
    orders,
)
from antiphon_lab.bench.peers.registry import CONTENDERS
from antiphon_lab.bench.peers.worker import Arrivals, Worker
from antiphon_lab.bench.peers.workload import CHUNK_MESSAGES, END, MARKER, PROBE, STAMP, Round, Workload, marker

TWO_TO_ONE = Workload(2, 1, 64)
DATA = bytes(64)
ALONE = Workload(1, 1, 64)


class Echo(Side):
    """Delivers what is published, at once, to the process that published it."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, int]] = []
        self.arrived: Arrived | None = None
        self.failure: Exception | None = None

    async def open(self, arrived: Arrived) -> None:
        self.arrived = arrived

    async def publish(self, payload: bytes, count: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.calls.append((payload, count))
        assert self.arrived is not None
        for _ in range(count):
            self.arrived(payload)

    async def close(self) -> None:
        self.arrived = None


class EchoContender(Contender):
    name = "echo"
    title = "Echo"
    published = "it has been delivered"
    settings = "none"

    def __init__(self) -> None:
        self.last = Echo()

    def side(self, place: Place) -> Side:
        return self.last


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    contender = EchoContender()
    monkeypatch.setitem(CONTENDERS, "echo", contender)
    return contender.last


class Conversation:
    """A worker and all that it says."""

    def __init__(self) -> None:
        self.said: list[Answer] = []
        self._news = asyncio.Event()
        self.worker = Worker(self._say)

    def _say(self, answer: Answer) -> None:
        self.said.append(answer)
        self._news.set()

    async def tell(self, *several: AnyOrder) -> None:
        for order in several:
            await self.worker.obey(order)

    async def until(self, kind: type[Answer]) -> None:
        while not any(isinstance(answer, kind) for answer in self.said):
            self._news.clear()
            await self._news.wait()


OPEN = Open("echo", ALONE, Place(0, True, True, [1], 0))


def test_a_full_speed_round_from_beginning_to_end(echo: Echo) -> None:
    async def scenario() -> list[Answer]:
        talk = Conversation()
        await talk.tell(OPEN, Probe(), Begin(Round(1, CHUNK_MESSAGES + 10, 60.0)), Publish())
        await talk.until(Published)
        await talk.tell(Over(), Close())
        return talk.said

    said = asyncio.run(scenario())
    assert [type(answer) for answer in said] == [Opened, Heard, Probed, Begun, Received, Published, Spent, Closed]
    received, published = said[4], said[5]
    assert isinstance(received, Received) and isinstance(published, Published)
    assert (received.messages, published.messages, received.latencies_nanoseconds) == (266, 266, [])
    assert published.begun_nanoseconds <= received.finished_nanoseconds <= published.ended_nanoseconds
    assert echo.calls[1:3] == [(DATA, CHUNK_MESSAGES), (DATA, 10)]
    assert MARKER.unpack(echo.calls[3][0]) == (END, 1, 0, 266)


def test_a_paced_round_publishes_one_by_one_and_times_each(echo: Echo) -> None:
    async def scenario() -> list[Answer]:
        talk = Conversation()
        await talk.tell(OPEN, Begin(Round(1, 20, 60.0, rate=2000.0)), Publish())
        await talk.until(Published)
        await talk.tell(Over(), Close())
        return talk.said

    received = next(answer for answer in asyncio.run(scenario()) if isinstance(answer, Received))
    data = [payload for payload, _ in echo.calls if len(payload) == 64]
    assert len(data) == len(received.latencies_nanoseconds) == 20
    assert {count for _, count in echo.calls} == {1}
    stamps = [STAMP.unpack_from(payload)[0] for payload in data]
    assert stamps == sorted(stamps)
    assert min(received.latencies_nanoseconds) >= 0


def test_a_round_stops_publishing_when_its_time_is_over(echo: Echo) -> None:
    async def scenario() -> list[Answer]:
        talk = Conversation()
        await talk.tell(OPEN, Begin(Round(1, 10**12, 0.01)), Publish())
        await talk.until(Published)
        await talk.tell(Over(), Close())
        return talk.said

    published = next(answer for answer in asyncio.run(scenario()) if isinstance(answer, Published))
    assert 0 < published.messages < 10**12


def test_a_publisher_that_cannot_publish_says_so(echo: Echo) -> None:
    async def scenario() -> list[Answer]:
        talk = Conversation()
        await talk.tell(OPEN, Begin(Round(1, 10, 60.0)))
        echo.failure = ConnectionError("the broker is gone")
        await talk.tell(Publish())
        await talk.until(Failed)
        return talk.said

    assert asyncio.run(scenario())[-1] == Failed("ConnectionError: the broker is gone")


def test_a_subscriber_is_ready_when_it_has_heard_all_publishers_and_says_so_once() -> None:
    said: list[Answer] = []
    arrived = Arrivals(TWO_TO_ONE, said.append).counter()
    arrived(marker(PROBE, 0, 1))
    arrived(marker(PROBE, 0, 1))
    assert said == []
    arrived(marker(PROBE, 0, 0))
    arrived(marker(PROBE, 0, 0))
    assert said == [Heard()]


def test_a_round_is_complete_when_the_ends_of_all_publishers_have_come() -> None:
    said: list[Answer] = []
    arrivals = Arrivals(TWO_TO_ONE, said.append)
    arrived = arrivals.counter()
    arrived(DATA)
    arrivals.begin(Round(2, 3, 1.0))
    for payload in (DATA, marker(END, 2, 0, 1), DATA, marker(END, 1, 1, 7), marker(END, 2, 0, 1), DATA):
        arrived(payload)
    assert said == []
    arrived(marker(END, 2, 1, 2))
    arrived(marker(END, 2, 1, 2))
    assert [type(answer) for answer in said] == [Received]
    assert isinstance(said[0], Received) and said[0].messages == 3


@pytest.mark.parametrize("order", [OPEN, Probe(), Begin(Round(1, 2, 3.0, 4.0)), Publish(), Over(), Close()])
def test_orders_survive_the_way(order: AnyOrder) -> None:
    line = line_of(order)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert orders.decode(line) == order


@pytest.mark.parametrize("answer", [Published(1, 2, 3), Received(1, 2, [3]), Spent(0.5), Failed("a\nb"), Heard()])
def test_answers_survive_the_way(answer: Answer) -> None:
    line = line_of(answer)
    assert line.count(b"\n") == 1
    assert answers.decode(line) == answer
