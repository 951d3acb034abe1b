"""Total order on topics of the gossip fabric: EpTO beside BRISA (thesis of M. Matos, chapters 4 and 5)."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import Brisa, BrisaOptions
from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.topic import TotalOptions, rounds_timer, topic_of_rounds
from antiphon.fabrics.gossip.messages import FetchResponse
from antiphon.kernel import UsageError
from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL, Publication, publication_key
from antiphon.kernel.process import Environment
from antiphon.simulator.engine.actions import PublishAction, SubscribeAction, UnsubscribeAction
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel

NODES = 12
START = 10_000
ROUND = 125


class Heard(SimulatedApplication):
    """What each node delivered, in its order: source, number, order."""

    def __init__(self) -> None:
        self.lists: dict[int, list[tuple[int, int, int]]] = {}

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        heard = (int(publication.source), int(publication.sequence), int(publication.order))
        self.lists.setdefault(int(node), []).append(heard)

    def total(self, node: int) -> list[tuple[int, int]]:
        return [(source, sequence) for source, sequence, order in self.lists.get(node, []) if order == TOTAL]


class Topics:
    """Nodes of the gossip fabric with total order; all are members of topic 0."""

    def __init__(
        self,
        network: NetworkModel | None = None,
        clock: str = "logical",
        skews: tuple[int, ...] = (),
        seed: int = 1,
        heard: Heard | None = None,
    ) -> None:
        epto = EptoOptions(NODES, period=ROUND, clock=clock, loss=0.2, carried=True)
        options = BrisaOptions(mixed=True, total=TotalOptions(epto, list(skews)))
        self.heard = Heard() if heard is None else heard
        founders = {0}

        def build(environment: Environment) -> Brisa:
            process = Brisa(environment, options)
            node = int(environment.identifier)
            if node == 0:
                process.begin_as_contact(0, node in founders)
                founders.discard(node)
            process.begin_as_member(0)
            return process

        chosen = NetworkModel(ConstantDelay(20), detection=50) if network is None else network
        self.engine = Engine(NODES, chosen, build, seed, can_fail=True, application=self.heard)

    def publish(self, node: int, at: int, *orders: int) -> None:
        for order in orders:
            self.engine.at(at, PublishAction(node, b"", 0, order))

    def brisa(self, node: int) -> Brisa:
        process = self.engine.nodes[node].process
        assert isinstance(process, Brisa)
        return process


def lossy() -> NetworkModel:
    return NetworkModel(NormalDelay(60.0, 30.0), loss=0.15, detection=50)


@pytest.mark.parametrize("clock", ["logical", "global"])
def test_all_members_deliver_what_many_publish_in_one_order(clock: str) -> None:
    """Section 5.2.2, total order and agreement, with a sixth of all messages lost."""
    world = Topics(lossy(), clock)
    for number in range(30):
        world.publish(number % NODES, START + 40 * number, TOTAL)
    world.engine.run()
    first = world.heard.total(0)
    assert len(first) == 30
    assert all(world.heard.total(node) == first for node in range(NODES))
    assert world.engine.lost == 0


def test_clocks_that_are_wrong_by_more_than_a_dissemination_cost_nothing_by_counts_and_holes_by_times() -> None:
    """Section 5.2.5: the order is never broken; by times what is stamped too low is passed over, and that is told."""
    holes, count = {}, 40
    for clock in ("logical", "global"):
        world = Topics(lossy(), clock, (0, 20_000))
        for number in range(count // 2):
            # A clock that is ahead, and when its event is about to be delivered one that is behind.
            world.publish(1, START + 3000 * number, TOTAL)
            world.publish(2, START + 3000 * number + 300 + 10 * number, TOTAL)
        world.engine.run()
        totals = [world.heard.total(node) for node in range(NODES)]
        everything = sorted({name for total in totals for name in total})
        assert len(everything) == count
        for one in totals:
            for other in totals:
                common = set(one) & set(other)
                assert [name for name in one if name in common] == [name for name in other if name in common]
        missing = sum(count - len(total) for total in totals)
        assert missing == world.engine.lost
        holes[clock] = missing
    assert holes["logical"] == 0 < holes["global"]


def test_a_payload_travels_once_and_balls_only_name_it() -> None:
    """Section 5.5 leaves the balls of the thesis, which carry everything, as a problem."""
    world = Topics()
    world.publish(3, START, TOTAL)
    world.engine.run(START + 5000)
    flood = sum(int(world.brisa(node).group(0).duplicates) for node in range(NODES))
    world.publish(3, START + 5000, *[TOTAL] * 10)
    world.engine.run()
    assert sum(int(world.brisa(node).group(0).duplicates) for node in range(NODES)) == flood
    for node in range(NODES):
        totals = world.brisa(node).group(0).delivery.totals
        assert totals is not None and totals.balls.payloads.copies_sent == 0 and totals.balls.balls_sent > 0


def test_weaker_publications_go_on_and_those_of_the_same_publisher_follow() -> None:
    """A publisher's later ones are after its total one everywhere; those of others need not wait for it."""
    world = Topics()
    world.publish(2, START, TOTAL, NONE, FIFO, CAUSAL, TOTAL, TOTAL, FIFO)
    world.publish(7, START + 1, CAUSAL, NONE)
    world.engine.run()
    for node in range(NODES):
        heard = world.heard.lists[node]
        ordered = [sequence for source, sequence, order in heard if source == 2 and order != NONE]
        assert ordered == [1, 3, 4, 5, 6, 7], "what has no order waits for nothing where it arrives"
        assert {(7, 1, int(CAUSAL)), (7, 2, int(NONE))} == set(heard[:2]), "nobody waits for somebody else's turn"


def test_a_total_publication_follows_what_its_publisher_had_delivered() -> None:
    """Causal order holds between orders: the answer is total, the question is not."""

    class Answering(Heard):
        def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
            super().delivered(engine, node, publication)
            if node == 5 and publication.source == 1 and publication.order == CAUSAL:
                engine.publish(5, b"", 0, TOTAL)
            if node == 6 and publication.source == 5:
                engine.publish(6, b"", 0, CAUSAL)

    for seed in range(3):
        world = Topics(lossy(), seed=seed, heard=Answering())
        for number in range(5):
            world.publish(1, START + 300 * number, CAUSAL)
        world.engine.run()
        for node in range(NODES):
            heard = [(source, sequence) for source, sequence, _ in world.heard.lists[node]]
            assert len(heard) == 15
            for number in range(1, 6):
                assert heard.index((1, number)) < heard.index((5, number)) < heard.index((6, number))


def test_who_comes_back_to_a_topic_goes_on_after_what_it_had_delivered() -> None:
    """What has a smaller key than the last one delivered is refused, also by a later membership of the same node."""
    world = Topics(lossy())
    for number in range(20):
        world.publish(number % 4, START + 200 * number, TOTAL)
    for round_trip in range(3):
        world.engine.at(START + 500 + 1200 * round_trip, UnsubscribeAction(9, 0))
        world.engine.at(START + 1100 + 1200 * round_trip, SubscribeAction(9, 0))
    world.engine.run()
    first, returned = world.heard.total(0), world.heard.total(9)
    assert len(first) == 20 and returned
    places = [first.index(name) for name in returned]
    assert places == sorted(places)


def test_others_go_on_in_one_order_when_publishers_crash() -> None:
    world = Topics(lossy())
    for number in range(24):
        world.publish(number % NODES, START + 80 * number, TOTAL)
    for node in (3, 6, 9):
        world.engine.run(START + 700 + 10 * node)
        world.engine.crash(node)
    world.engine.run()
    stays = [node for node in range(NODES) if node not in (3, 6, 9)]
    first = world.heard.total(0)
    assert {name for name in first if name[0] in stays} == {(node, 1 + turn) for node in stays for turn in range(2)}
    for node in stays:
        # Of what died with its publisher one may have got less than another.
        heard, both = world.heard.total(node), set(first) & set(world.heard.total(node))
        assert [name for name in heard if name in both] == [name for name in first if name in both]
        assert {source for source, _ in set(first) ^ set(heard)} <= {3, 6, 9}


@pytest.mark.parametrize("length", [8 * ROUND, 16 * ROUND, 80 * ROUND])
def test_a_process_that_stood_still_listens_before_it_publishes(length: int) -> None:
    """Others have delivered what waits unread at its host; a stamp that it gives before it reads that is too low."""
    world = Topics()
    for number in range(60):
        world.publish(number % (NODES - 1), START + 40 * number, TOTAL)
    world.engine.run(START + 400)
    world.engine.pause(NODES - 1)
    world.engine.run(START + 400 + length)
    # Its host handles a timer of the application first, and then all that has arrived.
    world.brisa(NODES - 1).publish(b"", 0, TOTAL)
    world.engine.resume(NODES - 1)
    world.engine.run()
    first = world.heard.total(0)
    assert len(first) == 61 and all(world.heard.total(node) == first for node in range(NODES))
    assert world.engine.lost == 0


def test_a_process_whose_rounds_are_always_late_publishes_nevertheless() -> None:
    world = Topics()
    world.publish(2, START, TOTAL)
    for number in range(400):
        world.publish(1, START + ROUND * number, CAUSAL)
    for standstill in range(40):
        world.engine.run(START + 2 * ROUND + 9 * standstill * ROUND)
        if standstill > 0:
            world.engine.resume(2)
        if standstill == 10:
            assert world.brisa(2).publish(b"", 0, TOTAL) == 2
        world.engine.pause(2)
    world.engine.resume(2)
    assert all((2, 2) in world.heard.total(node) for node in range(NODES) if node != 2)


def test_those_who_know_an_event_spread_its_name_if_its_publisher_fails_before_it_could() -> None:
    """Structures that lose messages take longer to bring it to all than it takes to be stable for some."""
    for seed in range(12):
        world = Topics(NetworkModel(NormalDelay(20.0, 10.0), loss=0.15, detection=50), seed=seed)
        for number in range(30):
            world.publish(number % (NODES - 1), START + 40 * number, TOTAL)
        world.publish(NODES - 1, START, TOTAL)
        world.publish(NODES - 1, START + 600, TOTAL)
        world.engine.run(START + 630)
        world.engine.crash(NODES - 1)
        world.engine.run()
        first = world.heard.total(0)
        assert all(world.heard.total(node) == first for node in range(NODES - 1))
        assert world.engine.lost == 0, seed


def test_the_application_sees_how_stable_an_event_is_before_it_is_delivered() -> None:
    """Section 5.5: known and not delivered, with a probability that grows."""
    world = Topics()
    world.publish(4, START, TOTAL)
    seen = []
    for ticks in (60, 200, 400):
        # It begins with the first round of its publisher.
        world.engine.run(START + ROUND + ticks)
        seen += [one.stable for one in world.brisa(8).tentative(0)]
    assert len(seen) == 3 and seen == sorted(seen) and seen[0] < seen[-1] > 0.9
    world.engine.run()
    assert world.brisa(8).tentative(0) == [] and len(world.heard.total(8)) == 1


def test_keys_are_in_the_one_order_of_the_topic() -> None:
    world = Topics()
    world.engine.run(START)
    assert world.brisa(1).publish_about([3, 7], b"", 0, TOTAL) == 1
    world.engine.run()
    assert all(world.heard.total(node) == [(1, 1)] for node in range(NODES))


def test_without_total_order_it_is_refused() -> None:
    with pytest.raises(UsageError, match="here orders are none, fifo, causal, not 'total'"):
        BrisaOptions(order="total")


def test_timers_of_rounds_have_names_of_their_own() -> None:
    for topic in (0, 5, (1 << 62) - 1):
        assert topic_of_rounds(rounds_timer(topic)) == topic
        assert topic_of_rounds(topic) < 0 and topic_of_rounds(~topic) < 0


def test_a_stamped_publication_is_an_ordered_one_with_a_place() -> None:
    publication = Stamped(1, 2, 3, b"why?", 4, 5, vec[i64]())
    assert publication.order == TOTAL and publication.stamp == 5 and len(publication.dependencies) == 0


def test_a_total_publication_waits_for_what_died_with_its_publisher_for_a_while_only() -> None:
    """What nobody has is passed over, and told, or all that is total on the topic would wait for it for ever."""
    world = Topics()
    world.publish(2, START, TOTAL)
    world.engine.run(START + 5000)
    deliveries = world.brisa(4).group(0).delivery
    stamp = deliveries.welcome().stamp + 1
    # Its predecessor, number 8, reached nobody.
    dead = NODES - 1
    world.engine.crash(dead)
    orphan = Stamped(dead, 9, 0, b"", 0, stamp, vec[i64]())
    for node in range(dead):
        world.brisa(node).group(0).delivery.count_as_past(vec[i64]([publication_key(dead, 7)]))
        world.brisa(node).receive((node + 1) % dead, FetchResponse(orphan))
    world.publish(3, START + 6000, TOTAL)
    world.engine.run()
    for node in range(dead):
        assert world.heard.total(node) == [(2, 1), (dead, 9), (3, 1)]
    assert world.engine.lost == dead
