"""Joining: how a newcomer gets its identifier, and how nodes give identifiers to newcomers. The same on every fabric.

A newcomer asks one node after the other. A node that has identifiers to give answers with one of them and a part of
those that it has left. A node that has none hands the question on to another one, a bounded number of times. The last
node that is asked takes a new block of identifiers with the consent of others
(:mod:`antiphon.membership.id_allocation`), and the newcomer, which asks again, gets one of them.

Two nodes may give a place to one newcomer, when an answer is late. The newcomer takes the first, and says so on every
connection; the other node takes its own back.

The two kinds of membership differ in their :class:`JoinPolicy`: when a node may give, on whom it can call,
and what a node does that has a place or has given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.address_book import AddressBook
from antiphon.membership.host import NO_PLACE_YET, NOT_HERE, SECOND_US, Connection, Host, Link, Timer
from antiphon.membership.id_allocation import BlockClaims, Others
from antiphon.membership.messages import BlockRequest, BlockResponse, Control, Hello, Peer, PlaceRequest, PlaceResponse

ASK_US: Final = 3 * SECOND_US // 10
"""How long a newcomer waits before it asks the next node for an identifier."""

ASK: Final = Timer("ask")
CLAIM: Final = Timer("claim")
GIVE: Final = "give"


class JoinPolicy(Others, Protocol):
    """The decisions about joining that a kind of membership makes."""

    @property
    def address_book(self) -> AddressBook:
        """The identifiers and addresses of all nodes."""

    def hello(self, target: str = "") -> Hello:
        """The first frame of a link."""

    def may_give(self) -> bool:
        """Whether this node may give places."""

    def givers(self) -> list[int]:
        """The others on whom it can call if it has none to give."""

    def consent_needed(self) -> int:
        """How many others have to agree that a block of identifiers is free, besides that none refuses."""

    def remember(self, newcomer: Peer) -> None:
        """Put on disk that the identifier of a newcomer has an owner, and where."""

    def on_place_given(self, place: PlaceResponse, newcomer: Peer) -> None:
        """This node has given a place, which is on its disk; the newcomer is to hear of it."""

    def got(self, place: PlaceResponse, giver: str) -> None:
        """A node has given this one a place."""

    def declined(self, giver: str) -> None:
        """Another node has given this one a second place, and is to know that it has another one."""


class Joining:
    """Asks for a place, and answers newcomers that do."""

    def __init__(self, host: Host, policy: JoinPolicy, fabric: str, hops: int) -> None:
        self._host = host
        self._policy = policy
        self._fabric = fabric
        self._hops = hops
        self.wish: int | None = None
        """The identifier that this node would like to have."""
        self._contacts: list[str] = []
        self._attempt = 0
        self._claims = BlockClaims(host, policy, lambda: policy.address_book, policy.consent_needed, CLAIM)
        # The places that newcomers are given as soon as they are on disk, and those that are.
        self._to_give: dict[int, tuple[PlaceResponse, Peer]] = {}
        self._on_disk: set[int] = set()
        # Links to whatever node lives at an address.
        self._strangers: dict[str, Link] = {}
        # Newcomers that are not where they say.
        self._misplaced: set[str] = set()
        # Why the nodes that were asked closed the connection, by address.
        self._refusals: dict[str, str] = {}

    # The newcomer.

    def ask(self, contacts: Sequence[str]) -> None:
        """Ask these nodes for a place, in turn, until one has given it."""
        self._contacts = list(contacts)
        self._attempt = 0
        self._ask_next()

    def _ask_next(self) -> None:
        if self._policy.address_book.is_placed:
            return
        link = self.link_to(self._contacts[self._attempt % len(self._contacts)])
        self._attempt += 1
        self._host.send(link, PlaceRequest(self._policy.address_book.me, self._hops, self._fabric, self.wish))
        self._host.set_timer(ASK, ASK_US)

    def link_to(self, address: str) -> Link:
        """A link to whatever node lives at an address."""
        link = self._strangers.get(address)
        if link is None:
            link = self._strangers[address] = self._host.open(address, self._policy.hello(), -1)
        return link

    def stop(self) -> None:
        """Ask no node any more."""
        self._host.cancel_timer(ASK)
        for link in self._strangers.values():
            link.close()
        self._strangers.clear()

    def link_lost(self, link: Link) -> bool:
        """A link has ended; whether it led to an address."""
        if self._strangers.get(link.address) is not link:
            return False
        del self._strangers[link.address]
        if self._attempt < len(self._contacts) and self._refusals.get(link.address) != NO_PLACE_YET:
            # Nobody is there: ask the next one, but wait before any is asked again.
            self._ask_next()
        return True

    def refused(self, link: Link, reason: str) -> None:
        """A node that was asked, or greeted, closed the connection."""
        self._refusals[link.address] = reason
        if reason == NOT_HERE and self._policy.address_book.is_unclaimed(link.instance):
            self._misplaced.add(link.instance)

    def has_met_cluster(self) -> bool:
        """Whether a node that is in a cluster has answered since this was last asked, and had no place to give yet."""
        waiting = [address for address, reason in self._refusals.items() if reason == NO_PLACE_YET]
        for address in waiting:
            del self._refusals[address]
        return len(waiting) > 0

    def refusals(self) -> str:
        """Why the nodes that were asked closed the connection, as the end of a sentence."""
        return "".join(f"; {address} said: {reason}" for address, reason in self._refusals.items())

    # Both ends.

    def expired(self, timer: Timer) -> bool:
        """A timer has run out; whether it is one of joining."""
        if timer == ASK:
            self._ask_next()
        elif timer == CLAIM:
            self._claims.ask_again()
        elif timer.kind == GIVE:
            place, newcomer = self._to_give.pop(timer.peer)
            self._on_disk.add(timer.peer)
            if self._policy.address_book.is_unclaimed(newcomer.instance):
                self._policy.on_place_given(place, newcomer)
        else:
            return False
        return True

    def on_message(self, connection: Connection, message: Control) -> bool:
        """A message of a peer; whether it is one of joining."""
        if isinstance(message, PlaceRequest):
            self._place_wanted(connection, message)
        elif isinstance(message, PlaceResponse):
            if not self._policy.address_book.is_placed:
                self._policy.got(message, connection.instance)
            elif message.identifier != self._policy.address_book.me.identifier:
                self._policy.declined(connection.instance)
        elif isinstance(message, (BlockRequest, BlockResponse)):
            sender = self._policy.address_book.identifier_of(connection.instance)
            if sender is not None:
                self._claims.on_message(sender, message)
        else:
            return False
        return True

    def on_peer_lost(self) -> None:
        """Another node is not there any more: do not wait for its consent."""
        self._claims.on_peer_lost()

    # The giver.

    def _place_wanted(self, connection: Connection, message: PlaceRequest) -> None:
        if message.fabric != self._fabric:
            raise ProtocolError(
                f"a place in the fabric {message.fabric!r} has no meaning in the fabric {self._fabric!r} of this node"
            )
        policy, newcomer = self._policy, message.newcomer
        if newcomer.instance in self._misplaced or newcomer.address == policy.address_book.me.address:
            if connection.instance != newcomer.instance:
                return
            raise ProtocolError(
                f"another node lives at {newcomer.address}, the address that this one gives as its own; give each node "
                f"an address of its own to listen at or to advertise"
            )
        if not policy.may_give() or policy.address_book.has_place_elsewhere(newcomer.instance):
            # It asks again, or asks another node; or it was given a place before this question came.
            return
        if self._hands_on_wish(message):
            return
        place, givers = policy.address_book.give(newcomer, message.wish), policy.givers()
        if place is None and givers and message.hops > 0:
            policy.send_control(
                givers[message.hops % len(givers)],
                PlaceRequest(newcomer, message.hops - 1, message.fabric, message.wish),
            )
        elif place is None:
            self._claims.claim()
            # A node that has no other to ask has its block now.
            place = policy.address_book.give(newcomer)
        if place is not None:
            self._give(place, newcomer)
        elif connection.instance == newcomer.instance:
            # A founder that returns must not found another cluster because this one is slow.
            raise ProtocolError(NO_PLACE_YET)

    def _hands_on_wish(self, message: PlaceRequest) -> bool:
        """Hand a question on that wishes for an identifier that this node cannot give.

        The lowest identifiers are in the hands of the founder, which has the lowest of all as long as it is there. It
        gives what it can, so the question goes on only once.
        """
        policy, book = self._policy, self._policy.address_book
        wish, me = message.wish, book.me.identifier
        if wish is None or me is None or message.hops == 0:
            return False
        if book.has_given(message.newcomer.instance) or book.fulfils(wish):
            return False
        lowest = min(policy.givers(), default=me)
        if lowest >= me:
            return False
        policy.send_control(lowest, PlaceRequest(message.newcomer, 0, message.fabric, wish))
        return True

    def _give(self, place: PlaceResponse, newcomer: Peer) -> None:
        """Answer when it is on disk that this identifier has an owner.

        A founder that forgot it would found its cluster anew, and give the identifier to another node.
        """
        identifier = place.identifier
        if not self._host.facts.is_kept or identifier in self._on_disk:
            self._policy.on_place_given(place, newcomer)
        elif identifier not in self._to_give:
            self._to_give[identifier] = (place, newcomer)
            self._policy.remember(newcomer)
            self._host.when_safe(Timer(GIVE, identifier))
