"""The news of a broker about a topic, in pieces for which a frame has room.

A frame has a limit. The publications that are kept for an absent broker have none that is as low. Nor have the total
publications that are under way together: those wait while a majority is lost.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.tree.messages import Item

HISTORY_AT_MOST: Final = 16
HISTORY_BYTES_AT_MOST: Final = 1 << 20
"""How many items an answer to a newcomer brings, and how large they may be together. The others follow one by one."""

LOCK_BYTES_AT_MOST: Final = 16 << 20
"""How large the total publications may be together that one message names as under way. Others follow in ``Skip``."""


def bytes_of(items: list[Item]) -> i64:
    """How large the publications of some items are together."""
    found: i64 = 0
    for item in items:
        found += len(item.publication.payload)
    return found


def beginning_of(items: list[Item]) -> list[Item]:
    """The first of some items, as far as one message has room for them."""
    room = HISTORY_BYTES_AT_MOST
    for count, item in enumerate(items[:HISTORY_AT_MOST]):
        room -= len(item.publication.payload)
        if room < 0:
            return items[:count]
    return items[:HISTORY_AT_MOST]


def lock_pieces(locks: list[Item]) -> list[list[Item]]:
    """Locks in pieces for which one message has room; at least one piece, which may be empty."""
    pieces: list[list[Item]] = [[]]
    room: i64 = LOCK_BYTES_AT_MOST
    for lock in locks:
        size = len(lock.publication.payload)
        if size > room and len(pieces[-1]) > 0:
            pieces.append([])
            room = LOCK_BYTES_AT_MOST
        room -= size
        pieces[-1].append(lock)
    return pieces
