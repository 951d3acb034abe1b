"""One node of a simulated system: the environment of its process, and the services that it needs from the engine."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import Environment, LogReader, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.calendar import Calendar
from antiphon.simulator.engine.events import Incarnation, TimerEvent
from antiphon.simulator.engine.link_watches import LinkWatches
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.recorder import LOST, SUBSCRIBED, UNSUBSCRIBED, Recorder

UP: Final[i64] = 0
PAUSED: Final[i64] = 1
DOWN: Final[i64] = 2
ABSENT: Final[i64] = 3
STATE_NAMES: Final = ("up", "paused", "down", "absent")

NODE_STREAM: Final = 2
"""The number of the random stream of nodes."""


class EngineBase:
    """The services of the engine to a node: the calendar, the network, the trace, the disks and counters."""

    def __init__(self, seed: int, network: NetworkModel, recorder: Recorder | None, can_fail: bool) -> None:
        self.seed: Final[int] = seed
        self.network: Final[NetworkModel] = network
        self.calendar: Final[Calendar] = Calendar()
        self.links: Final[LinkWatches] = LinkWatches()
        self.nodes: Final[list[SimulatedNode]] = []
        self.recorder: Final[Recorder | None] = recorder
        self.traces_copies: Final[bool] = recorder is not None and recorder.wants_copies
        self.can_fail: Final[bool] = can_fail
        self.simple: Final[bool] = network.is_simple() and not self.traces_copies and not can_fail
        self.charges_control: Final[bool] = network.charge_control
        self.transmission: Final[i64] = network.transmission
        self.hop_ticks: Final[i64] = network.transmission + network.delay.constant() + network.processing
        # Whether each delivery is reported, to a trace or an application.
        self.watches_deliveries: bool = recorder is not None
        self.sent: i64 = 0
        # Copies that went through an output server, and their total waiting time before transmission.
        self.charged: i64 = 0
        self.queue_ticks: i64 = 0
        self.dropped: i64 = 0
        self.deliveries: i64 = 0
        self.own_deliveries: i64 = 0
        # The total time from the application's call to the start of a publication, over all started ones.
        self.start_ticks: i64 = 0
        # Copies that were useless at their receiver.
        self.unwanted: i64 = 0
        # Deliveries that a process has given up and reported.
        self.lost: i64 = 0
        self.latency_sum: i64 = 0
        self.latency_maximum: i64 = 0
        self.timers_set: i64 = 0

    def transmit(self, node: SimulatedNode, destination: i64, message: ProtocolMessage) -> None:
        """Send a copy on the general path: output server, trace, loss, delay, duplication."""
        raise NotImplementedError

    def watch(self, node: SimulatedNode, peer: i64) -> None:
        """Let a node watch a peer."""
        raise NotImplementedError

    def silence_ticks(self, node: i64, peer: i64) -> i64:
        """For how long a node has heard nothing of a peer; as ``Environment.silence_ticks``."""
        raise NotImplementedError

    def watch_delivery(self, node: i64, publication: Publication, latency: i64) -> None:
        """Report a delivery to the trace and to the application, where there are any."""
        raise NotImplementedError

    def subscribed(self, node: i64, topic: i64) -> None:
        """A subscription is effective."""
        raise NotImplementedError

    def unsubscribed(self, node: i64, topic: i64) -> None:
        """A subscription has ended."""
        raise NotImplementedError

    def log_reader(self, node: i64, topic: i64) -> LogReader | None:
        """Read the log of a node about a topic; as ``Environment.log_reader``."""
        raise NotImplementedError

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        """Whether the log of a node has ever held a publication; as ``Environment.was_logged``."""
        raise NotImplementedError

    def read_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        """A publication from the log of a node; as ``Environment.read_logged``."""
        raise NotImplementedError

    def restored_frontier(self, node: i64, topic: i64) -> list[int] | None:
        """The deliveries of an earlier incarnation on a topic; as ``Environment.restored_frontier``."""
        raise NotImplementedError

    def journal(self, node: i64) -> list[ProtocolMessage] | None:
        """The records of earlier incarnations of a node; as ``Environment.journal``."""
        raise NotImplementedError

    def write(self, node: i64, record: ProtocolMessage) -> None:
        """A node writes a record; as ``Environment.write``."""
        raise NotImplementedError

    def rewrite(self, node: i64, records: list[ProtocolMessage]) -> None:
        """A node replaces all its records; as ``Environment.rewrite``."""
        raise NotImplementedError

    def sync_journal(self, node: i64) -> bool:
        """Whether the records of a node are on disk; as ``Environment.sync``."""
        raise NotImplementedError

    # Rows of the trace, if there is one.

    def record(self, event: i64, node: i64, peer: i64, message: ProtocolMessage, value: i64) -> None:
        """Write a row about a message."""
        if self.recorder is not None:
            self.recorder.record_message(self.calendar.now, event, node, peer, message, value)

    def record_publication(self, event: i64, node: i64, topic: i64, source: i64, sequence: i64) -> None:
        """Write a row about a publication that is missing."""
        if self.recorder is not None:
            self.recorder.record_run(self.calendar.now, event, node, source, sequence, 1, topic, 0, UNSPECIFIED)

    def record_topic(self, event: i64, node: i64, topic: i64) -> None:
        """Write a row about a subscription."""
        if self.recorder is not None:
            self.recorder.record_topic(self.calendar.now, event, node, topic)

    def record_epoch(self, node: i64, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        """Write rows about an epoch that orders totally."""
        if self.recorder is not None:
            self.recorder.record_epoch(self.calendar.now, node, epoch, members, councils)


@final
class SimulatedNode(Environment):
    """One node; it survives the processes that run on it."""

    def __init__(self, engine: EngineBase, identifier: i64) -> None:
        super().__init__(identifier)
        self._engine: Final[EngineBase] = engine
        self.process: Process | None = None
        self.state: i64 = ABSENT
        # The number of processes that were built here.
        self.incarnation_count: i64 = 0
        self.incarnation: Incarnation = Incarnation()
        self.paused_at: i64 = 0
        self.free: i64 = 0
        # The error of the wall clock; it survives crashes.
        self.clock_error: i64 = 0
        self._random: RandomStream | None = None
        self._timers: dict[i64, TimerEvent] | None = None
        self._backlog: list[object] | None = None

    def now(self) -> i64:
        return self._engine.calendar.now

    def shared_time(self) -> i64:
        shown = self._engine.calendar.now + self.clock_error
        return shown if shown > 0 else 0

    def send(self, destination: i64, message: ProtocolMessage) -> None:
        # Without this check NO_NODE would index the last node.
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

    def lost(self, topic: i64, source: i64, sequence: i64, is_late: bool = False) -> None:
        engine = self._engine
        engine.lost += 1
        engine.record_publication(LOST, self.identifier, topic, source, sequence)

    def log_reader(self, topic: i64) -> LogReader | None:
        return self._engine.log_reader(self.identifier, topic)

    def was_logged(self, topic: i64, source: i64, sequence: i64) -> bool:
        return self._engine.was_logged(self.identifier, topic, source, sequence)

    def read_logged(self, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        return self._engine.read_logged(self.identifier, topic, source, sequence)

    def restored_frontier(self, topic: i64) -> list[int] | None:
        return self._engine.restored_frontier(self.identifier, topic)

    def journal(self) -> list[ProtocolMessage] | None:
        return self._engine.journal(self.identifier)

    def write(self, record: ProtocolMessage) -> None:
        self._engine.write(self.identifier, record)

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        self._engine.rewrite(self.identifier, records)

    def sync(self) -> bool:
        return self._engine.sync_journal(self.identifier)

    def unwanted(self, message: ProtocolMessage) -> None:
        self._engine.unwanted += 1

    def subscribed(self, topic: i64) -> None:
        self._engine.record_topic(SUBSCRIBED, self.identifier, topic)
        self._engine.subscribed(self.identifier, topic)

    def unsubscribed(self, topic: i64) -> None:
        self._engine.record_topic(UNSUBSCRIBED, self.identifier, topic)
        self._engine.unsubscribed(self.identifier, topic)

    def ordering_epoch(self, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        self._engine.record_epoch(self.identifier, epoch, members, councils)

    def set_timer(self, delay: i64, name: i64) -> i64:
        timers = self._timers
        if timers is None:
            timers = {}
            self._timers = timers
        engine = self._engine
        engine.timers_set += 1
        timer = TimerEvent(name, engine.timers_set)
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

    def silence_ticks(self, peer: i64) -> i64:
        return self._engine.silence_ticks(self.identifier, peer)

    def unwatch(self, peer: i64) -> None:
        self._engine.links.remove(self.identifier, peer, self.incarnation)

    def take_timer(self, timer: TimerEvent) -> bool:
        """Whether an expiring timer is still set; it is removed."""
        return self._timers is not None and self._timers.pop(timer.handle, None) is not None

    def wait(self, sender: object, what: object) -> None:
        """Keep an event until the pause ends."""
        if self._backlog is None:
            self._backlog = []
        self._backlog.append(self)
        self._backlog.append(sender)
        self._backlog.append(what)

    def take_backlog(self) -> list[object]:
        """The events that waited, in the order of arrival; they are removed."""
        backlog = self._backlog
        self._backlog = None
        return [] if backlog is None else backlog

    def forget(self) -> None:
        """Lose the memory: the process and its timers."""
        self.process = None
        self._timers = None


def publish_at(process: Process, payload: bytes, topic: i64, order: i64, keys: list[int] | None) -> i64:
    """Let a process publish; most fabrics have no keys."""
    if keys is None:
        return process.publish(payload, topic, order)
    return process.publish_about(keys, payload, topic, order)
