"""One node of a simulated system: the environment that its process sees, and what the engine knows about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from antiphon.kernel.message import Message, Publication
from antiphon.kernel.process import Environment, LogReader, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.events import Life, Timer
from antiphon.trace.recorder import LOST, SUBSCRIBED, UNSUBSCRIBED

if TYPE_CHECKING:
    from antiphon.simulator.engine.engine import Engine

UP: Final[i64] = 0
PAUSED: Final[i64] = 1
DOWN: Final[i64] = 2
ABSENT: Final[i64] = 3
STATE_NAMES: Final = ("up", "paused", "down", "absent")

NODE_STREAM: Final = 2
"""Which of the streams of random numbers of a run are those of nodes."""


@final
class Node(Environment):
    """One node; it outlives the processes that run there."""

    def __init__(self, engine: Engine, identifier: i64) -> None:
        super().__init__(identifier)
        self._engine: Final[Engine] = engine
        self.process: Process | None = None
        self.state: i64 = ABSENT
        # How often a process was built here.
        self.incarnation: i64 = 0
        self.life: Life = Life()
        self.paused_at: i64 = 0
        self.free: i64 = 0
        # By how much the clock that shows the time of day is wrong; it outlives crashes.
        self.clock_error: i64 = 0
        self._random: RandomStream | None = None
        self._timers: dict[i64, Timer] | None = None
        self._backlog: list[object] | None = None

    def now(self) -> i64:
        return self._engine.calendar.now

    def shared_time(self) -> i64:
        shown = self._engine.calendar.now + self.clock_error
        return shown if shown > 0 else 0

    def send(self, destination: i64, message: Message) -> None:
        # Without this NO_NODE would be the last node, as in any list.
        assert destination >= 0, "a process sends to a node, not to NO_NODE; it must look whether there is one"
        engine = self._engine
        if not engine.simple:
            engine.transmit(self, destination, message)
            return
        calendar = engine.calendar
        now = calendar.now
        engine.sent += 1
        departs = now
        if engine.charges_control or not message.is_control():
            if self.free > now:
                departs = self.free
                engine.queue_ticks += departs - now
            engine.charged += 1
            self.free = departs + engine.transmission
        calendar.schedule(departs + engine.hop_ticks, engine.nodes[destination], self, message)

    def deliver(self, publication: Publication) -> None:
        engine = self._engine
        engine.deliveries += 1
        latency = engine.calendar.now - publication.timestamp
        if publication.source != self.identifier:
            engine.latency_sum += latency
            if latency > engine.latency_maximum:
                engine.latency_maximum = latency
        else:
            engine.own_deliveries += 1
            engine.start_ticks += latency
        if engine.watches_deliveries:
            engine.watch_delivery(self.identifier, publication, latency)

    def lost(self, topic: i64, source: i64, sequence: i64) -> None:
        engine = self._engine
        engine.lost += 1
        engine.record_publication(LOST, self.identifier, topic, source, sequence)

    def read_back(self, topic: i64) -> LogReader | None:
        application = self._engine.application
        return None if application is None else application.read_back(self.identifier, topic)

    def was_logged(self, topic: i64, source: i64, sequence: i64) -> bool:
        application = self._engine.application
        return application is None or application.was_logged(self.identifier, topic, source, sequence)

    def recalled(self, topic: i64, source: i64, sequence: i64) -> Message | None:
        application = self._engine.application
        return None if application is None else application.recalled(self.identifier, topic, source, sequence)

    def past(self, topic: i64) -> list[int] | None:
        application = self._engine.application
        return None if application is None else application.past(self.identifier, topic)

    def journal(self) -> list[Message] | None:
        application = self._engine.application
        return None if application is None else application.journal(self.identifier)

    def write(self, record: Message) -> None:
        application = self._engine.application
        if application is not None:
            application.write(self.identifier, record)

    def rewrite(self, records: list[Message]) -> None:
        application = self._engine.application
        if application is not None:
            application.rewrite(self.identifier, records)

    def sync(self) -> bool:
        application = self._engine.application
        return application is None or application.sync_journal(self._engine, self.identifier)

    def unwanted(self, message: Message) -> None:
        self._engine.unwanted += 1

    def subscribed(self, topic: i64) -> None:
        engine = self._engine
        engine.record_topic(SUBSCRIBED, self.identifier, topic)
        if engine.application is not None:
            engine.application.subscribed(engine, self.identifier, topic)

    def unsubscribed(self, topic: i64) -> None:
        engine = self._engine
        engine.record_topic(UNSUBSCRIBED, self.identifier, topic)
        if engine.application is not None:
            engine.application.unsubscribed(engine, self.identifier, topic)

    def ordering_epoch(self, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        self._engine.record_epoch(self.identifier, epoch, members, councils)

    def set_timer(self, delay: i64, name: i64) -> i64:
        timers = self._timers
        if timers is None:
            timers = {}
            self._timers = timers
        engine = self._engine
        engine.timers_set += 1
        timer = Timer(name, engine.timers_set)
        timers[timer.handle] = timer
        engine.calendar.schedule(engine.calendar.now + delay, self, self, timer)
        return timer.handle

    def cancel_timer(self, handle: i64) -> None:
        if self._timers is not None:
            self._timers.pop(handle, None)

    def random(self) -> RandomStream:
        if self._random is None:
            self._random = RandomStream(self._engine.seed, NODE_STREAM, self.identifier)
        return self._random

    def watch(self, peer: i64) -> None:
        self._engine.watch(self, peer)

    def unwatch(self, peer: i64) -> None:
        self._engine.links.remove(self.identifier, peer, self.life)

    def take_timer(self, timer: Timer) -> bool:
        """Whether an expiring timer is still wanted; it is not wanted again."""
        return self._timers is not None and self._timers.pop(timer.handle, None) is not None

    def wait(self, sender: object, what: object) -> None:
        """Keep an event for the time after a pause."""
        if self._backlog is None:
            self._backlog = []
        self._backlog.append(self)
        self._backlog.append(sender)
        self._backlog.append(what)

    def take_backlog(self) -> list[object]:
        """What has been waiting, in the order of arrival; it is not kept."""
        backlog = self._backlog
        self._backlog = None
        return [] if backlog is None else backlog

    def forget(self) -> None:
        """Lose the memory: the process and its timers."""
        self.process = None
        self._timers = None
