"""What the parts of a process on the cube may ask of the line of operations on a topic.

The line itself is :class:`antiphon.fabrics.cube.operations.Operations`. It knows the parts, and they know only this.
"""

from __future__ import annotations

from antiphon.fabrics.cube.topic import Topic


class Agenda:
    """What the application asked for on each topic, one thing after the other."""

    def advance(self, topic: Topic) -> None:
        """Begin what the application asked for, one after the other, as far as that is possible now."""
        raise NotImplementedError

    def advance_later(self, topic: Topic) -> None:
        """Do the same when all is used that came with the message at hand."""
        raise NotImplementedError

    def advance_opened(self) -> None:
        """Begin what waited for that."""
        raise NotImplementedError

    def totals_delivered(self, topic: Topic) -> None:
        """Total publications were delivered here, and all that was released with them."""
        raise NotImplementedError

    def close_if_outside(self, topic: Topic) -> None:
        """When nobody waits for the answer of one who has left, it needs no view, and may subscribe again."""
        raise NotImplementedError
