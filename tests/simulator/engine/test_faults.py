"""What faults do to a run: crashes, restarts, pauses, joins, leaves and partitions, whole traces as text."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel import Environment, ProtocolMessage, UsageError
from antiphon.simulator.engine.actions import (
    CrashAction,
    JoinAction,
    JumpClockAction,
    LeaveAction,
    NodeAction,
    PartitionAction,
    PauseAction,
    PublishAction,
    RestartAction,
    ResumeAction,
)
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from tests.simulator.engine.post import Post, Run
from tests.simulator.engine.test_engine import Clockwork, clockwork, wind
from tests.support import lists_up_to, text

SLOW = NetworkModel(ConstantDelay(10), transmission=5, processing=1)


def run(nodes: int, network: NetworkModel | None = None, absent: set[int] | None = None) -> Run:
    return Run(nodes, network, can_fail=True, absent=absent)


# Crash and restart.


def test_a_crashed_node_gets_nothing() -> None:
    """The drop is recorded where the copy was going, when it would have been handled."""
    story = run(2).at(0, PublishAction(0, b"\1")).at(5, CrashAction(1))
    assert story.lines() == text(
        """
         0 publish 0 (0,1) [1]
         0 send 0 -> 1 Publication(0,1) [1]
         5 crash 1
        12 drop 1 <- 0 Publication(0,1) receiver down
        """
    )
    assert (story.engine.sent, story.engine.dropped, story.engine.deliveries) == (1, 1, 0)


def test_what_a_crashed_node_had_not_yet_transmitted_is_lost() -> None:
    """Of three copies that leave at 5, 10 and 15 the last has not left at 10; what leaves at that moment has."""
    story = run(2, SLOW).at(0, PublishAction(0, b"\1\1\1")).at(10, CrashAction(0))
    assert story.lines("crash", "receive", "drop") == text(
        """
        10 crash 0
        16 receive 1 <- 0 Publication(0,1)
        21 receive 1 <- 0 Publication(0,1)
        26 drop 1 <- 0 Publication(0,1) sender down
        """
    )


def test_what_was_lost_in_a_crash_stays_lost_after_a_restart() -> None:
    """And the output server of the new life is idle."""
    story = (
        run(2, SLOW)
        .at(0, PublishAction(0, b"\1\1\1"))
        .at(7, CrashAction(0))
        .at(8, RestartAction(0))
        .at(9, PublishAction(0, b"\1"))
    )
    assert story.lines("crash", "restart", "send", "receive", "drop") == text(
        """
         0 send 0 -> 1 Publication(0,1) [5]
         0 send 0 -> 1 Publication(0,1) [10]
         0 send 0 -> 1 Publication(0,1) [15]
         7 crash 0
         8 restart 0 [2]
         9 send 0 -> 1 Publication(0,1) [5]
        16 receive 1 <- 0 Publication(0,1)
        21 drop 1 <- 0 Publication(0,1) sender down
        25 receive 1 <- 0 Publication(0,1)
        26 drop 1 <- 0 Publication(0,1) sender down
        """
    )


def test_what_was_lost_in_a_crash_stays_lost_after_another_crash() -> None:
    """The copy that would have left at 10 was lost at 7, whatever happens at 12."""
    story = (
        run(2, SLOW)
        .at(0, PublishAction(0, b"\1\1"))
        .at(7, CrashAction(0))
        .at(8, RestartAction(0))
        .at(12, CrashAction(0))
    )
    assert story.lines("receive", "drop") == text(
        """
        16 receive 1 <- 0 Publication(0,1)
        21 drop 1 <- 0 Publication(0,1) sender down
        """
    )


def test_what_was_lost_in_a_crash_stays_lost_after_a_leave() -> None:
    story = (
        run(2, SLOW)
        .at(0, PublishAction(0, b"\1\1"))
        .at(7, CrashAction(0))
        .at(8, RestartAction(0))
        .at(9, LeaveAction(0))
    )
    assert story.lines("receive", "drop") == text(
        """
        16 receive 1 <- 0 Publication(0,1)
        21 drop 1 <- 0 Publication(0,1) sender down
        """
    )


def test_a_restarted_node_gets_what_arrives_from_then_on() -> None:
    story = (
        run(2)
        .at(0, CrashAction(1))
        .at(1, PublishAction(0, b"\1"))
        .at(8, PublishAction(0, b"\1"))
        .at(14, RestartAction(1))
    )
    assert story.lines("restart", "receive", "drop") == text(
        """
        13 drop 1 <- 0 Publication(0,1) receiver down
        14 restart 1 [2]
        20 receive 1 <- 0 Publication(0,2)
        """
    )


def test_a_restarted_node_has_an_empty_memory_and_is_started_again() -> None:
    """Its sequence numbers start at 1 again, since nothing in this protocol remembers them."""
    starts: list[tuple[int, int]] = []

    class Starting(Post):
        def start(self) -> None:
            starts.append((int(self.me), int(self.environment.now())))

    story = Run(2, build=Starting, can_fail=True)
    story.at(1, PublishAction(0), PublishAction(0)).at(2, CrashAction(0)).at(3, PublishAction(0)).at(
        9, RestartAction(0), PublishAction(0)
    )
    assert story.lines() == text(
        """
        1 publish 0 (0,1) [0]
        1 publish 0 (0,2) [0]
        2 crash 0
        9 restart 0 [2]
        9 publish 0 (0,1) [0]
        """
    )
    assert starts == [(0, 0), (1, 0), (0, 9)]


def test_a_crash_forgets_timers() -> None:
    """Also those that would expire after the restart; the new life sets its own."""
    story = Run(1, build=Clockwork, can_fail=True).at(0, wind(0, 10, 1), wind(0, 30, 2))
    story.at(5, CrashAction(0)).at(20, RestartAction(0)).at(21, wind(0, 4, 3))
    assert story.lines("crash", "restart", "expire") == text(
        """
         5 crash 0
        20 restart 0 [2]
        25 expire 0 [3]
        """
    )


def test_random_numbers_go_on_after_a_restart() -> None:
    """A new life that drew the numbers of the old one would repeat its choices."""
    story = run(1).at(1, CrashAction(0)).at(2, RestartAction(0))
    node = story.engine.nodes[0]
    words = [int(node.random().word())]
    story.engine.run()
    words.append(int(node.random().word()))
    untouched = run(1).engine.nodes[0].random()
    assert words == [int(untouched.word()), int(untouched.word())]


# Pause and resume.


def test_what_arrives_at_a_paused_node_waits_and_is_handled_in_the_order_of_arrival() -> None:
    story = (
        run(3)
        .at(0, PublishAction(0, b"\2"), PublishAction(1, b"\2"))
        .at(3, PublishAction(0, b"\2"))
        .at(5, PauseAction(2))
    )
    assert story.at(50, ResumeAction(2)).lines("pause", "resume", "receive", "deliver") == text(
        """
         5 pause 2
        50 resume 2
        50 receive 2 <- 0 Publication(0,1)
        50 deliver 2 Publication(0,1) [50]
        50 receive 2 <- 1 Publication(1,1)
        50 deliver 2 Publication(1,1) [50]
        50 receive 2 <- 0 Publication(0,2)
        50 deliver 2 Publication(0,2) [47]
        """
    )


def test_what_arrives_in_the_tick_of_the_resumption_does_not_overtake_what_waited() -> None:
    """The last copy comes at 50 too, and is in the calendar before the resumption has happened."""
    story = (
        run(2)
        .at(5, PauseAction(1))
        .at(10, PublishAction(0, b"\1"))
        .at(50, ResumeAction(1))
        .at(38, PublishAction(0, b"\1"))
    )
    assert story.lines("resume", "receive") == text(
        """
        50 resume 1
        50 receive 1 <- 0 Publication(0,1)
        50 receive 1 <- 0 Publication(0,2)
        """
    )


def test_a_paused_node_does_not_publish_and_what_it_sent_before_goes_on() -> None:
    story = (
        run(2, SLOW)
        .at(0, PublishAction(0, b"\1\1"))
        .at(1, PauseAction(0))
        .at(2, PublishAction(0, b"\1"))
        .at(90, ResumeAction(0))
    )
    assert story.lines() == text(
        """
         0 publish 0 (0,1) [2]
         0 send 0 -> 1 Publication(0,1) [5]
         0 send 0 -> 1 Publication(0,1) [10]
         1 pause 0
        16 receive 1 <- 0 Publication(0,1)
        16 deliver 1 Publication(0,1) [16]
        21 receive 1 <- 0 Publication(0,1)
        21 deliver 1 Publication(0,1) [21]
        90 resume 0
        """
    )


def test_timers_of_a_paused_node_expire_when_it_goes_on() -> None:
    story = Run(1, build=Clockwork, can_fail=True).at(0, wind(0, 10, 1), wind(0, 70, 2))
    story.at(5, PauseAction(0)).at(50, ResumeAction(0))
    assert story.lines("expire") == text("50 expire 0 [1]\n70 expire 0 [2]")
    assert clockwork(story.engine).expired == [(50, 1), (70, 2)]


def test_what_waited_at_a_paused_node_is_lost_when_it_crashes() -> None:
    story = (
        run(2).at(0, PublishAction(0, b"\1\1")).at(5, PauseAction(1)).at(40, CrashAction(1)).at(50, RestartAction(1))
    )
    assert story.lines("pause", "crash", "restart", "receive", "drop") == text(
        """
         5 pause 1
        40 crash 1
        40 drop 1 <- 0 Publication(0,1) receiver down
        40 drop 1 <- 0 Publication(0,1) receiver down
        50 restart 1 [2]
        """
    )
    assert story.engine.dropped == 2


# Join and leave.


def test_an_absent_node_gets_nothing_until_it_joins() -> None:
    story = run(2, absent={1}).at(0, PublishAction(0, b"\1")).at(20, PublishAction(0, b"\1")).at(15, JoinAction(1))
    assert story.lines("join", "receive", "drop") == text(
        """
        12 drop 1 <- 0 Publication(0,1) receiver down
        15 join 1 [1]
        32 receive 1 <- 0 Publication(0,2)
        """
    )


class Courteous(Post):
    """Says goodbye to node 1 when it leaves."""

    def leave(self) -> None:
        self.publish(b"\1\1")


def test_a_leaving_node_is_told_and_what_it_has_sent_is_still_transmitted() -> None:
    story = Run(2, SLOW, Courteous, can_fail=True).at(0, PublishAction(0, b"\1")).at(2, LeaveAction(0))
    assert story.lines("leave", "send", "receive") == text(
        """
         0 send 0 -> 1 Publication(0,1) [5]
         2 leave 0
         2 send 0 -> 1 Publication(0,2) [8]
         2 send 0 -> 1 Publication(0,2) [13]
        16 receive 1 <- 0 Publication(0,1)
        21 receive 1 <- 0 Publication(0,2)
        26 receive 1 <- 0 Publication(0,2)
        """
    )


def test_a_node_that_comes_back_finds_its_output_server_as_busy_as_it_left_it() -> None:
    """Three copies leave at 5, 10 and 15; the newcomer's is transmitted after them, and a later crash takes only it."""
    story = (
        run(2, SLOW)
        .at(0, PublishAction(0, b"\1\1\1"))
        .at(1, LeaveAction(0))
        .at(2, JoinAction(0))
        .at(3, PublishAction(0, b"\1"))
    )
    assert story.at(17, CrashAction(0)).lines("leave", "join", "crash", "send", "receive", "drop") == text(
        """
         0 send 0 -> 1 Publication(0,1) [5]
         0 send 0 -> 1 Publication(0,1) [10]
         0 send 0 -> 1 Publication(0,1) [15]
         1 leave 0
         2 join 0 [2]
         3 send 0 -> 1 Publication(0,1) [17]
        16 receive 1 <- 0 Publication(0,1)
        17 crash 0
        21 receive 1 <- 0 Publication(0,1)
        26 receive 1 <- 0 Publication(0,1)
        31 drop 1 <- 0 Publication(0,1) sender down
        """
    )


def test_what_a_node_sent_before_it_left_survives_a_crash_of_its_next_life() -> None:
    story = (
        run(2, SLOW).at(0, PublishAction(0, b"\1\1\1")).at(1, LeaveAction(0)).at(2, JoinAction(0)).at(3, CrashAction(0))
    )
    assert story.lines("receive", "drop") == text(
        """
        16 receive 1 <- 0 Publication(0,1)
        21 receive 1 <- 0 Publication(0,1)
        26 receive 1 <- 0 Publication(0,1)
        """
    )


def test_a_node_that_left_gets_nothing() -> None:
    story = run(2).at(0, PublishAction(0, b"\1")).at(3, LeaveAction(1))
    assert story.lines("leave", "receive", "drop") == text(
        """
         3 leave 1
        12 drop 1 <- 0 Publication(0,1) receiver down
        """
    )


def test_leaving_forgets_timers() -> None:
    story = Run(1, build=Clockwork, can_fail=True).at(0, wind(0, 10, 1)).at(5, LeaveAction(0)).at(7, JoinAction(0))
    assert story.lines("expire", "leave", "join") == text("5 leave 0\n7 join 0 [2]")


# Partitions.


def test_a_partition_loses_what_is_on_a_link_between_its_groups() -> None:
    """From 20 to 40. Copies to node 2 arrive before, begin before, run within, end after and begin after it."""
    story = run(3).at(20, PartitionAction(NetworkPartition(20, 40, [[0, 1], [2]])))
    for time in (5, 10, 25, 35, 39, 40):
        story.at(time, PublishAction(0, b"\2"))
    story.at(25, PublishAction(1, b"\0"))
    assert story.lines("receive", "drop") == text(
        """
        17 receive 2 <- 0 Publication(0,1)
        22 drop 2 <- 0 Publication(0,2) partition
        37 drop 2 <- 0 Publication(0,3) partition
        37 receive 0 <- 1 Publication(1,1)
        47 drop 2 <- 0 Publication(0,4) partition
        51 receive 2 <- 0 Publication(0,5)
        52 receive 2 <- 0 Publication(0,6)
        """
    )
    assert story.engine.dropped == 3


def test_a_one_way_partition_lets_answers_through() -> None:
    story = run(2).at(
        0,
        PartitionAction(NetworkPartition(0, 100, [[0], [1]], one_way=True)),
        PublishAction(0, b"\1"),
        PublishAction(1, b"\0"),
    )
    assert story.lines("receive", "drop") == text(
        """
        12 drop 1 <- 0 Publication(0,1) partition
        12 receive 0 <- 1 Publication(1,1)
        """
    )


# Clocks.


def test_a_clock_that_jumps_stays_wrong_and_timers_do_not_follow() -> None:
    story = (
        run(2)
        .at(5, JumpClockAction(0, 100))
        .at(9, CrashAction(0))
        .at(10, RestartAction(0))
        .at(20, JumpClockAction(1, -50))
    )
    story.at(30, PublishAction(1, b"")).lines()
    first, second = story.engine.nodes
    assert story.engine.calendar.now == first.now() == second.now() == 30
    assert first.shared_time() == 130
    assert second.shared_time() == 0, "no clock shows a time before all times"


# Misuse.


@pytest.mark.parametrize(
    ("before", "fault", "state", "expected"),
    [
        ([CrashAction(0)], CrashAction(0), "down", "up"),
        ([LeaveAction(0)], CrashAction(0), "absent", "up"),
        ([], RestartAction(0), "up", "down"),
        ([PauseAction(0)], RestartAction(0), "paused", "down"),
        ([CrashAction(0)], PauseAction(0), "down", "up"),
        ([PauseAction(0)], PauseAction(0), "paused", "up"),
        ([], ResumeAction(0), "up", "paused"),
        ([CrashAction(0)], ResumeAction(0), "down", "paused"),
        ([], JoinAction(0), "up", "absent"),
        ([CrashAction(0)], JoinAction(0), "down", "absent"),
        ([PauseAction(0)], LeaveAction(0), "paused", "up"),
        ([LeaveAction(0)], LeaveAction(0), "absent", "up"),
    ],
)
def test_a_fault_in_the_wrong_state_is_refused(
    before: list[NodeAction], fault: NodeAction, state: str, expected: str
) -> None:
    story = run(1).at(1, *before).at(7, fault)
    complaint = f"at time 7 node 0 is {state}, but a fault expects it to be {expected}; check the order of the faults"
    with pytest.raises(UsageError, match=complaint):
        story.engine.run()
    # A refused fault has not happened, so the trace does not show it.
    assert len(story.trace.table()) == len(before)


@pytest.mark.parametrize(
    "fault",
    [
        CrashAction(0),
        RestartAction(0),
        PauseAction(0),
        ResumeAction(0),
        JoinAction(0),
        LeaveAction(0),
        PartitionAction(NetworkPartition(0, 9, [[0]])),
    ],
)
def test_faults_need_an_engine_that_is_ready_for_them(fault: NodeAction) -> None:
    with pytest.raises(AssertionError, match="created with can_fail=True"):
        Run(1).at(0, fault).engine.run()


# Any faults at any time.

ALLOWED = {
    "up": {"pause": "paused", "crash": "down", "leave": "absent"},
    "paused": {"resume": "up", "crash": "down"},
    "down": {"restart": "up"},
    "absent": {"join": "up"},
}
ACTIONS = {
    "pause": PauseAction,
    "resume": ResumeAction,
    "crash": CrashAction,
    "restart": RestartAction,
    "leave": LeaveAction,
    "join": JoinAction,
}
NODES = 4


class Echo(Post):
    """Answers every publication that is not an answer."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.environment.set_timer(50, 1)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        super().receive(sender, message)
        if sender != self.me and message.sequence % 2 == 1 and self.published < 20:
            self.publish(bytes([sender]))


def troubled(steps: list[tuple[int, int, int]], seed: int) -> Run:
    """A run with publications and valid faults, one every three ticks; who is paused in the end goes on."""
    network = NetworkModel(NormalDelay(15, 10), 2, 1, loss=0.05, duplication=0.1, reordering=0.2, reordering_window=30)
    story = Run(NODES, network, Echo, seed=seed, can_fail=True, absent={NODES - 1})
    states = ["up"] * (NODES - 1) + ["absent"]
    story.at(20, PartitionAction(NetworkPartition(20, 60, [[0, 1]])))
    for number, (node, choice, destinations) in enumerate(steps):
        story.at(3 * number, PublishAction(node, bytes(each for each in range(NODES) if destinations >> each & 1)))
        possible = [None, *sorted(ALLOWED[states[node]])]
        fault = possible[choice % len(possible)]
        if fault is not None:
            states[node] = ALLOWED[states[node]][fault]
            story.at(3 * number + 1, ACTIONS[fault](node))
    return story.at(500, *[ResumeAction(node) for node, state in enumerate(states) if state == "paused"])


STEPS = lists_up_to(40, st.tuples(st.integers(0, NODES - 1), st.integers(0, 7), st.integers(0, 2**NODES - 1)))


@given(STEPS, st.integers(0, 100))
def test_whatever_fails_every_copy_is_received_or_dropped(steps: list[tuple[int, int, int]], seed: int) -> None:
    story = troubled(steps, seed)
    assert story.engine.run() == "finished"
    events = Counter(row["event"] for row in story.trace.table().to_pylist())
    assert events["send"] + events["duplicate"] == events["receive"] + events["drop"]
    assert story.engine.dropped == events["drop"]
    assert story.engine.sent == events["send"]


@given(STEPS, st.integers(0, 100))
def test_whatever_fails_only_nodes_that_are_up_do_anything(steps: list[tuple[int, int, int]], seed: int) -> None:
    """And time never runs backwards in a trace."""
    story = troubled(steps, seed)
    story.engine.run()
    states = ["up"] * (NODES - 1) + ["absent"]
    last = 0
    for row in story.trace.table().to_pylist():
        assert row["time"] >= last
        last = row["time"]
        event, node = row["event"], row["node"]
        if event in ACTIONS:
            states[node] = ALLOWED[states[node]][event]
        elif event in ("publish", "send", "receive", "deliver", "expire"):
            assert states[node] == "up"


@given(STEPS, st.integers(0, 100))
def test_whatever_fails_the_same_seed_gives_the_same_trace(steps: list[tuple[int, int, int]], seed: int) -> None:
    assert troubled(steps, seed).lines() == troubled(steps, seed).lines()
