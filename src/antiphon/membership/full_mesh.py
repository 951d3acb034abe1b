"""A cluster in which each node keeps a connection to every other: what trees of brokers and cubes have in common.

Each node uses its connections in one direction. Two nodes are **together** while both directions are open. When one
breaks, whatever was on it may be lost; so both ends close both, the process is told that the other is lost, and each
tries to open them again. When both are open the process is told that the other is found. What comes over a connection
belongs to one time of being together: nothing of an earlier one comes later.

A newcomer asks some node for a place, and gets an identifier that nobody has had
(:mod:`antiphon.membership.address_book`). Everybody tells everybody who newcomers are, and a newcomer who others are,
also those who are out of reach: these are told of newcomers when they are back, by everybody, and look for each other
even if whoever took a newcomer in is gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from antiphon.kernel.errors import PeerError
from antiphon.membership.address_book import Roster
from antiphon.membership.id_allocation import BlockClaims
from antiphon.membership.membership import Membership, Place
from antiphon.membership.newcomers import Introductions, PlaceSearch
from antiphon.runtime.errors import JoinError
from antiphon.runtime.logging import logger
from antiphon.transport.incoming import NOT_HERE, IncomingConnection
from antiphon.transport.links import OutgoingLink
from antiphon.transport.peer_messages import (
    BlockRequest,
    BlockResponse,
    Control,
    Hello,
    Peer,
    PeerAddresses,
    PlaceRequest,
    PlaceResponse,
)

LOOK_SECONDS: Final = 0.005
"""How often a newcomer looks whether it can be used."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long a node is still listened to when nothing can be sent to it any more."""

HOPS: Final = 8
"""So often its question is handed on by those who have none to give."""

RETRY_SECONDS: Final = (0.2, 5.0)
"""The shortest and the longest wait before a connection that broke is tried again."""

COUNTED_OUT: Final = (
    "this broker counts as failed here, because a connection with it has ended; it cannot return to a tree that runs "
    "without a quorum: start the tree again with all its brokers"
)

log = logger("brokers")


class FullMesh(Membership):
    """All nodes of a cluster, each with a connection to every other."""

    def __init__(self, place: Place, founders: int = 0, has_quorum: bool = True) -> None:
        super().__init__(place)
        # How many nodes had their identifiers from the start, and whether those come back who are lost.
        self._founders = founders
        self._has_quorum = has_quorum
        self._contacts = list(place.settings.join)
        self.roster = Roster(self._instance, self._address, 0)
        self._watched: set[int] = set()
        # Who is not together with this node, and whose life is known to be over.
        self._lost: set[int] = set()
        self._over: set[int] = set()
        # Who has said that it is about to go.
        self.departing: set[int] = set()
        # The connection on which each other node speaks at present.
        self._heard_on: dict[int, IncomingConnection] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._search = PlaceSearch(self._ask_at, lambda: self.roster.is_placed or self._is_closed)
        self._introductions = Introductions()
        # Where those are of whom nothing but an earlier life is known.
        self._addresses: dict[int, str] = {}
        self._is_in: asyncio.Future[None] = self._loop.create_future()
        # Most of those who are not known to be gone have to agree.
        self._claims = BlockClaims(
            self,
            place.sender.settle,
            place.tasks,
            lambda: self.roster,
            lambda: (len(set(self.links) - self._over) + 1) // 2,
        )

    async def join(self, contacts: Sequence[str]) -> None:
        """Begin as a founder, or ask for a place; done when this node is in the cluster."""
        self._begin(contacts)
        try:
            async with asyncio.timeout(self._settings.join_seconds):
                await self._is_in
                while self._is_searching():
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise JoinError(self.why_not_in()) from error

    # What trees and cubes do differently.

    def _begin(self, contacts: Sequence[str]) -> None:
        """Take the first steps towards a place."""
        if contacts:
            self._search.ask(self._contacts)
        else:
            self._begin_as_founder()

    def _begin_as_founder(self) -> None:
        """Take a place without asking anybody."""
        raise NotImplementedError

    def _is_searching(self) -> bool:
        """Whether a node that has its identifier cannot be used yet."""
        return False

    def why_not_in(self) -> str:
        """What to say to whoever waited for a place in vain."""
        raise NotImplementedError

    def _recognised(self, connection: IncomingConnection, hello: Hello) -> int | None:
        """Who somebody is whose life is not known here, if its greeting says so."""
        return None

    def _name_of(self, identifier: int) -> str:
        """The name that the certificate of a node must have; empty if any will do."""
        return ""

    def _excluded(self, link: OutgoingLink, reason: str) -> None:
        """Another node has said that it will not hear from this one again."""
        error = PeerError(f"the broker at {link.address} has excluded this one: {reason}")
        if self._is_in.done():
            self._events.fail(error)
        else:
            self._is_in.set_exception(JoinError(str(error)))

    def _keep_identity(self) -> None:
        """Write down who this node is and where the others are, if it is to come back as who it is."""

    def _look_who_is_there(self) -> None:
        """Somebody has been heard of, or lost."""

    # Newcomers.

    def _ask_at(self, address: str) -> OutgoingLink:
        """Ask whoever lives there for a place."""
        link = self.new_link(address, "", lambda _: None, self._link_refused)
        wanted = PlaceRequest(self.roster.me, HOPS, self._settings.fabric)
        self._sender.write(link, self._sender.codec.encode_control(wanted))
        self._sender.settle()
        return link

    def _place_wanted(self, message: PlaceRequest) -> None:
        if not self._is_in.done() or not self._has_quorum:
            # Who begins as a founder and has not heard from the others may not be one any more.
            return
        if self.roster.has_place_elsewhere(message.newcomer.instance):
            return
        place = self.roster.give(message.newcomer)
        if place is None:
            others = sorted(set(self.links) - self._lost)
            if others and message.hops > 0:
                self.tell(
                    others[message.hops % len(others)], PlaceRequest(message.newcomer, message.hops - 1, message.fabric)
                )
            else:
                self._claims.claim()
            return
        newcomer = Peer(message.newcomer.instance, message.newcomer.address, place.identifier)
        # Whoever it is, it has to know the others before its process looks for them.
        self._connect(place.identifier, newcomer.address, newcomer.instance)
        self.tell(place.identifier, PeerAddresses(self._named(self.links)))
        self.tell(place.identifier, place)
        away = self._named(self._lost - self._over - set(self.links))
        self.tell(place.identifier, PeerAddresses([peer for peer in away if peer.address != newcomer.address]))
        self._introductions.missed(self._lost - self._over, newcomer)

    def _named(self, others: Iterable[int]) -> list[Peer]:
        return [peer for peer in (self.roster.peer(other) for other in sorted(others)) if peer is not None]

    def _place_given(self, place: PlaceResponse, giver: str) -> None:
        if self.roster.is_placed:
            return
        self.roster.take(place)
        self._search.stop()
        known = self._introductions.trusted(giver, self._founders)
        contacts = [peer.identifier for peer in known if peer.identifier is not None]
        for peer in known:
            self._meet(peer)
        for connection in tuple(self._incoming):
            speaker = self.roster.identifier_of(connection.instance)
            if speaker is not None:
                self._hears(speaker, connection)
            elif self._introductions.has_spoken(connection.instance):
                # It comes again, and by then knows better who it is.
                connection.close()
        self._introductions.known_before.clear()
        self._events.placed(place.identifier, contacts)
        self._is_in.set_result(None)
        self._keep_identity()

    # Who is who.

    def peers(self) -> list[Peer]:
        return self._named(set(self.links) - self._lost)

    def links_in_use(self) -> list[OutgoingLink]:
        return [link for other, link in self.links.items() if other not in self._lost]

    def highest_identifier(self) -> int:
        return max(self.roster.highest(), self._founders - 1)

    def identifier_of(self, instance: str) -> int | None:
        return self.roster.identifier_of(instance)

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        if isinstance(message, PlaceRequest):
            self.check_fabric(message)
            self._place_wanted(message)
        elif isinstance(message, PlaceResponse):
            self._place_given(message, connection.instance)
        elif isinstance(message, PeerAddresses):
            self._introduced(connection, message.peers)
        elif isinstance(message, (BlockRequest, BlockResponse)):
            self._on_block_message(connection, message)
        else:
            super().control_received(connection, message)

    def _on_block_message(self, connection: IncomingConnection, message: BlockRequest | BlockResponse) -> None:
        sender = self.roster.identifier_of(connection.instance)
        if sender is not None:
            self._claims.on_message(sender, message)

    def _introduced(self, connection: IncomingConnection, peers: Sequence[Peer]) -> None:
        if not self.roster.is_placed:
            self._introductions.introduced(connection.instance, peers)
            return
        for peer in peers:
            if peer.instance == connection.instance:
                self._take_back(peer)
                self._let_go_of_former(peer)
            self._meet(peer)
        sender = self.roster.identifier_of(connection.instance)
        if sender is not None and self._heard_on.get(sender) is None:
            self._hears(sender, connection)

    def _let_go_of_former(self, peer: Peer) -> None:
        """A broker says where it lives: another one that lived there has lost its log, and does not come back.

        A broker that returns knows others by their addresses alone. With two connections to one of them it would count
        there as two lives, of which each ends the other.
        """
        for other, address in tuple(self._addresses.items()):
            if address == peer.address and other != peer.identifier and self.roster.peer(other) is None:
                del self._addresses[other]
                self._lose(other)
                self._never_again(other)

    def _take_back(self, speaker: Peer) -> None:
        """Of two identifiers that a newcomer was given, here or elsewhere, the one counts that it says it has."""
        disowned = self.roster.disowned_by(speaker, self._founders)
        if disowned is not None:
            self._disown(disowned)

    def _disown(self, identifier: int) -> None:
        """Nobody has this identifier, after all."""
        link = self.links.pop(identifier, None)
        if link is not None:
            link.close()
        self._heard_on.pop(identifier, None)
        self._lost.discard(identifier)
        self._never_again(identifier)

    def _is_outdated(self, peer: Peer) -> bool:
        """Whether somebody is known by a better identifier than the one under which it is introduced.

        Who comes back while others do begins as a founder, says so to those, and is given an identifier then: that one
        counts. Of two that it was given, the one counts by which it is known, until it says otherwise itself.
        """
        known = self.roster.identifier_of(peer.instance)
        if known is None or known == peer.identifier:
            return False
        if known >= self._founders:
            return True
        self.roster.forget(known)
        self._disown(known)
        return False

    def _meet(self, peer: Peer) -> None:
        """Keep a connection to somebody that was not known, and tell the others."""
        if peer.identifier is None or peer.instance == self._instance or self.roster.peer(peer.identifier) is not None:
            return
        if self._is_outdated(peer) or peer.identifier in self._addresses:
            # Those whom a broker that returns knew say themselves who they are now.
            return
        self.roster.learn([peer])
        self._connect(peer.identifier, peer.address, peer.instance)
        self.spread(PeerAddresses([peer]), peer.identifier)
        self._introductions.missed(self._lost - self._over, peer)
        self._keep_identity()

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        identifier = self.roster.identifier_of(hello.instance)
        if identifier is None:
            identifier = self._recognised(connection, hello)
        if identifier is None:
            # A newcomer says who it is next.
            return
        if identifier in self._lost and not self._has_quorum:
            connection.expel(COUNTED_OUT)
            return
        self._hears(identifier, connection)
        self._look_who_is_there()

    # Connections.

    def _connect(self, identifier: int, address: str, instance: str, connect_seconds: float = 0.0) -> None:
        link = self.new_link(
            address,
            instance,
            partial(self._link_lost, identifier),
            self._link_refused,
            connect_seconds,
            self._settings.lost_seconds,
            partial(self._link_opened, identifier),
            expected_name=self._name_of(identifier),
        )
        self.links[identifier] = link
        # Founders know each other by their addresses. Who begins as one says no more before it knows that it is: it may
        # come back to a tree that runs, and whoever believed it would never give it another identifier.
        if self.roster.is_placed and (self._contacts or self._is_in.done()):
            self._sender.write(link, self._sender.codec.encode_control(PeerAddresses([self.roster.me])))
        link.open()
        self._sender.settle()

    def _hears(self, identifier: int, connection: IncomingConnection) -> None:
        """Somebody speaks on a new connection."""
        if self._heard_on.get(identifier) not in (None, connection):
            # It has noticed earlier than this broker that they were separated.
            self._lose(identifier)
        self._heard_on[identifier] = connection
        if identifier in self._lost and identifier not in self.links:
            self._retry(identifier)
        self._look_if_together(identifier)

    def _link_opened(self, identifier: int, link: OutgoingLink) -> None:
        if self.links.get(identifier) is link:
            self._look_if_together(identifier)

    def _look_if_together(self, identifier: int) -> None:
        link = self.links.get(identifier)
        if identifier in self._lost and identifier in self._heard_on and link is not None and link.is_connected:
            log.info("found", node=identifier, address=link.address)
            self._lost.discard(identifier)
            self.came_together(identifier)

    def came_together(self, identifier: int) -> None:
        """Both directions are open with somebody with whom they were not."""
        self._events.peer_found(identifier)
        missed = self._introductions.missed_by(identifier, self._over)
        if missed:
            self.tell(identifier, PeerAddresses(missed))
        if identifier in self._watched:
            self._events.link_found(identifier)

    def connection_ended(self, connection: IncomingConnection) -> None:
        super().connection_ended(connection)
        identifier = self.roster.identifier_of(connection.instance)
        if identifier is not None and self._heard_on.get(identifier) is connection:
            del self._heard_on[identifier]
            self._lose(identifier)

    def _link_lost(self, identifier: int, link: OutgoingLink) -> None:
        if self.links.get(identifier) is not link or self._is_closed:
            return
        if identifier in self._lost:
            del self.links[identifier]
            self._retry_later(identifier)
        elif identifier in self._heard_on:
            # What the other end had sent before it went is still to be read; its own connection ends behind that.
            self._loop.call_later(LAST_WORDS_SECONDS, self._lose_link, identifier, link)
        else:
            self._lose(identifier)

    def _lose_link(self, identifier: int, link: OutgoingLink) -> None:
        if self.links.get(identifier) is link:
            self._lose(identifier)

    def _link_refused(self, link: OutgoingLink, reason: str, is_final: bool) -> None:
        self._search.refusals[link.address] = reason
        former = self.roster.identifier_of(link.instance)
        if reason == NOT_HERE and former is not None:
            self._lose(former)
            self._never_again(former)
        if is_final and not self._is_closed:
            self._excluded(link, reason)

    def _lose(self, identifier: int) -> None:
        """The connections with another broker have ended; nothing more comes over them."""
        if identifier in self._lost or self._is_closed:
            return
        address = link.address if (link := self.links.get(identifier)) is not None else ""
        self._lost.add(identifier)
        if identifier in self.departing:
            log.info("left", node=identifier, address=address)
            self._never_again(identifier)
        else:
            log.warning("lost", node=identifier, address=address)
            self.lost_nodes.append(identifier)
        connection = self._heard_on.pop(identifier, None)
        if connection is not None:
            if self._has_quorum:
                connection.close()
            else:
                connection.expel(COUNTED_OUT)
        if self._has_quorum and link is not None:
            del self.links[identifier]
            link.close()
            self._retry_later(identifier)
        elif link is not None:
            # Nothing more is said over it, but the other end may have to say that it counts this one as failed.
            self._search.strangers.append(self.links.pop(identifier))
        self._events.peer_lost(identifier)
        if identifier in self._watched:
            self._events.link_lost(identifier)
        self._look_who_is_there()

    def close(self) -> None:
        self._is_in.cancel()
        for timer in self._retries.values():
            timer.cancel()
        for link in self.links.values():
            link.close()
        self._search.stop()
        super().close()

    # Signs of life.

    def bytes_heard(self) -> dict[int, int]:
        return {
            identifier: connection.bytes_received
            + (0 if (link := self.links.get(identifier)) is None else link.bytes_heard)
            for identifier, connection in self._heard_on.items()
            if identifier not in self._lost
        }

    def silent(self, identifier: int) -> None:
        connection, link = self._heard_on.get(identifier), self.links.get(identifier)
        self._lose(identifier)
        # Whatever has not been read there is not to wait here until somebody does.
        if self._has_quorum and connection is not None and link is not None:
            connection.abort()
            link.abort()

    def watch(self, identifier: int) -> None:
        self._watched.add(identifier)
        if identifier in self._lost or (identifier not in self.links and identifier != self.roster.me.identifier):
            # Not at once: the process is in the middle of a step, and a newcomer may yet be introduced.
            seconds = 0.0 if identifier in self._lost else LAST_WORDS_SECONDS
            self._loop.call_later(seconds, self._tell_again, identifier)

    def unwatch(self, identifier: int) -> None:
        self._watched.discard(identifier)

    def _tell_again(self, identifier: int) -> None:
        is_gone = identifier in self._lost or identifier not in self.links
        if identifier in self._watched and is_gone and not self._is_closed:
            self._lost.add(identifier)
            self._events.link_lost(identifier)

    # Finding each other again.

    def _retry_later(self, identifier: int, seconds: float = RETRY_SECONDS[0]) -> None:
        if not self._is_closed and identifier not in self._retries and identifier not in self._over:
            again = partial(self._retry, identifier, min(2 * seconds, RETRY_SECONDS[1]))
            self._retries[identifier] = self._loop.call_later(seconds, again)

    def _retry(self, identifier: int, following: float = RETRY_SECONDS[0]) -> None:
        timer = self._retries.pop(identifier, None)
        if timer is not None:
            timer.cancel()
        peer = self.roster.peer(identifier)
        if identifier not in self._lost or (peer is None and identifier not in self._addresses) or self._is_closed:
            return
        if identifier not in self.links:
            address, instance = (peer.address, peer.instance) if peer else (self._addresses[identifier], "")
            self._connect(identifier, address, instance)
        self._retry_later(identifier, following)

    def _never_again(self, identifier: int) -> None:
        """A life of a broker that is over does not come back."""
        self._over.add(identifier)
        self._introductions.forget(identifier)
        timer = self._retries.pop(identifier, None)
        if timer is not None:
            timer.cancel()
