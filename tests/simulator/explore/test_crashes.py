"""The explorer of crashes: what may happen to a node that fails, and to what it has sent."""

from __future__ import annotations

from antiphon.simulator.explore.crashes import (
    CRASH,
    RETURN,
    CrashingEnvironment,
    CrashingSystem,
    Failure,
    explore_failure,
)
from antiphon.simulator.explore.explorer import explore, narrate
from tests.simulator.explore.test_explorer import Flooding

TWICE = [[("publish", 0), ("publish", 0)], []]


class Pair(Flooding):
    """Two nodes that forget nothing, and recover nothing."""

    nodes = 2

    def frontier_keys(self, topic: int) -> list[int]:
        return []

    def subscribe(self, topic: int) -> None:
        pass

    def peer_lost(self, peer: int) -> None:
        self.delivered.append((-1, peer))


class Three(Pair):
    """The same with three."""

    nodes = 3


def test_what_is_sent_over_a_connection_arrives_in_order() -> None:
    """Without connections two publications overtake each other; over one they do not."""
    found = explore(Pair, TWICE)
    assert found.violation is not None and found.violation.startswith("fifo")
    found = explore_failure(Pair, TWICE, Failure(1, False))
    assert found.violation is None and found.exhausted


def test_what_a_dead_node_has_sent_may_arrive_here_and_not_there() -> None:
    found = explore_failure(Three, [[("publish", 0)], [], []], Failure(0, False))
    assert found.violation is not None and "completeness: 1" in found.violation
    assert "node 0 crashes" in found.schedule


def test_who_comes_back_is_owed_what_it_missed() -> None:
    found = explore_failure(Pair, [[("publish", 0)], []], Failure(1, True))
    assert (
        found.violation is not None
        and "publication 1 of node 0 on topic 0 at node 1: never delivered" in found.violation
    )
    assert "node 1 comes back" in found.schedule


def test_nothing_arrives_before_both_ends_know_of_a_new_connection() -> None:
    system = CrashingSystem(Pair, [[("publish", 0), ("publish", 0)], []], Failure(1, True))
    for step in ("node 0: publish 0", "node 1 crashes"):
        take(system, step)
    assert not system.in_flight, "what was on its way to it is gone"
    take(system, "node 1 comes back")
    assert (
        isinstance(system.processes[1].environment, CrashingEnvironment)
        and system.processes[1].environment.incarnation == 1
    )
    assert not any("is there" in system.describe(choice) for choice in system.choices()), "node 0 has not noticed yet"
    for step in ("node 0 is told that node 1 is lost", "node 0 is told that node 1 is found", "node 0: publish 0"):
        take(system, step)
    assert len(system.in_flight) == 1 and not any(choice >= 0 for choice in system.choices())
    take(system, "node 1 is told that node 0 is found")
    assert [choice for choice in system.choices() if choice >= 0] == [0]


def take(system: CrashingSystem, step: str) -> None:
    """Let something happen by its name."""
    (choice,) = [choice for choice in system.choices() if system.describe(choice) == step]
    system.take(choice)


def test_timers_expire_when_nothing_is_on_its_way_or_early_as_often_as_is_allowed() -> None:
    class Ticking(Pair):
        def start(self) -> None:
            super().start()
            self.environment.set_timer(5, 7)

        def expire(self, name: int) -> None:
            self.delivered.append((-2, name))

    def expiries(early_timers: int) -> list[str]:
        system = CrashingSystem(Ticking, [[("publish", 0)], []], Failure(1, False, 1, early_timers))
        take(system, "node 0: publish 0")
        return [system.describe(choice) for choice in system.choices() if "timer" in system.describe(choice)]

    assert expiries(0) == []
    assert expiries(1) == ["a timer of node 0 expires", "a timer of node 1 expires"]


def test_a_schedule_with_a_crash_can_be_told() -> None:
    def make() -> CrashingSystem:
        return CrashingSystem(Pair, [[], []], Failure(1, True))

    assert narrate(make, [CRASH, RETURN]) == ("node 1 crashes", "node 1 comes back")
