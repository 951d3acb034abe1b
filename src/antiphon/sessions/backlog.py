"""What clients have handed in and the node has not taken yet: bounded for each client, and for all of them together.

At a bound nothing more is read from a client, so it waits. That must not make a node wait for itself: a client also
says over its connection what its subscriptions have taken, and publishers may wait for that. So a client from which a
subscription waits for a word is read from, however much all clients together have handed in. Its own bound remains; a
client keeps that by itself (:mod:`antiphon.sessions.unacked`), and only one that does not keep it is ever held by it.
"""

from __future__ import annotations

from typing import Final, Protocol

CLIENT_BATCHES_AT_MOST: Final = 128
CLIENT_BYTES_AT_MOST: Final = 64 << 20
"""How many batches of one client, and how many bytes of them, wait to be taken before no more are read from it."""

OWN: Final = "its batches wait to be published"
OF_ALL: Final = "the batches of all clients together are as much as may wait"


class Reading(Protocol):
    """A connection from which nothing is read while there is a reason."""

    def hold(self, reason: str) -> None:
        """Read nothing more, for this reason among others."""

    def release(self, reason: str) -> None:
        """The reason is gone."""


class Backlogs:
    """The backlogs of all clients of a node."""

    def __init__(self, bytes_at_most: int) -> None:
        self._bytes_at_most = bytes_at_most
        self.bytes = 0
        self._held: set[Backlog] = set()

    @property
    def is_full(self) -> bool:
        """Whether clients with something in their backlogs are not read from."""
        return self.bytes >= self._bytes_at_most

    @property
    def held_clients(self) -> int:
        """From how many clients nothing is read because all together have handed in too much."""
        return len(self._held)

    def add(self, size: int) -> None:
        """So many bytes more wait, or fewer."""
        self.bytes += size
        if size < 0 and self._held and 2 * self.bytes <= self._bytes_at_most:
            held, self._held = self._held, set()
            for backlog in held:
                backlog.resume()

    def hold(self, backlog: Backlog) -> None:
        """A backlog waits until there is less of all."""
        self._held.add(backlog)

    def forget(self, backlog: Backlog) -> None:
        """A backlog does not wait any more."""
        self._held.discard(backlog)


class Backlog:
    """The backlog of one client."""

    def __init__(self, all_of_them: Backlogs, connection: Reading) -> None:
        self._all = all_of_them
        self._connection = connection
        self._batches = 0
        self.bytes = 0
        self._words_awaited = 0
        self._has_ended = False

    def add(self, size: int) -> None:
        """The client has handed in something."""
        self._batches += 1
        self.bytes += size
        self._all.add(size)
        if self._batches >= CLIENT_BATCHES_AT_MOST or self.bytes >= CLIENT_BYTES_AT_MOST:
            self._connection.hold(OWN)
        if self._all.is_full and self.bytes > 0 and self._words_awaited == 0:
            self._connection.hold(OF_ALL)
            self._all.hold(self)

    def remove(self, size: int) -> None:
        """Something of it has been taken."""
        if self._has_ended:
            return
        self._batches -= 1
        self.bytes -= size
        self._all.add(-size)
        if self._batches * 2 <= CLIENT_BATCHES_AT_MOST and self.bytes * 2 <= CLIENT_BYTES_AT_MOST:
            self._connection.release(OWN)
        if self.bytes == 0:
            self.resume()

    def resume(self) -> None:
        """Read from the client again, however much others have handed in."""
        self._all.forget(self)
        self._connection.release(OF_ALL)

    def await_word(self) -> None:
        """A subscription of the client goes on only when the client says that it has taken something."""
        self._words_awaited += 1
        self.resume()

    def word_came(self) -> None:
        """That subscription goes on."""
        self._words_awaited -= 1

    def end(self) -> None:
        """The client is gone, and with it what it had handed in."""
        self._has_ended = True
        self._all.forget(self)
        self._all.add(-self.bytes)
