"""How a broker begins to carry a topic of which more is kept than one message can bring."""

from __future__ import annotations

import pytest

from antiphon.fabrics.tree.durable_state import DurableState
from antiphon.fabrics.tree.messages import DATA, LOCK, Item, JoinRequest, JoinResponse, Settled, Skip
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.pieces import HISTORY_AT_MOST, HISTORY_BYTES_AT_MOST, LOCK_BYTES_AT_MOST, beginning_of
from antiphon.fabrics.tree.publisher import keys_of
from antiphon.fabrics.tree.streams import Streams
from antiphon.fabrics.tree.topic import OPEN, TreeTopic
from antiphon.fabrics.tree.topic_table import TreeTopicTable, image_of
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import CAUSAL, Keyed, ProtocolMessage
from tests.fabrics.tree.test_parts import OVERLAY, Handled, Kept, Notebook

MANY = 3 * HISTORY_AT_MOST
OTHER = 2
"""Another broker that may become the parent."""

CHILD = 4

Said = JoinResponse | JoinRequest | Settled | Skip | Item

LARGE = LOCK_BYTES_AT_MOST // 3
"""Three such publications fill a message, and more of them than are under way here do not fit a frame."""

UNDER_WAY = 13


class Begun(Handled):
    """Notes when a topic has come, and when its links have changed, with how many items were there."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int]] = []

    def carried(self, topic: TreeTopic) -> None:
        self.events.append(("carried", len(topic.items)))

    def links_changed(self, topic: TreeTopic) -> None:
        self.events.append(("links", len(topic.items)))

    def joined(self) -> None:
        pass

    def skipped(self, topic: TreeTopic) -> None:
        pass


class Broker:
    """The streams of a broker, and what it says."""

    def __init__(self, me: int) -> None:
        self.world, self.events, self.kept = Notebook(me), Begun(), Kept()
        self.view, durable = TreeView(me, TreeOptions(), OVERLAY, None), DurableState(self.world)
        topics = TreeTopicTable(me, durable)
        self.streams = Streams(self.world, self.view, topics, durable, self.kept, self.events)
        self.topic = topics.of(0)

    def said_to(self, other: int) -> list[Said]:
        """What it has said to another broker since the last time."""
        said = [message for to, message in self.world.sent if to == other]
        self.world.sent = []
        assert all(isinstance(message, Said) for message in said)
        return said  # type: ignore[return-value]

    def hear(self, sender: int, *messages: Said) -> None:
        for message in messages:
            if isinstance(message, Item):
                self.streams.on_item(sender, message)
            elif isinstance(message, JoinResponse):
                self.streams.on_join_response(sender, message)
            elif isinstance(message, Settled):
                self.streams.on_settled(sender, message)
            elif isinstance(message, Skip):
                self.streams.on_skip(sender, message)
            else:
                self.streams.on_join_request(sender, message)


def numbered(count: int, size: int = 1, kind: int = DATA) -> list[Item]:
    return [
        Item(0, number, kind, Keyed(0, number, 0, bytes(size), 0, CAUSAL, keys_of([])))
        for number in range(1, count + 1)
    ]


def parent_with(items: list[Item], child: int) -> Broker:
    """A root that keeps items of a topic, and has a new child."""
    found = Broker(0)
    found.streams.begin(0, True, [])
    for item in items:
        found.topic.take(item)
    found.view.children[child] = None
    return found


def newcomer() -> Broker:
    """A broker that has asked its parent for a topic."""
    found = Broker(1)
    found.topic.is_wanted = True
    found.streams.want(found.topic)
    assert [type(said) for said in found.said_to(0)] == [JoinRequest]
    return found


def answer_to_newcomer(items: list[Item]) -> list[Said]:
    parent = parent_with(items, 1)
    parent.hear(1, JoinRequest(0, None, {}, {}, []))
    return parent.said_to(1)


@pytest.mark.parametrize("size", [1, HISTORY_BYTES_AT_MOST // 4, 2 * HISTORY_BYTES_AT_MOST])
def test_an_answer_has_a_limit_and_the_rest_follows(size: int) -> None:
    """What is kept for an absent broker was once said in a frame that the newcomer refused, again and again."""
    items = numbered(MANY, size)
    first, *rest = answer_to_newcomer(items)
    assert isinstance(first, JoinResponse)
    assert sum(len(item.publication.payload) for item in first.history) <= HISTORY_BYTES_AT_MOST
    assert [*first.history, *rest] == items


def test_what_fits_is_one_message() -> None:
    items = numbered(HISTORY_AT_MOST)
    (answer,) = answer_to_newcomer(items)
    assert isinstance(answer, JoinResponse) and answer.history == items == beginning_of(items)


def test_a_broker_begins_when_everything_has_come() -> None:
    """Until then it does not know which keys are closed, so nothing may be published there."""
    broker, answer = newcomer(), answer_to_newcomer(numbered(MANY, kind=LOCK))
    broker.hear(0, *answer[:-1])
    assert all(what != "carried" for what, _ in broker.events.events)
    broker.hear(0, answer[-1])
    assert broker.events.events[-2:] == [("carried", MANY), ("links", MANY)], "it says what it is closed for"
    assert len(broker.topic.locks) == MANY
    later = Item(0, MANY + 1, DATA, Keyed(0, MANY + 1, 0, b"", 0, CAUSAL, keys_of([])))
    broker.hear(0, later)
    assert broker.events.items == [later], "nothing from before is delivered"


def test_a_parent_that_is_lost_meanwhile_is_forgotten() -> None:
    broker = newcomer()
    broker.hear(0, *answer_to_newcomer(numbered(MANY, kind=LOCK))[:5])
    broker.view.parent = OTHER
    broker.streams.on_parent_lost()
    assert [(join.topic, join.frontier) for join in broker.streams.joins()] == [(0, None)]
    broker.hear(OTHER, *answer_to_newcomer(numbered(2, kind=LOCK)))
    assert broker.topic.is_carried
    assert [int(item.number) for item in broker.topic.items] == [1, 2] and len(broker.topic.locks) == 2


def test_a_child_that_has_more_comes_meanwhile() -> None:
    items = numbered(MANY)
    broker, answer = newcomer(), answer_to_newcomer(items)
    broker.hear(0, *answer[:5])
    broker.view.children[CHILD] = None
    own = Item(CHILD, 1, DATA, Keyed(CHILD, 1, 0, b"", 0, CAUSAL, keys_of([])))
    broker.hear(CHILD, JoinRequest(0, {0: MANY, CHILD: 1}, {0: 2}, {}, []))
    broker.hear(CHILD, own)
    broker.hear(0, *answer[5:])
    assert broker.topic.is_settled and broker.topic.frontier == {0: MANY, CHILD: 1}
    assert own in broker.said_to(0), "the parent gets it over the link that is open"


# Total publications that are under way, more than one message has room for.


def with_locks(broker: Broker) -> Broker:
    """All brokers have the locks, so they are in the base; a majority is lost, so they are not completed."""
    locks = numbered(UNDER_WAY, LARGE, LOCK)
    broker.topic.begin_at(Skip(0, None, {0: UNDER_WAY}, {}, locks))
    broker.topic.is_carried = broker.topic.is_settled = True
    return broker


class Returned(Notebook):
    """The host of a broker that finds records of an earlier incarnation."""

    def __init__(self, records: list[ProtocolMessage]) -> None:
        super().__init__(1)
        self._records = records

    def journal(self) -> list[ProtocolMessage]:
        return self._records


def lock_bytes(message: Said) -> int:
    return 0 if isinstance(message, Item) else sum(len(item.publication.payload) for item in message.locks)


def test_locks_come_to_a_newcomer_in_pieces_and_it_begins_with_all_of_them() -> None:
    """They were once in one frame, which the newcomer refused, again and again."""
    parent = with_locks(parent_with([], 1))
    items = [Item(0, UNDER_WAY + number, DATA, numbered(1)[0].publication) for number in range(1, MANY + 1)]
    for item in items:
        parent.topic.take(item)
    broker = newcomer()
    parent.hear(1, JoinRequest(0, None, {}, {}, []))
    answer = parent.said_to(1)
    assert max(map(lock_bytes, answer)) <= LOCK_BYTES_AT_MOST
    assert sum(map(lock_bytes, answer)) == UNDER_WAY * LARGE
    for message in answer:
        assert not broker.topic.is_carried, "nothing may be published before all that is closed is known"
        broker.hear(0, message)
    assert broker.events.events[-2:] == [("carried", MANY), ("links", MANY)]
    assert set(broker.topic.locks) == set(parent.topic.locks) and len(broker.topic.locks) == UNDER_WAY


@pytest.mark.parametrize("knows", [False, True])
def test_a_broker_that_returns_tells_its_parent_of_many_locks_when_it_has_answered(knows: bool) -> None:
    """The parent may have begun anew; it tells its own parent, too."""
    parent, child = Broker(1), with_locks(Broker(CHILD))
    if knows:
        with_locks(parent)
    parent.view.children[CHILD] = None
    parent.view.parent, child.view.parent = 0, 1
    parent.topic.is_wanted = child.topic.is_wanted = True
    (join,) = child.streams.joins()
    assert lock_bytes(join) == 0
    parent.hear(CHILD, join)
    answer = [message for to, message in parent.world.sent if to == CHILD and isinstance(message, Said)]
    above = [message for to, message in parent.world.sent if to == 0]
    parent.world.sent = []
    assert [type(message) for message in above] == ([] if knows else [JoinRequest])
    parent.topic.up = OPEN
    child.hear(1, *answer)
    pieces = child.said_to(1)
    assert 0 < max(map(lock_bytes, pieces)) <= LOCK_BYTES_AT_MOST
    parent.hear(CHILD, *pieces)
    assert set(parent.topic.locks) == set(child.topic.locks)
    assert sum(map(lock_bytes, parent.said_to(0))) == (0 if knows else UNDER_WAY * LARGE)


def test_what_settles_later_tells_children_of_locks_in_pieces() -> None:
    parent = with_locks(parent_with([], 1))
    parent.topic.is_settled = False
    child = Broker(1)
    child.topic.is_carried, child.topic.up = True, OPEN
    parent.topic.children.add(1)
    parent.streams.settle_all()
    said = parent.said_to(1)
    assert isinstance(said[-1], Settled) and max(map(lock_bytes, said)) <= LOCK_BYTES_AT_MOST
    child.hear(0, *said)
    assert child.topic.is_settled and len(child.topic.locks) == UNDER_WAY


def test_the_journal_has_locks_in_pieces() -> None:
    topic = with_locks(Broker(1)).topic
    records = image_of(topic)
    assert max(lock_bytes(record) for record in records) <= LOCK_BYTES_AT_MOST  # type: ignore[arg-type]
    restored = TreeTopicTable(1, DurableState(Returned(records))).of(0)
    assert set(restored.locks) == set(topic.locks) and restored.is_carried
