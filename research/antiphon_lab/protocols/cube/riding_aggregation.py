"""Causal aggregation with riders: what could leave waits for what cannot, and both go in one packet.

Two rules of our own on top of the published protocol (:mod:`antiphon_lab.protocols.cube.causal_aggregation`), both
named as future work in section 6.2 of the thesis:

* **Ride-along.** While something is held back from a child, whatever else is to go to that child waits for it and goes
  in the same packet, related or not. It leaves with the *next* packet to the child, whatever set that one free.
* **Hybrid.** Everything for a child waits for company, at most ``timer_ticks`` (counted from the first that waits), as
  in timer bundling; but what is held back does not count as company until it is free, and takes along all that waits
  when it is.

Both delay deliveries: a rider could be delivered without what it rides with. With ``timer_ticks`` a rider of the first
rule too waits no longer than that.

**Why riders do not wait for each other in a circle.** What is held back from the child in cluster ``s`` misses
something that this node will send to the same child. Who has a child in cluster ``s`` in a tree got, or will get, the
publication from a cluster *above* ``s``: a copy from cluster ``t`` goes on to the clusters below ``t`` and to no other.
So all that waits on an edge of cluster ``s``, held or riding, waits for an arrival over an edge of some cluster above
``s``. Along any chain of waits the clusters rise, and they end at the dimension of the cube, where nothing arrives
from above and so nothing waits. A chain has at most as many links as the cube has dimensions, and no circle closes.

It is essential that riders wait *per child*. Where a node holds back everything while it holds back anything, an edge
waits for an edge of the same cluster, and circles close: the tests have the schedule of one.

Nothing overtakes: what is free while others ride to the same child rides or takes them along. So whatever a
publication names has left for the child before it or leaves with it, as in the published protocol.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Traffic
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import Message, Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.cube.causal_aggregation import AggregationOptions, Arrived, CausalAggregation
from antiphon_lab.protocols.cube.timer_bundling import Buffer

NO_TIMER: Final = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class RidingAggregation(CausalAggregation):
    """Aggregation with riders.

    With ``always`` everything waits for company (hybrid), otherwise only what finds something held back (ride-along).
    ``timer_ticks`` bounds the wait; ``NO_TIMER`` is for ride-along alone.
    """

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        form: PacketFormat | None = None,
        traffic: Traffic | None = None,
        options: AggregationOptions | None = None,
        timer_ticks: i64 = NO_TIMER,
        always: bool = False,
    ) -> None:
        super().__init__(environment, cube, form, traffic, options)
        if timer_ticks < 1 and (always or timer_ticks < 0):
            raise UsageError(f"publications that always wait for company do so for at least 1 tick, not {timer_ticks}")
        self._timer_ticks: Final[i64] = timer_ticks
        self._always: Final[bool] = always
        self._buffers: Final[list[Buffer]] = [Buffer() for _ in range(cube.dimension + 1)]
        # What arrived up to this number did so before the packet that is being received.
        self._arrived_before: i64 = 0

    def receive(self, sender: i64, message: Message) -> None:
        self._arrived_before = self._arrivals
        super().receive(sender, message)

    def hand_on(self, publication: Publication, above: i64, height: i64) -> None:
        s = above + 1
        while s <= height:
            child = self.cube.first(self.me, s)
            if child != NO_NODE:
                self._offer(s, child, [publication])
            s += 1

    def send_free(self, s: i64, child: i64, free: list[Arrived]) -> None:
        publications = [arrived.publication for arrived in free]
        if free[0].number <= self._arrived_before:
            # It was held back until now: this is the packet that the riders have waited for.
            self._depart(s, child, publications)
        else:
            self._offer(s, child, publications)

    def expire(self, name: i64) -> None:
        self._buffers[name].timer = 0
        self._depart(name, self.cube.first(self.me, name), [])

    def unfinished(self) -> i64:
        return super().unfinished() + self.riding()

    def riding(self) -> i64:
        """How many publications wait for company, counted once per child."""
        count: i64 = 0
        for buffer in self._buffers:
            count += len(buffer.publications)
        return count

    def state(self) -> str:
        riders = [[(one.source, one.sequence) for one in buffer.publications] for buffer in self._buffers]
        return f"{super().state()} {riders}"

    def rides(self, s: i64) -> bool:
        """Whether what is to go to the child in cluster ``s`` waits."""
        return self._always or self.holds_for(s)

    def _offer(self, s: i64, child: i64, publications: list[Publication]) -> None:
        """Publications may leave: they do, unless there is something to wait for."""
        if not self.rides(s):
            self._depart(s, child, publications)
            return
        buffer = self._buffers[s]
        for publication in publications:
            more = self.form.publication_bytes(publication)
            if len(buffer.publications) > 0 and buffer.size_bytes + more > self.form.largest:
                if self.traffic is not None:
                    self.traffic.closed += 1
                self._depart(s, child, [])
            if len(buffer.publications) == 0:
                buffer.size_bytes = self.form.header_bytes
                if self._timer_ticks > 0:
                    buffer.timer = self.environment.set_timer(self._timer_ticks, s)
            buffer.size_bytes += more
            buffer.publications.append(publication)

    def _depart(self, s: i64, child: i64, publications: list[Publication]) -> None:
        """Send a child all that has waited for company, and these."""
        buffer = self._buffers[s]
        riders = buffer.publications
        if len(riders) > 0:
            if buffer.timer != 0:
                self.environment.cancel_timer(buffer.timer)
                buffer.timer = 0
            buffer.publications = []
            riders.extend(publications)
            publications = riders
        self.send_all(child, publications)
