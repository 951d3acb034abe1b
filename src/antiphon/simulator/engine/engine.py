"""The engine of the deterministic host: virtual time, one seed, one thread.

The same seed and setup give the same events in the same order on every machine, compiled or not. The engine takes an
event from the calendar, passes it to its process, and schedules the messages that the process sends as new events.
Where the network is simple and no trace of copies is kept, a send takes a short path with no decision and no
allocation; every other case (random delays, loss, faults, full traces) takes the general path
(:mod:`antiphon.simulator.engine.transmission`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment, LogReader, Process
from antiphon.simulator.engine.calendar import STRIDE
from antiphon.simulator.engine.connections import ConnectionModel
from antiphon.simulator.engine.events import NEVER, Flight, Incarnation, LinkChange, TimerEvent
from antiphon.simulator.engine.node import ABSENT, DOWN, PAUSED, STATE_NAMES, UP, EngineBase, SimulatedNode, publish_at
from antiphon.simulator.engine.reachability import Reachability
from antiphon.simulator.engine.transmission import Transmission
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from antiphon.trace.recorder import (
    CRASH,
    DELIVER,
    DROP,
    DROPPED_RECEIVER_DOWN,
    END,
    EXPIRE,
    JOIN,
    LEAVE,
    PAUSE,
    PUBLISH,
    RECEIVE,
    RESTART,
    RESUME,
    STUCK,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Recorder,
)

ENDINGS: Final = ("finished", "time limit", "event limit")
"""How a run ends; traces store the index into this list."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Action:
    """An operation or fault of a scenario at a given time: publish, crash a node, heal a partition."""

    def run(self, engine: Engine) -> None:
        """Carry out the action."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SimulatedApplication:
    """A layer above all nodes of a simulated system that reacts to events, such as their disks.

    The calling process has not finished its step, so no operation may be called here; ``engine.at`` schedules one, at
    the earliest for the end of this tick.
    """

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        """A node has delivered a publication, perhaps its own."""

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        """A subscription is effective."""

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        """A subscription has ended."""

    def log_reader(self, node: i64, topic: i64) -> LogReader | None:
        """Read the log of a node about a topic; as ``Environment.log_reader``."""
        return None

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        """Whether the log of a node has ever held a publication; as ``Environment.was_logged``."""
        return True

    def read_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        """A publication from the log of a node; as ``Environment.read_logged``."""
        return None

    def restored_frontier(self, node: i64, topic: i64) -> list[int] | None:
        """The deliveries of an earlier incarnation on a topic; as ``Environment.restored_frontier``."""
        return None

    def journal(self, node: i64) -> list[ProtocolMessage] | None:
        """The records of earlier incarnations of a node; as ``Environment.journal``."""
        return None

    def write(self, node: i64, record: ProtocolMessage) -> None:
        """A node writes a record; as ``Environment.write``."""

    def rewrite(self, node: i64, records: list[ProtocolMessage]) -> None:
        """A node replaces all its records; as ``Environment.rewrite``."""

    def sync_journal(self, engine: Engine, node: i64) -> bool:
        """Whether the records of a node are on disk; as ``Environment.sync``."""
        return True

    def refuses(self, node: i64) -> bool:
        """Whether a node accepts no publications now, for reasons outside of its process."""
        return False

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        """A node is about to lose its process."""

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        """A restarted node has a process again, which has started; operations may be called here."""


class Engine(EngineBase):
    """A simulated system. Create it, schedule actions, run it, read the counters."""

    def __init__(
        self,
        node_count: i64,
        network: NetworkModel,
        build: Callable[[Environment], Process],
        seed: int = 1,
        recorder: Recorder | None = None,
        can_fail: bool = False,
        absent: set[int] | None = None,
        application: SimulatedApplication | None = None,
        reconnects: bool = False,
        knows_incarnations: bool = False,
    ) -> None:
        if node_count < 1:
            raise UsageError(f"a simulation needs at least one node, not {node_count}")
        super().__init__(seed, network, recorder, can_fail)
        self._build: Final[Callable[[Environment], Process]] = build
        self.application: Final[SimulatedApplication | None] = application
        self.watches_deliveries = recorder is not None or application is not None
        # Delays copies so that they do not overtake each other.
        connections = ConnectionModel(network.detection)
        self._transmission: Final[Transmission] = Transmission(self, connections)
        self._reachability: Final[Reachability] = Reachability(
            network, self.calendar, self.nodes, self.links, connections, reconnects, knows_incarnations
        )
        self.events: i64 = 0
        self.published: i64 = 0
        # Publications that processes did not accept.
        self.refused: i64 = 0
        # The number of arrived copies of publications, and their total time since the application's call.
        self.receptions: i64 = 0
        self.reception_ticks: i64 = 0
        self.end_time: i64 = 0
        for identifier in range(node_count):
            node = SimulatedNode(self, identifier)
            self.nodes.append(node)
            if absent is None or identifier not in absent:
                node.state = UP
                node.incarnation_count = 1
                node.process = build(node)
        for node in self.nodes:
            process = node.process
            if process is not None:
                process.start()

    # Operations of a scenario.

    def at(self, time: i64, action: Action) -> None:
        """Schedule an action."""
        self.calendar.schedule(time, self, self, action)

    def publish(
        self,
        identifier: i64,
        payload: bytes,
        topic: i64 = 0,
        order: i64 = UNSPECIFIED,
        keys: list[int] | None = None,
    ) -> bool:
        """Let a node publish, about some keys if any are given; false if it is not up, or refuses."""
        process = self._ready_process(identifier)
        if process is None:
            return False
        is_unable = self.application is not None and self.application.refuses(identifier)
        if is_unable or process.refusal(order, topic) is not None:
            self.refused += 1
            return False
        self.published += 1
        if self.recorder is not None:
            # The row must precede those of the copies; the sequence number is known only afterwards.
            row = self.recorder.reserve()
            sequence = publish_at(process, payload, topic, order, keys)
            self.recorder.fill(row, self.calendar.now, PUBLISH, identifier, sequence, topic, len(payload), order)
        else:
            publish_at(process, payload, topic, order, keys)
        return True

    def subscribe(self, identifier: i64, topic: i64) -> bool:
        """Let a node subscribe; false if it is not up."""
        process = self._ready_process(identifier)
        if process is None:
            return False
        self.record_topic(SUBSCRIBE, identifier, topic)
        process.subscribe(topic)
        return True

    def unsubscribe(self, identifier: i64, topic: i64) -> bool:
        """Let a node unsubscribe; false if it is not up."""
        process = self._ready_process(identifier)
        if process is None:
            return False
        self.record_topic(UNSUBSCRIBE, identifier, topic)
        process.unsubscribe(topic)
        return True

    def _ready_process(self, identifier: i64) -> Process | None:
        node = self.nodes[identifier]
        return node.process if node.state == UP else None

    def crash(self, identifier: i64) -> None:
        """Stop a node at once. Copies that it has not transmitted yet are lost, and so is its memory."""
        node = self._in_state(identifier, CRASH, UP, PAUSED)
        node.state = DOWN
        node.incarnation.crashed_at = self.calendar.now
        node.free = self.calendar.now
        if self.application is not None and node.process is not None:
            self.application.crashes(self, identifier, node.process)
        node.forget()
        self._reachability.end_standstill(node)
        self._reachability.went_down(node)
        # Events that waited during the pause have no process now; they are dropped and counted.
        self._catch_up(node.take_backlog())

    def restart(self, identifier: i64) -> None:
        """Restart a crashed node with an empty memory."""
        node = self._in_state(identifier, RESTART, DOWN, DOWN)
        self._bring_up(node)
        if self.application is not None and node.process is not None:
            self.application.returned(self, identifier, node.process)

    def pause(self, identifier: i64) -> None:
        """Pause a node: it does nothing, and arriving events wait."""
        node = self._in_state(identifier, PAUSE, UP, UP)
        node.state = PAUSED
        node.paused_at = self.calendar.now
        if self.network.notices_pauses:
            self.at(self.calendar.now + self.network.detection, NoticePause(node, self.calendar.now))

    def resume(self, identifier: i64) -> None:
        """Let a paused node resume; events that arrived meanwhile are handled now, in the order of arrival."""
        node = self._in_state(identifier, RESUME, PAUSED, PAUSED)
        node.state = UP
        self._reachability.end_standstill(node)
        self._catch_up(node.take_backlog())
        if self.network.notices_pauses:
            self._reachability.resumed(node)

    def notice_pause(self, node: SimulatedNode, since: i64) -> None:
        """If a node is still paused, its watchers count it as lost."""
        if node.state == PAUSED and node.paused_at == since:
            self._reachability.stand_still(node)

    def join(self, identifier: i64) -> None:
        """Start a node that was absent from the start, or that has left."""
        self._bring_up(self._in_state(identifier, JOIN, ABSENT, ABSENT))

    def introduce(self, identifier: i64) -> None:
        """Tell a started node and all others of each other as soon as they are connected."""
        self._reachability.introduce(self.nodes[identifier])

    def leave(self, identifier: i64) -> None:
        """Let a node leave orderly: its process is told, and the copies it has sent are still transmitted."""
        node = self._in_state(identifier, LEAVE, UP, UP)
        process = node.process
        assert process is not None, "a node that is up has a process"
        process.leave()
        node.state = ABSENT
        node.forget()
        self._reachability.went_down(node)

    def cut(self, cut: NetworkPartition) -> None:
        """Partition the network for the duration of the cut."""
        assert self.can_fail, "an engine that may meet faults is created with can_fail=True"
        self._reachability.cut(cut)

    def _in_state(self, identifier: i64, event: i64, one: i64, other: i64) -> SimulatedNode:
        assert self.can_fail, "an engine that may meet faults is created with can_fail=True"
        node = self.nodes[identifier]
        if node.state != one and node.state != other:
            raise UsageError(
                f"at time {self.calendar.now} node {identifier} is {STATE_NAMES[node.state]}, but a fault expects it "
                f"to be {STATE_NAMES[one]}; check the order of the faults in the scenario"
            )
        if node.process is None:
            node.incarnation_count += 1
        if self.recorder is not None:
            self.recorder.record(self.calendar.now, event, identifier, node.incarnation_count)
        return node

    def _catch_up(self, backlog: list[object]) -> None:
        """Handle the events that waited at a paused node before other events of this tick."""
        for position in range(0, len(backlog), STRIDE):
            self._handle(backlog[position], backlog[position + 1], backlog[position + 2])

    def _bring_up(self, node: SimulatedNode) -> None:
        node.state = UP
        node.incarnation = Incarnation(self.calendar.now)
        process = self._build(node)
        node.process = process
        process.start()
        self._reachability.went_up(node)

    # Requests of nodes.

    def transmit(self, node: SimulatedNode, destination: i64, message: ProtocolMessage) -> None:
        self._transmission.transmit(node, destination, message)

    def watch(self, node: SimulatedNode, peer: i64) -> None:
        # Without faults there is nothing to report.
        if self.can_fail:
            self._reachability.watch(node, peer)

    def silence_ticks(self, node: i64, peer: i64) -> i64:
        return self._reachability.silence_ticks(node, peer) if self.can_fail else 0

    def watch_delivery(self, node: i64, publication: Publication, latency: i64) -> None:
        self.record(DELIVER, node, NO_NODE, publication, latency)
        if self.application is not None:
            self.application.delivered(self, node, publication)

    def subscribed(self, node: i64, topic: i64) -> None:
        if self.application is not None:
            self.application.subscribed(self, node, topic)

    def unsubscribed(self, node: i64, topic: i64) -> None:
        if self.application is not None:
            self.application.unsubscribed(self, node, topic)

    def log_reader(self, node: i64, topic: i64) -> LogReader | None:
        return None if self.application is None else self.application.log_reader(node, topic)

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        return self.application is None or self.application.was_logged(node, topic, source, sequence)

    def read_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        return None if self.application is None else self.application.read_logged(node, topic, source, sequence)

    def restored_frontier(self, node: i64, topic: i64) -> list[int] | None:
        return None if self.application is None else self.application.restored_frontier(node, topic)

    def journal(self, node: i64) -> list[ProtocolMessage] | None:
        return None if self.application is None else self.application.journal(node)

    def write(self, node: i64, record: ProtocolMessage) -> None:
        if self.application is not None:
            self.application.write(node, record)

    def rewrite(self, node: i64, records: list[ProtocolMessage]) -> None:
        if self.application is not None:
            self.application.rewrite(node, records)

    def sync_journal(self, node: i64) -> bool:
        return self.application is None or self.application.sync_journal(self, node)

    # Running.

    def run(self, until: i64 = NEVER, event_limit: i64 = NEVER) -> str:
        """Handle events until none is left or a limit is reached; returns ``finished``, ``time limit`` or ``event
        limit``.

        A bucket is always completed, so the events of one tick may exceed the limit on events.
        """
        calendar = self.calendar
        collecting = gc.isenabled()
        gc.disable()
        try:
            while True:
                time = calendar.next_time()
                if time < 0:
                    return "finished"
                if time > until:
                    return "time limit"
                if self.events >= event_limit:
                    return "event limit"
                self._work_through(calendar.advance(time))
                calendar.clear_bucket(time)
                self.end_time = time
                if self.recorder is not None:
                    self.recorder.flush_if_full()
        finally:
            if self.recorder is not None:
                self.recorder.flush()
            if collecting:
                gc.enable()

    def _work_through(self, bucket: list[object]) -> None:
        position: i64 = 0
        simple = self.simple
        # The bucket grows when an event is scheduled for the same tick.
        while position < len(bucket):
            what = bucket[position + 2]
            if simple and isinstance(what, ProtocolMessage):
                target = bucket[position]
                sender = bucket[position + 1]
                assert isinstance(target, SimulatedNode) and isinstance(sender, SimulatedNode), (
                    "a message goes from node to node"
                )
                process = target.process
                assert process is not None, "where nothing fails every node has a process"
                if isinstance(what, Publication):
                    self._count_reception(what)
                process.receive(sender.identifier, what)
            else:
                self._handle(bucket[position], bucket[position + 1], what)
            position += STRIDE
        self.events += position // STRIDE

    def _handle(self, target: object, sender: object, what: object) -> None:
        """Handle one event that is not a message on the short path."""
        if isinstance(what, Action):
            what.run(self)
            return
        assert isinstance(target, SimulatedNode) and isinstance(sender, SimulatedNode), (
            "messages and timers belong to nodes"
        )
        if self.network.in_order and isinstance(what, Flight) and self._reachability.holds_up(target, sender, what):
            return
        if target.state == PAUSED:
            if isinstance(what, Flight):
                # It has arrived: a partition that delays later copies does not delay this one.
                what = Flight(what.message, what.sent, what.departed, what.arrived, what.incarnation, True)
            target.wait(sender, what)
            return
        if isinstance(what, TimerEvent):
            self._expire(target, what)
        elif isinstance(what, Flight):
            self._land(target, sender, what)
        elif isinstance(what, LinkChange):
            self._reachability.change_link(what)
        else:
            assert isinstance(what, ProtocolMessage), "an event is an action, a timer, a link or a message"
            self._receive(target, sender, what)

    def _expire(self, node: SimulatedNode, timer: TimerEvent) -> None:
        process = node.process
        if process is None or not node.take_timer(timer):
            return
        if self.traces_copies:
            assert self.recorder is not None, "traces_copies implies a recorder"
            self.recorder.record(self.calendar.now, EXPIRE, node.identifier, timer.name)
        process.expire(timer.name)

    def _receive(self, target: SimulatedNode, sender: SimulatedNode, message: ProtocolMessage) -> None:
        process = target.process
        if process is None:
            self.dropped += 1
            self.record(DROP, target.identifier, sender.identifier, message, DROPPED_RECEIVER_DOWN)
            return
        if self.traces_copies:
            self.record(RECEIVE, target.identifier, sender.identifier, message, 0)
        if isinstance(message, Publication):
            self._count_reception(message)
        process.receive(sender.identifier, message)

    def _count_reception(self, publication: Publication) -> None:
        self.receptions += 1
        self.reception_ticks += self.calendar.now - publication.timestamp

    def _land(self, target: SimulatedNode, sender: SimulatedNode, flight: Flight) -> None:
        """End a flight: deliver the copy, or drop it."""
        reason = self._reachability.loss_of(target, sender, flight)
        if reason == 0:
            self._receive(target, sender, flight.message)
            return
        self.dropped += 1
        self.record(DROP, target.identifier, sender.identifier, flight.message, reason)

    def record_end(self, stopped: str) -> None:
        """Record how the run ended, and which nodes have unfinished work, if there is a trace."""
        if self.recorder is None:
            return
        for node in self.nodes:
            unfinished: i64 = 0 if node.process is None else node.process.unfinished()
            if unfinished > 0:
                self.recorder.record(self.end_time, STUCK, node.identifier, unfinished)
        self.recorder.record(self.end_time, END, 0, ENDINGS.index(stopped))
        self.recorder.flush()


@final
class NoticePause(Action):
    """The time at which the watchers of a paused node notice."""

    def __init__(self, node: SimulatedNode, since: i64) -> None:
        self._node: Final[SimulatedNode] = node
        self._since: Final[i64] = since

    def run(self, engine: Engine) -> None:
        engine.notice_pause(self._node, self._since)
