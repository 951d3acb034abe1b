"""The explorer of whole clusters with a client: what it follows, which states are one, and what it finds."""

from __future__ import annotations

import random

import pytest

from antiphon.sessions.unacked import UnackedBatches
from antiphon.simulator.explore.cluster_search import ClusterSearch, narrate, replay
from antiphon.simulator.explore.cluster_world import ARRIVE, CRASH, Choice, ClusterSystem, ExploredCluster

FABRICS = ("cube", "tree", "gossip")


@pytest.mark.parametrize("fabric", FABRICS)
def test_all_orders_without_a_crash_keep_the_promises(fabric: str) -> None:
    found = ClusterSearch(ClusterSystem(fabric, crashing=None), None, 0, 10_000).run()
    assert found.violation is None and found.exhausted
    assert found.states > 30 and found.ends > 1


@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_a_crash_of_the_clients_node_at_every_step_breaks_no_promise(fabric: str) -> None:
    found = ClusterSearch(ClusterSystem(fabric, script=("causal",)), 0, 0, 20_000).run()
    assert found.violation is None and found.exhausted
    assert found.states > 1000 and found.ends > 30
    assert found.waited_seconds < 5, "nobody waits for what only the client can bring"


def test_a_lost_message_is_found_and_its_schedule_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that forgets what was not safe loses what only its crashed node had."""
    monkeypatch.setattr(UnackedBatches, "connection_lost", lambda kept: kept.clear())
    found = ClusterSearch(ClusterSystem("cube", script=("causal",)), 0, 0, 10_000).run()
    assert found.violation is not None and found.violation.startswith(("lost: ", "stuck: 0.1 of client 0 is neither"))
    assert found.schedule[0] == "the client begins: causal"
    assert any(line.startswith("machine0 crashes") for line in found.schedule)


def test_a_limit_ends_the_search_and_says_so() -> None:
    found = ClusterSearch(ClusterSystem("cube"), None, 0, 50).run()
    assert (found.states, found.exhausted, found.violation) == (50, False, None)


def test_more_reorderings_reach_more_states() -> None:
    states = [
        ClusterSearch(ClusterSystem("cube", script=("causal",), crashing=1), reorderings, 0, 10_000).run().states
        for reorderings in (0, 1)
    ]
    assert states[0] < states[1]


def test_early_timers_are_choices_as_often_as_is_allowed() -> None:
    states = [
        ClusterSearch(ClusterSystem("cube", script=("connect",), crashing=None), 0, early, 20_000).run().states
        for early in (0, 1)
    ]
    assert states[0] < states[1]


def state_of(world: ExploredCluster) -> str:
    """All that is easily seen of a cluster as text; only the cube can tell its whole state."""
    up = [node for node in world.nodes if node is not None and node.process is not None]
    tells = world.system.fabric == "cube"
    processes = [node.process.state() if tells else str(node.process.unfinished()) for node in up if node.process]
    known = [str(sorted(node.membership.identifiers())) for node in up]
    waiting = [(pipe.number, is_forth, type(head.frame)) for pipe, is_forth, head in world.network.channels()]
    return "\n".join([*processes, *known, str(world.judge.unanswered()), str(world.judge.deliveries), str(waiting)])


@pytest.mark.parametrize("fabric", FABRICS)
def test_schedules_with_equal_fingerprints_lead_to_equal_states(fabric: str) -> None:
    """Random schedules: wherever two of them have one fingerprint, all processes and judges are in one state."""
    draws = random.Random(1)
    known: dict[int, str] = {}
    met = 0
    for _ in range(30):
        world = ExploredCluster(ClusterSystem(fabric))
        for _ in range(25):
            choices = world.choices(False)
            if not choices:
                break
            choice = draws.choice(choices)
            expected = world.fingerprint(choice)
            world.take(choice)
            assert world.fingerprint() == expected, "a state is known before its step is taken"
            state = state_of(world)
            met += expected in known
            assert known.setdefault(expected, state) == state
    assert met > 20


def test_independent_steps_in_two_orders_lead_to_one_state_and_dependent_ones_to_two() -> None:
    system = ClusterSystem("cube", crashing=1)
    world = ExploredCluster(system)
    path: list[Choice] = []
    while sum(choice[0] == ARRIVE for choice in world.choices(False)) < 2:
        path.append(world.choices(False)[0])
        world.take(path[-1])
    first, second = [choice for choice in world.choices(False) if choice[0] == ARRIVE][:2]
    one, other = replay(system, [*path, first, second]), replay(system, [*path, second, first])
    assert len({world.describe(first).split()[0], world.describe(second).split()[0]}) == 2, "at two machines"
    assert one.fingerprint() == other.fingerprint() and state_of(one) == state_of(other)
    crash = (CRASH,)
    before, after = replay(system, [*path, crash, first]), replay(system, [*path, first, second, crash])
    assert before.fingerprint() != after.fingerprint()


def test_a_crashed_node_may_lose_what_it_has_sent_on_some_of_its_connections() -> None:
    system = ClusterSystem("cube")
    world = ExploredCluster(system)
    path: list[Choice] = []
    while not any(len(choice) == 5 for choice in world.choices(False)):
        plain = [choice for choice in world.choices(False) if choice[0] != CRASH]
        path.append(plain[0])
        world.take(plain[0])
    crashes = [choice for choice in world.choices(False) if choice[0] == CRASH]
    channels = [choice for choice in world.choices(False) if choice[0] == ARRIVE]
    assert len(crashes) == 2 ** len(channels), "each connection with something on its way may lose it"
    told = [narrate(system, [*path, crash])[-1] for crash in crashes]
    assert told[0] == "machine0 crashes"
    assert told[-1] == f"machine0 crashes with what it has sent on {len(channels)} connections"
