"""The judge of membership: which nodes may call themselves what, and what their processes may be told and given.

It is told what happens at nodes as it happens, in names and numbers, and knows nothing of the code behind it. A *life*
is a node from its start to its end, a *lineage* the lives that have one disk after another. The checks:

* ``identity``: two lineages never enter a cluster under one identifier, nor two lives of one lineage where each life
  has an identifier of its own. A node that returns with its disk has the identifier that it had, where it keeps one,
  and a higher incarnation. A message that names a node as its sender was sent by that node.
* ``togetherness``: a node that has entered loses another only if a fault has happened to one of them. A process is told
  that a peer is lost and found in turn. Messages that a node sends to a peer during one time together arrive during one
  time together there, and no message of an earlier one arrives later. None arrives twice.
* ``joining``: no node gives up, or still looks for its place, long after the network became whole.
* ``knowledge``: in the end all nodes that are up know each other, or are in one overlay.
* ``last words``: what a node publishes in the end is delivered by all, once.
* ``error``: nothing is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

IDENTITY = "identity"
TOGETHERNESS = "togetherness"
JOINING = "joining"
KNOWLEDGE = "knowledge"
LAST_WORDS = "last words"
ERROR = "error"
KINDS = (ERROR, IDENTITY, TOGETHERNESS, JOINING, KNOWLEDGE, LAST_WORDS)


@dataclass
class Life:
    """One life of a node, as the judge knows it."""

    number: int
    lineage: int
    is_troubled: bool = False
    identifiers: set[int] = field(default_factory=set)
    placed_as: int | None = None
    entered_as: int | None = None
    sent: int = 0
    losses: dict[int, int] = field(default_factory=dict)
    is_apart: dict[int, bool] = field(default_factory=dict)
    is_lost: dict[int, bool] = field(default_factory=dict)
    delivered: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MembershipRules:
    """The differences between clusters.

    ``keeps_identity``: a lineage has one identifier. ``begins_apart``: peers count as lost until they are found.
    ``is_full``: every node knows every other.
    """

    keeps_identity: bool
    begins_apart: bool
    is_full: bool


class MembershipJudge:
    """Judges one run."""

    def __init__(self, rules: MembershipRules) -> None:
        self._rules = rules
        self._lives: dict[int, Life] = {}
        self._owners: dict[int, int] = {}
        self._incarnations: dict[int, int] = {}
        # By sender, the identifier to which it spoke, its losses and receiver: the losses there; and the reverse.
        self._heard_in: dict[tuple[int, int, int, int], int] = {}
        self._spoken_in: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._last_number: dict[tuple[int, int], int] = {}
        self.violations: list[tuple[str, str]] = []

    def violation(self, kind: str, text: str) -> None:
        """Something is wrong."""
        self.violations.append((kind, text))

    def counts(self) -> dict[str, int]:
        """How many violations there are of each kind."""
        return {kind: n for kind in KINDS if (n := sum(found == kind for found, _ in self.violations))}

    def messages(self) -> int:
        """How many messages processes have sent."""
        return sum(life.sent for life in self._lives.values())

    def deliveries(self) -> int:
        """How many publications nodes have delivered."""
        return sum(len(life.delivered) for life in self._lives.values())

    # Identity.

    def began(self, life: int, lineage: int) -> None:
        """A node starts."""
        self._lives[life] = Life(life, lineage)

    def placed(self, life: int, identifier: int) -> None:
        """A node has an identifier, at least for now, and a process that knows nothing of others."""
        facts = self._lives[life]
        facts.identifiers.add(identifier)
        facts.placed_as = identifier
        facts.is_lost.clear()
        facts.is_apart.clear()

    def entered(self, life: int, identifier: int, incarnation: int, had: int | None) -> None:
        """A node is in its cluster; ``had`` is the identifier that its disk says it had before."""
        facts = self._lives[life]
        facts.entered_as = identifier
        owner = facts.lineage if self._rules.keeps_identity else life
        if self._owners.setdefault(identifier, owner) != owner:
            self.violation(IDENTITY, f"life {life} has the identifier {identifier} of another node")
        if self._rules.keeps_identity and had is not None:
            if had != identifier:
                self.violation(IDENTITY, f"life {life} returned as {identifier} and was {had}")
            elif incarnation <= self._incarnations.get(identifier, -1):
                self.violation(IDENTITY, f"life {life} returned as {identifier} in incarnation {incarnation} again")
        self._incarnations[identifier] = max(incarnation, self._incarnations.get(identifier, -1))

    # Being together.

    def trouble(self, life: int) -> None:
        """A fault happens to a node: from now on others may lose it, and it may lose others."""
        self._lives[life].is_troubled = True

    def _is_untroubled(self, identifier: int) -> bool:
        lives = [life for life in self._lives.values() if identifier in life.identifiers]
        return bool(lives) and not any(life.is_troubled for life in lives)

    def watched(self, life: int, peer: int) -> None:
        """A process begins to watch a peer, which counts as up until it is said to be lost."""
        self._lives[life].is_lost.setdefault(peer, False)

    def unwatched(self, life: int, peer: int) -> None:
        """It is told nothing more about the peer."""
        self._lives[life].is_lost.pop(peer, None)

    def lost(self, life: int, peer: int) -> None:
        """A process is told that a peer is lost."""
        facts = self._lives[life]
        if facts.is_lost.get(peer, self._rules.begins_apart):
            self.violation(TOGETHERNESS, f"life {life} is told twice that {peer} is lost")
        facts.is_lost[peer] = True

    def found(self, life: int, peer: int) -> None:
        """A process is told that a peer is found."""
        facts = self._lives[life]
        if not facts.is_lost.get(peer, self._rules.begins_apart):
            self.violation(TOGETHERNESS, f"life {life} is told that {peer} is found, which was not lost")
        facts.is_lost[peer] = False

    def parted(self, life: int, peer: int) -> None:
        """A node is not together with a peer any more, whether its process watches that peer or not."""
        facts = self._lives[life]
        if facts.entered_as is not None and not facts.is_troubled and self._is_untroubled(peer):
            self.violation(TOGETHERNESS, f"life {life} lost {peer}, though nothing has happened to either")
        facts.losses[peer] = facts.losses.get(peer, 0) + 1
        facts.is_apart[peer] = True

    def met(self, life: int, peer: int) -> None:
        """A node is together with a peer."""
        self._lives[life].is_apart[peer] = False

    def sent(self, life: int, peer: int) -> tuple[int, int, bool, int]:
        """A process sends: the number of the message, how often the peer was lost here, whether both are together, and
        which peer."""
        facts = self._lives[life]
        facts.sent += 1
        is_together = not facts.is_apart.get(peer, self._rules.begins_apart)
        return facts.sent, facts.losses.get(peer, 0), is_together, peer

    def on_frame(self, life: int, peer: int, sender: int, stamp: tuple[int, int, bool, int]) -> None:
        """A process is given what is said to come from a peer; ``sender`` is the life that has sent it."""
        number, losses, is_together, meant = stamp
        if peer not in self._lives[sender].identifiers:
            self.violation(IDENTITY, f"what life {sender} sent came to life {life} as if {peer} had sent it")
        if meant != self._lives[life].placed_as:
            self.violation(IDENTITY, f"what life {sender} sent to {meant} came to life {life}, which is another node")
        if number <= self._last_number.get((sender, life), 0):
            self.violation(TOGETHERNESS, f"message {number} of life {sender} came late or twice to life {life}")
        self._last_number[sender, life] = number
        facts = self._lives[life]
        if not self._rules.is_full or not is_together or facts.is_apart.get(peer, self._rules.begins_apart):
            # A message that arrives before both know that they are together is no part of that time.
            return
        here = facts.losses.get(peer, 0)
        if self._heard_in.setdefault((sender, meant, losses, life), here) != here:
            self.violation(TOGETHERNESS, f"life {life} got something of an earlier time together with {peer}")
        if self._spoken_in.setdefault((life, peer, here), (sender, losses)) != (sender, losses):
            self.violation(TOGETHERNESS, f"life {life} has not noticed that it was separated from {peer}")

    # The end.

    def delivered(self, life: int, payload: bytes) -> None:
        """A node delivers something."""
        counts = self._lives[life].delivered
        counts[payload] = counts.get(payload, 0) + 1
        if counts[payload] > 1:
            self.violation(LAST_WORDS, f"life {life} delivered {payload!r} twice")

    def knows(self, up: Mapping[int, set[int]]) -> None:
        """In the end these lives are up, and each says which identifiers it knows of the others."""
        identifiers = {life: self._lives[life].entered_as for life in up}
        for life, identifier in identifiers.items():
            if identifier is None:
                self.violation(JOINING, f"life {life} still looks for its place")
        there = {identifier for identifier in identifiers.values() if identifier is not None}
        if self._rules.is_full:
            for life, known in up.items():
                if identifiers[life] is not None and known != there - {identifiers[life]}:
                    self.violation(KNOWLEDGE, f"life {life} knows {sorted(known)} of {sorted(there)}")
        elif not is_connected({identifiers[life] or 0: known & there for life, known in up.items()}):
            self.violation(KNOWLEDGE, "there is more than one overlay")

    def have_all(self, up: Iterable[int], payloads: Sequence[bytes]) -> bool:
        """Whether all of these have delivered all of this."""
        return all(payload in self._lives[life].delivered for life in up for payload in payloads)

    def last_words(self, up: Iterable[int], payloads: Iterable[bytes]) -> None:
        """In the end all of these should have delivered all of this."""
        for life in up:
            missing = [payload for payload in payloads if payload not in self._lives[life].delivered]
            if missing:
                self.violation(LAST_WORDS, f"life {life} did not deliver {missing}")


def is_connected(neighbours: Mapping[int, set[int]]) -> bool:
    """Whether all are in one part of an overlay, whichever end of a link knows of it."""
    if not neighbours:
        return True
    reached, to_do = set[int](), [next(iter(neighbours))]
    while to_do:
        node = to_do.pop()
        if node not in reached:
            reached.add(node)
            to_do += [other for other in neighbours if other in neighbours[node] or node in neighbours[other]]
    return len(reached) == len(neighbours)
