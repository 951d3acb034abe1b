"""Each part of a broker alone: what it says to other brokers, and what it tells the other parts."""

from __future__ import annotations

from antiphon.fabrics.tree.attachment import Attachment, AttachmentEvents
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.durable_state import NUMBERS, DurableState, origin_of
from antiphon.fabrics.tree.messages import (
    DATA,
    Attached,
    BrokerHello,
    BrokerRecord,
    Claim,
    CollectRequest,
    CollectResponse,
    Goodbye,
    Install,
    Item,
    JoinRequest,
    JoinResponse,
    Leave,
    ParentRequest,
    ParentResponse,
    Ready,
    Stable,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.parent_search import ParentSearch, SearchEvents
from antiphon.fabrics.tree.publisher import keys_of
from antiphon.fabrics.tree.root import Root, RootEvents
from antiphon.fabrics.tree.stability import ItemRetention, Stability, StabilityEvents
from antiphon.fabrics.tree.streams import StreamEvents, Streams
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable
from antiphon.fabrics.tree.topology import Overlay, overlay_of_newcomer
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import CAUSAL, Keyed, ProtocolMessage
from antiphon.kernel.process import Environment
from tests.fabrics.tree.runs import EIGHT

OVERLAY = Overlay(1, 0, dict(enumerate(EIGHT)))


class Notebook(Environment):
    """An environment that notes what a part does to the world."""

    def __init__(self, me: int, journal: list[ProtocolMessage] | None = None) -> None:
        super().__init__(me)
        self.sent: list[tuple[int, ProtocolMessage]] = []
        self.timers: list[int] = []
        self.written: list[ProtocolMessage] = []
        self.subscriptions: list[int] = []
        self._journal = journal

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append((int(destination), message))

    def set_timer(self, delay: int, name: int) -> int:
        self.timers.append(int(name))
        return len(self.timers)

    def cancel_timer(self, handle: int) -> None:
        pass

    def journal(self) -> list[ProtocolMessage] | None:
        return self._journal

    def write(self, record: ProtocolMessage) -> None:
        self.written.append(record)

    def sync(self) -> bool:
        return False

    def now(self) -> int:
        return 0

    def watch(self, peer: int) -> None:
        pass

    def subscribed(self, topic: int) -> None:
        self.subscriptions.append(int(topic))

    def take(self) -> list[tuple[int, str]]:
        """To whom what was sent since the last time."""
        said = [(destination, type(message).__name__) for destination, message in self.sent]
        self.sent = []
        return said


class Told(SearchEvents):
    def __init__(self) -> None:
        self.events: list[str] = []

    def became_root(self) -> None:
        self.events.append("became_root")


class Links(AttachmentEvents):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_parent_lost(self) -> None:
        self.events.append("parent_gone")

    def on_child_lost(self, child: int) -> None:
        self.events.append(f"child_gone {child}")

    def look_for_missing(self) -> None:
        self.events.append("look_for_missing")

    def joins(self) -> list[JoinRequest]:
        return []

    def is_joining(self) -> bool:
        return False

    def handle_join(self, child: int, join: JoinRequest) -> None:
        self.events.append(f"handle_join {child}")


def attachment(me: int, options: TreeOptions) -> tuple[Notebook, TreeView, Attachment, Links]:
    world, links = Notebook(me), Links()
    view = TreeView(me, options, OVERLAY, None)
    search = ParentSearch(world, options, view, Told())
    return world, view, Attachment(world, options, view, search, links), links


# The search for a parent.


def test_an_orphan_asks_its_local_view_and_then_anybody() -> None:
    """Broker 4 has lost 1: its grandparent first, then its sibling and its uncles, each once."""
    world, told = Notebook(4), Told()
    view = TreeView(4, TreeOptions(), OVERLAY, None)
    view.parent = -1
    view.dead.add(1)
    search = ParentSearch(world, TreeOptions(), view, told)
    search.begin()
    for _ in range(6):
        search.refused(search.attempt)
    assert [destination for destination, _ in world.sent] == [0, 5, 2, 3, 6, 7]
    assert told.events == []
    search.patience_ends()
    request = world.sent[-1][1]
    assert isinstance(request, ParentRequest) and request.is_forced


def test_the_first_successor_that_lives_becomes_the_root() -> None:
    world, told = Notebook(2), Told()
    view = TreeView(2, TreeOptions(total_degree=3), OVERLAY, None)
    view.parent = -1
    view.dead.add(0)
    ParentSearch(world, TreeOptions(total_degree=3), view, told).begin()
    assert (view.is_root, view.is_complete, told.events, world.sent) == (True, False, ["became_root"], [])


def test_if_all_successors_are_gone_a_broker_leads_unless_it_is_a_newcomer() -> None:
    """Both have heard of a tree that holds broker 9 only."""
    later = Overlay(5, 9, {9: -1})
    for overlay, events in ((OVERLAY, ["became_root"]), (overlay_of_newcomer(2, [9]), [])):
        told = Told()
        view = TreeView(2, TreeOptions(quorum=True), overlay, None)
        view.parent = -1
        view.learn(later, later.council, 5)
        view.dead.update(range(10))
        search = ParentSearch(Notebook(2), TreeOptions(quorum=True), view, told)
        search.begin()
        assert told.events == [], "others are asked first"
        search.patience_ends()
        assert (told.events, view.is_root) == (events, bool(events))


# The links to neighbours.


def test_a_request_goes_to_the_root_and_only_the_root_grants_it() -> None:
    world, _, inner, _ = attachment(1, TreeOptions())
    inner.on_parent_request(7, ParentRequest(7, 1, False, []))
    (destination, request), *_ = world.sent
    assert destination == 0 and isinstance(request, ParentRequest) and request.route == [1]
    above, _, root, _ = attachment(0, TreeOptions())
    root.on_parent_request(1, request)
    (destination, answer), *_ = above.sent
    assert destination == 1 and isinstance(answer, ParentResponse) and answer.is_granted
    assert world.take() == [(0, "ParentRequest")]
    inner.on_parent_response(0, answer)
    assert world.take() == [(7, "ParentResponse")]


def test_a_child_counts_when_it_has_sent_everything() -> None:
    world, view, root, links = attachment(0, TreeOptions())
    root.on_parent_request(9, ParentRequest(9, 4, False, []))
    assert 9 in view.children and 9 not in view.reached()
    root.on_hello(9, BrokerHello(9, 4, {10: 9}, OVERLAY, OVERLAY.council, 1, [JoinRequest(0, None, {}, {}, [])]))
    assert (9 in view.reached(), links.events) == (False, ["handle_join 9"])
    root.on_ready(9)
    assert (view.reached()[9], view.reached()[10]) == (0, 9)
    assert links.events[1:] == ["look_for_missing"]
    assert world.take() == [(9, "ParentResponse")]


def test_who_was_granted_nothing_is_no_child() -> None:
    world, _, root, _ = attachment(0, TreeOptions())
    root.on_hello(9, BrokerHello(9, 4, {}, OVERLAY, OVERLAY.council, 1, []))
    answer = world.sent[-1][1]
    assert isinstance(answer, ParentResponse) and not answer.is_granted and answer.sequence == 0
    root.on_goodbye(9, Goodbye(9, 4))


def test_a_loss_is_reported_before_anything_else_is_said() -> None:
    world, view, inner, links = attachment(1, TreeOptions())
    inner.peer_lost(4)
    assert world.take() == [(0, "Lost")]
    assert (sorted(view.children), links.events) == ([5], ["child_gone 4"])
    inner.on_attached(5, Attached({8: 5}, OVERLAY, OVERLAY.council, 1))
    assert world.take() == [(0, "Attached")]
    inner.peer_lost(0)
    assert links.events[1:] == ["parent_gone"]
    assert Ready.__name__ not in [name for _, name in world.take()]


# The root.


class Epochs(RootEvents):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_parent_lost(self) -> None:
        self.events.append("parent_gone")

    def begins_epoch(self) -> None:
        pass

    def began_epoch(self) -> None:
        self.events.append("began_epoch")

    def all_began(self) -> None:
        self.events.append("all_began")


def root_of(me: int) -> tuple[Notebook, TreeView, Root, Epochs]:
    world, epochs, options = Notebook(me), Epochs(), TreeOptions()
    view = TreeView(me, options, OVERLAY, None)
    search = ParentSearch(world, options, view, Told())
    return world, view, Root(world, options, view, DurableState(world), search, epochs), epochs


def test_an_epoch_begins_when_everybody_who_lives_has_a_way_to_the_root() -> None:
    world, view, root, epochs = root_of(0)
    view.is_complete = False
    del view.children[3]
    view.dead.add(3)
    root.look_for_missing()
    assert (epochs.events, world.sent) == ([], [])
    view.children[7] = {}
    root.look_for_missing()
    assert epochs.events == ["began_epoch"]
    assert world.take() == [(1, "Install"), (2, "Install"), (7, "Install")]
    assert (view.epoch, view.overlay.parents[7], 3 in view.overlay.parents) == (2, 0, False)


def test_of_two_roots_the_one_with_the_earlier_epoch_gives_way() -> None:
    world, view, root, epochs = root_of(0)
    later = Overlay(5, 9, {9: -1})
    root.on_claim(9, Claim(9, 9, later))
    assert (view.is_root, view.overlay, epochs.events) == (False, later, ["parent_gone"])
    world, view, root, epochs = root_of(0)
    root.on_claim(9, Claim(9, 9, Overlay(0, 9, {9: -1})))
    assert (view.is_root, epochs.events, world.take()) == (True, [], [(9, "Claim")])


def test_only_the_parent_installs_an_epoch() -> None:
    _, view, root, epochs = root_of(4)
    later = Overlay(2, 0, dict(OVERLAY.parents))
    root.on_install(5, Install(later))
    assert view.epoch == 1
    root.on_install(1, Install(later))
    assert (view.epoch, epochs.events) == (2, ["began_epoch"])


def test_an_epoch_counts_for_those_whom_the_root_has_in_its_tree_where_they_are() -> None:
    """Broker 9 has found a place below 4, and the root has not heard of that yet: neither of 4, which came before."""
    world, view, root, epochs = root_of(4)
    view.children[9] = {}
    root.on_install(1, Install(Overlay(2, 0, {**OVERLAY.parents, 4: 2})))
    assert (view.epoch, epochs.events, world.sent) == (1, [], [])
    root.on_install(1, Install(Overlay(2, 0, dict(OVERLAY.parents))))
    assert (view.epoch, epochs.events, world.sent) == (2, ["began_epoch"], [])
    root.on_install(1, Install(Overlay(3, 0, {**OVERLAY.parents, 9: 4})))
    assert world.take() == [(9, "Install")]


def test_what_a_broker_knows_of_others_goes_where_it_goes() -> None:
    """A root gives way to another one that has not heard of 8, which joined here, nor of 9, which came later."""
    options = TreeOptions(quorum=True)
    view = TreeView(1, options, OVERLAY, None)
    view.begin_epoch(Overlay(5, 1, {1: -1, 8: 1}, [*range(2, 8), 0], can_order=False))
    view.learn(Overlay(4, 1, {1: -1}, [9], can_order=False), view.council, 5)
    view.learn(OVERLAY, view.council, 1)
    assert view.overlay is OVERLAY
    assert view.testimony().absent == [8, 9]
    view.begin_epoch(Overlay(6, 0, OVERLAY.parents))
    assert view.testimony().absent == [9], "8 was given up, and the root may not have heard of 9"


# Streams, and what all have got.


class Handled(StreamEvents):
    def __init__(self) -> None:
        self.items: list[Item] = []

    def handle_item(self, topic: TreeTopic, item: Item) -> None:
        self.items.append(item)

    def links_changed(self, topic: TreeTopic) -> None:
        pass


class Kept(ItemRetention):
    def __init__(self) -> None:
        self.items: list[Item] = []

    def keep(self, topic: TreeTopic, item: Item) -> None:
        topic.take(item)
        self.items.append(item)


class Forgot(StabilityEvents):
    def __init__(self) -> None:
        self.topics: list[TreeTopic] = []

    def forgot(self, topic: TreeTopic) -> None:
        self.topics.append(topic)


def item_of(origin: int, number: int) -> Item:
    return Item(origin, number, DATA, Keyed(origin, number, 0, b"", 0, CAUSAL, keys_of([])))


def test_an_item_goes_over_all_links_of_its_topic_but_the_one_it_came_over_and_once() -> None:
    world, handled, kept = Notebook(1), Handled(), Kept()
    view, durable = TreeView(1, TreeOptions(), OVERLAY, None), DurableState(world)
    streams = Streams(world, view, TreeTopicTable(1, durable), durable, kept, handled)
    streams.begin(0, True, [4, 5])
    item = item_of(4, 1)
    for _ in range(2):
        streams.on_item(4, item)
    assert world.take() == [(0, "Item"), (5, "Item")]
    assert (kept.items, handled.items) == ([item], [item])
    streams.on_item(7, item_of(7, 1))
    assert handled.items == [item], "no link to 7 carries the topic"
    streams.on_leave(5, Leave(5, 0, 0))
    streams.on_item(4, item_of(4, 2))
    assert world.take() == [(0, "Item")]


def test_items_are_kept_until_all_have_reported_them() -> None:
    world, forgot = Notebook(0), Forgot()
    view, durable = TreeView(0, TreeOptions(), OVERLAY, None), DurableState(world)
    topics = TreeTopicTable(0, durable)
    stability = Stability(world, TreeOptions(), view, topics, durable, forgot)
    topic = topics.of(0)
    topic.is_carried = True
    topic.children.update([1, 2])
    for number in (1, 2):
        stability.keep(topic, item_of(0, number))
    stability.start_round()
    collect = world.sent[-1][1]
    assert isinstance(collect, CollectRequest) and collect.names == [0]
    assert world.take() == [(1, "CollectRequest"), (2, "CollectRequest"), (3, "CollectRequest")]
    stability.on_collect_response(1, CollectResponse(1, 1, 1, {0: {0: 2}}))
    stability.on_collect_response(3, CollectResponse(3, 1, 1, {}))
    assert (len(topic.items), world.sent) == (2, [])
    stability.on_collect_response(2, CollectResponse(2, 1, 1, {0: {0: 1}}))
    stable = world.sent[-1][1]
    assert isinstance(stable, Stable) and stable.frontiers == {0: {0: 1}}
    assert ([int(item.number) for item in topic.items], forgot.topics) == ([2], [topic])


def test_only_those_who_were_asked_hear_what_all_have_got() -> None:
    """A new child may have children that lack it, of whom the root has not heard."""
    world = Notebook(0)
    view, durable = TreeView(0, TreeOptions(), OVERLAY, None), DurableState(world)
    topics = TreeTopicTable(0, durable)
    stability = Stability(world, TreeOptions(), view, topics, durable, Forgot())
    topic = topics.of(0)
    topic.is_carried = True
    stability.keep(topic, item_of(0, 1))
    stability.start_round()
    view.children[9] = None
    for child in (1, 2, 3):
        stability.on_collect_response(child, CollectResponse(child, 1, 1, {}))
    assert [told for told in world.take() if told[1] == "Stable"] == [(1, "Stable"), (2, "Stable"), (3, "Stable")]


def test_nothing_is_forgotten_before_it_has_come() -> None:
    topic = TreeTopic(0, 1)
    topic.take(item_of(4, 1))
    topic.forget({4: 2})
    assert ([int(item.number) for item in topic.items], topic.base) == ([1], {})
    topic.take(item_of(4, 2))
    topic.forget({4: 2})
    assert (topic.items, topic.base) == ([], {4: 2})


class Impatient(Handled):
    """Leaves a topic as soon as nobody needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: Streams | None = None

    def skipped(self, topic: TreeTopic) -> None:
        assert self.streams is not None
        self.streams.leave_if_idle(topic)

    def joined(self) -> None:
        pass


def test_a_topic_is_left_when_the_answer_of_the_parent_has_been_dealt_with() -> None:
    """Else the broker carries a topic of which its parent thinks that it has left it."""
    world, handled = Notebook(1), Impatient()
    view, durable = TreeView(1, TreeOptions(), OVERLAY, None), DurableState(world)
    topics = TreeTopicTable(1, durable)
    streams = Streams(world, view, topics, durable, Kept(), handled)
    handled.streams = streams
    streams.begin(0, False, [])
    streams.on_parent_lost()
    assert [join.topic for join in streams.joins()] == [0]
    streams.on_join_response(0, JoinResponse(0, {4: 1}, {4: 1}, {}, [], [], True, False))
    assert (world.take(), topics.of(0).is_carried) == ([(0, "Leave")], False)


# What the application asks for.


def test_a_subscription_takes_effect_when_the_root_counts_the_broker() -> None:
    """For a broker of which the root has not heard nobody keeps anything."""
    world = Notebook(9)
    broker = TreeBroker(world, TreeOptions(quorum=True), overlay_of_newcomer(9, [0]))
    broker.subscribe(0)
    broker.start()
    broker.receive(0, ParentResponse(9, 1, True, [], OVERLAY))
    broker.receive(0, JoinResponse(0, {}, {}, {}, [], [], True, False))
    assert (broker.topics.of(0).is_carried, world.subscriptions) == (True, [])
    broker.receive(0, Install(Overlay(2, 0, {**OVERLAY.parents, 9: 0})))
    assert world.subscriptions == [0]


# What outlives a crash.


def test_a_later_life_begins_with_what_was_written() -> None:
    past: list[ProtocolMessage] = [
        BrokerRecord(0, 100, OVERLAY, OVERLAY.council, 1),
        JoinResponse(0, {4: 1}, {4: 1}, {}, [], [], False, False),
        item_of(4, 2),
        JoinResponse(1, {}, {}, {}, [], [], False, False),
        Leave(1, 0, 1),
    ]
    world = Notebook(1, past)
    durable = DurableState(world)
    topics = TreeTopicTable(1, durable)
    assert (durable.incarnation, durable.first_number, durable.origin) == (1, 100, origin_of(1, 1))
    assert [int(topic.name) for topic in topics.all()] == [0]
    assert (topics.of(0).base, topics.of(0).frontier) == ({4: 1}, {4: 2})
    view = TreeView(1, TreeOptions(quorum=True), OVERLAY, durable.past)
    assert (view.is_returning, view.has_place, view.children) == (True, False, {})
    durable.reserve_numbers(100, view)
    assert [type(record) for record in world.written] == [BrokerRecord]
    assert not durable.may_publish(101)
    assert durable.next_safe().kind == NUMBERS
    assert durable.may_publish(101)
