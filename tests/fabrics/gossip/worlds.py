"""Small systems for the tests of the gossip fabric: overlays alone, BRISA in the engine, structures by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from antiphon.fabrics.gossip import Brisa, BrisaOptions, Connections, Neighbourhood, PeerSampling
from antiphon.fabrics.gossip.messages import Activate, Data, Deactivate, Moved
from antiphon.fabrics.gossip.sampling.service import SamplingMessage
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel import Environment, Process, ProtocolMessage, RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.gossip.processes import PROCESSES

PERIOD = 1000
NODES = 64
SOURCE = 9
START = 10_000

MakeSampling = Callable[[Environment, Connections, Neighbourhood], PeerSampling]


class Overlay(Process):
    """A peer sampling service with nothing above it, for a number of periods."""

    def __init__(self, environment: Environment, make: MakeSampling, periods: int) -> None:
        super().__init__(environment)
        self._periods = periods
        self.sampling = make(environment, Connections(environment), Neighbourhood())

    def start(self) -> None:
        delay = 0 if self.me == 0 else 10 * self.me
        self.environment.set_timer(delay, 0)

    def expire(self, name: int) -> None:
        if self.me != 0 and not self.sampling.neighbours():
            self.sampling.join(int(self.environment.random().below(self.me)))
        self.sampling.tick()
        self._periods -= 1
        if self._periods > 0:
            self.environment.set_timer(PERIOD, 0)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        assert isinstance(message, SamplingMessage)
        self.sampling.receive(sender, message)

    def peer_lost(self, peer: int) -> None:
        self.sampling.lost(peer)


class Overlays:
    """A system of overlays; who joins does so through a node that joined before."""

    def __init__(self, nodes: int, make: MakeSampling, periods: int = 30, seed: int = 1) -> None:
        self.processes: dict[int, Overlay] = {}

        def build(environment: Environment) -> Overlay:
            process = Overlay(environment, make, periods)
            self.processes[int(environment.identifier)] = process
            return process

        self.engine = Engine(nodes, NetworkModel(ConstantDelay(10), detection=50), build, seed, can_fail=True)

    def crash(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self.engine.crash(node)
            del self.processes[node]

    def views(self) -> dict[int, list[int]]:
        """Of those that are alive."""
        return {node: [int(peer) for peer in one.sampling.neighbours()] for node, one in self.processes.items()}


def component(views: dict[int, list[int]], start: int) -> set[int]:
    """All nodes that can be reached from one, over links in either direction."""
    links: dict[int, set[int]] = {node: set() for node in views}
    for node, view in views.items():
        for peer in view:
            if peer in links:
                links[node].add(peer)
                links[peer].add(node)
    reached, todo = {start}, [start]
    while todo:
        for peer in sorted(links[todo.pop()] - reached):
            reached.add(peer)
            todo.append(peer)
    return reached


class World:
    """BRISA, or a rival of it, in the engine: all nodes are members of topic 0, and one of them publishes."""

    def __init__(
        self,
        nodes: int,
        options: BrisaOptions,
        network: NetworkModel | None = None,
        seed: int = 1,
        can_fail: bool = False,
        members: Iterable[int] | None = None,
    ) -> None:
        self.first_lives: set[int] = set()
        wanted = set(range(nodes) if members is None else members)

        def build(environment: Environment) -> Brisa:
            process = PROCESSES[type(options)](environment, options)
            node = int(environment.identifier)
            if node in options.contacts:
                process.begin_as_contact(0, node == options.contacts[0] and node not in self.first_lives)
            self.first_lives.add(node)
            if node in wanted:
                process.begin_as_member(0)
            return process

        chosen = NetworkModel(ConstantDelay(10), detection=50) if network is None else network
        self.engine = Engine(nodes, chosen, build, seed, can_fail=can_fail)

    def publish(self, node: int, at: int, count: int = 1, gap: int = 200) -> World:
        for number in range(count):
            self.engine.at(at + number * gap, PublishAction(node))
        return self

    def brisa(self, node: int) -> Brisa:
        process = self.engine.nodes[node].process
        assert isinstance(process, Brisa)
        return process

    def structures(self, key: int) -> dict[int, list[int]]:
        """The parents of each node that is alive."""
        found = {}
        for node in self.engine.nodes:
            if node.process is not None:
                trees = self.brisa(int(node.identifier)).group(0).trees
                found[int(node.identifier)] = [int(parent) for parent in trees.structure(key).parents]
        return found


def duplicates(world: World) -> int:
    """Copies of publications that nodes had already."""
    return sum(int(world.brisa(node).group(0).duplicates) for node in range(NODES))


def links(world: World) -> int:
    """Links of the overlay."""
    return sum(len(world.brisa(node).group(0).sampling.neighbours()) for node in range(NODES)) // 2


def flood_then_tree(options: BrisaOptions) -> World:
    """A world in which the first publication went over every link, and all others came to every node once."""
    world = World(NODES, options).publish(SOURCE, START)
    world.engine.run(START + 5000)
    flooded = duplicates(world)
    assert flooded == 2 * links(world) - 2 * (NODES - 1)
    world.publish(SOURCE, START + 6000, count=20)
    world.engine.run()
    assert duplicates(world) == flooded
    assert world.engine.deliveries == 21 * NODES
    return world


class Wired(Environment):
    """The environment of structures that a test drives by hand."""

    def __init__(self, bench: Bench, identifier: int) -> None:
        super().__init__(identifier)
        self._bench = bench

    def now(self) -> int:
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self._bench.on_the_way.append((int(self.identifier), int(destination), message))

    def random(self) -> RandomStream:
        return RandomStream(1, int(self.identifier))


class Bench:
    """Structures of a few nodes, and the messages between them in the order in which they were sent."""

    def __init__(self, links: dict[int, list[int]], options: BrisaOptions) -> None:
        self.on_the_way: deque[tuple[int, int, ProtocolMessage]] = deque()
        self.handled = 0
        self.trees: dict[int, Trees] = {}
        self._neighbours = {node: list(peers) for node, peers in links.items()}
        for node, peers in links.items():
            self.trees[node] = Trees(Wired(self, node), 0, options, self._neighbours[node], {})
            for peer in peers:
                self.trees[node].neighbour_up(peer)

    def run(self, most: int = 500) -> bool:
        """Hand over messages until there are none, or too many; says whether there are none."""
        while self.on_the_way and self.handled < most:
            sender, receiver, message = self.on_the_way.popleft()
            self.handled += 1
            trees = self.trees.get(receiver)
            if trees is None:
                continue
            if isinstance(message, Activate):
                trees.on_activate(sender, message.key)
            elif isinstance(message, Deactivate):
                trees.on_deactivate(sender, message.key)
            elif isinstance(message, Moved):
                trees.on_moved(sender, message.key, message.position)
            else:
                assert isinstance(message, Data)
        return not self.on_the_way

    def tell_positions(self, key: int) -> None:
        """What periodic messages do: each node tells its neighbours where it is."""
        for node, trees in self.trees.items():
            for peer in self._neighbours[node]:
                if peer in self.trees:
                    self.on_the_way.append((node, peer, Moved(key, 0, trees.structure(key).position)))

    def cut(self, one: int, other: int) -> None:
        """The two are neighbours no more; both know it."""
        for node, peer in ((one, other), (other, one)):
            if node in self.trees and peer in self._neighbours[node]:
                self._neighbours[node].remove(peer)
                self.trees[node].neighbour_down(peer)
