"""The peers that the process of a node watches: it is told once when one of them is lost, and once when it is back."""

from __future__ import annotations

from collections.abc import Callable


class WatchedPeers:
    """The news that the process of one node got of the peers that it watches, by ``tell_lost`` and ``tell_found``."""

    def __init__(self, tell_lost: Callable[[int], None], tell_found: Callable[[int], None]) -> None:
        self._tell_lost = tell_lost
        self._tell_found = tell_found
        self._watched: set[int] = set()
        # Those of which it has been told that they are lost.
        self._told_lost: set[int] = set()

    def __contains__(self, identifier: int) -> bool:
        return identifier in self._watched

    def __bool__(self) -> bool:
        return bool(self._watched)

    def watch(self, identifier: int, is_lost: bool = False) -> None:
        """Watch a peer; ``is_lost`` if the process takes it for lost before it is told anything."""
        self._watched.add(identifier)
        if is_lost:
            self._told_lost.add(identifier)

    def unwatch(self, identifier: int) -> None:
        """Tell nothing more of a peer."""
        self._watched.discard(identifier)
        self._told_lost.discard(identifier)

    def clear(self) -> None:
        """There is another process, which watches nobody."""
        self._watched.clear()
        self._told_lost.clear()

    def lost(self, identifier: int) -> None:
        """A peer is lost: tell the process, unless it knows."""
        if identifier in self._watched and identifier not in self._told_lost:
            self._told_lost.add(identifier)
            self._tell_lost(identifier)

    def found(self, identifier: int) -> None:
        """A peer can be reached: tell the process, if it takes that one for lost."""
        if identifier in self._told_lost:
            self._told_lost.discard(identifier)
            self._tell_found(identifier)
