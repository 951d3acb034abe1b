"""The interface through which the parts of a process advance the queue of operations on a topic.

The queue itself is :class:`antiphon.fabrics.cube.operations.Operations`. It knows the parts; they know this interface.
"""

from __future__ import annotations

from antiphon.fabrics.cube.topic import CubeTopic


class Agenda:
    """The operations that the application asked for on each topic, in order."""

    def advance(self, topic: CubeTopic) -> None:
        """Begin queued operations of a topic, one after the other, as far as that is possible now."""
        raise NotImplementedError

    def advance_later(self, topic: CubeTopic) -> None:
        """Advance a topic when the current message is handled."""
        raise NotImplementedError

    def advance_opened(self) -> None:
        """Advance the topics that were put off."""
        raise NotImplementedError

    def totals_delivered(self, topic: CubeTopic) -> None:
        """Total publications were delivered here, with everything that they released."""
        raise NotImplementedError

    def close_if_outside(self, topic: CubeTopic) -> None:
        """Drop the view of a topic that this node has left, once no node waits for its answers."""
        raise NotImplementedError
