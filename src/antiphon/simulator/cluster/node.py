"""One life of a simulated node: the host of its membership and the environment of its process.

It does what a live node does with sockets, timers and disk, in virtual time. A judge that knows none of the code is
told what happens (:mod:`antiphon.audit.membership`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.audit.membership import ERROR, MembershipJudge
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, LogReader, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import NOT_HERE, Link, Place, Timer
from antiphon.membership.membership import Membership
from antiphon.membership.messages import Control, Expelled, Hello, KeepAlive, PlaceResponse, Refused
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.simulator.cluster.fabrics import NodeSettings, new_membership, new_process
from antiphon.simulator.cluster.links import ProcessFrame, SilentLog, SimulatedConnection, SimulatedLink
from antiphon.simulator.cluster.network import Network, Pipe

TOPIC: Final = 7
"""The topic on which all nodes publish."""

LEAVE_US: Final = 5_000_000
"""How long a node that leaves lets its process finish."""


class NodeLife:
    """One life of a node, from its start to its end."""

    def __init__(
        self,
        place: str,
        number: int,
        settings: NodeSettings,
        clock: VirtualClock,
        network: Network,
        disk: SimulatedDisk,
        judge: MembershipJudge,
        random: RandomStream,
    ) -> None:
        self.place = place
        self.number = number
        self.settings = settings
        self.facts = disk
        self.log = SilentLog()
        self.clock = clock
        self.network = network
        self.judge = judge
        self.random = random
        self.instance = f"life {number}"
        self.process: Process | None = None
        self.environment: LifeEnvironment | None = None
        self.is_up = False
        self.is_paused = False
        self.is_leaving = False
        self.has_entered = False
        self.is_subscribed = False
        self.is_scarce = False
        self.when_gone: Callable[[NodeLife, str], None] = lambda *_: None
        # Why connections of others were refused.
        self.refusals: list[str] = []
        self._backlog: list[Callable[[], None]] = []
        self._timers: dict[Timer, object] = {}
        self._links: dict[Pipe, SimulatedLink] = {}
        self._connections: dict[Pipe, SimulatedConnection] = {}
        self._keeps_checkpoints = FABRICS[settings.fabric].keeps_checkpoints
        self.membership: Membership = new_membership(settings, Place(self.instance, place, settings, self, self))

    # Beginning and end.

    def begin(self) -> None:
        """Listen and look for a place."""
        self.is_up = True
        self.network.listeners[self.place] = self
        self.handle(self.membership.start)

    def handle(self, event: Callable[[], None]) -> None:
        """Let something happen here, if the node runs; what it changes is seen outside at once."""
        if not self.is_up:
            return
        if self.is_paused:
            self._backlog.append(event)
            return
        try:
            event()
            if not self.has_entered and self.is_up:
                self.membership.process_stepped()
            if self.is_leaving:
                self._look_if_left()
        except Exception as error:
            self.fail(error)

    def pause(self) -> None:
        """Stand still: what comes waits."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on with what has come meanwhile."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            self.handle(event)

    def crash(self, has_power: bool) -> None:
        """End without a word; ``has_power`` if the machine goes on."""
        self._keep_past()
        self.is_up = False
        self.network.ends(self, has_power)
        self.facts.crashed()

    def _keep_past(self) -> None:
        if self.process is not None and self.is_subscribed and self._keeps_checkpoints and self.facts.is_kept:
            self.facts.past[TOPIC] = self.process.frontier_keys(TOPIC)

    def leave(self) -> None:
        """Go in an orderly way."""
        if self.process is None:
            self._gone()
            return
        self.is_leaving = True
        self.clock.post(LEAVE_US, lambda: self.handle(self._gone))
        if self.is_subscribed:
            self.process.unsubscribe(TOPIC)
            self.is_subscribed = False
        self._look_if_left()

    def _look_if_left(self) -> None:
        if self.is_up and self.process is not None and self.process.unfinished() == 0:
            self._gone()

    def _gone(self) -> None:
        if not self.is_up:
            return
        self.is_leaving = False
        if self.process is not None:
            self.process.leave()
        self.membership.leave()
        self.is_up = False
        for link in self._links.values():
            link.close()
        self.network.ends(self, True)
        self.facts.past.clear()
        self.facts.closed()
        self.when_gone(self, "left")

    # The host of the membership.

    def now(self) -> int:
        """The clock."""
        return self.clock.now_us

    def draw(self, below: int) -> int:
        """A random number below another one."""
        return int(self.random.below(below))

    def open(self, address: str, hello: Hello, peer: int, patience_us: int = 0, expected_name: str = "") -> Link:
        """Open a link."""
        link = SimulatedLink(address, hello.target, peer)
        link.pipe = self.network.open(self, address, hello, patience_us)
        self._links[link.pipe] = link
        return link

    def send(self, link: Link, control: Control) -> None:
        """Send a message over a link."""
        assert isinstance(link, SimulatedLink), "all links are opened here"
        link.send(control)

    def set_timer(self, timer: Timer, delay_us: int) -> None:
        """Call the membership after a while."""
        token = object()
        self._timers[timer] = token
        self.clock.post(delay_us, lambda: self.handle(lambda: self._expire(timer, token)))

    def when_safe(self, timer: Timer) -> None:
        """Call the membership when what it has put on disk is there."""
        if self.facts.is_kept:
            self.facts.when_safe(lambda: self.handle(lambda: self.membership.expired(timer)))
        else:
            self.set_timer(timer, 0)

    def cancel_timer(self, timer: Timer) -> None:
        """Do not call it."""
        self._timers.pop(timer, None)

    def _expire(self, timer: Timer, token: object) -> None:
        if self._timers.get(timer) is token:
            del self._timers[timer]
            self.membership.expired(timer)

    # Connections.

    def accepted(self, pipe: Pipe) -> None:
        """Another node has connected."""
        self._connections[pipe] = SimulatedConnection(pipe)

    def opened(self, pipe: Pipe) -> None:
        """A link stands."""
        link = self._links[pipe]
        self.handle(lambda: None if link.is_closed else self.membership.link_opened(link))

    def lost(self, pipe: Pipe) -> None:
        """A link has ended."""
        self.handle(lambda: self._lose(pipe))

    def _lose(self, pipe: Pipe) -> None:
        link = self._links.pop(pipe)
        if not link.is_closed:
            link.is_closed = True
            self.membership.link_lost(link)

    def on_reply(self, pipe: Pipe, frame: object) -> None:
        """The other end of a link has said something."""
        self.handle(lambda: self._hear_answer(pipe, frame))

    def _hear_answer(self, pipe: Pipe, frame: object) -> None:
        link = self._links.get(pipe)
        if link is None or link.is_closed:
            return
        link.bytes_received += 1
        if isinstance(frame, (Refused, Expelled)):
            self.membership.link_refused(link, frame.reason, isinstance(frame, Expelled))

    def ended(self, pipe: Pipe) -> None:
        """A connection of another node has ended."""
        self.handle(lambda: self._end(pipe))

    def _end(self, pipe: Pipe) -> None:
        connection = self._connections.pop(pipe)
        connection.is_closed = True
        if connection.instance:
            self.membership.connection_ended(connection)

    def on_frame(self, pipe: Pipe, frame: object) -> None:
        """Something has come from another node."""
        self.handle(lambda: self._hear(pipe, frame))

    def _hear(self, pipe: Pipe, frame: object) -> None:
        connection = self._connections.get(pipe)
        if connection is None or connection.is_closed:
            return
        connection.bytes_received += 1
        try:
            self._take(connection, frame)
        except ProtocolError as error:
            self.refusals.append(str(error))
            pipe.answer(Refused(str(error)))
            connection.close()

    def _take(self, connection: SimulatedConnection, frame: object) -> None:
        if isinstance(frame, ProcessFrame):
            sender = connection.sender
            if sender is None:
                sender = connection.sender = self.membership.identifier_of(connection.instance)
            if sender is None or self.process is None:
                raise ProtocolError("somebody who is not in the cluster sent a message of its processes")
            self.judge.on_frame(self.number, sender, frame.life, frame.stamp)
            self.process.receive(sender, frame.message)
        elif isinstance(frame, Hello):
            if frame.target and frame.target != self.instance:
                raise ProtocolError(NOT_HERE)
            connection.instance, connection.address = frame.instance, frame.address
            self.membership.greeted(connection, frame)
        elif isinstance(frame, KeepAlive):
            connection.pipe.answer(KeepAlive())
        else:
            assert isinstance(frame, Control), "nodes send messages of hosts and of processes"
            self.membership.control_received(connection, frame)

    # Events of the membership.

    def placed(self, identifier: int, members: list[int]) -> None:
        """There is a process from now on."""
        if self.facts.has_journal and not self.membership.is_returning:
            self.facts.rewrite([])
        if self.environment is not None:
            self.environment.is_over = True
        self.environment = self.new_environment(identifier)
        self.judge.placed(self.number, identifier)
        self.process = new_process(self.settings, self.environment, members)
        self.process.start()

    def displaced(self) -> None:
        """The process has no place any more."""
        # The others lose it under the identifier that it had.
        self.judge.trouble(self.number)
        if self.environment is not None:
            self.environment.is_over = True

    def entered(self) -> None:
        """The node may be used."""
        self.has_entered = True
        assert self.process is not None, "a node that is in has a process"
        identifier = int(self.process.me)
        had = self.facts.entered_as if self.membership.is_returning else None
        self.judge.entered(self.number, identifier, self.membership.incarnation, had)
        self.facts.entered_as = identifier
        if self.is_scarce:
            address_book = self.membership.address_book
            address_book.take(PlaceResponse(identifier, 0, 0, address_book.appointments(), address_book.founding))
        self.begin_topic()

    def new_environment(self, identifier: int) -> LifeEnvironment:
        """The actions of the process on the world."""
        return LifeEnvironment(identifier, self)

    def begin_topic(self) -> None:
        """The node is in its cluster: use the topic."""
        assert self.process is not None, "a node that is in has a process"
        self.process.subscribe(TOPIC)

    def refused(self, reason: str) -> None:
        """The node cannot join: it ends, and is started again by others."""
        self.when_gone(self, reason)

    def past_is_void(self) -> None:
        """An earlier life was in another cluster."""
        self.facts.past.clear()

    def peer_lost(self, identifier: int) -> None:
        """Another node cannot be reached any more."""
        self.judge.parted(self.number, identifier)

    def peer_found(self, identifier: int) -> None:
        """Another node can be reached."""
        self.judge.met(self.number, identifier)

    def link_lost(self, identifier: int) -> None:
        """A peer that the process watches is lost."""
        assert self.process is not None, "only a process watches"
        self.judge.lost(self.number, identifier)
        self.process.peer_lost(identifier)

    def link_found(self, identifier: int) -> None:
        """A peer that the process watches is back."""
        assert self.process is not None, "only a process watches"
        self.judge.found(self.number, identifier)
        self.process.peer_found(identifier)

    def peers_changed(self) -> None:
        """Nobody is told."""

    def news(self) -> list[Control]:
        """Nothing."""
        return []

    def fail(self, error: BaseException) -> None:
        """The node stops."""
        self.judge.violation(ERROR, f"{self.instance} at {self.place}: {type(error).__name__}: {error}")
        self.when_gone(self, "failed")

    # Actions of the application.

    def publish(self, payload: bytes) -> bool:
        """Publish on the topic, if the node is a member and has room."""
        process = self.process
        if not self.is_up or self.is_paused or self.is_leaving or not self.is_subscribed or process is None:
            return False
        if process.room(TOPIC) < 1:
            return False
        self.handle(lambda: self._publish(payload))
        return True

    def _publish(self, payload: bytes) -> None:
        assert self.process is not None, "it was looked at"
        self.process.publish(payload, TOPIC)

    def transmit(self, destination: int, message: ProtocolMessage) -> None:
        """Send a message of the process."""
        link = self.membership.link_for(destination, message)
        if isinstance(link, SimulatedLink):
            link.send(ProcessFrame(message, self.number, self.judge.sent(self.number, destination)))


class LifeEnvironment(Environment):
    """The environment of the process of one life."""

    def __init__(self, identifier: int, life: NodeLife) -> None:
        super().__init__(identifier)
        self._life = life
        self.is_over = False
        self._timers: set[int] = set()
        self._last_timer = 0

    def now(self) -> int:
        return self._life.clock.now_us

    def send(self, destination: int, message: ProtocolMessage) -> None:
        if not self.is_over:
            self._life.transmit(int(destination), message)

    def deliver(self, publication: Publication) -> None:
        life = self._life
        assert life.process is not None, "only a process delivers"
        life.facts.delivered(life.process, publication)
        life.judge.delivered(life.number, publication.payload)

    def log_reader(self, topic: int) -> LogReader | None:
        return self._life.facts.log_reader(int(topic))

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        return self._life.facts.was_logged(int(topic), int(source), int(sequence))

    def restored_frontier(self, topic: int) -> list[int] | None:
        return self._life.facts.past.pop(int(topic), None)

    def journal(self) -> list[ProtocolMessage] | None:
        facts = self._life.facts
        if not facts.has_journal:
            return None
        return list(facts.journal_records()) if self._life.membership.is_returning else []

    def write(self, record: ProtocolMessage) -> None:
        self._life.facts.write(record)

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        self._life.facts.rewrite(records)

    def sync(self) -> bool:
        if not self._life.facts.has_journal:
            return True
        self._life.facts.when_safe(lambda: self._life.handle(self._synced))
        return False

    def _synced(self) -> None:
        process = self._life.process
        if process is not None and not self.is_over:
            process.synced()

    def subscribed(self, topic: int) -> None:
        if topic == TOPIC:
            self._life.is_subscribed = True
            if not FABRICS[self._life.settings.fabric].keeps_checkpoints:
                self._life.facts.begin_topic(TOPIC)
        else:
            self._life.membership.membership_began(int(topic))

    def unsubscribed(self, topic: int) -> None:
        self._life.is_subscribed = False

    def watch(self, peer: int) -> None:
        self._life.membership.watch(int(peer))
        self._life.judge.watched(self._life.number, int(peer))

    def silence_ticks(self, peer: int) -> int:
        return self._life.membership.silence_us(int(peer))

    def unwatch(self, peer: int) -> None:
        self._life.membership.unwatch(int(peer))
        self._life.judge.unwatched(self._life.number, int(peer))

    def set_timer(self, delay: int, name: int) -> int:
        self._last_timer += 1
        handle = self._last_timer
        self._timers.add(handle)
        self._life.clock.post(int(delay), lambda: self._life.handle(lambda: self._expire(handle, int(name))))
        return handle

    def cancel_timer(self, handle: int) -> None:
        self._timers.discard(int(handle))

    def random(self) -> RandomStream:
        return self._life.random

    def _expire(self, handle: int, name: int) -> None:
        if handle in self._timers and not self.is_over:
            self._timers.discard(handle)
            assert self._life.process is not None, "only a process sets timers"
            self._life.process.expire(name)
