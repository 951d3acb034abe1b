"""Admission: who belongs to a cluster and under which identifier, through deaths at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest

from antiphon.kernel import UsageError
from antiphon.membership.admission import Admission, AdmissionOptions, Peer, Phase
from antiphon.membership.admission_roster import MEMORY_OF_THE_GONE, Roster
from antiphon.transport.admission_messages import (
    MAXIMUM_IDENTIFIER,
    Accept,
    AdmissionMessage,
    Announce,
    EnterRequest,
    Full,
    Grant,
    JoinRequest,
    LeaveRequest,
    LeaveResponse,
    Listed,
    Redirect,
    Reject,
    Wait,
)
from tests.membership.admission_world import OPTIONS, World, explore


def identifiers(world: World) -> dict[str, int | None]:
    """Who is in, under which identifier."""
    return {
        name: node.admission.me.identifier
        for name, node in world.nodes.items()
        if node.is_alive and node.phase is Phase.IN
    }


def scene(
    old: Sequence[str], new: dict[str, str], leave: Sequence[str] = (), crash: Sequence[str] = ()
) -> Callable[[], World]:
    """Some are in, others join through the named contacts, while some leave or die at any moment."""

    def build() -> World:
        world = World(AdmissionOptions(maximum_nodes=16, retry_ticks=10, attempts=3))
        world.establish(*old)
        for name, contact in new.items():
            world.add(name, [contact])
        world.to_leave = list(leave)
        world.to_crash = list(crash)
        world.log.clear()
        return world

    return build


# One after the other.


def test_the_first_node_places_itself() -> None:
    world = World()
    node = world.add("a", ["a"])
    world.run_until_quiet()
    assert node.is_in
    assert identifiers(world) == {"a": 0}


def test_a_join_message_by_message() -> None:
    """The contact redirects to the registrar; everybody accepts; everybody enters the newcomer."""
    world = scene("ab", {"x": "b"})()
    world.run_until_quiet()
    assert [line.split("(")[0] for line in world.log] == [
        "start x ",
        "x -> b: JoinRequest",
        "b -> x: Redirect",
        "x -> a: JoinRequest",
        "a -> x: Grant",
        "x -> a: Announce",
        "a -> x: Accept",
        "x -> b: Announce",
        "b -> x: Accept",
        "x -> a: EnterRequest",
        "a -> x: EnterResponse",
        "x -> b: EnterRequest",
        "b -> x: EnterResponse",
    ]
    assert identifiers(world) == {"a": 0, "b": 1, "x": 2}


def test_a_clean_leave_and_a_fresh_identifier_for_the_next() -> None:
    world = scene("abc", {}, leave="c")()
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "b": 1}
    assert world.nodes["a"].farewells == ["c"]
    assert world.nodes["a"].crashes == [], "the end of a leaver's link is no crash"
    world.add("x", ["b"])
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "b": 1, "x": 3}


def test_the_last_node_may_leave() -> None:
    world = scene("a", {}, leave="a")()
    world.run_until_quiet()
    assert not world.nodes["a"].is_alive


def test_when_the_registrar_has_left_the_next_lowest_places_newcomers() -> None:
    world = scene("abc", {}, leave="a")()
    world.run_until_quiet()
    world.add("x", ["c"])
    world.run_until_quiet()
    assert identifiers(world) == {"b": 1, "c": 2, "x": 3}


def test_a_newcomer_that_changes_its_mind_is_forgotten() -> None:
    world = scene("ab", {"x": "a"})()
    while world.nodes["x"].phase is not Phase.ANNOUNCING:
        world.take(world.steps()[0])
    world.nodes["x"].admission.leave()
    world.run_until_quiet()
    assert len(world.nodes["a"].admission.roster) == 1
    world.add("y", ["b"])
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "b": 1, "y": 3}, "the identifier that was given up is not given again"


def test_a_node_that_wants_to_leave_while_it_enters_enters_first() -> None:
    world = scene("a", {"x": "a"})()
    while world.nodes["x"].phase is not Phase.ENTERING:
        world.take(world.steps()[0])
    world.nodes["x"].admission.leave()
    world.run_until_quiet()
    assert world.nodes["x"].is_in
    assert world.nodes["a"].farewells == ["x"]


# Coming back.


def test_a_node_comes_back_under_its_former_identifier() -> None:
    world = scene("abc", {}, crash="b")()
    world.run_until_quiet()
    assert world.nodes["a"].crashes == ["b"]
    world.add("b2", ["a"], address="b", wanted=1, former="b")
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "b2": 1, "c": 2}


def test_a_node_may_be_back_before_its_end_was_noticed() -> None:
    """Who shows the name of its former life says that it is over."""
    world = World()
    world.establish("a", "b", "c")
    world.nodes["b"].is_alive = False
    world.links = {pair: queue for pair, queue in world.links.items() if "b" not in pair}
    world.add("b2", ["a"], address="b", wanted=1, former="b")
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "b2": 1, "c": 2}
    assert world.nodes["c"].crashes == ["b"]


def test_without_the_name_of_the_former_life_the_identifier_is_a_fresh_one() -> None:
    world = scene("ab", {}, leave="b")()
    world.run_until_quiet()
    world.add("thief", ["a"], wanted=1, former="somebody")
    world.run_until_quiet()
    assert identifiers(world) == {"a": 0, "thief": 2}


def test_an_identifier_that_somebody_else_holds_is_not_given_back() -> None:
    world = World()
    world.establish("a", "b")
    world.add("x", ["a"], wanted=1, former="y")
    world.add("z", ["a"], wanted=0, former="y")
    world.run_until_quiet()
    assert sorted(identifiers(world).values(), key=lambda i: i or 0) == [0, 1, 2, 3]


def test_a_cluster_that_starts_again_gives_no_identifier_of_its_past() -> None:
    world = World()
    node = world.add("a", wanted=3, former="old")
    node.admission.roster.heard_of(7)
    world.add("x", ["a"])
    world.run_until_quiet()
    assert identifiers(world) == {"a": 3, "x": 8}


# Several at once.


@pytest.mark.parametrize("newcomers", [2, 3])
def test_newcomers_at_once_through_different_contacts(newcomers: int) -> None:
    for seed in range(150):
        contacts = dict(zip("xyz"[:newcomers], "abc", strict=False))
        world = scene("abc", contacts)()
        world.run_until_quiet(Random(seed))
        found = identifiers(world)
        assert sorted(found) == ["a", "b", "c", *"xyz"[:newcomers]]
        assert sorted(i for i in found.values() if i is not None) == list(range(3 + newcomers))


def test_a_newcomer_may_be_the_contact_of_another() -> None:
    for seed in range(50):
        world = scene("a", {"x": "a", "y": "x", "z": "y"})()
        world.run_until_quiet(Random(seed))
        assert sorted(identifiers(world).values(), key=lambda i: i or 0) == [0, 1, 2, 3]


def test_an_identifier_granted_twice_is_owned_once() -> None:
    """The registrar dies before anybody else hears of what it granted; its successor grants the same."""
    world = scene("abc", {"x": "a", "y": "b"})()
    for step in (("start", "x", ""), ("arrive", "a", "x"), ("arrive", "x", "a")):
        world.take(step)
    assert world.nodes["x"].admission.me.identifier == 3
    held = world.links.pop(("x", "b")), world.links.pop(("x", "c"))
    world.to_crash = ["a"]
    world.take(("crash", "a", "unsent"))
    world.take(("arrive", "b", "a"))
    for step in (("start", "y", ""), ("arrive", "b", "y"), ("arrive", "y", "b")):
        world.take(step)
    assert world.nodes["y"].admission.me.identifier == 3
    world.links["x", "b"], world.links["x", "c"] = held
    world.run_until_quiet(Random(1))
    found = identifiers(world)
    assert sorted(found) == ["b", "c", "x", "y"]
    assert found["x"] != found["y"]
    assert any("Reject" in line for line in world.log)


# Deaths and leaves at every step.


def steps_of_a_join() -> int:
    world = scene("abc", {"x": "b", "y": "c"})()
    world.run_until_quiet()
    return len(world.log)


STEPS = steps_of_a_join()


@pytest.mark.parametrize("how", ["sent", "unsent"])
@pytest.mark.parametrize("victim", ["a", "b", "x"])
@pytest.mark.parametrize("moment", range(STEPS))
def test_somebody_dies_at_every_step_of_two_joins(victim: str, how: str, moment: int) -> None:
    """The registrar, a contact, a newcomer: the others go on, whatever had left the victim."""
    for seed in range(4):
        random = Random(seed)
        world = scene("abc", {"x": "b", "y": "c"})()
        for _ in range(moment):
            steps = world.steps()
            if steps:
                world.take(random.choice(steps) if seed else steps[0])
        world.to_crash = [victim]
        world.take(("crash", victim, how))
        world.run_until_quiet(random if seed else None)
        survivors = {"a", "b", "c", "x", "y"} - {victim}
        assert set(identifiers(world)) >= survivors - ({"x"} if victim == "b" else set())


@pytest.mark.parametrize("leaver", ["a", "b", "c"])
@pytest.mark.parametrize("moment", range(STEPS))
def test_somebody_leaves_at_every_step_of_two_joins(leaver: str, moment: int) -> None:
    for seed in range(4):
        random = Random(seed)
        world = scene("abc", {"x": "a", "y": "a"})()
        for _ in range(moment):
            steps = world.steps()
            if steps:
                world.take(random.choice(steps) if seed else steps[0])
        world.to_leave = [leaver]
        world.take(("leave", leaver, ""))
        world.run_until_quiet(random if seed else None)
        assert not world.nodes[leaver].is_alive
        for node in world.nodes.values():
            assert node.crashes == []
            assert node.refusal is None or leaver == "a", "only those whose contact has gone may be refused"


def test_a_leaver_stays_until_the_newcomers_that_it_accepted_are_in() -> None:
    """Otherwise a newcomer would serve a part of the cube without knowing the leaver, nor what the leaver leaves."""
    world = scene("ab", {"x": "a"})()
    while "x" not in world.nodes["b"].admission.roster:
        world.take(world.steps()[0])
    world.to_leave = ["b"]
    world.take(("leave", "b", ""))
    while any(isinstance(item, LeaveRequest) for item in world.links["b", "x"]):
        world.take(("arrive", "x", "b"))
    assert not world.nodes["x"].is_in
    assert not any(isinstance(item, LeaveResponse) for item in world.links["x", "b"])
    world.run_until_quiet()
    assert world.nodes["x"].farewells == ["b"], "it had the leaver in its fabric until it was in"
    assert not world.nodes["b"].is_alive


def test_random_schedules_with_deaths_and_leaves() -> None:
    placed = 0
    for seed in range(400):
        random = Random(seed)
        world = scene("abc"[: random.randint(2, 3)], {})()
        world.lively_timers = random.random() < 0.3
        for name in "wxyz"[: random.randint(1, 4)]:
            world.add(name, [random.choice(list(world.nodes))])
        names = list(world.nodes)
        # One stays from beginning to end, as the argument for uniqueness asks.
        world.to_leave = random.sample(names[1:], random.randint(0, 2))
        world.to_crash = random.sample(names[1:], random.randint(0, 1))
        world.run_until_quiet(random)
        placed += len(identifiers(world))
    assert placed > 800


@pytest.mark.parametrize(
    ("build", "states"),
    [
        (scene("ab", {"x": "b"}, crash="a"), 100),
        (scene("ab", {"x": "b"}, crash="x"), 100),
        (scene("ab", {"x": "b"}, leave="a"), 200),
        (scene("ab", {"x": "a"}, leave="ab"), 400),
        (scene("a", {"x": "a", "y": "a"}), 700),
    ],
)
def test_every_schedule_of_a_small_cluster(build: Callable[[], World], states: int) -> None:
    found, ends = explore(build)
    assert found > states
    assert ends >= 1


@pytest.mark.slow
def test_every_schedule_of_two_newcomers_of_which_one_dies() -> None:
    found, ends = explore(scene("a", {"x": "a", "y": "a"}, crash="x"))
    assert found > 3000
    assert ends > 10


# Refusals and limits.


def test_a_full_cluster_refuses_and_says_why() -> None:
    world = World(AdmissionOptions(maximum_nodes=2, retry_ticks=10, attempts=3))
    world.establish("a", "b")
    node = world.add("x", ["b"])
    world.run_until_quiet()
    assert node.refusal == "the cluster has 2 nodes, its maximum; raise the maximum at all nodes"


def test_of_too_many_at_once_some_are_refused() -> None:
    for seed in range(50):
        world = World(AdmissionOptions(maximum_nodes=3, retry_ticks=10, attempts=3))
        world.establish("a")
        for name in "wxyz":
            world.add(name, ["a"])
        world.run_until_quiet(Random(seed))
        assert len(identifiers(world)) <= 3


def test_where_nobody_answers_a_newcomer_gives_up() -> None:
    world = World()
    node = world.add("x", ["nowhere", "elsewhere"])
    world.run_until_quiet()
    assert node.refusal is not None
    assert node.refusal.startswith("no node at @nowhere, @elsewhere could place this one; check")
    assert world.time == OPTIONS.retry_ticks * OPTIONS.attempts * 2


def test_when_all_identifiers_were_given_newcomers_are_refused() -> None:
    world = World()
    world.establish("a")
    world.nodes["a"].admission.roster.heard_of(MAXIMUM_IDENTIFIER)
    node = world.add("x", ["a"])
    world.run_until_quiet()
    assert node.refusal == "all identifiers were given; start a new cluster"


def test_when_the_whole_cluster_is_gone_newcomers_do_not_found_another() -> None:
    world = scene("a", {"x": "a", "y": "a"})()
    while world.nodes["y"].phase is not Phase.ANNOUNCING or world.nodes["x"].phase is not Phase.ANNOUNCING:
        world.take(next(step for step in world.steps() if world.nodes[step[1]].phase is not Phase.ANNOUNCING))
    world.to_crash = ["a"]
    world.take(("crash", "a", "unsent"))
    world.run_until_quiet()
    assert identifiers(world) == {}
    assert world.nodes["x"].refusal is not None
    assert world.nodes["y"].refusal is not None


def test_misuse_is_the_callers_fault() -> None:
    world = World()
    node = world.add("a")
    world.run_until_quiet()
    with pytest.raises(UsageError, match="this node is in already; a node joins once in its life"):
        node.admission.start([])
    with pytest.raises(UsageError, match="needs an instance name and an address"):
        Admission(node, Peer("", "@a"))
    with pytest.raises(UsageError, match="a cluster holds at least 1 node, not 0"):
        Admission(node, Peer("a", "@a"), AdmissionOptions(maximum_nodes=0))


def test_late_and_unexpected_messages_do_no_harm() -> None:
    world = scene("ab", {})()
    admission = world.nodes["a"].admission
    stranger = Peer("s", "@s", 9)
    before = admission.state()
    late: list[AdmissionMessage] = [
        Wait(stranger),
        Full(stranger, "no"),
        Redirect(stranger, stranger),
        Grant(stranger, 5, ()),
        Reject(stranger, 0, 1),
        LeaveResponse(stranger),
        Announce(Peer("s", "@s"), ()),
        EnterRequest(Peer("s", "@s")),
    ]
    for message in late:
        admission.receive(message)
    assert admission.state() == before


def test_the_gone_are_remembered_within_bounds() -> None:
    roster = Roster(maximum_nodes=3, highest=-1)
    for number in range(100):
        roster.note(Peer(f"i{number}", "@", number), True)
        roster.end(f"i{number}")
    assert len(roster) == 0
    assert [number for number in range(100) if roster.is_gone(f"i{number}")] == list(
        range(100 - 3 * MEMORY_OF_THE_GONE, 100)
    )
    roster.note(Peer("i99", "@", 99), True)
    assert "i99" not in roster, "hearsay does not bring the gone back"


# On the wire.


@pytest.mark.parametrize(
    "message",
    [
        JoinRequest(Peer("i", "h:1"), -1, 5, "former"),
        Accept(Peer("i", "h:1", 0), 3, True, 4, (Listed(Peer("j", "h:2", 1), False),)),
        LeaveRequest(Peer("i", "h:1", 7)),
    ],
)
def test_messages_are_described_well_enough_to_be_encoded(message: AdmissionMessage) -> None:
    decoder: msgspec.msgpack.Decoder[AdmissionMessage] = msgspec.msgpack.Decoder(AdmissionMessage)
    assert decoder.decode(msgspec.msgpack.encode(message)) == message


def test_an_identifier_that_is_too_great_is_not_decoded() -> None:
    decoder: msgspec.msgpack.Decoder[AdmissionMessage] = msgspec.msgpack.Decoder(AdmissionMessage)
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(msgspec.msgpack.encode(EnterRequest(Peer("i", "h:1", 1 << 40))))
