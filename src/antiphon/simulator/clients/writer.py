"""A simulated exactly-once writer: it writes series of messages, and begins a series again whenever something fails.

It does what :class:`antiphon.client.idempotent_producer.Lane` does for a program that repeats its work after a crash:
it asks all nodes how far its lane has come, hands in what some of them lack, and ends a series when every member has
all of it. Each attempt begins at the next node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.audit.clients import ClientJudge
from antiphon.kernel.errors import PeerError
from antiphon.membership.messages import PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.sessions.client_messages import (
    LaneOf,
    NodeProducerState,
    ProducerRequest,
    ProducerResponse,
    PublishRequest,
    PublishResponse,
)
from antiphon.sessions.steps import Promise, Steps, start, wait
from antiphon.sessions.writers import number_of, place_of, series_of
from antiphon.simulator.clients.machine import ROOM
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.network import Network, Pipe

ANSWER_US: Final = 5_000_000
"""How long a node may take to answer."""

STALLED_US: Final = 10_000_000
LEVEL_US: Final = 1_000_000
"""How long a node that lacks something of this series, or of an earlier one, may make no progress."""

POLL_US: Final = 50_000
PAUSE_US: Final = 200_000
"""Between two questions to all nodes, and between two attempts."""

LANE: Final = 0


def digest_of(series: int, place: int) -> int:
    """The digest of what the lane has written in a series: the work gives the same result each time."""
    return series * 1000 + place


class SimulatedWriter:
    """One writer with one lane. ``number`` is that of an author for the judge, beside those of clients."""

    def __init__(
        self, number: int, addresses: list[str], series: list[int], order: str, clock: VirtualClock, network: Network
    ) -> None:
        self.number = number
        self.place = f"writer{number}"
        self.is_up = True
        self.has_finished = False
        self._addresses = addresses
        self._series = series
        self._order = order
        self._clock = clock
        self._network = network
        self._pipe: Pipe | None = None
        self._attempts = 0
        self._last_number = 0
        self._asked: dict[int, Promise[Any]] = {}

    def begin(self, judge: ClientJudge) -> None:
        """Write all series, one after the other."""
        start(self._work(judge))

    def _work(self, judge: ClientJudge) -> Steps[None]:
        judge.writes(self.number)
        for series, count in enumerate(self._series, start=1):
            names = [f"{self.place}.{series}.{place}" for place in range(1, count + 1)]
            for name in names:
                judge.asked(self.number, name, self._order, self._clock.now_us)
            while not (yield from self._attempt(series, names)):
                yield self._pause(PAUSE_US)
                judge.written_again(names)
            for name in names:
                judge.accepted(name)
        self.has_finished = True
        self._leave()

    def _attempt(self, series: int, names: list[str]) -> Steps[bool]:
        """Write a series at the next node; whether every member has all of it."""
        self._leave()
        address = self._addresses[self._attempts % len(self._addresses)]
        self._attempts += 1
        author = str((1 << 61) + self.number)
        self._pipe = self._network.open(self, address, Hello(PROTOCOL_VERSION, "antiphon", author, ""), 0)
        try:
            places = yield from self._until_level(series)
            if self._order == "fifo":
                # A batch in this order follows only what this node has published.
                places = [0]
            yield from self._write(series, names, min(places))
            yield from self._until_everywhere(series, len(names))
        except PeerError:
            return False
        return True

    def _write(self, series: int, names: list[str], everywhere: int) -> Steps[None]:
        under_way = []
        for place, name in enumerate(names, start=1):
            if place > everywhere:
                lane = LaneOf(str(self.number), LANE, digest_of(series, place), digest_of(series, place - 1))
                number = number_of(series, place)
                under_way.append(
                    self._ask(
                        lambda reply, name=name, number=number, lane=lane: PublishRequest(  # type: ignore[misc]
                            reply, ROOM, self._order, name.encode(), (), number, lane
                        )
                    )
                )
        for promise in under_way:
            answer = yield from wait(promise)
            if answer.error:
                raise PeerError(answer.error)

    def _until_level(self, series: int) -> Steps[list[int]]:
        """Wait for nodes that catch up with an earlier series; the places of all in this one."""
        best, moved_at_us = -1, self._clock.now_us
        while True:
            numbers = yield from self._numbers()
            is_level = len(set(numbers)) == 1 or series_of(max(numbers)) == series
            if is_level or self._clock.now_us - moved_at_us > LEVEL_US:
                return [place_of(number) if series_of(number) == series else 0 for number in numbers]
            if sum(numbers) > best:
                best, moved_at_us = sum(numbers), self._clock.now_us
            yield self._pause(POLL_US)

    def _until_everywhere(self, series: int, count: int) -> Steps[None]:
        best, moved_at_us = -1, self._clock.now_us
        while True:
            numbers = yield from self._numbers()
            if all(number == number_of(series, count) for number in numbers):
                return
            if sum(numbers) > best:
                best, moved_at_us = sum(numbers), self._clock.now_us
            if self._clock.now_us - moved_at_us > STALLED_US:
                raise PeerError("some member does not have all that was written")
            yield self._pause(POLL_US)

    def _numbers(self) -> Steps[list[int]]:
        """How far the lane has come at the node that was asked and at all members."""
        answer = yield from wait(self._ask(lambda reply: ProducerRequest(reply, str(self.number), LANE, [ROOM])))
        nodes: list[NodeProducerState] = answer.nodes
        if not nodes[0].has_log:
            raise PeerError("this node keeps no log")
        return [
            max((position.number for position in node.lane_states), default=0)
            for index, node in enumerate(nodes)
            if index == 0 or ROOM in node.member_of
        ]

    # Its connection.

    def _ask(self, request: Callable[[int], Control]) -> Promise[Any]:
        self._last_number += 1
        number, promise = self._last_number, Promise[Any]()
        self._asked[number] = promise
        if self._pipe is not None:
            self._pipe.send(request(number))
        self._clock.post(ANSWER_US, lambda: self._fail(number))
        return promise

    def _fail(self, number: int) -> None:
        promise = self._asked.pop(number, None)
        if promise is not None:
            promise.fail(PeerError("no answer"))

    def _pause(self, delay_us: int) -> Promise[None]:
        paused: Promise[None] = Promise()
        self._clock.post(delay_us, lambda: paused.resolve(None))
        return paused

    def _leave(self) -> None:
        pipe, self._pipe = self._pipe, None
        self._asked.clear()
        if pipe is not None:
            pipe.close()

    def on_reply(self, pipe: Pipe, frame: object) -> None:
        """The node says something."""
        if pipe is not self._pipe:
            return
        if isinstance(frame, (PublishResponse, ProducerResponse)):
            promise = self._asked.pop(frame.number, None)
            if promise is not None:
                promise.resolve(frame)
        elif isinstance(frame, Refused):
            self.lost(pipe)

    def lost(self, pipe: Pipe) -> None:
        """The connection has ended."""
        if pipe is self._pipe:
            for number in list(self._asked):
                self._fail(number)

    def opened(self, pipe: Pipe) -> None:
        """The connection stands."""

    def accepted(self, pipe: Pipe) -> None:
        """Nobody connects to a writer."""

    def on_frame(self, pipe: Pipe, frame: object) -> None:
        """Nobody connects to a writer."""

    def ended(self, pipe: Pipe) -> None:
        """Nobody connects to a writer."""
