"""The engine and its surroundings: processes, applications, randomness, the collector, and what is counted."""

from __future__ import annotations

import gc

import pytest

from antiphon.fabrics.cube import PartialCube
from antiphon.kernel import UNSPECIFIED, Environment, ProtocolMessage, Publication, UsageError
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.engine.actions import (
    AdmitAction,
    ExpelAction,
    PublishAction,
    SubscribeAction,
    UnsubscribeAction,
)
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from tests.simulator.engine.post import Do, Nudging, Post, Run
from tests.support import Broadcast, lines_of, text


def test_a_simulation_needs_a_node() -> None:
    with pytest.raises(UsageError, match="needs at least one node, not 0"):
        Run(0)


class Misdirected(Post):
    """Asks nobody whether there is a node to send to."""

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        self.environment.send(NO_NODE, self.letter(payload))
        return 1


@pytest.mark.parametrize("can_fail", [False, True])
def test_nothing_can_be_sent_to_no_node(can_fail: bool) -> None:
    """In a list it would be the last one."""
    engine = Engine(3, NetworkModel(ConstantDelay(1)), Misdirected, can_fail=can_fail)
    engine.at(0, PublishAction(0))
    with pytest.raises(AssertionError, match="sends to a node, not to NO_NODE"):
        engine.run()
    assert engine.sent == 0


def test_processes_are_started_before_anything_happens_each_after_all_are_built() -> None:
    log: list[str] = []

    class Greeter(Post):
        def __init__(self, environment: Environment) -> None:
            super().__init__(environment)
            log.append(f"build {self.me}")

        def start(self) -> None:
            log.append(f"start {self.me} at {self.environment.now()}")

    Run(3, build=Greeter, absent={1})
    assert log == ["build 0", "build 2", "start 0 at 0", "start 2 at 0"]


def test_a_node_that_is_not_up_does_not_publish() -> None:
    run = Run(2, absent={1}, can_fail=True).at(0, PublishAction(1, b"\0"))
    assert run.lines() == ""
    assert run.engine.publish(1, b"") is False
    assert run.engine.published == 0


class Topical(Post):
    """Subscribes and unsubscribes at once."""

    def letter(self, payload: bytes) -> ProtocolMessage:
        return Publication(self.me, self.published, self.environment.now(), payload, 4)

    def subscribe(self, topic: int) -> None:
        self.environment.subscribed(topic)

    def unsubscribe(self, topic: int) -> None:
        self.environment.unsubscribed(topic)


def test_topics_are_in_the_trace() -> None:
    run = Run(2, build=Topical, absent={1}, can_fail=True)
    run.at(
        1,
        SubscribeAction(0, 4),
        PublishAction(0, b"\0", 4),
        UnsubscribeAction(0, 4),
        SubscribeAction(1, 4),
        UnsubscribeAction(1, 4),
    )
    assert run.lines() == text(
        """
         1 subscribe 0 (0,0) on 4
         1 subscribed 0 (0,0) on 4
         1 publish 0 (0,1) on 4 [1]
         1 send 0 -> 0 Publication(0,1) on 4 [1]
         1 unsubscribe 0 (0,0) on 4
         1 unsubscribed 0 (0,0) on 4
        13 receive 0 <- 0 Publication(0,1) on 4
        13 deliver 0 Publication(0,1) on 4 [12]
        """
    )
    assert run.engine.subscribe(1, 4) is run.engine.unsubscribe(1, 4) is False


def test_a_membership_oracle_changes_all_trees_at_once() -> None:
    members = PartialCube(2, [0, 1])
    run = Broadcast(4, cube=members)
    for time, action in (
        (0, PublishAction(0)),
        (1, AdmitAction(3, members)),
        (1, ExpelAction(1, members)),
        (2, PublishAction(0)),
    ):
        run.engine.at(time, action)
    run.engine.run()
    assert run.lines("send") == text("0 send 0 -> 1 Ordered(0,1) [1]\n2 send 0 -> 3 Ordered(0,2) [1]")


class Dice(Post):
    """Publishes what it throws."""

    def letter(self, payload: bytes) -> ProtocolMessage:
        self.environment.random().word()
        return super().letter(payload)


def throws(seed: int, publishing: list[int]) -> list[list[int]]:
    """The next random words of three nodes after some of them have drawn some."""
    run = Run(3, NetworkModel(NormalDelay(100, 25)), Dice, seed=seed)
    for node in publishing:
        run.at(1, PublishAction(node, b"\0"))
    run.engine.run()
    return [[int(node.random().word()) for _ in range(4)] for node in run.engine.nodes]


def test_every_node_has_its_own_random_numbers() -> None:
    """What one node draws moves nobody else's stream; the seed moves all."""
    quiet = throws(1, [])
    noisy = throws(1, [1, 1])
    assert noisy[0] == quiet[0]
    assert noisy[2] == quiet[2]
    assert noisy[1][:2] == quiet[1][2:]
    assert len({tuple(stream) for stream in quiet}) == 3
    assert throws(1, [1, 1]) == noisy
    assert throws(2, [])[0] != quiet[0]


def test_the_seed_decides_what_the_network_does() -> None:
    def story(seed: int) -> str:
        run = Broadcast(8, NetworkModel(NormalDelay(100, 25), loss=0.1), seed=seed)
        run.engine.at(0, PublishAction(0))
        run.engine.run()
        return run.lines()

    assert story(5) == story(5)
    assert len({story(seed) for seed in range(5)}) == 5


def test_an_action_must_say_what_it_does() -> None:
    run = Run(1).at(0, Action())
    with pytest.raises(NotImplementedError):
        run.engine.run()


class StumbleError(Exception):
    """What a broken process raises."""


class Stumbling(Post):
    """Breaks when it receives."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        raise StumbleError


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("build", [Post, Stumbling])
def test_the_garbage_collector_is_left_as_it_was_found(build: type[Post], collecting: bool) -> None:
    seen: list[bool] = []
    run = Run(2, build=build).at(0, Do(lambda _: seen.append(gc.isenabled())), PublishAction(0, b"\1"))
    was = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        if build is Stumbling:
            with pytest.raises(StumbleError):
                run.engine.run()
        else:
            run.engine.run()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False]


def test_what_happened_before_an_error_is_in_the_trace() -> None:
    run = Run(2, build=Stumbling).at(0, PublishAction(0, b"\1"))
    with pytest.raises(StumbleError):
        run.engine.run()
    assert lines_of(run.trace.table()) == text(
        """
         0 publish 0 (0,1) [1]
         0 send 0 -> 1 Publication(0,1) [1]
        12 receive 1 <- 0 Publication(0,1)
        """
    )


def test_nothing_is_recorded_without_a_recorder_and_the_counters_count() -> None:
    engine = Engine(2, NetworkModel(ConstantDelay(10)), Post)
    engine.at(0, PublishAction(0, b"\1\1"))
    assert engine.run() == "finished"
    assert (engine.events, engine.sent, engine.published, engine.deliveries) == (3, 2, 1, 2)
    assert (engine.latency_sum, engine.latency_maximum, engine.end_time) == (12 + 13, 13, 13)


def test_own_deliveries_do_not_count_as_latency() -> None:
    trace = MemoryTrace()
    engine = Engine(1, NetworkModel(ConstantDelay(10)), Post, recorder=trace.recorder)
    engine.at(0, PublishAction(0, b"\0"))
    engine.run()
    assert lines_of(trace.table(), ["deliver"]) == text("12 deliver 0 Publication(0,1) [12]")
    assert (engine.deliveries, engine.own_deliveries) == (1, 1)
    assert (engine.latency_sum, engine.latency_maximum) == (0, 0)


class Answering(SimulatedApplication):
    """Each node answers the publication of node 0 some ticks after it has it."""

    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.heard: list[tuple[int, int]] = []

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        self.heard.append((node, publication.source))
        if publication.source == 0:
            engine.at(engine.calendar.now + self.wait, PublishAction(node, b"\0"))


def test_an_application_hears_of_every_delivery_and_can_react() -> None:
    trace = MemoryTrace("deliveries")
    answering = Answering(5)
    engine = Engine(3, NetworkModel(ConstantDelay(10)), Post, recorder=trace.recorder, application=answering)
    engine.at(0, PublishAction(0, b"\1\2"))
    engine.run()
    assert answering.heard == [(1, 0), (2, 0), (0, 1), (0, 2)]
    assert lines_of(trace.table()) == text(
        """
         0 publish 0 (0,1) [2]
        12 deliver 1 Publication(0,1) [12]
        13 deliver 2 Publication(0,1) [13]
        17 publish 1 (1,1) [1]
        18 publish 2 (2,1) [1]
        29 deliver 0 Publication(1,1) [12]
        30 deliver 0 Publication(2,1) [12]
        """
    )


def test_an_application_needs_no_trace_and_may_react_at_once() -> None:
    answering = Answering(0)
    engine = Engine(2, NetworkModel(ConstantDelay(10)), Post, application=answering)
    engine.at(0, PublishAction(0, b"\1"))
    engine.run()
    assert answering.heard == [(1, 0), (0, 1)]
    assert (engine.published, engine.end_time) == (2, 12 + 12)


class Listening(SimulatedApplication):
    """Writes down whose subscriptions take effect."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, int]] = []

    def subscribed(self, engine: Engine, node: int, topic: int) -> None:
        self.heard.append((engine.calendar.now, node, topic))


class Joining(Post):
    """A subscription takes effect ten ticks after it was asked for; nobody ever wants what is posted."""

    def subscribe(self, topic: int) -> None:
        self.environment.set_timer(10, topic)

    def expire(self, name: int) -> None:
        self.environment.subscribed(name)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.environment.unwanted(message)


def test_an_application_hears_when_subscriptions_take_effect() -> None:
    listening = Listening()
    engine = Engine(3, NetworkModel(ConstantDelay(10)), Joining, application=listening)
    engine.at(5, SubscribeAction(2, 7))
    engine.at(0, SubscribeAction(1, 4))
    engine.run()
    assert listening.heard == [(10, 1, 4), (15, 2, 7)]


def test_an_application_may_take_no_notice() -> None:
    engine = Engine(2, NetworkModel(ConstantDelay(10)), Post, application=SimulatedApplication())
    engine.at(0, PublishAction(0, b"\1"))
    assert engine.run() == "finished"
    assert engine.deliveries == 1


def test_receptions_are_counted_with_their_age_and_whether_anybody_wanted_them() -> None:
    engine = Engine(2, NetworkModel(ConstantDelay(10)), Joining)
    engine.at(3, PublishAction(0, b"\1\1"))
    engine.run()
    assert (engine.receptions, engine.reception_ticks) == (2, 12 + 13)
    assert (engine.unwanted, engine.deliveries) == (2, 0)


@pytest.mark.parametrize("can_fail", [False, True])
def test_waiting_in_output_queues_is_counted_for_what_is_charged(can_fail: bool) -> None:
    """Of four copies at once the first waits for nobody, the last for the three before it."""
    free = NetworkModel(ConstantDelay(10), charge_control=False)
    for build, network, expected in (
        (Post, free, (4, 4, 0 + 1 + 2 + 3)),
        (Nudging, free, (4, 0, 0)),
        (Nudging, NetworkModel(ConstantDelay(10)), (4, 4, 0 + 1 + 2 + 3)),
    ):
        engine = Engine(2, network, build, can_fail=can_fail)
        engine.at(0, PublishAction(0, b"\1\1\1\1"))
        engine.run()
        assert (engine.sent, engine.charged, engine.queue_ticks) == expected


class Hesitating(Post):
    """Delivers its own publication, which starts it, five ticks after it was asked to publish."""

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        self.published += 1
        self.pending = Publication(self.me, self.published, self.environment.now(), payload)
        self.environment.set_timer(5, 0)
        return self.published

    def expire(self, name: int) -> None:
        self.environment.deliver(self.pending)


def test_the_time_from_the_call_to_the_start_of_a_publication_is_counted() -> None:
    engine = Engine(2, NetworkModel(ConstantDelay(10)), Hesitating)
    engine.at(0, PublishAction(0))
    engine.at(2, PublishAction(1))
    engine.run()
    assert (engine.own_deliveries, engine.start_ticks) == (2, 10)
