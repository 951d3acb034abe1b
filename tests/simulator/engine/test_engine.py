"""The engine: what a hop costs, what timers do, where a run stops, and that nothing depends on the path taken."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel import Environment, Process
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay, LinkDelay, MatrixDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from tests.simulator.engine.post import Do, Nudging, Post, Run
from tests.support import Broadcast, lists_up_to, text

# One hop (thesis, section 5.6.1): waiting for the output server, transmission, propagation, processing.


@pytest.mark.parametrize(("transmission", "delay", "processing"), [(1, 100, 1), (0, 5, 0), (7, 0, 3), (0, 0, 0)])
def test_one_hop_costs_transmission_delay_and_processing(transmission: int, delay: int, processing: int) -> None:
    run = Run(2, NetworkModel(ConstantDelay(delay), transmission, processing)).at(40, PublishAction(0, b"\1"))
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
    run = Run(4, NetworkModel(ConstantDelay(10), transmission=3, processing=1))
    run.at(0, PublishAction(0, b"\1\2\3")).at(4, PublishAction(0, b"\2\1")).at(30, PublishAction(0, b"\3"))
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
    run = Run(3, NetworkModel(ConstantDelay(10), processing=5)).at(0, PublishAction(0, b"\2"), PublishAction(1, b"\2"))
    assert run.lines("receive") == text(
        """
        16 receive 2 <- 0 Publication(0,1)
        16 receive 2 <- 1 Publication(1,1)
        """
    )


def test_control_messages_queue_like_all_others() -> None:
    run = Run(2, build=Nudging).at(0, PublishAction(0, b"\1\1"))
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
    network = NetworkModel(ConstantDelay(10), charge_control=False)
    assert Run(2, network, Nudging).at(0, PublishAction(0, b"\1\1")).lines("send", "receive") == text(
        """
         0 send 0 -> 1 Nudge(0,1) [1]
         0 send 0 -> 1 Nudge(0,1) [1]
        12 receive 1 <- 0 Nudge(0,1)
        12 receive 1 <- 0 Nudge(0,1)
        """
    )
    assert Run(2, network, Post).at(0, PublishAction(0, b"\1\1")).lines("receive") == text(
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
    network = NetworkModel(ConstantDelay(delay), transmission, processing)
    run = Run(4, network, level=level, can_fail=path in ("can fail", "both"))
    assert run.engine.simple == (path == "simple")
    for letter in letters:
        run.at(letter.time, PublishAction(letter.sender, letter.destinations))
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
        NetworkModel(NormalDelay(100, 25)),
        NetworkModel(LinkDelay(NormalDelay(100, 25), 5)),
        NetworkModel(MatrixDelay([[1, 50], [90, 2]])),
        NetworkModel(ConstantDelay(10), charge_control=False),
        NetworkModel(ConstantDelay(10), loss=0.2, duplication=0.2, reordering=0.5, reordering_window=40),
        NetworkModel(ConstantDelay(10)),
    ],
)
def test_what_is_traced_and_what_may_fail_changes_nothing(network: NetworkModel) -> None:
    """Of one set-up every variant must tell the same story: with a trace of everything, and ready for faults."""
    stories = []
    for level, can_fail in (("deliveries", False), ("deliveries", True), ("everything", False), ("everything", True)):
        run = Broadcast(8, network, acknowledge=True, level=level, can_fail=can_fail)
        for node in range(8):
            run.engine.at(9 * node, PublishAction(node))
        run.engine.run()
        engine = run.engine
        counters = (engine.events, engine.end_time, engine.sent, engine.charged, engine.queue_ticks)
        receptions = (engine.receptions, engine.reception_ticks)
        stories.append((run.lines("publish", "deliver", "drop", "duplicate"), counters, receptions))
    assert len(stories[0][0].splitlines()) > 40
    assert stories == [stories[0]] * 4


def test_events_of_one_tick_are_handled_in_the_order_in_which_they_were_scheduled() -> None:
    run = Run(3, NetworkModel(ConstantDelay(0), transmission=0, processing=0))
    run.at(5, PublishAction(2, b"\0")).at(5, PublishAction(1, b"\0")).at(3, PublishAction(0, b"\1"))
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
    run = Run(2, NetworkModel(ConstantDelay(10), loss=1.0)).at(0, PublishAction(0, b"\1\1"))
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
    run = Run(2, NetworkModel(ConstantDelay(10), duplication=1.0)).at(0, PublishAction(0, b"\1"))
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
    network = NetworkModel(ConstantDelay(10), transmission=0, reordering=0.5, reordering_window=20)
    run = Run(2, network).at(0, *[PublishAction(0, b"\1") for _ in range(400)])
    run.engine.run()
    rows = [row for row in run.trace.table().to_pylist() if row["event"] == "receive"]
    assert {row["time"] for row in rows} == set(range(11, 32))
    late = sum(row["time"] > 11 for row in rows)
    # Half of the copies, less the one in 21 of them whose extra delay is 0; four standard deviations.
    assert abs(late - 200 * 20 / 21) < 40
    assert [row["sequence"] for row in rows] != sorted(row["sequence"] for row in rows)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_are_met_and_every_copy_is_accounted_for(seed: int) -> None:
    run = Run(2, NetworkModel(ConstantDelay(10), transmission=0, loss=0.3, duplication=0.2), seed=seed)
    run.at(0, PublishAction(0, b"\1" * 5000))
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
    run = Run(2, NetworkModel(ConstantDelay(0), transmission=0, processing=0))
    for time in range(1, count + 1):
        run.at(time, PublishAction(0, b"\1"))
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
        run = Broadcast(8, NetworkModel(NormalDelay(10, 5), loss=0.1), acknowledge=True)
        for node in range(8):
            run.engine.at(3 * node, PublishAction(node))
        return run

    whole, pieces = set_up(), set_up()
    whole.engine.run()
    for stop in stops:
        pieces.engine.run(until=stop)
        assert pieces.engine.end_time <= stop
    assert pieces.engine.run() == "finished"
    assert pieces.lines() == whole.lines()
    assert pieces.engine.events == whole.engine.events
