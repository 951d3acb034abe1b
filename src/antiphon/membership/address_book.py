"""The other nodes of a cluster as one node knows them: identifiers, addresses, contacts. Pure bookkeeping.

**Identifiers** must be small, since they are part of the name of every publication, and nobody may have the same as
another, ever. Nobody is asked for that. The founder owns all of them. A newcomer gets one from whoever it turns to, and
a part of what that node has left, to give to others in turn. So any node can take anybody in, at any time, and two
never give the same. The identifiers that a failed node still had are lost; a part is a 256th, so more than two thousand
may come and go through the founder, and a thousand through each of those that it took in. A node that has nothing left
asks others to give.

That does not end when all are gone who had much. The upper half of the identifiers is divided into **blocks**, which
who has nothing left takes with the consent of others (:mod:`antiphon.membership.id_allocation`). Where each knows all
others, on cubes and trees, they are used one after the other: a node takes the next one when all others within reach
have said that they know of no later one, and these are most of those who are not known to be gone. All of them, and
whoever they take in, know of it from then on. In gossip nobody can ask most of the others, so blocks are *drawn*, and
taken if none within reach has heard of anybody in it. Two parts of a network that are apart draw the same one with a
chance of one in 31,744 for each pair of draws; those two nodes then refuse each other.

**Addresses** go with identifiers: a node tells another who somebody is before it first speaks of it on a connection. An
identifier stands for one life of a node, so what is known of it never changes.

**Contacts** are appointed, with rising numbers; the lowest is senior. Lists are united, so that all nodes know the same
in the end. Everybody leaves out those that it cannot reach itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import MAXIMUM_IDENTIFIER, Appointment, Peer, PlaceResponse

PART: Final = 256
"""A newcomer gets so small a part of the identifiers that are left."""

BLOCKS_FIRST: Final = 1 << 21
"""From here on identifiers are in blocks, where there are any."""

BLOCK: Final = 64
"""Identifiers in a block."""

BLOCKS_AT_MOST: Final = (MAXIMUM_IDENTIFIER + 1 - BLOCKS_FIRST) // BLOCK

BLOCKS_DRAWN: Final = BLOCKS_AT_MOST - 1024
"""Blocks are drawn from the first so many: a node that founds a cluster anew begins above all that it saw."""

DRAWS_AT_MOST: Final = 64
"""So often a block is drawn that is known to be taken before there seem to be none left."""


WISHES_BELOW: Final = 1 << 14
"""Newcomers may wish for identifiers below this one: far more than nodes, so that near nodes can be neighbours."""


class AddressBook:
    """The identifiers, addresses and contacts that one node knows."""

    def __init__(
        self, instance: str, address: str, contacts_wanted: int, draw: Callable[[int], int] | None = None
    ) -> None:
        self.me = Peer(instance, address)
        # Draws a number below another one, where blocks are drawn.
        self._draw = draw
        self._contacts_wanted = contacts_wanted
        self.founding = ""
        self._first = 0
        self._end = 0
        # Identifiers in between that newcomers wished for and have.
        self._given_ahead: set[int] = set()
        # How many blocks somebody has taken, as far as this node knows; and where they are drawn, which.
        self._blocks = 0
        self._drawn: set[int] = set()
        self._given: dict[str, PlaceResponse] = {}
        # Newcomers that have not said yet whether they have taken the place that they were given here, and nodes that
        # have said themselves which identifier they have.
        self._unclaimed: set[str] = set()
        self._claimed: set[str] = set()
        self._book: dict[int, Peer] = {}
        self._identifiers: dict[str, int] = {}
        self._appointments: dict[int, int] = {}
        self._unreachable: set[int] = set()

    # Identifiers.

    @property
    def is_placed(self) -> bool:
        """Whether this node has its identifier."""
        return self.me.identifier is not None

    def found(self, identifier: int) -> None:
        """Be the first node; all identifiers from this one on that are in no block are there to be given."""
        self._take(identifier, identifier + 1, max(identifier + 1, BLOCKS_FIRST))
        self._appointments[identifier] = 0

    def take(self, place: PlaceResponse) -> None:
        """Somebody has given this node its place."""
        self.founding = place.founding
        self._blocks = max(self._blocks, place.blocks)
        self._take(place.identifier, place.first, place.end)
        self.appointed(place.contacts)

    def _take(self, identifier: int, first: int, end: int) -> None:
        self.me = Peer(self.me.instance, self.me.address, identifier)
        self._first, self._end = first, end
        self.learn([self.me])

    def has_given(self, newcomer: str) -> bool:
        """Whether a newcomer has been given a place here."""
        return newcomer in self._given

    def fulfils(self, wish: int) -> bool:
        """Whether this node can give a certain identifier."""
        part = (self._end - self._first) // PART
        return self._first <= wish < min(WISHES_BELOW, self._end - part) and wish not in self._given_ahead

    def give(self, newcomer: Peer, wish: int | None = None) -> PlaceResponse | None:
        """A place for a newcomer, the same if it asks again; None if there is nothing left to give.

        It is the one that the newcomer wishes for, if this node can give that.
        """
        given = self._given.get(newcomer.instance)
        if given is not None:
            return given
        if self._first >= self._end:
            return None
        part = (self._end - self._first) // PART
        identifier = self._first if wish is None or not self.fulfils(wish) else wish
        if identifier > self._first:
            self._given_ahead.add(identifier)
            self._end -= part
        else:
            self._first, self._end = identifier + 1, self._end - part
            while self._first in self._given_ahead:
                self._given_ahead.discard(self._first)
                self._first += 1
        self.learn([Peer(newcomer.instance, newcomer.address, identifier)])
        given = PlaceResponse(identifier, self._end, self._end + part, self.appointments(), self.founding, self._blocks)
        self._given[newcomer.instance] = given
        self._unclaimed.add(newcomer.instance)
        return given

    def next_block(self, skipped: int = 0) -> int | None:
        """A block that nobody has taken, as far as this node knows; it counts as taken from now on.

        Where blocks are not drawn, ``skipped`` blocks before it stay free for ever.
        """
        if self._draw is not None:
            drawn = (self._draw(BLOCKS_DRAWN) for _ in range(DRAWS_AT_MOST))
            return next((block for block in drawn if self.is_free(block)), None)
        block = self._blocks + skipped
        return block if block < BLOCKS_AT_MOST and self.is_free(block) else None

    def is_free(self, block: int) -> bool:
        """Whether nobody has taken a block, or, where they are not drawn, a later one, as far as this node knows.

        It counts as taken then.
        """
        if self._draw is not None:
            is_free = block not in self._drawn
            self._drawn.add(block)
            return is_free
        if block < self._blocks:
            return False
        self._blocks = block + 1
        return True

    def take_block(self, block: int) -> None:
        """All agree that a block is this node's to give."""
        self._first = BLOCKS_FIRST + block * BLOCK
        self._end = self._first + BLOCK

    def has_place_elsewhere(self, newcomer: str) -> bool:
        """Whether a newcomer whose question was long on its way has been given a place by somebody else."""
        return newcomer in self._identifiers and newcomer not in self._given

    def is_unclaimed(self, instance: str) -> bool:
        """Whether a newcomer has not said yet whether it has taken the place that it was given here."""
        return instance in self._unclaimed

    def claim(self, speaker: Peer, founders: int = 0) -> int | None:
        """A node says which identifier it has, and that counts; the answer is one that it does not have, after all.

        A newcomer asks the next node when an answer is late, so two nodes may give it a place; it takes the first. The
        giver of that one makes it a contact if there are too few. A node that says that it is one of the founders may
        have begun anew, and have been given an identifier since.
        """
        instance, said = speaker.instance, speaker.identifier
        known = self._identifiers.get(instance)
        is_known_otherwise = known is not None and known != said and instance not in self._unclaimed
        if said is None or (is_known_otherwise and (said < founders or instance in self._claimed)):
            return None
        if instance in self._unclaimed and known == said:
            self.appoint([said])
        self._unclaimed.discard(instance)
        self._claimed.add(instance)
        if known is None or known == said:
            return None
        self._given.pop(instance, None)
        self._appointments.pop(known, None)
        self.forget(known)
        return known

    # Addresses.

    def learn(self, peers: Iterable[Peer]) -> None:
        """Remember who is who. A life has one identifier, until it says itself that it has another."""
        for peer in peers:
            known = self._identifiers.get(peer.instance, peer.identifier)
            if peer.identifier is not None and peer.identifier == known and peer.identifier not in self._book:
                self._book[peer.identifier] = peer
                self._identifiers[peer.instance] = peer.identifier
                if peer.identifier >= BLOCKS_FIRST:
                    block = (peer.identifier - BLOCKS_FIRST) // BLOCK
                    self._blocks = max(self._blocks, block + 1)
                    self._drawn.add(block)

    def forget(self, identifier: int) -> None:
        """A life of a node has another identifier than this one, after all."""
        peer = self._book.pop(identifier, None)
        if peer is not None and self._identifiers.get(peer.instance) == identifier:
            del self._identifiers[peer.instance]

    def check_claim(self, speaker: str, peers: Iterable[Peer]) -> None:
        """Refuse a speaker that takes the identifier of another, or a second one."""
        for peer in peers:
            if peer.instance == speaker and peer.identifier is not None:
                holder = self._book.get(peer.identifier)
                known = self._identifiers.get(speaker, peer.identifier)
                is_second = speaker in self._claimed and known != peer.identifier
                if is_second or (holder is not None and holder.instance != speaker):
                    raise ProtocolError(f"{speaker!r} claims the identifier {peer.identifier}, which is not its own")

    def peer(self, identifier: int) -> Peer | None:
        """The node with an identifier, if this node has heard of it."""
        return self._book.get(identifier)

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a life of a node."""
        return self._identifiers.get(instance)

    def highest(self) -> int:
        """The highest identifier that this node has heard of; -1 if none."""
        return max(self._book, default=-1)

    # Contacts.

    def contacts(self) -> list[int]:
        """Those that this node can reach, as far as it knows, itself included if it is one; seniors first."""
        return [contact for contact in self._by_seniority() if contact not in self._unreachable]

    def lost_contacts(self) -> list[int]:
        """Those that it could not reach when it last tried."""
        return [contact for contact in self._by_seniority() if contact in self._unreachable]

    def _by_seniority(self) -> list[int]:
        return sorted(self._appointments, key=lambda contact: (self._appointments[contact], contact))

    def appointments(self) -> list[Appointment]:
        """The contacts as others are told of them."""
        return [Appointment(self._appointments[contact], self._book[contact]) for contact in self.contacts()]

    def appointed(self, appointments: Iterable[Appointment]) -> bool:
        """Somebody tells of contacts; true if one of them is new here."""
        is_new = False
        for appointment in appointments:
            contact = appointment.contact.identifier
            if contact is None:
                continue
            self.learn([appointment.contact])
            if contact not in self._book:
                # Its life has another identifier, or ever had: whoever says this is wrong.
                continue
            if appointment.number < self._appointments.get(contact, appointment.number + 1):
                self._appointments[contact] = appointment.number
                is_new = is_new or contact not in self._unreachable
        return is_new

    def appointed_ever(self) -> set[int]:
        """All that were ever contacts, as far as this node knows."""
        return set(self._appointments)

    def wants_contacts(self) -> bool:
        """Whether there are fewer contacts within reach than there should be."""
        return len(self.contacts()) < self._contacts_wanted

    def appoint(self, candidates: Iterable[int]) -> bool:
        """Make candidates contacts while there are too few; true if any was."""
        missing = self._contacts_wanted - len(self.contacts())
        chosen = [candidate for candidate in candidates if candidate not in self._appointments][: max(0, missing)]
        following = max(self._appointments.values(), default=0) + 1
        for number, candidate in enumerate(chosen, following):
            self._appointments[candidate] = number
        return bool(chosen)

    def is_first_contact(self) -> bool:
        """Whether this node is the senior of the contacts that it can reach."""
        return self.contacts()[:1] == [self.me.identifier]

    def unreachable(self, identifier: int) -> bool:
        """Somebody cannot be reached; true if it was a contact until now."""
        was_contact = identifier in self._appointments and identifier not in self._unreachable
        self._unreachable.add(identifier)
        return was_contact

    def reachable(self, identifier: int) -> bool:
        """Somebody has been heard; true if it is a contact that seemed to be gone."""
        if identifier not in self._unreachable:
            return False
        self._unreachable.discard(identifier)
        return identifier in self._appointments
