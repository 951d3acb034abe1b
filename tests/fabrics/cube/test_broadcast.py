"""Broadcast over cube trees (thesis, sections 2.4.1 and 5.4), whole traces as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import Acknowledgement, Cube, FullCube, full_or_partial
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.kernel import Environment, ProtocolError, ProtocolMessage
from antiphon.orders import CausalVectors, Order, Ordered, Unordered
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from tests.fabrics.cube.trees import partial
from tests.support import Broadcast, Notebook, text

Build = Callable[[Environment], TreeBroadcast]


def deliveries(run: Broadcast) -> Counter[tuple[int, int, int]]:
    """How often each node delivered each publication: (node, source, sequence)."""
    rows = run.trace.table().to_pylist()
    return Counter((row["node"], row["source"], row["sequence"]) for row in rows if row["event"] == "deliver")


def once_everywhere(nodes: int, sources: list[int]) -> Counter[tuple[int, int, int]]:
    return Counter({(node, source, 1): 1 for node in range(nodes) for source in sources})


def test_the_wave_goes_down_the_tree_and_comes_back_to_its_source() -> None:
    """A leaf acknowledges when it has handled its copy, an inner node when all its children have."""
    run = Broadcast(4, acknowledge=True)
    run.engine.at(5, PublishAction(0, b"why?"))
    assert run.engine.run() == "finished"
    assert run.lines() == text(
        """
          5 publish 0 (0,1) [4]
          5 deliver 0 Ordered(0,1) [0]
          5 send 0 -> 1 Ordered(0,1) [1]
          5 send 0 -> 2 Ordered(0,1) [2]
        107 receive 1 <- 0 Ordered(0,1)
        107 send 1 -> 0 Acknowledgement(0,1) [1]
        107 deliver 1 Ordered(0,1) [102]
        108 receive 2 <- 0 Ordered(0,1)
        108 send 2 -> 3 Ordered(0,1) [1]
        108 deliver 2 Ordered(0,1) [103]
        209 receive 0 <- 1 Acknowledgement(0,1)
        210 receive 3 <- 2 Ordered(0,1)
        210 send 3 -> 2 Acknowledgement(0,1) [1]
        210 deliver 3 Ordered(0,1) [205]
        312 receive 2 <- 3 Acknowledgement(0,1)
        312 send 2 -> 0 Acknowledgement(0,1) [1]
        414 receive 0 <- 2 Acknowledgement(0,1)
        """
    )
    assert [run.processes[node].completed() for node in range(4)] == [1, 0, 0, 0]


def test_without_acknowledgements_only_copies_travel() -> None:
    run = Broadcast(4, acknowledge=False)
    run.engine.at(0, PublishAction(3))
    run.engine.run()
    assert run.lines("send") == text(
        """
          0 send 3 -> 2 Ordered(3,1) [1]
          0 send 3 -> 1 Ordered(3,1) [2]
        103 send 1 -> 0 Ordered(3,1) [1]
        """
    )
    assert run.processes[3].completed() == 0


def test_the_largest_subtree_can_be_served_first() -> None:
    run = Broadcast(8, build=lambda environment: TreeBroadcast(environment, FullCube(3), None, False, True))
    run.engine.at(0, PublishAction(0))
    run.engine.run()
    assert run.lines("send") == text(
        """
          0 send 0 -> 4 Ordered(0,1) [1]
          0 send 0 -> 2 Ordered(0,1) [2]
          0 send 0 -> 1 Ordered(0,1) [3]
        102 send 4 -> 6 Ordered(0,1) [1]
        102 send 4 -> 5 Ordered(0,1) [2]
        103 send 2 -> 3 Ordered(0,1) [1]
        204 send 6 -> 7 Ordered(0,1) [1]
        """
    )
    assert deliveries(run) == once_everywhere(8, [0])


def test_a_single_tree_takes_every_publication_through_its_root() -> None:
    """The rival of Figure 2.9. The publisher gets its own copy back and takes no notice, except to hand it on."""
    run = Broadcast(4, build=lambda environment: SingleTreeBroadcast(environment, FullCube(2), 0))
    run.engine.at(0, PublishAction(2))
    run.engine.run()
    assert run.lines("send", "deliver") == text(
        """
          0 deliver 2 Ordered(2,1) [0]
          0 send 2 -> 0 Ordered(2,1) [1]
        102 send 0 -> 1 Ordered(2,1) [1]
        102 send 0 -> 2 Ordered(2,1) [2]
        102 deliver 0 Ordered(2,1) [102]
        204 send 1 -> 0 Acknowledgement(2,1) [1]
        204 deliver 1 Ordered(2,1) [204]
        205 send 2 -> 3 Ordered(2,1) [1]
        307 send 3 -> 2 Acknowledgement(2,1) [1]
        307 deliver 3 Ordered(2,1) [307]
        409 send 2 -> 0 Acknowledgement(2,1) [1]
        """
    )


BUILDS: dict[str, Callable[[Cube], Build]] = {
    "own trees": lambda cube: lambda environment: TreeBroadcast(environment, cube),
    "own trees, largest first": lambda cube: lambda environment: TreeBroadcast(environment, cube, None, True, True),
    "single tree": lambda cube: lambda environment: SingleTreeBroadcast(environment, cube, 1),
    "single tree, largest first": lambda cube: (
        lambda environment: SingleTreeBroadcast(environment, cube, 1, None, True, True)
    ),
    "single tree, causal": lambda cube: (
        lambda environment: SingleTreeBroadcast(environment, cube, 1, CausalVectors(environment.identifier))
    ),
    "own trees, causal": lambda cube: (
        lambda environment: TreeBroadcast(environment, cube, CausalVectors(environment.identifier))
    ),
}


@pytest.mark.parametrize("nodes", [2, 3, 8, 13])
@pytest.mark.parametrize("name", BUILDS)
def test_every_publication_reaches_everybody_exactly_once(name: str, nodes: int) -> None:
    run = Broadcast(nodes, build=BUILDS[name](full_or_partial(nodes)), network=NetworkModel(NormalDelay(20, 10)))
    for node in range(nodes):
        run.engine.at(3 * node, PublishAction(node))
    assert run.engine.run() == "finished"
    assert deliveries(run) == once_everywhere(nodes, list(range(nodes)))
    completed = {node: int(process.completed()) for node, process in run.processes.items()}
    # With trees of their own the sources learn of it, each of its own; with a single tree the root, of all of them.
    ends = dict.fromkeys(range(nodes), 1) if name.startswith("own") else {n: nodes * (n == 1) for n in range(nodes)}
    assert completed == ends


@given(st.sets(st.integers(0, 15), min_size=1), st.booleans())
def test_only_members_get_a_publication(members: set[int], largest_first: bool) -> None:
    """Non-members are addressed by nobody, whatever their place in the cube."""
    cube = partial(4, members)
    run = Broadcast(16, build=lambda environment: TreeBroadcast(environment, cube, None, True, largest_first))
    source = min(members)
    run.engine.at(0, PublishAction(source))
    run.engine.run()
    assert deliveries(run) == Counter({(member, source, 1): 1 for member in members})
    assert run.processes[source].completed() == 1


def test_a_broadcast_to_nobody_else_is_complete_at_once() -> None:
    run = Broadcast(1, acknowledge=True)
    run.engine.at(0, PublishAction(0))
    run.engine.run()
    assert run.engine.sent == 0
    assert run.processes[0].completed() == 1


def test_a_lost_copy_loses_its_subtree_and_leaves_the_publication_unacknowledged() -> None:
    """Best effort: nothing is resent. Node 0 loses sight of node 2, and so of node 3."""
    notebooks = {node: Notebook(node) for node in range(4)}
    processes = {node: TreeBroadcast(notebook, FullCube(2)) for node, notebook in notebooks.items()}
    processes[0].publish(b"")
    for sender in (0, 1):
        for destination, message in notebooks[sender].sent:
            if destination != 2:
                processes[destination].receive(sender, message)
    assert [len(notebook.delivered) for notebook in notebooks.values()] == [1, 1, 0, 0]
    assert processes[0].completed() == 0


def test_a_duplicated_copy_is_delivered_again_unless_an_order_stands_above() -> None:
    publication = Ordered(0, 1, 0, b"", vec[i64]())
    for order, times in ((None, 2), (Unordered(1), 1)):
        notebook = Notebook(1)
        process = TreeBroadcast(notebook, FullCube(1), order)
        process.receive(0, publication)
        process.receive(0, publication)
        assert len(notebook.delivered) == times


def test_an_acknowledgement_that_nobody_waits_for_is_ignored() -> None:
    notebook = Notebook(0)
    process = TreeBroadcast(notebook, FullCube(2))
    process.receive(1, Acknowledgement(0, 1))
    process.receive(2, Acknowledgement(3, 9))
    assert (notebook.sent, process.completed()) == ([], 0)


class Riddle(ProtocolMessage):
    """A message that no broadcast knows."""


@pytest.mark.parametrize("build", [BUILDS["own trees"], BUILDS["single tree"]])
def test_an_unknown_message_is_the_fault_of_its_sender(build: Callable[[Cube], Build]) -> None:
    process = build(FullCube(2))(Notebook(0))
    with pytest.raises(ProtocolError, match="node 3 sent a Riddle, which a tree broadcast does not know"):
        process.receive(3, Riddle(3, 1))


def test_copies_carry_the_topic_though_everybody_gets_everything() -> None:
    notebook = Notebook(0)
    TreeBroadcast(notebook, FullCube(1)).publish(b"", topic=6)
    assert [(destination, message.topic) for destination, message in notebook.sent] == [(1, 6)]


def test_sequence_numbers_count_from_one_and_timestamps_are_the_environments() -> None:
    notebook = Notebook(2, time=77)
    process = TreeBroadcast(notebook, FullCube(2))
    assert [process.publish(b"a"), process.publish(b"b")] == [1, 2]
    assert [(p.source, p.sequence, p.timestamp, p.payload) for p in notebook.delivered] == [
        (2, 1, 77, b"a"),
        (2, 2, 77, b"b"),
    ]


def test_all_copies_of_a_publication_are_one_object() -> None:
    """Messages are frozen, so that a simulation need not copy them."""
    notebook = Notebook(0)
    TreeBroadcast(notebook, FullCube(3)).publish(b"")
    assert {id(message) for _, message in notebook.sent} == {id(notebook.delivered[0])}
    assert len(notebook.sent) == 3


def causal_violations(run: Broadcast) -> int:
    """Deliveries of something whose past had not been delivered there, by the order of rows in the trace."""
    past: dict[tuple[int, int], set[tuple[int, int]]] = {}
    delivered: dict[int, set[tuple[int, int]]] = {node: set() for node in run.processes}
    violations = 0
    for row in run.trace.table().to_pylist():
        identity = (row["source"], row["sequence"])
        known = delivered[row["node"]]
        if row["event"] == "publish":
            past[identity] = known.union(*(past[each] for each in known))
        elif row["event"] == "deliver":
            violations += not past[identity] <= known
            known.add(identity)
    return violations


def conversation(seed: int, order: Callable[[int], Order] | None) -> Broadcast:
    """Eight nodes that publish five times each, over links of very different delays."""
    network = NetworkModel(NormalDelay(40, 60), reordering=0.2, reordering_window=300)
    run = Broadcast(8, network=network, order=order, level="deliveries", seed=seed)
    for turn in range(5):
        for node in range(8):
            run.engine.at(50 * turn + 7 * node, PublishAction(node))
    run.engine.run()
    return run


@pytest.mark.parametrize("seed", range(5))
def test_with_vectors_no_node_sees_an_answer_before_its_question(seed: int) -> None:
    run = conversation(seed, CausalVectors)
    assert causal_violations(run) == 0
    assert set(deliveries(run).values()) == {1}
    assert sum(deliveries(run).values()) == 8 * 8 * 5
    assert sum(order.held_total for order in run.orders.values()) > 0


@pytest.mark.parametrize("seed", range(5))
def test_without_an_order_they_do(seed: int) -> None:
    """The same conversations, so that the test above is known to be able to fail."""
    assert causal_violations(conversation(seed, None)) > 0


def test_the_hops_of_a_tree_add_up() -> None:
    """A copy at depth h arrives after h hops of transmission, delay and processing, plus what it waited in queues."""
    run = Broadcast(8, network=NetworkModel(ConstantDelay(1000), transmission=0, processing=7))
    run.engine.at(0, PublishAction(5))
    run.engine.run()
    latency = {row["node"]: row["value"] for row in run.trace.table().to_pylist() if row["event"] == "deliver"}
    assert latency == {node: 1007 * (node ^ 5).bit_count() for node in range(8)}
