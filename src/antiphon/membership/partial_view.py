"""The nodes of a gossip cluster as one of them sees them: it knows some of the others, and keeps links to few.

The process says whose links it wants to keep (``watch``): its neighbours in the topics that it takes part in. Other
links are opened when there is something to say and closed when nothing more has been said for a while. All nodes take
part in one overlay that is no topic of applications (``EVERYBODY``). It keeps nodes in touch that share no topic, and
over its links pass the names of topics and who the contacts are.

Who is who is told by hosts (:mod:`antiphon.membership.address_book`): the first frame after the greeting says who the
sender is, and whoever is spoken of on a connection for the first time is introduced before.

A contact that is lost is replaced by the senior of those that are left. Lost contacts, and the nodes through which this
one joined, are tried again now and then, each time after a longer while: so parts of a cluster that a network had
separated meet again, however long that took. When all contacts are lost, a node makes itself one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from antiphon.fabrics.gossip.messages import Beat, Comparison
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import Shuffle, ShuffleReply
from antiphon.kernel.message import Message
from antiphon.membership.address_book import Roster
from antiphon.membership.gossip_settings import EVERYBODY, GossipTable
from antiphon.membership.id_allocation import BlockClaims
from antiphon.membership.membership import Membership, Place
from antiphon.runtime.errors import JoinError
from antiphon.runtime.logging import logger
from antiphon.transport.incoming import NOT_HERE, IncomingConnection
from antiphon.transport.links import OutgoingLink
from antiphon.transport.peer_messages import (
    BlockRequest,
    BlockResponse,
    ContactList,
    Control,
    Peer,
    PeerAddresses,
    PlaceRequest,
    PlaceResponse,
    TopicAnnouncement,
)

ASK_SECONDS: Final = 0.3
"""How long a newcomer waits before it asks the next node for a place."""

HOPS: Final = 16
"""So often its question is handed on by those who have nothing to give."""

LOOK_SECONDS: Final = 1.0
"""How often a node looks for links that nobody needs, and for contacts that are missing."""

LOOKS_WITHOUT_CONTACT: Final = 3
"""So often a node without a contact waits for another one to become a contact."""

RETRY_SECONDS: Final = (1.0, 300.0)
"""The shortest and the longest wait before a lost contact is tried again. Who is apart for longer than others keep what
it lacks loses messages, so it begins with little."""

LOST_AT_MOST: Final = 100
"""So many nodes that were lost are remembered, the last ones."""

log = logger("acquaintances")


class Acquaintances(Membership):
    """The others, as far as one node of a gossip cluster knows them."""

    knows_everybody = False

    def __init__(self, place: Place, table: GossipTable, highest: int) -> None:
        super().__init__(place)
        self._highest = highest
        self.roster = Roster(self._instance, self._address, table.contacts, secrets.randbelow)
        # Whoever is within reach has to agree, and nobody more: there may be many others.
        self._claims = BlockClaims(self, place.sender.settle, place.tasks, lambda: self.roster, lambda: 0)
        self._watched: set[int] = set()
        # Of whom the other end of a link has been told, and how many frames had been sent when it was last looked at.
        self._told: dict[int, set[int]] = {}
        self._marks: dict[int, int] = {}
        self._by_address: dict[str, OutgoingLink] = {}
        self._refusals: dict[str, str] = {}
        # Lives of nodes that are over: somebody else lives at their addresses.
        self._over: set[int] = set()
        self._is_in: asyncio.Future[None] = self._loop.create_future()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._retry_seconds = RETRY_SECONDS[0]
        self._retries = 0
        self._looks_without_contact = 0

    # What the node does.

    async def join(self, contacts: Sequence[str]) -> None:
        """Found a cluster, or ask for a place; done when this node is part of the overlay of all nodes."""
        settings = self._settings
        if contacts:
            self._ask(list(contacts), 0)
        else:
            self.roster.found(self._highest + 1)
            self._begin()
        try:
            async with asyncio.timeout(settings.join_seconds):
                await self._is_in
        except TimeoutError as error:
            said = "".join(f"; {address} said: {reason}" for address, reason in self._refusals.items())
            raise JoinError(
                f"no node at {', '.join(contacts)} has taken this one in after {settings.join_seconds:g} seconds; "
                f"start one of these with fabric gossip, or name another{said}"
            ) from error

    def _ask(self, contacts: list[str], attempt: int) -> None:
        """Ask one node after the other for a place, until one has given it."""
        if self.roster.is_placed:
            return
        link = self._link_to_address(contacts[attempt % len(contacts)])
        self._sender.write(
            link, self._sender.codec.encode_control(PlaceRequest(self.roster.me, HOPS, self._settings.fabric))
        )
        self._sender.settle()
        self._later("ask", ASK_SECONDS, lambda: self._ask(contacts, attempt + 1))

    def _begin(self) -> None:
        """This node has its place."""
        me = self.roster.me.identifier
        assert me is not None, "who begins has a place"
        self._close_strangers()
        self._events.placed(me, self.roster.contacts())
        self._later("look", LOOK_SECONDS, self._poll)
        self._later("retry", self._retry_seconds, self._retry)
        self._sender.settle()

    def membership_began(self, number: int) -> None:
        if number == EVERYBODY and not self._is_in.done():
            self._is_in.set_result(None)

    def close(self) -> None:
        self._is_in.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._close_strangers()
        for link in self.links.values():
            link.close()
        super().close()

    def peers(self) -> list[Peer]:
        """Those to whom links are kept."""
        known = (self.roster.peer(identifier) for identifier in sorted(self._watched) if identifier in self.links)
        return [peer for peer in known if peer is not None]

    def highest_identifier(self) -> int:
        return max(self._highest, self.roster.highest())

    def identifier_of(self, instance: str) -> int | None:
        return self.roster.identifier_of(instance)

    def figures(self) -> dict[str, Any]:
        return {"contacts": self.roster.contacts(), "links": len(self.links)}

    def figures_of(self, number: int) -> dict[str, Any]:
        """Neighbours with their round trips in microseconds, -1 where none has been measured, and parents."""
        process = self._events.process
        if not isinstance(process, Brisa) or not process.takes_part(number):
            return {}
        trees = process.group(number).trees
        parents = {int(parent) for structure in trees.structures.values() for parent in structure.parents}
        round_trips = {str(peer): int(link.round_trip) for peer, link in trees.links.items()}
        return {"neighbours": round_trips, "parents": sorted(parents)}

    # What other hosts say.

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        if isinstance(message, PlaceRequest):
            self.check_fabric(message)
            self._place_wanted(message)
        elif isinstance(message, PlaceResponse):
            if not self.roster.is_placed:
                self.roster.take(message)
                self._begin()
        elif isinstance(message, PeerAddresses):
            self._introduced(connection, message.peers)
        elif isinstance(message, (BlockRequest, BlockResponse)):
            sender = self.roster.identifier_of(connection.instance)
            if sender is not None:
                self._claims.on_message(sender, message)
        elif isinstance(message, ContactList):
            if self.roster.appointed(message.contacts):
                self._contacts_changed()
        else:
            super().control_received(connection, message)

    def _introduced(self, connection: IncomingConnection, peers: Sequence[Peer]) -> None:
        for peer in peers:
            if peer.instance == connection.instance:
                self._take_back(peer)
        self.roster.check_claim(connection.instance, peers)
        self.roster.learn(peers)
        sender = self.roster.identifier_of(connection.instance)
        if sender is not None and self.roster.reachable(sender):
            self._contacts_changed()

    def _place_wanted(self, message: PlaceRequest) -> None:
        if not self.roster.is_placed or self.roster.has_place_elsewhere(message.newcomer.instance):
            # It asks again, or somebody else; or it has got an answer before this question came.
            return
        before = self.roster.contacts()
        place = self.roster.give(message.newcomer)
        if place is None:
            self._hand_on(message)
            return
        link = self._link_to(place.identifier)
        if link is not None:
            self._sender.write(link, self._sender.codec.encode_control(place))
        if self.roster.contacts() != before:
            self._contacts_changed()

    def _take_back(self, newcomer: Peer) -> None:
        """Let go of the identifier that this node has given to a newcomer, if it has taken another one."""
        given = self.roster.take_back(newcomer)
        if given is not None:
            self._over.add(given)
            link = self.links.get(given)
            if link is not None:
                self._forget_link(given)
                link.close()
            self._contacts_changed()

    def _hand_on(self, message: PlaceRequest) -> None:
        """Others may have something left to give, contacts above all: they joined early and were given much.

        When all who were asked have nothing left, the last of them takes new ones.
        """
        others = [identifier for identifier in self.roster.contacts() if identifier in self.links]
        others += [identifier for identifier in self.links if identifier in self._watched]
        if others and message.hops > 0:
            self.tell(
                others[message.hops % len(others)], PlaceRequest(message.newcomer, message.hops - 1, message.fabric)
            )
        else:
            self._claims.claim()

    # Contacts.

    def _contacts_changed(self) -> None:
        """Tell the process, and those who may not know."""
        # The process may invite somebody to its topics who has to know before that it is a contact.
        self.spread(ContactList(self.roster.appointments()))
        process = self._events.process
        contacts = self.roster.contacts()
        if isinstance(process, Brisa) and contacts:
            process.contacts_are(contacts)

    def _poll(self) -> None:
        """Close links that nobody needs, look who is back, and appoint contacts where some are missing."""
        for identifier, link in list(self.links.items()):
            if identifier in self._watched or self._marks.get(identifier) != link.frames_sent:
                self._marks[identifier] = link.frames_sent
            else:
                self._forget_link(identifier)
                link.close()
        for contact in self.roster.lost_contacts():
            found = self.links.get(contact)
            if found is not None and found.is_connected and self.roster.reachable(contact):
                self._contacts_changed()
        self._appoint()
        self._sender.settle()
        self._later("look", LOOK_SECONDS, self._poll)

    def _appoint(self) -> None:
        candidates = sorted(identifier for identifier in self._watched if identifier in self.links)
        if self.roster.contacts():
            self._looks_without_contact = 0
            has_changed = self.roster.is_first_contact() and self.roster.appoint(candidates)
        else:
            assert self.roster.me.identifier is not None, "who looks has a place"
            self._looks_without_contact += 1
            # One of two neighbours waits for the other: not all are to become contacts at once.
            is_next = not candidates or self.roster.me.identifier < candidates[0]
            has_changed = (is_next or self._looks_without_contact > LOOKS_WITHOUT_CONTACT) and self.roster.appoint(
                [self.roster.me.identifier]
            )
        if has_changed:
            log.info("contacts", nodes=self.roster.contacts())
            self._contacts_changed()

    def _retry(self) -> None:
        """Try to meet a contact that was lost, or the nodes through which this one came."""
        self._close_strangers()
        lost = [contact for contact in self.roster.lost_contacts() if contact not in self._over]
        here = {self._address, *(peer.address for peer in self.peers())}
        places = [address for address in self._settings.join if address not in here]
        if self._retries < len(lost):
            self._link_to(lost[-1 - self._retries])
        elif places and self._retries - len(lost) < len(places):
            self._greet(self._link_to_address(places[self._retries - len(lost)]))
        else:
            self._retries = -1
            self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS[1])
        self._retries += 1
        self._sender.settle()
        self._later("retry", self._retry_seconds, self._retry)

    def _retry_soon(self) -> None:
        """A contact is lost: what was waited for before, perhaps for minutes, is too long now."""
        self._retry_seconds = RETRY_SECONDS[0]
        waiting = self._timers.get("retry")
        if waiting is None or waiting.when() > self._loop.time() + self._retry_seconds:
            self._retries = 0
            self._later("retry", self._retry_seconds, self._retry)

    # Links.

    def link_for(self, identifier: int, message: Message) -> OutgoingLink | None:
        link = self.links.get(identifier)
        if link is None:
            link = self._link_to(identifier)
            if link is None:
                return None
        told = self._told[identifier]
        if message.source not in told:
            self._introduce(link, told, [message.source])
        if isinstance(message, (Shuffle, ShuffleReply)):
            self._introduce(link, told, list(message.nodes))
        elif isinstance(message, (Beat, Comparison)):
            self._introduce(link, told, list(message.report.numbers)[::2])
        return link

    def _introduce(self, link: OutgoingLink, told: set[int], identifiers: Sequence[int]) -> None:
        strangers = [self.roster.peer(identifier) for identifier in identifiers if identifier not in told]
        known = [peer for peer in strangers if peer is not None]
        if known:
            told.update(peer.identifier for peer in known if peer.identifier is not None)
            link.send(self._sender.codec.encode_control(PeerAddresses(known)))

    def watch(self, identifier: int) -> None:
        self._watched.add(identifier)
        if self._link_to(identifier) is None:
            # Not at once: the process is in the middle of a step.
            self._loop.call_soon(self._tell_lost, identifier)

    def unwatch(self, identifier: int) -> None:
        self._watched.discard(identifier)

    def _link_to(self, identifier: int) -> OutgoingLink | None:
        """The link to a node, which is opened if there is none; None if nobody has said where it lives, or lived."""
        found = self.links.get(identifier)
        peer = None if identifier in self._over else self.roster.peer(identifier)
        if found is not None or peer is None or identifier == self.roster.me.identifier or self._is_closed:
            return found
        link = self._new_link(peer.address, peer.instance)
        self.links[identifier] = link
        self._told[identifier] = {int(self.roster.me.identifier or 0), identifier}
        self._greet(link)
        return link

    def _link_to_address(self, address: str) -> OutgoingLink:
        """A link to whoever lives there."""
        link = self._by_address.get(address)
        if link is None:
            link = self._by_address[address] = self._new_link(address, "")
        return link

    def _close_strangers(self) -> None:
        """Close links to whoever lives at an address: they were for one question."""
        for link in self._by_address.values():
            link.close()
        self._by_address.clear()

    def _new_link(self, address: str, instance: str) -> OutgoingLink:
        lost_seconds = self._settings.lost_seconds
        return self.new_link(address, instance, self._link_lost, self._link_refused, silent_seconds=lost_seconds)

    def bytes_heard(self) -> dict[int, int]:
        """Of those to whom links are kept, on whichever connection they speak."""
        spoken: dict[str, int] = {}
        for connection in self._incoming:
            if connection.address:
                spoken[connection.instance] = spoken.get(connection.instance, 0) + connection.bytes_received
        kept = ((identifier, self.links.get(identifier)) for identifier in self._watched)
        return {
            identifier: link.bytes_heard + spoken.get(link.instance, 0)
            for identifier, link in kept
            if link is not None and link.is_connected
        }

    def silent(self, identifier: int) -> None:
        link = self.links[identifier]
        # When it goes on it is to know that it was lost.
        for connection in tuple(self._incoming):
            if connection.instance == link.instance:
                connection.abort()
        link.abort()

    def _greet(self, link: OutgoingLink) -> None:
        """Say who this is, and what everybody is to know."""
        codec = self._sender.codec
        self._sender.write(link, codec.encode_control(PeerAddresses([self.roster.me])))
        self._sender.write(link, codec.encode_control(ContactList(self.roster.appointments())))
        names = self._events.topic_names()
        if names:
            self._sender.write(link, codec.encode_control(TopicAnnouncement(sorted(names), False)))

    def _forget_link(self, identifier: int) -> None:
        self.links.pop(identifier, None)
        self._told.pop(identifier, None)
        self._marks.pop(identifier, None)

    def _link_lost(self, link: OutgoingLink) -> None:
        if self._is_closed:
            return
        if self._by_address.get(link.address) is link:
            del self._by_address[link.address]
            return
        identifier = self.roster.identifier_of(link.instance)
        if identifier is None or self.links.get(identifier) is not link:
            return
        log.info("lost", node=identifier, address=link.address)
        self._forget_link(identifier)
        self.lost_nodes.append(identifier)
        del self.lost_nodes[:-LOST_AT_MOST]
        if self.roster.unreachable(identifier):
            self._retry_soon()
            self._appoint()
            self._contacts_changed()
        self._tell_lost(identifier)
        self._sender.settle()

    def _link_refused(self, link: OutgoingLink, reason: str, is_final: bool) -> None:
        self._refusals[link.address] = reason
        former = self.roster.identifier_of(link.instance)
        if reason == NOT_HERE and former is not None:
            # Those who have not heard of it go on naming it; nobody is to knock at that door again.
            self._over.add(former)

    def _tell_lost(self, identifier: int) -> None:
        if identifier in self._watched and not self._is_closed:
            self._events.link_lost(identifier)

    def _later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while, in the place of what was to be done under that name."""
        before = self._timers.get(name)
        if before is not None:
            before.cancel()
        if not self._is_closed:
            self._timers[name] = self._loop.call_later(seconds, action)
