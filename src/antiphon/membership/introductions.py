"""The memory of newcomers of a full mesh, until all nodes have met.

A newcomer hears of others before it has an identifier of its own, and nodes that are out of reach do not hear of
newcomers before they are back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.membership.messages import Peer


class Introductions:
    """Which nodes others have mentioned, and which nodes have yet to hear of newcomers."""

    def __init__(self) -> None:
        # Those of whom a newcomer has heard before it had its identifier, each with the life that spoke of it.
        self.known_before: list[tuple[str, Peer]] = []
        # Newcomers of whom those who were lost at that time may not have heard.
        self._missed: dict[int, list[Peer]] = {}

    def introduced(self, speaker: str, peers: Sequence[Peer]) -> None:
        """Somebody speaks of others to a newcomer that has no identifier yet."""
        self.known_before += [(speaker, peer) for peer in peers]

    def has_spoken(self, speaker: str) -> bool:
        """Whether somebody has spoken of others before this newcomer had its identifier."""
        return any(said == speaker for said, _ in self.known_before)

    def trusted(self, giver: str, founders: int) -> list[Peer]:
        """The nodes to believe in: those that the giver of the place has mentioned, and newcomers.

        A node that calls itself a founder may have begun anew, as this node has, and soon gets another identifier.
        """
        named = {peer.instance for speaker, peer in self.known_before if speaker == giver}
        return [
            peer
            for _, peer in self.known_before
            if peer.instance in named or (peer.identifier is not None and peer.identifier >= founders)
        ]

    def missed(self, lost: Iterable[int], newcomer: Peer) -> None:
        """Those who are lost do not hear of a newcomer before they are found."""
        for identifier in lost:
            if identifier != newcomer.identifier:
                self._missed.setdefault(identifier, []).append(newcomer)

    def missed_by(self, identifier: int, over: set[int]) -> list[Peer]:
        """The newcomers of whom a node has to hear that is found, without those whose lives are over.

        They are kept for the next time, as the connection may end before it is said.
        """
        missed = [peer for peer in self._missed.get(identifier, ()) if peer.identifier not in over]
        if missed:
            self._missed[identifier] = missed
        return missed

    def forget(self, identifier: int) -> None:
        """A node does not come back."""
        self._missed.pop(identifier, None)
