"""The engine: what a hop costs, what timers do, where a run stops, and that nothing depends on the path taken."""

from __future__ import annotations

import gc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.cube import PartialCube
from antiphon.kernel import UNSPECIFIED, Environment, Message, Process, Publication, UsageError
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.actions import Admit, Expel, Publish, Subscribe, Unsubscribe
from antiphon.simulator.engine import Action, Application, Engine
from antiphon.simulator.network import ConstantDelay, LinkDelay, MatrixDelay, Network, NormalDelay
from antiphon.trace.store import MemoryTrace
from tests.simulator.post import Do, Nudging, Post, Run
from tests.support import Broadcast, lines_of, lists_up_to, text

# One hop (thesis, section 5.6.1): waiting for the output server, transmission, propagation, processing.


@pytest.mark.parametrize(("transmission", "delay", "processing"), [(1, 100, 1), (0, 5, 0), (7, 0, 3), (0, 0, 0)])
def test_one_hop_costs_transmission_delay_and_processing(transmission: int, delay: int, processing: int) -> None:
    run = Run(2, Network(ConstantDelay(delay), transmission, processing)).at(40, Publish(0, b"\1"))
    total = transmission + delay + processing
    assert run.lines() == text(
        f"""
        40 publish 0 (0,1) [1]
        40 send 0 -> 1 Publication(0,1) [{transmission}]
        {40 + total} receive 1 <- 0 Publication(0,1)
        {40 + total} deliver 1 Publication(0,1) [{total}]
        """
    )


def test_copies_queue_at_the_sender_in_the_order_in_which_they_were_sent() -> None:
    """The second publication finds the server busy until 9; the third, at 30, finds it idle."""
    run = Run(4, Network(ConstantDelay(10), transmission=3, processing=1))
    run.at(0, Publish(0, b"\1\2\3")).at(4, Publish(0, b"\2\1")).at(30, Publish(0, b"\3"))
    assert run.lines() == text(
        """
         0 publish 0 (0,1) [3]
         0 send 0 -> 1 Publication(0,1) [3]
         0 send 0 -> 2 Publication(0,1) [6]
         0 send 0 -> 3 Publication(0,1) [9]
         4 publish 0 (0,2) [2]
         4 send 0 -> 2 Publication(0,2) [8]
         4 send 0 -> 1 Publication(0,2) [11]
        14 receive 1 <- 0 Publication(0,1)
        14 deliver 1 Publication(0,1) [14]
        17 receive 2 <- 0 Publication(0,1)
        17 deliver 2 Publication(0,1) [17]
        20 receive 3 <- 0 Publication(0,1)
        20 deliver 3 Publication(0,1) [20]
        23 receive 2 <- 0 Publication(0,2)
        23 deliver 2 Publication(0,2) [19]
        26 receive 1 <- 0 Publication(0,2)
        26 deliver 1 Publication(0,2) [22]
        30 publish 0 (0,3) [1]
        30 send 0 -> 3 Publication(0,3) [3]
        44 receive 3 <- 0 Publication(0,3)
        44 deliver 3 Publication(0,3) [14]
        """
    )


def test_the_input_of_a_node_is_a_delay_and_not_a_server() -> None:
    """Two copies that arrive together are processed together."""
    run = Run(3, Network(ConstantDelay(10), processing=5)).at(0, Publish(0, b"\2"), Publish(1, b"\2"))
    assert run.lines("receive") == text(
        """
        16 receive 2 <- 0 Publication(0,1)
        16 receive 2 <- 1 Publication(1,1)
        """
    )


def test_control_messages_queue_like_all_others() -> None:
    run = Run(2, build=Nudging).at(0, Publish(0, b"\1\1"))
    assert run.lines("send", "receive") == text(
        """
         0 send 0 -> 1 Nudge(0,1) [1]
         0 send 0 -> 1 Nudge(0,1) [2]
        12 receive 1 <- 0 Nudge(0,1)
        13 receive 1 <- 0 Nudge(0,1)
        """
    )


def test_control_messages_do_not_queue_when_they_are_not_charged() -> None:
    """They take a hop's time, but neither wait for the server nor keep others waiting."""
    network = Network(ConstantDelay(10), charge_control=False)
    assert Run(2, network, Nudging).at(0, Publish(0, b"\1\1")).lines("send", "receive") == text(
        """
         0 send 0 -> 1 Nudge(0,1) [1]
         0 send 0 -> 1 Nudge(0,1) [1]
        12 receive 1 <- 0 Nudge(0,1)
        12 receive 1 <- 0 Nudge(0,1)
        """
    )
    assert Run(2, network, Post).at(0, Publish(0, b"\1\1")).lines("receive") == text(
        """
        12 receive 1 <- 0 Publication(0,1)
        13 receive 1 <- 0 Publication(0,1)
        """
    )


class Letter(NamedTuple):
    """One publication of the property below."""

    time: int
    sender: int
    destinations: bytes


LETTERS = lists_up_to(
    20,
    st.builds(Letter, st.integers(0, 40), st.integers(0, 3), st.lists(st.integers(0, 3), max_size=4).map(bytes)),
)
TICKS = st.integers(0, 5)


@given(LETTERS, TICKS, st.integers(0, 30), TICKS, st.sampled_from(["simple", "can fail", "traced", "both"]))
def test_every_copy_is_handled_when_the_formula_says(
    letters: list[Letter], transmission: int, delay: int, processing: int, path: str
) -> None:
    """max(now, free) + transmission + delay + processing, ties in the order of sending, on every path of the engine."""
    expected = []
    free = [0] * 4
    sent = 0
    for letter in sorted(letters, key=lambda letter: letter.time):
        for destination in letter.destinations:
            free[letter.sender] = max(letter.time, free[letter.sender]) + transmission
            handled = free[letter.sender] + delay + processing
            sent += 1
            expected.append((handled, sent, destination, letter.sender, handled - letter.time))
    level = "everything" if path in ("traced", "both") else "deliveries"
    network = Network(ConstantDelay(delay), transmission, processing)
    run = Run(4, network, level=level, can_fail=path in ("can fail", "both"))
    assert run.engine.simple == (path == "simple")
    for letter in letters:
        run.at(letter.time, Publish(letter.sender, letter.destinations))
    run.engine.run()
    found = [
        (row["time"], row["node"], row["source"], row["value"])
        for row in run.trace.table().to_pylist()
        if row["event"] == "deliver"
    ]
    assert found == [(time, node, source, latency) for time, _, node, source, latency in sorted(expected)]
    latencies = [latency for _, _, node, source, latency in expected if node != source]
    assert run.engine.latency_sum == sum(latencies)
    assert run.engine.latency_maximum == max(latencies, default=0)
    assert (run.engine.sent, run.engine.events) == (sent, sent + len(letters))


@pytest.mark.parametrize(
    "network",
    [
        Network(NormalDelay(100, 25)),
        Network(LinkDelay(NormalDelay(100, 25), 5)),
        Network(MatrixDelay([[1, 50], [90, 2]])),
        Network(ConstantDelay(10), charge_control=False),
        Network(ConstantDelay(10), loss=0.2, duplication=0.2, reordering=0.5, reordering_window=40),
        Network(ConstantDelay(10)),
    ],
)
def test_what_is_traced_and_what_may_fail_changes_nothing(network: Network) -> None:
    """Of one set-up every variant must tell the same story: with a trace of everything, and ready for faults."""
    stories = []
    for level, can_fail in (("deliveries", False), ("deliveries", True), ("everything", False), ("everything", True)):
        run = Broadcast(8, network, acknowledge=True, level=level, can_fail=can_fail)
        for node in range(8):
            run.engine.at(9 * node, Publish(node))
        run.engine.run()
        engine = run.engine
        counters = (engine.events, engine.end_time, engine.sent, engine.charged, engine.queue_ticks)
        receptions = (engine.receptions, engine.reception_ticks)
        stories.append((run.lines("publish", "deliver", "drop", "duplicate"), counters, receptions))
    assert len(stories[0][0].splitlines()) > 40
    assert stories == [stories[0]] * 4


def test_events_of_one_tick_are_handled_in_the_order_in_which_they_were_scheduled() -> None:
    run = Run(3, Network(ConstantDelay(0), transmission=0, processing=0))
    run.at(5, Publish(2, b"\0")).at(5, Publish(1, b"\0")).at(3, Publish(0, b"\1"))
    assert run.lines("publish", "receive") == text(
        """
        3 publish 0 (0,1) [1]
        3 receive 1 <- 0 Publication(0,1)
        5 publish 2 (2,1) [1]
        5 publish 1 (1,1) [1]
        5 receive 0 <- 2 Publication(2,1)
        5 receive 0 <- 1 Publication(1,1)
        """
    )


# Loss, duplication, reordering.


def test_losing_everything() -> None:
    run = Run(2, Network(ConstantDelay(10), loss=1.0)).at(0, Publish(0, b"\1\1"))
    assert run.lines() == text(
        """
        0 publish 0 (0,1) [2]
        0 send 0 -> 1 Publication(0,1) [1]
        0 drop 1 <- 0 Publication(0,1) loss
        0 send 0 -> 1 Publication(0,1) [2]
        0 drop 1 <- 0 Publication(0,1) loss
        """
    )
    assert (run.engine.sent, run.engine.dropped, run.engine.deliveries) == (2, 2, 0)


def test_duplicating_everything() -> None:
    run = Run(2, Network(ConstantDelay(10), duplication=1.0)).at(0, Publish(0, b"\1"))
    assert run.lines() == text(
        """
         0 publish 0 (0,1) [1]
         0 send 0 -> 1 Publication(0,1) [1]
         0 duplicate 1 <- 0 Publication(0,1)
        12 receive 1 <- 0 Publication(0,1)
        12 deliver 1 Publication(0,1) [12]
        12 receive 1 <- 0 Publication(0,1)
        12 deliver 1 Publication(0,1) [12]
        """
    )


def test_reordering_delays_some_copies_by_at_most_its_window() -> None:
    network = Network(ConstantDelay(10), transmission=0, reordering=0.5, reordering_window=20)
    run = Run(2, network).at(0, *[Publish(0, b"\1") for _ in range(400)])
    run.engine.run()
    rows = [row for row in run.trace.table().to_pylist() if row["event"] == "receive"]
    assert {row["time"] for row in rows} == set(range(11, 32))
    late = sum(row["time"] > 11 for row in rows)
    # Half of the copies, less the one in 21 of them whose extra delay is 0; four standard deviations.
    assert abs(late - 200 * 20 / 21) < 40
    assert [row["sequence"] for row in rows] != sorted(row["sequence"] for row in rows)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_are_met_and_every_copy_is_accounted_for(seed: int) -> None:
    run = Run(2, Network(ConstantDelay(10), transmission=0, loss=0.3, duplication=0.2), seed=seed)
    run.at(0, Publish(0, b"\1" * 5000))
    run.engine.run()
    events = [row["event"] for row in run.trace.table().to_pylist()]
    # Four standard deviations of a binomial law; what is lost is not duplicated.
    assert abs(events.count("drop") - 1500) < 4 * (5000 * 0.3 * 0.7) ** 0.5
    assert abs(events.count("duplicate") - 700) < 4 * (3500 * 0.2 * 0.8) ** 0.5
    assert events.count("receive") == 5000 - events.count("drop") + events.count("duplicate")
    assert (run.engine.sent, run.engine.dropped) == (5000, events.count("drop"))


# Timers.


class Clockwork(Process):
    """Keeps the handles of its timers, and a list of what expired."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.handles: dict[int, int] = {}
        self.expired: list[tuple[int, int]] = []

    def wind(self, delay: int, name: int) -> None:
        self.handles[name] = int(self.environment.set_timer(delay, name))

    def expire(self, name: int) -> None:
        self.expired.append((int(self.environment.now()), int(name)))


def clockwork(engine: Engine, node: int = 0) -> Clockwork:
    process = engine.nodes[node].process
    assert isinstance(process, Clockwork)
    return process


def wind(node: int, delay: int, name: int) -> Do:
    return Do(lambda engine: clockwork(engine, node).wind(delay, name))


def unwind(node: int, name: int) -> Do:
    def cancel(engine: Engine) -> None:
        process = clockwork(engine, node)
        process.environment.cancel_timer(process.handles[name])

    return Do(cancel)


def test_timers_expire_after_their_delay_in_the_order_of_their_times() -> None:
    run = Run(2, build=Clockwork).at(5, wind(0, 30, 7), wind(0, 10, 8), wind(1, 20, 7), wind(0, 30, 9))
    assert run.lines() == text(
        """
        15 expire 0 [8]
        25 expire 1 [7]
        35 expire 0 [7]
        35 expire 0 [9]
        """
    )
    assert clockwork(run.engine).expired == [(15, 8), (35, 7), (35, 9)]


def test_a_timer_without_delay_expires_in_the_same_tick_after_what_was_scheduled_before() -> None:
    run = Run(1, build=Clockwork).at(5, wind(0, 0, 1), wind(0, 0, 2))
    order: list[str] = []
    run.at(5, Do(lambda engine: order.append(f"{clockwork(engine).expired}")))
    assert run.lines() == text("5 expire 0 [1]\n5 expire 0 [2]")
    assert order == ["[]"]


def test_a_cancelled_timer_does_not_expire() -> None:
    run = Run(2, build=Clockwork).at(0, wind(0, 10, 1), wind(0, 10, 2), wind(1, 10, 1)).at(4, unwind(0, 1))
    assert run.lines() == text("10 expire 0 [2]\n10 expire 1 [1]")


def test_cancelling_twice_or_too_late_does_nothing() -> None:
    run = Run(1, build=Clockwork).at(0, wind(0, 10, 1), wind(0, 50, 2))
    run.at(4, unwind(0, 1), unwind(0, 1)).at(60, unwind(0, 2), wind(0, 1, 3))
    assert run.lines() == text("50 expire 0 [2]\n61 expire 0 [3]")


def test_two_timers_may_have_one_name() -> None:
    run = Run(1, build=Clockwork).at(0, wind(0, 10, 1)).at(5, wind(0, 10, 1))
    assert run.lines() == text("10 expire 0 [1]\n15 expire 0 [1]")


# Limits.


def ticking(count: int) -> Run:
    """One publication per tick, two events each."""
    run = Run(2, Network(ConstantDelay(0), transmission=0, processing=0))
    for time in range(1, count + 1):
        run.at(time, Publish(0, b"\1"))
    return run


def test_a_run_says_that_it_finished() -> None:
    run = ticking(10)
    assert run.engine.run() == "finished"
    assert (run.engine.events, run.engine.end_time) == (20, 10)
    assert Run(1).engine.run() == "finished"


def test_a_run_says_that_its_time_is_over_and_can_go_on() -> None:
    run = ticking(10)
    assert run.engine.run(until=4) == "time limit"
    assert (run.engine.events, run.engine.end_time) == (8, 4)
    assert run.engine.run(until=4) == "time limit"
    assert (run.engine.events, run.engine.end_time) == (8, 4)
    assert run.engine.run(until=10) == "finished"
    assert (run.engine.events, run.engine.end_time) == (20, 10)


def test_a_run_says_that_it_has_had_its_events_and_can_go_on() -> None:
    """A tick is always finished, so a limit of 7 ends after 8 events."""
    run = ticking(10)
    assert run.engine.run(event_limit=7) == "event limit"
    assert (run.engine.events, run.engine.end_time) == (8, 4)
    assert run.engine.run(event_limit=9) == "event limit"
    assert (run.engine.events, run.engine.end_time) == (10, 5)
    assert run.engine.run() == "finished"
    assert run.engine.events == 20


@given(st.lists(st.integers(0, 60), max_size=6).map(sorted))
def test_a_run_in_pieces_is_the_same_run(stops: list[int]) -> None:
    """However often it is stopped by a limit of time."""

    def set_up() -> Broadcast:
        run = Broadcast(8, Network(NormalDelay(10, 5), loss=0.1), acknowledge=True)
        for node in range(8):
            run.engine.at(3 * node, Publish(node))
        return run

    whole, pieces = set_up(), set_up()
    whole.engine.run()
    for stop in stops:
        pieces.engine.run(until=stop)
        assert pieces.engine.end_time <= stop
    assert pieces.engine.run() == "finished"
    assert pieces.lines() == whole.lines()
    assert pieces.engine.events == whole.engine.events


# The engine and its surroundings.


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
    engine = Engine(3, Network(ConstantDelay(1)), Misdirected, can_fail=can_fail)
    engine.at(0, Publish(0))
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
    run = Run(2, absent={1}, can_fail=True).at(0, Publish(1, b"\0"))
    assert run.lines() == ""
    assert run.engine.publish(1, b"") is False
    assert run.engine.published == 0


class Topical(Post):
    """Subscribes and unsubscribes at once."""

    def letter(self, payload: bytes) -> Message:
        return Publication(self.me, self.published, self.environment.now(), payload, 4)

    def subscribe(self, topic: int) -> None:
        self.environment.subscribed(topic)

    def unsubscribe(self, topic: int) -> None:
        self.environment.unsubscribed(topic)


def test_topics_are_in_the_trace() -> None:
    run = Run(2, build=Topical, absent={1}, can_fail=True)
    run.at(1, Subscribe(0, 4), Publish(0, b"\0", 4), Unsubscribe(0, 4), Subscribe(1, 4), Unsubscribe(1, 4))
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
    for time, action in ((0, Publish(0)), (1, Admit(3, members)), (1, Expel(1, members)), (2, Publish(0))):
        run.engine.at(time, action)
    run.engine.run()
    assert run.lines("send") == text("0 send 0 -> 1 Ordered(0,1) [1]\n2 send 0 -> 3 Ordered(0,2) [1]")


class Dice(Post):
    """Publishes what it throws."""

    def letter(self, payload: bytes) -> Message:
        self.environment.random().word()
        return super().letter(payload)


def throws(seed: int, publishing: list[int]) -> list[list[int]]:
    """The next random words of three nodes after some of them have drawn some."""
    run = Run(3, Network(NormalDelay(100, 25)), Dice, seed=seed)
    for node in publishing:
        run.at(1, Publish(node, b"\0"))
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
        run = Broadcast(8, Network(NormalDelay(100, 25), loss=0.1), seed=seed)
        run.engine.at(0, Publish(0))
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

    def receive(self, sender: int, message: Message) -> None:
        raise StumbleError


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("build", [Post, Stumbling])
def test_the_garbage_collector_is_left_as_it_was_found(build: type[Post], collecting: bool) -> None:
    seen: list[bool] = []
    run = Run(2, build=build).at(0, Do(lambda _: seen.append(gc.isenabled())), Publish(0, b"\1"))
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
    run = Run(2, build=Stumbling).at(0, Publish(0, b"\1"))
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
    engine = Engine(2, Network(ConstantDelay(10)), Post)
    engine.at(0, Publish(0, b"\1\1"))
    assert engine.run() == "finished"
    assert (engine.events, engine.sent, engine.published, engine.deliveries) == (3, 2, 1, 2)
    assert (engine.latency_sum, engine.latency_maximum, engine.end_time) == (12 + 13, 13, 13)


def test_own_deliveries_do_not_count_as_latency() -> None:
    trace = MemoryTrace()
    engine = Engine(1, Network(ConstantDelay(10)), Post, recorder=trace.recorder)
    engine.at(0, Publish(0, b"\0"))
    engine.run()
    assert lines_of(trace.table(), ["deliver"]) == text("12 deliver 0 Publication(0,1) [12]")
    assert (engine.deliveries, engine.own_deliveries) == (1, 1)
    assert (engine.latency_sum, engine.latency_maximum) == (0, 0)


class Answering(Application):
    """Each node answers the publication of node 0 some ticks after it has it."""

    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.heard: list[tuple[int, int]] = []

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        self.heard.append((node, publication.source))
        if publication.source == 0:
            engine.at(engine.calendar.now + self.wait, Publish(node, b"\0"))


def test_an_application_hears_of_every_delivery_and_can_react() -> None:
    trace = MemoryTrace("deliveries")
    answering = Answering(5)
    engine = Engine(3, Network(ConstantDelay(10)), Post, recorder=trace.recorder, application=answering)
    engine.at(0, Publish(0, b"\1\2"))
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
    engine = Engine(2, Network(ConstantDelay(10)), Post, application=answering)
    engine.at(0, Publish(0, b"\1"))
    engine.run()
    assert answering.heard == [(1, 0), (0, 1)]
    assert (engine.published, engine.end_time) == (2, 12 + 12)


class Listening(Application):
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

    def receive(self, sender: int, message: Message) -> None:
        self.environment.unwanted(message)


def test_an_application_hears_when_subscriptions_take_effect() -> None:
    listening = Listening()
    engine = Engine(3, Network(ConstantDelay(10)), Joining, application=listening)
    engine.at(5, Subscribe(2, 7))
    engine.at(0, Subscribe(1, 4))
    engine.run()
    assert listening.heard == [(10, 1, 4), (15, 2, 7)]


def test_an_application_may_take_no_notice() -> None:
    engine = Engine(2, Network(ConstantDelay(10)), Post, application=Application())
    engine.at(0, Publish(0, b"\1"))
    assert engine.run() == "finished"
    assert engine.deliveries == 1


def test_receptions_are_counted_with_their_age_and_whether_anybody_wanted_them() -> None:
    engine = Engine(2, Network(ConstantDelay(10)), Joining)
    engine.at(3, Publish(0, b"\1\1"))
    engine.run()
    assert (engine.receptions, engine.reception_ticks) == (2, 12 + 13)
    assert (engine.unwanted, engine.deliveries) == (2, 0)


@pytest.mark.parametrize("can_fail", [False, True])
def test_waiting_in_output_queues_is_counted_for_what_is_charged(can_fail: bool) -> None:
    """Of four copies at once the first waits for nobody, the last for the three before it."""
    free = Network(ConstantDelay(10), charge_control=False)
    for build, network, expected in (
        (Post, free, (4, 4, 0 + 1 + 2 + 3)),
        (Nudging, free, (4, 0, 0)),
        (Nudging, Network(ConstantDelay(10)), (4, 4, 0 + 1 + 2 + 3)),
    ):
        engine = Engine(2, network, build, can_fail=can_fail)
        engine.at(0, Publish(0, b"\1\1\1\1"))
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
    engine = Engine(2, Network(ConstantDelay(10)), Hesitating)
    engine.at(0, Publish(0))
    engine.at(2, Publish(1))
    engine.run()
    assert (engine.own_deliveries, engine.start_ticks) == (2, 10)
