"""Causal aggregation (thesis, chapter 4): the worked examples, the defects of the printed algorithm, its packets."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import Cube, FullCube, Packet, PacketFormat, Traffic
from antiphon.kernel import ProtocolError, ProtocolMessage, UsageError, publication_key
from antiphon.kernel.message import Publication
from antiphon.orders import Ordered
from antiphon_lab.protocols.cube.causal_aggregation import AggregationOptions, CausalAggregation, causes_first
from tests.fabrics.cube.trees import partial
from tests.support import Notebook

Name = tuple[int, int]
"""Source and number of a publication."""


def publication(name: Name, *follows: Name, payload: bytes = b"") -> Publication:
    """A publication that names others in its compressed vector."""
    return Ordered(*name, 0, payload, vec[i64]([publication_key(*each) for each in follows]))


class NodeFour:
    """Node 4 of eight, the one of the thesis's examples. Its neighbours in the trees of 0 and 2: parents 0 and 6."""

    def __init__(
        self,
        options: AggregationOptions | None = None,
        form: PacketFormat | None = None,
        traffic: Traffic | None = None,
        cube: Cube | None = None,
    ) -> None:
        self.notebook = Notebook(4)
        self.cube = FullCube(3) if cube is None else cube
        self.process = CausalAggregation(self.notebook, self.cube, form, traffic, options)

    def gets(self, *publications: Publication) -> dict[int, list[list[Name]]]:
        """What a packet makes the node send: per child, the packets."""
        before = len(self.notebook.sent)
        packet: ProtocolMessage = publications[0] if len(publications) == 1 else Packet(list(publications))
        self.process.receive(self.cube.parent_in_tree(4, publications[0].source), packet)
        found: dict[int, list[list[Name]]] = {}
        for child, message in self.notebook.sent[before:]:
            inside = message.publications if isinstance(message, Packet) else [message]
            found.setdefault(child, []).append([(each.source, each.sequence) for each in inside])
        return found

    def delivered(self) -> list[Name]:
        return [(each.source, each.sequence) for each in self.notebook.delivered]


def test_example_1_an_effect_waits_for_the_cause_that_the_same_child_gets_from_here() -> None:
    """Figure 4.1: m2 before m1 before m0. Node 5 is our child for m2 and m0, and our parent for m1."""
    node = NodeFour()
    assert node.gets(publication((0, 1), (2, 1), (1, 1))) == {6: [[(0, 1)]]}
    assert node.process.held_back() == 1
    assert node.gets(publication((2, 1))) == {5: [[(0, 1), (2, 1)]]}
    assert node.process.held_back() == 0
    assert node.gets(publication((1, 1), (2, 1))) == {}
    assert node.delivered() == [(2, 1), (1, 1), (0, 1)]
    assert node.process.unfinished() == 0


def test_example_2_what_fills_a_gap_takes_everything_behind_it_along() -> None:
    node = NodeFour()
    assert node.gets(publication((2, 1))) == {5: [[(2, 1)]]}
    assert node.gets(publication((2, 3))) == {}
    assert node.gets(publication((0, 1), (2, 3))) == {6: [[(0, 1)]]}
    assert node.gets(publication((2, 2))) == {5: [[(2, 3), (0, 1), (2, 2)]]}
    assert node.delivered() == [(2, 1), (2, 2), (2, 3), (0, 1)]


def test_example_3_each_goes_to_each_child_once() -> None:
    node = NodeFour()
    assert node.gets(publication((0, 1), (2, 1))) == {6: [[(0, 1)]]}
    assert node.gets(publication((0, 2))) == {6: [[(0, 2)]]}
    assert node.gets(publication((2, 1))) == {5: [[(0, 1), (0, 2), (2, 1)]]}
    assert node.delivered() == [(2, 1), (0, 1), (0, 2)]


def test_example_4_in_causal_order_of_arrival_nothing_is_aggregated() -> None:
    node = NodeFour()
    assert node.gets(publication((2, 1))) == {5: [[(2, 1)]]}
    assert node.gets(publication((1, 1), (2, 1))) == {}
    assert node.gets(publication((0, 1), (2, 1), (1, 1))) == {5: [[(0, 1)]], 6: [[(0, 1)]]}


def test_b_1_cluster_1_gets_its_copies() -> None:
    """Algorithm 1 is printed with the range 1 < s <= h, which would forget the neighbour in cluster 1."""
    notebook = Notebook(4)
    CausalAggregation(notebook, FullCube(3)).publish(b"")
    assert [child for child, _ in notebook.sent] == [5, 6, 0]


def test_b_2_and_b_3_all_that_can_be_delivered_is_and_only_the_own_entry_counts_up() -> None:
    """The lines that the thesis lost, and the test over all other sources, which the paper prints as over s."""
    node = NodeFour()
    node.gets(publication((0, 2), (2, 1)))
    assert node.delivered() == []
    node.gets(publication((0, 1)))
    assert node.delivered() == [(0, 1)]
    node.gets(publication((2, 1)))
    assert node.delivered() == [(0, 1), (2, 1), (0, 2)]


def test_b_4_a_packet_is_handed_on_whole_unless_it_is_walked_through_causes_first() -> None:
    """Node 2 has sent two, the second of which is listed first; both go on to node 5."""
    packet = publication((2, 2)), publication((2, 1))
    assert NodeFour().gets(*packet) == {5: [[(2, 2), (2, 1)]]}
    assert NodeFour(AggregationOptions(causal_walk=True)).gets(*packet) == {5: [[(2, 1)], [(2, 2)]]}


def test_b_4_causes_stand_before_effects_whatever_the_packet() -> None:
    first, second = publication((2, 1)), publication((2, 2))
    other, last = publication((0, 1), (2, 2)), publication((6, 1), (0, 1))
    assert causes_first([last, other, second, first]) == [first, second, other, last]


def test_b_5_deliveries_follow_when_the_whole_packet_has_been_entered() -> None:
    """The sends of a packet stand before all of its deliveries, and deliveries keep causal order."""
    node = NodeFour()
    node.gets(publication((2, 2), (0, 1)), publication((2, 1)))
    assert node.delivered() == [(2, 1)]
    node.gets(publication((0, 1), (2, 1)))
    assert node.delivered() == [(2, 1), (0, 1), (2, 2)]


@pytest.mark.parametrize(
    ("options", "at_once"),
    [(AggregationOptions(), {}), (AggregationOptions(forgets_predecessors=True), {5: [[(0, 2)]]})],
)
def test_b_6_what_the_predecessor_misses_blocks_the_successor(
    options: AggregationOptions, at_once: dict[int, list[list[Name]]]
) -> None:
    """The second of node 0 names nothing new, so its compressed vector does not show that 2 is missing."""
    node = NodeFour(options)
    node.gets(publication((0, 1), (2, 1)))
    assert node.gets(publication((0, 2))) == {**at_once, 6: [[(0, 2)]]}
    together = [(0, 1), (2, 1)] if at_once else [(0, 1), (0, 2), (2, 1)]
    assert node.gets(publication((2, 1))) == {5: [together]}


def test_a_publication_is_freed_child_by_child() -> None:
    """It misses something that goes to all children and something that goes to the nearest only."""
    notebook = Notebook(0)
    process = CausalAggregation(notebook, FullCube(3))
    # Node 4 is served by 0 for nobody else; in the trees of 4 and 2 node 0 has two children and one.
    process.receive(4, publication((4, 2), (2, 1)))
    process.receive(4, publication((4, 1)))
    assert [(child, names(message)) for child, message in notebook.sent] == [
        (1, [(4, 1)]),
        (2, [(4, 2), (4, 1)]),
    ]
    process.receive(2, publication((2, 1)))
    assert [(child, names(message)) for child, message in notebook.sent[2:]] == [(1, [(4, 2), (2, 1)])]


def names(message: ProtocolMessage) -> list[Name]:
    inside = message.publications if isinstance(message, Packet) else [message]
    return [(each.source, each.sequence) for each in inside]


def test_where_nodes_are_missing_the_trees_of_the_others_decide() -> None:
    """Without node 5 nobody is our child in cluster 1; in the tree of 2 that leaves us a leaf."""
    node = NodeFour(cube=partial(3, [0, 1, 2, 3, 4, 6, 7]))
    assert node.gets(publication((0, 1), (2, 1))) == {6: [[(0, 1)]]}
    assert node.gets(publication((2, 1))) == {}
    assert node.process.unfinished() == 0


def test_what_arrives_again_is_ignored() -> None:
    node = NodeFour()
    early, held = publication((2, 2)), publication((0, 1), (2, 2))
    for each in (early, early, held, held):
        node.gets(each)
    assert node.gets(publication((2, 1))) == {5: [[(2, 2), (0, 1), (2, 1)]]}
    assert node.gets(early) == node.gets(held) == {}
    assert node.delivered() == [(2, 1), (2, 2), (0, 1)]


def test_packets_are_filled_up_to_the_largest_size_and_counted_as_published() -> None:
    """Smallest packet with two publications of 50 bytes: 20 + 2·50 + 2·2 + 2·4 + 4 = 136 bytes, one of them 76."""
    payload = bytes(50)
    for largest, packets, sizes in (
        (136, [[(0, 1), (2, 1)]], {76: 1, 80: 1, 136: 1}),
        (135, [[(0, 1)], [(2, 1)]], {76: 2, 80: 2}),
        (40, [[(0, 1)], [(2, 1)]], {40: 4}),
    ):
        traffic = Traffic(8, largest)
        node = NodeFour(form=PacketFormat(largest), traffic=traffic)
        node.gets(publication((0, 1), (2, 1), payload=payload))
        assert node.gets(publication((2, 1), payload=payload)) == {5: packets}
        node.gets(publication((6, 1), payload=payload))
        counted = {size: count for size, count in enumerate(traffic.by_bytes) if count}
        assert counted == {min(size, largest): count for size, count in sizes.items()}
        assert traffic.closed == len(packets) - 1
        assert traffic.largest[4] == len(packets[0])
        assert traffic.bytes_sent == 80 + 76 + (136 if len(packets) == 1 else 156)


def test_journeys_are_written_down_where_somebody_wants_them() -> None:
    traffic = Traffic(8, keeps_journeys=True)
    node = NodeFour(traffic=traffic)
    node.notebook.time = 7
    node.gets(publication((2, 2)), publication((2, 1)))
    node.process.publish(b"")
    first, second = publication_key(2, 1), publication_key(2, 2)
    assert list(traffic.receptions) == [4, second, 2, 7, 4, first, 2, 7]
    assert list(traffic.deliveries) == [4, first, 7, 4, second, 7]
    assert list(traffic.published) == [publication_key(4, 1), 1]


def test_a_packet_needs_room_beside_its_header() -> None:
    with pytest.raises(UsageError, match="a packet of 20 bytes has no room beside its header of 20"):
        PacketFormat(20)


class Riddle(ProtocolMessage):
    """A message that no broadcast knows."""


def test_an_unknown_message_is_the_fault_of_its_sender() -> None:
    with pytest.raises(ProtocolError, match="node 6 sent a Riddle, which a broadcast in packets does not know"):
        NodeFour().process.receive(6, Riddle(6, 1))
