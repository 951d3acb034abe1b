"""Links that are watched: who is told of a failure, when, and what is never told."""

from __future__ import annotations

from antiphon.kernel import Environment
from antiphon.simulator.engine.actions import (
    CrashAction,
    JoinAction,
    LeaveAction,
    PartitionAction,
    PauseAction,
    RestartAction,
    ResumeAction,
)
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from tests.simulator.engine.post import Do, Post, Run


class Watcher(Post):
    """Watches node 1 from the start, and writes down what it is told."""

    told: list[tuple[int, int, str, int]]

    def start(self) -> None:
        self.environment.watch(1)

    def peer_lost(self, peer: int) -> None:
        self.told.append((self.environment.now(), self.me, "lost", peer))

    def peer_found(self, peer: int) -> None:
        self.told.append((self.environment.now(), self.me, "found", peer))


def story(
    nodes: int = 2, absent: set[int] | None = None, notices_pauses: bool = False
) -> tuple[Run, list[tuple[int, int, str, int]]]:
    told: list[tuple[int, int, str, int]] = []

    def build(environment: Environment) -> Watcher:
        process = Watcher(environment)
        process.told = told
        return process

    network = NetworkModel(ConstantDelay(10), detection=30, notices_pauses=notices_pauses)
    return Run(nodes, network, build, can_fail=True, absent=absent), told


def test_a_crash_is_told_to_those_who_watch_after_the_time_of_detection() -> None:
    run, told = story(3)
    run.at(100, CrashAction(1)).lines()
    assert told == [(130, 0, "lost", 1), (130, 2, "lost", 1)]


def test_a_leave_breaks_links_too_and_a_join_brings_them_back() -> None:
    run, told = story()
    run.at(100, LeaveAction(1)).at(500, JoinAction(1)).lines()
    assert told == [(130, 0, "lost", 1), (530, 0, "found", 1)]


def test_who_is_back_before_anybody_noticed_has_lost_its_links_all_the_same() -> None:
    """Its memory is gone: a connection of its earlier life is broken."""
    run, told = story()
    run.at(100, CrashAction(1)).at(110, RestartAction(1)).lines()
    assert told == [(130, 0, "lost", 1), (140, 0, "found", 1)]


def test_who_watches_a_node_that_is_not_there_hears_of_it() -> None:
    run, told = story(absent={1})
    run.at(500, JoinAction(1)).lines()
    assert told == [(30, 0, "lost", 1), (530, 0, "found", 1)]


def test_a_partition_is_noticed_if_it_lasts_and_its_end_is() -> None:
    run, told = story(3)
    run.at(100, PartitionAction(NetworkPartition(100, 400, [[0], [1, 2]]))).lines()
    assert told == [(130, 0, "lost", 1), (430, 0, "found", 1)]


def test_a_partition_that_is_over_before_it_is_noticed_is_never_told() -> None:
    run, told = story()
    run.at(100, PartitionAction(NetworkPartition(100, 120, [[0], [1]]))).lines()
    assert told == []


def test_nothing_is_told_of_links_that_do_not_matter_any_more() -> None:
    run, told = story()

    def stop_watching(engine: Engine) -> None:
        engine.nodes[0].unwatch(1)

    run.at(110, Do(stop_watching)).at(100, CrashAction(1)).lines()
    assert told == []


def test_a_process_of_a_new_life_has_to_watch_for_itself() -> None:
    """Node 0 watches again when it starts, and finds node 1 down; what its first life asked for is forgotten."""
    run, told = story()
    run.at(100, CrashAction(1)).at(110, CrashAction(0)).at(120, RestartAction(0)).lines()
    assert told == [(150, 0, "lost", 1)]


def test_a_paused_node_is_told_when_it_goes_on() -> None:
    run, told = story()
    run.at(90, PauseAction(0)).at(100, CrashAction(1)).at(900, ResumeAction(0)).lines()
    assert told == [(900, 0, "lost", 1)]


class Mutual(Watcher):
    """Watches everybody else."""

    def start(self) -> None:
        for peer in range(3):
            if peer != self.me:
                self.environment.watch(peer)


def standstill(resume_at: int) -> tuple[list[tuple[int, int, str, int]], list[str]]:
    """Node 1 is paused at 100; what was sent to it and what it sends around its resumption, and who is told what."""
    told: list[tuple[int, int, str, int]] = []

    def build(environment: Environment) -> Mutual:
        process = Mutual(environment)
        process.told = told
        return process

    network = NetworkModel(
        ConstantDelay(10), transmission=0, processing=0, detection=30, in_order=True, notices_pauses=True
    )
    run = Run(3, network, build, can_fail=True)
    run.at(95, Do(lambda engine: engine.publish(0, bytes([1])))).at(
        115, Do(lambda engine: engine.publish(0, bytes([1])))
    )
    run.at(100, PauseAction(1)).at(125, Do(lambda engine: engine.publish(0, bytes([1])))).at(resume_at, ResumeAction(1))
    run.at(resume_at, Do(lambda engine: engine.publish(1, bytes([0]))))
    run.at(resume_at + 100, Do(lambda engine: engine.publish(1, bytes([0]))))
    lines = run.lines("deliver", "drop").splitlines()
    return told, lines


def test_a_short_pause_is_not_noticed() -> None:
    told, happened = standstill(resume_at=129)
    assert told == []
    assert sum("deliver" in line for line in happened) == 5 and not any("drop" in line for line in happened)


def test_who_stands_still_for_long_is_lost_and_found_when_it_goes_on() -> None:
    """What had arrived before the others noticed is read; what was on its way then, or is said at once, is gone."""
    told, happened = standstill(resume_at=300)
    assert sorted(told) == [
        (130, 0, "lost", 1),
        (130, 2, "lost", 1),
        (300, 1, "lost", 0),
        (300, 1, "lost", 2),
        (330, 0, "found", 1),
        (330, 1, "found", 0),
        (330, 1, "found", 2),
        (330, 2, "found", 1),
    ]
    assert [line.split()[0] for line in happened if "deliver" in line] == ["300", "300", "410"]
    assert [line.split()[0] for line in happened if "drop" in line] == ["300", "310"]


def test_who_crashes_while_it_stands_still_is_lost_once() -> None:
    run, told = story(notices_pauses=True)
    run.at(100, PauseAction(1)).at(200, CrashAction(1)).at(300, RestartAction(1)).lines()
    assert told == [(130, 0, "lost", 1), (330, 0, "found", 1)]


def test_who_stands_still_again_is_not_found_in_between() -> None:
    run, told = story(notices_pauses=True)
    run.at(100, PauseAction(1)).at(200, ResumeAction(1)).at(220, PauseAction(1)).at(240, ResumeAction(1)).lines()
    assert told == [(130, 0, "lost", 1), (270, 0, "found", 1)]
