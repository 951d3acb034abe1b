"""How the leader of a stream hands the messages of a consumer to its members: each message to one of them.

A message that is handed out is *leased* to a member until it is acknowledged. It comes back if the member returns it,
takes longer than ``ack_us``, or goes. Which messages may be handed out next depends on the mode
(:mod:`antiphon.streams.readiness`). Leases are not replicated: a new leader first hears from the members which
messages they hold, or waits until every lease of the former leader has ended. So two members never hold one message,
unless a lease has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final, Protocol

from antiphon.streams.consumers import Consumer
from antiphon.streams.links import MessageLinks
from antiphon.streams.readiness import ANYBODY, AttachedMember, Readiness, readiness_for

AT_ONCE: Final = 32
"""So many messages are handed out, or come back, in one turn."""


class HandingHost(Protocol):
    """The part of the leader's node that hands out messages and settles commands."""

    def now_us(self) -> int:
        """The clock."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while."""

    def settled_end(self) -> int:
        """The first position that is not settled."""

    def key_of(self, position: int) -> bytes:
        """The key of a message."""

    def links(self, position: int) -> MessageLinks:
        """The publisher of a message, and which messages it says to follow."""

    def hand(self, member: int, position: int, delivery: int) -> None:
        """Give a message to a member; ``delivery`` counts how often it has been handed out."""

    def settle_done(self, positions: list[int], done: Callable[[], object]) -> None:
        """Let all replicas know that messages are done; ``done`` is called when this is settled."""

    def settle_return(self, position: int) -> None:
        """Let all replicas know that a message came back."""

    def bury(self, position: int, deliveries: int) -> None:
        """Publish a message as a dead letter, then let all replicas know that it is done."""


class Lease:
    """A message in the hands of a member."""

    __slots__ = ("ends_us", "former", "is_paused", "is_settling", "member")

    def __init__(self, member: int, ends_us: int) -> None:
        self.member = member
        # The member that had it, also when it has come back.
        self.former = member
        self.ends_us = ends_us
        # Its acknowledgement is under way: it neither ends nor returns.
        self.is_settling = False
        # It was given back and waits for its time.
        self.is_paused = False


class Handing:
    """One consumer at the leader."""

    def __init__(self, consumer: Consumer, host: HandingHost, is_new: bool) -> None:
        self.consumer = consumer
        self._host = host
        self._members: dict[int, AttachedMember] = {}
        self._leases: dict[int, Lease] = {}
        self._readiness: Readiness = readiness_for(consumer, host, self._leases.__contains__)
        # When leases end, and of which messages: those that are handed out together end together.
        self._ends: list[tuple[int, list[int]]] = []
        self._next_timer_us = 0
        # Whether more is handed out in the next turn.
        self._is_advancing = False
        # Members of the former leader's time that may hold messages, and until when they may.
        self._unheard = set() if is_new else set(consumer.members)
        self._hears_until_us = host.now_us() + consumer.settings.ack_us
        if self._unheard:
            host.after(consumer.settings.ack_us, self._heard_all)

    # Members.

    def attach(self, member: int, held: Iterable[tuple[int, int]], window: int) -> None:
        """A member connects and takes so many messages at a time. ``held``: those that it holds, with their deliveries.

        A message that was handed to others meanwhile had more deliveries, so it is not leased to this member.
        """
        attached = self._members[member] = AttachedMember(member, window)
        # It may be here already, over a connection that has ended without a word.
        attached.leased = sum(lease.member == member for lease in self._leases.values())
        ends_us = self._lease_end()
        for position, delivery in held:
            # Nobody holds what is not there yet, or more than may be handed out.
            if position >= self._host.settled_end() or len(self._leases) >= self.consumer.settings.pending_at_most:
                continue
            is_free = not self.consumer.is_done(position) and position not in self._leases
            if is_free and delivery == self._next_delivery(position):
                self._lease(position, member, ends_us)
                self._watch([position], ends_us)
                self._readiness.held(position, member)
        self._unheard.discard(member)
        self.advance()

    def widen(self, member: int, window: int) -> None:
        """A member takes another number of messages at a time."""
        found = self._members.get(member)
        if found is not None:
            found.window = window
            self.advance()

    @property
    def has_members(self) -> bool:
        """Whether there is anybody to hand messages to."""
        return bool(self._members)

    def pause(self, member: int) -> None:
        """Hand a member nothing more for a while."""
        found = self._members.get(member)
        if found is not None:
            found.is_paused = True

    def resume(self, member: int) -> None:
        """Hand a member messages again."""
        found = self._members.get(member)
        if found is not None:
            found.is_paused = False
            self.advance()

    def detach(self, member: int) -> None:
        """A member has gone: its messages go to others at once."""
        if self._members.pop(member, None) is None:
            return
        self._unheard.discard(member)
        held = [place for place, lease in self._leases.items() if lease.member == member and not lease.is_settling]
        self._return_all(sorted(held))

    def _return_all(self, positions: list[int]) -> None:
        """Messages come back, some in each turn, because all replicas have to hear of each."""
        for position in positions[:AT_ONCE]:
            lease = self._leases.get(position)
            if lease is not None and not lease.is_settling and lease.member not in self._members:
                self._come_back(position)
        if len(positions) > AT_ONCE:
            self._host.after(0, lambda: self._return_all(positions[AT_ONCE:]))
        self.advance()

    def _heard_all(self) -> None:
        self._unheard.clear()
        self.advance()

    # Messages.

    def acknowledge(self, member: int, positions: list[int], done: Callable[[bool], None]) -> None:
        """A member has done its work; ``done`` says whether that counts, when it is settled.

        It does not count if a lease has ended and the message is in other hands, or waits for other hands.
        """
        leases = self._leases
        mine = [place for place in positions if place in leases and leases[place].member == member]
        if len(mine) < len(positions) and not all(self.consumer.is_done(each) for each in set(positions) - set(mine)):
            done(False)
            return
        if not mine:
            done(True)
            return
        for position in mine:
            leases[position].is_settling = True
        self._host.settle_done(mine, lambda: done(True))

    def give_back(self, member: int, position: int, delay_us: int = 0) -> None:
        """A member does not want a message: it goes to anybody after a while."""
        lease = self._leases.get(position)
        if lease is None or lease.member != member or lease.is_settling:
            return
        if delay_us:
            # Until then nobody has it, and messages that wait for it wait.
            self._release(lease)
            lease.is_paused, lease.ends_us = True, self._host.now_us() + delay_us
            self._readiness.paused(position)
            self._watch([position], lease.ends_us)
        else:
            self._come_back(position)
            self.advance()

    def extend(self, member: int, position: int) -> None:
        """A member works on a message for longer."""
        lease = self._leases.get(position)
        if lease is not None and lease.member == member:
            lease.ends_us = self._lease_end()
            self._watch([position], lease.ends_us)

    def done(self, first: int, last: int) -> None:
        """Messages are done, for all replicas."""
        leases, members, readiness = self._leases, self._members, self._readiness
        if last - first > len(leases):
            positions = [each for each in leases if first <= each <= last]
        else:
            positions = [each for each in range(first, last + 1) if each in leases]
        for position in positions:
            lease = leases.pop(position)
            member = members.get(lease.member)
            if member is not None:
                member.leased -= 1
            if not readiness.waits_for_nothing:
                readiness.done(position, lease.is_paused)

    def pass_over(self, earliest: int) -> None:
        """The messages before a position are removed: they count as done, also those that members hold."""
        self.done(0, earliest - 1)
        self._readiness.pass_over(earliest)
        self.advance()

    def _lease_end(self) -> int:
        """Until when a member has a message that is handed out, or whose time begins anew, now."""
        return self._host.now_us() + self.consumer.settings.ack_us

    def _lease(self, position: int, member: int, ends_us: int) -> None:
        """A member has a message; the caller watches over the end."""
        self._leases[position] = Lease(member, ends_us)
        if member in self._members:
            self._members[member].leased += 1

    def _release(self, lease: Lease) -> None:
        """A message is in nobody's hands."""
        member = self._members.get(lease.member)
        if member is not None:
            member.leased -= 1
        lease.member = ANYBODY

    def _next_delivery(self, position: int) -> int:
        return self.consumer.returns.get(position, 0) + 1

    def _come_back(self, position: int) -> None:
        """A message that was handed out is not done: it goes to others, or to the dead letters.

        The replicas know it before anybody else gets the message, so a leader never uses the number of a delivery
        twice.
        """
        lease = self._leases[position]
        self._release(lease)
        lease.is_settling = True
        if not lease.is_paused:
            lease.is_paused = True
            self._readiness.paused(position)
        most, deliveries = self.consumer.settings.deliveries_at_most, self._next_delivery(position)
        if most and deliveries >= most:
            self._host.bury(position, deliveries)
        else:
            self._host.settle_return(position)

    def returned(self, position: int) -> None:
        """All replicas know that a message came back."""
        lease = self._leases.pop(position, None)
        if lease is not None:
            self._readiness.came_back(position, lease.former)
            self.advance()

    # Time.

    def _watch(self, positions: list[int], ends_us: int) -> None:
        heappush(self._ends, (ends_us, positions))
        if self._next_timer_us == 0 or ends_us < self._next_timer_us:
            self._next_timer_us = ends_us
            self._host.after(ends_us - self._host.now_us(), self._expired)

    def _expired(self) -> None:
        now_us = self._host.now_us()
        self._next_timer_us = 0
        looked_at = 0
        while self._ends and self._ends[0][0] <= now_us and looked_at < AT_ONCE:
            ends_us, positions = heappop(self._ends)
            looked_at += len(positions)
            for position in positions:
                lease = self._leases.get(position)
                if lease is not None and lease.ends_us == ends_us and not lease.is_settling:
                    self._come_back(position)
        if self._ends:
            self._next_timer_us = self._ends[0][0]
            self._host.after(max(0, self._next_timer_us - now_us), self._expired)
        self.advance()

    # Handing out.

    def advance(self) -> None:
        """Hand out what may be handed out."""
        if self._unheard:
            return
        if self._hand_some() == AT_ONCE and not self._is_advancing:
            self._is_advancing = True
            self._host.after(0, self._go_on)

    def _hand_some(self) -> int:
        """Hand out some messages; how many they were."""
        host, take, members, leases = self._host, self._readiness.take, self._members, self._leases
        handed: list[int] = []
        ends_us = self._lease_end()
        while len(handed) < AT_ONCE and (found := take(members, len(leases))) is not None:
            position, member = found
            if not handed:
                self._watch(handed, ends_us)
            handed.append(position)
            self._lease(position, member.number, ends_us)
            host.hand(member.number, position, self._next_delivery(position))
        return len(handed)

    def _go_on(self) -> None:
        self._is_advancing = False
        self.advance()

    def holders(self) -> dict[int, int]:
        """Which member holds which message."""
        return {position: lease.member for position, lease in self._leases.items()}
