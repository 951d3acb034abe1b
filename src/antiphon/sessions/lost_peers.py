"""When other nodes were lost: a node does not wait for what a client has seen if those who had it are gone for long."""

from __future__ import annotations

from collections.abc import Iterable


class LostPeers:
    """The nodes that were lost within the last ``memory_us``; others were lost before, or before this node began."""

    def __init__(self, began_us: int, memory_us: int) -> None:
        self._began_us = began_us
        self._memory_us = memory_us
        self._at_us: dict[int, int] = {}

    def add(self, identifier: int, now_us: int) -> None:
        """A node is lost."""
        self._at_us.pop(identifier, None)
        self._at_us[identifier] = now_us
        while (oldest := next(iter(self._at_us))) != identifier and self._at_us[oldest] + self._memory_us < now_us:
            del self._at_us[oldest]

    def since_us(self, identifiers: Iterable[int]) -> int:
        """When the last of some nodes was lost that are not there; not before this node began, as it cannot know."""
        return max(self._began_us, *(self._at_us.get(identifier, 0) for identifier in identifiers))
