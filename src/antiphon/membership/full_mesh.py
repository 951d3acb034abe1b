"""A cluster in which each node keeps a connection to every other: the common part of trees of brokers and cubes.

A node uses its own connections to send. Two nodes are **together** while both directions are open. When one breaks,
messages on it may be lost; so both ends close both, tell their processes, and try to open them again. Nothing of an
earlier time of being together arrives later.

A newcomer asks some node for a place (:mod:`antiphon.membership.joining`). Nodes tell each other of newcomers, also
nodes that were out of reach when they are back, and tell a newcomer of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.kernel.message import ProtocolMessage
from antiphon.membership.address_book import AddressBook
from antiphon.membership.host import COUNTED_OUT, NOT_HERE, SECOND_US, Connection, Link, Place, Timer
from antiphon.membership.introductions import Introductions
from antiphon.membership.joining import Joining
from antiphon.membership.membership import Membership
from antiphon.membership.messages import Control, Hello, Peer, PeerAddresses, PlaceResponse
from antiphon.membership.retries import RETRY, Retries
from antiphon.membership.speakers import Speakers
from antiphon.membership.tested_peers import TESTS, TestedPeers
from antiphon.membership.watched_peers import WatchedPeers

LAST_WORDS_US: Final = SECOND_US
"""How long a node is still listened to when nothing can be sent to it any more."""

HOPS: Final = 8
"""How often a newcomer's question is handed on by nodes that have no identifier to give."""

LAST_WORDS: Final = "last words"
TELL_LOST: Final = "tell lost"


class FullMesh(Membership):
    """All nodes of a cluster, each with a connection to every other."""

    def __init__(self, place: Place, founders: int = 0, has_quorum: bool = True) -> None:
        super().__init__(place)
        # How many nodes had their identifiers from the start, and whether lost nodes come back.
        self._founders = founders
        self._has_quorum = has_quorum
        self._contacts = list(place.settings.join)
        self.address_book = AddressBook(self._instance, self._address, 0)
        self._watched = WatchedPeers(place.events.link_lost, place.events.link_found)
        # The nodes that are not together with this one, and those whose life is known to be over.
        self._lost: set[int] = set()
        self._over: set[int] = set()
        # The nodes that have said that they are about to go.
        self.departing: set[int] = set()
        # The connection on which each other node speaks at present.
        self._heard_on: dict[int, Connection] = {}
        # What the process has to say to founders, and to nodes at an address, until they have said who they are.
        self._unsaid: dict[int, list[ProtocolMessage]] = {}
        self._speakers = Speakers()
        asking = self._own_identifier, self.peers, self.send_control
        self._tested = TestedPeers(self._heard_on, self._lost, self.links, *asking)
        self._retries = Retries(place.host)
        self._joining = Joining(place.host, self, self._settings.fabric, HOPS)
        self._introductions = Introductions()
        # The links over which newcomers were given the places that they asked for.
        self._answered_on: dict[int, Link] = {}
        # Links over which nothing more is said, but a reason may yet be heard.
        self._muted: list[Link] = []
        # Where those are of whom nothing but an earlier life is known.
        self._addresses: dict[int, str] = {}
        # Whether this node has its place for good.
        self._is_in = False

    # What trees and cubes do differently.
    def _on_joined(self) -> None:
        """This node has its place for good."""
        raise NotImplementedError

    def _recognised(self, connection: Connection, hello: Hello) -> int | None:
        """Which node a peer is whose life is not known here, if its greeting says so."""
        return None

    def _name_of(self, identifier: int) -> str:
        """The name that the certificate of a node must have; empty if any will do."""
        return ""

    def _keep_identity(self) -> None:
        """Write down who this node is and where the others are, if it is to come back as who it is."""

    def _poll_founders(self) -> None:
        """A node has been heard of, or lost."""

    # Newcomers.

    def may_give(self) -> bool:
        # A node that begins as a founder and has not heard from the others may not be one any more.
        return self._is_in and self._has_quorum

    def givers(self) -> list[int]:
        return sorted(set(self.links) - self._lost)

    def consent_needed(self) -> int:
        # Most of the nodes that are not known to be gone; there is a link to a lost one only while it is tried.
        return (len((set(self.links) | self._lost) - self._over) + 1) // 2

    def remember(self, newcomer: Peer) -> None:
        self._keep_highest()

    def on_place_given(self, place: PlaceResponse, newcomer: Peer) -> None:
        link = self.links.get(place.identifier)
        if link is not None and self._answered_on.get(place.identifier) is link:
            # It asks again because the answer takes long. A second connection would end the first one there.
            return
        if link is None:
            # A link to its address leads to whichever node lives there by now.
            former = self._let_go_of_former(newcomer)
            if former is not None:
                former.close()
            self._connect(place.identifier, newcomer.address, newcomer.instance)
        self._answered_on[place.identifier] = self.links[place.identifier]
        # A newcomer has to know the others before its process looks for them.
        self.send_control(place.identifier, PeerAddresses(self._named(self.links)))
        self.send_control(place.identifier, place)
        away = self._named(self._lost - self._over - set(self.links))
        self.send_control(place.identifier, PeerAddresses([one for one in away if one.address != newcomer.address]))

    def _named(self, others: Iterable[int]) -> list[Peer]:
        """The names of nodes, without newcomers that have not said yet which place they took."""
        peers = (self.address_book.peer(other) for other in sorted(others))
        return [peer for peer in peers if peer is not None and not self.address_book.is_unclaimed(peer.instance)]

    def got(self, place: PlaceResponse, giver: str) -> None:
        self.address_book.take(place)
        self._joining.stop()
        known = self._introductions.trusted(giver, self._founders)
        members = [peer.identifier for peer in known if peer.identifier is not None]
        for peer in known:
            self._meet(peer)
        for connection in tuple(self._connections):
            speaker = self._sender_of(connection)
            if speaker is not None and (self._speakers.has(connection) or speaker < self._founders):
                self._hears(speaker, connection)
            elif self._introductions.has_spoken(connection.instance):
                # It comes again, and by then knows better who it is.
                connection.close()
        self._introductions.known_before.clear()
        self._take_place(place.identifier, members)
        self._is_in = True
        self._on_joined()
        self._keep_identity()

    def declined(self, giver: str) -> None:
        """Every node says who it is on each of its links."""

    # Which node is which.

    def peers(self) -> list[Peer]:
        return self._named(set(self.links) - self._lost)

    def links_in_use(self) -> list[Link]:
        return [link for other, link in self.links.items() if other not in self._lost]

    def highest_identifier(self) -> int:
        return max(self.address_book.highest(), self._founders - 1)

    def control_received(self, connection: Connection, message: Control) -> None:
        if isinstance(message, PeerAddresses):
            self._introduced(connection, message.peers)
        elif isinstance(message, TESTS):
            if self._has_entered and (sender := self._sender_of(connection)) is not None:
                self._tested.on_message(sender, message, self._detector, self._now_seconds())
        elif not self._joining.on_message(connection, message):
            super().control_received(connection, message)

    def _introduced(self, connection: Connection, peers: Sequence[Peer]) -> None:
        if any(peer.instance == connection.instance for peer in peers):
            self._speakers.on_hello(connection)
        if not self.address_book.is_placed:
            self._introductions.introduced(connection.instance, peers)
            return
        for peer in peers:
            if peer.instance == connection.instance:
                self._claim(peer)
            self._meet(peer)
        sender = self._sender_of(connection)
        if sender is not None and self._speakers.has(connection) and self._heard_on.get(sender) is not connection:
            self._hears(sender, connection)
            self._poll_founders()

    def _let_go_of_former(self, peer: Peer) -> Link | None:
        """A node says where it lives: another one that lived there does not come back.

        The answer is a link that was opened to the address, not to a certain life: it leads to the new node.
        """
        at = {other: link.address for other, link in self.links.items() if not link.instance}
        found: Link | None = None
        for other, address in {**self._addresses, **at}.items():
            is_nameless = self.address_book.peer(other) is None or (other in at and other in self._over)
            if address == peer.address and other != peer.identifier and is_nameless:
                self._addresses.pop(other, None)
                found = self.links.pop(other, found)
                self._lose(other)
                self._never_again(other)
        return found

    def _claim(self, peer: Peer) -> None:
        """A node says itself who it is, and that counts, whatever others have said of it.

        A newcomer may have been given a place here and have taken another one. The link to it stays what it is: a
        second one would end the first.
        """
        identifier = peer.identifier
        was_unclaimed = self.address_book.is_unclaimed(peer.instance)
        disowned = self.address_book.claim(peer, self._founders)
        if identifier is None:
            return
        if disowned is not None:
            link = self.links.pop(disowned, None)
            self._disown(disowned)
            if link is None:
                # It is met like any other node.
                return
            self.address_book.learn([peer])
            if identifier in self.links:
                link.close()
            else:
                self._keep_link(identifier, link)
        if was_unclaimed:
            self._tell_of(peer, identifier)
            self._keep_identity()

    def _tell_of(self, newcomer: Peer, identifier: int) -> None:
        """Tell the neighbours of a newcomer, who tell theirs, and lost nodes when they are found."""
        if self._is_in:
            for neighbour in self._tested.neighbours_without(identifier):
                self.send_control(neighbour, PeerAddresses([newcomer]))
            self._introductions.missed(self._lost - self._over, newcomer)

    def _disown(self, identifier: int) -> None:
        """No node has this identifier, after all."""
        self._unsaid.pop(identifier, None)
        link = self.links.pop(identifier, None)
        if link is not None:
            link.close()
        if self._heard_on.pop(identifier, None) is not None and identifier not in self._lost:
            self._events.peer_lost(identifier)
            self._watched.lost(identifier)
        self._lost.discard(identifier)
        self._tested.changed()
        self._never_again(identifier)

    def _meet(self, peer: Peer) -> None:
        """Keep a connection to a node that was not known, and tell the others."""
        book = self.address_book
        if peer.identifier is None or peer.instance == self._instance or book.peer(peer.identifier) is not None:
            return
        known = book.identifier_of(peer.instance)
        if (known is not None and known >= self._founders) or peer.identifier in self._addresses:
            # Of two identifiers that a node was given the one counts by which it is known, until it says otherwise
            # itself. The nodes that a broker that returns knew say themselves who they are now.
            return
        self._connect_once(peer, peer.identifier, known)
        self._tell_of(peer, peer.identifier)
        self._keep_identity()

    def _connect_once(self, peer: Peer, identifier: int, known: int | None) -> None:
        """Keep a connection to a life of a node; one that leads to it under another name gets this one.

        Two would count there as two lives. A node that comes back while others do begins as a founder, is ``known`` as
        that one, and is given an identifier then: that one counts.
        """
        link = None
        if known is not None:
            link = self.links.pop(known, None)
            self.address_book.forget(known)
            self._disown(known)
        link = self._let_go_of_former(peer) or link
        self.address_book.learn([peer])
        if identifier in self.links:
            # A founder waits for another one at its address, and others know it already.
            return
        if link is None:
            self._connect(identifier, peer.address, peer.instance)
        else:
            self._keep_link(identifier, link)

    def greeted(self, connection: Connection, hello: Hello) -> None:
        super().greeted(connection, hello)
        if not self._speakers.greeted(connection, hello.number) or self._is_copy(connection, hello):
            return
        identifier = self.address_book.identifier_of(hello.instance)
        if identifier is not None and identifier >= self._founders:
            # It says next who it is, unless it asked for a place on this connection before it had one.
            return
        if identifier is None:
            identifier = self._recognised(connection, hello)
        if identifier is None:
            # A newcomer says who it is next.
            return
        if identifier in self._lost and not self._has_quorum:
            connection.expel(COUNTED_OUT)
            return
        self._hears(identifier, connection)
        self._poll_founders()

    # Connections.

    def _connect(self, identifier: int, address: str, instance: str, patience_us: int = 0) -> None:
        link = self._host.open(address, self.hello(instance), identifier, patience_us, self._name_of(identifier))
        self._keep_link(identifier, link)
        if self._has_place_for_good():
            self._host.send(link, PeerAddresses([self.address_book.me], "" if instance else self.address_book.founding))

    def _has_place_for_good(self) -> bool:
        """Whether this node may say who it is.

        A node that begins as a founder says no more than its address before it knows that it is one: it may come back
        to a tree that runs, and a node that believed it would never give it another identifier.
        """
        return self.address_book.is_placed and (bool(self._contacts) or self._is_in)

    def _keep_link(self, identifier: int, link: Link) -> None:
        """Keep a link under the name of the node that it leads to, which may have had another name."""
        link.peer = identifier
        self.links[identifier] = link

    def _hears(self, identifier: int, connection: Connection) -> None:
        """A node speaks on a new connection, unless it is one that it opened before that on which it was heard."""
        if self._speakers.dismissed(connection):
            return
        self._speakers.on_frame(connection)
        if self._heard_on.get(identifier) not in (None, connection):
            # It has noticed earlier than this node that they were separated.
            self._lose(identifier)
        self._heard_on[identifier] = connection
        self._tested.changed()
        if identifier in self._lost and identifier not in self.links:
            self._retry(identifier)
        self._check_connected(identifier)
        for message in self._unsaid.pop(identifier, ()):
            self._events.transmit(identifier, message)

    def link_for(self, identifier: int, message: ProtocolMessage) -> Link | None:
        link = self.links.get(identifier)
        if link is not None and identifier not in self._heard_on and (identifier < self._founders or not link.instance):
            # Who lives at that address may be another node by now, or no founder, and take it for a message to itself.
            self._unsaid.setdefault(identifier, []).append(message)
            return None
        return link

    def link_opened(self, link: Link) -> None:
        if self.links.get(link.peer) is link:
            self._check_connected(link.peer)

    def _check_connected(self, identifier: int) -> None:
        link = self.links.get(identifier)
        if identifier in self._lost and identifier in self._heard_on and link is not None and link.is_connected:
            # A node that was lost is back; one that connects for the first time is no news for operators.
            tell = self._log.warning if identifier in self.lost_nodes else self._log.info
            tell("found", node=identifier, address=link.address)
            self._lost.discard(identifier)
            self._tested.changed()
            self._retries.stop(identifier)
            self.on_connected(identifier)

    def on_connected(self, identifier: int) -> None:
        """Both directions are open now."""
        self._events.peer_found(identifier)
        missed = self._introductions.missed_by(identifier, self._over)
        if missed:
            self.send_control(identifier, PeerAddresses(missed))
        self._watched.found(identifier)

    def connection_ended(self, connection: Connection) -> None:
        super().connection_ended(connection)
        self._speakers.ended(connection)
        identifier = self._sender_of(connection)
        if identifier is not None and self._heard_on.get(identifier) is connection:
            del self._heard_on[identifier]
            self._lose(identifier)

    def link_lost(self, link: Link) -> None:
        identifier = link.peer
        if self._joining.link_lost(link) or self.links.get(identifier) is not link:
            return
        if identifier in self._lost:
            del self.links[identifier]
            self._retry_later(identifier)
        elif identifier in self._heard_on:
            # What the other end had sent before it went is still to be read; its own connection ends behind that.
            self._host.set_timer(Timer(LAST_WORDS, identifier), LAST_WORDS_US)
        else:
            self._lose(identifier)

    def link_refused(self, link: Link, reason: str, is_final: bool) -> None:
        self._joining.refused(link, reason)
        if reason == NOT_HERE and (former := self.address_book.identifier_of(link.instance)) is not None:
            self._lose(former)
            self._never_again(former)
        if is_final:
            self._excluded(link, reason)

    def _lose(self, identifier: int) -> None:
        """The connections with another node have ended; nothing more comes over them."""
        if identifier in self._lost:
            return
        link = self.links.pop(identifier, None)
        address = "" if link is None else link.address
        self._unsaid.pop(identifier, None)
        self._lost.add(identifier)
        self._tested.lost(identifier)
        self._host.cancel_timer(Timer(LAST_WORDS, identifier))
        if identifier in self.departing:
            self._log.info("left", node=identifier, address=address)
            self._never_again(identifier)
        else:
            self._log.warning("lost", node=identifier, address=address)
            self.lost_nodes.append(identifier)
        connection = self._heard_on.pop(identifier, None)
        if connection is not None:
            if self._has_quorum:
                connection.close()
            else:
                connection.expel(COUNTED_OUT)
        if self._has_quorum and link is not None:
            link.close()
            self._retry_later(identifier)
        elif link is not None:
            # Nothing more is said over it, but the other end may have to say that it counts this one as failed.
            self._muted.append(link)
        self._events.peer_lost(identifier)
        self._joining.on_peer_lost()
        self._watched.lost(identifier)
        self._poll_founders()

    # Signs of life.

    def bytes_received(self) -> dict[int, int]:
        return self._tested.amounts()

    def _looked(self) -> None:
        self._tested.look(self._detector, self._now_seconds())

    def silent(self, identifier: int) -> None:
        super().silent(identifier)
        connection, link = self._heard_on.get(identifier), self.links.get(identifier)
        self._lose(identifier)
        if self._has_quorum and connection is not None and link is not None:
            connection.abort()
            link.abort()

    def watch(self, identifier: int) -> None:
        self._watched.watch(identifier)
        if identifier in self._lost or (identifier not in self.links and identifier != self.address_book.me.identifier):
            # Not at once: the process is in the middle of a step, and a newcomer may yet be introduced.
            self._host.set_timer(Timer(TELL_LOST, identifier), 0 if identifier in self._lost else LAST_WORDS_US)

    def unwatch(self, identifier: int) -> None:
        self._watched.unwatch(identifier)

    def expired(self, timer: Timer) -> None:
        if self._joining.expired(timer):
            return
        if timer.kind == RETRY:
            self._retry(timer.peer)
        elif timer.kind == LAST_WORDS:
            link = self.links.get(timer.peer)
            if link is not None and not link.is_connected:
                self._lose(timer.peer)
        elif timer.kind == TELL_LOST:
            if timer.peer in self._watched and timer.peer not in self.links:
                self._lost.add(timer.peer)
            if timer.peer in self._lost:
                self._watched.lost(timer.peer)
        else:
            super().expired(timer)

    # Finding each other again.

    def _retry_later(self, identifier: int) -> None:
        """Try again to reach a node after a while, if it may come back."""
        if identifier not in self._over:
            self._retries.later(identifier)

    def _retry(self, identifier: int) -> None:
        peer = self.address_book.peer(identifier)
        if identifier in self._lost and identifier not in self.links:
            if peer is not None:
                self._connect(identifier, peer.address, peer.instance)
            elif address := self._last_address(identifier):
                self._connect(identifier, address, "")

    def _last_address(self, identifier: int) -> str:
        """Where a node was in an earlier life, if nothing more is known of it."""
        return self._addresses.get(identifier, "")

    def _never_again(self, identifier: int) -> None:
        """A life of a node that is over does not come back."""
        self._over.add(identifier)
        self._introductions.forget(identifier)
        self._retries.stop(identifier)
