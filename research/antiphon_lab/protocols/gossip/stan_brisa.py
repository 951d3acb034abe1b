"""BRISA over the overlays of StaN: one tree per publisher in each topic, along the links that StaN has chosen.

The thesis of M. Matos proposes this for large payloads on many topics (section 6.1) and does not try it. BRISA tells
its neighbours to stop and asks them for a place, so a link must be known at both ends. Links of StaN have a direction.
Here two processes are neighbours in a topic if either has the other in its view. Views are given from outside and may
change at any time (:meth:`StanBrisa.set_view`), as they do while StaN aligns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.service import (
    Connections,
    Neighbourhood,
    PeerSampling,
    SamplingMessage,
    draw_some,
)
from antiphon.fabrics.gossip.topic import Group
from antiphon.kernel.process import Environment


@final
class GivenView(PeerSampling):
    """The neighbours of one process in one topic, as somebody else arranges them."""

    def __init__(self, environment: Environment, topic: i64, connections: Connections, listener: Neighbourhood) -> None:
        super().__init__(environment, topic, connections, listener)
        self._neighbours: Final[list[i64]] = []

    def become(self, peers: Sequence[int]) -> None:
        """From now on these are the neighbours. New ones come before others go, so that a place is found again."""
        wanted = {i64(peer) for peer in peers}
        for peer in sorted(wanted):
            if peer not in self._neighbours:
                self._neighbours.append(peer)
                self.connections.hold(peer)
                self.listener.neighbour_up(peer)
        for peer in list(self._neighbours):
            if peer not in wanted:
                self._neighbours.remove(peer)
                self.connections.release(peer)
                self.listener.neighbour_down(peer)

    def neighbours(self) -> list[i64]:
        return self._neighbours

    def sample(self, count: i64) -> list[i64]:
        return draw_some(self.random, self._neighbours, count)

    def join(self, contact: i64) -> None:
        """Views are given; nobody is asked."""

    def receive(self, sender: i64, message: SamplingMessage) -> None:
        raise AssertionError("a view that is given sends nothing")


class StanGroup(Group):
    """A topic at one node."""

    def new_sampling(self, connections: Connections) -> PeerSampling:
        return GivenView(self._environment, self.topic, connections, self)


class StanBrisa(Brisa):
    """One process, subscribed to the topics of ``views`` from the start."""

    def __init__(self, environment: Environment, options: BrisaOptions, views: Mapping[int, Sequence[int]]) -> None:
        super().__init__(environment, options)
        for topic, peers in views.items():
            self.begin_as_member(topic)
            self.group(topic).found()
            self.set_view(topic, peers)

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return StanGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def set_view(self, topic: i64, peers: Sequence[int]) -> None:
        """The neighbours in a topic change."""
        overlay = self.group(topic).sampling
        assert isinstance(overlay, GivenView), "made as such"
        overlay.become(peers)

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Both ends of a link hear of its end from StaN."""
