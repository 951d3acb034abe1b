"""VCube-PS while nodes join and leave: what one process does when it is told."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.cube.messages import FrontierHandover, Subscribe, SurveyResponse
from antiphon.fabrics.cube.topology import FullCube, PartialCube
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel import ProtocolError, UsageError
from antiphon.kernel.message import publication_key
from tests.support import Notebook


def test_a_process_told_of_a_newcomer_gives_it_a_part_of_the_cube() -> None:
    process = VCubePs(notebook := Notebook(0), FullCube(1), Options())
    process.joined(5)
    process.subscribe(7)
    assert [destination for destination, _ in notebook.sent] == [1, 5]
    assert process.nodes.cube.dimension == 3


def test_nodes_that_are_told_do_not_change_the_cube_of_others() -> None:
    shared = PartialCube(1, [0, 1])
    process = VCubePs(Notebook(0), shared, Options())
    process.joined(2)
    process.left(1)
    assert shared.members() == [0, 1]
    assert process.nodes.cube.members() == [0, 2]


def test_a_node_that_has_left_is_in_no_view_any_more() -> None:
    process = VCubePs(notebook := Notebook(0), PartialCube(2, [0, 1, 2]), Options())
    process.receive(1, Subscribe(1, 1, 0))
    process.subscribe(0)
    process.receive(1, Subscribe(1, 2, 0))
    topic = process.topic(0)
    assert topic is not None
    assert topic.view.contains(1)
    process.left(1)
    assert not topic.view.contains(1)
    assert process.unfinished() > 0, "the leaver still owes its answer"
    assert len(notebook.sent) == 4


def test_the_word_of_a_node_that_has_left_since_does_not_make_it_a_member() -> None:
    """Its answer was on the way up the tree when it said goodbye."""
    from antiphon.fabrics.cube.messages import member_entry

    process = VCubePs(Notebook(0), PartialCube(2, [0, 1, 2, 3]), Options())
    process.subscribe(0)
    process.left(3)
    process.receive(1, SurveyResponse(0, 1, 0, vec[i64](), vec[i64](), False))
    process.receive(
        2, SurveyResponse(0, 1, 0, vec[i64]([member_entry(2, 1, True), member_entry(3, 1, True)]), vec[i64](), False)
    )
    topic = process.topic(0)
    assert topic is not None
    assert topic.view.active_members() == [2]


def test_a_leaver_leaves_its_past_with_everybody_and_later_newcomers_get_it_too() -> None:
    leaver = VCubePs(notebook := Notebook(2), PartialCube(2, [0, 1, 2]), Options())
    leaver.receive(0, FrontierHandover(0, vec[i64]([7, 1, publication_key(9, 4)])))
    leaver.leave()
    assert [(to, list(m.entries)) for to, m in notebook.sent if isinstance(m, FrontierHandover)] == [
        (0, [7, 1, publication_key(9, 4)]),
        (1, [7, 1, publication_key(9, 4)]),
    ]
    heir = VCubePs(notebook := Notebook(1), PartialCube(2, [0, 1, 2]), Options())
    heir.receive(2, FrontierHandover(2, vec[i64]([7, 1, publication_key(9, 4)])))
    heir.joined(3)
    destination, message = notebook.sent[-1]
    assert destination == 3
    assert isinstance(message, FrontierHandover)
    assert list(message.entries) == [7, 1, publication_key(9, 4)]


def test_a_bequest_that_is_cut_off_is_the_peers_fault() -> None:
    process = VCubePs(Notebook(0), FullCube(1), Options())
    with pytest.raises(ProtocolError, match="node 1 sent frontiers that are cut off"):
        process.receive(1, FrontierHandover(1, vec[i64]([7, 3, 1])))


def test_where_nodes_come_and_go_there_is_no_directory() -> None:
    process = VCubePs(Notebook(0), FullCube(1), Options(directory=True))
    with pytest.raises(UsageError, match="with a directory the set of nodes is fixed"):
        process.joined(2)


def test_other_fabrics_say_that_their_nodes_are_fixed() -> None:
    broadcast = TreeBroadcast(Notebook(0), FullCube(1))
    with pytest.raises(UsageError, match="fixed set of nodes; start all of them together"):
        broadcast.joined(2)
    with pytest.raises(UsageError, match="fixed set of nodes; stop all of them together"):
        broadcast.left(1)


def test_a_process_that_comes_back_counts_on_from_where_it_was() -> None:
    process = VCubePs(notebook := Notebook(0), FullCube(1), Options())
    process.begin_counting_at(41)
    process.subscribe(0)
    assert notebook.sent[0][1].sequence == 42
