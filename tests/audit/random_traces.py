"""Random small histories of a topic or two: right ones, and ones in which something was changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from antiphon.audit.columns.histories import Rows
from antiphon.audit.oracle import EVENTS
from antiphon.kernel.message import ORDER_NAMES


@dataclass(frozen=True)
class Row:
    event: str
    node: int
    topic: int | None
    source: int | None
    sequence: int | None
    order: str | None = None


@dataclass
class World:
    """A topic in which copies travel as they like and are delivered when what they wait for was delivered."""

    random: random.Random
    nodes: int
    orders: list[str | None]
    topic: int
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members: set[int] = set()
        self.numbers = dict.fromkeys(range(self.nodes), 0)
        self.past: dict[tuple[int, int], set[tuple[int, int]]] = {}
        self.order: dict[tuple[int, int], str | None] = {}
        self.knows: dict[int, set[tuple[int, int]]] = {node: set() for node in range(self.nodes)}
        self.waiting: dict[int, list[tuple[int, int]]] = {node: [] for node in range(self.nodes)}
        self.done: dict[int, set[tuple[int, int]]] = {node: set() for node in range(self.nodes)}

    def add(self, event: str, node: int, source: int, sequence: int, order: str | None = None) -> None:
        self.rows.append(Row(event, node, self.topic, source, sequence, order))

    def subscribe(self, node: int) -> None:
        if node not in self.members:
            self.members.add(node)
            self.add("subscribed", node, node, 0)

    def unsubscribe(self, node: int, asks: bool) -> None:
        if node in self.members and not self.waiting[node]:
            if asks:
                self.add("unsubscribe", node, node, 0)
            self.members.discard(node)
            self.add("unsubscribed", node, node, 0)

    def publish(self, node: int, says_so: bool) -> None:
        if node not in self.members:
            return
        order = self.random.choice(self.orders)
        if order not in ("none", "total") and any(p[0] == node for p in self.waiting[node]):
            # What is in order waits for its publisher's own total ones before it.
            return
        self.numbers[node] += 1
        publication = (node, self.numbers[node])
        if says_so or order == "total":
            self.add("publish", node, *publication, order)
        self.order[publication] = order
        mine = {p for p in self.past if p[0] == node}
        follows: set[tuple[int, int]] = set()
        if order in (None, "causal", "total"):
            follows = self.knows[node] | mine
        elif order == "fifo":
            follows = mine.union(*(self.past[p] for p in mine))
        self.past[publication] = follows
        if order != "total":
            self.deliver(node, publication)
        # A total one comes to its publisher like to others.
        for other in self.members - ({node} if order != "total" else set()):
            self.waiting[other].append(publication)

    def deliver(self, node: int, publication: tuple[int, int]) -> None:
        self.add("deliver", node, *publication, self.order[publication])
        self.done[node].add(publication)
        self.knows[node] |= {publication} | self.past[publication]

    def step(self, node: int) -> None:
        ready = [p for p in self.waiting[node] if not any(o in self.past[p] for o in self.waiting[node] if o != p)]
        if ready:
            chosen = self.random.choice(ready)
            self.waiting[node].remove(chosen)
            self.deliver(node, chosen)

    def finish(self) -> None:
        for node in range(self.nodes):
            while self.waiting[node]:
                self.step(node)


def random_history(seed: int, orders: list[str | None], says_so: bool = True, asks: bool = False) -> list[Row]:
    """A history in which everything is as promised; topics are interleaved."""
    chance = random.Random(seed)
    worlds = [World(chance, chance.randint(2, 6), orders, topic) for topic in range(chance.randint(1, 3))]
    rows: list[Row] = []
    for world in worlds:
        for node in range(chance.randint(2, world.nodes)):
            world.subscribe(node)
    for _ in range(chance.randint(5, 120)):
        world = chance.choice(worlds)
        node = chance.randrange(world.nodes)
        what = chance.random()
        if what < 0.25:
            world.publish(node, says_so)
        elif what < 0.29:
            world.subscribe(node)
        elif what < 0.32:
            world.unsubscribe(node, asks)
        else:
            world.step(node)
    for world in worlds:
        world.finish()
        rows += world.rows
    # Topics are judged apart, so any interleaving of theirs is as good as another.
    places = sorted(range(len(rows)), key=lambda _: 0)
    return [rows[place] for place in places]


class MortalWorld(World):
    """A topic whose nodes crash and return, with or without their memory, and say that something is lost."""

    def begin(self, remembers: bool) -> None:
        self.remembers = remembers
        self.down: set[int] = set()
        self.speechless: set[int] = set()

    def crash(self, node: int) -> None:
        """What the node was to deliver waits for its return, or is not owed any more."""
        self.down.add(node)
        self.rows.append(Row("crash", node, None, None, None))
        if not self.remembers:
            # Its numbers would begin again, so it publishes no more.
            self.speechless.add(node)
            self.waiting[node].clear()
            self.knows[node] = set()
            self.members.discard(node)

    def restart(self, node: int) -> None:
        self.down.discard(node)
        self.rows.append(Row("restart", node, None, None, None))
        if node in self.members:
            self.add("subscribed", node, node, 0)
        self.subscribe(node)

    def lose(self, node: int) -> None:
        """What waits for something that is lost need not wait for that."""
        if self.waiting[node]:
            chosen = self.random.choice(self.waiting[node])
            self.waiting[node].remove(chosen)
            self.add("lost", node, *chosen)

    def act(self, node: int, loses: bool) -> None:
        what = self.random.random()
        if node in self.down:
            if what < 0.1:
                self.restart(node)
        elif what < 0.2 and node not in self.speechless:
            self.publish(node, says_so=True)
        elif what < 0.24:
            self.subscribe(node)
        elif what < 0.26:
            self.unsubscribe(node, asks=False)
        elif what < 0.3:
            self.crash(node)
        elif what < 0.34 and loses:
            self.lose(node)
        else:
            self.step(node)


def history_with_lives(seed: int, orders: list[str | None], remembers: bool, loses: bool) -> list[Row]:
    """A history in which nodes crash and return, and say that something is lost; all else is as promised.

    It has one topic, because a node that fails does so in all of them.
    """
    chance = random.Random(seed)
    world = MortalWorld(chance, chance.randint(3, 6), orders, 0)
    world.begin(remembers)
    for node in range(chance.randint(2, world.nodes)):
        world.subscribe(node)
    for _ in range(chance.randint(20, 140)):
        world.act(chance.randrange(world.nodes), loses)
    for node in range(world.nodes):
        while world.waiting[node] and node not in world.down:
            world.step(node)
    return world.rows


def damaged(rows: list[Row], seed: int, count: int) -> list[Row]:
    """The same with some deliveries dropped, doubled, moved, exchanged, or given to other publishers or nodes."""
    chance = random.Random(seed)
    rows = list(rows)
    for _ in range(count):
        deliveries = [place for place, row in enumerate(rows) if row.event == "deliver"]
        if len(deliveries) < 2:
            return rows
        place, other = chance.sample(deliveries, 2)
        what = chance.randrange(7)
        if what == 0:
            del rows[place]
        elif what == 1:
            rows.insert(chance.randint(place + 1, len(rows)), rows[place])
        elif what == 2:
            rows.insert(chance.randrange(len(rows)), rows.pop(place))
        elif what == 3 and rows[place].topic == rows[other].topic:
            one, two = rows[place], rows[other]
            rows[place] = replace(two, node=one.node)
            rows[other] = replace(one, node=two.node)
        elif what == 4:
            rows[place] = replace(rows[place], source=chance.randrange(6))
        elif what == 5:
            rows[place] = replace(rows[place], node=chance.randrange(6))
        elif what == 6:
            rows[place] = replace(rows[place], order=chance.choice(["none", "fifo", "causal"]))
    return rows


def as_table(rows: list[Row]) -> pa.Table:
    """For the judge of small traces."""
    columns = ("event", "node", "topic", "source", "sequence", "order")
    types = (pa.string(), pa.int32(), pa.int32(), pa.int32(), pa.int64(), pa.string())
    return pa.table(
        {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in zip(columns, types, strict=True)}
    )


def as_rows(rows: list[Row]) -> Rows:
    """For the judge of parts."""

    def column(values: Sequence[int | None]) -> np.ndarray:
        return np.array(values, np.int64)

    return Rows(
        column([row.topic for row in rows]),
        column([row.node for row in rows]),
        column([row.source for row in rows]),
        column([row.sequence for row in rows]),
        column([EVENTS.index(row.event) for row in rows]),
        column([-1 if row.order is None else ORDER_NAMES.index(row.order) for row in rows]),
        np.arange(len(rows)) * 3 + 7,
        np.ones(len(rows), np.bool_),
    )
