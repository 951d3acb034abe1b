"""Newscast: views of the freshest news of others.

Jelasity and van Steen (2002). A view holds ``size`` entries, each a node and the time at which it spoke for itself. In
every period a node exchanges its whole view and fresh news of itself with a random entry; both keep the freshest. Nodes
that have failed are forgotten faster than by Cyclon, and views of neighbours are more alike (thesis, section 2.2.2).

Times are ticks of the host's clock. Clocks that differ by less than a few periods do no harm: news age differently.
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
    draw_without,
)
from antiphon.kernel.process import NO_NODE, Environment


@final
class NewscastOptions:
    """``size`` entries per view."""

    def __init__(self, size: i64 = 30) -> None:
        check_view_size(size)
        self.size: Final[i64] = size


@mypyc_attr(acyclic=True)
class News(SamplingMessage):
    """The sender's view: node, time, node, time and so on; ``is_answer`` if it is in return for the receiver's."""

    def __init__(self, source: i64, topic: i64, entries: vec[i64], is_answer: bool) -> None:
        super().__init__(source, topic)
        self.entries: Final[vec[i64]] = entries
        self.is_answer: Final[bool] = is_answer


class Newscast(ExchangedView):
    """Newscast at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        connections: Connections,
        listener: Neighbourhood,
        options: NewscastOptions,
    ) -> None:
        super().__init__(environment, topic, connections, listener)
        self._options: Final[NewscastOptions] = options

    def join(self, contact: i64) -> None:
        self._merge(append(append(vec[i64](), contact), self.environment.now()))

    def tick(self) -> None:
        peer = draw_without(self.random, self.view, NO_NODE)
        if peer != NO_NODE:
            self.environment.send(peer, News(self.me, self.topic, self._news(), False))

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        assert isinstance(message, News), "Newscast has one kind of message"
        if not message.is_answer:
            self.environment.send(sender, News(self.me, self.topic, self._news(), True))
        self._merge(message.entries)

    def _news(self) -> vec[i64]:
        entries = append(append(vec[i64](capacity=2 * len(self.view) + 2), self.me), self.environment.now())
        for node in self.view:
            entries = append(append(entries, node), self.number_of[node])
        return entries

    def _merge(self, entries: vec[i64]) -> None:
        """Keep the freshest of the own view and another."""
        position: i64 = 0
        while position < len(entries):
            node, time = entries[position], entries[position + 1]
            position += 2
            if node == self.me:
                continue
            known = self.number_of.get(node, -1)
            if known >= 0:
                self.number_of[node] = max(known, time)
            elif len(self.view) < self._options.size:
                self.insert(node, time)
            else:
                stalest = self._stalest()
                if self.number_of[stalest] < time:
                    self.drop(stalest)
                    self.insert(node, time)

    def _stalest(self) -> i64:
        stalest = self.view[0]
        for node in self.view:
            if self.number_of[node] < self.number_of[stalest]:
                stalest = node
        return stalest
