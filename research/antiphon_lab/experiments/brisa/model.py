"""Shared by the experiments on BRISA: a system that grows node by node, and a stream through it.

Thesis of M. Matos, section 4.3. Processes join one after the other through the first of them; then one of them
publishes, five times per second. A tick is a millisecond. The document ran 512 processes on 15 machines, and up to 200
on PlanetLab; here a hop takes a time that is drawn from a law (:data:`NETWORKS`), and nothing waits for a processor.

One run gives everything that Figures 4.3 and 4.7 to 4.16 show, so that experiments share runs. The structure of a run
is read off the processes when the stream is over; messages are counted on arrival (:class:`Watched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from antiphon.fabrics.gossip.messages import Data, FetchResponse, structure_key
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.gossip.structure import Structure
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import JoinAction, PublishAction
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon_lab.experiments.brisa.hops import CLUSTER, NETWORKS, network_of, size_of
from antiphon_lab.protocols.gossip.processes import PROCESSES
from antiphon_lab.reproduction.documents import Document, Number, document

GROWTH_STREAM = 11
"""The random stream for contacts of joining nodes."""

JOIN_GAP_MS = 100
SETTLING_MS = 30_000
GAP_MS = 200
DRAIN_MS = 10_000
CONSTRUCTION = 10
"""The number of publications at the beginning of a stream that build the structure, and count in no cost."""

CONTACTS = 4
"""The number of first nodes through which others join."""


MODEL: dict[str, object] = {
    "hops": NETWORKS,
    "joins": f"one per {JOIN_GAP_MS} ms, through the first {CONTACTS} processes",
    "publications": f"one source, one per {GAP_MS} ms, {SETTLING_MS // 1000} s after the last join",
    "overlay": "HyParView with a passive view of 30, walks of 6 and 3 hops, shuffles of 3 and 4 every 10 s, beats "
    "every 1 s",
}
"""The defaults of all experiments on BRISA."""


def published() -> Document:
    """The numbers of the thesis."""
    return document("epidemic")


@dataclass(frozen=True)
class StreamCase:
    """One simulation: a system grows, then one of its nodes publishes.

    ``parents`` is 1 for a tree and 0 for a flood in which every link stays in use.
    """

    nodes: int
    messages: int
    active: int = 4
    parents: int = 1
    expansion: float = 2.0
    trees: int = 1
    strategy: str = "first-come"
    gap_ms: int = GAP_MS
    network: str = CLUSTER

    @property
    def structure(self) -> str:
        """The shape of the used links."""
        return ("flood", "tree")[self.parents] if self.parents < 2 else f"DAG of {self.parents} parents"

    def __str__(self) -> str:
        text = f"{self.structure}, {self.nodes} nodes, view {self.active}, {self.messages} messages"
        if self.expansion != 2:
            text += f", expansion {self.expansion:g}"
        if self.trees > 1:
            text += f", {self.trees} trees"
        if self.strategy != "first-come":
            text += f", {self.strategy}"
        if self.gap_ms != GAP_MS:
            text += f", every {self.gap_ms} ms"
        return text if self.network == CLUSTER else f"{text}, {self.network}"

    def options(self) -> BrisaOptions:
        """How all nodes behave."""
        return BrisaOptions(
            HyParViewOptions(self.active, expansion=self.expansion),
            range(min(CONTACTS, self.nodes)),
            order="none",
            parents=max(1, self.parents),
            strategy=self.strategy,
            trees=self.trees,
            join_window=0,
            floods=self.parents == 0,
        )


class Counts:
    """The arrivals during a stream, by node: copies of publications, and bytes that are not payload."""

    def __init__(self, nodes: int) -> None:
        self.copies_received = [0] * nodes
        self.copies_sent = [0] * nodes
        self.bytes_received = [0] * nodes
        self.bytes_sent = [0] * nodes

    def note(self, sender: int, receiver: int, message: ProtocolMessage) -> None:
        """One message has arrived."""
        if isinstance(message, Data | FetchResponse):
            if message.sequence <= CONSTRUCTION:
                return
            self.copies_received[receiver] += 1
            self.copies_sent[sender] += 1
        size = size_of(message)
        self.bytes_received[receiver] += size
        self.bytes_sent[sender] += size


class Watched(Process):
    """BRISA at one node, or a rival of it, with a counter of arrivals."""

    def __init__(self, environment: Environment, options: BrisaOptions, growth: Growth) -> None:
        super().__init__(environment)
        self.brisa = PROCESSES[type(options)](environment, options)
        self._growth = growth

    def start(self) -> None:
        self.brisa.start()

    def publish(self, payload: bytes, topic: int = 0, order: int = -1) -> int:
        return self.brisa.publish(payload, topic, order)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if self._growth.is_counting:
            self._growth.counts.note(sender, self.me, message)
        self.brisa.receive(sender, message)

    def expire(self, name: int) -> None:
        self.brisa.expire(name)

    def peer_lost(self, peer: int) -> None:
        self.brisa.peer_lost(peer)

    def peer_found(self, peer: int) -> None:
        self.brisa.peer_found(peer)

    def unfinished(self) -> int:
        return self.brisa.unfinished()


class Receipts(SimulatedApplication):
    """When nodes get publications of others."""

    def __init__(self, nodes: int) -> None:
        self.count = [0] * nodes
        self.first = [0] * nodes
        self.last = [0] * nodes
        self.delay_sum = [0] * nodes

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        now = engine.calendar.now
        if self.count[node] == 0:
            self.first[node] = now
        self.count[node] += 1
        self.last[node] = now
        self.delay_sum[node] += now - publication.timestamp


class Growth:
    """A system that grows, and its events. ``spare`` nodes may join after the first ones."""

    def __init__(self, case: StreamCase, seed: int, spare: int = 0, join_gap_ms: int = JOIN_GAP_MS) -> None:
        self.case = case
        self.random = RandomStream(seed, GROWTH_STREAM)
        total = case.nodes + spare
        self._options = case.options()
        self.present: list[int] = []
        self.counts = Counts(total)
        self.receipts = Receipts(total)
        self.is_counting = False
        self.processes: list[Watched] = []
        self.source = self.random.below(case.nodes)
        self.engine = Engine(
            total,
            network_of(case.network, total, seed),
            self._build,
            seed,
            can_fail=True,
            absent=set(range(total)),
            application=self.receipts,
        )
        for node in range(case.nodes):
            self.engine.at(node * join_gap_ms, JoinAction(node))
        self.grown_at = case.nodes * join_gap_ms

    def _build(self, environment: Environment) -> Watched:
        node = int(environment.identifier)
        process = self.new_process(environment, self._options)
        if node in self._options.contacts:
            process.brisa.begin_as_contact(0, node == 0)
        process.brisa.begin_as_member(0)
        self.present.append(node)
        self.processes.append(process)
        return process

    def new_process(self, environment: Environment, options: BrisaOptions) -> Watched:
        """The process at a node."""
        return Watched(environment, options, self)

    def publish_from(self, start: int) -> int:
        """Let the source publish its stream; the answer is when it ends."""
        for number in range(self.case.messages):
            self.engine.at(start + number * self.case.gap_ms, PublishAction(self.source))
        return start + self.case.messages * self.case.gap_ms

    def duplicates(self) -> list[int]:
        """How many copies too many each node has got so far."""
        return [int(self.brisa_of(node).group(0).duplicates) for node in range(self.case.nodes)]

    def links(self) -> list[frozenset[int]]:
        """The neighbours of each node."""
        return [
            frozenset(int(peer) for peer in self.brisa_of(node).group(0).sampling.neighbours())
            for node in range(self.case.nodes)
        ]

    def brisa_of(self, node: int) -> Brisa:
        """The process of a node that is there."""
        process = self.engine.nodes[node].process
        assert isinstance(process, Watched), "the node is there"
        return process.brisa

    def structure_of(self, node: int, tree: int) -> Structure:
        """The state of a node in one structure of the source."""
        return self.brisa_of(node).group(0).trees.structure(structure_key(self.source, tree))

    def parents(self, tree: int) -> dict[int, list[int]]:
        """The parents of each present node."""
        return {node: [int(parent) for parent in self.structure_of(node, tree).parents] for node in self.present}


def children_of(parents: dict[int, list[int]]) -> dict[int, list[int]]:
    """The children of each node."""
    children: dict[int, list[int]] = {}
    for node, chosen in parents.items():
        for parent in chosen:
            children.setdefault(parent, []).append(node)
    return children


def depths(parents: dict[int, list[int]], source: int) -> dict[int, int]:
    """The longest way from the source to each node; a node on a cycle, or without a way, has none and is left out."""
    children = children_of(parents)
    missing = {node: len(chosen) for node, chosen in parents.items()}
    longest = {source: 0}
    ready = [source]
    while ready:
        node = ready.pop()
        for child in children.get(node, ()):
            missing[child] -= 1
            longest[child] = max(longest.get(child, 0), longest[node] + 1)
            if missing[child] == 0:
                ready.append(child)
    return {node: depth for node, depth in longest.items() if missing.get(node, 0) == 0}


def hops_from(source: int, parents: dict[int, list[int]]) -> dict[int, int]:
    """The shortest way from the source to each node that has one."""
    children = children_of(parents)
    hops = {source: 0}
    edge = [source]
    while edge:
        edge = [child for node in edge for child in children.get(node, ()) if child not in hops]
        hops |= dict.fromkeys(edge, max(hops.values()) + 1)
    return hops


@dataclass(frozen=True)
class StreamMeasures:
    """The results of one stream; arrays have an entry per node, ``children`` a row per tree.

    ``links`` are neighbours when the stream begins, ``duplicates`` extra copies per publication. ``last_duplicates``
    are those of the last publication at each node, and ``last_links`` all ends of links at that time, -1 if some
    changed or only one end knew of them; ``is_steady`` if none changed during the whole stream. ``depth`` is the
    longest path from the source in the first structure, -1 where there is none, and ``shortest`` the mean of the
    shortest paths. ``unserved`` nodes have fewer parents than they want and a neighbour that could be one. Copies and
    bytes without payload are those of the stream after its first publications. Delays are in milliseconds. ``routing``
    adds up measured round trips from the source down to a node.
    """

    source: int
    links: np.ndarray
    duplicates: np.ndarray
    last_duplicates: np.ndarray
    last_links: int
    is_steady: bool
    missing: int
    depth: np.ndarray
    shortest: float
    parents: np.ndarray
    parent: np.ndarray
    unserved: int
    children: np.ndarray
    active_links: int
    copies_received: np.ndarray
    copies_sent: np.ndarray
    bytes_received: np.ndarray
    bytes_sent: np.ndarray
    reception: np.ndarray
    dissemination: np.ndarray
    routing: np.ndarray
    path_ids: np.ndarray

    @property
    def others(self) -> np.ndarray:
        """All nodes but the source."""
        return np.delete(np.arange(len(self.links)), self.source)


def routing_ms(growth: Growth, parent: np.ndarray, depth: np.ndarray) -> Iterator[float]:
    """For each node the round trips on its path from the source, as neighbours have measured them."""
    hops = np.zeros(len(parent))
    for node in range(len(parent)):
        link = growth.brisa_of(node).group(0).trees.links.get(int(parent[node]))
        hops[node] = 0 if link is None else max(0, int(link.round_trip))
    for node in range(len(parent)):
        total = 0.0
        at = node
        for _ in range(max(0, int(depth[node]))):
            total += hops[at]
            at = int(parent[at])
        yield total


def is_unserved(growth: Growth, node: int) -> bool:
    """Whether a node misses a parent although a neighbour is not deeper and not its descendant."""
    structure = growth.structure_of(node, 0)
    if structure.is_root or len(structure.parents) >= growth.case.parents:
        return False
    for peer in growth.brisa_of(node).group(0).sampling.neighbours():
        if peer not in structure.parents:
            other = growth.structure_of(int(peer), 0).position
            if growth.case.parents == 1 or 0 <= other.depth <= structure.position.depth:
                return True
    return False


def measure(case: StreamCase, seed: int) -> StreamMeasures:
    """Let a system grow and a stream go through it."""
    return measured(Growth(case, seed), case)


def measured(growth: Growth, case: StreamCase) -> StreamMeasures:
    """The same in a world that was made otherwise."""
    engine = growth.engine
    start = growth.grown_at + SETTLING_MS
    end = growth.publish_from(start)
    engine.run(start - 1)
    links = growth.links()
    growth.is_counting = True
    engine.run(end - case.gap_ms - 1)
    earlier, links_then = growth.duplicates(), growth.links()
    engine.run(end - 1)
    growth.is_counting = False
    engine.run(end + DRAIN_MS)
    last_stay = links_then == growth.links() and all(
        node in links_then[peer] for node, peers in enumerate(links_then) for peer in peers
    )
    duplicates = growth.duplicates()
    return StreamMeasures(
        source=growth.source,
        links=np.array([len(found) for found in links]),
        duplicates=np.array(duplicates) / case.messages,
        last_duplicates=np.array(duplicates) - np.array(earlier),
        last_links=sum(len(found) for found in links_then) if last_stay else -1,
        is_steady=last_stay and links == links_then,
        **structure_measures(growth),
        **traffic_measures(growth),
    )


def structure_measures(growth: Growth) -> dict[str, Any]:
    """The measures that are read off the processes at the end."""
    case = growth.case
    nodes = range(case.nodes)
    by_tree = [growth.parents(tree) for tree in range(case.trees)]
    children = np.zeros((case.trees, case.nodes), dtype=int)
    for tree, parents in enumerate(by_tree):
        for found in parents.values():
            np.add.at(children[tree], found, 1)
    ways = depths(by_tree[0], growth.source)
    depth = np.array([ways.get(node, -1) for node in nodes])
    parent = np.array([by_tree[0][node][0] if by_tree[0][node] else -1 for node in nodes])
    structures = [growth.structure_of(node, 0) for node in nodes]
    return {
        "depth": depth,
        "shortest": float(np.mean(list(hops_from(growth.source, by_tree[0]).values()))),
        "parents": np.array([len(by_tree[0][node]) for node in nodes]),
        "parent": parent,
        "unserved": sum(is_unserved(growth, node) for node in nodes),
        "children": children,
        "active_links": sum(len(set(structure.targets) - set(structure.parents)) for structure in structures),
        "routing": np.array(list(routing_ms(growth, parent, depth))),
        "path_ids": np.array([len(structure.position.path) for structure in structures]),
    }


def traffic_measures(growth: Growth) -> dict[str, Any]:
    """The measures that were counted during the run."""
    receipts, counts = growth.receipts, growth.counts
    return {
        "missing": growth.case.messages * growth.case.nodes - sum(receipts.count),
        "copies_received": np.array(counts.copies_received),
        "copies_sent": np.array(counts.copies_sent),
        "bytes_received": np.array(counts.bytes_received),
        "bytes_sent": np.array(counts.bytes_sent),
        "reception": np.array(receipts.delay_sum) / growth.case.messages,
        "dissemination": np.array(receipts.last) - np.array(receipts.first),
    }


@cache
def numbers_of(figure: str) -> dict[str, Number]:
    """The published numbers of a figure or table, without its name."""
    found = published().numbers
    return {key.removeprefix(f"{figure}/"): number for key, number in found.items() if key.startswith(f"{figure}/")}
