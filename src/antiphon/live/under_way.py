"""How many bytes of this node's publications on one topic are under way.

A process counts publications: how many more it takes before others have acknowledged some. Publications have between
one byte and ten megabytes, so their number bounds no memory. What is acknowledged last was published last, so the
number that is under way says which ones these are, and their sizes are remembered here.
"""

from __future__ import annotations

from collections import deque


class UnderWay:
    """The sizes of the last publications, the oldest first."""

    def __init__(self) -> None:
        self._sizes: deque[int] = deque()
        self.bytes = 0

    def add(self, size: int) -> None:
        """One more is under way."""
        self._sizes.append(size)
        self.bytes += size

    def keep(self, count: int) -> None:
        """No more than so many are still under way."""
        sizes = self._sizes
        while len(sizes) > count and sizes:
            self.bytes -= sizes.popleft()
