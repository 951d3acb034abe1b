"""The nodes of a gossip cluster as one of them sees them: it knows some of the others, and keeps links to few.

The process says whose links it wants to keep (``watch``): its neighbours in the topics that it takes part in. Other
links are opened when there is something to say and closed when nothing more has been said for a while. All nodes take
part in one overlay that is no topic of applications (``EVERYBODY``). It keeps nodes in touch that share no topic, and
over its links pass the names of topics and who the contacts are.

Hosts tell each other the names of nodes (:mod:`antiphon.membership.address_book`): the first frame after the greeting
names the sender, and a host introduces each other node before a message first mentions it on a connection.

A contact that is lost is replaced by the senior of those that are left. Lost contacts, and the nodes through which this
one joined, are tried again now and then, each time after a longer while: so parts of a cluster that a network had
separated meet again, however long that took. When all contacts are lost, a node makes itself one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.fabrics.gossip.assembly.settings import EVERYBODY
from antiphon.fabrics.gossip.messages import Beat, Comparison
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import Shuffle, ShuffleReply
from antiphon.kernel.message import ProtocolMessage
from antiphon.membership.address_book import AddressBook
from antiphon.membership.founding import Founding
from antiphon.membership.host import NOT_HERE, SECOND_US, Connection, Link, Place, Timer
from antiphon.membership.joining import Joining
from antiphon.membership.membership import Membership
from antiphon.membership.messages import ContactList, Control, Hello, Peer, PeerAddresses, PlaceResponse

HOPS: Final = 16
"""How often a newcomer's question is handed on by nodes that have nothing to give."""

IDLE_US: Final = SECOND_US
"""After how long without a message a link is closed that the process does not watch."""

APPOINT_US: Final = SECOND_US
"""How long a node waits before it appoints a contact where one is missing: another may do so."""

WAITS_WITHOUT_CONTACT: Final = 3
"""How often a node without a contact waits for another one to become a contact."""

RETRY_US: Final = (SECOND_US // 4, 300 * SECOND_US)
"""The shortest and the longest wait before a lost contact is tried again. A node that is apart for longer than others
keep what it lacks loses messages, so waits begin short, and grow by a quarter when all were tried."""

LOST_AT_MOST: Final = 100
"""How many lost nodes are remembered, the last ones."""

IDLE: Final = Timer("idle")
APPOINT: Final = Timer("appoint")
RETRY: Final = Timer("retry")
TELL_LOST: Final = "tell lost"


class PartialView(Membership):
    """The others, as far as one node of a gossip cluster knows them."""

    knows_everybody = False

    def __init__(self, place: Place, contacts_wanted: int) -> None:
        super().__init__(place)
        self.address_book = AddressBook(self._instance, self._address, contacts_wanted, place.host.draw)
        self._joining = Joining(place.host, self, self._settings.fabric, HOPS)
        self._founding = Founding(place.host, self._joining, self._address, self._found)
        self._watched: set[int] = set()
        # Of whom the other end of a link has been told, and how many frames had been sent when it was last looked at.
        self._told: dict[int, set[int]] = {}
        self._marks: dict[int, int] = {}
        self._is_idle_timer_set = False
        # The nodes that were lost last and not found since, with how much each had said by then.
        self._missing: dict[int, int] = {}
        # Lives of nodes that are over: another node lives at their addresses.
        self._over: set[int] = set()
        self._retry_us = RETRY_US[0]
        self._retry_at_us = 0
        self._retries = 0
        self._is_appointing = False
        self._waits_without_contact = 0
        self._contacts_told: list[int] = []
        # The nodes that this one asked for a place.
        self._contacts: list[str] = []

    # Joining.

    def _begin_to_join(self) -> None:
        """Found a cluster, or ask for a place; this node is in when it is part of the overlay of all nodes."""
        self._contacts = self._founding.start(self._settings.join)

    def _found(self, identifier: int) -> None:
        self.address_book.found(identifier)
        self._begin()

    def why_not_in(self) -> str:
        settings = self._settings
        return (
            f"no node at {', '.join(self._contacts)} has taken this one in after {settings.join_seconds:g} seconds; "
            f"start one of these with fabric gossip, or name another{self._joining.refusals()}"
        )

    def got(self, place: PlaceResponse, giver: str) -> None:
        self.address_book.take(place)
        self._begin()

    def _begin(self) -> None:
        """This node has its place."""
        me = self.address_book.me.identifier
        assert me is not None, "a node that begins has a place"
        self._joining.stop()
        self._founding.placed()
        self._take_place(me, self.address_book.contacts())
        self._set_retry()
        self._poll_contacts()

    def membership_began(self, number: int) -> None:
        if number == EVERYBODY:
            self._enter()

    def may_give(self) -> bool:
        # A newcomer needs a contact to join the overlay. A node that has lost all of them finds or becomes one soon.
        return self.address_book.is_placed and bool(self.address_book.contacts())

    def givers(self) -> list[int]:
        # Contacts above all: they joined early and were given much.
        contacts = [identifier for identifier in self.address_book.contacts() if identifier in self.links]
        return contacts + [identifier for identifier in self.links if identifier in self._watched]

    def consent_needed(self) -> int:
        # The nodes within reach have to agree, and no more: there may be many others.
        return 0

    def remember(self, newcomer: Peer) -> None:
        self._remember(newcomer)

    def on_place_given(self, place: PlaceResponse, newcomer: Peer) -> None:
        link = self._link_to(place.identifier)
        if link is not None:
            self._host.send(link, place)

    def peers(self) -> list[Peer]:
        """Those to whom links are kept."""
        known = (self.address_book.peer(identifier) for identifier in sorted(self._watched) if identifier in self.links)
        return [peer for peer in known if peer is not None]

    def highest_identifier(self) -> int:
        return max(self._founding.highest, self.address_book.highest())

    def figures(self) -> dict[str, Any]:
        return {"contacts": self.address_book.contacts(), "links": len(self.links)}

    def figures_of(self, number: int) -> dict[str, Any]:
        """Neighbours with their round trips in microseconds, -1 where none has been measured, and parents."""
        process = self._events.process
        if not isinstance(process, Brisa) or not process.takes_part(number):
            return {}
        trees = process.group(number).trees
        parents = {int(parent) for structure in trees.structures.values() for parent in structure.parents}
        round_trips = {str(peer): int(link.round_trip) for peer, link in trees.links.items()}
        return {"neighbours": round_trips, "parents": sorted(parents)}

    def _remember(self, *newcomers: Peer) -> None:
        """Keep for the next life where others are: newcomers, contacts and neighbours. Any one of them may be gone."""
        contacts = (one.contact for one in self.address_book.appointments())
        others = [peer.address for peer in (*newcomers, *contacts, *self.peers())]
        self._founding.remember(others, self.highest_identifier())

    # What other hosts say.

    def greeted(self, connection: Connection, hello: Hello) -> None:
        super().greeted(connection, hello)
        self._is_copy(connection, hello)

    def control_received(self, connection: Connection, message: Control) -> None:
        if self._joining.on_message(connection, message):
            return
        if isinstance(message, PeerAddresses):
            self._introduced(connection, message.peers)
        elif isinstance(message, ContactList):
            for appointment in message.contacts:
                if self.address_book.is_unclaimed(appointment.contact.instance):
                    self._claimed(appointment.contact)
            if self.address_book.appointed(message.contacts):
                self._contacts_changed()
        else:
            super().control_received(connection, message)

    def _introduced(self, connection: Connection, peers: Sequence[Peer]) -> None:
        self.address_book.check_claim(connection.instance, peers)
        for peer in peers:
            # Others speak only of nodes that have said themselves who they are.
            if peer.instance == connection.instance or self.address_book.is_unclaimed(peer.instance):
                self._claimed(peer)
        self.address_book.learn(peers)
        sender = self._sender_of(connection)
        if sender is not None and sender in self._missing:
            self._is_back(sender, connection.address)
        if (
            sender is not None and self.address_book.reachable(sender)
        ) or self.address_book.contacts() != self._contacts_told:
            self._contacts_changed()

    def _claimed(self, peer: Peer) -> None:
        """A node has this identifier: let go of another one by which it was known here."""
        former = self.address_book.claim(peer)
        if former is not None:
            self._over.add(former)
            link = self.links.get(former)
            if link is not None:
                self._forget_link(former)
                link.close()
            self._tell_lost(former)

    def declined(self, giver: str) -> None:
        # The giver may be a stranger to which this node would never say who it is.
        identifier = self.address_book.identifier_of(giver)
        if identifier is not None:
            self._link_to(identifier)

    # Contacts.

    def _contacts_changed(self) -> None:
        """Tell the process, and those who may not know."""
        # The process may invite somebody to its topics who has to know before that it is a contact.
        self.spread(ContactList(self.address_book.appointments()))
        process = self._events.process
        contacts = self._contacts_told = self.address_book.contacts()
        self._remember()
        if isinstance(process, Brisa) and contacts:
            process.contacts_are(contacts)
        self._poll_contacts()

    def _poll_contacts(self) -> None:
        """Appoint a contact after a while, if one is missing that this node may have to appoint."""
        if self._is_appointing or not self.address_book.is_placed:
            return
        if not self.address_book.contacts() or self._candidates():
            self._is_appointing = True
            self._host.set_timer(APPOINT, APPOINT_US)

    def _candidates(self) -> list[int]:
        """The neighbours that this node could make contacts, if it is the one to do so."""
        if self.address_book.contacts() and not (
            self.address_book.is_first_contact() and self.address_book.wants_contacts()
        ):
            return []
        appointed = self.address_book.appointed_ever()
        return sorted(one for one in self._watched if one in self.links and one not in appointed)

    def _appoint(self) -> None:
        me = self.address_book.me.identifier
        assert me is not None, "a node that appoints has a place"
        if self.address_book.contacts():
            self._waits_without_contact = 0
            has_changed = self.address_book.is_first_contact() and self.address_book.appoint(self._candidates())
        else:
            self._waits_without_contact += 1
            neighbours = [one for one in self._watched if one in self.links]
            # One of two neighbours waits for the other: not all are to become contacts at once.
            is_next = not neighbours or me < min(neighbours)
            is_last = self._waits_without_contact > WAITS_WITHOUT_CONTACT
            has_changed = (is_next or is_last) and self.address_book.appoint([me])
        if has_changed:
            self._log.info("contacts", nodes=self.address_book.contacts())
            self._contacts_changed()

    def _retry(self) -> None:
        """Try to meet a contact that was lost, or the nodes through which this one came.

        Nothing tells a node that parts of a cluster have been separated and could meet again, so it tries for ever.
        """
        self._joining.stop()
        lost = [contact for contact in self.address_book.lost_contacts() if contact not in self._over]
        here = {self._address, *(peer.address for peer in self.peers())}
        places = [address for address in self._contacts if address not in here]
        if self._retries < len(lost):
            self._link_to(lost[-1 - self._retries])
        elif places and self._retries - len(lost) < len(places):
            self._greet(self._joining.link_to(places[self._retries - len(lost)]))
        else:
            self._retries = -1
            self._retry_us = min(5 * self._retry_us // 4, RETRY_US[1])
        self._retries += 1
        self._set_retry()

    def _set_retry(self) -> None:
        self._retry_at_us = self._host.now() + self._retry_us
        self._host.set_timer(RETRY, self._retry_us)

    def _retry_soon(self) -> None:
        """A contact is lost: what was waited for before, perhaps for minutes, is too long now."""
        self._retry_us = RETRY_US[0]
        if self._retry_at_us > self._host.now() + self._retry_us:
            self._retries = 0
            self._set_retry()

    def expired(self, timer: Timer) -> None:
        if self._joining.expired(timer) or self._founding.expired(timer):
            return
        if timer == IDLE:
            self._close_idle_links()
        elif timer == APPOINT:
            self._is_appointing = False
            self._appoint()
            self._poll_contacts()
        elif timer == RETRY:
            self._retry()
        elif timer.kind == TELL_LOST:
            self._tell_lost(timer.peer)
        else:
            super().expired(timer)

    # Links.

    def link_for(self, identifier: int, message: ProtocolMessage) -> Link | None:
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

    def _introduce(self, link: Link, told: set[int], identifiers: Sequence[int]) -> None:
        strangers = [self.address_book.peer(identifier) for identifier in identifiers if identifier not in told]
        known = [peer for peer in strangers if peer is not None and not self.address_book.is_unclaimed(peer.instance)]
        if known:
            told.update(peer.identifier for peer in known if peer.identifier is not None)
            self._host.send(link, PeerAddresses(known))

    def watch(self, identifier: int) -> None:
        self._watched.add(identifier)
        if self._link_to(identifier) is None:
            # Not at once: the process is in the middle of a step.
            self._host.set_timer(Timer(TELL_LOST, identifier), 0)
        else:
            self._remember()
        self._poll_contacts()

    def unwatch(self, identifier: int) -> None:
        self._watched.discard(identifier)
        self._poll_idle_links()

    def _poll_idle_links(self) -> None:
        if not self._is_idle_timer_set and any(identifier not in self._watched for identifier in self.links):
            self._is_idle_timer_set = True
            self._host.set_timer(IDLE, IDLE_US)

    def _close_idle_links(self) -> None:
        """Close links that the process does not watch and over which nothing has gone since the last look.

        A timer that is set with every message would cost more than to look.
        """
        self._is_idle_timer_set = False
        for identifier, link in list(self.links.items()):
            if identifier in self._watched or self._marks.get(identifier) != link.frames_sent:
                self._marks[identifier] = link.frames_sent
            else:
                self._forget_link(identifier)
                link.close()
        self._poll_idle_links()

    def _link_to(self, identifier: int) -> Link | None:
        """The link to a node, which is opened if there is none; None if nobody has said where it lives, or lived."""
        found = self.links.get(identifier)
        peer = None if identifier in self._over else self.address_book.peer(identifier)
        if found is not None or peer is None or identifier == self.address_book.me.identifier:
            return found
        link = self.links[identifier] = self._host.open(peer.address, self.hello(peer.instance), identifier)
        self._told[identifier] = {int(self.address_book.me.identifier or 0), identifier}
        self._greet(link)
        self._poll_idle_links()
        return link

    def bytes_received(self) -> dict[int, int]:
        """Of those to whom links are kept, on whichever connection they speak."""
        spoken = self._spoken()
        kept = ((identifier, self.links.get(identifier)) for identifier in self._watched)
        return {
            identifier: link.bytes_received + spoken.get(link.instance, 0)
            for identifier, link in kept
            if link is not None and link.is_connected
        }

    def _spoken(self) -> dict[str, int]:
        """How much has come on the connections that others have opened, by their lives."""
        spoken: dict[str, int] = {}
        for connection in self._connections:
            spoken[connection.instance] = spoken.get(connection.instance, 0) + connection.bytes_received
        return spoken

    def _is_missing(self, link: Link) -> bool:
        """Whether a node was lost and has said nothing on this link: it is only tried again."""
        return link.peer in self._missing and link.bytes_received == 0

    def _miss(self, link: Link) -> None:
        """A node is lost that was there: that is told once, however often it is tried again."""
        self._log.info("lost", node=link.peer, address=link.address)
        self.lost_nodes.append(link.peer)
        del self.lost_nodes[:-LOST_AT_MOST]
        self._missing.pop(link.peer, None)
        self._missing[link.peer] = self._spoken().get(link.instance, 0)
        if len(self._missing) > LOST_AT_MOST:
            del self._missing[next(iter(self._missing))]

    def _is_back(self, identifier: int, address: str) -> None:
        del self._missing[identifier]
        self._log.info("found", node=identifier, address=address)

    def silent(self, identifier: int) -> None:
        link = self.links[identifier]
        if not self._is_missing(link):
            super().silent(identifier)
        # When it goes on it is to know that it was lost.
        for connection in tuple(self._connections):
            if connection.instance == link.instance:
                connection.abort()
        link.abort()

    def _greet(self, link: Link) -> None:
        """Say who this is, and what every node is to know."""
        for control in (
            PeerAddresses([self.address_book.me]),
            ContactList(self.address_book.appointments()),
            *self._events.news(),
        ):
            self._host.send(link, control)

    def _forget_link(self, identifier: int) -> None:
        self.links.pop(identifier, None)
        self._told.pop(identifier, None)
        self._marks.pop(identifier, None)

    def link_opened(self, link: Link) -> None:
        if link.peer in self._missing and self._spoken().get(link.instance, 0) > self._missing[link.peer]:
            # Only the way to it had been lost, and it went on speaking.
            self._is_back(link.peer, link.address)
        if self.links.get(link.peer) is link and self.address_book.reachable(link.peer):
            self._contacts_changed()

    def link_lost(self, link: Link) -> None:
        identifier = link.peer
        if self._joining.link_lost(link) or self.links.get(identifier) is not link:
            return
        if not self._is_missing(link):
            self._miss(link)
        self._forget_link(identifier)
        if self.address_book.unreachable(identifier):
            self._retry_soon()
            self._appoint()
            self._contacts_changed()
        self._joining.on_peer_lost()
        self._tell_lost(identifier)

    def link_refused(self, link: Link, reason: str, is_final: bool) -> None:
        self._joining.refused(link, reason)
        former = self.address_book.identifier_of(link.instance)
        if reason == NOT_HERE and former is not None:
            # Those that have not heard of it go on naming it; no node is to knock at that door again.
            self._over.add(former)
        if is_final:
            self._excluded(link, reason)

    def _tell_lost(self, identifier: int) -> None:
        if identifier in self._watched:
            self._events.link_lost(identifier)
