"""The lock manager of a cube: the node that decides which total publication about a key is next.

The **lock manager** is a node like others, member or not: the lowest one at the beginning. When it leaves the system it
makes the lowest node that stays the lock manager of the next *epoch*. The new one asks all nodes for their open claims
(claims, and grants that were not released), and grants nothing before all have answered. A node that has answered
ignores grants of earlier epochs. A lock manager ignores a request addressed to another one; the publisher sends it
again. A newcomer has claimed nothing, and a leaver has nothing unfinished. So at most one node grants at a time, and no
claim is lost. The lock manager itself tells all nodes that it knows when its epoch begins, and others when they join.

Where nodes may fail a lock manager is replaced by vote (:mod:`antiphon.fabrics.cube.total_order.quorum`).
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import append_all
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import CubeTopicTable
from antiphon.fabrics.cube.total_order.messages import (
    GrantRequest,
    GrantResponse,
    LockManagerMessage,
    LockManagerNotice,
    OpenClaims,
)
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.pending_replies import PendingReplies
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.claims import Claims
from antiphon.orders.lock_queue import NOT_GRANTED, LockRequest

PLACE_BITS: Final = 40
"""Places of later epochs are above those of earlier ones."""


class Claimant:
    """The part of the same node that claims and locks, as the lock manager sees it."""

    def __init__(self) -> None:
        # Where nodes may fail, how often this one has taken back its locks.
        self.attempt: i64 = 0

    def on_grant(self, message: GrantResponse) -> None:
        """The lock manager allows this node to lock the keys of a publication."""
        raise NotImplementedError

    def take_back_locks(self) -> None:
        """The grants of this node do not count any more, nor do those on their way."""
        raise NotImplementedError

    def on_node_found(self, node: i64) -> None:
        """A node is within reach that may not know what this one has taken back."""
        raise NotImplementedError

    def on_voter_removed(self, node: i64) -> None:
        """A voter does not count any more; nothing waits for it."""
        raise NotImplementedError


class LockManager:
    """Knows the lock manager of each epoch, and keeps the claims of all if this node is the lock manager."""

    # It is made after this, because it claims from it: see ``connect``.
    claimant: Claimant

    def __init__(self, environment: Environment, topics: CubeTopicTable, nodes: CubeNodes) -> None:
        self.environment: Final[Environment] = environment
        self.me: Final[i64] = environment.identifier
        self.topics: Final[CubeTopicTable] = topics
        self.nodes: Final[CubeNodes] = nodes
        self.claims: dict[i64, Claims] = {}
        # Where nodes come and go the first one is alone at first, and later ones are told.
        self.manager: i64 = 0 if nodes.cube.contains(0) else min(nodes.cube.members(), default=self.me)
        self.epoch: i64 = 1
        # As a new lock manager: who has not said what stands, what was said, and what came before it was time.
        self.awaited: Final = PendingReplies()
        self.open_claims: list[OpenClaims] = []
        self.early: list[LockManagerMessage] = []

    def connect(self, claimant: Claimant) -> None:
        """Learn which part of this node claims (before anything is claimed)."""
        self.claimant = claimant

    def begin_as_newcomer(self) -> None:
        """Other nodes were here first: one of them says that it is the lock manager (before ``start``)."""
        self.manager = NO_NODE
        self.epoch = 0

    def notice(self) -> LockManagerNotice:
        """The notice that says which node is the lock manager."""
        return LockManagerNotice(self.me, self.epoch, self.manager, 0, vec[i64](), 0, vec[i64]())

    def attempt_of(self, claimant: i64) -> i64:
        """The attempt in which a claimant has spoken last, where nodes may fail."""
        return 0

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A request to the lock manager, a notice of one, or the open claims of a node."""
        if isinstance(message, LockManagerMessage):
            self.on_request(message)
        elif isinstance(message, LockManagerNotice):
            self.on_notice(sender, message)
        elif isinstance(message, OpenClaims):
            self.on_open_claims(message)

    # Claims.

    def send_to_manager(self, message: LockManagerMessage) -> None:
        """Send a request to the lock manager."""
        if self.manager == self.me:
            self.on_request(message)
        elif self.manager != NO_NODE and self.nodes.cube.contains(self.manager):
            self.environment.send(self.manager, message)
        # Else nobody is known, or the lock manager has gone; the next one will ask for all that stands.

    def on_request(self, message: LockManagerMessage) -> None:
        """A publisher claims keys, or releases them."""
        if message.epoch != self.epoch or self.manager != self.me:
            # It is meant for another lock manager, who has gone; the next one asks.
            return
        if len(self.awaited) > 0:
            self.early.append(message)
        else:
            self.decide(message)

    def decide(self, message: LockManagerMessage) -> None:
        """Grant what may be granted after a claim or a release."""
        claims = self.claims_of(message.topic)
        if isinstance(message, GrantRequest):
            granted = claims.add(LockRequest(message.source, message.sequence, message.keys))
        else:
            granted = claims.release(message.source, message.sequence)
        self.grant(message.topic, granted)

    def claims_of(self, topic: i64) -> Claims:
        """The claims on a topic."""
        claims = self.claims.get(topic)
        if claims is None:
            claims = Claims(self.epoch << PLACE_BITS)
            self.claims[topic] = claims
        return claims

    def grant(self, topic: i64, granted: list[LockRequest]) -> None:
        """Tell the publishers whose turn it is."""
        for wish in granted:
            grant = GrantResponse(
                wish.source, wish.sequence, topic, self.epoch, wish.place, self.attempt_of(wish.source)
            )
            if wish.source == self.me:
                self.claimant.on_grant(grant)
            else:
                self.environment.send(wish.source, grant)

    # Lock managers that follow each other.

    def on_node_joined(self, node: i64) -> None:
        """Another node exists from now on."""
        if self.nodes.is_leaving and self.manager == self.me:
            # Nobody was there when this node began to leave.
            self.resign()
        elif self.topics.options.total and self.manager == self.me:
            self.environment.send(node, self.notice())

    def on_node_left(self, node: i64) -> None:
        """A node is not there any more."""
        # A node that leaves has nothing unfinished.
        if self.awaited.settle(node):
            self.take_claims()

    def resign(self) -> None:
        """Make the lowest node that stays the next lock manager."""
        others = self.nodes.others()
        if self.topics.options.total and self.manager == self.me and len(others) > 0:
            self.enter_epoch(self.epoch + 1, min(others))
            self.environment.send(self.manager, self.notice())

    def enter_epoch(self, epoch: i64, manager: i64) -> None:
        """Another lock manager begins, and knows no claims yet."""
        self.epoch = epoch
        self.manager = manager
        self.claims.clear()
        self.awaited.clear()
        self.open_claims.clear()
        self.early.clear()

    def on_notice(self, sender: i64, message: LockManagerNotice) -> None:
        """A node says which node is the lock manager."""
        if message.sequence <= self.epoch:
            return
        self.enter_epoch(message.sequence, message.origin)
        if self.manager != self.me:
            if self.nodes.cube.contains(self.manager):
                self.environment.send(self.manager, self.own_claims())
            # Else it has gone, and the next one will ask.
        elif self.nodes.is_leaving:
            self.resign()
        else:
            self.begin_epoch()

    def own_claims(self) -> OpenClaims:
        """The claims of this node that have not started."""
        entries = vec[i64]()
        for topic in self.topics.all():
            for own in topic.own_totals:
                for entry in (topic.name, own.sequence, own.place if own.is_granted else 0, len(own.keys)):
                    entries = append(entries, entry)
                entries = append_all(entries, own.keys)
        return OpenClaims(self.me, self.epoch, self.claimant.attempt, entries)

    def begin_epoch(self) -> None:
        """Ask all nodes for their open claims, and grant nothing before all have answered."""
        for node in self.nodes.others():
            self.awaited.ask(node)
            self.environment.send(node, self.notice())
        self.on_open_claims(self.own_claims())

    def on_open_claims(self, message: OpenClaims) -> None:
        """A node sends its open claims."""
        if message.sequence == self.epoch and self.manager == self.me:
            self.open_claims.append(message)
            self.awaited.settle(message.source)
            self.take_claims()

    def take_claims(self) -> None:
        """Grant what may be granted, if all nodes have answered."""
        if len(self.awaited) > 0:
            return
        wishes = [wish for message in self.open_claims for wish in wishes_of(message)]
        self.open_claims.clear()
        for topic, wish in wishes:
            if wish.place != NOT_GRANTED:
                self.claims_of(topic).resume(wish)
        for topic, wish in wishes:
            if wish.place == NOT_GRANTED:
                self.grant(topic, self.claims_of(topic).add(wish))
        early = self.early
        self.early = []
        for message in early:
            self.on_request(message)

    def text(self) -> str:
        """The state as text, to compare states."""
        claims = [(name, kept.state()) for name, kept in sorted(self.claims.items())]
        early = [(message.source, message.sequence, message.topic, message.epoch) for message in self.early]
        return f"{claims} {(self.manager, self.epoch, sorted(self.awaited.peers()), len(self.open_claims), early)}"


def wishes_of(message: OpenClaims) -> list[tuple[i64, LockRequest]]:
    """The claims in a message, each with its topic."""
    return [
        (topic, LockRequest(message.source, sequence, keys, place))
        for (topic, sequence, place), keys in records_of(message.source, message.entries, 3)
    ]


def records_of(about: i64, entries: vec[i64], width: i64) -> list[tuple[list[i64], vec[i64]]]:
    """The locks or claims in a list of entries: ``width`` numbers each, then the count of its keys, then the keys."""
    found: list[tuple[list[i64], vec[i64]]] = []
    position: i64 = 0
    while position + width < len(entries):
        begin = position + width + 1
        count = entries[begin - 1]
        end = begin + count
        if count < 0 or end > len(entries):
            raise ProtocolError(
                f"the list of locks or claims of node {about} is cut off; it runs another version, or is broken"
            )
        found.append(([entries[position + offset] for offset in range(width)], vec[i64](entries[begin:end])))
        position = end
    return found
