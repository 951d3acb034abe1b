"""The keeper of a cube: the node that decides whose total publication about a key is next.

The **keeper** is a node like others, member or not: the lowest one at the beginning. When it leaves the system it
makes the lowest that stays the keeper of the next *epoch*. That one asks everybody what stands (claims, and grants
that were not released), and grants nothing before all have answered. Whoever has answered ignores grants of earlier
epochs, and a keeper ignores what is meant for another one: it is said anew. A newcomer has claimed nothing; who
leaves has nothing unfinished. So at most one node grants at a time, and no claim is lost. Everybody hears of the
keeper from itself: it tells those whom it knows when it begins, and others when they join.

Where nodes may fail a keeper is replaced by vote (:mod:`antiphon.fabrics.cube.total_order.quorum`).
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import append_all
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import TopicTable
from antiphon.fabrics.cube.total_order.messages import Claim, Granted, KeeperIs, Standing, ToKeeper
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import Message
from antiphon.kernel.pending_replies import PendingReplies
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.claims import Claims
from antiphon.orders.lock_queue import NOT_GRANTED, LockRequest

PLACE_BITS: Final = 40
"""Places of later epochs are above those of earlier ones."""


class Claimant:
    """What a keeper asks of the part of the same node that claims and locks."""

    def __init__(self) -> None:
        # Where nodes may fail, how often this one has taken back its locks.
        self.attempt: i64 = 0

    def granted(self, message: Granted) -> None:
        """The keeper lets this node lock the keys of a publication."""
        raise NotImplementedError

    def take_back_locks(self) -> None:
        """What this node was granted does not count any more, nor what is on its way."""
        raise NotImplementedError

    def meet_again(self, node: i64) -> None:
        """A node is within reach that may not know what this one has taken back."""
        raise NotImplementedError

    def voter_removed(self, node: i64) -> None:
        """Nobody waits for a node any more."""
        raise NotImplementedError


class LockManager:
    """Knows the keeper of each epoch, and keeps the claims of all if this node is the keeper."""

    # It is made after this, because it claims from it: see ``connect``.
    claimant: Claimant

    def __init__(self, environment: Environment, topics: TopicTable, nodes: CubeNodes) -> None:
        self.environment: Final[Environment] = environment
        self.me: Final[i64] = environment.identifier
        self.topics: Final[TopicTable] = topics
        self.nodes: Final[CubeNodes] = nodes
        self.claims: dict[i64, Claims] = {}
        # Where nodes come and go the first one is alone at first, and later ones are told.
        self.keeper: i64 = 0 if nodes.cube.contains(0) else min(nodes.cube.members(), default=self.me)
        self.epoch: i64 = 1
        # As a new keeper: who has not said what stands, what was said, and what came before it was time.
        self.awaited: Final = PendingReplies()
        self.standing: list[Standing] = []
        self.early: list[ToKeeper] = []

    def connect(self, claimant: Claimant) -> None:
        """Learn which part of this node claims (before anything is claimed)."""
        self.claimant = claimant

    def begin_as_newcomer(self) -> None:
        """Others were here first: the keeper among them says who it is (before ``start``)."""
        self.keeper = NO_NODE
        self.epoch = 0

    def who_keeps(self) -> KeeperIs:
        """What is told of the keeper."""
        return KeeperIs(self.me, self.epoch, self.keeper, 0, vec[i64]())

    def attempt_of(self, claimant: i64) -> i64:
        """What a claimant has said last was said in this attempt, where nodes may fail."""
        return 0

    def receive(self, sender: i64, message: Message) -> None:
        """A claimant speaks to the keeper, or somebody says who the keeper is."""
        if isinstance(message, ToKeeper):
            self.keep(message)
        elif isinstance(message, KeeperIs):
            self.receive_keeper(sender, message)
        elif isinstance(message, Standing):
            self.receive_standing(message)

    # Claims.

    def tell(self, message: ToKeeper) -> None:
        """Say something to the keeper."""
        if self.keeper == self.me:
            self.keep(message)
        elif self.keeper != NO_NODE and self.nodes.cube.contains(self.keeper):
            self.environment.send(self.keeper, message)
        # Else nobody is known, or the keeper has gone; the next one will ask for all that stands.

    def keep(self, message: ToKeeper) -> None:
        """Somebody has something to say to the keeper of an epoch."""
        if message.epoch != self.epoch or self.keeper != self.me:
            # It is meant for another keeper, who has gone; the next one asks.
            return
        if len(self.awaited) > 0:
            self.early.append(message)
        else:
            self.decide(message)

    def decide(self, message: ToKeeper) -> None:
        """Grant what may be granted after a claim or a release."""
        claims = self.claims_of(message.topic)
        if isinstance(message, Claim):
            granted = claims.add(LockRequest(message.source, message.sequence, message.keys))
        else:
            granted = claims.release(message.source, message.sequence)
        self.grant(message.topic, granted)

    def claims_of(self, topic: i64) -> Claims:
        """What is claimed on a topic."""
        claims = self.claims.get(topic)
        if claims is None:
            claims = Claims(self.epoch << PLACE_BITS)
            self.claims[topic] = claims
        return claims

    def grant(self, topic: i64, granted: list[LockRequest]) -> None:
        """Tell those whose turn it is."""
        for wish in granted:
            grant = Granted(wish.source, wish.sequence, topic, self.epoch, wish.place, self.attempt_of(wish.source))
            if wish.source == self.me:
                self.claimant.granted(grant)
            else:
                self.environment.send(wish.source, grant)

    # Keepers that follow each other.

    def joined(self, node: i64) -> None:
        """Another node exists from now on."""
        if self.nodes.is_leaving and self.keeper == self.me:
            # Nobody was there when this node began to leave.
            self.resign()
        elif self.topics.options.total and self.keeper == self.me:
            self.environment.send(node, self.who_keeps())

    def left(self, node: i64) -> None:
        """A node is not there any more."""
        # A node that leaves has nothing unfinished.
        if self.awaited.settle(node):
            self.take_standing()

    def resign(self) -> None:
        """Let the lowest of those who stay be the next keeper."""
        others = self.nodes.others()
        if self.topics.options.total and self.keeper == self.me and len(others) > 0:
            self.enter_epoch(self.epoch + 1, min(others))
            self.environment.send(self.keeper, self.who_keeps())

    def enter_epoch(self, epoch: i64, keeper: i64) -> None:
        """There is another keeper, who knows of nothing yet."""
        self.epoch = epoch
        self.keeper = keeper
        self.claims.clear()
        self.awaited.clear()
        self.standing.clear()
        self.early.clear()

    def receive_keeper(self, sender: i64, message: KeeperIs) -> None:
        """Somebody says who the keeper is."""
        if message.sequence <= self.epoch:
            return
        self.enter_epoch(message.sequence, message.origin)
        if self.keeper != self.me:
            if self.nodes.cube.contains(self.keeper):
                self.environment.send(self.keeper, self.own_standing())
            # Else it has gone, and the next one will ask.
        elif self.nodes.is_leaving:
            self.resign()
        else:
            self.begin_keeping()

    def own_standing(self) -> Standing:
        """What this node has claimed and not started."""
        entries = vec[i64]()
        for topic in self.topics.all():
            for own in topic.own_totals:
                for entry in (topic.name, own.sequence, own.place if own.is_granted else 0, len(own.keys)):
                    entries = append(entries, entry)
                entries = append_all(entries, own.keys)
        return Standing(self.me, self.epoch, self.claimant.attempt, entries)

    def begin_keeping(self) -> None:
        """Ask everybody what stands, and grant nothing before all have said it."""
        for node in self.nodes.others():
            self.awaited.ask(node)
            self.environment.send(node, self.who_keeps())
        self.receive_standing(self.own_standing())

    def receive_standing(self, message: Standing) -> None:
        """Somebody says what it has claimed."""
        if message.sequence == self.epoch and self.keeper == self.me:
            self.standing.append(message)
            self.awaited.settle(message.source)
            self.take_standing()

    def take_standing(self) -> None:
        """Grant what may be, if all have spoken."""
        if len(self.awaited) > 0:
            return
        wishes = [wish for message in self.standing for wish in wishes_of(message)]
        self.standing.clear()
        for topic, wish in wishes:
            if wish.place != NOT_GRANTED:
                self.claims_of(topic).resume(wish)
        for topic, wish in wishes:
            if wish.place == NOT_GRANTED:
                self.grant(topic, self.claims_of(topic).add(wish))
        early = self.early
        self.early = []
        for message in early:
            self.keep(message)

    def text(self) -> str:
        """Everything as text, for those who compare states."""
        claims = [(name, kept.state()) for name, kept in sorted(self.claims.items())]
        early = [(message.source, message.sequence, message.topic, message.epoch) for message in self.early]
        return f"{claims} {(self.keeper, self.epoch, sorted(self.awaited.peers()), len(self.standing), early)}"


def wishes_of(message: Standing) -> list[tuple[i64, LockRequest]]:
    """What somebody has claimed, each with its topic."""
    return [
        (topic, LockRequest(message.source, sequence, keys, place))
        for (topic, sequence, place), keys in records_of(message.source, message.entries, 3)
    ]


def records_of(about: i64, entries: vec[i64], width: i64) -> list[tuple[list[i64], vec[i64]]]:
    """What entries hold about locks or claims: so many numbers each, and keys, whose count stands before them."""
    found: list[tuple[list[i64], vec[i64]]] = []
    position: i64 = 0
    while position + width < len(entries):
        begin = position + width + 1
        count = entries[begin - 1]
        end = begin + count
        if count < 0 or end > len(entries):
            raise ProtocolError(f"what was said of locks or claims of node {about} is cut off")
        found.append(([entries[position + offset] for offset in range(width)], vec[i64](entries[begin:end])))
        position = end
    return found
