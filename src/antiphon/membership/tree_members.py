"""The brokers of a tree as one of them sees them: founders from a table, newcomers, and those that return.

Connections are those of a full mesh (:mod:`antiphon.membership.full_mesh`). Founders know each other from a table, and
a founder may be used when it has heard from all others. A broker that returns with its log is who it was
(:mod:`antiphon.membership.identities`): it takes the place of its earlier life. A broker that comes later, because it
asks to join or because it was a founder and has lost its log, is a newcomer: some broker gives it an identifier, and
its process looks for a place in the tree.

In a tree without a quorum failures are taken at their word: a lost broker stays lost, and is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import TOTAL
from antiphon.membership.address_book import BLOCKS_FIRST, AddressBook
from antiphon.membership.full_mesh import FullMesh
from antiphon.membership.host import COUNTED_OUT, NOBODY, SECOND_US, Connection, Link, Place, Timer, microseconds
from antiphon.membership.identities import Identity, foreign_founders, keep_identity, kept_identity, place_of
from antiphon.membership.messages import Hello, Peer, PeerAddresses, PlaceResponse

RETURN_US: Final = SECOND_US
"""How long a broker that returns tries to reach another one before that one counts as lost."""

START_AGAIN: Final = Timer("start again")
RETURN: Final = Timer("return")

ASKS: Final = 1
"""The incarnation that a broker says that has no identifier and asks for one; a founder that has none says 0."""

ANOTHER_LIFE: Final = "an earlier life of this broker is known here; this one is new, and is to ask for a place"


CHECKSUM_PRIME: Final = (1 << 32) - 5


class Founders(NamedTuple):
    """The brokers that a tree begins with; their places are their identifiers."""

    addresses: list[str]
    names: list[str]
    """The names that their certificates must have; none if any will do."""

    def place_of(self, address: str) -> int:
        """The identifier of the founder at an address."""
        if not self.addresses:
            return 0
        if address not in self.addresses:
            raise UsageError(
                f"this broker is at {address}, which is not among the brokers of the tree "
                f"({', '.join(self.addresses[:8])}); listen at or advertise one of these"
            )
        return self.addresses.index(address)

    def checksum(self) -> int:
        """The same for the same addresses in the same order; 0 if there are none."""
        checksum = 0
        for byte in "\n".join(self.addresses).encode():
            checksum = (checksum * 257 + byte) % CHECKSUM_PRIME
        return checksum

    def name_of(self, place: int) -> str:
        """The name in the certificate of a founder; empty if any will do."""
        return self.names[place] if place < len(self.names) else ""


OUTDATED: Final = "outdated"
"""Under this name a data directory keeps that others know more of its broker than it does."""

OLDER: Final = "was copied or backed up"


def older_directory(hello: Hello) -> str:
    """The refusal of a broker that returns with less than others have heard from it."""
    return (
        f"broker {hello.identifier} was started since the data directory at {hello.address} {OLDER}; "
        f"start that one with an empty data directory, and it joins as a new broker"
    )


class TreeMembers(FullMesh):
    """All brokers of a tree."""

    def __init__(self, place: Place, table: Founders, has_quorum: bool) -> None:
        super().__init__(place, len(table.addresses), has_quorum)
        self._table = table
        self._facts = place.host.facts
        self._sent_away: set[str] = set()
        # Which life after the first this is, and the latest of each other broker that anybody has heard of.
        self._incarnation = 0
        self._incarnations: dict[int, int] = {}
        self._returning: Identity | None = None
        self._kept_founders: list[str] = []
        # The connections that came before this broker had a place, with what their first frames said.
        self._greeted_early: dict[Connection, Hello] = {}

    # Beginning.

    def _begin_to_join(self) -> None:
        """Go on as who this broker was, begin as a founder and wait for the others, or ask for a place."""
        outdated = self._facts.read(OUTDATED)
        identity = kept_identity(self._facts)
        refusal = outdated.decode() if outdated is not None else ""
        refusal = refusal or (foreign_founders(identity, self._table.addresses) if identity is not None else "")
        if refusal:
            self._refuse(refusal)
            return
        self._returning = identity
        if identity is None:
            if self._contacts:
                self._joining.ask(self._contacts)
            else:
                self._begin_as_founder()
            return
        self._kept_founders = identity.founders
        self._incarnation = identity.incarnation + 1
        keep_identity(self._facts, msgspec.structs.replace(identity, incarnation=self._incarnation))
        self._host.when_safe(RETURN)

    def greeted(self, connection: Connection, hello: Hello) -> None:
        if self._returning is not None:
            # Nobody can be told yet which broker this is; it connects to all others in a moment.
            connection.close()
            return
        self._check_founders(hello)
        if not self.address_book.is_placed:
            self._greeted_early[connection] = hello
        known = self.address_book.identifier_of(hello.instance)
        says_other = hello.incarnation == ASKS if hello.identifier < 0 else hello.identifier != known
        if known is not None and known < self._founders and says_other:
            # It began as a founder, and has learned that it is none; it may have a place by now.
            self._lose(known)
            self.address_book.forget(known)
        refusal = self._why_not_return(hello)
        if refusal:
            connection.expel(refusal)
        else:
            super().greeted(connection, hello)

    def _why_not_return(self, hello: Hello) -> str:
        """Why a broker cannot return with the data directory that it has; empty if it can, or does not return."""
        identifier = hello.identifier
        is_known = self.address_book.identifier_of(hello.instance) is not None
        if is_known or hello.incarnation == 0 or identifier < 0 or not self._is_in or not self._has_quorum:
            return ""
        if identifier == self.address_book.me.identifier or hello.incarnation <= self._incarnations.get(identifier, -1):
            # An incarnation is on disk before it is said, so it is said by one life only.
            return older_directory(hello)
        known = self.address_book.peer(identifier)
        return self._directories.foreign(hello, known.instance) if known is not None else ""

    def _check_founders(self, hello: Hello) -> None:
        """Founders that have different lists would take each other for other brokers."""
        if self._begins_as_founder() and hello.founders not in (0, self._table.checksum()):
            raise ProtocolError(
                f"the list of brokers at {hello.address} is not that at {self._address}; give all founders the same "
                f"list, in the same order"
            )

    def _begins_as_founder(self) -> bool:
        return not self._is_in and not self._contacts

    def got(self, place: PlaceResponse, giver: str) -> None:
        super().got(place, giver)
        early, self._greeted_early = self._greeted_early, {}
        for connection, hello in early.items():
            # A broker that returned meanwhile is known to this one by its earlier life, of which others have spoken.
            if connection in self._connections and self._sender_of(connection) is None and hello.identifier >= 0:
                super().greeted(connection, hello)

    def _begin_as_founder(self) -> None:
        place = self._table.place_of(self._address)
        count = max(1, len(self._table.addresses))
        share = (BLOCKS_FIRST - count) // count
        first = count + place * share
        self.address_book.take(PlaceResponse(place, first, first + share, []))
        others = [other for other in range(count) if other != place]
        for other in others:
            self._connect(other, self._table.addresses[other], "", microseconds(self._settings.join_seconds))
        # Others may be further and speak to the process before this broker has heard from all.
        self._take_place(place, others)
        self._poll_founders()

    def _is_missing(self, place: int) -> bool:
        """Whether a founder has not been heard from. Without a quorum one that fails meanwhile is not waited for."""
        is_unheard = place != self.address_book.me.identifier and self.address_book.peer(place) is None
        return is_unheard and (self._has_quorum or place not in self._lost)

    def _last_address(self, identifier: int) -> str:
        founders = self._table.addresses
        is_founding = not self._is_in and not self._contacts and identifier < len(founders)
        return founders[identifier] if is_founding else super()._last_address(identifier)

    def _poll_founders(self) -> None:
        founders = range(self._founders)
        is_founder = self.address_book.is_placed and not self._contacts
        if is_founder and not self._is_in and not any(self._is_missing(place) for place in founders):
            self._is_in = True
            self._keep_identity()
            self._on_joined()

    def _on_joined(self) -> None:
        """A broker is used when its process has its place in the tree."""
        process = self._events.process
        if not isinstance(process, TreeBroker) or process.view.has_place:
            self._enter()

    def process_stepped(self) -> None:
        if self._is_in:
            self._on_joined()

    def why_not_in(self) -> str:
        """The error of a broker that waited for a place in vain."""
        seconds = self._settings.join_seconds
        said = self._joining.refusals()
        if self._contacts:
            return (
                f"no broker at {', '.join(self._contacts)} has taken this one in after {seconds:g} seconds; start one "
                f"of these with fabric tree, or name another{said}"
            )
        missing = [address for place, address in enumerate(self._table.addresses) if self._is_missing(place)]
        return (
            f"the brokers at {', '.join(missing)} are not there after {seconds:g} seconds; start all brokers of the "
            f"tree{said}"
        )

    # Those who greet this broker.

    def _recognised(self, connection: Connection, hello: Hello) -> int | None:
        identifier = self._claimed(connection, hello) if hello.identifier >= 0 else None
        if identifier is not None or hello.address not in self._table.addresses:
            return identifier
        if hello.identifier < 0 and hello.incarnation == ASKS:
            self._founder_is_gone(hello)
            return None
        if not self._contacts:
            return self._founder_greeted(connection, hello)
        if self.address_book.is_placed and hello.identifier < 0:
            # A broker that has joined a tree knows that it has long begun, also when no founder is left.
            self._send_away(connection, hello)
        return None

    def _founder_greeted(self, connection: Connection, hello: Hello) -> int | None:
        """A broker greets this one from the address of a founder."""
        if hello.address == self._address:
            raise ProtocolError(f"a broker at {hello.address} has the address of this one; give each its own")
        place = self._table.addresses.index(hello.address)
        named = self._table.name_of(place)
        if named and connection.certified_name not in ("", named):
            raise ProtocolError(f"the place of the broker at {hello.address} is that of {named!r}")
        known = self.address_book.peer(place)
        has_joined = hello.identifier not in (NOBODY, place)
        is_founding = not has_joined and not (self._has_quorum and self._is_in)
        if is_founding and (known is None or self._has_quorum):
            if known is not None:
                # It has begun anew before the tree began; a broker that is in its tree would send it away.
                self._lose(place)
                self.address_book.forget(place)
            self.address_book.learn([Peer(hello.instance, hello.address, place)])
            return place
        self._founder_is_gone(hello)
        if not self._has_quorum:
            connection.expel(COUNTED_OUT)
        elif not has_joined:
            self._send_away(connection, hello)
        elif not self._is_in:
            # The tree is older than this broker, or that one would be a founder.
            self._become_newcomer()
        return None

    def _founder_is_gone(self, hello: Hello) -> None:
        """Whichever broker lives at the address of a founder now, the one that is known does not."""
        place = self._table.addresses.index(hello.address)
        if not self._contacts and (self._is_in or self.address_book.peer(place) is not None):
            # A broker that has returned may know it by its address alone.
            self._lose(place)
            self._never_again(place)

    def _send_away(self, connection: Connection, hello: Hello) -> None:
        """Tell a broker that begins as a founder that it is a newcomer; when it comes again it is one."""
        if hello.instance not in self._sent_away:
            self._sent_away.add(hello.instance)
            connection.expel(ANOTHER_LIFE)

    def _excluded(self, link: Link, reason: str) -> None:
        if reason == ANOTHER_LIFE and self._has_quorum:
            self._become_newcomer()
        else:
            if OLDER in reason:
                # Each start counts as an incarnation, so one of the next would not be known to be of the past.
                self._facts.put(OUTDATED, reason.encode())
                self._facts.commit_soon()
            super()._excluded(link, reason)

    def _let_go_of_former(self, peer: Peer) -> Link | None:
        founders = self._table.addresses
        if peer.address in founders and founders.index(peer.address) != peer.identifier:
            # A founder that this one waits for will not come: the tree has begun, perhaps with an earlier life of it.
            self._become_newcomer()
        return super()._let_go_of_former(peer)

    def _become_newcomer(self) -> None:
        if not self._is_in and not self._contacts:
            self._contacts = [address for address in self._table.addresses if address != self._address]
            self._host.set_timer(START_AGAIN, 0)

    def _start_again(self) -> None:
        """An earlier life of this broker was a founder: begin as a newcomer."""
        self._log.info("the others know an earlier incarnation of this broker; joining as a new one")
        for link in self.links.values():
            link.close()
        self.links.clear()
        # What the others have said to a founder is forgotten here, so they have to come and say it again.
        for connection in tuple(self._connections):
            connection.close()
        self._heard_on.clear()
        self._lost.clear()
        self._tested.changed()
        self._watched.clear()
        self._unsaid.clear()
        self._events.displaced()
        self.address_book = AddressBook(self._instance, self._address, 0)
        self._joining.ask(self._contacts)

    def expired(self, timer: Timer) -> None:
        if timer == START_AGAIN:
            self._start_again()
        elif timer == RETURN:
            assert self._returning is not None, "only a broker that returns waits for that"
            identity, self._returning = self._returning, None
            self._return(identity)
        else:
            super().expired(timer)

    def _name_of(self, identifier: int) -> str:
        return self._table.name_of(identifier)

    # Returning.

    def _return(self, identity: Identity) -> None:
        """Go on as who this broker was in an earlier life, with whoever of the others is there."""
        self._log.info("returned with the log of an earlier incarnation", node=identity.identifier)
        self.is_returning = True
        self.address_book.take(place_of(identity, self._kept_highest()))
        known = {**dict(enumerate(self._table.addresses)), **identity.addresses}
        # A founder that has lived at the address of this broker lives no more.
        self._addresses = {
            other: address
            for other, address in known.items()
            if other != identity.identifier and address != self._address
        }
        self._is_in = True
        self._take_place(identity.identifier, sorted(self._addresses))
        # Of several brokers that have lived at one address at most one lives there now, and says which.
        for address, other in {address: other for other, address in self._addresses.items()}.items():
            self._connect(other, address, "", RETURN_US)
        self._on_joined()

    def _keep_identity(self) -> None:
        """Write down who this broker is and where the others are, once it has its place for good."""
        me = self.address_book.me.identifier
        if me is None or not self._is_in:
            return
        others = self._named(set(self.links) | (self._lost - self._over) - {me})
        known = {peer.identifier: peer.address for peer in others if peer.identifier is not None}
        unheard = {other: at for other, at in self._addresses.items() if self.address_book.peer(other) is None}
        founders = self._table.addresses or self._kept_founders
        keep_identity(self._facts, Identity(me, {**unheard, **known}, self._incarnation, founders))

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def hello(self, target: str = "") -> Hello:
        me = self.address_book.me.identifier
        hello = super().hello(target)
        if me is None:
            return msgspec.structs.replace(hello, incarnation=ASKS)
        if self._begins_as_founder():
            return msgspec.structs.replace(hello, founders=self._table.checksum())
        if not self._has_place_for_good() or not self._has_quorum:
            return hello
        return msgspec.structs.replace(hello, identifier=me, incarnation=self._incarnation)

    def _claimed(self, connection: Connection, hello: Hello) -> int | None:
        """Somebody says that it has a permanent identifier; the answer is who it is, if it is believed."""
        identifier = hello.identifier
        if not self.address_book.is_placed or not self._has_quorum:
            return None
        if not self._is_in:
            if hello.incarnation > 0 and not self._contacts:
                # The tree is older than this broker, which has lost its log if it ever was in it.
                self._become_newcomer()
            return None
        known = self.address_book.peer(identifier)
        if hello.incarnation == 0 and (known is not None or identifier not in self._addresses):
            # It has never been away; who is new is introduced.
            return None
        self._check_name(connection, identifier, known)
        self._incarnations[identifier] = hello.incarnation
        self._take_in(Peer(hello.instance, hello.address, identifier))
        return identifier

    def _check_name(self, connection: Connection, identifier: int, known: Peer | None) -> None:
        """With certificates, nobody returns as somebody else."""
        named = self._table.name_of(identifier) or (known.instance.partition("/")[0] if known is not None else "")
        if named and connection.certified_name not in ("", named):
            raise ProtocolError(f"the identifier {identifier} is that of {named!r}")

    def _take_in(self, peer: Peer) -> None:
        """A broker is back: whatever was known of its earlier life is over."""
        identifier = peer.identifier
        assert identifier is not None, "a broker that returns says its identifier"
        if self.address_book.peer(identifier) is not None:
            self._lose(identifier)
            self.address_book.forget(identifier)
            self._lost.add(identifier)
        self._over.discard(identifier)
        self._retries.stop(identifier)
        former = self._let_go_of_former(peer)
        if former is not None and identifier not in self.links:
            self._keep_link(identifier, former)
        link = self.links.get(identifier)
        if link is not None and (link.instance or link.address != peer.address):
            del self.links[identifier]
            link.close()
            link = None
        self.address_book.learn([peer])
        if link is None:
            self._connect(identifier, peer.address, peer.instance)
        away = self._lost - self._over - {identifier}
        self.send_control(identifier, PeerAddresses(self._named((set(self.links) | away) - {identifier})))
        self._keep_identity()

    # The council.

    def counted(self) -> set[int]:
        process = self._events.process
        if not isinstance(process, TreeBroker):
            return super().counted()
        return {broker for broker in process.view.current.parents if broker != process.me}

    def absent(self) -> set[int]:
        process = self._events.process
        if not self._has_quorum or not isinstance(process, TreeBroker):
            return super().absent()
        council = {broker for body in process.view.council.bodies for broker in body}
        return {broker for broker in council if broker not in process.view.current.parents}

    def figures(self) -> dict[str, Any]:
        process = self._events.process
        if not self._has_quorum or not isinstance(process, TreeBroker):
            return {}
        return {
            "council": sorted({broker for body in process.view.council.bodies for broker in body}),
            "missing": sorted(self.absent()),
            "orders_totally": process.refusal(TOTAL) is None,
        }

    def dismiss(self, brokers: Sequence[int]) -> str:
        process = self._events.process
        if not self._has_quorum or not isinstance(process, TreeBroker):
            return super().dismiss(brokers)
        present = [broker for broker in brokers if broker in process.view.current.parents]
        if present:
            return f"broker {present[0]} is there; only brokers that are gone for good can be dismissed"
        self._log.warning("an operator dismissed brokers", brokers=", ".join(map(str, brokers)))
        process.dismiss([int(broker) for broker in brokers])
        return ""
