"""Bounds on the requests of one client: how long they may be, how quickly they come, and how much of them is kept.

Batches have bounds of their own. All other requests are decoded into many small objects, which take ten times the
memory of their frames, and a processor that all clients share. So they are shorter than batches, and an identity that
sends many bytes of them waits: nothing is read from its connections for a while.
"""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.node.gateway.accounts import Account
from antiphon.sessions.client_messages import FIRST_CLIENT_CONTROL
from antiphon.transport.incoming import IncomingConnection

REQUEST_BYTES_AT_MOST: Final = 4 << 20
"""The longest request that is no batch."""

COUNTED_BYTES: Final = 4096
"""Shorter requests cost no more than a small batch, and are not counted."""

RESUME_BYTES_AT_MOST: Final = 16 << 20
"""The lists of what one client has seen elsewhere: of subscriptions that resume, and of requests to follow."""

PUBLISH_TAG: Final = bytes((0xCC, FIRST_CLIENT_CONTROL))
"""The second and third byte of a frame with a batch."""

PACE: Final = "its requests have to be paced"


class RequestLimits:
    """The bounds of one connected client."""

    def __init__(self, account: Account, connection: IncomingConnection) -> None:
        self._account = account
        self._connection = connection
        self._resume_bytes = 0

    def check(self, frame: memoryview) -> None:
        """A frame of more than ``COUNTED_BYTES`` has come: refuse it if it is too long, and wait if there were many."""
        if frame[1:3] == PUBLISH_TAG:
            return
        if len(frame) > REQUEST_BYTES_AT_MOST:
            raise ProtocolError(
                f"a client sent a request of {len(frame)} bytes; at most {REQUEST_BYTES_AT_MOST} are allowed: ask for "
                "less at a time"
            )
        self._rest(self._account.charge_request(len(frame)))

    def charge_command(self) -> None:
        """The client asks for something that all replicas of a history write."""
        self._rest(self._account.charge_command())

    def _rest(self, seconds: float) -> None:
        if seconds > 0:
            self._connection.hold(PACE)
            asyncio.get_running_loop().call_later(seconds, self._connection.release, PACE)

    def check_kept(self, size_bytes: int) -> None:
        """Refuse a client that comes from another node with more than fits."""
        if self._resume_bytes + size_bytes > RESUME_BYTES_AT_MOST:
            raise PeerError(
                f"this client lists more than {RESUME_BYTES_AT_MOST} bytes of what it has seen at other nodes; go on "
                "with fewer topics at a time, or subscribe without resuming"
            )
        if not self._account.has_room_for(size_bytes):
            raise self._account.memory_used_up("a client that comes from another node is refused")

    def keep(self, size_bytes: int) -> None:
        """The lists of a client that comes from another node are kept from now on, or, if negative, no more."""
        self._resume_bytes += size_bytes
        self._account.add(size_bytes)
