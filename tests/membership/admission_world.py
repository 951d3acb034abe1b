"""A world of nodes that join, leave and die: links keep their order, everything else happens in any order.

A step is a choice: a message arrives on a link, somebody starts, leaves, dies or closes its links, or a timer runs out.
After every step the world checks what must always hold, at the end what must hold when all is quiet.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from random import Random

from antiphon.kernel import Message
from antiphon.membership.admission import PLACED, Admission, AdmissionOptions, Peer, Phase
from antiphon.transport.admission_messages import AdmissionMessage

Step = tuple[str, str, str]
"""What happens, at which node, and for a message from whom."""

OPTIONS = AdmissionOptions(maximum_nodes=16, retry_ticks=10, attempts=6)


class Node:
    """One life of a node: its admission, and what its host was told."""

    def __init__(
        self, world: World, name: str, address: str, options: AdmissionOptions, wanted: int | None, former: str
    ):
        self.world = world
        self.name = name
        self.contacts: list[str] = []
        self.fabric: set[str] = set()
        self.is_alive = True
        self.is_in = False
        self.refusal: str | None = None
        self.crashes: list[str] = []
        self.farewells: list[str] = []
        self.admission = Admission(self, Peer(name, address), options, wanted=wanted, former=former)
        self.former = former

    @property
    def phase(self) -> Phase:
        return self.admission.phase

    @property
    def is_placed(self) -> bool:
        return self.is_alive and self.phase in PLACED

    @property
    def waits_for_its_timer(self) -> bool:
        return self.is_alive and self.phase is Phase.ASKING and self.admission.is_waiting()

    def send(self, target: Peer, message: AdmissionMessage) -> None:
        self.world.transmit(self, target, message)

    def placed(self, me: Peer, members: Sequence[Peer]) -> None:
        assert me.identifier is not None
        self.fabric = {peer.instance for peer in members}
        owner = self.world.owners.setdefault(me.identifier, self.name)
        assert owner in (self.name, self.former), f"identifier {me.identifier} of {owner} was given to {self.name}"
        self.world.owners[me.identifier] = self.name

    def entered(self) -> None:
        self.is_in = True

    def joined(self, peer: Peer) -> None:
        assert peer.instance not in self.fabric, f"{peer} joined {self.name} twice"
        self.fabric.add(peer.instance)

    def left(self, peer: Peer) -> None:
        self.fabric.remove(peer.instance)
        self.farewells.append(peer.instance)

    def crashed(self, peer: Peer) -> None:
        self.fabric.remove(peer.instance)
        self.crashes.append(peer.instance)

    def departed(self) -> None:
        pass

    def refused(self, reason: str) -> None:
        self.refusal = reason


class World:
    """All nodes, and what is on its way between them."""

    node_class: type[Node] = Node

    def __init__(self, options: AdmissionOptions = OPTIONS) -> None:
        self.options = options
        self.nodes: dict[str, Node] = {}
        self.owners: dict[int, str] = {}
        self.time = 0
        self.lively_timers = False
        """Whether timers may run out while messages are on their way."""
        # In order per pair of sender and receiver; a peer is the news that it is gone.
        self.links: dict[tuple[str, str], list[AdmissionMessage | Message | Peer]] = {}
        self.to_start: list[str] = []
        self.to_leave: list[str] = []
        self.to_crash: list[str] = []
        self.log: list[str] = []

    # Setting the scene.

    def add(
        self, name: str, contacts: Iterable[str] = (), address: str = "", wanted: int | None = None, former: str = ""
    ) -> Node:
        """A node that will start; contacts are names of addresses, which are those of nodes unless said otherwise."""
        node = self.node_class(self, name, f"@{address or name}", self.options, wanted, former)
        node.contacts = [f"@{contact}" for contact in contacts]
        self.nodes[name] = node
        self.to_start.append(name)
        return node

    def establish(self, *names: str) -> None:
        """Nodes that are in before anything else happens, under the identifiers 0, 1, 2, ..."""
        for position, name in enumerate(names):
            self.add(name, [names[0]] if position else [])
            self.run_until_quiet()
            assert self.nodes[name].phase is Phase.IN

    # Links.

    def transmit(self, sender: Node, target: Peer, message: AdmissionMessage) -> None:
        found = self.living_at(target.address)
        if found is None or (target.instance and found.name != target.instance):
            self.links.setdefault((target.instance or target.address, sender.name), []).append(target)
        else:
            self.links.setdefault((sender.name, found.name), []).append(message)

    def living_at(self, address: str) -> Node | None:
        for node in self.nodes.values():
            if node.is_alive and node.admission.me.address == address and node.name not in self.to_start:
                return node
        return None

    def end(self, node: Node, kept: int | None) -> None:
        """The links of a node break. Of what it sent last on each, only ``kept`` messages arrive, or all."""
        node.is_alive = False
        touched = {pair[1 - pair.index(node.name)] for pair in self.links if node.name in pair}
        for other in touched:
            self.links.pop((other, node.name), None)
            if self.nodes.get(other) is not None and self.nodes[other].is_alive:
                link = self.links.setdefault((node.name, other), [])
                if kept is not None:
                    del link[kept:]
                link.append(node.admission.me)

    # Steps.

    def steps(self) -> list[Step]:
        """Everything that may happen next, in an order that does not depend on anything but the state."""
        found: list[Step] = [("arrive", pair[1], pair[0]) for pair, queue in sorted(self.links.items()) if queue]
        found += [("close", n.name, "") for n in self.nodes.values() if n.is_alive and n.phase is Phase.GONE]
        found += [("start", name, "") for name in self.to_start]
        found += [("leave", name, "") for name in self.to_leave if self.nodes[name].is_in]
        found += [("crash", name, how) for name in self.to_crash for how in ("sent", "unsent")]
        if (self.lively_timers or not found) and any(node.waits_for_its_timer for node in self.nodes.values()):
            found.append(("tick", "", ""))
        return found

    def take(self, step: Step) -> None:
        what, name, other = step
        if what == "tick":
            self._tick()
        elif what == "arrive":
            node = self.nodes[name]
            item = self.links[other, name].pop(0)
            self.log.append(f"{other} -> {name}: {item if not isinstance(item, Peer) else 'lost'}")
            if isinstance(item, Peer):
                node.admission.lost(item)
            elif not isinstance(item, Message):
                node.admission.receive(item)
        else:
            self.log.append(f"{what} {name} {other}")
            self._act(what, self.nodes[name], other)
        self.check_always()

    def _act(self, what: str, node: Node, how: str) -> None:
        if what == "start":
            self.to_start.remove(node.name)
            node.admission.start(node.contacts, self.time)
        elif what == "leave":
            self.to_leave.remove(node.name)
            node.admission.leave()
        elif what == "crash":
            self.to_crash.remove(node.name)
            self.to_leave = [name for name in self.to_leave if name != node.name]
            if node.name in self.to_start:
                self.to_start.remove(node.name)
            self.end(node, None if how == "sent" else 0)
        else:
            self.end(node, None)

    def _tick(self) -> None:
        """The time that a newcomer waits passes, everywhere."""
        self.time += self.options.retry_ticks
        self.log.append(f"time {self.time}")
        for node in self.nodes.values():
            if node.is_alive:
                node.admission.tick(self.time)

    def run_until_quiet(self, random: Random | None = None) -> None:
        """Take steps until there is none, at random or always the first; judge the end."""
        steps = self.steps()
        while steps:
            self.take(steps[0] if random is None else random.choice(steps))
            steps = self.steps()
        self.check_at_the_end()

    # What must hold.

    def check_always(self) -> None:
        """No identifier twice; whoever is in is known to all who are placed; whoever has departed to nobody.

        A leaver need not know a newcomer that has only spoken to those who have parted from the leaver.
        """
        placed = [node for node in self.nodes.values() if node.is_placed]
        identifiers = [node.admission.me.identifier for node in placed]
        assert len(set(identifiers)) == len(identifiers), f"an identifier is held twice: {identifiers}\n{self.story()}"
        for one in placed:
            for other in self.nodes.values():
                if other is one or not other.is_alive:
                    continue
                knows = other.name in one.fabric
                if other.phase is Phase.IN and one.phase is not Phase.LEAVING:
                    assert knows, f"{other.name} is in, and {one.name} does not know it\n{self.story()}"
                elif other.phase not in PLACED:
                    assert not knows, f"{one.name} keeps {other.name}\n{self.story()}"

    def check_at_the_end(self) -> None:
        """Nobody hangs, and all who are in agree on who is in."""
        alive = [node for node in self.nodes.values() if node.is_alive]
        hanging = [node.name for node in alive if node.phase not in (Phase.IN, Phase.OUTSIDE)]
        assert not hanging, f"{hanging} hang\n{self.story()}"
        inside = {node.name for node in alive if node.phase is Phase.IN}
        for node in alive:
            if node.phase is Phase.IN:
                assert node.is_in
                assert node.fabric | {node.name} == inside, f"{node.name} knows {node.fabric}\n{self.story()}"
            else:
                assert node.refusal is not None, f"{node.name} is outside without a reason\n{self.story()}"

    def state(self) -> str:
        """All that decides the future, as text."""
        flying = [(pair, [str(item) for item in queue]) for pair, queue in sorted(self.links.items())]
        nodes = [
            f"{n.name} {n.is_alive} {n.is_in} {n.refusal is None} {sorted(n.fabric)} {n.farewells} "
            + (n.admission.state() if n.is_alive else "")
            for n in self.nodes.values()
        ]
        todo = f"{self.to_start} {self.to_leave} {self.to_crash} {sorted(self.owners.items())}"
        return "\n".join([*nodes, str(flying), todo])

    def keep(self) -> bytes | None:
        """The world for later, if it can be kept; otherwise its steps must be taken again."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    def story(self) -> str:
        """What happened, for a failing test."""
        return "\n".join(self.log)


def explore(build: Callable[[], World], state_limit: int = 1_000_000) -> tuple[int, int]:
    """Follow all schedules of a world, depth first; the answer is the number of states and of ends."""
    world: World | None = build()
    assert world is not None
    seen = {hash(world.state())}
    path: list[Step] = []
    stack = [(world.keep(), world.steps())]
    ends = 0
    while stack:
        kept, choices = stack[-1]
        if not choices:
            stack.pop()
            del path[-1:]
            world = None
            continue
        assert len(seen) < state_limit, "more states than allowed"
        step = choices.pop()
        if world is None:
            world = replay(build, path) if kept is None else pickle.loads(kept)
            assert world is not None
        world.take(step)
        fingerprint = hash(world.state())
        if fingerprint in seen:
            world = None
            continue
        seen.add(fingerprint)
        following = world.steps()
        if not following:
            world.check_at_the_end()
            ends += 1
        path.append(step)
        # Where there is only one way to go on, nobody comes back.
        stack.append((world.keep() if len(following) > 1 else None, following))
    return len(seen), ends


def replay(build: Callable[[], World], path: Sequence[Step]) -> World:
    """A world that has gone through a schedule."""
    world = build()
    for step in path:
        world.take(step)
    return world
