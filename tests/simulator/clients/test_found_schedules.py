"""Schedules with which campaigns of clients have found errors, made small; none breaks a promise any more."""

from __future__ import annotations

import pytest

from antiphon.audit.clients import CAUSAL, FIFO, TOTAL, ClientJudge
from antiphon.simulator.clients.world import ClientSchedule, ClientStep, ClientWorld
from antiphon.torture.clients.campaign import run_client_schedule, run_one
from antiphon.torture.clients.schedules import draw_client_schedule
from antiphon.torture.tally import TICKS_PER_SECOND


def test_a_newcomer_learns_whose_batches_are_in_the_log_of_a_node_that_returned() -> None:
    """All nodes crash. A client that has seen a message is answered before the author hands that in again.

    A node that became a member since does not show the copy behind the answer.
    """
    steps = [
        ClientStep(at_us=8_929_410, kind="publish"),
        ClientStep(at_us=8_937_604, kind="blackout", lasts_us=4_000_000),
        ClientStep(at_us=11_154_967, kind="connect", client=2),
        ClientStep(at_us=11_177_996, kind="publish", client=1),
    ]
    schedule = ClientSchedule(
        seed=62_000_839,
        fabric="cube",
        nodes=3,
        homes=[0, 0, 0],
        keeps=[0],
        with_disk=[0, 1, 2],
        lost_seconds=2.0,
        writes=[1, 4],
        writes_from_us=8_924_310,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_broker_asks_for_all_that_a_client_lacks_however_long_its_barrier_took() -> None:
    """The broker is on the side without a majority, so the barrier waits until the cut is over."""
    steps = [
        ClientStep(at_us=6_363_366, kind="publish", client=1),
        ClientStep(at_us=6_363_954, kind="connect", client=3),
        ClientStep(at_us=6_371_161, kind="cut", nodes=[0, 1], clients=[0, 1], lasts_us=6_000_000),
        ClientStep(at_us=6_463_366, kind="publish", client=1),
        ClientStep(at_us=8_799_327, kind="publish", client=1),
    ]
    schedule = ClientSchedule(
        seed=880_000_080,
        fabric="tree",
        nodes=3,
        homes=[2, 0, 1, 0],
        delay_us=(100, 2000),
        lost_seconds=2.0,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_broker_asks_those_that_it_finds_again_later_than_its_barrier_does() -> None:
    """The only broker that has shown the message was behind a cut; the barrier passed it by way of a third one."""
    steps = [
        ClientStep(at_us=2_258_499, kind="cut", nodes=[1, 3, 4], clients=[2], lasts_us=1_250_000),
        ClientStep(at_us=2_275_540, kind="publish"),
        ClientStep(at_us=2_478_514, kind="leave", node=4, lasts_us=3_000_000),
    ]
    schedule = ClientSchedule(
        seed=5_600_036,
        fabric="tree",
        nodes=5,
        homes=[1, 2, 1, 1],
        keeps=[4],
        delay_us=(1000, 20_000),
        lost_seconds=1.0,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_node_that_becomes_a_member_passes_over_what_is_too_late_at_its_neighbour() -> None:
    """Its client was shown what the neighbour had delivered. What the cut held up has an earlier place."""
    steps = [
        ClientStep(at_us=7_066_063, kind="cut", nodes=[0, 3], clients=[2], lasts_us=4_000_000),
        ClientStep(at_us=7_069_047, kind="publish", client=2, order="total"),
        ClientStep(at_us=7_348_579, kind="publish", order="total"),
    ]
    schedule = ClientSchedule(
        seed=880_001_050, fabric="gossip", nodes=5, homes=[0, 2, 3], keeps=[0, 1], lost_seconds=2.0, steps=steps
    )
    assert run_one(schedule) == {}


@pytest.mark.parametrize("is_author_far", [False, True])
def test_a_broker_waits_for_the_author_of_what_perhaps_only_its_earlier_life_had(is_author_far: bool) -> None:
    """All brokers crash while some are cut off, which therefore never had a message that a client has seen.

    The client's next broker has it in its log. It cannot know that it is safe while a broker has not returned.
    """
    if is_author_far:
        steps = [
            ClientStep(at_us=1_030_774, kind="connect", client=3),
            ClientStep(at_us=1_032_529, kind="publish"),
            ClientStep(at_us=1_037_534, kind="cut", nodes=[2], clients=[0], lasts_us=4_000_000),
            ClientStep(at_us=1_080_756, kind="blackout", lasts_us=1000),
            ClientStep(at_us=1_127_313, kind="publish", client=2),
        ]
        schedule = ClientSchedule(
            seed=881_004_708,
            fabric="tree",
            nodes=3,
            homes=[0, 0, 0, 1],
            keeps=[0, 1, 2],
            with_disk=[0, 1, 2],
            delay_us=(1000, 20_000),
            lost_seconds=1.0,
            writes=[1, 4, 4],
            writes_from_us=1_027_313,
            steps=steps,
        )
    else:
        steps = [
            ClientStep(at_us=381_340, kind="cut", nodes=[1, 2], clients=[1], lasts_us=6_000_000),
            ClientStep(at_us=381_340, kind="publish", client=2),
            ClientStep(at_us=386_340, kind="publish"),
            ClientStep(at_us=394_568, kind="blackout", lasts_us=1000),
        ]
        schedule = ClientSchedule(
            seed=90_001_247,
            fabric="tree",
            nodes=4,
            homes=[3, 1, 3, 0],
            keeps=[0, 1, 2, 3],
            with_disk=[0, 1, 2, 3],
            lost_seconds=2.0,
            steps=steps,
        )
    assert run_one(schedule) == {}


def test_a_broker_that_goes_behind_a_barrier_without_an_answer_is_not_taken_for_one_that_has_shown_nothing() -> None:
    """It and a paused one are all that were members; their clients move to brokers that became members just now."""
    moments = (1_345_881, 1_350_881), (1_355_881, 1_355_978, 1_355_978, 1_355_981, 1_355_981, 1_355_981)
    steps = [
        *(ClientStep(at_us=at_us, kind="publish", client=2 * n) for n, each in enumerate(moments) for at_us in each),
        ClientStep(at_us=1_346_837, kind="pause", lasts_us=3_000_000),
        ClientStep(at_us=1_427_304, kind="leave", node=1, lasts_us=50_000),
    ]
    schedule = ClientSchedule(
        seed=892_000_312,
        fabric="tree",
        nodes=4,
        homes=[0, 2, 0, 3],
        with_disk=[0, 2, 3],
        delay_us=(1000, 20_000),
        lost_seconds=1.0,
        steps=sorted(steps, key=lambda step: step.at_us),
    )
    assert run_one(schedule) == {}


def test_a_newcomer_publishes_again_what_counts_as_past_and_may_not_have_come_everywhere() -> None:
    """A node that was cut off would else drop the message, as it comes behind the next one of its author."""
    steps = [
        ClientStep(at_us=52_598, kind="publish", client=1, order="total"),
        ClientStep(at_us=2_896_840, kind="leave", node=1, lasts_us=1000),
        ClientStep(at_us=2_896_962, kind="publish", client=3, order="fifo"),
        ClientStep(at_us=2_896_962, kind="publish", client=3),
        ClientStep(at_us=2_897_267, kind="cut", nodes=[3], clients=[0, 1, 3], lasts_us=4_000_000),
    ]
    schedule = ClientSchedule(
        seed=881_005_050,
        fabric="gossip",
        nodes=4,
        homes=[0, 3, 0, 2],
        keeps=[0, 1, 2, 3],
        lost_seconds=2.0,
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_a_gap_is_told_for_a_total_message_that_has_its_place_before_one_that_the_client_has_seen() -> None:
    """The client saw the later one on the other side of a cut, where the earlier one had never come."""
    steps = [
        ClientStep(at_us=1_552_089, kind="pause", lasts_us=4_000_000),
        ClientStep(at_us=1_778_294, kind="publish", client=3),
        ClientStep(at_us=1_778_294, kind="publish", client=3, order="total"),
        ClientStep(at_us=1_778_394, kind="publish", client=3),
        ClientStep(at_us=1_778_713, kind="publish", client=1, order="total"),
        ClientStep(at_us=1_778_728, kind="cut", nodes=[1, 2, 3, 4], clients=[0, 1], lasts_us=4_000_000),
        ClientStep(at_us=7_133_886, kind="cut", nodes=[0, 2, 4], clients=[0, 1], lasts_us=3_000_000),
    ]
    schedule = ClientSchedule(
        seed=881_004_087,
        fabric="gossip",
        nodes=5,
        homes=[2, 0, 1, 2],
        keeps=[0, 1, 2, 3, 4],
        delay_us=(1000, 20_000),
        lost_seconds=1.0,
        writes_order="fifo",
        steps=steps,
    )
    assert run_one(schedule) == {}


def test_what_a_writer_writes_again_has_no_order_with_messages_of_others() -> None:
    """A broker that had missed the series shows all of it, behind a message that the clients have not seen yet."""
    steps = [
        ClientStep(at_us=1_629_442, kind="crash", node=4, lasts_us=6_000_000),
        ClientStep(at_us=3_616_186, kind="publish"),
        ClientStep(at_us=3_699_646, kind="blackout", lasts_us=4_000_000),
        ClientStep(at_us=4_502_200, kind="publish", client=1),
        ClientStep(at_us=7_465_201, kind="publish", order="total"),
    ]
    schedule = ClientSchedule(
        seed=10_923_199_295_299,
        fabric="tree",
        nodes=5,
        homes=[4, 2],
        keeps=[0, 1, 2, 3, 4],
        with_disk=[0, 1, 2, 3, 4],
        lost_seconds=2.0,
        writes=[4, 4, 1],
        writes_from_us=3_610_201,
        writes_order="total",
        steps=steps,
    )
    assert run_one(schedule) == {}


@pytest.mark.parametrize("seed", [700_031, 700_070, 800_619, 800_836])
def test_a_broker_does_not_wait_for_authors_that_have_nothing_to_hand_in(seed: int) -> None:
    """Only brokers that are gone had what a client has seen. It was safe, so nobody hands it in again.

    The next message of the client waited for the author for ten seconds. The author is the client of another broker, or
    an exactly-once writer, which no client waits for.
    """
    outcome = run_client_schedule(draw_client_schedule(seed))
    assert outcome.violations == {} and outcome.publications > 10
    assert outcome.longest_recovery < 1.5 * TICKS_PER_SECOND


def test_the_judge_says_how_long_messages_waited_for_nodes_and_not_for_faults() -> None:
    judge = ClientJudge()
    for name, at_us, accepted_at_us in (("before", 100, 150), ("during", 180, 900), ("after", 600, 650)):
        judge.asked(0, name, "causal", at_us)
        judge.accepted(name, accepted_at_us)
    judge.asked(0, "refused", "causal", 700)
    judge.writes(1)
    judge.asked(1, "written", "causal", 100)
    judge.accepted("written", 5000)
    assert judge.waits_us([200, 500, 1000]) == [50, 400, 50]


@pytest.mark.parametrize("may_pass_over", [True, False])
def test_a_total_message_that_two_sides_of_a_cut_published_has_two_places(may_pass_over: bool) -> None:
    """The client hands the message in on both sides of a cut; each side passes over something of the other."""
    steps = [
        ClientStep(at_us=3_651_125, kind="publish", client=2, order="total"),
        ClientStep(at_us=4_642_466, kind="publish", client=2, order="total"),
        ClientStep(at_us=4_649_463, kind="publish", order="total"),
        ClientStep(at_us=7_168_111, kind="cut", nodes=[1, 3], clients=[0], lasts_us=4_000_000),
    ]
    schedule = ClientSchedule(
        seed=62_001_802, fabric="gossip", nodes=5, homes=[1, 3, 4], keeps=[1, 2], delay_us=(1000, 20_000), steps=steps
    )
    world = ClientWorld(schedule)
    world.judge.may_pass_over = may_pass_over
    judge = world.run()
    assert judge.violations == ({} if may_pass_over else {TOTAL: 2}) and judge.gaps > 0


@pytest.mark.parametrize("is_gossip", [True, False])
@pytest.mark.parametrize("has_gap", [True, False])
@pytest.mark.parametrize("is_other_copy", [True, False])
def test_only_the_second_copy_behind_a_gap_has_another_place(
    is_gossip: bool, has_gap: bool, is_other_copy: bool
) -> None:
    """One client is shown a message and answers it; the other is shown the message behind the answer."""
    judge = ClientJudge()
    judge.may_pass_over = is_gossip
    for client in (0, 1):
        judge.ready(client, 0)
    judge.asked(2, "question", "total", 1)
    judge.shown(0, "question", (7, 1))
    judge.asked(0, "answer", "total", 2)
    judge.shown(0, "answer", (7, 2))
    if has_gap:
        judge.missed(1, 3)
    judge.shown(1, "answer", (7, 2))
    judge.shown(1, "question", (8, 1) if is_other_copy else (7, 1))
    for name in ("question", "answer"):
        judge.accepted(name)
    judge.judge([0, 1])
    is_excused = is_gossip and has_gap and is_other_copy
    assert judge.violations == ({} if is_excused else {CAUSAL: 1, TOTAL: 1})


def test_a_second_copy_comes_in_the_order_of_its_publisher_all_the_same() -> None:
    judge = ClientJudge()
    judge.may_pass_over = True
    for client in (0, 1):
        judge.ready(client, 0)
    for number in (1, 2):
        judge.asked(2, f"2.{number}", "total", number)
        judge.shown(0, f"2.{number}", (7, number))
    judge.missed(1, 3)
    judge.shown(1, "2.2", (7, 2))
    judge.shown(1, "2.1", (8, 1))
    assert judge.violations == {FIFO: 1}
