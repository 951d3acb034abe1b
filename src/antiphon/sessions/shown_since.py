"""The batches that a client was shown since it published the oldest batch that is not safe.

A batch that is handed in again follows what its client had been shown when it published it, and not what came later.
Two clients of a lost node may have been shown each other's batches, which no other node has: each brings its own
without waiting for the other's.
"""

from __future__ import annotations

from typing import Final

SHOWN_AT_MOST: Final = 4096
"""Of one topic. Of those before, a client says that it had been shown them when it published: then a node waits longer
than it must."""


class ShownSince:
    """All topics of one client. Its ``moment``s are the numbers of its requests."""

    def __init__(self) -> None:
        self._of_topic: dict[str, list[tuple[int, int, int]]] = {}

    def add(self, topic: str, moment: int, author: int, number: int) -> None:
        """A batch was shown after the client made its request of this number."""
        shown = self._of_topic.setdefault(topic, [])
        shown.append((moment, author, number))
        if len(shown) > SHOWN_AT_MOST:
            del shown[: SHOWN_AT_MOST // 2]

    def forget(self, topic: str) -> None:
        """Nothing of a topic is kept."""
        self._of_topic.pop(topic, None)

    def end_of(self, topic: str, moment: int) -> int | None:
        """The last moment before which nothing more was shown than at this one; None if that is now."""
        return next((each[0] for each in self._of_topic.get(topic, ()) if each[0] >= moment), None)

    def before(self, topic: str, moment: int, past: dict[int, int]) -> dict[int, int]:
        """The last batch of each author that had been shown at a moment, of those that were by now."""
        found = dict(past)
        for at, author, number in self._of_topic.get(topic, ()):
            if at >= moment and found.get(author, 0) >= number:
                found[author] = number - 1
        return found
