"""On which connections others speak, and which of two connections of one life is the later one.

A life numbers its links in the order in which it opens them, and says the number in the first frame. A frame may be
late, so the first frame of an earlier connection may come when a later one is already in use. The frames of the
earlier connection belong to an earlier session of the two nodes, and must not be handed over any more.
"""

from __future__ import annotations

from antiphon.membership.host import Connection


class Speakers:
    """The connections of others, as the lives at their other ends number them."""

    def __init__(self) -> None:
        self._numbers: dict[Connection, int] = {}
        # Connections on which one has said who it is. On the others a newcomer has asked for a place at most.
        self._speaking: set[Connection] = set()
        # The highest number of a connection on which each life was heard, and on which it greeted. They outlive these.
        self._latest: dict[str, int] = {}
        self._latest_greeting: dict[str, int] = {}

    def greeted(self, connection: Connection, number: int) -> bool:
        """A life says which of its connections this is; false if a later one came first, and this one is closed."""
        self._numbers[connection] = number
        latest = self._latest_greeting.get(connection.instance, 0)
        self._latest_greeting[connection.instance] = max(latest, number)
        if number < latest:
            connection.close()
        return number >= latest

    def dismissed(self, connection: Connection) -> bool:
        """Close a connection if the same life was already heard on a later one; the answer is whether it was."""
        is_outdated = self._numbers.get(connection, 0) < self._latest.get(connection.instance, 0)
        if is_outdated:
            connection.close()
        return is_outdated

    def on_frame(self, connection: Connection) -> None:
        """A life is heard on a connection: earlier ones do not count from now on."""
        self._latest[connection.instance] = self._numbers.get(connection, 0)

    def on_hello(self, connection: Connection) -> None:
        """A node has said on a connection who it is."""
        self._speaking.add(connection)

    def has(self, connection: Connection) -> bool:
        """Whether a node has said on a connection who it is."""
        return connection in self._speaking

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        self._numbers.pop(connection, None)
        self._speaking.discard(connection)
