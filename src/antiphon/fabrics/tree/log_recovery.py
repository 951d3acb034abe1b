"""Reads items that no buffer holds any more from the log.

A broker forgets an item when all brokers of the epoch have it. A broker that was absent for so long that the others
gave it up does not count, so it lacks items that the others have forgotten. The document has no answer to that (section
4.3.1: messages fall out of the buffer). Here a broker reads its own log when a neighbour that lacks something connects.
The log holds items of the stream in the order in which this broker delivered them. The items that it finds return to
their place at the front of the buffer, as if they had never been forgotten.

The log begins when the subscription takes effect. It holds everything delivered since then, but no locks. The broker
still knows the locks that are not completed; empty items replace the others, so that numbers have no gaps. Items that
the log does not reach are skipped, and the skip is reported.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.tree.messages import VOID, Frontier, Item
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.kernel.message import NONE, Keyed
from antiphon.kernel.process import Environment

ENTRIES_AT_MOST: Final[i64] = 1 << 15
"""How many entries are read before the rest is given up. They are in memory until all of them are sent at once."""


def recall(environment: Environment, topic: TreeTopic, frontier: Frontier) -> None:
    """Put back into the buffer the items that a broker with this frontier lacks, as far as the log reaches."""
    wanted = {origin: number for origin, number in topic.base.items() if frontier.get(origin, 0) < number}
    left = set(wanted)
    pieces: list[list[Item]] = []
    count: i64 = 0
    is_whole = False
    # Without a subscription the log is empty, which does not mean that there were no items.
    reader = environment.log_reader(topic.name) if topic.is_subscribed else None
    while reader is not None and left and count < ENTRIES_AT_MOST:
        entries = reader.earlier()
        if entries is None:
            break
        if not entries:
            is_whole = True
            break
        found: list[Item] = []
        for entry in entries:
            if not isinstance(entry, Item) or entry.origin not in wanted:
                continue
            got = frontier.get(entry.origin, 0)
            if got < entry.number <= wanted[entry.origin]:
                found.append(entry)
            if entry.number <= got + 1:
                left.discard(int(entry.origin))
        pieces.append(found)
        count += len(entries)
    items = [item for piece in reversed(pieces) for item in piece]
    base = lowest(topic, frontier, wanted, left, is_whole, items)
    if base:
        topic.take_back(without_gaps(topic, base, items), base)


def lowest(
    topic: TreeTopic, frontier: Frontier, wanted: Frontier, left: set[int], is_whole: bool, items: list[Item]
) -> Frontier:
    """From where on everything of each origin is known: all that was found, or that is known not to matter."""
    base: Frontier = {}
    for item in items:
        base.setdefault(int(item.origin), item.number - 1)
    for origin, number in wanted.items():
        reaches = frontier.get(origin, 0)
        if origin in left:
            # Nothing before that is in the log; if the log is whole it has all since the subscription took effect.
            reaches = max(reaches, topic.subscribed_at.get(origin, 0)) if is_whole else base.get(origin, number)
        if reaches < number:
            base[origin] = reaches
        else:
            base.pop(origin, None)
    return base


def without_gaps(topic: TreeTopic, base: Frontier, items: list[Item]) -> list[Item]:
    """These items, and in between those that the log does not hold: locks that are open, and what is over."""
    locks = {(int(lock.item.origin), int(lock.item.number)): lock.item for lock in topic.locks.values()}
    reached = dict(base)
    complete: list[Item] = []
    for item in items:
        fill(topic, complete, locks, int(item.origin), reached.get(item.origin, 0) + 1, item.number)
        complete.append(item)
        reached[item.origin] = item.number
    for origin, number in reached.items():
        fill(topic, complete, locks, origin, number + 1, topic.base[origin] + 1)
    return complete


def fill(
    topic: TreeTopic, complete: list[Item], locks: dict[tuple[int, int], Item], origin: int, first: i64, end: i64
) -> None:
    """Append what stands for the numbers from the first to the one before the end."""
    for number in range(first, end):
        lock = locks.get((origin, int(number)))
        complete.append(lock if lock is not None else void(topic, origin, number))


def void(topic: TreeTopic, origin: i64, number: i64) -> Item:
    """An entry that means nothing."""
    return Item(origin, number, VOID, Keyed(origin, 0, 0, b"", topic.name, NONE, vec[i64]()))
