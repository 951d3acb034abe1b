"""The deterministic host: virtual time, one seed, one thread.

Same seed and same set-up give the same events in the same order on every machine, compiled or not. The engine takes an
event from the calendar, hands it to the process it is for, and lets what the process sends become new events. Where
the network is simple and nothing is traced per copy, a send takes a short path with no decision and no allocation;
everything else (random delays, loss, faults, full traces) goes the general way through :meth:`Engine.transmit`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import UNSPECIFIED, Message, Publication
from antiphon.kernel.process import NO_NODE, Environment, LogReader, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.calendar import STRIDE, Calendar
from antiphon.simulator.engine.connections import Connections
from antiphon.simulator.engine.events import NEVER, Flight, Life, LinkChange, Timer, Watch
from antiphon.simulator.engine.links import Links
from antiphon.simulator.engine.node import ABSENT, DOWN, PAUSED, STATE_NAMES, UP, Node
from antiphon.simulator.network.network import Cut, Network
from antiphon.trace.recorder import (
    CRASH,
    DELIVER,
    DROP,
    DROPPED_LOSS,
    DROPPED_PARTITION,
    DROPPED_RECEIVER_DOWN,
    DROPPED_SENDER_DOWN,
    DUPLICATE,
    END,
    EXPIRE,
    JOIN,
    LEAVE,
    PAUSE,
    PUBLISH,
    RECEIVE,
    RESTART,
    RESUME,
    SEND,
    STUCK,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Recorder,
)

NETWORK_STREAM: Final = 1
ENDINGS: Final = ("finished", "time limit", "event limit")
"""How a run ends; traces have the places in this list."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Action:
    """Something the scenario does at a given time: publish, crash a node, heal a partition."""

    def run(self, engine: Engine) -> None:
        """Do it."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Application:
    """What stands above all nodes of a simulated system and reacts to what happens there.

    The process that calls has not finished what it does, so no operation may be called here; ``engine.at`` schedules
    one, at the earliest for the end of this tick.
    """

    def delivered(self, engine: Engine, node: i64, publication: Publication) -> None:
        """A node has delivered a publication, perhaps its own."""

    def subscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        """A subscription has taken effect."""

    def unsubscribed(self, engine: Engine, node: i64, topic: i64) -> None:
        """A subscription has ended."""

    def read_back(self, node: i64, topic: i64) -> LogReader | None:
        """Reads what the log of a node holds of a topic; as ``Environment.read_back``."""
        return None

    def was_logged(self, node: i64, topic: i64, source: i64, sequence: i64) -> bool:
        """Whether the log of a node has ever held a publication; as ``Environment.was_logged``."""
        return True

    def recalled(self, node: i64, topic: i64, source: i64, sequence: i64) -> Message | None:
        """A publication from the log of a node; as ``Environment.recalled``."""
        return None

    def past(self, node: i64, topic: i64) -> list[int] | None:
        """What an earlier life of a node delivered on a topic; as ``Environment.past``."""
        return None

    def journal(self, node: i64) -> list[Message] | None:
        """What earlier lives of a node have written down; as ``Environment.journal``."""
        return None

    def write(self, node: i64, record: Message) -> None:
        """A node writes something down; as ``Environment.write``."""

    def rewrite(self, node: i64, records: list[Message]) -> None:
        """A node writes all anew; as ``Environment.rewrite``."""

    def sync_journal(self, engine: Engine, node: i64) -> bool:
        """Whether what a node has written is on disk; as ``Environment.sync``."""
        return True

    def refuses(self, node: i64) -> bool:
        """Whether a node takes no publications now, for reasons that its process does not know."""
        return False

    def crashes(self, engine: Engine, node: i64, process: Process) -> None:
        """A node is about to lose its process."""

    def returned(self, engine: Engine, node: i64, process: Process) -> None:
        """A node that had crashed has a process again, which has started; here operations may be called."""


class Engine:
    """A simulated system. Create it, schedule actions, run it, read the counters."""

    def __init__(
        self,
        node_count: i64,
        network: Network,
        build: Callable[[Environment], Process],
        seed: int = 1,
        recorder: Recorder | None = None,
        can_fail: bool = False,
        absent: set[int] | None = None,
        application: Application | None = None,
        reconnects: bool = False,
        knows_lives: bool = False,
    ) -> None:
        if node_count < 1:
            raise UsageError(f"a simulation needs at least one node, not {node_count}")
        self.seed: Final[int] = seed
        self.network: Final[Network] = network
        self.calendar: Final[Calendar] = Calendar()
        self._build: Final[Callable[[Environment], Process]] = build
        self._recorder: Final[Recorder | None] = recorder
        self.traces_copies: Final[bool] = recorder is not None and recorder.wants_copies
        self.application: Final[Application | None] = application
        self.watches_deliveries: Final[bool] = recorder is not None or application is not None
        self.can_fail: Final[bool] = can_fail
        # Whether hosts keep connections to all others and open them anew, as live nodes of a cube do: a connection that
        # could not be opened is told as lost, and who is connected with a later life knows that the earlier has ended.
        self.reconnects: Final[bool] = reconnects
        # Whether connections belong to lives, and nothing comes over that of an earlier one once there is another.
        self.knows_lives: Final[bool] = knows_lives
        self.simple: Final[bool] = network.is_simple() and not self.traces_copies and not can_fail
        self.charges_control: Final[bool] = network.charge_control
        self.transmission: Final[i64] = network.transmission
        self.hop_ticks: Final[i64] = network.transmission + network.delay.constant() + network.processing
        self._random: Final[RandomStream] = RandomStream(seed, NETWORK_STREAM)
        self._cuts: list[Cut] = []
        self.links: Final[Links] = Links()
        # Where copies do not overtake each other.
        self._connections: Final[Connections] = Connections(network.detection)
        # Nodes that stand still and are lost to others.
        self._standstills: dict[i64, Cut] = {}
        self.events: i64 = 0
        self.sent: i64 = 0
        # Those that went through an output server, and how long they waited there before their transmission began.
        self.charged: i64 = 0
        self.queue_ticks: i64 = 0
        self.dropped: i64 = 0
        self.published: i64 = 0
        # Publications that processes did not accept.
        self.refused: i64 = 0
        self.deliveries: i64 = 0
        self.own_deliveries: i64 = 0
        # From the application's call to the start of a publication, added up over those that have started.
        self.start_ticks: i64 = 0
        # Copies of publications that arrived, and how long after the application's call; copies nobody wanted there.
        self.receptions: i64 = 0
        self.reception_ticks: i64 = 0
        self.unwanted: i64 = 0
        # Deliveries that a process has given up, and said so.
        self.lost: i64 = 0
        self.latency_sum: i64 = 0
        self.latency_maximum: i64 = 0
        self.timers_set: i64 = 0
        self.end_time: i64 = 0
        self.nodes: list[Node] = []
        for identifier in range(node_count):
            node = Node(self, identifier)
            self.nodes.append(node)
            if absent is None or identifier not in absent:
                node.state = UP
                node.incarnation = 1
                node.process = build(node)
        for node in self.nodes:
            process = node.process
            if process is not None:
                process.start()

    # What a scenario does.

    def at(self, time: i64, action: Action) -> None:
        """Do something at a given time."""
        self.calendar.schedule(time, self, self, action)

    def publish(
        self,
        identifier: i64,
        payload: bytes,
        topic: i64 = 0,
        order: i64 = UNSPECIFIED,
        keys: list[int] | None = None,
    ) -> bool:
        """Let a node publish, about some keys if it names any; false if it is not up, or refuses."""
        process = self._ready_process(identifier)
        if process is None:
            return False
        is_unable = self.application is not None and self.application.refuses(identifier)
        if is_unable or process.refusal(order, topic) is not None:
            self.refused += 1
            return False
        self.published += 1
        if self._recorder is not None:
            # The row must come before those of the copies; the sequence number is known only afterwards.
            row = self._recorder.reserve()
            sequence = publish_at(process, payload, topic, order, keys)
            self._recorder.fill(row, self.calendar.now, PUBLISH, identifier, sequence, topic, len(payload), order)
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
        """Stop a node at once. What it had not yet transmitted is lost, and so is its memory."""
        node = self._in_state(identifier, CRASH, UP, PAUSED)
        node.state = DOWN
        node.life.crashed_at = self.calendar.now
        node.free = self.calendar.now
        if self.application is not None and node.process is not None:
            self.application.crashes(self, identifier, node.process)
        node.forget()
        self._end_standstill(node)
        self._break_links(node)
        # With nobody there to handle it, what waited during a pause is dropped and counted.
        self._catch_up(node.take_backlog())

    def restart(self, identifier: i64) -> None:
        """Bring a crashed node back with an empty memory."""
        node = self._in_state(identifier, RESTART, DOWN, DOWN)
        self._bring_up(node)
        if self.application is not None and node.process is not None:
            self.application.returned(self, identifier, node.process)

    def pause(self, identifier: i64) -> None:
        """Stall a node: it does nothing, and what arrives waits."""
        node = self._in_state(identifier, PAUSE, UP, UP)
        node.state = PAUSED
        node.paused_at = self.calendar.now
        if self.network.notices_pauses:
            self.at(self.calendar.now + self.network.detection, NoticePause(node, self.calendar.now))

    def resume(self, identifier: i64) -> None:
        """Let a stalled node go on; what arrived meanwhile is handled now, in the order of arrival."""
        node = self._in_state(identifier, RESUME, PAUSED, PAUSED)
        node.state = UP
        self._end_standstill(node)
        self._catch_up(node.take_backlog())
        if self.network.notices_pauses:
            for watch in self._watches_with(identifier):
                self._look_later(watch, False)

    def notice_pause(self, node: Node, since: i64) -> None:
        """If a node is still paused, those who watch it count it as lost, and what is on its connections is gone.

        It learns that itself when it goes on, behind what had arrived before.
        """
        if node.state != PAUSED or node.paused_at != since:
            return
        now = self.calendar.now
        standstill = Cut(now, NEVER, [[int(node.identifier)]], is_standstill=True)
        self._cuts.append(standstill)
        self._standstills[node.identifier] = standstill
        for watch in self._watches_with(node.identifier):
            self._look_later(watch, True, -self.network.detection)

    def _end_standstill(self, node: Node) -> None:
        """What a node says in the moment in which it goes on is said on connections that have ended."""
        standstill = self._standstills.pop(node.identifier, None)
        if standstill is not None:
            over = Cut(standstill.start, self.calendar.now + 1, [[int(node.identifier)]], is_standstill=True)
            self._cuts = [over if cut is standstill else cut for cut in self._cuts]

    def join(self, identifier: i64) -> None:
        """Bring up a node that was absent from the start, or that has left."""
        self._bring_up(self._in_state(identifier, JOIN, ABSENT, ABSENT))

    def leave(self, identifier: i64) -> None:
        """Let a node go in an orderly way: its process is told, and what it has sent is still transmitted."""
        node = self._in_state(identifier, LEAVE, UP, UP)
        process = node.process
        assert process is not None, "a node that is up has a process"
        process.leave()
        node.state = ABSENT
        node.forget()
        self._break_links(node)

    def cut(self, cut: Cut) -> None:
        """Partition the network for the time that the cut names."""
        assert self.can_fail, "an engine that may meet faults is created with can_fail=True"
        self._cuts.append(cut)
        # Over a connection something may have been lost, even if the other end can be reached again by then.
        for watch in self.links.all():
            self._look_around(watch, cut, self.network.in_order)

    def _in_state(self, identifier: i64, event: i64, one: i64, other: i64) -> Node:
        assert self.can_fail, "an engine that may meet faults is created with can_fail=True"
        node = self.nodes[identifier]
        if node.state != one and node.state != other:
            raise UsageError(
                f"at time {self.calendar.now} node {identifier} is {STATE_NAMES[node.state]}, but a fault expects it "
                f"to be {STATE_NAMES[one]}; check the order of the faults in the scenario"
            )
        if node.process is None:
            node.incarnation += 1
        if self._recorder is not None:
            self._recorder.record(self.calendar.now, event, identifier, node.incarnation)
        return node

    def _catch_up(self, backlog: list[object]) -> None:
        """Handle what waited at a paused node before anything else that arrives in this tick."""
        for position in range(0, len(backlog), STRIDE):
            self._handle(backlog[position], backlog[position + 1], backlog[position + 2])

    def _bring_up(self, node: Node) -> None:
        node.state = UP
        node.life = Life(self.calendar.now)
        process = self._build(node)
        node.process = process
        process.start()
        for watch in self.links.of(node.identifier):
            if (self.reconnects or self.knows_lives) and not watch.is_lost:
                # Who is connected anew knows at once that the connection of an earlier life has ended.
                self._look_later(watch, True, -self.network.detection)
            self._look_later(watch, False)

    # Links that are watched.

    def watch(self, node: Node, peer: i64) -> None:
        """Let a node hear of what happens to a peer. Where nothing fails there is nothing to hear."""
        if not self.can_fail:
            return
        watch = self.links.add(node.identifier, peer, node.life)
        if watch is None:
            return
        if self.nodes[peer].process is None:
            # Over a connection that cannot be opened nothing gets through, even if the peer is there by then.
            self._look_later(watch, self.reconnects)
        for cut in self._cuts:
            self._look_around(watch, cut, self.reconnects)

    def _watches_with(self, identifier: i64) -> list[Watch]:
        """Who watches a node, and whom it watches."""
        return [watch for watch in self.links.all() if (watch.watcher == identifier) != (watch.peer == identifier)]

    def _look_around(self, watch: Watch, cut: Cut, breaks: bool) -> None:
        """If a partition is between the two now, look whether it lasts long enough, and again after its end."""
        now = self.calendar.now
        if self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now):
            self._look_later(watch, breaks)
            if cut.end < NEVER:
                self._look_later(watch, False, cut.end - now)

    def _breaks(self, cut: Cut) -> bool:
        """Whether connections do not outlast a partition. Without connections nothing outlasts any."""
        return not (self.network.in_order and self._connections.outlasts(cut))

    def _break_links(self, node: Node) -> None:
        for watch in self.links.of(node.identifier):
            self._look_later(watch, True, 0, node.life if self.reconnects or self.knows_lives else None)

    def _look_later(self, watch: Watch, is_broken: bool, after: i64 = 0, life: Life | None = None) -> None:
        watcher = self.nodes[watch.watcher]
        when = self.calendar.now + after + self.network.detection
        self.calendar.schedule(when, watcher, watcher, LinkChange(watch, is_broken, life))

    def _is_reachable(self, watch: Watch) -> bool:
        peer = self.nodes[watch.peer]
        if peer.process is None:
            return False
        if self.network.notices_pauses and peer.state == PAUSED and watch.is_lost:
            # Who stands still opens no connection.
            return False
        now = self.calendar.now
        return not any(self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now) for cut in self._cuts)

    def _change_link(self, change: LinkChange) -> None:
        watch = change.watch
        watcher = self.nodes[watch.watcher]
        process = watcher.process
        if process is None or not watch.is_wanted or watch.life is not watcher.life:
            return
        if change.life is not None and change.life is not self.nodes[watch.peer].life:
            return
        if change.is_broken or not self._is_reachable(watch):
            if not watch.is_lost:
                watch.is_lost = True
                process.peer_lost(watch.peer)
        elif watch.is_lost:
            watch.is_lost = False
            process.peer_found(watch.peer)

    # Running.

    def run(self, until: i64 = NEVER, event_limit: i64 = NEVER) -> str:
        """Work through the calendar; says why it stopped: ``finished``, ``time limit`` or ``event limit``.

        A bucket is always finished, so the limit on events may be passed by the events of one tick.
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
                if self._recorder is not None:
                    self._recorder.flush_if_full()
        finally:
            if self._recorder is not None:
                self._recorder.flush()
            if collecting:
                gc.enable()

    def _work_through(self, bucket: list[object]) -> None:
        position: i64 = 0
        simple = self.simple
        # The bucket grows while it is worked through when something is scheduled for the same tick.
        while position < len(bucket):
            what = bucket[position + 2]
            if simple and isinstance(what, Message):
                target = bucket[position]
                sender = bucket[position + 1]
                assert isinstance(target, Node) and isinstance(sender, Node), "a message goes from node to node"
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
        """One event that is not a message on the short path."""
        if isinstance(what, Action):
            what.run(self)
            return
        assert isinstance(target, Node) and isinstance(sender, Node), "messages and timers belong to nodes"
        if self.network.in_order and isinstance(what, Flight) and self._is_held_up(target, sender, what):
            return
        if target.state == PAUSED:
            if isinstance(what, Flight):
                # It has arrived: a partition that holds up what comes behind it does not hold up this one.
                what = Flight(what.message, what.sent, what.departed, what.arrived, what.life, True)
            target.wait(sender, what)
            return
        if isinstance(what, Timer):
            self._expire(target, what)
        elif isinstance(what, Flight):
            self._land(target, sender, what)
        elif isinstance(what, LinkChange):
            self._change_link(what)
        else:
            assert isinstance(what, Message), "an event is an action, a timer, a link or a message"
            self._receive(target, sender, what)

    def _expire(self, node: Node, timer: Timer) -> None:
        process = node.process
        if process is None or not node.take_timer(timer):
            return
        if self.traces_copies:
            assert self._recorder is not None, "traces_copies implies a recorder"
            self._recorder.record(self.calendar.now, EXPIRE, node.identifier, timer.name)
        process.expire(timer.name)

    def _receive(self, target: Node, sender: Node, message: Message) -> None:
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

    def _land(self, target: Node, sender: Node, flight: Flight) -> None:
        """The end of a flight, where it turns out whether the copy got through."""
        reason: i64 = 0
        # A copy that was still in the output queue when its sender crashed has never left.
        if flight.departed > flight.life.crashed_at:
            reason = DROPPED_SENDER_DOWN
        for cut in self._cuts:
            # A connection that breaks takes with it what has not left yet.
            begun = flight.sent if self.network.in_order else flight.departed
            if self._breaks(cut) and cut.severs(sender.identifier, target.identifier, begun, flight.arrived):
                reason = DROPPED_PARTITION
        if self.knows_lives and (flight.life is not sender.life or flight.sent < target.life.began_at):
            # Over the connection of an earlier life nothing comes once there is another.
            reason = DROPPED_SENDER_DOWN if flight.life is not sender.life else DROPPED_RECEIVER_DOWN
        if reason == 0:
            self._receive(target, sender, flight.message)
            return
        self.dropped += 1
        self.record(DROP, target.identifier, sender.identifier, flight.message, reason)

    def _is_held_up(self, target: Node, sender: Node, flight: Flight) -> bool:
        """Whether a copy on a connection has to wait, because of a short partition; it arrives later then."""
        if flight.is_late or not self._cuts:
            return False
        until = self._connections.held_until(sender.identifier, target.identifier, flight, self._cuts)
        if self.calendar.now > until:
            return False
        late = Flight(flight.message, flight.sent, flight.departed, flight.arrived, flight.life, True)
        self.calendar.schedule(until, target, sender, late)
        return True

    def transmit(self, node: Node, destination: i64, message: Message) -> None:
        """The general way of a copy: output server, trace, loss, delay, duplication."""
        network = self.network
        now = self.calendar.now
        departs = now
        if network.charge_control or not message.is_control():
            departs = max(now, node.free)
            self.charged += 1
            self.queue_ticks += departs - now
            departs += network.transmission
            node.free = departs
        else:
            departs += network.transmission
        self.sent += 1
        if self.traces_copies:
            self.record(SEND, node.identifier, destination, message, departs - now)
        if network.loss > 0.0 and self._random.chance(network.loss):
            self.dropped += 1
            self.record(DROP, destination, node.identifier, message, DROPPED_LOSS)
            return
        self._launch(node, destination, message, departs)
        if network.duplication > 0.0 and self._random.chance(network.duplication):
            self.record(DUPLICATE, destination, node.identifier, message, 0)
            self._launch(node, destination, message, departs)

    def _launch(self, node: Node, destination: i64, message: Message, departs: i64) -> None:
        network = self.network
        arrives = departs + network.delay.draw(node.identifier, destination, self._random)
        if network.reordering > 0.0 and self._random.chance(network.reordering):
            arrives += self._random.between(0, network.reordering_window)
        if network.in_order:
            departs = self._connections.departure(node.identifier, destination, departs)
            arrives = self._connections.arrival(node.identifier, destination, max(arrives, departs))
        what: object = message
        if self.can_fail:
            what = Flight(message, self.calendar.now, departs, arrives, node.life)
        self.calendar.schedule(arrives + network.processing, self.nodes[destination], node, what)

    def watch_delivery(self, node: i64, publication: Publication, latency: i64) -> None:
        """Write down a delivery and tell the application of it, where there is a trace or an application."""
        self.record(DELIVER, node, NO_NODE, publication, latency)
        if self.application is not None:
            self.application.delivered(self, node, publication)

    def record(self, event: i64, node: i64, peer: i64, message: Message, value: i64) -> None:
        """Write a row about a message, if there is a trace."""
        if self._recorder is not None:
            self._recorder.record_message(self.calendar.now, event, node, peer, message, value)

    def record_publication(self, event: i64, node: i64, topic: i64, source: i64, sequence: i64) -> None:
        """Write a row about a publication that is not there, if there is a trace."""
        if self._recorder is not None:
            self._recorder.record_run(self.calendar.now, event, node, source, sequence, 1, topic, 0, UNSPECIFIED)

    def record_end(self, stopped: str) -> None:
        """Write down how the run ended, and which nodes have not finished something, if there is a trace."""
        if self._recorder is None:
            return
        for node in self.nodes:
            unfinished: i64 = 0 if node.process is None else node.process.unfinished()
            if unfinished > 0:
                self._recorder.record(self.end_time, STUCK, node.identifier, unfinished)
        self._recorder.record(self.end_time, END, 0, ENDINGS.index(stopped))
        self._recorder.flush()

    def record_topic(self, event: i64, node: i64, topic: i64) -> None:
        """Write a row about a subscription, if there is a trace."""
        if self._recorder is not None:
            self._recorder.record_topic(self.calendar.now, event, node, topic)

    def record_epoch(self, node: i64, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        """Write rows about an epoch that orders, if there is a trace."""
        if self._recorder is not None:
            self._recorder.record_epoch(self.calendar.now, node, epoch, members, councils)


@final
class NoticePause(Action):
    """Time for those who watch a paused node to notice."""

    def __init__(self, node: Node, since: i64) -> None:
        self._node: Final[Node] = node
        self._since: Final[i64] = since

    def run(self, engine: Engine) -> None:
        engine.notice_pause(self._node, self._since)


def publish_at(process: Process, payload: bytes, topic: i64, order: i64, keys: list[int] | None) -> i64:
    """Let a process publish; most fabrics know no keys."""
    if keys is None:
        return process.publish(payload, topic, order)
    return process.publish_about(keys, payload, topic, order)
