"""A world whose nodes run VCube-PS while others join and leave, judged by the oracle.

Messages of processes overtake each other on a link, but not messages of admission, nor these them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from antiphon.audit.oracle import Oracle
from antiphon.audit.total_order import Name, circle_in, circle_text
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel import Environment, Message, Publication, RandomStream
from antiphon.kernel.message import TOTAL
from antiphon.membership.admission import Peer, Phase
from tests.membership.admission_world import Node, Step, World

Operation = tuple[str, int]
"""What the application of a node does: ``subscribe``, ``publish`` or ``unsubscribe``, and the topic."""

NOT_PROMISED: dict[str, set[str]] = {"total": set(), "causal": set(), "fifo": {"causal"}, "none": {"causal", "fifo"}}
"""What the oracle finds and an order does not promise."""


class Surroundings(Environment):
    """The environment of one process in a changing world."""

    def __init__(self, identifier: int, node: ChangingNode) -> None:
        super().__init__(identifier)
        self._node = node
        self._oracle = node.changing.oracle

    def now(self) -> int:
        return 0

    def send(self, destination: int, message: Message) -> None:
        self._node.changing.carry(self._node, destination, message)

    def deliver(self, publication: Publication) -> None:
        judge = self._oracle.topic(publication.topic)
        judge.delivered(self.identifier, publication.source, publication.sequence)
        name = (publication.source, publication.sequence)
        self._node.changing.lanes.setdefault(publication.topic, {}).setdefault(self.identifier, []).append(name)

    def subscribed(self, topic: int) -> None:
        self._oracle.topic(topic).subscribed(self.identifier)

    def unsubscribed(self, topic: int) -> None:
        self._oracle.topic(topic).unsubscribed(self.identifier)

    def random(self) -> RandomStream:
        return RandomStream(1, self.identifier)


class ChangingNode(Node):
    """A node with a process. Its script is done when it is in."""

    process: VCubePs | None = None
    is_going: bool = False
    has_said_so: bool = False

    @property
    def changing(self) -> ChangingWorld:
        """The world, which is one of these."""
        assert isinstance(self.world, ChangingWorld)
        return self.world

    def placed(self, me: Peer, members: Sequence[Peer]) -> None:
        super().placed(me, members)
        assert me.identifier is not None
        present = [me.identifier, *(peer.identifier for peer in members if peer.identifier is not None)]
        cube = PartialCube(dimension_for(max(present) + 1), present)
        self.process = VCubePs(Surroundings(me.identifier, self), cube, self.changing.protocol_options)
        if members:
            self.process.begin_as_newcomer()

    def joined(self, peer: Peer) -> None:
        super().joined(peer)
        assert self.process is not None and peer.identifier is not None
        self.process.joined(peer.identifier)

    def left(self, peer: Peer) -> None:
        super().left(peer)
        assert self.process is not None and peer.identifier is not None
        self.process.left(peer.identifier)

    def go(self) -> None:
        """Begin to leave: unsubscribe from everything; the rest follows when nothing is unfinished."""
        assert self.process is not None
        self.is_going = True
        for topic in self.changing.topics:
            if self.process.is_subscribed(topic):
                self.process.unsubscribe(topic)
        self.go_on()

    def go_on(self) -> None:
        """Say goodbye when nothing is unfinished any more."""
        if self.is_going and not self.has_said_so and self.process is not None and self.process.unfinished() == 0:
            self.has_said_so = True
            self.process.leave()
            self.admission.leave()


class ChangingWorld(World):
    """Nodes that come, go and use topics. ``without`` names a class of messages that is dropped, to see it missed."""

    node_class = ChangingNode

    def __init__(
        self, topics: Sequence[int] = (0,), order: str = "causal", without: type[Message] | None = None
    ) -> None:
        super().__init__()
        self.topics = topics
        self.protocol_options = Options(order, window=2, bundle=2)
        self.oracle = Oracle(32)
        # By topic what each node delivered.
        self.lanes: dict[int, dict[int, list[Name]]] = {}
        self.scripts: dict[str, list[Operation]] = {}
        self._published: dict[tuple[int, int], int] = {}
        self._without = without

    def inside(self, name: str) -> ChangingNode:
        """A node by its name."""
        node = self.nodes[name]
        assert isinstance(node, ChangingNode)
        return node

    def process_of(self, name: str) -> VCubePs:
        """The process of a node that has a place."""
        process = self.inside(name).process
        assert process is not None
        return process

    def carry(self, sender: ChangingNode, destination: int, message: Message) -> None:
        target = self.nodes[self.owners[destination]]
        assert target.is_alive, f"{sender.name} sent a {message} to {target.name}, which has gone\n{self.story()}"
        if self._without is None or not isinstance(message, self._without):
            self.links.setdefault((sender.name, target.name), []).append(message)

    def steps(self) -> list[Step]:
        """What may happen; each message of a process may overtake those before it, up to one of admission."""
        found: list[Step] = []
        for what, name, other in super().steps():
            if what == "arrive":
                queue = self.links[other, name]
                run = next((i for i, item in enumerate(queue) if not isinstance(item, Message)), len(queue))
                found += [(f"arrive {position}", name, other) for position in range(max(run, 1))]
            elif what != "close" or self.process_of(name).unfinished() == 0:
                found.append((what, name, other))
        ready = [name for name in self.scripts if self.nodes[name].is_in and not self.inside(name).is_going]
        found += [("operate", name, "") for name in ready if self.scripts[name]]
        return found

    def take(self, step: Step) -> None:
        what, name, other = step
        if what.startswith("arrive"):
            queue = self.links[other, name]
            position = int(what.split()[1])
            queue.insert(0, queue.pop(position))
            message = queue[0]
            if isinstance(message, Message):
                queue.pop(0)
                self.log.append(f"{other} -> {name}: {message}")
                sender = self.nodes[other].admission.me.identifier
                assert sender is not None
                self.process_of(name).receive(sender, message)
            else:
                super().take(("arrive", name, other))
        elif what == "operate":
            self._operate(name, *self.scripts[name].pop(0))
        elif what == "leave":
            self.log.append(f"leave {name}")
            self.to_leave.remove(name)
            self.inside(name).go()
        else:
            super().take(step)
        for node in self.nodes.values():
            assert isinstance(node, ChangingNode)
            node.go_on()

    def _operate(self, name: str, operation: str, topic: int) -> None:
        """What the application wants and may do; only subscribers publish."""
        process = self.process_of(name)
        self.log.append(f"{name}: {operation} {topic}")
        if operation == "publish":
            if process.is_subscribed(topic):
                number = self._published[process.me, topic] = self._published.get((process.me, topic), 0) + 1
                if self.protocol_options.total:
                    self.oracle.topic(topic).published(process.me, number, TOTAL)
                process.publish(b"", topic)
        elif process.is_subscribed(topic) == (operation == "unsubscribe"):
            process.unsubscribe(topic) if operation == "unsubscribe" else process.subscribe(topic)

    def check_at_the_end(self) -> None:
        super().check_at_the_end()
        for name, node in self.nodes.items():
            if node.phase is Phase.IN:
                process = self.process_of(name)
                assert process.unfinished() == 0, f"{name} is stuck: {process.state()}\n{self.story()}"
        findings = self.oracle.finish()
        broken = {kind for kind, count in findings.counts.items() if count} - NOT_PROMISED[self.protocol_options.order]
        assert not broken, f"{findings}\n{self.story()}"
        if self.protocol_options.total:
            for topic, nodes in self.lanes.items():
                circle = circle_in({pair for lane in nodes.values() for pair in pairwise(lane)})
                assert not circle, f"{circle_text(topic, None, circle)}\n{self.story()}"

    def state(self) -> str:
        states = [node.process.state() for node in map(self.inside, self.nodes) if node.process is not None]
        return "\n".join([super().state(), *states, str(self.scripts), self.oracle.state()])

    def keep(self) -> bytes | None:
        """Processes are not copied: the steps are taken again."""
        return None
