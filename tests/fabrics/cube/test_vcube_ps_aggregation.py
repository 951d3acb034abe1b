"""Causal aggregation inside VCube-PS: on barriers, over trees of subscribers, while members come and go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import Cube, PacketFormat, Traffic, full_or_partial
from antiphon.fabrics.cube.aggregation.packets import Parcel
from antiphon.fabrics.cube.aggregation.process import AggregatingVCubePs
from antiphon.fabrics.cube.messages import Acknowledgement, LeafCopy
from antiphon.fabrics.cube.process import CubeProcess
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel import FIFO, Environment, Process, ProtocolMessage, publication_key
from antiphon.orders import Ordered
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.explore.explorer import Operation, explore
from antiphon.simulator.network.delays import LinkDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from tests.fabrics.cube.test_vcube_ps import PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from tests.fabrics.cube.trees import partial
from tests.research.protocols.cube.test_aggregation import publication
from tests.research.protocols.cube.test_aggregation_properties import starts, wild
from tests.support import Notebook

Name = tuple[int, int]


def node_four(members: list[int], form: PacketFormat | None = None) -> tuple[AggregatingVCubePs, Notebook]:
    """Node 4 of eight, the one of the thesis's examples."""
    notebook = Notebook(4)
    process = AggregatingVCubePs(notebook, full_or_partial(8), Options(largest_first=False), form)
    process.begin_as_member(0, View(3, members))
    return process, notebook


def sent(notebook: Notebook, of: type[ProtocolMessage] | None = None) -> list[tuple[int, list[Name]]]:
    """To whom which packets were sent, or acknowledgements; nothing of it is shown again."""
    found = []
    for child, message in notebook.sent:
        inside = message.parts if isinstance(message, Parcel) else [message]
        if (of is None) != isinstance(inside[0], Acknowledgement):
            found.append((child, [(part.source, part.sequence) for part in inside]))
    return found


def test_an_effect_waits_for_a_cause_that_the_same_child_gets_from_here() -> None:
    """Figure 4.1 on barriers: (2,1) before (1,1) before (0,1), which names only its immediate predecessor."""
    process, notebook = node_four(list(range(8)), PacketFormat())
    process.receive(0, publication((0, 1), (1, 1)))
    # It lacks (1,1), which 5 sends to us and not we to 5; that (2,1) is behind it is not known yet.
    assert sent(notebook) == [(5, [(0, 1)]), (6, [(0, 1)])]
    notebook.sent.clear()
    process.receive(0, publication((0, 2), (2, 1)))
    assert sent(notebook) == [(6, [(0, 2)])]
    assert process.held_back() == 1
    notebook.sent.clear()
    process.receive(6, publication((2, 1)))
    assert sent(notebook) == [(5, [(0, 2), (2, 1)])]
    assert process.held_back() == 0


def test_what_a_waiting_cause_lacks_is_waited_for_too() -> None:
    """(0,1) names (2,2), which is here and lacks (2,1)."""
    process, notebook = node_four(list(range(8)), PacketFormat())
    process.receive(6, publication((2, 2)))
    process.receive(0, publication((0, 1), (2, 2)))
    assert sent(notebook) == [(6, [(0, 1)])]
    process.receive(6, publication((2, 1)))
    assert sent(notebook)[1:] == [(5, [(2, 2), (0, 1), (2, 1)])]
    assert [(one.source, one.sequence) for one in notebook.delivered] == [(2, 1), (2, 2), (0, 1)]


def test_acknowledgements_follow_when_what_was_held_has_arrived_below() -> None:
    process, notebook = node_four(list(range(8)), PacketFormat())
    process.receive(0, publication((0, 1), (2, 1)))
    process.receive(6, Acknowledgement(0, 1))
    assert sent(notebook, Acknowledgement) == []
    process.receive(6, publication((2, 1)))
    process.receive(5, Parcel([Acknowledgement(0, 1), Acknowledgement(2, 1)]))
    assert sent(notebook, Acknowledgement) == [(0, [(0, 1)]), (6, [(2, 1)])]
    assert process.unfinished() == 0


def test_where_nobody_is_there_to_send_both_to_nothing_is_held() -> None:
    """Without 5 and 6, node 4 is a leaf in the tree of 2, and 7 gets (0,1) from it but not (2,1)."""
    process, notebook = node_four([0, 1, 2, 3, 4, 7], PacketFormat())
    process.receive(0, publication((0, 1), (2, 1)))
    assert sent(notebook) == [(7, [(0, 1)])]
    assert process.held_back() == 0


def test_other_orders_do_not_wait() -> None:
    notebook = Notebook(4)
    process = AggregatingVCubePs(notebook, full_or_partial(8), Options(mixed=True), PacketFormat())
    process.begin_as_member(0, View(3, range(8)))
    second = publication((0, 2))
    process.receive(0, Ordered(0, 2, 0, b"", second.dependencies, 0, FIFO))
    assert sent(notebook) == [(6, [(0, 2)]), (5, [(0, 2)])]


def test_who_leaves_sends_what_it_holds() -> None:
    process, notebook = node_four(list(range(8)), PacketFormat())
    process.receive(0, publication((0, 1), (2, 1)))
    notebook.sent.clear()
    process.unsubscribe(0)
    assert sent(notebook)[0] == (5, [(0, 1)])
    assert process.held_back() == 0
    for child in (5, 6):
        process.receive(child, Acknowledgement(0, 1))
    assert sent(notebook, Acknowledgement) == [(0, [(0, 1)])]
    assert process.unfinished() == 0


def test_when_a_node_has_left_the_system_nothing_is_held_any_more() -> None:
    """Its place in the trees is taken by others, so what was waited for may come another way."""
    process, notebook = node_four(list(range(8)))
    process.receive(0, publication((0, 1), (2, 1)))
    notebook.sent.clear()
    process.left(6)
    assert sent(notebook) == [(5, [(0, 1)])]
    assert process.held_back() == 0
    process.receive(7, publication((2, 1)))
    assert [(one.source, one.sequence) for one in notebook.delivered] == [(2, 1), (0, 1)]


def test_a_copy_for_this_node_alone_frees_what_waited_for_it() -> None:
    process, notebook = node_four(list(range(8)))
    process.receive(0, publication((0, 1), (2, 1)))
    notebook.sent.clear()
    process.receive(6, LeafCopy(publication((2, 1))))
    assert sent(notebook) == [(5, [(0, 1)])]


def test_parcels_are_no_larger_than_allowed() -> None:
    traffic = Traffic(8, 135)
    notebook = Notebook(4)
    process = AggregatingVCubePs(notebook, full_or_partial(8), Options(), PacketFormat(135), traffic)
    process.begin_as_member(0, View(3, range(8)))
    process.receive(0, publication((0, 1), (2, 1), payload=bytes(50)))
    process.receive(6, publication((2, 1), payload=bytes(50)))
    assert sent(notebook) == [(6, [(0, 1)]), (5, [(0, 1)]), (5, [(2, 1)])]
    assert traffic.closed == 1
    assert traffic.bytes_sent == 80 + 80 + 76


@pytest.mark.parametrize("members", [list(range(16)), [0, 1, 3, 6, 7, 9, 12, 14, 15], [5, 9]])
def test_a_view_knows_its_owner_s_place_in_every_tree(members: list[int]) -> None:
    """As the cube of the members does; whether the view holds its owner makes no difference."""
    cube: Cube = partial(4, members)
    for owner in members:
        without = View(4, [member for member in members if member != owner])
        for root in members:
            assert View(4, members).height_in_tree(owner, root) == cube.height_in_tree(owner, root)
            assert without.height_in_tree(owner, root) == cube.height_in_tree(owner, root)


class Run:
    """A conversation on one topic among some members."""

    def __init__(
        self, nodes: int, conversation: list[tuple[int, int]], network: NetworkModel, aggregates: bool, seed: int = 1
    ) -> None:
        cube = full_or_partial(nodes)
        members = [node for node in range(nodes) if node % 5 != 4]
        view = View(cube.dimension, members)
        self.members = members
        self.traffic = Traffic(nodes, keeps_journeys=True)
        self.trace = MemoryTrace("everything")
        self.processes: list[CubeProcess] = []

        def build(environment: Environment) -> Process:
            process: CubeProcess = VCubePs(environment, cube, Options())
            if aggregates:
                process = AggregatingVCubePs(environment, cube, Options(), PacketFormat(), self.traffic)
            if environment.identifier in members:
                process.begin_as_member(0, view)
            self.processes.append(process)
            return process

        self.engine = Engine(nodes, network, build, seed, self.trace.recorder)
        for time, node in conversation:
            self.engine.at(time, PublishAction(members[node % len(members)]))
        assert self.engine.run() == "finished"

    def deliveries(self) -> dict[tuple[int, int, int], int]:
        rows = [row for row in self.trace.table().to_pylist() if row["event"] == "deliver"]
        return {(row["node"], row["source"], row["sequence"]): row["time"] for row in rows}


sizes = st.sampled_from([2, 3, 8, 13, 16, 27])


@settings(max_examples=30)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_each_once_per_edge_nothing_forgotten_no_deadlock_causal_order(
    nodes: int, starts: list[tuple[int, int]], seed: int
) -> None:
    run = Run(nodes, starts, wild(), True, seed)
    counts: Counter[int] = Counter()
    expected: Counter[Name] = Counter()
    for _, node in sorted(starts):
        source = run.members[node % len(run.members)]
        counts[source] += 1
        key = int(publication_key(source, counts[source]))
        expected.update((other, key) for other in run.members if other != source)
    rows = list(run.traffic.receptions)
    assert Counter(zip(rows[0::4], rows[1::4], strict=True)) == expected
    findings = judge(run.trace.table(), nodes)
    assert findings.clean, str(findings)
    assert findings.deliveries == len(starts) * len(run.members)
    assert sum(int(process.unfinished()) for process in run.processes) == 0


@settings(max_examples=40)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_no_delivery_is_later_than_without_aggregation(nodes: int, starts: list[tuple[int, int]], seed: int) -> None:
    """In pairs with the same delays, as for the published protocol."""
    network = NetworkModel(LinkDelay(NormalDelay(100, 90), seed), transmission=0)
    together, one_by_one = (Run(nodes, starts, network, aggregates) for aggregates in (True, False))
    assert together.deliveries() == one_by_one.deliveries()
    assert together.engine.sent <= one_by_one.engine.sent


def test_the_pairs_above_differ_in_what_they_send() -> None:
    starts = [(7 * number % 300, number) for number in range(128)]
    network = NetworkModel(LinkDelay(NormalDelay(100, 90), 5), transmission=0)
    together, one_by_one = (Run(64, starts, network, aggregates) for aggregates in (True, False))
    assert together.deliveries() == one_by_one.deliveries()
    assert int(together.engine.sent) < 0.95 * int(one_by_one.engine.sent)


SMALL_SYSTEMS: list[tuple[list[int], list[list[Operation]]]] = [
    ([0, 1], [[PUBLISH, PUBLISH], [PUBLISH, PUBLISH]]),
    ([0], [[PUBLISH, PUBLISH], [SUBSCRIBE, PUBLISH]]),
    ([0, 2, 3], [[PUBLISH, PUBLISH], [], [UNSUBSCRIBE], []]),
]


@pytest.mark.parametrize(("members", "scripts"), SMALL_SYSTEMS)
def test_no_schedule_loses_blocks_or_reorders(members: list[int], scripts: list[list[Operation]]) -> None:
    cube = full_or_partial(len(scripts))
    view = View(cube.dimension, members)

    def build(environment: Environment) -> AggregatingVCubePs:
        process = AggregatingVCubePs(environment, cube, Options(), PacketFormat())
        if environment.identifier in members:
            process.begin_as_member(0, view)
        return process

    found = explore(build, scripts)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted
    assert found.ends > 0
