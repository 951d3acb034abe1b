"""Links that are watched: who is told of a failure, when, and what is never told."""

from __future__ import annotations

from antiphon.kernel import Environment
from antiphon.simulator.actions import Crash, Join, Leave, Partition, Pause, Restart, Resume
from antiphon.simulator.engine import Engine
from antiphon.simulator.network import ConstantDelay, Cut, Network
from tests.simulator.post import Do, Post, Run


class Watcher(Post):
    """Watches node 1 from the start, and writes down what it is told."""

    told: list[tuple[int, int, str, int]]

    def start(self) -> None:
        self.environment.watch(1)

    def peer_lost(self, peer: int) -> None:
        self.told.append((self.environment.now(), self.me, "lost", peer))

    def peer_found(self, peer: int) -> None:
        self.told.append((self.environment.now(), self.me, "found", peer))


def story(nodes: int = 2, absent: set[int] | None = None) -> tuple[Run, list[tuple[int, int, str, int]]]:
    told: list[tuple[int, int, str, int]] = []

    def build(environment: Environment) -> Watcher:
        process = Watcher(environment)
        process.told = told
        return process

    network = Network(ConstantDelay(10), detection=30)
    return Run(nodes, network, build, can_fail=True, absent=absent), told


def test_a_crash_is_told_to_those_who_watch_after_the_time_of_detection() -> None:
    run, told = story(3)
    run.at(100, Crash(1)).lines()
    assert told == [(130, 0, "lost", 1), (130, 2, "lost", 1)]


def test_a_leave_breaks_links_too_and_a_join_brings_them_back() -> None:
    run, told = story()
    run.at(100, Leave(1)).at(500, Join(1)).lines()
    assert told == [(130, 0, "lost", 1), (530, 0, "found", 1)]


def test_who_is_back_before_anybody_noticed_has_lost_its_links_all_the_same() -> None:
    """Its memory is gone: a connection of its earlier life is broken."""
    run, told = story()
    run.at(100, Crash(1)).at(110, Restart(1)).lines()
    assert told == [(130, 0, "lost", 1), (140, 0, "found", 1)]


def test_who_watches_a_node_that_is_not_there_hears_of_it() -> None:
    run, told = story(absent={1})
    run.at(500, Join(1)).lines()
    assert told == [(30, 0, "lost", 1), (530, 0, "found", 1)]


def test_a_partition_is_noticed_if_it_lasts_and_its_end_is() -> None:
    run, told = story(3)
    run.at(100, Partition(Cut(100, 400, [[0], [1, 2]]))).lines()
    assert told == [(130, 0, "lost", 1), (430, 0, "found", 1)]


def test_a_partition_that_is_over_before_it_is_noticed_is_never_told() -> None:
    run, told = story()
    run.at(100, Partition(Cut(100, 120, [[0], [1]]))).lines()
    assert told == []


def test_nothing_is_told_of_links_that_do_not_matter_any_more() -> None:
    run, told = story()

    def stop_watching(engine: Engine) -> None:
        engine.nodes[0].unwatch(1)

    run.at(110, Do(stop_watching)).at(100, Crash(1)).lines()
    assert told == []


def test_a_process_of_a_new_life_has_to_watch_for_itself() -> None:
    """Node 0 watches again when it starts, and finds node 1 down; what its first life asked for is forgotten."""
    run, told = story()
    run.at(100, Crash(1)).at(110, Crash(0)).at(120, Restart(0)).lines()
    assert told == [(150, 0, "lost", 1)]


def test_a_paused_node_is_told_when_it_goes_on() -> None:
    run, told = story()
    run.at(90, Pause(0)).at(100, Crash(1)).at(900, Resume(0)).lines()
    assert told == [(900, 0, "lost", 1)]
