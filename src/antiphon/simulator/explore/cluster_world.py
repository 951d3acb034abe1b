"""A cluster of whole nodes with one client, driven by choices: who hears what next, and when a node crashes.

The nodes have found each other before the exploration begins, but for those that join during it. Then the client
connects to its first node, subscribes and publishes, and one node crashes at some step, perhaps to come back as a new
node. At each step the choices are: the first frame of any channel arrives, a requested connection is answered, the
client does the next thing of its script, the next node joins, the node crashes or comes back. Where a node crashes with
frames in transit, each of its channels may lose them. Signs of life arrive at once. Time passes when nothing is in
transit; as often as ``early`` allows, a timer expires before.

The exploration of a schedule ends when nothing is in transit and the client has all that it waits for, or has waited
for ``EXPLORED_US``. The cluster then runs on in the plain order of events, the client publishes its last words, and
both judges look at all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from antiphon.audit.clients import ClientJudge
from antiphon.audit.membership import LAST_WORDS, MembershipJudge, MembershipRules
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.clients.client import SimulatedClient
from antiphon.simulator.clients.machine import Machine
from antiphon.simulator.clients.serving_node import ServingLife
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.simulator.cluster.fabrics import NodeSettings
from antiphon.simulator.explore.channels import SIGNS_OF_LIFE, ExploredAgenda, ExploredNetwork, ExploredPipe, PlaceClock

NODES: Final = 3
FORMED_US: Final = 2 * SECOND_US
"""When the nodes have found each other."""

EXPLORED_US: Final = SECOND_US
"""For how long everything that happens is explored; a client that waits for longer waits in the plain order of events.
"""

PATIENCE_US: Final = 75 * SECOND_US
"""How long the cluster has to come to rest: longer than a node waits for what a client has seen elsewhere."""

LAST_WORDS_US: Final = 45 * SECOND_US
"""How long the last words of the client may take: a node waits 30 s for what the client has seen elsewhere."""

MEMBERS_US: Final = 3 * SECOND_US
"""How long nodes have to notice what has happened to others, at least."""

STEPS_AT_MOST: Final = 20_000
"""A schedule with more steps never ends."""

ARRIVE, CONNECT, SCRIPT, CRASH, RETURN, TIME, JOIN = range(7)
Choice = tuple[int, ...]
"""One of these, and what it is about: an arrival names its connection and its direction, a crash the lost channels."""

NODE_STREAM: Final = 54
CLIENT_STREAM: Final = 55


@dataclass(frozen=True)
class ClusterSystem:
    """A small cluster to explore. ``crashing`` is the node that crashes.

    ``script`` is what the client does: it connects, and publishes messages of these orders. If it does not begin with a
    connection, the client is connected before the exploration begins.
    """

    fabric: str
    script: tuple[str, ...] = ("connect", "causal")
    crashing: int | None = 0
    returns: bool = False
    home: int = 0
    members: tuple[int, ...] = (0, 1, 2)
    """The nodes that are members of the topic from the beginning."""
    joining: tuple[int, ...] = ()
    """The nodes that join during the exploration, one after the other, each at any step. The others found the cluster,
    so one of these has to stay."""


class StepJudge(ClientJudge):
    """Judges by the order of steps instead of the time: many steps happen at one time."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def _step(self) -> int:
        self._steps += 1
        return self._steps

    def asked(self, client: int, name: str, order: str, at_us: int) -> None:
        super().asked(client, name, order, self._step())

    def ready(self, client: int, at_us: int) -> None:
        super().ready(client, self._step())

    def missed(self, client: int, at_us: int) -> None:
        super().missed(client, self._step())


class ExploredCluster:
    """One run, driven by choices."""

    def __init__(self, system: ClusterSystem) -> None:
        self.system = system
        self.agenda = ExploredAgenda()
        self.judge = StepJudge()
        policy = FABRICS[system.fabric].membership
        self._has_founders = policy.has_founders
        self._has_journal = policy.is_full
        self._members = MembershipJudge(MembershipRules(policy.keeps_identity, policy.begins_apart, policy.is_full))
        self._places = [f"machine{number}:7400" for number in range(NODES)]
        self._client_place = "client0"
        places = [*self._places, self._client_place]
        self.network = ExploredNetwork(self.agenda, places)
        self._clocks = {place: PlaceClock(place, self.agenda) for place in places}
        self.agenda.histories = dict.fromkeys(places, 0)
        self.nodes: list[ServingLife | None] = [None] * NODES
        self._client: SimulatedClient | None = None
        self._lives = 0
        self._done = 0
        self._joined = 0
        self._has_crashed = False
        self._has_returned = False
        self._lost_lanes: tuple[int, ...] = ()
        self.waited_us = 0
        self._form()

    # Before and after the exploration.

    def _form(self) -> None:
        for number in self._founders():
            self._start(number)
            self.agenda.settle()
            self._run(self.agenda.now_us + SECOND_US // 10)
        if self.system.script[:1] != ("connect",):
            self._connect()
            self.agenda.settle()
        self._run(FORMED_US)
        for place in self.agenda.histories:
            self.agenda.histories[place] = hash((FORMED_US, self._number_of(place)))

    def _founders(self) -> list[int]:
        return [number for number in range(NODES) if number not in self.system.joining]

    def _number_of(self, place: str) -> int:
        return self._places.index(place) if place in self._places else NODES

    def _run(self, until_us: int) -> None:
        """Let everything happen in the order in which it was posted, up to some time."""
        steps = 0
        while True:
            choices = self._arrivals()
            if choices:
                self._do(choices[0])
            elif self.agenda.next_timer()[0] <= until_us:
                self.agenda.expire()
            else:
                return
            steps += 1
            if steps > STEPS_AT_MOST:
                self.judge.violation("stuck", "nodes and clients send each other messages without end")
                return

    def finish(self) -> list[str]:
        """Let the cluster run on, and judge it: the broken promises."""
        begun_us = self.agenda.now_us
        self._run_until_settled(begun_us + PATIENCE_US)
        client = self._client
        assert client is not None, "the script is done"
        client.publish("causal")
        self._run(max(self.agenda.now_us, begun_us + MEMBERS_US))
        self._run_until_settled(self.agenda.now_us + LAST_WORDS_US)
        self._run(self.agenda.now_us + SECOND_US)
        self.judge.judge([0] if client.is_up and client.is_ready else [])
        up = {node.number: node for node in self.nodes if node is not None and node.is_up}
        self._members.knows({number: node.membership.identifiers() for number, node in up.items()})
        return self.violations()

    def _run_until_settled(self, until_us: int) -> None:
        begun_us = self.agenda.now_us
        while not self.is_settled() and self.agenda.now_us < until_us:
            self._run(self.agenda.now_us + SECOND_US // 4)
        self.waited_us = max(self.waited_us, self.agenda.now_us - begun_us)

    def violations(self) -> list[str]:
        """The broken promises so far; a process may deliver twice what a client hands in again."""
        members = (f"{kind}: {about}" for kind, about in self._members.violations if kind != LAST_WORDS)
        return [*self.judge.examples, *members]

    def is_settled(self) -> bool:
        """Whether the client has all that it waits for, and all nodes have their place."""
        client = self._client
        is_served = client is not None and client.is_ready and not self.judge.unanswered()
        return is_served and all(node is None or not node.is_up or node.has_entered for node in self.nodes)

    def is_idle(self) -> bool:
        """Whether the script is done, nothing is in transit, and the client waits for nothing, or has waited long."""
        is_done = not self._planned() and not self._arrivals()
        return is_done and (self.is_settled() or self._is_late())

    # Choices.

    def choices(self, may_be_early: bool) -> list[Choice]:
        """All possible next steps, the plain one first; none if the exploration of this schedule is over."""
        arrivals = self._arrivals()
        if arrivals and self._is_sign_of_life(arrivals[0]):
            return arrivals[:1]
        script = self._planned()
        own = [] if may_be_early else self._only_the_clients(arrivals)
        if own:
            return [*own, *script]
        found = [*arrivals, *script]
        if self._is_late():
            return found
        if may_be_early if found else not self.is_settled():
            found.append((TIME,))
        return [*found, *self._failures(arrivals)]

    def _planned(self) -> list[Choice]:
        """The next thing of the client's script, and the next node that joins."""
        script: list[Choice] = [(SCRIPT,)] if self._done < len(self.system.script) else []
        return [*script, (JOIN,)] if self._joined < len(self.system.joining) else script

    def _is_late(self) -> bool:
        """Whether so much time has passed that no timer is followed any more."""
        return self.agenda.now_us >= FORMED_US + EXPLORED_US

    def _only_the_clients(self, arrivals: list[Choice]) -> list[Choice]:
        """The arrivals at the client, if no event elsewhere makes a difference to it meanwhile.

        That is so when no node crashes any more and the client has one connection: whatever else comes to it comes
        behind that. Steps elsewhere do not depend on the client's step, so they can wait.
        """
        system = self.system
        if system.crashing is not None and not self._has_crashed:
            return []
        if self.network.opened_by(self._client_place) != 1:
            return []
        own = [choice for choice in arrivals if self.machine(choice) == self._client_place]
        may_return = system.returns and not self._has_returned
        return [] if may_return and own and own[0][0] == CONNECT else own

    def machine(self, choice: Choice) -> str:
        """The machine at which something arrives, or hears whether it is connected."""
        pipe = self._pipe(choice)
        return pipe.opener.place if choice[0] == CONNECT else pipe.receiver(bool(choice[2]))

    def _failures(self, arrivals: list[Choice]) -> list[Choice]:
        crashing = self.system.crashing
        if crashing is None or self._client is None:
            return []
        if self._has_crashed:
            return [(RETURN,)] if self.system.returns and not self._has_returned else []
        if crashing in self.system.joining[self._joined :]:
            return []
        place = self._places[crashing]
        channels = [each for each in arrivals if each[0] == ARRIVE and self._sender(each) == place]
        lost: list[Choice] = [()]
        for _, pipe, is_forth in channels:
            lost += [(*some, pipe, is_forth) for some in lost]
        return [(CRASH, *some) for some in lost]

    def _arrivals(self) -> list[Choice]:
        """All frames that can arrive, in the order in which they were sent; signs of life first."""
        found: list[tuple[bool, int, Choice]] = []
        for pipe, is_forth, head in self.network.channels():
            is_sign = isinstance(head.frame, SIGNS_OF_LIFE)
            found.append((not is_sign, head.posted, (ARRIVE, pipe.number, is_forth)))
        for pipe in self.network.requests():
            assert pipe.request is not None, "it was looked at"
            found.append((True, pipe.request.posted, (CONNECT, pipe.number)))
        return [choice for _, _, choice in sorted(found)]

    def _is_sign_of_life(self, choice: Choice) -> bool:
        return choice[0] == ARRIVE and isinstance(self._head(choice), SIGNS_OF_LIFE)

    def _head(self, choice: Choice) -> object:
        head = self._pipe(choice).head(bool(choice[2]))
        return None if head is None else head.frame

    def _pipe(self, choice: Choice) -> ExploredPipe:
        return self.network.everything[choice[1]]

    def _sender(self, choice: Choice) -> str:
        return self._pipe(choice).receiver(not choice[2])

    # Steps.

    def take(self, choice: Choice) -> None:
        """Carry out a choice."""
        place, history = self.event(choice)
        self.agenda.histories[place] = history
        if choice[0] == CRASH:
            self._lost_lanes = choice[1:]
        self._do(choice)

    def _do(self, choice: Choice) -> None:
        kind = choice[0]
        if kind == ARRIVE:
            self._pipe(choice).arrive(bool(choice[2]))
        elif kind == CONNECT:
            self.network.connect(self._pipe(choice))
        elif kind == TIME:
            self.agenda.expire()
        elif kind == SCRIPT:
            self._continue_script()
        elif kind == CRASH:
            self._crash(choice[1:])
        elif kind == JOIN:
            self._joined += 1
            self._start(self.system.joining[self._joined - 1])
        else:
            self._has_returned = True
            assert self.system.crashing is not None, "only a node that has crashed returns"
            self._start(self.system.crashing)
        self.agenda.settle()

    def event(self, choice: Choice) -> tuple[str, int]:
        """The machine at which a choice happens, and its history afterwards."""
        kind = choice[0]
        now_us = self.agenda.now_us
        about: tuple[int, ...] = ()
        if kind in (ARRIVE, CONNECT):
            pipe = self._pipe(choice)
            head = pipe.request if kind == CONNECT else pipe.head(bool(choice[2]))
            assert head is not None, "there was something to choose"
            place = self.machine(choice)
            listener = self.network.listeners.get(pipe.address)
            about = (head.cause, listener.number if kind == CONNECT and isinstance(listener, ServingLife) else 0)
        elif kind == TIME:
            now_us, place, number = self.agenda.next_timer()
            about = (number,)
        elif kind == SCRIPT:
            place = self._client_place
        elif kind == JOIN:
            place = self._places[self.system.joining[self._joined]]
            about = tuple(number for number in range(NODES) if self._has_entered(number))
        else:
            assert self.system.crashing is not None, "only where a node crashes"
            place = self._places[self.system.crashing]
        return place, hash((self.agenda.histories[place], choice, now_us, about))

    def fingerprint(self, choice: Choice | None = None) -> int:
        """The state as a number: all histories and the time, now or after a choice."""
        histories, now_us, lost = self.agenda.histories, self.agenda.now_us, self._lost_lanes
        if choice is not None:
            place, history = self.event(choice)
            histories = {**histories, place: history}
            lost = choice[1:] if choice[0] == CRASH else lost
            now_us = max(now_us, self.agenda.next_timer()[0]) if choice[0] == TIME else now_us
        return hash((tuple(histories.values()), now_us, lost))

    def _continue_script(self) -> None:
        action = self.system.script[self._done]
        self._done += 1
        if action == "connect":
            self._connect()
        else:
            assert self._client is not None, "the client is connected before it publishes"
            self._client.publish(action)

    def _connect(self) -> None:
        # A client that looks for its first node tries the first of its addresses last.
        addresses = [self._places[(self.system.home - 1 + number) % NODES] for number in range(NODES)]
        clock, random = self._clocks[self._client_place], RandomStream(0, CLIENT_STREAM)
        self._client = SimulatedClient(0, addresses, clock, self.network, self.judge, random)
        self._client.begin()

    def _crash(self, lost: tuple[int, ...]) -> None:
        assert self.system.crashing is not None, "only where a node crashes"
        node = self.nodes[self.system.crashing]
        assert node is not None, "the cluster has formed"
        self._has_crashed = True
        node.when_gone = lambda *_: None
        self._members.trouble(node.number)
        node.crash(True)
        for pipe, is_forth in zip(lost[::2], lost[1::2], strict=True):
            self.network.everything[pipe].cut(bool(is_forth))

    def _start(self, number: int) -> None:
        self._lives += 1
        place = self._places[number]
        founders = [self._places[founder] for founder in self._founders()] if self._has_founders else []
        # The latest first: it may crash while it gives this node a place.
        there = [self._places[other] for other in reversed(range(NODES)) if self._has_entered(other)]
        settings = NodeSettings(self.system.fabric, [] if place in founders else there, founders, lost_seconds=1.0)
        clock, random = self._clocks[place], RandomStream(0, NODE_STREAM, self._lives)
        disk = SimulatedDisk(clock, False, self._has_journal, 0)
        life = ServingLife(place, self._lives, settings, clock, self.network, disk, self._members, random)
        life.prepare(Machine(disk))
        life.keeps_topic = number in self.system.members
        self.nodes[number] = life
        self._members.began(life.number, life.number)
        life.begin()

    def _has_entered(self, number: int) -> bool:
        node = self.nodes[number]
        return node is not None and node.has_entered and node.is_up

    def describe(self, choice: Choice) -> str:
        """A choice as text."""
        kind = choice[0]
        if kind == ARRIVE:
            pipe, frame = self._pipe(choice), self._head(choice)
            said = getattr(frame, "message", frame)
            what = "the end of the connection" if type(said) is object else type(said).__name__
            return f"{pipe.receiver(bool(choice[2]))} hears {what} from {self._sender(choice)}"
        if kind == CONNECT:
            pipe = self._pipe(choice)
            return f"{pipe.opener.place} hears whether it is connected to {pipe.address}"
        if kind == TIME:
            time_us, place, _ = self.agenda.next_timer()
            return f"a timer of {place} expires at {time_us / SECOND_US:g} s"
        if kind == SCRIPT:
            return f"the client begins: {self.system.script[self._done]}"
        if kind in (JOIN, RETURN):
            begins = self.system.crashing if kind == RETURN else self.system.joining[self._joined]
            return f"machine{begins} {'comes back' if kind == RETURN else 'begins to join'}"
        lost = f" with what it has sent on {len(choice) // 2} connections" if len(choice) > 1 else ""
        return f"machine{self.system.crashing} crashes{lost}"
