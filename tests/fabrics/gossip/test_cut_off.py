"""A publisher is cut off with few companions: what anybody holds comes to all, and nobody is deaf to it afterwards."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import BrisaOptions
from antiphon.fabrics.gossip.messages import FetchRequest, FetchResponse, NotKept
from antiphon.fabrics.gossip.parents import LinkMeasurements
from antiphon.fabrics.gossip.reach import GRACE_PERIODS, SILENT_PERIODS, Reach
from antiphon.fabrics.gossip.recovery import HOPELESS
from antiphon.fabrics.gossip.retransmit import MOST_SOUGHT, SEARCH_HOPS, Searches, serve, serve_after_leaving
from antiphon.fabrics.gossip.stream import PASSED_AT_MOST, Stream
from antiphon.kernel.message import Publication
from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.fifo import Fifo
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Order, Ordered
from antiphon.simulator.engine.actions import CrashAction, PartitionAction
from antiphon.simulator.network.network import NetworkPartition
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import (
    NetworkTable,
    NormalLaw,
    PartitionFault,
    PublishTable,
    Scenario,
    TopicsTable,
)
from antiphon.torture.schedules.gossip_rare import draw_any_gossip_schedule
from tests.fabrics.gossip.worlds import PERIOD, World
from tests.support import Notebook

NODES = 12
CUT, HEALED, LATER = 30_000, 40_000, 220_000
PUBLISHED = 100


def cut_off(publisher: int, companion: int, options: BrisaOptions) -> World:
    """A publisher and a companion are apart from all others while it publishes; it does so again long after that."""
    world = World(NODES, options, can_fail=True).publish(publisher, CUT + 500, PUBLISHED, 90)
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, HEALED, [[publisher, companion]])))
    return world.publish(publisher, LATER).publish((publisher + 3) % NODES, LATER + 5000)


@pytest.mark.parametrize(("publisher", "companion"), [(10, 11), (0, 11), (5, 1)])
def test_what_is_published_while_cut_off_comes_to_all(publisher: int, companion: int) -> None:
    """More than a node keeps by itself: who has lost its neighbours forgets nothing."""
    world = cut_off(publisher, companion, BrisaOptions(contacts=[0, 1, 2]))
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert (world.engine.deliveries, world.engine.lost) == ((PUBLISHED + 2) * NODES, 0)


@pytest.mark.parametrize(("publisher", "companion"), [(10, 11), (0, 11)])
def test_the_word_of_the_source_is_enough_to_pass_over_what_nobody_holds(publisher: int, companion: int) -> None:
    """Contacts never had it and cannot say that it is gone. Nobody is deaf to the publisher after that."""
    world = cut_off(publisher, companion, BrisaOptions(contacts=[0, 1, 2], keep=16, buffer=16))
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert world.engine.lost > (NODES - 2) * PUBLISHED // 2
    assert world.engine.deliveries + world.engine.lost == (PUBLISHED + 2) * NODES
    assert [int(world.brisa(node).unfinished()) for node in range(NODES)] == [0] * NODES


@pytest.mark.parametrize("publisher", [10, 0])
def test_passing_over_much_takes_no_longer_than_passing_over_little(publisher: int) -> None:
    """Publishers wait meanwhile: nobody waits for each handful of numbers anew."""
    world = World(NODES, BrisaOptions(contacts=[0, 1, 2], keep=16, buffer=16), can_fail=True)
    world.publish(publisher, CUT + 500, 1600, 5).publish(publisher, HEALED + 5000)
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, HEALED, [[publisher, 11]])))
    world.engine.run(until=HEALED + 3 * HOPELESS * 8 * PERIOD)
    assert world.engine.lost > (NODES - 2) * 1500
    assert {int(world.brisa(node).group(0).stream(publisher).received.complete) for node in range(NODES)} == {1601}


def test_when_the_source_has_crashed_its_companion_and_the_contacts_decide() -> None:
    world = cut_off(10, 11, BrisaOptions(contacts=[0, 1, 2], keep=16, buffer=16))
    world.engine.at(HEALED - 10, CrashAction(10))
    # Nobody publishes where nobody lives; node 11 does.
    world.publish(11, LATER - 10_000)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    alive = [node for node in range(NODES) if node != 10]
    assert [int(world.brisa(node).unfinished()) for node in alive] == [0] * len(alive)
    assert {int(world.brisa(node).group(0).stream(10).received.complete) for node in alive} == {PUBLISHED}


def logged(log_nodes: list[int]) -> Scenario:
    """Buffers hold next to nothing, and some nodes have logs."""
    said = [PublishTable(at=CUT + 500 + 90 * number, node=10) for number in range(PUBLISHED)]
    return Scenario(
        name="logs",
        seed=1,
        fabric="gossip",
        protocol="brisa",
        order="causal",
        nodes=NODES,
        protocol_options={"keep": 4, "buffer": 4, "log": 1000, "log_nodes": log_nodes},
        network=NetworkTable(delay=NormalLaw(mean=20.0, deviation=5.0), detection=500),
        topics=TopicsTable(count=1, members=[list(range(NODES))]),
        faults=[PartitionFault(at=CUT, until=HEALED, groups=[[10, 11]])],
        publications=[*said, PublishTable(at=LATER, node=10)],
    )


@pytest.mark.parametrize("log_nodes", [[], [10], [11]], ids=["all", "the publisher", "its companion"])
def test_what_is_in_a_log_of_anybody_comes_to_all(log_nodes: list[int]) -> None:
    """Where only the companion has a log, others find it through nodes that have forgotten."""
    result = run_scenario(logged(log_nodes))
    assert (result.deliveries, result.lost) == ((PUBLISHED + 1) * NODES, 0)
    assert result.violations is not None and not any(result.violations.values())


LOSSY = NetworkTable(
    delay=NormalLaw(mean=100.0, deviation=5.0),
    loss=0.2,
    duplication=0.1,
    reordering=0.05,
    reordering_window=500,
    detection=3000,
)


def test_nothing_is_passed_over_while_a_cut_may_hide_who_has_it() -> None:
    """Node 7 is cut off with node 6, which has forgotten what it has published and node 7 lacks; all others have it."""
    scenario = Scenario(
        name="cut off with who has forgotten",
        seed=232456864545076,
        fabric="gossip",
        protocol="brisa",
        order="none",
        nodes=10,
        protocol_options={
            "active": 3,
            "passive": 5,
            "expansion": 1.0,
            "contacts": [0],
            "parents": 1,
            "strategy": "delay",
            "period": 1000,
            "join_window": 3000,
            "bandwidths": [1, 10, 100],
            "keep": 1,
        },
        network=LOSSY,
        topics=TopicsTable(count=1, members=[list(range(10))]),
        publications=[PublishTable(at=at, node=6) for at in (25_000, 25_100, 25_200, 30_747)],
        faults=[PartitionFault(at=30_000, until=90_000, groups=[[6, 7]])],
    )
    result = run_scenario(scenario)
    assert (result.deliveries, result.lost) == (4 * 10, 0), result.judgement


def test_what_a_neighbour_lacks_that_goes_is_kept_for_it() -> None:
    """Node 0 has more neighbours than it may, and lets node 1 go, which lacks what nobody else needs any more."""
    scenario = Scenario(
        name="let go too early",
        seed=15,
        fabric="gossip",
        protocol="brisa",
        order="none",
        nodes=6,
        protocol_options={"active": 3, "expansion": 1.0, "contacts": [0], "keep": 1},
        network=NetworkTable(loss=0.2, duplication=0.1, detection=3000),
        topics=TopicsTable(count=1, members=[[1, 3, 4, 5]]),
        publications=[PublishTable(at=1, node=3), PublishTable(at=2, node=3)],
    )
    result = run_scenario(scenario)
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.lost == 0


def test_a_node_that_was_alone_for_long_enters_again() -> None:
    """After 64 attempts in 500 periods it once gave up, and was deaf and dumb after that."""
    world = World(6, BrisaOptions(contacts=[0, 1], period=300), can_fail=True).publish(1, CUT - 5000)
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, CUT + 700 * 300, [[5]])))
    for node in range(5):
        world.publish(node, CUT + 1100 * 300)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert world.engine.deliveries == 6 * 6


def test_a_node_that_has_given_up_tries_again_when_its_application_publishes() -> None:
    world = World(6, BrisaOptions(contacts=[0, 1], period=300), can_fail=True).publish(1, CUT - 5000)
    healed = CUT + 20_000 * 300
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, healed, [[5]])))
    world.publish(5, healed + 1000)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert world.engine.deliveries == 2 * 6


@pytest.mark.parametrize(("source_says", "contact_says", "expected"), [(4, 0, 4), (0, 4, 4), (0, 0, 0), (2, 4, 2)])
def test_the_source_or_a_contact_decides_beside_neighbours_that_had_it(
    source_says: int, contact_says: int, expected: int
) -> None:
    stream = Stream(3)
    stream.hear(6)
    stream.peer_has(7, 6)
    stream.peer_lost_it(3, source_says)
    stream.peer_lost_it(1, contact_says)
    assert stream.gone_up_to([7, 8], [1, 2], False) == 0, "a neighbour that has it has not been asked"
    stream.peer_lost_it(7, 5)
    assert stream.gone_up_to([7, 8], [1, 2], False) == expected
    assert stream.gone_up_to([7, 8], [1, 2], True) == (expected or 5), "a contact needs no other contact"


def test_a_new_life_is_told_when_neighbours_notice_that_the_old_one_has_ended() -> None:
    """They had taken it for the old one, and it was silent by then: it would have been deaf (seed 2304378)."""
    result = run_scenario(draw_any_gossip_schedule(2304378))
    assert result.violations is not None and not any(result.violations.values()), result.judgement


def test_a_source_whose_answers_are_lost_is_asked_again_before_others_decide() -> None:
    """A fifth of all messages is lost; only the source has a log, and it lives (seed 2504195)."""
    result = run_scenario(draw_any_gossip_schedule(2504195))
    assert result.lost == 0


# What a node says to those who ask.


def publication(sequence: int, source: int = 3) -> Publication:
    return Ordered(source, sequence, 0, b"", vec[i64](), 0, 1)


class Remembering(Notebook):
    """A node whose log holds some publications of node 3."""

    def __init__(self, identifier: int, logged: tuple[int, ...]) -> None:
        super().__init__(identifier)
        self._logged = logged

    def read_logged(self, topic: int, source: int, sequence: int) -> Publication | None:
        return publication(sequence, source) if sequence in self._logged else None


def test_a_node_that_has_left_a_topic_serves_from_its_log_and_speaks_for_what_it_published() -> None:
    environment = Remembering(3, (2,))
    serve_after_leaving(environment, 7, FetchRequest(3, 0, vec[i64]([1, 2, 9])), 5)
    assert [(peer, type(one), int(one.sequence)) for peer, one in environment.sent] == [
        (7, FetchResponse, 2),
        (7, NotKept, 1),
    ]
    other = Remembering(4, (2,))
    serve_after_leaving(other, 7, FetchRequest(3, 0, vec[i64]([1, 2])), 5)
    assert [(type(one), int(one.sequence)) for _, one in other.sent] == [(FetchResponse, 2)]


def test_a_node_says_of_all_that_is_gone_with_what_it_is_asked_for() -> None:
    environment = Remembering(3, (90,))
    stream = Stream(3)
    stream.start_from(100)
    serve(environment, stream, 7, FetchRequest(3, 0, vec[i64]([1, 2])))
    assert [(type(one), int(one.sequence)) for _, one in environment.sent] == [(NotKept, 89)]


def test_the_word_of_a_node_ends_before_a_publication_that_it_never_had() -> None:
    """It had number 3 and forgot it. Numbers 1 and 2 never came, and other nodes may have them in their logs."""
    environment = Remembering(4, ())
    stream = Stream(3)
    stream.skip(3)
    forgotten = serve(environment, stream, 7, FetchRequest(3, 0, vec[i64]([1, 2, 3])))
    assert (environment.sent, list(forgotten)) == ([], [3])
    stream.skip(1)
    serve(environment, stream, 7, FetchRequest(3, 0, vec[i64]([1, 2, 3])))
    assert [(type(one), int(one.sequence)) for _, one in environment.sent] == [(NotKept, 1)]


def test_a_newcomer_does_not_call_gone_what_it_never_had() -> None:
    """It counts a neighbour's past as its own. Its word would let other nodes pass over what some log holds."""
    environment = Remembering(4, ())
    stream = Stream(3)
    stream.start_from(5)
    stream.skip(7)
    stream.assume()
    assert list(serve(environment, stream, 8, FetchRequest(3, 0, vec[i64]([4, 5, 7])))) == [4, 5, 7]
    assert environment.sent == []
    for number in (6, 8):
        stream.take(publication(number))
    stream.kept.clear()
    serve(environment, stream, 8, FetchRequest(3, 0, vec[i64]([8])))
    assert [(type(one), int(one.sequence)) for _, one in environment.sent] == [(NotKept, 8)]


def test_a_node_serves_from_its_log_what_it_has_not_heard_of_since_it_came_back() -> None:
    environment = Remembering(4, (2,))
    serve(environment, Stream(3), 7, FetchRequest(3, 0, vec[i64]([1, 2])))
    assert [(type(one), int(one.sequence)) for _, one in environment.sent] == [(FetchResponse, 2)]


@pytest.mark.parametrize("order", [Fifo(9), CausalBarriers(9), MixedOrder(9, 1)])
def test_a_publication_that_waits_for_its_turn_is_not_forgotten(order: Order) -> None:
    """No log holds it before it is delivered, and this node may be the only one that has it."""
    stream = Stream(3)
    for number in (2, 3, 4):
        stream.take(publication(number))
        order.arrived(publication(number))
    assert stream.collect([], 1, 1, order) == 0 and sorted(stream.kept) == [2, 3, 4]
    stream.take(publication(1))
    order.arrived(publication(1))
    assert stream.collect([7], 1, 1, order) == 3 and sorted(stream.kept) == [4]


def test_neighbours_that_never_had_a_publication_are_believed_in_the_end() -> None:
    """All that had it have failed, and newcomers count it as past: nobody will ever say that it is gone."""
    stream = Stream(3)
    stream.peer_has(7, 5)
    stream.hear(5)
    stream.peer_has(8, 4)
    for _ in range(3):
        stream.count_unserved([7, 8, 9])
    assert (stream.unserved_for, stream.past_of_others([7, 8, 9])) == (3, 4)
    stream.take(publication(1))
    assert stream.unserved_for == 0
    stream.count_unserved([9])
    assert stream.unserved_for == 0, "no neighbour is ahead"


def test_what_has_been_missing_for_as_long_is_passed_over_without_another_wait() -> None:
    stream = Stream(3)
    stream.hear(5)
    for _ in range(40):
        stream.period_passed_missing()
    stream.hear(9)
    assert [int(missed.sequence) for missed in stream.pass_over(3, 0)] == [1, 2, 3]
    assert stream.stuck_for == 40
    stream.pass_over(6, 0)
    assert stream.stuck_for == 0, "number 7 was heard of later"


def test_a_node_asks_its_neighbours_once_for_what_it_forgot_and_hands_it_on() -> None:
    environment = Notebook(4)
    searches = Searches(environment, 0, 1000)
    searches.begin(7, 3, vec[i64]([1, 2]), SEARCH_HOPS, [6, 7, 8])
    assert [(peer, type(one)) for peer, one in environment.sent] == [(6, FetchRequest), (8, FetchRequest)]
    searches.begin(9, 3, vec[i64]([1]), SEARCH_HOPS, [6, 7, 8])
    assert len(environment.sent) == 2, "it is sought already"
    searches.found(publication(1))
    searches.found(publication(1))
    assert [(peer, int(one.sequence)) for peer, one in environment.sent[2:]] == [(7, 1), (9, 1)]
    environment.sent.clear()
    searches.begin(7, 5, vec[i64](list(range(1, 2 * MOST_SOUGHT))), SEARCH_HOPS, [6])
    (_, asked), *rest = environment.sent
    assert isinstance(asked, FetchRequest) and len(asked.numbers) < MOST_SOUGHT and not rest


def test_a_neighbour_that_gets_what_is_missing_is_asked_though_all_questions_before_were_in_vain() -> None:
    stream = Stream(3)
    stream.hear(5)
    stream.peer_has(7, 0)
    stream.fetches, stream.quiet = 64, 9
    stream.peer_has(7, 5)
    assert (stream.fetches, stream.quiet) == (0, 0)
    stream.fetches = 64
    stream.peer_has(7, 6)
    assert stream.fetches == 64


STALE = """
seed = 4
fabric = "gossip"
protocol = "simple-gossip"
order = "fifo"
nodes = 2
[protocol-options]
contacts = [0]
[network]
detection = 10
[topics]
members = [[0, 1]]
[[publish]]
at = 5077
node = 1
[[publish]]
at = 15077
node = 0
"""


def test_an_answer_to_an_earlier_comparison_does_not_let_a_node_fall_silent() -> None:
    """Found by seed 1403883: the contact that was to call the node had struck it off its list."""
    assert run_scenario(parse_scenario(STALE)).deliveries == 4


# Total order waits.


def test_a_node_with_the_fewer_waits_and_goes_on_when_it_has_caught_up() -> None:
    reach, links, now = Reach(100, 10_000), {peer: LinkMeasurements() for peer in (1, 2, 3)}, 0
    reach.woke(0)
    for peer in links:
        reach.neighbour_up(peer, 0)
    for peer in (2, 3):
        del links[peer]
        reach.neighbour_down(peer)
        reach.link_lost(peer, now, [])
    assert sorted(reach.poll(now + 100, links, False)) == [] and reach.must_wait
    reach.neighbour_up(2, 200)
    links[2] = LinkMeasurements()
    reach.poll(200, links, True)
    assert reach.must_wait, "it may lack what the others have published"
    for now in range(300, 300 + 100 * (GRACE_PERIODS + 1), 100):
        reach.confirmed(1, now)
        reach.confirmed(2, now)
        reach.poll(now, links, True)
    assert reach.must_wait, "it is still behind"
    reach.poll(now + 100, links, False)
    assert not reach.must_wait


def test_a_node_waits_no_longer_than_the_longest_wait_and_not_for_a_single_one() -> None:
    reach, links = Reach(100, 3000), {peer: LinkMeasurements() for peer in (1, 2, 3)}
    for peer in links:
        reach.neighbour_up(peer, 0)
    for now in range(100, 2000, 100):
        # Node 3 is silent, or hears nothing of this node.
        reach.confirmed(1, now)
        reach.confirmed(2, now)
        reach.poll(now, links, False)
        assert not reach.must_wait
    waited = []
    for now in range(2000, 9000, 100):
        reach.poll(now, links, False)
        waited.append(reach.must_wait)
    assert any(waited) and not waited[-1] and sum(waited) <= 3000 // 100 + 1
    assert waited.index(True) <= SILENT_PERIODS + 1


@pytest.mark.parametrize(("group", "one_way"), [([5], False), ([5], True), ([0, 1, 7], False)])
def test_a_short_cut_makes_nearly_no_holes_in_total_order(group: list[int], one_way: bool) -> None:
    lost = []
    for wait in (0, 10_000):
        said = [
            PublishTable(at=10_000 + 50 * number, node=number % 8, order="total" if number % 3 == 0 else "causal")
            for number in range(200)
        ]
        scenario = Scenario(
            name="short",
            seed=1,
            fabric="gossip",
            protocol="brisa",
            order="causal",
            nodes=8,
            protocol_options={"period": 100, "round_period": 25, "total_wait": wait},
            network=NetworkTable(delay=NormalLaw(mean=5.0, deviation=2.0), detection=20),
            topics=TopicsTable(count=1, members=[list(range(8))]),
            faults=[PartitionFault(at=13_000, until=16_000, groups=[group], one_way=one_way)],
            publications=said,
        )
        result = run_scenario(scenario)
        assert result.violations is not None and not any(result.violations.values()), result.judgement
        lost.append(result.lost)
    assert lost[0] > 20 and lost[1] <= 5


def test_a_number_far_ahead_is_not_passed_over_in_one_turn() -> None:
    """Only a node that lies names it; what stands for each number takes memory."""
    world = World(2, BrisaOptions(contacts=[0, 1]), can_fail=True)
    world.publish(0, CUT)
    world.engine.run(until=CUT + 1000)
    stream = world.brisa(1).group(0).stream(0)
    assert len(stream.pass_over(1 << 40, 0)) == PASSED_AT_MOST
