"""The messages by which nodes of a cube agree on total order (:mod:`antiphon.fabrics.cube.totals`).

``source`` and ``sequence`` are those of the total publication that is to come, unless something else is said.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import Message


@mypyc_attr(acyclic=True)
class ToKeeper(Message):
    """What a publisher says to the keeper; ``epoch`` counts keepers, and another one than is meant passes it over."""

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64) -> None:
        super().__init__(source, sequence, topic)
        self.epoch: Final[i64] = epoch


@mypyc_attr(acyclic=True)
class Claim(ToKeeper):
    """The source wants to publish about some keys."""

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64, keys: vec[i64]) -> None:
        super().__init__(source, sequence, topic, epoch)
        self.keys: Final[vec[i64]] = keys

    def entries_carried(self) -> i64:
        return len(self.keys)


@mypyc_attr(acyclic=True)
class Release(ToKeeper):
    """The publication has started."""


@mypyc_attr(acyclic=True)
class Granted(Message):
    """From the keeper of an epoch: nobody else is about to; grants are counted by ``place``."""

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64, place: i64) -> None:
        super().__init__(source, sequence, topic)
        self.epoch: Final[i64] = epoch
        self.place: Final[i64] = place


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
    """The keeper of the epoch ``sequence`` is ``origin``. Its predecessor tells it, and it tells everybody."""

    def __init__(self, source: i64, sequence: i64, origin: i64) -> None:
        super().__init__(source, sequence)
        self.origin: Final[i64] = origin


@mypyc_attr(acyclic=True)
class Standing(Message):
    """To the keeper of the epoch ``sequence``: all that the source has claimed and not released.

    ``entries`` holds for each the topic, number, place or 0, count of keys and keys.
    """

    def __init__(self, source: i64, sequence: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)
