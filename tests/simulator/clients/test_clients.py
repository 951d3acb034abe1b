"""Clients in simulated clusters: no promise to them is broken, and schedules are repeatable and shrink."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.audit.clients import CAUSAL, DUPLICATES, FIFO, LOST, STUCK, TOTAL, WRITTEN, ClientJudge
from antiphon.simulator.clients.world import ClientSchedule, ClientStep, ClientWorld
from antiphon.torture.campaign import run_campaign
from antiphon.torture.clients.campaign import run_one, shrink
from antiphon.torture.clients.schedules import draw_client_schedule
from antiphon.torture.tally import CLIENTS


def test_no_promise_to_clients_is_broken() -> None:
    tally = run_campaign(1, 30, fabric=CLIENTS)
    assert (tally.violations, tally.failing) == ({}, [])
    assert set(tally.fabrics) == {"clients cube", "clients tree", "clients gossip"}
    assert tally.moves > 5 and tally.deliveries > 500


def test_a_schedule_is_repeatable() -> None:
    runs = [ClientWorld(draw_client_schedule(7)) for _ in range(2)]
    for world in runs:
        world.run()
    assert runs[0].clock.events == runs[1].clock.events > 1000


def test_the_older_member_shows_what_a_younger_one_lacks() -> None:
    """A client returns to the node that has everything; a node that is a member since later must not come first."""
    steps = [
        ClientStep(at_us=3_843_096, kind="crash", node=1, lasts_us=3_000_000),
        ClientStep(at_us=4_024_113, kind="cut", clients=[1], lasts_us=4_000_000),
        ClientStep(at_us=4_024_661, kind="publish"),
        ClientStep(at_us=8_192_536, kind="publish"),
    ]
    schedule = ClientSchedule(
        seed=314, fabric="cube", nodes=4, homes=[1, 1], keeps=[1], delay_us=(100, 2000), steps=steps
    )
    assert run_one(schedule) == {}


def test_a_node_learns_from_the_only_one_that_knows_when_that_one_is_back() -> None:
    """A node became a member while the only other member stood still; its clients must not wait for what is past."""
    steps = [
        ClientStep(at_us=3_137_086, kind="publish", client=2),
        ClientStep(at_us=5_644_556, kind="pause", lasts_us=1_250_000),
    ]
    assert run_one(ClientSchedule(seed=66, fabric="gossip", nodes=3, homes=[2, 1, 1], steps=steps)) == {}


def test_nothing_is_missed_silently_if_only_a_node_out_of_reach_has_shown_what_counts_as_past() -> None:
    """The client's new node becomes a member when it knows again what was published, but not yet who has shown it."""
    steps = [
        ClientStep(at_us=1_771_109, kind="leave", node=2, lasts_us=1_000_000),
        ClientStep(at_us=6_329_315, kind="leave", node=1, lasts_us=2_500_000),
        ClientStep(at_us=6_357_752, kind="cut", nodes=[0, 2, 3], clients=[0, 1], lasts_us=6_000_000),
        ClientStep(at_us=6_530_608, kind="publish", client=1),
    ]
    schedule = ClientSchedule(
        seed=355, fabric="gossip", nodes=5, homes=[1, 2, 4], delay_us=(1000, 20000), lost_seconds=2.0, steps=steps
    )
    assert run_one(schedule) == {}


def test_a_client_of_the_only_member_follows_what_counts_as_past_at_its_next_node() -> None:
    """Nobody is left who knows whose batches are past, but the client knows which publications brought them."""
    steps = [
        ClientStep(at_us=3_182_080, kind="publish", client=1),
        ClientStep(at_us=6_808_463, kind="crash", node=1, lasts_us=1_250_000),
    ]
    schedule = ClientSchedule(seed=2083, fabric="gossip", nodes=3, homes=[0, 0], delay_us=(1000, 20000), steps=steps)
    judge = ClientWorld(schedule).run()
    assert (judge.violations, judge.gaps) == ({}, 0)


def test_a_node_stops_waiting_for_what_is_gone_with_the_only_node_that_had_it() -> None:
    """The node may be only cut off, so that is 30 seconds after it was lost, and not after a client asks for it."""
    steps = [
        ClientStep(at_us=3_509_488, kind="publish", client=2),
        ClientStep(at_us=4_060_479, kind="crash", node=1, lasts_us=4_000_000),
    ]
    schedule = ClientSchedule(
        seed=6000912, fabric="cube", nodes=4, homes=[0, 0, 0], delay_us=(100, 2000), lost_seconds=2.0, steps=steps
    )
    assert run_one(schedule) == {}


@pytest.mark.parametrize("seed", [10, 11])
def test_what_only_a_log_holds_is_no_gap(seed: int) -> None:
    """All nodes crash while one is paused. The other returns with a message in its log that nobody else has seen."""
    steps = [
        ClientStep(at_us=1_000_000, kind="publish", client=1),
        ClientStep(at_us=2_000_000, kind="pause", node=1, lasts_us=900_000),
        ClientStep(at_us=2_100_000, kind="publish", client=1),
        ClientStep(at_us=2_200_000, kind="blackout", lasts_us=1_000_000),
    ]
    schedule = ClientSchedule(
        seed=seed, fabric="cube", nodes=2, homes=[0, 1], keeps=[0, 1], with_disk=[0, 1], steps=steps
    )
    judge = ClientWorld(schedule).run()
    assert (judge.violations, judge.gaps) == ({}, 0) and judge.moves == 2


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_writer_writes_exactly_once_through_crashes(fabric: str) -> None:
    """Its nodes crash and return with their logs, where every message is once, in order and without gaps."""
    steps = [
        ClientStep(at_us=1_020_000, kind="crash", node=1, lasts_us=2_000_000),
        ClientStep(at_us=3_500_000, kind="crash", node=2, lasts_us=1_000_000),
    ]
    everyone = [0, 1, 2, 3]
    schedule = ClientSchedule(
        seed=1,
        fabric=fabric,
        nodes=4,
        homes=[1, 2],
        keeps=everyone,
        with_disk=everyone,
        writes=[5, 3, 4],
        writes_from_us=1_000_000,
        steps=steps,
    )
    world = ClientWorld(schedule)
    judge = world.run()
    assert judge.violations == {} and judge.deliveries >= 24
    series = [(1, 5), (2, 3), (3, 4)]
    expected = [f"writer2.{number}.{place}" for number, count in series for place in range(1, count + 1)]
    assert [batch.name for _, batch in world.machines[0].logged if batch.is_written] == expected


@pytest.mark.parametrize(
    "names", [["w.1.1", "w.1.1"], ["w.1.2"], ["w.1.1", "w.1.3"], ["w.2.1", "w.1.1"], ["w.1.1", "w.2.2"]]
)
def test_the_judge_finds_logs_that_hold_what_a_writer_wrote_twice_or_not_in_order(names: list[str]) -> None:
    judge = ClientJudge()
    judge.log_holds("here", ["w.1.1", "v.3.1", "w.1.2", "w.4.1"])
    assert judge.violations == {}
    judge.log_holds("here", names)
    assert judge.violations == {WRITTEN: 1}


def test_an_accepted_total_message_waits_for_a_majority_at_the_next_node() -> None:
    """All nodes crash before it has its place. The first one returns alone, and must not refuse it to its client."""
    steps = [
        ClientStep(at_us=5_705_480, kind="crash", node=4, lasts_us=500_000),
        ClientStep(at_us=5_708_853, kind="publish", client=1, order="total"),
        ClientStep(at_us=5_752_575, kind="blackout", lasts_us=4_000_000),
    ]
    everyone = [0, 1, 2, 3, 4]
    schedule = ClientSchedule(
        seed=7001716,
        fabric="cube",
        nodes=5,
        homes=[4, 4],
        keeps=everyone,
        with_disk=everyone,
        delay_us=(100, 2000),
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_batch_may_be_safe_before_it_is_known() -> None:
    """A client comes back to a node that has published its batch meanwhile: it hears that it is safe, then known."""
    steps = [
        ClientStep(at_us=2_298_697, kind="pause", lasts_us=2_500_000),
        ClientStep(at_us=3_134_819, kind="leave", node=2, lasts_us=6_000_000),
        ClientStep(at_us=3_137_786, kind="crash", node=1, lasts_us=2_500_000),
        ClientStep(at_us=3_272_411, kind="publish", client=1),
    ]
    schedule = ClientSchedule(
        seed=5000302,
        fabric="gossip",
        nodes=3,
        homes=[0, 1],
        keeps=[0, 1],
        delay_us=(1000, 20000),
        lost_seconds=2.0,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_node_about_to_leave_takes_no_new_client() -> None:
    """Cut off from the others it has no neighbours, and says that everything is safe that it takes along."""
    steps = [
        ClientStep(at_us=7_489_496, kind="cut", nodes=[1], clients=[1, 2], lasts_us=4_000_000),
        ClientStep(at_us=7_491_862, kind="publish", client=1),
        ClientStep(at_us=7_507_352, kind="leave", node=1, lasts_us=1000),
    ]
    schedule = ClientSchedule(
        seed=5000097, fabric="gossip", nodes=3, homes=[2, 2, 0], keeps=[0, 1, 2], lost_seconds=0.5, steps=steps
    )
    assert run_one(schedule) == {}


@pytest.mark.parametrize("order", ["causal", "fifo"])
def test_a_node_publishes_nothing_behind_what_it_refused_to_a_client_that_is_gone(order: str) -> None:
    """Its broker pauses, refuses a total message when it continues, and has another message behind that one."""
    steps = [
        ClientStep(at_us=7_107_237, kind="crash", node=3, lasts_us=50_000),
        ClientStep(at_us=7_107_238, kind="pause_client", lasts_us=625_000),
        ClientStep(at_us=7_122_449, kind="pause", lasts_us=4_000_000),
        ClientStep(at_us=7_325_071, kind="publish", order="total"),
        ClientStep(at_us=7_330_071, kind="publish", order=order),
    ]
    schedule = ClientSchedule(
        seed=5000126,
        fabric="tree",
        nodes=4,
        homes=[2, 0, 0],
        keeps=[0, 1, 2, 3],
        delay_us=(100, 2000),
        lost_seconds=0.5,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_client_takes_nothing_that_was_past_when_its_subscription_began() -> None:
    """Its next node became a member later than its first one, and delivers what was past there."""
    steps = [
        ClientStep(at_us=7_014_364, kind="publish"),
        ClientStep(at_us=7_018_516, kind="publish", client=1),
        ClientStep(at_us=7_020_245, kind="connect", client=2),
        ClientStep(at_us=8_102_439, kind="pause", node=1, lasts_us=1_500_000),
        ClientStep(at_us=8_102_539, kind="publish", client=1),
        ClientStep(at_us=8_104_529, kind="cut", nodes=[0, 4], clients=[2], lasts_us=625_000),
    ]
    schedule = ClientSchedule(
        seed=5000537,
        fabric="cube",
        nodes=5,
        homes=[4, 3, 0],
        keeps=[0, 4],
        delay_us=(1000, 20000),
        lost_seconds=0.5,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_total_message_handed_in_at_a_node_that_pauses_and_at_the_next_leaves_no_gap() -> None:
    """The paused node of a gossip cluster listens before it publishes its copy, so that no node passes it over."""
    steps = [
        ClientStep(at_us=782_558, kind="publish", order="total"),
        ClientStep(at_us=782_593, kind="publish", client=1, order="total"),
        ClientStep(at_us=782_644, kind="pause", node=1, lasts_us=1_250_000),
        ClientStep(at_us=782_987, kind="publish", order="total"),
    ]
    judge = ClientWorld(ClientSchedule(seed=5000269, fabric="gossip", nodes=3, homes=[1, 0], steps=steps)).run()
    assert (judge.violations, judge.gaps) == ({}, 0)


@pytest.mark.parametrize("is_again", [False, True])
def test_only_a_series_that_was_written_again_may_come_late(is_again: bool) -> None:
    judge = ClientJudge()
    judge.writes(9)
    for client in (0, 1):
        judge.ready(client, 0)
    judge.asked(9, "piece", "total", 1)
    judge.shown(0, "piece")
    judge.asked(0, "answer", "total", 2)
    judge.shown(0, "answer")
    if is_again:
        judge.written_again(["piece"])
    for name in ("answer", "piece"):
        judge.shown(1, name)
        judge.accepted(name)
    judge.judge([0, 1])
    assert judge.violations == ({} if is_again else {CAUSAL: 1, TOTAL: 1})


@pytest.mark.parametrize("is_away", [False, True])
def test_messages_of_writers_may_be_missing_only_where_nodes_may_be_away(is_away: bool) -> None:
    judge = ClientJudge()
    judge.nodes_may_be_away = is_away
    judge.writes(9)
    judge.ready(0, 0)
    for client, name in ((1, "message"), (9, "piece")):
        judge.asked(client, name, "causal", 1)
        judge.accepted(name)
    judge.judge([0])
    assert judge.violations == {LOST: 1 if is_away else 2}


@pytest.mark.parametrize("kind", [DUPLICATES, FIFO, CAUSAL, TOTAL, LOST, STUCK])
def test_the_judge_finds(kind: str) -> None:
    judge = ClientJudge()
    for client in (0, 1, 2):
        judge.ready(client, 0)
    order = "total" if kind == TOTAL else "causal"
    judge.asked(0, "0.1", order, 1)
    judge.asked(0 if kind == FIFO else 1, "next", order, 2)
    if kind != STUCK:
        judge.accepted("0.1")
        judge.accepted("next")
    shown = {
        DUPLICATES: ["0.1", "next", "next"],
        FIFO: ["next", "0.1"],
        CAUSAL: ["0.1", "next"],
        TOTAL: ["next", "0.1"],
        LOST: ["0.1"],
        STUCK: ["0.1", "next"],
    }[kind]
    for client in (0, 2):
        for name in ["0.1", "next"]:
            judge.shown(client, name)
    if kind == CAUSAL:
        judge.asked(0, "answer", "causal", 3)
        judge.accepted("answer")
        judge.shown(0, "answer")
        judge.shown(2, "answer")
        shown = ["answer", "0.1", "next"]
    for name in shown:
        judge.shown(1, name)
    judge.judge([0, 1, 2])
    assert set(judge.violations) == ({CAUSAL, FIFO} if kind == CAUSAL else {kind})


def test_who_was_told_of_a_gap_is_owed_what_comes_after_it() -> None:
    judge = ClientJudge()
    judge.ready(1, 0)
    judge.asked(0, "before", "causal", 1)
    judge.accepted("before")
    judge.missed(1, 5)
    judge.judge([1])
    assert judge.violations == {}
    judge.asked(0, "after", "causal", 6)
    judge.accepted("after")
    judge.judge([1])
    assert judge.violations == {LOST: 1}


def test_a_failing_schedule_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not look for another node lose what their node had not told to others."""
    monkeypatch.setattr("antiphon.sessions.unacked.UnackedBatches.connection_lost", lambda self: self.clear())
    seed = next(seed for seed in range(1, 200) if STUCK in run_one(draw_client_schedule(seed)))
    schedule = draw_client_schedule(seed)
    small = shrink(schedule, STUCK)
    assert STUCK in run_one(small) and len(small.steps) < len(schedule.steps)
    assert msgspec.json.decode(msgspec.json.encode(small), type=ClientSchedule) == small


def test_a_node_that_was_paused_brings_nothing_behind_what_its_client_published_since() -> None:
    """The client moved, its next node refused the total message and took the causal one behind it."""
    steps = [
        ClientStep(at_us=11_166_348, kind="pause", lasts_us=1_500_000),
        ClientStep(at_us=11_166_866, kind="leave", node=1, lasts_us=625_000),
        ClientStep(at_us=11_175_592, kind="publish", order="total"),
        ClientStep(at_us=11_175_592, kind="publish"),
    ]
    schedule = ClientSchedule(seed=9_000_578, fabric="tree", nodes=3, homes=[1, 0], lost_seconds=0.5, steps=steps)
    assert run_one(schedule) == {}


def test_what_only_a_lost_broker_had_comes_from_its_author_before_what_follows_it() -> None:
    """The broker showed a message to two clients and stood still; the reader moves before the author does."""
    steps = [
        ClientStep(at_us=5_531_944, kind="cut", nodes=[1, 2], clients=[1, 3], lasts_us=4_000_000),
        ClientStep(at_us=5_532_014, kind="publish"),
        ClientStep(at_us=5_549_022, kind="pause", lasts_us=2_500_000),
        ClientStep(at_us=5_733_922, kind="publish", client=2),
    ]
    schedule = ClientSchedule(
        seed=61_000_607, fabric="tree", nodes=3, homes=[2, 0, 2, 0], keeps=[0, 1], with_disk=[0, 1, 2], steps=steps
    )
    assert run_one(msgspec.structs.replace(schedule, lost_seconds=2.0)) == {}


def test_two_clients_of_a_lost_broker_do_not_wait_for_each_other() -> None:
    """Each has seen a message of the other that only crashed brokers had; their messages keep their order."""
    steps = [
        ClientStep(at_us=8_967_048, kind="pause", lasts_us=4_000_000),
        ClientStep(at_us=8_967_135, kind="publish", client=3),
        ClientStep(at_us=9_009_907, kind="publish"),
        ClientStep(at_us=9_044_709, kind="blackout", lasts_us=4_000_000),
        ClientStep(at_us=9_072_578, kind="publish", client=3),
    ]
    schedule = ClientSchedule(
        seed=61_001_516,
        fabric="tree",
        nodes=3,
        homes=[0, 2, 1, 0],
        keeps=[0, 1, 2],
        with_disk=[0, 1, 2],
        delay_us=(100, 2000),
        lost_seconds=2.0,
        writes=[3, 2],
        writes_order="fifo",
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_what_a_writer_writes_at_another_node_follows_what_it_wrote_before() -> None:
    """Each series is written at another node, in order of their publisher, while some nodes are cut off."""
    steps = [ClientStep(at_us=11_242_935, kind="cut", nodes=[0, 4], clients=[0, 1, 2], lasts_us=4_000_000)]
    schedule = ClientSchedule(
        seed=61_001_814,
        fabric="cube",
        nodes=5,
        homes=[4, 2, 1, 3],
        keeps=[0, 1, 2, 3, 4],
        with_disk=[0, 1, 2, 3, 4],
        lost_seconds=2.0,
        writes=[1, 5, 3],
        writes_from_us=11_242_290,
        writes_order="fifo",
        steps=steps,
    )
    world = ClientWorld(schedule)
    # Here the nodes that were cut off are members, and get everything.
    world.judge.nodes_may_be_away = False
    assert world.run().violations == {}


def test_a_node_that_was_paused_delivers_its_total_message_where_the_others_do() -> None:
    """The node was handed the message while it stood still, and its clock was behind those of the others."""
    steps = [
        ClientStep(at_us=8_363_610, kind="pause", node=1, lasts_us=1_500_000),
        ClientStep(at_us=8_368_186, kind="publish", client=2, order="total"),
        ClientStep(at_us=8_370_235, kind="publish", order="total"),
        ClientStep(at_us=8_410_035, kind="cut", clients=[1], lasts_us=625_000),
        ClientStep(at_us=8_470_235, kind="publish", order="total"),
    ]
    schedule = ClientSchedule(
        seed=71_449,
        fabric="gossip",
        nodes=4,
        homes=[3, 2, 0],
        keeps=[0, 1, 2, 3],
        with_disk=[0, 2, 3],
        delay_us=(100, 2000),
        lost_seconds=0.5,
        steps=steps,
    )
    assert run_one(schedule) == {}
