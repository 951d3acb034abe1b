"""StaN, claim by claim: thesis of M. Matos, chapter 3, and where its text had to be put right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon_lab.experiments.stan.runs import StanWorld, key_of, subscriptions_of, unheard_in
from antiphon_lab.protocols.gossip.stan import Stan
from antiphon_lab.protocols.gossip.stan_messages import Found, Post, Walk
from antiphon_lab.protocols.gossip.stan_options import (
    NOTHING,
    SIMPLE,
    SOURCES,
    WALKS,
    Rendezvous,
    StanOptions,
    view_size,
)
from antiphon_lab.protocols.gossip.stan_view import SUSPECTED_ROUNDS, AlignedView, Suspects
from antiphon_lab.protocols.gossip.stan_weights import NODE_MASK, Ranking
from antiphon_lab.universes.stan_links import TopicMembers, aligned_views
from antiphon_lab.universes.universe import Universe, synthetic_universe, universe_of

PERIOD = 1000


class Hand(Environment):
    """An environment of which a test sees everything."""

    def __init__(self, identifier: int) -> None:
        super().__init__(identifier)
        self.sent: list[tuple[int, ProtocolMessage]] = []
        self.delivered: list[Publication] = []
        self.watched: set[int] = set()
        self.unwanted_copies = 0
        self.subscriptions: list[int] = []
        self._random = RandomStream(1, identifier)

    def now(self) -> int:
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append((destination, message))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)

    def unwanted(self, message: ProtocolMessage) -> None:
        self.unwanted_copies += 1

    def subscribed(self, topic: int) -> None:
        self.subscriptions.append(topic)

    def set_timer(self, delay: int, name: int) -> int:
        return 0

    def random(self) -> RandomStream:
        return self._random

    def watch(self, peer: int) -> None:
        self.watched.add(peer)

    def unwatch(self, peer: int) -> None:
        self.watched.discard(peer)


def options(
    learning: str = SOURCES, refill: int = 0, random_slots: int = 0, flood: str = "crosspost", patience: int = 0
) -> StanOptions:
    return StanOptions(4, PERIOD, learning, random_slots, refill=refill, patience=patience, in_step=True, flood=flood)


def process_with(views: dict[int, list[int]], chosen: StanOptions, me: int = 0) -> tuple[Stan, Hand]:
    """A node with these views, in the world of its environment."""
    environment = Hand(me)
    process = Stan(environment, chosen, Rendezvous(8))
    for topic, view in views.items():
        process.begin_as_member(topic, view)
    process.start()
    return process, environment


def vector(nodes: Sequence[int]) -> vec[i64]:
    found = vec[i64]()
    for node in nodes:
        found = append(found, node)
    return found


def small_universe() -> Universe:
    return synthetic_universe("wikipedia", 70, seed=2)


# Section 3.2.3, Algorithm 1: the weight function.


def test_a_node_weighs_no_two_others_the_same_and_a_rank_says_whose_it_is() -> None:
    ranking = Ranking(3, 0)
    ranks = [int(ranking.rank_of(node)) for node in range(5000)]
    assert len(set(ranks)) == 5000
    assert [int(ranking.node_of(rank)) for rank in ranks] == list(range(5000))
    assert min(ranks) >= 0 and max(ranks) <= NODE_MASK


def test_weights_are_uniform_each_node_is_the_best_of_others_equally_often() -> None:
    best = [min(range(1, 51), key=Ranking(node, 0).rank_of) for node in range(1000, 5000)]
    counts = np.bincount(best, minlength=51)[1:]
    # Mean 80, chi-square with 49 degrees of freedom: above 85 once in a thousand keys.
    assert float(((counts - 80) ** 2 / 80).sum()) < 85


def test_weights_are_asymmetric_what_one_thinks_of_another_says_nothing_of_the_reverse() -> None:
    there = np.array([Ranking(node, 0).rank_of(node + 1) for node in range(4000)], dtype=float)
    back = np.array([Ranking(node + 1, 0).rank_of(node) for node in range(4000)], dtype=float)
    assert abs(np.corrcoef(there, back)[0, 1]) < 0.06


def test_concatenated_identifiers_do_not_collide() -> None:
    # The published function hashes the text "1" + "23" and "12" + "3".
    assert Ranking(1, 0).rank_of(23) != Ranking(12, 0).rank_of(3)


def test_view_sizes_connect_an_overlay_with_probability_0_99() -> None:
    # Section 3.3.3, with the formula of Kermarrec et al.
    sizes = {30: 9, 50: 9, 100: 10, 200: 10, 500: 11, 1000: 12, 1381: 12, 4689: 14, 10_000: 14}
    assert {members: view_size(members) for members in sizes} == sizes
    assert [view_size(members) for members in (1, 2, 5)] == [0, 1, 4]


# Section 3.2.3, Algorithm 2: walks.


def test_a_round_sends_one_walk_into_every_topic() -> None:
    process, environment = process_with({0: [1, 2], 1: [3]}, options())
    process.expire(0)
    walks = [(peer, message) for peer, message in environment.sent if isinstance(message, Walk)]
    assert {int(walk.topic) for _, walk in walks} == {0, 1}
    assert all(len(walk.known) == 0 and walk.hops == 4 and walk.source == 0 for _, walk in walks)
    assert {peer for peer, walk in walks if walk.topic == 1} == {3}


def test_a_walk_collects_whom_it_meets_and_their_neighbours_and_goes_on_with_what_is_left_of_its_hops() -> None:
    process, environment = process_with({0: [5, 6]}, options(NOTHING), me=2)
    process.receive(9, Walk(7, 0, 3, vector([9, 4])))
    [(peer, walk)] = environment.sent
    assert isinstance(walk, Walk)
    assert list(walk.known) == [9, 4, 2, 5, 6]
    # As printed (line 11) it would begin again with all hops, for ever.
    assert (walk.source, walk.hops) == (7, 2)
    assert peer in (5, 6)


def test_at_its_last_hop_a_walk_returns_what_it_found() -> None:
    process, environment = process_with({0: [5, 6]}, options(NOTHING), me=2)
    process.receive(9, Walk(7, 0, 0, vector([9])))
    [(peer, reply)] = environment.sent
    assert isinstance(reply, Found)
    assert (peer, list(reply.known)) == (7, [9, 2, 5, 6])


def test_a_walk_ends_at_a_node_that_has_left_the_topic() -> None:
    process, environment = process_with({0: [5]}, options(), me=2)
    process.receive(9, Walk(7, 3, 4, vector([9])))
    [(peer, reply)] = environment.sent
    assert isinstance(reply, Found)
    assert (peer, list(reply.known)) == (7, [9])


def test_a_reply_leaves_the_best_known_members_in_a_view_of_the_same_size() -> None:
    process, _ = process_with({0: [1, 2, 3]}, options())
    process.receive(1, Found(1, 0, vector(range(30))))
    best = sorted(range(1, 30), key=Ranking(0, 0).rank_of)[:3]
    # Node 0 is among those found, and does not take itself.
    assert sorted(int(peer) for peer in process.view(0)) == sorted(best)


def test_the_same_members_are_chosen_in_every_topic_so_links_fall_onto_each_other() -> None:
    # Figure 3.3: four logical links on four neighbours become four on two.
    process, environment = process_with({0: [1, 2], 1: [3, 4]}, options())
    assert (process.logical_links(), process.physical_links()) == (4, 4)
    for topic in (0, 1):
        process.receive(1, Found(1, topic, vector([1, 2, 3, 4])))
    assert (process.logical_links(), process.physical_links()) == (4, 2)
    assert environment.watched == {int(peer) for peer in process.view(0)}


def test_a_reply_about_a_topic_that_was_left_meanwhile_changes_nothing() -> None:
    process, _ = process_with({0: [1, 2]}, options())
    process.unsubscribe(0)
    process.receive(1, Found(1, 0, vector([1, 2, 3])))
    assert process.topics() == [] and process.physical_links() == 0


@pytest.mark.parametrize(("learning", "learnt"), [(NOTHING, set()), (SOURCES, {"source"}), (WALKS, {"source", "met"})])
def test_who_is_visited_by_a_walk_learns_what_the_options_say(learning: str, learnt: set[str]) -> None:
    order = sorted(range(1, 100), key=Ranking(0, 0).rank_of)
    source, met, worst = order[0], order[1], order[-2:]
    process, _ = process_with({0: worst}, options(learning))
    process.receive(5, Walk(source, 0, 0, vector([met])))
    view = {int(peer) for peer in process.view(0)}
    assert (source in view, met in view) == ("source" in learnt, "met" in learnt)
    assert len(view) == 2


# The protocol as a whole.


def views_of(world: StanWorld) -> dict[tuple[int, int], set[int]]:
    return {(process, topic): set(view) for topic, views in world.views().items() for process, view in views.items()}


def fixed_point(universe: Universe, key: int) -> dict[tuple[int, int], set[int]]:
    owners, of = subscriptions_of(universe)
    topics = TopicMembers(universe.topic_offsets, universe.topic_processes, universe.processes)
    views = aligned_views(topics, owners, of, key)
    found: dict[tuple[int, int], set[int]] = {}
    for place, neighbour in zip(views.place.tolist(), views.neighbour.tolist(), strict=True):
        found.setdefault((int(owners[place]), int(of[place])), set()).add(neighbour)
    return found


def ranks_of_views(world: StanWorld, key: int) -> dict[tuple[int, int], int]:
    return {
        (process, topic): sum(int(Ranking(process, key).rank_of(peer)) for peer in view)
        for (process, topic), view in views_of(world).items()
    }


def test_logical_links_stay_and_the_weight_of_no_view_ever_rises() -> None:
    universe = small_universe()
    world = StanWorld(universe, options(), seed=5)
    logical, physical = world.links()
    before = ranks_of_views(world, 0)
    for _ in range(4):
        world.run_round()
        now = ranks_of_views(world, 0)
        assert all(now[place] <= before[place] for place in before)
        assert world.links()[0].tolist() == logical.tolist()
        before = now
    assert world.links()[1].mean() < 0.75 * physical.mean()


def test_the_protocol_ends_at_the_fixed_point_that_is_computed_directly() -> None:
    universe = small_universe()
    seed = 77
    chosen = StanOptions(4, PERIOD, SOURCES, refill=0, patience=12, in_step=True, key=key_of(seed))
    world = StanWorld(universe, chosen, seed)
    assert world.engine.run(300 * PERIOD) == "finished"
    found, wanted = views_of(world), fixed_point(universe, key_of(seed))
    assert found.keys() == wanted.keys()
    exact = sum(found[place] == wanted[place] for place in wanted)
    assert exact > 0.98 * len(wanted)
    assert unheard_in(world) == 0


def unheard_and_links(learning: str, random_slots: int = 0) -> tuple[int, float]:
    """In one large topic after 25 rounds: how many are in nobody's view; and the mean weight of a view."""
    universe = universe_of(np.arange(600), np.zeros(600, np.int64))
    world = StanWorld(universe, options(learning, random_slots=random_slots), seed=3)
    for _ in range(25):
        world.run_round()
    return unheard_in(world), sum(ranks_of_views(world, 0).values()) / 600


@pytest.mark.slow
def test_as_published_some_are_forgotten_by_all_others() -> None:
    # Section 3.3.5 reports no disconnection. Who is in nobody's view still has neighbours, but is not heard of.
    published, _ = unheard_and_links(NOTHING)
    corrected, _ = unheard_and_links(SOURCES)
    assert published > 2 * corrected
    # Who learns from all that pass forgets hardly anybody.
    assert unheard_and_links(WALKS)[0] <= published // 4


@pytest.mark.slow
def test_an_entry_that_stays_as_it_was_drawn_keeps_some_known_at_the_cost_of_worse_neighbours() -> None:
    unheard, weight = unheard_and_links(NOTHING)
    fewer, worse = unheard_and_links(NOTHING, random_slots=2)
    assert fewer < unheard
    assert worse > weight


def test_without_common_subscriptions_nothing_can_be_shared() -> None:
    # Section 3.2.1: StaN degenerates to one overlay per topic.
    process = np.concatenate([np.arange(40), np.arange(39, 79)])
    universe = universe_of(process, np.repeat([0, 1], 40))
    world = StanWorld(universe, options(), seed=1)
    for _ in range(6):
        world.run_round()
    logical, physical = world.links()
    assert physical.tolist() == logical.tolist()


# Section 3.3.6: dynamics.


def aligned_view(view: list[int], chosen: StanOptions, suspects: Suspects) -> AlignedView:
    environment = Hand(0)
    ranking = Ranking(0, 0)
    made = AlignedView(environment, 0, Connections(environment), Neighbourhood(), chosen, ranking, suspects)
    made.begin_with(view)
    return made


def test_a_failed_neighbour_shrinks_the_view_and_is_not_taken_up_again_for_a_while() -> None:
    process, environment = process_with({0: [1, 2, 3], 1: [1]}, options())
    process.peer_lost(1)
    assert sorted(process.view(0)) == [2, 3] and list(process.view(1)) == []
    assert environment.watched == {2, 3}
    # Somebody who has not noticed still names it.
    process.receive(2, Found(2, 0, vector([1])))
    assert sorted(process.view(0)) == [2, 3]


def test_who_failed_is_forgiven_in_time_or_when_it_is_heard_of() -> None:
    order = sorted(range(1, 50), key=Ranking(0, 0).rank_of)
    best, worst = order[0], order[-1]
    suspects = Suspects()
    view = aligned_view([worst], options(), suspects)
    suspects.add(best)
    view.consider(best)
    assert list(view.neighbours()) == [worst]
    suspects.round += SUSPECTED_ROUNDS
    view.consider(best)
    assert list(view.neighbours()) == [best]
    suspects.add(worst)
    suspects.clear(worst)
    assert not suspects.contains(worst)


def test_a_view_that_is_too_small_is_refilled_by_what_a_walk_finds() -> None:
    process, _ = process_with({0: [1, 2]}, options(refill=5))
    process.receive(1, Found(1, 0, vector(range(1, 20))))
    assert len(process.view(0)) == 5
    best = sorted(range(1, 20), key=Ranking(0, 0).rank_of)[:5]
    assert sorted(int(peer) for peer in process.view(0)) == sorted(best)


def test_a_newcomer_is_subscribed_when_somebody_keeps_it() -> None:
    universe = universe_of(np.arange(30), np.zeros(30, np.int64))
    world = StanWorld(universe, options(refill=5), seed=2, can_fail=True, absent=[29])
    world.run_round()
    world.engine.join(29)
    world.run_round()
    newcomer = world.engine.nodes[29].process
    assert isinstance(newcomer, Stan)
    assert newcomer.unfinished() == 0
    world.run_round()
    assert len(newcomer.view(0)) >= 5
    assert sum(29 in view for view in world.views()[0].values()) > 0


def test_a_system_at_rest_sends_nothing() -> None:
    universe = universe_of(np.arange(20), np.zeros(20, np.int64))
    world = StanWorld(universe, options(patience=3), seed=2)
    assert world.engine.run(200 * PERIOD) == "finished"
    assert world.engine.end_time < 60 * PERIOD


# Section 3.2.4, Algorithm 3: floods.


def test_an_event_in_two_topics_takes_each_link_once() -> None:
    # The worked example of section 3.2.4: two messages instead of four.
    process, environment = process_with({0: [2, 3], 1: [2, 3]}, options())
    process.crosspost(b"m", [0, 1])
    assert sorted(peer for peer, _ in environment.sent) == [2, 3]
    assert [int(publication.topic) for publication in environment.delivered] == [0, 1]
    simple, other = process_with({0: [2, 3], 1: [2, 3]}, options(flood=SIMPLE))
    simple.crosspost(b"m", [0, 1])
    assert sorted(peer for peer, _ in other.sent) == [2, 2, 3, 3]


def test_without_shared_links_both_floods_send_the_same() -> None:
    for flood in ("crosspost", SIMPLE):
        process, environment = process_with({0: [2, 3], 1: [4, 5]}, options(flood=flood))
        process.crosspost(b"m", [0, 1])
        assert sorted(peer for peer, _ in environment.sent) == [2, 3, 4, 5]


def test_an_event_is_relayed_once_and_not_back_to_where_it_came_from() -> None:
    process, environment = process_with({0: [2, 3]}, options(), me=1)
    origin, sent = process_with({0: [1, 4]}, options(), me=2)
    origin.publish(b"m")
    copy = next(message for peer, message in sent.sent if peer == 1)
    process.receive(2, copy)
    process.receive(3, copy)
    assert [peer for peer, _ in environment.sent] == [3]
    assert (process.flood.sent, process.flood.echoes, process.flood.duplicates) == (1, 1, 1)
    assert len(environment.delivered) == 1


def test_nobody_is_given_an_event_of_a_topic_that_it_is_not_subscribed_to() -> None:
    process, environment = process_with({0: [2]}, options(), me=1)
    origin, sent = process_with({3: [1]}, options(), me=2)
    origin.publish(b"m", 3)
    process.receive(2, sent.sent[0][1])
    assert environment.delivered == [] and environment.unwanted_copies == 1 and environment.sent == []


def test_a_node_remembers_a_bounded_number_of_events() -> None:
    environment = Hand(1)
    process = Stan(environment, StanOptions(remembered=2), Rendezvous(1))
    process.begin_as_member(0, [2])
    process.start()
    for number in range(1, 4):
        process.receive(2, Post(9, number, 0, b"m", vector([0]), vector([number]), 1))
    process.receive(2, Post(9, 3, 0, b"m", vector([0]), vector([3]), 1))
    assert process.flood.duplicates == 1
    process.receive(2, Post(9, 1, 0, b"m", vector([0]), vector([1]), 1))
    assert process.flood.duplicates == 1 and len(environment.delivered) == 4


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"learning": "everything"}, "choose from nothing, sources, walks"),
        ({"flood": "twice"}, "choose from crosspost, simple"),
        ({"period": 0}, "period must be at least 1"),
        ({"remembered": 0}, "remembered must be at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, str | int], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        StanOptions(**wrong)  # type: ignore[arg-type]


def test_publishing_on_a_topic_without_a_subscription_is_refused() -> None:
    process, _ = process_with({0: [2]}, options())
    with pytest.raises(UsageError, match="not subscribed to topic 4; subscribe before publishing"):
        process.publish(b"m", 4)
    with pytest.raises(UsageError, match="subscribed to topic 0 already"):
        process.subscribe(0)
    with pytest.raises(UsageError, match="cannot unsubscribe"):
        process.unsubscribe(4)
