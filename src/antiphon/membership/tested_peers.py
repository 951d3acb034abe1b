"""Which of the others a node asks for signs of life: the neighbours that VCube gives it, and those that others miss.

Where everybody asked everybody, the cost of a silent cluster would grow with the square of its nodes. So a node tests
the first node that it can reach in each of its clusters (:mod:`antiphon.fabrics.cube.topology`), the logarithm of all.
When one of them leaves a question unanswered, the node tells all others at once, and asks the rest of that cluster.
Each of them asks the silent node as well, and counts it as lost only if no answer comes within ``lost_seconds``.

One more node is asked at each look, in turn. So in the end every pair is tested, whatever nodes think of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from antiphon.membership.heartbeats import FailureDetector
from antiphon.membership.host import Connection, Link
from antiphon.membership.messages import Control, KeepAlive, Peer, PeerAddresses, PeersDigest, SilenceNotice

TESTS: Final = (SilenceNotice, PeersDigest)
"""The messages of this part."""

DIGEST_PRIME: Final = 4_294_967_291
DIGEST_FACTOR: Final = 1_000_003


def neighbours(me: int, others: Iterable[int]) -> list[int]:
    """The first of the others in each cluster of a node, nearest cluster first.

    Two nodes are in one cluster if their identifiers have the same highest bit of difference to that of the node, and
    the first of them has the least difference.
    """
    least: dict[int, int] = {}
    for other in others:
        difference = me ^ other
        index = difference.bit_length()
        if difference < least.get(index, difference + 1):
            least[index] = difference
    return [me ^ least[index] for index in sorted(least)]


def checksum(identifiers: Iterable[int]) -> int:
    """The same for the same set of nodes."""
    value = 0
    for identifier in sorted(identifiers):
        value = (value * DIGEST_FACTOR + identifier + 1) % DIGEST_PRIME
    return value


class PeerDigests:
    """The comparisons of one node with its neighbours.

    News of a newcomer go to the neighbours of each node that hears them, and not to everybody. Where nodes do not agree
    yet about who is there, as when several join at once, news may miss somebody. So a node sends a checksum to one
    neighbour at each look, in turn. Neighbours that differ tell each other all they know.
    """

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
        """A node may not have got what it was told."""
        self._compared.pop(peer, None)


class TestedPeers:
    """The peers that one node tests, and those that it asks until they give a sign."""

    def __init__(
        self,
        heard_on: Mapping[int, Connection],
        lost: Container[int],
        links: Mapping[int, Link],
        me: Callable[[], int],
        everybody: Callable[[], list[Peer]],
        send: Callable[[int, Control], None],
    ) -> None:
        # The connections on which others speak, those that are not with this node, and the links to them.
        self._heard_on: Final = heard_on
        self._lost: Final = lost
        self._links: Final = links
        self._me: Final = me
        self._send: Final = send
        self._digests: Final = PeerDigests(send, everybody)
        # None when somebody has come or gone.
        self._neighbours: list[int] | None = None
        self._checksum = self._checksum_before = 0
        self._checked: set[int] = set()
        # Those of whom all others were told, or who told this node.
        self._suspected: set[int] = set()
        self._last_in_turn = -1

    def changed(self) -> None:
        """Somebody has come or gone."""
        self._neighbours = None

    def lost(self, peer: int) -> None:
        """A peer is not there any more; what was said to it may not have arrived."""
        self.changed()
        self._digests.lost(peer)

    def _tested(self) -> list[int]:
        """Those that this node tests."""
        if self._neighbours is None:
            me, present = self._me(), set(self._present())
            self._neighbours = neighbours(me, present)
            self._checksum = checksum({me, *present})
            self._checked &= present
            self._suspected &= present
        return self._neighbours

    def neighbours_without(self, other: int) -> list[int]:
        """Those that this node tests, or would test if there were not this other one."""
        found = self._tested()
        if other not in found:
            return found
        return neighbours(self._me(), (peer for peer in self._present() if peer != other))

    def amounts(self) -> dict[int, int]:
        """How much has come from each of those whose silence counts."""
        return {peer: self._amount(peer) for peer in {*self._tested(), *self._checked}}

    def look(self, detector: FailureDetector, now: float) -> None:
        """After a look: tell all others of suspects, ask those that were not asked before, and compare with one."""
        me, watched = self._me(), self.amounts()
        for peer in watched:
            if detector.has_spoken(peer):
                self._checked.discard(peer)
                self._suspected.discard(peer)
        silent = [peer for peer in watched if peer not in self._suspected and detector.is_suspect(peer)]
        self._suspected.update(silent)
        behind: list[int] = []
        if silent:
            for peer in self._links:
                self._send(peer, SilenceNotice(silent))
            # Whatever keeps this node from hearing one of them may keep it from hearing those behind it.
            clusters = {(me ^ peer).bit_length() for peer in silent}
            behind = [peer for peer in self._present() if (me ^ peer).bit_length() in clusters and peer not in watched]
            for peer in behind:
                self._ask(peer, detector, now, is_suspect=True)
        following = self._next_in_turn({*watched, *behind})
        if following is not None:
            self._ask(following, detector, now, is_suspect=False)
        tested = self._tested()
        # While nodes come and go, neighbours differ for a moment.
        if self._checksum == self._checksum_before:
            self._digests.look(tested, self._checksum)
        self._checksum_before = self._checksum

    def _next_in_turn(self, watched: Container[int]) -> int | None:
        """The one of the others whose turn it is to be asked, if there are any that are not watched."""
        last = self._last_in_turn
        others = ((peer <= last, peer) for peer in self._heard_on if peer not in watched and self._is_present(peer))
        _, following = min(others, default=(False, None))
        if following is not None:
            self._last_in_turn = following
        return following

    def on_message(self, sender: int, message: Control, detector: FailureDetector, now: float) -> None:
        """Another node sends its checksum, or names suspects: ask them too."""
        if isinstance(message, PeersDigest):
            self._tested()
            if self._checksum == self._checksum_before:
                self._digests.on_digest(sender, message, self._checksum)
            return
        assert isinstance(message, SilenceNotice), "nothing else is handed over"
        for peer in message.peers:
            if peer not in self._suspected and self._is_present(peer):
                self._suspected.add(peer)
                self._ask(peer, detector, now, is_suspect=True)

    def _ask(self, peer: int, detector: FailureDetector, now: float, is_suspect: bool) -> None:
        self._checked.add(peer)
        detector.expect(peer, self._amount(peer), now, is_suspect)
        self._send(peer, KeepAlive())

    def _is_present(self, peer: int) -> bool:
        return peer in self._heard_on and peer not in self._lost

    def _present(self) -> list[int]:
        return [peer for peer in self._heard_on if self._is_present(peer)]

    def _amount(self, peer: int) -> int:
        link = self._links.get(peer)
        return self._heard_on[peer].bytes_received + (0 if link is None else link.bytes_received)
