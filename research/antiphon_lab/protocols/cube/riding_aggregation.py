"""Causal aggregation with riders: publications that could leave wait for held ones, and both go in one packet.

Two rules of our own on top of the published protocol (:mod:`antiphon_lab.protocols.cube.causal_aggregation`), both
named as future work in section 6.2 of the thesis:

* **Ride-along.** While a publication is held back from a child, every other publication for that child waits for it and
  goes in the same packet, related or not. It leaves with the *next* packet to the child, whatever freed that one.
* **Hybrid.** Every publication for a child waits for others, at most ``timer_ticks`` (counted from the first that
  waits), as in timer bundling; but a held one does not count until it is free, and then takes all waiting ones along.

Both delay deliveries: a rider could be delivered without the publications it rides with. With ``timer_ticks`` a rider
of the first rule too waits no longer than that.

**Why riders do not wait for each other in a cycle.** A publication held back from the child in cluster ``s`` misses a
predecessor that this node will send to the same child. A node with a child in cluster ``s`` in a tree got, or will get,
the publication from a cluster *above* ``s``: a copy from cluster ``t`` goes on to the clusters below ``t`` and to no
other. So everything that waits on an edge of cluster ``s``, held or riding, waits for an arrival over an edge of some
cluster above ``s``. Along any chain of waits the clusters rise, and they end at the dimension of the cube, where
nothing arrives from above and so nothing waits. A chain has at most as many links as the cube has dimensions, and no
cycle closes.

It is essential that riders wait *per child*. Where a node holds back everything while it holds back anything, an edge
waits for an edge of the same cluster, and cycles close: the tests have the schedule of one.

Nothing overtakes: a publication that is free while others ride to the same child rides or takes them along. So every
predecessor that a publication names has left for the child before it or leaves with it, as in the published protocol.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import Publication
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.protocols.cube.timer_bundling import Buffer

NO_TIMER: Final = 0


@final
class RidingOptions:
    """How publications ride.

    With ``always`` every publication waits for others (hybrid), otherwise only one that finds a held publication
    (ride-along). ``timer_ticks`` bounds the wait; ``NO_TIMER`` is for ride-along alone.
    """

    def __init__(self, timer_ticks: i64 = NO_TIMER, always: bool = False) -> None:
        if timer_ticks < 1 and (always or timer_ticks < 0):
            raise UsageError(f"publications that always wait for company do so for at least 1 tick, not {timer_ticks}")
        self.timer_ticks: Final[i64] = timer_ticks
        self.always: Final[bool] = always


@final
class Riders:
    """The publications that wait for others at one node, by the cluster of the child that they are for."""

    def __init__(self, broadcast: PacketBroadcast, options: RidingOptions) -> None:
        self._broadcast: Final[PacketBroadcast] = broadcast
        self.options: Final[RidingOptions] = options
        self.buffers: Final[list[Buffer]] = [Buffer() for _ in range(broadcast.cube.dimension + 1)]

    def add(self, s: i64, child: i64, publications: list[Publication]) -> None:
        """Let publications wait; a full packet leaves."""
        broadcast, buffer = self._broadcast, self.buffers[s]
        for publication in publications:
            more = broadcast.form.publication_bytes(publication)
            if len(buffer.publications) > 0 and buffer.size_bytes + more > broadcast.form.largest:
                if broadcast.traffic is not None:
                    broadcast.traffic.closed += 1
                self.depart(s, child, [])
            if len(buffer.publications) == 0:
                buffer.size_bytes = broadcast.form.header_bytes
                if self.options.timer_ticks > 0:
                    buffer.timer = broadcast.environment.set_timer(self.options.timer_ticks, s)
            buffer.size_bytes += more
            buffer.publications.append(publication)

    def depart(self, s: i64, child: i64, publications: list[Publication]) -> None:
        """Send a child all that has waited for company, and these."""
        buffer = self.buffers[s]
        riders = buffer.publications
        if len(riders) > 0:
            if buffer.timer != 0:
                self._broadcast.environment.cancel_timer(buffer.timer)
                buffer.timer = 0
            buffer.publications = []
            riders.extend(publications)
            publications = riders
        self._broadcast.send_all(child, publications)

    def expire(self, s: i64) -> None:
        """Send the publications whose timer has expired."""
        self.buffers[s].timer = 0
        self.depart(s, self._broadcast.cube.first(self._broadcast.me, s), [])

    def count(self) -> i64:
        """The number of waiting publications, counted once per child."""
        count: i64 = 0
        for buffer in self.buffers:
            count += len(buffer.publications)
        return count

    def state(self) -> str:
        """The content as text, to compare states."""
        return str([[(one.source, one.sequence) for one in buffer.publications] for buffer in self.buffers])
