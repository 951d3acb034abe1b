"""Asking several peers and waiting for all of them: the peers that have not replied yet.

A peer that is lost will not reply, so it counts as if it had. A peer that was lost and found again may still reply to a
question that does not wait for it any more; that reply is told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from mypy_extensions import i64


@final
class PendingReplies:
    """The peers whose replies to one question are missing, in the order in which they were asked."""

    def __init__(self, peers: Iterable[int] = ()) -> None:
        self._peers: Final[dict[i64, bool]] = {}
        for peer in peers:
            self._peers[peer] = True

    def __len__(self) -> int:
        return len(self._peers)

    def peers(self) -> list[i64]:
        """The peers whose replies are missing."""
        return list(self._peers)

    def waits_for(self, peer: i64) -> bool:
        """Whether the reply of a peer is missing."""
        return peer in self._peers

    def ask(self, peer: i64) -> None:
        """A peer is asked too."""
        self._peers[peer] = True

    def settle(self, peer: i64) -> bool:
        """A peer has replied, or will not; whether its reply was missing."""
        return self._peers.pop(peer, False)

    def clear(self) -> None:
        """Wait for nobody any more."""
        self._peers.clear()
