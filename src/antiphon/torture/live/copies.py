"""Total messages that some applications were shown at one place, and others at another: the two copies of a move.

A client whose node is gone hands a total message in again at its next node. Where nodes pass over what comes too late
(in gossip), a node that passes over the first copy tells its subscribers of a gap, and shows the message at the place
of the second copy (docs/guarantees.md, clients that change their node). So there the message has no order with those
of others. In the order of its publisher it comes all the same.

Whether that is what has happened is judged message by message: other applications were shown the publication of another
node, and this one was told of a gap since the message was asked for.
"""

from __future__ import annotations

from antiphon.torture.live.dropping import Name

NOT_TOLD = -1


class ShownCopies:
    """Which node's publication each application was shown, of each message, and when each was last told of a gap."""

    def __init__(self) -> None:
        self._gaps_us: dict[tuple[int, int], int] = {}
        self._publishers: dict[Name, dict[int, str]] = {}

    def gap(self, application: int, topic: int, time_us: int) -> None:
        """An application is told that messages on a topic may be missing."""
        self._gaps_us[application, topic] = time_us

    def shown(self, application: int, name: Name, publisher: str) -> None:
        """An application is shown a message, as a publication of this node."""
        self._publishers.setdefault(name, {})[application] = publisher

    def is_second(self, application: int, name: Name, asked_us: int) -> bool:
        """Whether an application was shown another copy than those that were told of no gap since."""
        publishers = self._publishers.get(name, {})
        if len(set(publishers.values())) < 2 or not self._was_told(application, name[1], asked_us):
            return False
        first = {publisher for other, publisher in publishers.items() if not self._was_told(other, name[1], asked_us)}
        return publishers.get(application) not in first

    def _was_told(self, application: int, topic: int, asked_us: int) -> bool:
        return self._gaps_us.get((application, topic), NOT_TOLD) > asked_us


def own_key(name: Name) -> int:
    """A key that no other message is about, for one that has no order with others; those of users are not negative."""
    identity, _, number = name
    return -((identity << 32) + number) - 1
