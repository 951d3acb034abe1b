"""The common part of Cyclon and Newscast: a view of numbered entries, which nodes exchange all the time."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    draw_some,
)
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment


class ExchangedView(PeerSampling):
    """A view whose entries have a number each: an age, or a time. All that is in it is a neighbour."""

    def __init__(self, environment: Environment, topic: i64, connections: Connections, listener: Neighbourhood) -> None:
        super().__init__(environment, topic, connections, listener)
        self.view: Final[list[i64]] = []
        self.number_of: Final[dict[i64, i64]] = {}

    def neighbours(self) -> list[i64]:
        return self.view

    def is_neighbour(self, peer: i64) -> bool:
        return peer in self.number_of

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self.view, count)

    def lost(self, peer: i64) -> None:
        if peer in self.number_of:
            self.drop(peer)

    def insert(self, node: i64, number: i64) -> None:
        """Add an entry that is not there yet."""
        self.view.append(node)
        self.number_of[node] = number
        self.listener.neighbour_up(node)

    def drop(self, node: i64) -> None:
        """Take an entry out."""
        self.view.remove(node)
        del self.number_of[node]
        self.listener.neighbour_down(node)


def check_view_size(size: i64) -> None:
    """Refuse a view that holds nothing."""
    if size < 1:
        raise UsageError(f"a view of {size} entries leaves every node alone; choose at least 1, for example 30")
