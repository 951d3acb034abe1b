"""Cyclon: views that are exchanged all the time, and stay random while nodes come and go.

Voulgaris, Gavidia and van Steen (2005). A view holds ``size`` entries with an age. In every period a node takes the
oldest one out, sends that node some others and a fresh entry of its own, and gets as many in return: links change
hands, none are lost, and entries of nodes that have failed are those that nobody answers for. The thesis runs its
rivals on it (section 4.3.5).

Entries that came in the place of what was sent replace exactly that. Where an entry is known already the younger age
stays.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.sampling.exchanged_view import ExchangedView, check_view_size
from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    SamplingMessage,
    draw_some,
)
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import NO_NODE, Environment


@final
class CyclonOptions:
    """``size`` entries per view, of which ``exchanged`` change hands every ``periods`` periods."""

    def __init__(self, size: i64 = 30, exchanged: i64 = 8, periods: i64 = 1) -> None:
        check_view_size(size)
        if not 1 <= exchanged <= size:
            raise UsageError(f"from a view of {size} entries 1 to {size} can be exchanged, not {exchanged}")
        if periods < 1:
            raise UsageError(f"an exchange every {periods} periods cannot be; choose 1 or more")
        self.size: Final[i64] = size
        self.periods: Final[i64] = periods
        self.exchanged: Final[i64] = exchanged


@mypyc_attr(acyclic=True)
class Entries(SamplingMessage):
    """Entries for the receiver: node, age, node, age and so on; ``is_answer`` if they are in return for others."""

    def __init__(self, source: i64, topic: i64, entries: vec[i64], is_answer: bool) -> None:
        super().__init__(source, topic)
        self.entries: Final[vec[i64]] = entries
        self.is_answer: Final[bool] = is_answer


class Cyclon(ExchangedView):
    """Cyclon at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        options: CyclonOptions,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._options: Final[CyclonOptions] = options
        # What was sent in the last exchange, to be given up for what comes in return.
        self._sent: list[i64] = []
        self._ticks: i64 = 0

    def join(self, contact: i64) -> None:
        self._insert(contact, 0)

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % self._options.periods == 0:
            self._exchange()

    def _exchange(self) -> None:
        """Send some entries to the node of which nothing was heard for longest."""
        oldest = NO_NODE
        for peer in self.view:
            self.number_of[peer] += 1
            if oldest == NO_NODE or self.number_of[peer] > self.number_of[oldest]:
                oldest = peer
        if oldest == NO_NODE:
            return
        # If it does not answer it is forgotten already.
        self.drop(oldest)
        self._sent = draw_some(self.random, self.view, self._options.exchanged - 1)
        entries = append(append(self._with_ages(self._sent), self.me), 0)
        self.environment.send(oldest, Entries(self.me, self.topic, entries, False))

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        assert isinstance(message, Entries), "Cyclon has one kind of message"
        if message.is_answer:
            self._merge(message.entries, self._sent)
            return
        given = draw_some(self.random, self.view, self._options.exchanged)
        self.environment.send(sender, Entries(self.me, self.topic, self._with_ages(given), True))
        self._merge(message.entries, given)

    def _with_ages(self, nodes: list[i64]) -> vec[i64]:
        entries = vec[i64](capacity=2 * len(nodes))
        for node in nodes:
            entries = append(append(entries, node), self.number_of[node])
        return entries

    def _merge(self, entries: vec[i64], given: list[i64]) -> None:
        """Take entries in, at first in the places of those that were given away."""
        spare = list(given)
        position: i64 = 0
        while position < len(entries):
            node, age = entries[position], entries[position + 1]
            position += 2
            known = self.number_of.get(node, -1)
            if known >= 0:
                self.number_of[node] = min(known, age)
            elif node != self.me:
                while len(self.view) >= self._options.size and len(spare) > 0:
                    leaving = spare.pop()
                    if leaving in self.number_of:
                        self.drop(leaving)
                if len(self.view) < self._options.size:
                    self._insert(node, age)

    def _insert(self, node: i64, age: i64) -> None:
        if node not in self.number_of and node != self.me:
            self.insert(node, age)
