"""Batches that clients have handed in and the node has not taken: bounded for each client and for all together.

At a bound nothing more is read from a client, so it waits. The bound of all together holds only clients of owners that
have handed in more than their share: an owner is one identity, and does not wait for what others have handed in.

That must not make a node wait for itself: a client also says over its connection what its subscriptions have taken, and
publishers may wait for that. So a client from which a subscription waits for a word is read from, however much all
clients together have handed in. Its own bound remains; a client keeps that by itself
(:mod:`antiphon.sessions.unacked`), and only one that does not keep it is ever held by it.

Where something waits, heartbeats tell a process that is busy from one that stands still. A client that is not read from
cannot ask its node for a heartbeat, so the node sends heartbeats without being asked (``unread``). A client that must
take something before its subscriptions go on is asked for heartbeats, and given up if it sends none (``awaited``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from antiphon.membership.heartbeats import FailureDetector

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


class HeardClient(Protocol):
    """A client whose process may stand still."""

    def bytes_received(self) -> int:
        """How much the client has said, or has read; it grows if its process runs."""

    def request_heartbeat(self) -> None:
        """Ask the client for a sign of life."""

    def send_heartbeat(self) -> None:
        """Tell the client that this node runs."""

    def give_up(self) -> None:
        """End the connection of the client."""


class Backlogs:
    """The backlogs of all clients of a node; ``when_waiting`` is called when the first of them waits for something."""

    def __init__(self, bytes_at_most: int) -> None:
        self._bytes_at_most = bytes_at_most
        self.bytes = 0
        # By owner; only those that have handed in something.
        self._of: dict[str, int] = {}
        self._held: set[Backlog] = set()
        self.when_waiting: Callable[[], object] = bool
        self._awaited: dict[int, Backlog] = {}
        self._unread: dict[int, Backlog] = {}
        self._last = 0

    def next_number(self) -> int:
        """A number for a backlog."""
        self._last += 1
        return self._last

    def are_waiting(self) -> bool:
        """Whether some client waits for this node, or this node for some client."""
        return bool(self._awaited or self._unread)

    def set_awaited(self, backlog: Backlog, is_awaited: bool) -> None:
        """A client must take something before its subscriptions go on, or has taken it."""
        self._set(self._awaited, backlog, is_awaited)

    def set_unread(self, backlog: Backlog, is_unread: bool) -> None:
        """Nothing is read from a client, or something is again."""
        self._set(self._unread, backlog, is_unread)

    def _set(self, waiting: dict[int, Backlog], backlog: Backlog, is_waiting: bool) -> None:
        if not is_waiting:
            waiting.pop(backlog.number, None)
            return
        waiting[backlog.number] = backlog
        self.when_waiting()

    def poll(self, now: float, detector: FailureDetector) -> list[HeardClient]:
        """Exchange heartbeats where something waits; the clients that have given none for too long."""
        for backlog in self._unread.values():
            backlog.client.send_heartbeat()
        silent = detector.poll(
            now, {number: backlog.client.bytes_received() for number, backlog in self._awaited.items()}
        )
        for number in silent.asked:
            self._awaited[number].client.request_heartbeat()
        return [self._awaited[number].client for number in silent.lost]

    def is_full_for(self, owner: str) -> bool:
        """Whether clients of an owner with something in their backlogs are not read from."""
        return self.bytes >= self._bytes_at_most and self._of.get(owner, 0) * len(self._of) >= self._bytes_at_most

    @property
    def held_clients(self) -> int:
        """From how many clients nothing is read because all together have handed in too much."""
        return len(self._held)

    def add(self, owner: str, size: int) -> None:
        """So many bytes of an owner more wait, or fewer."""
        self.bytes += size
        of_owner = self._of.get(owner, 0) + size
        if of_owner:
            self._of[owner] = of_owner
        else:
            self._of.pop(owner, None)
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

    def __init__(self, all_of_them: Backlogs, connection: Reading, client: HeardClient, owner: str = "") -> None:
        self.number = all_of_them.next_number()
        self._all = all_of_them
        self._connection = connection
        self.client = client
        self._owner = owner
        self._reasons: set[str] = set()
        self._batches = 0
        self.bytes = 0
        self._words_awaited = 0
        self._has_ended = False

    def add(self, size: int) -> None:
        """The client has handed in something."""
        self._batches += 1
        self.bytes += size
        self._all.add(self._owner, size)
        if self._batches >= CLIENT_BATCHES_AT_MOST or self.bytes >= CLIENT_BYTES_AT_MOST:
            self._hold(OWN)
        if self._all.is_full_for(self._owner) and self.bytes > 0 and self._words_awaited == 0:
            self._hold(OF_ALL)
            self._all.hold(self)

    def remove(self, size: int) -> None:
        """Something of it has been taken."""
        if self._has_ended:
            return
        self._batches -= 1
        self.bytes -= size
        self._all.add(self._owner, -size)
        if self._batches * 2 <= CLIENT_BATCHES_AT_MOST and self.bytes * 2 <= CLIENT_BYTES_AT_MOST:
            self._release(OWN)
        if self.bytes == 0:
            self.resume()

    def resume(self) -> None:
        """Read from the client again, however much others have handed in."""
        self._all.forget(self)
        self._release(OF_ALL)

    def _hold(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.add(reason)
            self._connection.hold(reason)
            self._all.set_unread(self, True)

    def _release(self, reason: str) -> None:
        if reason in self._reasons:
            self._reasons.discard(reason)
            self._connection.release(reason)
            self._all.set_unread(self, bool(self._reasons))

    def await_word(self) -> None:
        """A subscription of the client goes on only when the client says that it has taken something."""
        self._words_awaited += 1
        self._all.set_awaited(self, True)
        self.resume()

    def on_word_taken(self) -> None:
        """That subscription goes on."""
        self._words_awaited -= 1
        if self._words_awaited == 0:
            self._all.set_awaited(self, False)

    def end(self) -> None:
        """The client is gone, and with it what it had handed in."""
        self._has_ended = True
        self._all.forget(self)
        self._all.set_awaited(self, False)
        self._all.set_unread(self, False)
        self._all.add(self._owner, -self.bytes)
