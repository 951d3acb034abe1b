"""VCube-PS while nodes join and leave: the claims of docs/proofs, on chosen and on random schedules."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.cube.messages import Answer, Bequest, Subscribe
from antiphon.fabrics.cube.topology import FullCube, PartialCube
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel import Message, ProtocolError, UsageError
from antiphon.kernel.message import Publication, publication_key
from antiphon.membership.admission import Phase
from tests.fabrics.cube.changing_world import ChangingWorld
from tests.membership.admission_world import explore
from tests.support import Notebook

Held = Callable[[str, str, object], bool]
"""Whether a message from one to another must wait."""


def nothing(sender: str, target: str, message: object) -> bool:
    return False


def run_but(world: ChangingWorld, held: Held) -> None:
    """Take steps until only messages are left that must wait."""
    while True:
        for step in world.steps():
            what, target, sender = step
            if what.startswith("arrive") and held(sender, target, world.links[sender, target][int(what.split()[1])]):
                continue
            world.take(step)
            break
        else:
            return


# The process alone.


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
    process.receive(1, Answer(0, 1, 0, vec[i64](), vec[i64](), False))
    process.receive(
        2, Answer(0, 1, 0, vec[i64]([member_entry(2, 1, True), member_entry(3, 1, True)]), vec[i64](), False)
    )
    topic = process.topic(0)
    assert topic is not None
    assert topic.view.active_members() == [2]


def test_a_leaver_leaves_its_past_with_everybody_and_later_newcomers_get_it_too() -> None:
    leaver = VCubePs(notebook := Notebook(2), PartialCube(2, [0, 1, 2]), Options())
    leaver.receive(0, Bequest(0, vec[i64]([7, 1, publication_key(9, 4)])))
    leaver.leave()
    assert [(to, list(m.entries)) for to, m in notebook.sent if isinstance(m, Bequest)] == [
        (0, [7, 1, publication_key(9, 4)]),
        (1, [7, 1, publication_key(9, 4)]),
    ]
    heir = VCubePs(notebook := Notebook(1), PartialCube(2, [0, 1, 2]), Options())
    heir.receive(2, Bequest(2, vec[i64]([7, 1, publication_key(9, 4)])))
    heir.joined(3)
    destination, message = notebook.sent[-1]
    assert destination == 3
    assert isinstance(message, Bequest)
    assert list(message.entries) == [7, 1, publication_key(9, 4)]


def test_a_bequest_that_is_cut_off_is_the_peers_fault() -> None:
    process = VCubePs(Notebook(0), FullCube(1), Options())
    with pytest.raises(ProtocolError, match="node 1 sent a bequest that is cut off"):
        process.receive(1, Bequest(1, vec[i64]([7, 3, 1])))


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


# Whole worlds.


def departed_past(without: type[Message] | None) -> ChangingWorld:
    """A publication that all have received and nobody but its publisher, which then leaves, counts as past.

    ``c`` and ``d`` publish, and each lacks the other's. ``a`` has both and publishes what follows them: ``c`` and ``d``
    have received it and cannot deliver it. Then ``a`` leaves, ``b`` subscribes, and only now the rest arrives.
    """
    world = ChangingWorld(without=without)
    world.establish("a", "b", "c", "d")
    for name in "acd":
        world.scripts[name] = [("subscribe", 0)]
    run_but(world, nothing)

    def between_c_and_d(sender: str, target: str, message: object) -> bool:
        return isinstance(message, Publication) and {sender, target} == {"c", "d"} and message.source != 0

    for name in "cda":
        world.scripts[name] = [("publish", 0)]
        run_but(world, between_c_and_d)
    world.to_leave = ["a"]
    run_but(world, between_c_and_d)
    assert not world.nodes["a"].is_alive
    world.scripts["b"] = [("subscribe", 0)]
    run_but(world, between_c_and_d)
    run_but(world, nothing)
    world.scripts["c"] = [("publish", 0)]
    run_but(world, nothing)
    return world


def test_nobody_waits_for_what_only_a_departed_node_counted_as_past() -> None:
    departed_past(None).check_at_the_end()


def test_without_bequests_a_newcomer_would_wait_for_ever() -> None:
    with pytest.raises(AssertionError, match="b is stuck"):
        departed_past(Bequest).check_at_the_end()


def test_a_survey_that_passes_a_leaver_is_answered() -> None:
    """The question reaches the leaver before the farewell of whoever asks, so it still answers for its part."""
    world = ChangingWorld()
    world.establish("a", "b", "c", "d")

    def to_c(sender: str, target: str, message: object) -> bool:
        return target == "c"

    world.scripts["a"] = [("subscribe", 0)]
    run_but(world, to_c)
    world.to_leave = ["c"]
    run_but(world, to_c)
    assert world.process_of("a").unfinished() > 0
    assert world.nodes["c"].phase is Phase.LEAVING
    run_but(world, nothing)
    world.check_at_the_end()
    assert not world.nodes["c"].is_alive


def test_two_who_join_and_subscribe_at_once_find_each_other() -> None:
    world = ChangingWorld()
    world.establish("a")
    for name in "xy":
        world.add(name, ["a"])
        world.scripts[name] = [("subscribe", 0), ("publish", 0)]
    world.run_until_quiet(Random(1))
    assert world.oracle.findings.publications == 2
    for name in "xy":
        topic = world.process_of(name).topic(0)
        assert topic is not None
        assert len(topic.view.active_members()) == 1


def random_world(seed: int, order: str) -> ChangingWorld:
    """Some are there, others join, many leave; all subscribe and publish."""
    random = Random(seed)
    world = ChangingWorld((0, 1), order)
    world.establish(*"abcd"[: random.randint(1, 4)])
    present = list(world.nodes)
    for name in "wxyz"[: random.randint(1, 4)]:
        world.add(name, [random.choice(present)])
    names = list(world.nodes)
    operations = ["publish"] * 4 + ["subscribe", "unsubscribe"]
    for name in names:
        later = [(random.choice(operations), random.choice([0, 0, 0, 1])) for _ in range(random.randint(1, 8))]
        world.scripts[name] = [("subscribe", 0), *later]
    world.to_leave = random.sample(names, random.randint(0, len(names) - 1))
    world.run_until_quiet(random)
    return world


@pytest.mark.parametrize("order", ["total", "causal", "fifo", "none"])
def test_random_schedules_of_joins_leaves_and_publications(order: str) -> None:
    worlds = [random_world(seed, order) for seed in range(100)]
    assert sum(world.oracle.findings.deliveries for world in worlds) > 500
    assert sum(len(node.farewells) for world in worlds for node in world.nodes.values()) > 100


def test_every_schedule_of_a_join_while_a_member_publishes() -> None:
    """One member publishes while another node joins and subscribes: all orders of all messages."""

    def build() -> ChangingWorld:
        world = ChangingWorld()
        world.establish("a")
        world.scripts["a"] = [("subscribe", 0), ("publish", 0)]
        world.run_until_quiet()
        world.scripts["a"] = [("publish", 0)]
        world.add("x", ["a"])
        world.scripts["x"] = [("subscribe", 0)]
        return world

    states, ends = explore(build)
    assert states > 40
    assert ends > 1


def test_every_schedule_of_a_subscription_while_a_member_leaves() -> None:
    """A member publishes and leaves while another node subscribes: all orders of all messages."""

    def build() -> ChangingWorld:
        world = ChangingWorld()
        world.establish("a", "b")
        world.scripts["a"] = [("subscribe", 0)]
        world.run_until_quiet()
        world.scripts["a"] = [("publish", 0)]
        world.to_leave = ["a"]
        world.scripts["b"] = [("subscribe", 0)]
        return world

    states, ends = explore(build)
    assert states > 100
    assert ends > 1
