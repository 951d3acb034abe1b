"""The brokers of a tree as one of them sees them: founders from a table, newcomers, and connections that come and go.

Each broker keeps a connection to every other and uses it in one direction. Two brokers are **together** while both
directions are open. When one breaks, whatever was on it may be lost; so both ends close both, the process is told that
the other is lost, and each tries to open them again. When both are open the process is told that the other is found.
What comes over a connection belongs to one time of being together: nothing of an earlier one comes later.

Founders know each other from a table, and a founder may be used when it has heard from all others. A broker that
returns with its log is who it was (:mod:`antiphon.live.identities`): it takes the place of its earlier life. Who comes
later, because it asks to join or because it was a founder and has lost its log, is a newcomer: some broker gives it an
identifier that nobody has had (:mod:`antiphon.live.roster`), and its process looks for a place in the tree. Everybody
tells everybody who newcomers are, and a newcomer who others are, also those who are out of reach: these are told of
newcomers when they are back, by everybody, and look for each other even if whoever took a newcomer in is gone by then.

In a tree without a quorum failures are taken at their word: who is lost stays lost, and is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from antiphon.fabrics.admission_messages import Peer
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.kernel.message import TOTAL
from antiphon.kernel.process import NO_NODE
from antiphon.live.blocks import BlockClaims
from antiphon.live.controls import (
    PROTOCOL_VERSION,
    Acquaint,
    BlockIs,
    BlockWanted,
    Control,
    Hello,
    PlaceGiven,
    PlaceWanted,
)
from antiphon.live.errors import JoinError
from antiphon.live.identities import Identity, keep_identity, kept_identity, place_of
from antiphon.live.incoming import NOT_HERE, IncomingConnection
from antiphon.live.links import OutgoingLink
from antiphon.live.logs import logger
from antiphon.live.membership import Membership, Place
from antiphon.live.roster import BLOCKS_FIRST, Roster
from antiphon.live.tree_table import TreeTable

LOOK_SECONDS: Final = 0.005
"""How often a newcomer looks whether it has a parent."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long a broker is still listened to when nothing can be sent to it any more."""

ASK_SECONDS: Final = 0.3
"""How long a newcomer waits before it asks the next broker for an identifier."""

RETURN_SECONDS: Final = 1.0
"""How long a broker that returns tries to reach another one before that one counts as lost."""

HOPS: Final = 8
"""So often its question is handed on by those who have none to give."""

RETRY_SECONDS: Final = (0.2, 5.0)
"""The shortest and the longest wait before a connection that broke is tried again."""

COUNTED_OUT: Final = (
    "this broker counts as failed here, because a connection with it has ended; it cannot return to a tree that runs "
    "without a quorum: start the tree again with all its brokers"
)
ANOTHER_LIFE: Final = "an earlier life of this broker is known here; this one is new, and is to ask for a place"

log = logger("brokers")


class Brokers(Membership):
    """All brokers of a tree."""

    survives_crashes = True

    def __init__(self, place: Place, table: TreeTable) -> None:
        super().__init__(place)
        self._table = table
        self._contacts = list(place.settings.join)
        self.roster = Roster(self._instance, self._address, 0)
        self._watched: set[int] = set()
        # Who is not together with this broker, and whose life is known to be over.
        self._lost: set[int] = set()
        self._over: set[int] = set()
        self._sent_away: set[str] = set()
        # Who has said that it is about to go.
        self.departing: set[int] = set()
        # The connection on which each other broker speaks at present.
        self._heard_on: dict[int, IncomingConnection] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._strangers: list[OutgoingLink] = []
        # Those of whom a newcomer has heard before it had its identifier, each with the life that spoke of it.
        self._known_before: list[tuple[str, Peer]] = []
        # Newcomers of whom those who were lost at that time may not have heard.
        self._missed: dict[int, list[Peer]] = {}
        # Where those are whom a broker that returns knew, and the latest incarnation of each that anybody has heard of.
        self._addresses: dict[int, str] = {}
        self._incarnations: dict[int, int] = {}
        self._is_in: asyncio.Future[None] = self._loop.create_future()
        self._refusals: dict[str, str] = {}
        self._asking: asyncio.TimerHandle | None = None
        # Most of those who are not known to be gone have to agree.
        self._claims = BlockClaims(
            self,
            place.sender.settle,
            place.tasks,
            lambda: self.roster,
            lambda: (len(set(self.links) - self._over) + 1) // 2,
        )

    # Beginning and ending.

    async def join(self, contacts: Sequence[str]) -> None:
        """Begin as a founder and wait for the others, or ask for a place and wait for a parent."""
        settings = self._settings
        identity = kept_identity(self._disk)
        if identity is not None:
            self._return(identity)
        elif contacts:
            self._ask(0)
        else:
            self._begin_as_founder()
        try:
            async with asyncio.timeout(settings.join_seconds):
                await self._is_in
                while self._is_searching():
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise JoinError(self.why_not_in()) from error

    def why_not_in(self) -> str:
        """What to say to whoever waited for a place in vain."""
        seconds = self._settings.join_seconds
        said = self.what_others_said()
        if self._contacts:
            return (
                f"no broker at {', '.join(self._contacts)} has taken this one in after {seconds:g} seconds; start one "
                f"of these with fabric tree, or name another{said}"
            )
        missing = [address for place, address in enumerate(self._table.brokers) if self._is_missing(place)]
        return (
            f"the brokers at {', '.join(missing)} are not there after {seconds:g} seconds; start all brokers of the "
            f"tree{said}"
        )

    def what_others_said(self) -> str:
        """Why those who were asked for a place closed the connection, as the end of a sentence."""
        return "".join(f"; {address} said: {reason}" for address, reason in self._refusals.items())

    def stop_asking(self) -> None:
        """Nobody is asked for a place any more."""
        for link in self._strangers:
            link.close()
        self._strangers.clear()
        if self._asking is not None:
            self._asking.cancel()

    def _begin_as_founder(self) -> None:
        place = self._table.place_of(self._address)
        count = max(1, len(self._table.brokers))
        share = (BLOCKS_FIRST - count) // count
        first = count + place * share
        self.roster.take(PlaceGiven(place, first, first + share, []))
        others = [other for other in range(count) if other != place]
        for other in others:
            self._connect(other, self._table.brokers[other], "", self._settings.join_seconds)
        # Others may be further and speak to the process before this broker has heard from all.
        self._events.placed(place, others)
        self._look_who_is_there()

    # The council.

    def figures(self) -> dict[str, Any]:
        process = self._events.process
        if not self._table.quorum or not isinstance(process, TreeBroker):
            return {}
        council = sorted({broker for body in process.council.bodies for broker in body})
        return {
            "council": council,
            "missing": [broker for broker in council if broker not in process.current.parents],
            "orders_totally": process.refusal(TOTAL) is None,
        }

    def dismiss(self, brokers: Sequence[int]) -> str:
        process = self._events.process
        if not self._table.quorum or not isinstance(process, TreeBroker):
            return super().dismiss(brokers)
        present = [broker for broker in brokers if broker in process.current.parents]
        if present:
            return f"broker {present[0]} is there; only brokers that are gone for good can be dismissed"
        log.warning("an operator says that brokers are gone for good", brokers=", ".join(map(str, brokers)))
        process.dismiss([int(broker) for broker in brokers])
        return ""

    # Returning.

    def _return(self, identity: Identity) -> None:
        """Go on as who this broker was in an earlier life, with whoever of the others is there."""
        log.info("returning with the log of an earlier life", node=identity.identifier)
        self.is_returning = True
        self.roster.take(place_of(identity, int(self._disk.fact("highest identifier", "-1"))))
        founders = dict(enumerate(self._table.brokers))
        self._addresses = {**founders, **identity.addresses}
        self._addresses.pop(identity.identifier, None)
        self._is_in.set_result(None)
        self._events.placed(identity.identifier, sorted(self._addresses))
        for other, address in self._addresses.items():
            self._connect(other, address, "", RETURN_SECONDS)

    def _keep_identity(self) -> None:
        """Write down who this broker is and where the others are, once it has its place for good."""
        me = self.roster.me.identifier
        if me is None or not self._is_in.done():
            return
        others = self._named(set(self.links) | (self._lost - self._over) - {me})
        known = {peer.identifier: peer.address for peer in others if peer.identifier is not None}
        unheard = {other: at for other, at in self._addresses.items() if self.roster.peer(other) is None}
        keep_identity(self._disk, Identity(me, {**unheard, **known}))

    @property
    def incarnation(self) -> int:
        process = self._events.process
        return int(process.journal.incarnation) if isinstance(process, TreeBroker) else 0

    def hello(self, target: str = "") -> bytes:
        me = self.roster.me.identifier
        settings = self._settings
        is_broker = isinstance(self._events.process, TreeBroker)
        if me is None or not self._is_in.done() or not is_broker or not self._table.quorum:
            return super().hello(target)
        lives = self.incarnation
        hello = Hello(PROTOCOL_VERSION, settings.cluster, self._instance, self._address, target, "", me, lives)
        return self._sender.codec.encode_control(hello)

    def _claimed(self, connection: IncomingConnection, hello: Hello) -> int | None:
        """Somebody says that it has a permanent identifier; the answer is who it is, if it is believed."""
        identifier = hello.identifier
        if not self.roster.is_placed or not self._table.quorum:
            return None
        if not self._is_in.done():
            if hello.incarnation > 0 and not self._contacts:
                # The tree is older than this broker, which has lost its log if it ever was in it.
                self._become_newcomer()
            return None
        known = self.roster.peer(identifier)
        if hello.incarnation == 0 and (known is not None or identifier not in self._addresses):
            # It has never been away; who is new is introduced.
            return None
        if identifier == self.roster.me.identifier or hello.incarnation < self._incarnations.get(identifier, 0):
            raise ProtocolError(f"broker {identifier} has a later life than this one, or it is another broker")
        self._check_name(connection, identifier, known)
        self._incarnations[identifier] = hello.incarnation
        self._take_in(Peer(hello.instance, hello.address, identifier))
        return identifier

    def _check_name(self, connection: IncomingConnection, identifier: int, known: Peer | None) -> None:
        """With certificates, nobody returns as somebody else."""
        if connection.identity is None:
            return
        named = self._table.name_of(identifier) or (known.instance.partition("/")[0] if known is not None else "")
        if named and connection.identity.name != named:
            raise ProtocolError(f"the identifier {identifier} is that of {named!r}")

    def _take_in(self, peer: Peer) -> None:
        """A broker is back: whatever was known of its earlier life is over."""
        identifier = peer.identifier
        assert identifier is not None, "who returns says who it is"
        if self.roster.peer(identifier) is not None:
            self._lose(identifier)
            self.roster.forget(identifier)
            self._lost.add(identifier)
        self._over.discard(identifier)
        self._let_go_of_former(peer)
        timer = self._retries.pop(identifier, None)
        if timer is not None:
            timer.cancel()
        link = self.links.get(identifier)
        if link is not None and (link.instance or link.address != peer.address):
            del self.links[identifier]
            link.close()
            link = None
        self.roster.learn([peer])
        if link is None:
            self._connect(identifier, peer.address, peer.instance)
        away = self._lost - self._over - {identifier}
        self.tell(identifier, Acquaint(self._named((set(self.links) | away) - {identifier})))
        self._keep_identity()

    def _become_newcomer(self) -> None:
        if not self._is_in.done() and not self._contacts:
            self._contacts = [address for address in self._table.brokers if address != self._address]
            self._loop.call_soon(self._start_again)

    def _is_searching(self) -> bool:
        process = self._events.process
        return isinstance(process, TreeBroker) and not process.is_root and process.parent == NO_NODE

    def links_in_use(self) -> list[OutgoingLink]:
        return [link for other, link in self.links.items() if other not in self._lost]

    def close(self) -> None:
        self._is_in.cancel()
        for timer in (*self._retries.values(), *([self._asking] if self._asking else [])):
            timer.cancel()
        for link in (*self.links.values(), *self._strangers):
            link.close()
        super().close()

    # Newcomers.

    def _ask(self, attempt: int) -> None:
        """Ask one broker after the other for an identifier, until one has given it."""
        if self.roster.is_placed or self._is_closed:
            return
        address = self._contacts[attempt % len(self._contacts)]
        link = self.new_link(address, "", lambda _: None, self._link_refused)
        self._strangers.append(link)
        self._sender.write(
            link, self._sender.codec.encode_control(PlaceWanted(self.roster.me, HOPS, self._settings.fabric))
        )
        self._sender.settle()
        self._asking = self._loop.call_later(ASK_SECONDS, self._ask, attempt + 1)

    def _place_wanted(self, message: PlaceWanted) -> None:
        if not self._is_in.done() or not self._table.quorum:
            # Who begins as a founder and has not heard from the others may not be one any more.
            return
        if self.roster.has_place_elsewhere(message.newcomer.instance):
            return
        place = self.roster.give(message.newcomer)
        if place is None:
            others = sorted(set(self.links) - self._lost)
            if others and message.hops > 0:
                self.tell(
                    others[message.hops % len(others)], PlaceWanted(message.newcomer, message.hops - 1, message.fabric)
                )
            else:
                self._claims.claim()
            return
        newcomer = Peer(message.newcomer.instance, message.newcomer.address, place.identifier)
        # Whoever it is, it has to know the others before its process looks for them.
        self._connect(place.identifier, newcomer.address, newcomer.instance)
        self.tell(place.identifier, Acquaint(self._named(self.links)))
        self.tell(place.identifier, place)
        away = self._named(self._lost - self._over - set(self.links))
        self.tell(place.identifier, Acquaint([peer for peer in away if peer.address != newcomer.address]))
        self._note_missed(newcomer)

    def _named(self, others: Iterable[int]) -> list[Peer]:
        return [peer for peer in (self.roster.peer(other) for other in sorted(others)) if peer is not None]

    def _note_missed(self, newcomer: Peer) -> None:
        """Those who are lost do not hear of a newcomer before they are found."""
        for identifier in self._lost - self._over:
            if identifier != newcomer.identifier:
                self._missed.setdefault(identifier, []).append(newcomer)

    def _place_given(self, place: PlaceGiven, giver: str) -> None:
        if self.roster.is_placed:
            return
        self.roster.take(place)
        self.stop_asking()
        known = self._trusted(giver)
        contacts = [peer.identifier for peer in known if peer.identifier is not None]
        for peer in known:
            self._meet(peer)
        for connection in tuple(self._incoming):
            speaker = self.roster.identifier_of(connection.instance)
            if speaker is not None:
                self._hears(speaker, connection)
            elif any(said == connection.instance for said, _ in self._known_before):
                # It comes again, and by then knows better who it is.
                connection.close()
        self._known_before.clear()
        self._events.placed(place.identifier, contacts)
        self._is_in.set_result(None)
        self._keep_identity()

    def _trusted(self, giver: str) -> list[Peer]:
        """Of whom to take the word that they exist: of those of whom whoever gives a place speaks, and of newcomers.

        Who says of itself that it is a founder may have begun anew, as this broker has, and will soon be somebody else.
        """
        founders = len(self._table.brokers)
        named = {peer.instance for speaker, peer in self._known_before if speaker == giver}
        return [
            peer
            for _, peer in self._known_before
            if peer.instance in named or (peer.identifier is not None and peer.identifier >= founders)
        ]

    def _start_again(self) -> None:
        """An earlier life of this broker was a founder: begin as a newcomer."""
        log.info("an earlier life of this broker is known to the others; joining as a new one")
        for link in self.links.values():
            link.close()
        self.links.clear()
        self._lost.clear()
        self._watched.clear()
        self._events.displaced()
        self.roster = Roster(self._instance, self._address, 0)
        self._ask(0)

    # Who is who.

    def peers(self) -> list[Peer]:
        return self._named(set(self.links) - self._lost)

    def highest_identifier(self) -> int:
        return max(self.roster.highest(), len(self._table.brokers) - 1)

    def identifier_of(self, instance: str) -> int | None:
        return self.roster.identifier_of(instance)

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        if isinstance(message, PlaceWanted):
            self.check_fabric(message)
            self._place_wanted(message)
        elif isinstance(message, PlaceGiven):
            self._place_given(message, connection.instance)
        elif isinstance(message, Acquaint):
            self._introduced(connection, message.peers)
        elif isinstance(message, (BlockWanted, BlockIs)):
            self._told_of_block(connection, message)
        else:
            super().control_received(connection, message)

    def _told_of_block(self, connection: IncomingConnection, message: BlockWanted | BlockIs) -> None:
        sender = self.roster.identifier_of(connection.instance)
        if sender is not None:
            self._claims.told(sender, message)

    def _introduced(self, connection: IncomingConnection, peers: Sequence[Peer]) -> None:
        if not self.roster.is_placed:
            self._known_before += [(connection.instance, peer) for peer in peers]
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

    def _take_back(self, newcomer: Peer) -> None:
        """Let go of the identifier that this broker has given to a newcomer, if it has taken another one."""
        given = self.roster.take_back(newcomer)
        if given is not None:
            self._disown(given)

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
        if known >= len(self._table.brokers):
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
        self.spread(Acquaint([peer]), peer.identifier)
        self._note_missed(peer)
        self._keep_identity()

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        identifier = self.roster.identifier_of(hello.instance)
        if identifier is None and hello.identifier >= 0:
            identifier = self._claimed(connection, hello)
        if identifier is None and hello.address in self._table.brokers:
            if not self._contacts:
                identifier = self._founder_greeted(connection, hello)
            elif self.roster.is_placed:
                # Whoever has joined a tree knows that it has long begun, also when no founder is left.
                self._send_away(connection, hello)
        if identifier is None:
            # A newcomer says who it is next.
            return
        if identifier in self._lost and not self._table.quorum:
            connection.expel(COUNTED_OUT)
            return
        self._hears(identifier, connection)
        self._look_who_is_there()

    def _founder_greeted(self, connection: IncomingConnection, hello: Hello) -> int | None:
        if hello.address == self._address:
            raise ProtocolError(f"a broker at {hello.address} has the address of this one; give each its own")
        place = self._table.brokers.index(hello.address)
        named = self._table.name_of(place)
        if named and connection.identity is not None and connection.identity.name != named:
            raise ProtocolError(f"the place of the broker at {hello.address} is that of {named!r}")
        known = self.roster.peer(place)
        if known is None and not (self._table.quorum and self._is_in.done()):
            self.roster.learn([Peer(hello.instance, hello.address, place)])
            return place
        if known is not None:
            # Whoever lives there now, the one who is known does not.
            self._lose(place)
            self._never_again(place)
        if not self._table.quorum:
            connection.expel(COUNTED_OUT)
        else:
            self._send_away(connection, hello)
        return None

    def _send_away(self, connection: IncomingConnection, hello: Hello) -> None:
        """Let somebody who begins as a founder know that it is a newcomer; when it comes again it is one."""
        if hello.instance not in self._sent_away:
            self._sent_away.add(hello.instance)
            connection.expel(ANOTHER_LIFE)

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
            expected_name=self._table.name_of(identifier),
        )
        self.links[identifier] = link
        # Founders know each other by their addresses. Who begins as one says no more before it knows that it is: it may
        # come back to a tree that runs, and whoever believed it would never give it another identifier.
        if self.roster.is_placed and (self._contacts or self._is_in.done()):
            self._sender.write(link, self._sender.codec.encode_control(Acquaint([self.roster.me])))
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
        missed = [peer for peer in self._missed.get(identifier, ()) if peer.identifier not in self._over]
        if missed:
            # Kept for the next time, as the connection may end before it is said.
            self._missed[identifier] = missed
            self.tell(identifier, Acquaint(missed))
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
        self._refusals[link.address] = reason
        former = self.roster.identifier_of(link.instance)
        if reason == NOT_HERE and former is not None:
            self._lose(former)
            self._never_again(former)
        if not is_final or self._is_closed:
            return
        if reason == ANOTHER_LIFE and self._table.quorum:
            self._become_newcomer()
            return
        error = PeerError(f"the broker at {link.address} has excluded this one: {reason}")
        if self._is_in.done():
            self._events.fail(error)
        else:
            self._is_in.set_exception(JoinError(str(error)))

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
            if self._table.quorum:
                connection.close()
            else:
                connection.expel(COUNTED_OUT)
        if self._table.quorum and link is not None:
            del self.links[identifier]
            link.close()
            self._retry_later(identifier)
        elif link is not None:
            # Nothing more is said over it, but the other end may have to say that it counts this one as failed.
            self._strangers.append(self.links.pop(identifier))
        self._events.peer_lost(identifier)
        if identifier in self._watched:
            self._events.link_lost(identifier)
        self._look_who_is_there()

    # Signs of life.

    def heard(self) -> dict[int, int]:
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
        if self._table.quorum and connection is not None and link is not None:
            connection.abort()
            link.abort()

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
        self._missed.pop(identifier, None)
        timer = self._retries.pop(identifier, None)
        if timer is not None:
            timer.cancel()

    # Who is there.

    def _is_missing(self, place: int) -> bool:
        return place != self.roster.me.identifier and self.roster.peer(place) is None and place not in self._lost

    def _look_who_is_there(self) -> None:
        founders = range(len(self._table.brokers))
        is_founder = self.roster.is_placed and not self._contacts
        if is_founder and not self._is_in.done() and not any(self._is_missing(place) for place in founders):
            self._is_in.set_result(None)
            self._keep_identity()

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
