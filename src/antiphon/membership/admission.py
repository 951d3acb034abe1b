"""Who belongs to a cluster, and under which identifier: joining, leaving and coming back, as a pure state machine.

Identifiers are given in sequence and never twice. All fabrics can use this; it knows nothing of trees or topics.

1. **Ask.** A newcomer asks any node. The placed node with the lowest identifier is the *registrar*; others redirect to
   it. It grants the next identifier and names all whom it knows. The first node of a cluster places itself.
2. **Announce.** The newcomer announces its claim to everybody it hears of. Each accepts, and names those whom the
   newcomer may not know, or rejects, because somebody else holds or held that identifier; then the newcomer withdraws
   and asks anew. The registrar only makes rejections rare: an identifier is owned when all have accepted it.
3. **Enter.** When all have accepted, among them one that has a place, the newcomer is placed: its process exists and
   answers. It tells all to enter it into their fabric. When all have confirmed, it is *in*: it may begin things.
4. **Leave.** A leaver says goodbye; each stops giving it new work and confirms. A newcomer confirms when it is in, so
   until then the leaver stays and serves it. When all have confirmed, the leaver may go as soon as its process has
   finished. It answers until then.
5. **Loss.** The host says when somebody is gone for good. Nobody waits for the lost; a lost registrar's successor is
   the next lowest; a lost newcomer is forgotten.

Everybody answers at once whatever it is busy with, except for rule 4's newcomer, so nobody waits in a circle. Links
must keep the order between two nodes, also between these messages and those of processes (one TCP connection each way
does), and lose nothing until the loss of the peer is told. ``docs/proofs/admission.md`` argues why no two nodes hold
the same identifier and why everybody who is in is known to all, as long as one placed node stays while others join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from antiphon.kernel.errors import UsageError
from antiphon.membership.admission_roster import Roster, forget_oldest
from antiphon.transport.admission_messages import (
    MAXIMUM_IDENTIFIER,
    NONE_YET,
    Accept,
    AdmissionMessage,
    Announce,
    EnterRequest,
    EnterResponse,
    Full,
    Grant,
    JoinRequest,
    LeaveRequest,
    LeaveResponse,
    Listed,
    Peer,
    Redirect,
    Reject,
    Wait,
    Withdraw,
)

__all__ = ["Admission", "AdmissionHost", "AdmissionOptions", "Peer", "Phase"]


@dataclass(frozen=True)
class AdmissionOptions:
    """How admission is configured. Times are in ticks of the host."""

    maximum_nodes: int = 1024
    """The largest cluster. A join costs about 4 messages per node, and announcements of 20 bytes per node to each."""
    retry_ticks: int = 200_000
    """How long a newcomer waits before it asks again: longer than it takes to notice that a registrar is gone."""
    attempts: int = 25
    """How often each contact is asked: a newcomer gives up after ``attempts * contacts * retry_ticks`` at most."""


class AdmissionHost(Protocol):
    """What admission may do to the world."""

    def send(self, target: Peer, message: AdmissionMessage) -> None:
        """Send to this life of a node, or to whoever lives at the address if the instance is empty.

        If another instance answers there, the one meant is lost. Messages to oneself do not occur.
        """

    def placed(self, me: Peer, members: Sequence[Peer]) -> None:
        """This node has an identifier: build the process, with these others in its fabric. It must answer already."""

    def entered(self) -> None:
        """All others count this node in: it may begin to subscribe and to publish."""

    def joined(self, peer: Peer) -> None:
        """Another node is in the fabric from now on. What the process sends it now must go before what follows."""

    def left(self, peer: Peer) -> None:
        """Another node leaves in an orderly way: nothing new for it. Its link stays until it goes; it still answers."""

    def crashed(self, peer: Peer) -> None:
        """Another node that was in the fabric is lost."""

    def departed(self) -> None:
        """All have confirmed that this node leaves. It may go when its process has finished."""

    def refused(self, reason: str) -> None:
        """This node cannot join; the reason says what to do."""


class Phase(Enum):
    """How far a node has come."""

    OUTSIDE = "outside"
    ASKING = "asking"
    ANNOUNCING = "announcing"
    ENTERING = "entering"
    IN = "in"
    LEAVING = "leaving"
    GONE = "gone"


PLACED = (Phase.ENTERING, Phase.IN, Phase.LEAVING)
"""The phases in which a node has a process that belongs to the fabric."""


class Admission:
    """Admission at one node. ``me`` has no identifier yet.

    ``highest`` is the highest identifier that this node has heard of in former lives, if its disk says so. ``wanted``
    and ``former`` are the identifier and the instance of its last life, if it wants the same identifier again.
    """

    def __init__(
        self,
        host: AdmissionHost,
        me: Peer,
        options: AdmissionOptions | None = None,
        highest: int = NONE_YET,
        wanted: int | None = None,
        former: str = "",
    ) -> None:
        if not me.instance or not me.address:
            raise UsageError("a node needs an instance name and an address to join a cluster; give it both")
        self.me = me
        self.options = AdmissionOptions() if options is None else options
        self.roster = Roster(self.options.maximum_nodes, highest)
        self.phase = Phase.OUTSIDE
        self._host = host
        self._wanted = wanted
        self._former = former
        self._now = 0
        self._contacts: list[Peer] = []
        self._asked: Peer | None = None
        self._tries = 0
        self._retry_at: int | None = None
        # Whose answers are missing: accepts, confirmations or farewells, by phase. Who has accepted the claim.
        self._awaited: dict[str, None] = {}
        self._accepted: set[str] = set()
        # Goodbyes that wait until this node is in; leavers that have not closed their links; the own wish to leave.
        self._goodbyes: dict[str, None] = {}
        self._leavers: dict[str, Peer] = {}
        self._wants_to_leave = False
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            JoinRequest: self._receive_ask,
            Redirect: self._receive_redirect,
            Wait: self._receive_wait,
            Grant: self._receive_grant,
            Full: self._receive_full,
            Announce: self._receive_announce,
            Accept: self._receive_accept,
            Reject: self._receive_reject,
            Withdraw: self._receive_withdraw,
            EnterRequest: self._receive_enter,
            EnterResponse: self._receive_confirmation,
            LeaveRequest: self._receive_goodbye,
            LeaveResponse: self._receive_confirmation,
        }

    # What the host does.

    def start(self, contacts: Iterable[str], now: int = 0) -> None:
        """Join through any of these addresses; without any, be the first node of a cluster."""
        if self.phase is not Phase.OUTSIDE:
            raise UsageError(f"this node is {self.phase.value} already; a node joins once in its life")
        self._now = now
        self._contacts = [Peer("", address) for address in contacts if address != self.me.address]
        if self._contacts:
            self._ask_next()
            return
        identifier = self.roster.highest + 1 if self._wanted is None else self._wanted
        self._claim(identifier)
        self._take_place()

    def receive(self, message: AdmissionMessage) -> None:
        """A message has arrived."""
        # A newcomer that hears of a departed node too late must go on without it, which it does when the link closes.
        if self.phase is not Phase.GONE or isinstance(message, (JoinRequest, LeaveRequest)):
            self._handlers[type(message)](message)

    def lost(self, peer: Peer) -> None:
        """Somebody is gone for good, or could not be reached; nothing that it sent will be handed in any more."""
        if self.phase is Phase.ASKING and self._asked is not None and self._asked.address == peer.address:
            self._ask_later()
        if not peer.instance:
            return
        self._awaited.pop(peer.instance, None)
        self._goodbyes.pop(peer.instance, None)
        self._leavers.pop(peer.instance, None)
        self._end(peer.instance, self._host.crashed)
        self._go_on()

    def leave(self) -> None:
        """Leave in an orderly way. The process has unsubscribed from everything and said what others must know."""
        if self.phase in (Phase.LEAVING, Phase.GONE):
            return
        if self.phase in (Phase.ENTERING, Phase.IN):
            self._wants_to_leave = True
            self._go_on()
            return
        self._withdraw()
        self.phase = Phase.GONE
        self._host.departed()

    def tick(self, now: int) -> None:
        """Time has passed; called a few times per ``retry_ticks``."""
        self._now = now
        if self._retry_at is not None and now >= self._retry_at:
            self._ask_next()

    def is_waiting(self) -> bool:
        """Whether nothing happens before a tick: nobody has been asked for a place, and the next is asked later."""
        return self._retry_at is not None

    def peer_of(self, identifier: int) -> Peer | None:
        """Who holds an identifier; None if nobody who is known, or only this node."""
        return self.roster.holder(identifier)

    def awaited(self) -> list[Peer]:
        """Whose answers are missing now, for those who want to see what a join or a leave waits for."""
        return [peer for peer in [*self.roster, *self._leavers.values()] if peer.instance in self._awaited]

    def state(self) -> str:
        """All that decides what happens next but the time, as text, for those who compare states."""
        asked = None if self._asked is None else (self._asked.instance, self._asked.address)
        waiting = (sorted(self._awaited), sorted(self._accepted), sorted(self._goodbyes), sorted(self._leavers))
        return (
            f"{self.phase.value} {self.me.identifier} {self._wanted} {asked} {self._tries} "
            f"{self.is_waiting()} {self._wants_to_leave} {waiting} [{self.roster.state()}]"
        )

    # Asking for a place.

    def _ask_next(self) -> None:
        """Ask the next contact: those who were given, then those who have become known."""
        given = {contact.address for contact in self._contacts}
        candidates = [*self._contacts, *(peer for peer in self.roster.entered() if peer.address not in given)]
        self._retry_at = None
        if self._tries >= self.options.attempts * len(candidates):
            where = ", ".join(contact.address for contact in self._contacts)
            self._give_up(f"no node at {where} could place this one; check that the cluster is up and the addresses")
            return
        contact = candidates[self._tries % len(candidates)]
        self._tries += 1
        self._ask(contact)

    def _ask(self, target: Peer) -> None:
        self.phase = Phase.ASKING
        self._asked = target
        self._host.send(target, JoinRequest(self.me, self.roster.highest, self._wanted, self._former))

    def _ask_later(self) -> None:
        self.phase = Phase.ASKING
        self._asked = None
        self._retry_at = self._now + self.options.retry_ticks

    def _is_answer(self, sender: Peer) -> bool:
        """Whether this comes from the one who was asked."""
        asked = self._asked
        return self.phase is Phase.ASKING and asked is not None and asked.address == sender.address

    def _receive_redirect(self, message: Redirect) -> None:
        if not self._is_answer(message.sender):
            return
        registrar = message.registrar
        if registrar.address == self.me.address or self.roster.is_gone(registrar.instance):
            # The other has not noticed yet that this one is gone.
            self._ask_later()
        else:
            self._ask(registrar)

    def _receive_wait(self, message: Wait) -> None:
        if self._is_answer(message.sender):
            self._ask_later()

    def _receive_full(self, message: Full) -> None:
        if self.phase in (Phase.ASKING, Phase.ANNOUNCING):
            self._give_up(message.reason)

    def _give_up(self, reason: str) -> None:
        self._withdraw()
        self.phase = Phase.OUTSIDE
        self._retry_at = None
        self._host.refused(reason)

    def _receive_ask(self, message: JoinRequest) -> None:
        """Place a newcomer, or say who can."""
        newcomer = message.sender
        places = [peer for peer in self.roster.entered() if peer.identifier is not None]
        registrar = min(places, key=lambda peer: peer.identifier or 0, default=None)
        mine = self.me.identifier
        if self.phase in (Phase.ENTERING, Phase.IN) and mine is not None:
            if registrar is None or registrar.identifier is None or mine < registrar.identifier:
                self._host.send(newcomer, self._place_for(message))
                return
        elif self.phase is not Phase.LEAVING or registrar is None:
            self._host.send(newcomer, Wait(self.me))
            return
        assert registrar is not None, "who is not the registrar knows it"
        self._host.send(newcomer, Redirect(self.me, registrar))

    def _place_for(self, message: JoinRequest) -> Grant | Full:
        self.roster.heard_of(message.highest)
        identifier = self.roster.highest + 1
        wanted = message.wanted
        instance = message.sender.instance
        if wanted not in (None, self.me.identifier) and self.roster.may_claim(instance, wanted, message.former):
            identifier = wanted
        if self.roster.is_full():
            return Full(self.me, self._no_room())
        if identifier > MAXIMUM_IDENTIFIER:
            return Full(self.me, "all identifiers were given; start a new cluster")
        self.roster.heard_of(identifier)
        return Grant(self.me, identifier, (Listed(self.me, True), *self.roster.listing()))

    def _no_room(self) -> str:
        return f"the cluster has {self.options.maximum_nodes} nodes, its maximum; raise the maximum at all nodes"

    # Claiming it.

    def _claim(self, identifier: int) -> None:
        self.me = Peer(self.me.instance, self.me.address, identifier)
        self.roster.heard_of(identifier)

    def _receive_grant(self, message: Grant) -> None:
        if not self._is_answer(message.sender):
            return
        self._asked = None
        self.phase = Phase.ANNOUNCING
        self._claim(message.identifier)
        self._accepted.clear()
        # Those who were heard of before are still to be asked, whatever the registrar knows of them.
        earlier = list(self.roster)
        self._awaited = dict.fromkeys(peer.instance for peer in earlier)
        for peer in earlier:
            self._announce_to(peer)
        self._learn(message.peers)
        self._go_on()

    def _announce_to(self, peer: Peer) -> None:
        known = tuple(other.instance for other in self.roster.entered() if other.instance != peer.instance)
        self._awaited[peer.instance] = None
        former = self._former if self.me.identifier == self._wanted else ""
        self._host.send(peer, Announce(self.me, known, former))

    def _learn(self, peers: Iterable[Listed]) -> None:
        """Hear of others, and announce the claim to those who are new."""
        for listed in peers:
            peer = listed.peer
            if peer.address == self.me.address:
                if peer.instance != self.me.instance:
                    self.roster.end(peer.instance)
                continue
            is_new = peer.instance not in self.roster
            self.roster.note(peer, listed.has_entered)
            if is_new and peer.instance in self.roster:
                self._announce_to(peer)

    def _receive_announce(self, message: Announce) -> None:
        newcomer = message.sender
        claimed = newcomer.identifier
        if claimed is None:
            return
        if claimed == self.me.identifier or not self.roster.may_claim(newcomer.instance, claimed, message.former):
            self.roster.heard_of(claimed)
            self._host.send(newcomer, Reject(self.me, claimed, self.roster.highest))
            return
        if message.former:
            # Who shows the name of a former life says that it is over.
            self._end(message.former, self._host.crashed)
            self._awaited.pop(message.former, None)
        if newcomer.instance not in self.roster and self.roster.is_full():
            self._host.send(newcomer, Full(self.me, self._no_room()))
            return
        self.roster.note(newcomer, False)
        others = self.roster.listing({newcomer.instance, *message.known})
        self._host.send(newcomer, Accept(self.me, claimed, self.phase in PLACED, self.roster.highest, others))
        if self.phase is Phase.LEAVING:
            self._say_goodbye(newcomer)
        self._go_on()

    def _receive_accept(self, message: Accept) -> None:
        sender = message.sender
        self.roster.heard_of(message.highest)
        if self.phase is not Phase.ANNOUNCING or message.claimed != self.me.identifier:
            return
        self.roster.note(sender, message.has_entered)
        self._awaited.pop(sender.instance, None)
        self._accepted.add(sender.instance)
        self._learn(message.peers)
        self._go_on()

    def _receive_reject(self, message: Reject) -> None:
        self.roster.heard_of(message.highest)
        if self.phase is Phase.ANNOUNCING and message.claimed == self.me.identifier:
            if self._wanted == message.claimed:
                self._wanted = None
            self._withdraw()
            self._ask_next()

    def _withdraw(self) -> None:
        """Give up the claim, if there is one."""
        claimed = self.me
        if claimed.identifier is not None:
            for peer in self.roster:
                self._host.send(peer, Withdraw(claimed))
        self.me = Peer(claimed.instance, claimed.address)
        self._awaited.clear()
        self._goodbyes.clear()

    def _receive_withdraw(self, message: Withdraw) -> None:
        self.roster.withdraw(message.sender.instance, message.sender.identifier)
        self._awaited.pop(message.sender.instance, None)
        self._go_on()

    # Entering.

    def _take_place(self) -> None:
        self.phase = Phase.ENTERING
        self._awaited = dict.fromkeys(peer.instance for peer in self.roster)
        self._host.placed(self.me, self.roster.entered())
        for peer in self.roster:
            self._host.send(peer, EnterRequest(self.me))
        self._go_on()

    def _receive_enter(self, message: EnterRequest) -> None:
        peer = message.sender
        is_news = not self.roster.has_entered(peer.instance)
        self.roster.note(peer, True)
        if is_news and self.roster.has_entered(peer.instance) and self.phase in PLACED:
            self._host.joined(peer)
        self._host.send(peer, EnterResponse(self.me))

    def _receive_confirmation(self, message: EnterResponse | LeaveResponse) -> None:
        expected = Phase.ENTERING if isinstance(message, EnterResponse) else Phase.LEAVING
        if self.phase is expected:
            self._awaited.pop(message.sender.instance, None)
            self._go_on()

    # Leaving, and losing others.

    def _say_goodbye(self, peer: Peer) -> None:
        self._awaited[peer.instance] = None
        self._host.send(peer, LeaveRequest(self.me))

    def _receive_goodbye(self, message: LeaveRequest) -> None:
        leaver = message.sender
        if self.phase in (Phase.ASKING, Phase.ANNOUNCING, Phase.ENTERING):
            # The leaver stays until this node has entered and knows all that the leaver has to say.
            self._goodbyes[leaver.instance] = None
            return
        self._part_from(leaver)

    def _part_from(self, leaver: Peer) -> None:
        self._end(leaver.instance, self._host.left)
        self._leavers[leaver.instance] = leaver
        forget_oldest(self._leavers, self.options.maximum_nodes)
        self._host.send(leaver, LeaveResponse(self.me))

    def _end(self, instance: str, tell: Callable[[Peer], None]) -> None:
        """A life is over, in one way or the other."""
        listed = self.roster.end(instance)
        self._accepted.discard(instance)
        if listed is not None and listed.has_entered and self.phase in PLACED:
            tell(listed.peer)

    def _go_on(self) -> None:
        """Do what was waiting for the answers that are now complete."""
        if self._awaited:
            return
        if self.phase is Phase.ANNOUNCING:
            if any(self.roster.has_entered(instance) for instance in self._accepted):
                self._take_place()
            else:
                # Nobody is left who belongs to the cluster: a claim that only newcomers know is worth nothing.
                self._withdraw()
                self._ask_later()
        elif self.phase is Phase.ENTERING:
            self.phase = Phase.IN
            self._host.entered()
            goodbyes = [peer for peer in self.roster if peer.instance in self._goodbyes]
            self._goodbyes.clear()
            for leaver in goodbyes:
                self._part_from(leaver)
            self._go_on()
        elif self.phase is Phase.IN and self._wants_to_leave:
            self.phase = Phase.LEAVING
            # Other leavers may still hand on to this node what they were asked before.
            for peer in [*self.roster, *self._leavers.values()]:
                self._say_goodbye(peer)
            self._go_on()
        elif self.phase is Phase.LEAVING:
            self.phase = Phase.GONE
            self._host.departed()
