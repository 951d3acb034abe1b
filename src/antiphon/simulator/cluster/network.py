"""Connections between addresses, as TCP has them: they take time to open, keep the order, and break.

A connection is opened from one address to another and used by the end that opened it; the other end answers signs of
life on it, and says why it closes. A frame in transit when a partition begins waits for the end of the partition. A
partition that lasts for longer than ``silent_us`` breaks the connection: the end that opened it notices then, the other
end when the network is whole again, or after ``SILENT_US``. A process that is killed leaves a machine that closes its
connections, perhaps before all has arrived that was sent; a machine without power says nothing.

Nodes and clients are endpoints: whoever has an address can be connected to, whoever has none can only connect.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.cluster.clock import VirtualClock

CONNECT_US: Final = 10_000_000
"""How long an attempt to connect takes at most."""

AGAIN_US: Final = 1_000_000
"""After how long a connection is asked for again where nothing answers."""

REFUSED_AGAIN_US: Final = 100_000
"""After how long it is tried again where nobody listens, by those with patience."""

LATE_ONE_OF: Final = 16
"""One of so many frames is late, where any are."""

SILENT_US: Final = 30_000_000
"""After how long the end that did not open a connection notices that the other machine is gone."""


class Endpoint(Protocol):
    """One life of a program that connects to others, or to which others connect."""

    @property
    def place(self) -> str:
        """The machine it runs on, which is also the address at which it listens, if it does."""

    @property
    def is_up(self) -> bool:
        """Whether it has not ended."""

    def accepted(self, pipe: Pipe) -> None:
        """Another endpoint has connected."""

    def on_frame(self, pipe: Pipe, frame: object) -> None:
        """Something has come over a connection that another one has opened."""

    def ended(self, pipe: Pipe) -> None:
        """A connection that another one has opened has ended."""

    def opened(self, pipe: Pipe) -> None:
        """A connection stands that this one has opened."""

    def on_reply(self, pipe: Pipe, frame: object) -> None:
        """The other end of it has said something."""

    def lost(self, pipe: Pipe) -> None:
        """A connection that this one has opened has ended, or could not be opened."""


class Pipe:
    """One connection."""

    def __init__(self, network: Network, opener: Endpoint, address: str, first: object, give_up_at_us: int) -> None:
        self._network = network
        self.opener = opener
        self.address = address
        self.listener: Endpoint | None = None
        self.is_open = False
        # Whether each end has closed it, or has heard of its end; then nothing reaches that end any more.
        self.is_over_for_opener = False
        self.is_over_for_listener = False
        self._give_up_at_us = give_up_at_us
        self._waiting: list[object] = [first]
        self._forth: deque[object] = deque()
        self._back: deque[object] = deque()
        self._last_forth_us = 0
        self._last_back_us = 0

    # Opening.

    def try_to_open(self, until_us: int) -> None:
        """Ask the other machine for the connection; ``until_us`` is when this attempt ends."""
        network = self._network
        if self.is_over_for_opener or not self.opener.is_up:
            return
        if network.is_reachable(self.opener.place, self.address):
            listener = network.listeners.get(self.address)
            if listener is None:
                self._fail(REFUSED_AGAIN_US)
                return
            self.listener = listener
            self.is_open = True
            network.pipes.append(self)
            listener.accepted(self)
            # Waiting frames leave before any that are sent because the connection stands.
            waiting, self._waiting = self._waiting, []
            for frame in waiting:
                self.send(frame)
            self.opener.opened(self)
        elif network.clock.now_us >= until_us:
            self._fail(0)
        else:
            network.clock.post(min(AGAIN_US, until_us - network.clock.now_us), lambda: self.try_to_open(until_us))

    def _fail(self, again_us: int) -> None:
        if self._network.clock.now_us < self._give_up_at_us:
            self._network.attempt(self, again_us)
        else:
            self.end_for_opener()

    # Sending.

    def send(self, frame: object) -> None:
        """Send from the end that opened it."""
        if self.is_over_for_opener:
            return
        if not self.is_open:
            self._waiting.append(frame)
            return
        network = self._network
        self._forth.append(frame)
        self._last_forth_us = max(network.clock.now_us + network.delay_us(), self._last_forth_us)
        network.clock.post(self._last_forth_us - network.clock.now_us, self._arrive)

    def answer(self, frame: object) -> None:
        """Send from the other end."""
        if self.is_over_for_listener:
            return
        network = self._network
        self._back.append(frame)
        self._last_back_us = max(network.clock.now_us + network.delay_us(), self._last_back_us)
        network.clock.post(self._last_back_us - network.clock.now_us, self._arrive_back)

    def _arrive(self) -> None:
        if not self._forth or self._is_cut():
            return
        frame = self._forth.popleft()
        if self.listener is None or self.is_over_for_listener:
            return
        if frame is END:
            self.end_for_listener()
        else:
            self.listener.on_frame(self, frame)

    def _arrive_back(self) -> None:
        if not self._back or self._is_cut():
            return
        frame = self._back.popleft()
        if self.is_over_for_opener:
            return
        if frame is END:
            self.end_for_opener()
        else:
            self.opener.on_reply(self, frame)

    def _is_cut(self) -> bool:
        return not self._network.is_reachable(self.opener.place, self.address)

    def healed(self) -> None:
        """The network between the ends is whole again: what waited comes."""
        network = self._network
        for queue, arrive in ((self._forth, self._arrive), (self._back, self._arrive_back)):
            wait_us = network.delay_us()
            for _ in queue:
                network.clock.post(wait_us, arrive)

    # Ending.

    def close(self) -> None:
        """The end that opened it has nothing more to say."""
        if not self.is_over_for_opener:
            if self.is_open:
                self.send(END)
            self.is_over_for_opener = True

    def abort(self) -> None:
        """The end that opened it ends it at once; what is on its way is lost."""
        if self.is_open and not self.is_over_for_opener:
            self._forth.clear()
            self.send(END)
        self._network.clock.post(0, self.end_for_opener)

    def close_back(self) -> None:
        """The other end closes it: nothing more reaches it, and what it has said still comes."""
        if not self.is_over_for_listener:
            self.answer(END)
            self._network.clock.post(0, self.end_for_listener)

    def end_for_opener(self) -> None:
        """The end that opened it hears that it has ended."""
        if not self.is_over_for_opener:
            self.is_over_for_opener = True
            self._forth.clear()
            self.opener.lost(self)

    def end_for_listener(self) -> None:
        """The other end hears that it has ended."""
        if self.listener is not None and not self.is_over_for_listener:
            self.is_over_for_listener = True
            self.listener.ended(self)

    def is_over(self) -> bool:
        """Whether neither end can hear of it any more."""
        return self.is_over_for_opener and (self.is_over_for_listener or self.listener is None)

    def vanish(self, endpoint: Endpoint, is_orderly: bool) -> None:
        """The program at one end is gone; ``is_orderly`` if what it has sent still comes."""
        if endpoint is self.opener:
            if not self.is_over_for_opener:
                if not is_orderly:
                    self._forth.clear()
                if self.is_open:
                    self.send(END)
            self.is_over_for_opener = True
        else:
            if not self.is_over_for_listener:
                self.answer(END)
            self.is_over_for_listener = True

    def break_down(self, whole_at_us: int) -> None:
        """Nothing got through for too long; the other end notices when the network is whole, or much later."""
        now_us = self._network.clock.now_us
        self._forth.clear()
        self._back.clear()
        self.end_for_opener()
        self._network.clock.post(max(0, min(whole_at_us, now_us + SILENT_US) - now_us), self.end_for_listener)


END: Final = object()
"""Comes behind everything else over a connection that is closed."""


class MachineCut:
    """For some time nothing gets through between some machines and all others."""

    def __init__(self, places: frozenset[str], end_us: int) -> None:
        self.places = places
        self.end_us = end_us

    def separates(self, one: str, other: str) -> bool:
        """Whether it is between two machines."""
        return (one in self.places) != (other in self.places)


class Network:
    """All connections, and what is between machines."""

    def __init__(
        self, clock: VirtualClock, random: RandomStream, delay_us: tuple[int, int], late_us: int, silent_us: int
    ) -> None:
        self.clock = clock
        self.listeners: dict[str, Endpoint] = {}
        self.pipes: list[Pipe] = []
        self._random = random
        self._delay_us = delay_us
        self._late_us = late_us
        self._silent_us = silent_us
        self._cuts: list[MachineCut] = []
        self._dark: set[str] = set()

    def delay_us(self) -> int:
        """How long something is on its way."""
        late_us = self._late_us if self._late_us and self._random.below(LATE_ONE_OF) == 0 else 0
        return int(self._random.between(*self._delay_us)) + late_us

    def chance(self, probability: float) -> bool:
        """Something that may go either way."""
        return bool(self._random.chance(probability))

    def is_reachable(self, one: str, other: str) -> bool:
        """Whether something gets through between two machines now."""
        if one in self._dark or other in self._dark:
            return False
        return not any(cut.separates(one, other) for cut in self._cuts)

    def open(self, opener: Endpoint, address: str, first: object, patience_us: int) -> Pipe:
        """Connect; ``first`` is the first that is sent."""
        pipe = Pipe(self, opener, address, first, self.clock.now_us + patience_us)
        self.attempt(pipe, 0)
        return pipe

    def attempt(self, pipe: Pipe, after_us: int) -> None:
        """Try to open a connection after a while."""
        begin_us = after_us + self.delay_us()
        until_us = self.clock.now_us + begin_us + min(CONNECT_US, self._silent_us)
        self.clock.post(begin_us, lambda: pipe.try_to_open(until_us))

    # Machines and partitions.

    def ends(self, endpoint: Endpoint, has_power: bool) -> None:
        """A program ends; its machine closes its connections, or loses power."""
        if self.listeners.get(endpoint.place) is endpoint:
            del self.listeners[endpoint.place]
        pipes = [pipe for pipe in self._open_pipes() if endpoint in (pipe.opener, pipe.listener)]
        if has_power:
            for pipe in pipes:
                pipe.vanish(endpoint, self.chance(0.5))
            return
        self._dark.add(endpoint.place)
        for pipe in pipes:
            if endpoint is pipe.opener:
                pipe.is_over_for_opener = True
            else:
                pipe.is_over_for_listener = True
            self._break_later(pipe)

    def has_power(self, place: str) -> bool:
        """A machine runs: connections of earlier times are unknown to it; the answer is whether it had no power."""
        had_none = place in self._dark
        if had_none:
            self._dark.discard(place)
            for pipe in self._open_pipes():
                is_half_over = pipe.is_over_for_opener or pipe.is_over_for_listener
                if place in (pipe.opener.place, pipe.address) and is_half_over:
                    self.clock.post(self.delay_us(), pipe.end_for_opener)
                    self.clock.post(self.delay_us(), pipe.end_for_listener)
        return had_none

    def cut(self, places: frozenset[str], lasts_us: int) -> None:
        """Separate some machines from all others for a while."""
        cut = MachineCut(places, self.clock.now_us + lasts_us)
        self._cuts.append(cut)
        for pipe in self._open_pipes():
            if cut.separates(pipe.opener.place, pipe.address):
                self._break_later(pipe)
        self.clock.post(lasts_us, lambda: self._heal(cut))

    def _heal(self, cut: MachineCut) -> None:
        self._cuts.remove(cut)
        for pipe in self._open_pipes():
            if cut.separates(pipe.opener.place, pipe.address):
                pipe.healed()

    def _break_later(self, pipe: Pipe) -> None:
        """Break a connection if nothing gets through for too long."""
        jitter_us = int(self._random.below(self._silent_us // 3 + 1))
        self.clock.post(self._silent_us + jitter_us, lambda: self._look_at(pipe))

    def _look_at(self, pipe: Pipe) -> None:
        if pipe.is_over() or self.is_reachable(pipe.opener.place, pipe.address):
            return
        ends = [cut.end_us for cut in self._cuts if cut.separates(pipe.opener.place, pipe.address)]
        pipe.break_down(max(ends, default=self.clock.now_us + SILENT_US))

    def _open_pipes(self) -> list[Pipe]:
        self.pipes = [pipe for pipe in self.pipes if not pipe.is_over()]
        return list(self.pipes)
