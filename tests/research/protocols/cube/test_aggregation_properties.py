"""What causal aggregation promises, over random schedules: each once per edge, nothing forgotten, nothing later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import Cube, Packet, PacketFormat, Traffic, cluster, full_or_partial
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.kernel import Environment, Process, ProtocolMessage, publication_key
from antiphon.kernel.message import Publication
from antiphon.orders import CausalVectors
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import LinkDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from antiphon_lab.protocols.cube.causal_aggregation import AggregationOptions, CausalAggregation
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from tests.research.protocols.cube.printed_aggregation import PrintedAggregation, Vectors

Build = Callable[[Environment, Cube, Traffic], PacketBroadcast]


class Run:
    """A conversation: who publishes when, over a network that reorders; everything that was sent and delivered."""

    def __init__(
        self, nodes: int, starts: list[tuple[int, int]], network: NetworkModel, build: Build, seed: int = 1
    ) -> None:
        cube = full_or_partial(nodes)
        self.nodes = nodes
        self.traffic = Traffic(nodes, keeps_journeys=True)
        self.trace = MemoryTrace("everything")
        self.processes: list[PacketBroadcast] = []

        def broadcast(environment: Environment) -> Process:
            self.processes.append(build(environment, cube, self.traffic))
            return self.processes[-1]

        self.engine = Engine(nodes, network, broadcast, seed, self.trace.recorder)
        for time, node in starts:
            self.engine.at(time, PublishAction(node % nodes))
        assert self.engine.run() == "finished"

    def rows(self, *events: str) -> list[tuple[object, ...]]:
        """Rows of the trace."""
        wanted = ("time", "event", "node", "peer", "message", "source", "sequence", "value")
        table = self.trace.table().select(list(wanted)).to_pylist()
        return [tuple(row[name] for name in wanted) for row in table if row["event"] in events]

    def deliveries(self) -> dict[tuple[int, int, int], int]:
        """When each node delivered each publication."""
        rows = [row for row in self.trace.table().to_pylist() if row["event"] == "deliver"]
        return {(row["node"], row["source"], row["sequence"]): row["time"] for row in rows}

    def receptions(self) -> Counter[tuple[int, int]]:
        """How often each node received each publication."""
        rows = list(self.traffic.receptions)
        return Counter(zip(rows[0::4], rows[1::4], strict=True))

    def expected_receptions(self, starts: list[tuple[int, int]]) -> Counter[tuple[int, int]]:
        """Each publication at each node but its source's, once."""
        counts: Counter[int] = Counter()
        expected: Counter[tuple[int, int]] = Counter()
        for _, node in starts:
            source = node % self.nodes
            counts[source] += 1
            key = int(publication_key(source, counts[source]))
            expected.update((other, key) for other in range(self.nodes) if other != source)
        return expected

    def unfinished(self) -> int:
        return sum(int(process.unfinished()) for process in self.processes)


def aggregating(options: AggregationOptions | None = None, largest: int = 1500) -> Build:
    return lambda environment, cube, traffic: CausalAggregation(
        environment, cube, PacketFormat(largest), traffic, options
    )


def alone(environment: Environment, cube: Cube, traffic: Traffic) -> PacketBroadcast:
    return PacketBroadcast(environment, cube, None, traffic)


def printed() -> Build:
    vectors: Vectors = {}
    return lambda environment, cube, traffic: PrintedAggregation(environment, cube, vectors, traffic)


def wild() -> NetworkModel:
    """Links on which almost everything overtakes something."""
    return NetworkModel(NormalDelay(60, 60), reordering=0.3, reordering_window=250)


starts = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 15)), min_size=5, max_size=40)
sizes = st.sampled_from([2, 3, 8, 13, 16])

BUILDS = {
    "published": aggregating(),
    "small packets": aggregating(largest=60),
    "causes first": aggregating(AggregationOptions(causal_walk=True)),
    "compressed vectors as they are": aggregating(AggregationOptions(forgets_predecessors=True)),
    "no aggregation": alone,
}


@pytest.mark.parametrize("name", BUILDS)
@settings(max_examples=25)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_each_once_per_edge_nothing_forgotten_no_deadlock_causal_order(
    name: str, nodes: int, starts: list[tuple[int, int]], seed: int
) -> None:
    check_whole(Run(nodes, starts, wild(), BUILDS[name], seed), nodes, starts)


def check_whole(run: Run, nodes: int, starts: list[tuple[int, int]]) -> None:
    """Everything has gone once over each edge, all is delivered in causal order, and nothing waits."""
    # A node has one parent in each tree, so a reception is an edge of a tree.
    assert run.receptions() == run.expected_receptions(sorted(starts))
    findings = judge(run.trace.table(), nodes, everybody=True)
    assert findings.clean, str(findings)
    assert findings.deliveries == len(starts) * nodes
    assert run.unfinished() == 0


@settings(max_examples=40)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_the_incremental_form_sends_what_the_printed_algorithm_sends(
    nodes: int, starts: list[tuple[int, int]], seed: int
) -> None:
    """The same packets at the same times, which then meet the same random delays."""
    ours, theirs = (Run(nodes, starts, wild(), build, seed) for build in (aggregating(), printed()))
    assert ours.rows("send", "receive") == theirs.rows("send", "receive")
    assert list(ours.traffic.receptions) == list(theirs.traffic.receptions)
    assert ours.deliveries() == theirs.deliveries()


@settings(max_examples=40)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_no_delivery_is_later_than_without_aggregation(nodes: int, starts: list[tuple[int, int]], seed: int) -> None:
    """In pairs with the same delays: every link has its own, and no packet waits for another one to be sent.

    Only then is a delivery comparable at all; where packets queue for their sender, fewer of them are faster.
    """
    together, one_by_one = (
        Run(nodes, starts, NetworkModel(LinkDelay(NormalDelay(100, 90), seed), transmission=0), build)
        for build in (aggregating(), alone)
    )
    assert together.deliveries() == one_by_one.deliveries()
    assert together.engine.sent <= one_by_one.engine.sent


def test_the_pairs_above_differ_in_what_they_send() -> None:
    """So that the comparison is known to be about something: more than a tenth of the packets is saved."""
    starts = [(7 * number % 300, number) for number in range(128)]
    network = NetworkModel(LinkDelay(NormalDelay(100, 90), 5), transmission=0)
    together, one_by_one = (Run(64, starts, network, build) for build in (aggregating(), alone))
    assert one_by_one.engine.sent == 128 * 63
    assert together.engine.sent < one_by_one.engine.sent * 9 // 10
    assert max(list(together.traffic.largest)) > 2


def test_causes_first_and_bare_compressed_vectors_save_less() -> None:
    """The two readings that are kept beside the published one."""
    starts = [(7 * number % 400, 5 * number) for number in range(128)]
    sent = {name: int(Run(16, starts, wild(), build).engine.sent) for name, build in BUILDS.items()}
    assert sent["published"] < sent["causes first"] < sent["no aggregation"]
    assert sent["published"] < sent["compressed vectors as they are"] < sent["no aggregation"]
    assert sent["published"] < sent["small packets"] < sent["no aggregation"]


def test_without_aggregation_it_is_the_tree_broadcast() -> None:
    starts = [(7 * number % 300, number) for number in range(64)]
    run = Run(16, starts, wild(), alone)
    trace = MemoryTrace("everything")
    cube = full_or_partial(16)

    def build(environment: Environment) -> Process:
        return TreeBroadcast(environment, cube, CausalVectors(environment.identifier), acknowledge=False)

    engine = Engine(16, wild(), build, 1, trace.recorder)
    for time, node in starts:
        engine.at(time, PublishAction(node % 16))
    engine.run()
    assert trace.table() == run.trace.table()


class Forgetful(CausalAggregation):
    """Drops what it would put into a packet with others; for the test that the properties above can fail."""

    def send_all(self, child: int, publications: list[Publication]) -> None:
        super().send_all(child, publications[:1])


class Impatient(CausalAggregation):
    """Sends again, alone, what came in a packet; for the same test."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        super().receive(sender, message)
        if isinstance(message, Packet):
            self.hand_on(message.publications[0], 0, cluster(self.me, sender) - 1)


@pytest.mark.parametrize("broken", [Forgetful, Impatient])
def test_a_broken_node_is_noticed(broken: type[CausalAggregation]) -> None:
    starts = [(7 * number % 300, number) for number in range(64)]
    run = Run(8, starts, wild(), lambda environment, cube, traffic: broken(environment, cube, None, traffic))
    assert run.receptions() != run.expected_receptions(sorted(starts))
