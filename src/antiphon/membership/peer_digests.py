"""Nodes of a full mesh compare whom they can reach, so that in the end all know each other, whoever has told whom.

News of a newcomer go to the neighbours of each node that hears them (:mod:`antiphon.membership.tested_peers`), and not
to everybody. Where nodes do not agree yet about who is there, as when several join at once, news may miss somebody.
So a node sends a checksum to one neighbour at each look, in turn. Neighbours that differ tell each other all they know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from antiphon.membership.messages import Control, Peer, PeerAddresses, PeersDigest


def checksum(identifiers: Iterable[int]) -> int:
    """The same for the same set of nodes."""
    return crc32(",".join(map(str, sorted(identifiers))).encode())


class PeerDigests:
    """The comparisons of one node with others."""

    def __init__(self, send: Callable[[int, Control], None], everybody: Callable[[], list[Peer]]) -> None:
        self._send: Final = send
        self._everybody: Final = everybody
        self._last = -1
        # By node, the two checksums with which all was said already.
        self._compared: dict[int, tuple[int, int]] = {}

    def look(self, neighbours: list[int], own: int) -> None:
        """Send the own checksum to the neighbour whose turn it is."""
        if neighbours:
            self._last = min(neighbours, key=lambda peer: (peer <= self._last, peer))
            self._send(self._last, PeersDigest(own, True))

    def on_digest(self, sender: int, digest: PeersDigest, own: int) -> None:
        """Another node has sent its checksum: tell it all if it is another one, and this was not done before."""
        compared = (own, digest.checksum)
        if own == digest.checksum or self._compared.get(sender) == compared:
            return
        self._compared[sender] = compared
        self._send(sender, PeerAddresses(self._everybody()))
        if digest.wants_answer:
            self._send(sender, PeersDigest(own, False))

    def lost(self, peer: int) -> None:
        """What was said to a node may not have arrived."""
        self._compared.pop(peer, None)
