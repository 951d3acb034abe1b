"""The rival of causal aggregation: bundles that wait for a timer.

``TimerBundling`` follows the bundling protocol that section 3.4.5 of the thesis describes (Rodrigues and others, LADC
2018). A node has a buffer per child. Publications for the child go there, related or not; the buffer is sent when the
next one would not fit, or ``timer_ticks`` after the first one arrived. Its acknowledgements are left out here, as in
all protocols that it is compared with. Every hop may add the timer to the latency, which causal aggregation avoids.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Traffic
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast


class Buffer:
    """The publications that wait for one child."""

    def __init__(self) -> None:
        self.publications: list[Publication] = []
        self.size_bytes: i64 = 0
        self.timer: i64 = 0


class TimerBundling(PacketBroadcast):
    """Publications for one child wait together until a timer fires or a packet is full."""

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        form: PacketFormat | None = None,
        traffic: Traffic | None = None,
        timer_ticks: i64 = 50,
    ) -> None:
        super().__init__(environment, cube, form, traffic)
        if timer_ticks < 1:
            raise UsageError(f"a bundle waits for at least 1 tick, not {timer_ticks}; raise the timer")
        self._timer_ticks: Final[i64] = timer_ticks
        self._buffers: Final[list[Buffer]] = [Buffer() for _ in range(cube.dimension + 1)]

    def hand_on(self, publication: Publication, above: i64, height: i64) -> None:
        s = above + 1
        while s <= height:
            if self.cube.first(self.me, s) != NO_NODE:
                self._put(s, publication)
            s += 1

    def expire(self, name: i64) -> None:
        self._flush(name)

    def unfinished(self) -> i64:
        waiting = self.order.waiting()
        for buffer in self._buffers:
            waiting += len(buffer.publications)
        return waiting

    def _put(self, s: i64, publication: Publication) -> None:
        buffer = self._buffers[s]
        more = self.form.publication_bytes(publication)
        if len(buffer.publications) > 0 and buffer.size_bytes + more > self.form.largest:
            self.environment.cancel_timer(buffer.timer)
            if self.traffic is not None:
                self.traffic.closed += 1
            self._flush(s)
        if len(buffer.publications) == 0:
            buffer.size_bytes = self.form.header_bytes
            buffer.timer = self.environment.set_timer(self._timer_ticks, s)
        buffer.size_bytes += more
        buffer.publications.append(publication)

    def _flush(self, s: i64) -> None:
        buffer = self._buffers[s]
        publications = buffer.publications
        buffer.publications = []
        self.send_all(self.cube.first(self.me, s), publications)
