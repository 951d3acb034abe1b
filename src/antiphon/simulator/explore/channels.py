"""The clock and the connections of an explored cluster: nothing takes time, and nothing arrives by itself.

A frame waits in its *channel*, one direction of a connection, until the explorer lets it arrive. A request for a
connection waits the same way. Timers wait for the explorer to let time pass. An event without a delay happens at the
end of the step that posted it, as in an event loop that runs what is ready before it looks at its sockets.

Each machine has a *history*: a number that follows from all events that its programs have handled, in their order. A
frame carries the history of its sender. Programs are deterministic, so equal histories mean equal states, and the
frames in transit follow from the histories of both ends.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, cast

from antiphon.kernel.randomness import RandomStream
from antiphon.membership.messages import KeepAlive
from antiphon.sessions.client_messages import HeartbeatRequest, HeartbeatResponse
from antiphon.simulator.cluster.clock import Event, VirtualClock
from antiphon.simulator.cluster.network import END, Endpoint, Network, Pipe

SIGNS_OF_LIFE: Final = (KeepAlive, HeartbeatRequest, HeartbeatResponse)
"""Frames that arrive at once."""

PIPES_PER_PLACE: Final = 1000
"""The most connections that one machine opens."""


class PendingEvent:
    """Something that waits for the explorer: the history of the program that caused it, and its place among all."""

    __slots__ = ("cause", "frame", "posted")

    def __init__(self, frame: object, cause: int, posted: int) -> None:
        self.frame = frame
        self.cause = cause
        self.posted = posted


class ExploredAgenda:
    """All that may happen next in a cluster, apart from what arrives: timers, and the end of the present step."""

    def __init__(self) -> None:
        self.now_us = 0
        self.posted = 0
        self._timers: list[tuple[int, int, PlaceClock, int, Event]] = []
        self._at_once: list[Event] = []
        self.clocks: dict[str, PlaceClock] = {}
        self.histories: dict[str, int] = {}

    def next_number(self) -> int:
        """A number for what is posted next."""
        self.posted += 1
        return self.posted

    def at_once(self, event: Event) -> None:
        """Let something happen at the end of this step."""
        self._at_once.append(event)

    def at(self, time_us: int, clock: PlaceClock, number: int, event: Event) -> None:
        """Set a timer."""
        heappush(self._timers, (time_us, self.next_number(), clock, number, event))

    def settle(self) -> None:
        """Let everything happen that is to happen at once."""
        while self._at_once:
            events, self._at_once = self._at_once, []
            for event in events:
                event()

    def next_timer(self) -> tuple[int, str, int]:
        """The time of the first timer, its machine, and its number there."""
        time_us, _, clock, number, _ = self._timers[0]
        return time_us, clock.place, number

    def expire(self) -> None:
        """Let time pass until the first timer expires."""
        time_us, _, _, _, event = heappop(self._timers)
        self.now_us = max(self.now_us, time_us)
        for clock in self.clocks.values():
            clock.now_us = self.now_us
        event()
        self.settle()


class PlaceClock(VirtualClock):
    """The clock of one machine."""

    def __init__(self, place: str, agenda: ExploredAgenda) -> None:
        super().__init__()
        self.place = place
        self._agenda = agenda
        self._set = 0
        self.now_us = agenda.now_us
        agenda.clocks[place] = self

    def post(self, delay_us: int, event: Event) -> None:
        """Set a timer, or let something happen at the end of this step."""
        if delay_us == 0:
            self._agenda.at_once(event)
            return
        self._set += 1
        self._agenda.at(self.now_us + delay_us, self, self._set, event)


class ExploredPipe(Pipe):
    """A connection on which frames wait until the explorer lets them arrive."""

    def __init__(
        self, network: ExploredNetwork, opener: Endpoint, address: str, first: object, give_up_at_us: int, number: int
    ) -> None:
        super().__init__(network, opener, address, first, give_up_at_us)
        self.number = number
        self._agenda = network.agenda
        # The request for the connection, while nobody has answered it.
        self.request: PendingEvent | None = None

    def send(self, frame: object) -> None:
        if self.is_over_for_opener:
            return
        if self.is_open:
            self._forth.append(self._waiting_frame(frame, self.opener.place))
        else:
            self._waiting.append(frame)

    def answer(self, frame: object) -> None:
        if not self.is_over_for_listener:
            self._back.append(self._waiting_frame(frame, self.address))

    def _waiting_frame(self, frame: object, place: str) -> PendingEvent:
        return PendingEvent(frame, self._agenda.histories[place], self._agenda.next_number())

    def head(self, is_forth: bool) -> PendingEvent | None:
        """The first frame of a channel that somebody can still hear."""
        channel, is_deaf = self._lane(is_forth)
        if is_deaf:
            channel.clear()
        return channel[0] if channel else None

    def _lane(self, is_forth: bool) -> tuple[deque[PendingEvent], bool]:
        """The frames in one direction, and whether nobody hears them any more."""
        if is_forth:
            return cast(deque[PendingEvent], self._forth), self.is_over_for_listener or self.listener is None
        return cast(deque[PendingEvent], self._back), self.is_over_for_opener

    def receiver(self, is_forth: bool) -> str:
        """The machine at which the frames of a channel arrive."""
        return self.address if is_forth else self.opener.place

    def arrive(self, is_forth: bool) -> None:
        """Let the first frame of a channel arrive."""
        channel, _ = self._lane(is_forth)
        frame = channel.popleft().frame
        if frame is END:
            if is_forth:
                self.end_for_listener()
            else:
                self.end_for_opener()
        elif is_forth:
            assert self.listener is not None, "a channel with frames leads to somebody"
            self.listener.on_frame(self, frame)
        else:
            self.opener.on_reply(self, frame)

    def cut(self, is_forth: bool) -> None:
        """The sender has crashed, and what it has sent is lost: only the end of the connection arrives."""
        channel, _ = self._lane(is_forth)
        while len(channel) > 1:
            channel.popleft()


class ExploredNetwork(Network):
    """All connections of an explored cluster. Nothing takes time, and machines do not lose power."""

    def __init__(self, agenda: ExploredAgenda, places: list[str]) -> None:
        self.agenda = agenda
        super().__init__(PlaceClock("network", agenda), RandomStream(0, 0), (0, 0), 0, 1)
        self._opened = {place: PIPES_PER_PLACE * number for number, place in enumerate(places)}
        self.everything: dict[int, ExploredPipe] = {}

    def delay_us(self) -> int:
        return 0

    def chance(self, probability: float) -> bool:
        """The frames of a crashed program arrive; the explorer cuts channels itself."""
        return True

    def open(self, opener: Endpoint, address: str, first: object, patience_us: int) -> Pipe:
        self._opened[opener.place] = number = self._opened[opener.place] + 1
        pipe = ExploredPipe(self, opener, address, first, self.clock.now_us + patience_us, number)
        self.everything[number] = pipe
        self.attempt(pipe, 0)
        return pipe

    def attempt(self, pipe: Pipe, after_us: int) -> None:
        assert isinstance(pipe, ExploredPipe), "all connections are opened here"
        self.agenda.clocks[pipe.opener.place].post(after_us, lambda: self._ask(pipe))

    def _ask(self, pipe: ExploredPipe) -> None:
        pipe.request = PendingEvent(None, self.agenda.histories[pipe.opener.place], self.agenda.next_number())

    def connect(self, pipe: ExploredPipe) -> None:
        """Answer the request for a connection."""
        pipe.request = None
        pipe.try_to_open(self.clock.now_us)

    def channels(self) -> list[tuple[ExploredPipe, bool, PendingEvent]]:
        """The channels with frames that can be heard, and the first frame of each; the direction says who hears it."""
        found = []
        for number, pipe in list(self.everything.items()):
            if pipe.is_over() and pipe.request is None:
                del self.everything[number]
                continue
            for is_forth in (True, False):
                head = pipe.head(is_forth)
                if head is not None:
                    found.append((pipe, is_forth, head))
        return found

    def opened_by(self, place: str) -> int:
        """How many connections a machine has opened that have not ended for it."""
        pipes = self.everything.values()
        return sum(pipe.opener.place == place and not pipe.is_over_for_opener for pipe in pipes)

    def requests(self) -> list[ExploredPipe]:
        """The connections that somebody waits for."""
        return [pipe for pipe in self.everything.values() if pipe.request is not None and pipe.opener.is_up]
