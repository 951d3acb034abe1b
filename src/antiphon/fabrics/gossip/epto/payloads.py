"""Payloads that travel once, where balls only name events.

A ball of the thesis carries whole events, and every node sends every event about ``fanout * ttl`` times. Here a ball
carries names, stamps and numbers of relays. The publisher's first ball has the payload with it. A node that hears of an
event by its name asks the sender of the ball. That node may not have the payload yet; it remembers the asker, and hands
the payload on when it comes. Each has asked the one that it heard from first, so the questions form a tree with the
publisher at its root, and every node gets the payload once. If it does not come, because a message was lost or a node
failed, the publisher is asked, and then, in turn with it, nodes at random. When ``patience`` rounds after it could have
been delivered it has still not come, the event is given up and becomes a hole.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.messages import Payloads, Stamped, Wanted, payload_bytes_of
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.kernel.message import SOURCE_MASK, publication_key
from antiphon.kernel.process import NO_NODE, Environment

ROUNDS_TO_ANSWER: Final[i64] = 3
"""After so many rounds a question is asked again: more than a period to be relayed and the way to and fro."""


@final
class Missing:
    """A payload that is asked for: when next, and how often it was; ``named_by`` is the node that named the event."""

    def __init__(self, name: i64, again_at: i64) -> None:
        self.name: Final[i64] = name
        self.again_at: i64 = again_at
        self.questions: i64 = 1
        self.named_by: i64 = NO_NODE


class PayloadStore:
    """The payloads at one node: those that others may ask for, and those that it asks for."""

    def __init__(self, environment: Environment, topic: i64, options: EptoOptions) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._digests: Final[bool] = options.digests
        self._keep: Final[i64] = options.keep
        self._here: Final[dict[i64, Stamped]] = {}
        self._kept: Final[deque[tuple[i64, i64]]] = deque()
        self._missing: Final[dict[i64, Missing]] = {}
        self._new: list[i64] = []
        self._askers: Final[dict[i64, list[i64]]] = {}
        self._round: i64 = 0
        self.copies_sent: i64 = 0
        self.bytes_sent: i64 = 0

    def lookup(self, name: i64) -> Stamped | None:
        """A payload, if it is here."""
        return self._here.get(name)

    def is_past(self, name: i64) -> bool:
        """Whether an event that is not known here, or not any more, is certainly done with."""
        return False

    def has(self, publication: Stamped) -> None:
        """A payload is here now; all nodes that asked for it get it."""
        if not self._digests:
            return
        name = publication_key(publication.source, publication.sequence)
        if name in self._here:
            return
        self._here[name] = publication
        self._kept.append((self._round + self._keep, name))
        self._missing.pop(name, None)
        askers = self._askers.pop(name, None)
        if askers is not None:
            for asker in askers:
                self.give(asker, [publication])

    def lacks(self, name: i64) -> None:
        """An event was named whose payload is not here."""
        self._missing[name] = Missing(name, self._round + ROUNDS_TO_ANSWER)
        self._new.append(name)

    def ask(self, node: i64) -> None:
        """Ask the node whose ball has just been looked at for all that is new."""
        if len(self._new) == 0:
            return
        names = vec[i64](capacity=len(self._new))
        for name in self._new:
            names = append(names, name)
        self._new = []
        self._environment.send(node, Wanted(self._me, self._topic, names))

    def remember(self, name: i64, asker: i64) -> None:
        """Somebody asks for what has not come yet."""
        askers = self._askers.get(name)
        if askers is None:
            askers = []
            self._askers[name] = askers
        if asker not in askers:
            askers.append(asker)

    def give(self, node: i64, publications: list[Stamped]) -> None:
        """Send payloads to a node that asked for them."""
        if len(publications) > 0:
            self.count_sent(publications, 1)
            self._environment.send(node, Payloads(self._me, self._topic, publications))

    def count_sent(self, publications: list[Stamped], receivers: i64) -> None:
        """Payloads leave this node."""
        self.copies_sent += len(publications) * receivers
        self.bytes_sent += payload_bytes_of(publications) * receivers

    def given_up(self, name: i64) -> None:
        """A payload is not needed any more: nobody had it in time."""
        self._missing.pop(name, None)
        self._askers.pop(name, None)

    def round_passed(self, now: i64, sampling: PeerSampling) -> None:
        """Forget what was kept long enough, and ask again for what has not come."""
        self._round = now
        while len(self._kept) > 0 and self._kept[0][0] <= now:
            name = self._kept.popleft()[1]
            self._here.pop(name, None)
        for missing in self._missing.values():
            if missing.again_at <= now:
                missing.again_at = now + ROUNDS_TO_ANSWER
                missing.questions += 1
                self.ask_again(missing, sampling)

    def ask_again(self, missing: Missing, sampling: PeerSampling) -> None:
        """A payload has not come."""
        peers = sampling.sample(1) if missing.questions % 2 == 1 else [missing.name & SOURCE_MASK]
        for peer in peers:
            self._environment.send(peer, Wanted(self._me, self._topic, append(vec[i64](), missing.name)))
