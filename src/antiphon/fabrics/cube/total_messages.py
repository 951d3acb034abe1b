"""The messages by which nodes of a cube agree on total order (:mod:`antiphon.fabrics.cube.totals`).

``source`` and ``sequence`` are those of the total publication that is to come, unless something else is said.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import Message


@mypyc_attr(acyclic=True)
class Claim(Message):
    """To the keeper: the source wants to publish about some keys."""

    def __init__(self, source: i64, sequence: i64, topic: i64, keys: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.keys: Final[vec[i64]] = keys

    def entries_carried(self) -> i64:
        return len(self.keys)


@mypyc_attr(acyclic=True)
class Granted(Message):
    """From the keeper: nobody else is about to; grants are counted by ``place``."""

    def __init__(self, source: i64, sequence: i64, topic: i64, place: i64) -> None:
        super().__init__(source, sequence, topic)
        self.place: Final[i64] = place


@mypyc_attr(acyclic=True)
class Release(Message):
    """To the keeper: the publication has started."""


@mypyc_attr(acyclic=True)
class KeyLock(Message):
    """Down the tree of the source: begin nothing more about these keys until the publication was delivered."""

    def __init__(self, source: i64, sequence: i64, topic: i64, keys: vec[i64], place: i64) -> None:
        super().__init__(source, sequence, topic)
        self.keys: Final[vec[i64]] = keys
        self.place: Final[i64] = place

    def entries_carried(self) -> i64:
        return len(self.keys)


@mypyc_attr(acyclic=True)
class Closed(Message):
    """Back up: the whole subtree of the sender is closed; ``entries`` are the last publications of its members."""

    def __init__(self, source: i64, sequence: i64, topic: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


@mypyc_attr(acyclic=True)
class KeeperIs(Message):
    """The keeper of the claims is ``origin``; ``sequence`` counts how often it has changed."""

    def __init__(self, source: i64, sequence: i64, origin: i64) -> None:
        super().__init__(source, sequence)
        self.origin: Final[i64] = origin


@mypyc_attr(acyclic=True)
class Handover(Message):
    """The receiver is the keeper from now on; ``sequence`` as above.

    ``entries`` holds for each topic its number, how many entries follow, and its claims.
    """

    def __init__(self, source: i64, sequence: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)
