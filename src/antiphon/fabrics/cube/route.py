"""The way of one packet through one node, where nodes may fail: for whom it serves which clusters, and who must answer.

Two ways may lead to the same node when somebody between has failed. Each of those who handed the packet down is told
when its own part is served, and no other: what is owed to a parent depends only on what is owed by children inside the
parent's cluster. So these debts become smaller from node to node and never form a circle.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.topology import cluster
from antiphon.kernel.message import ProtocolMessage


@final
@mypyc_attr(acyclic=True)
class Route:
    """A packet at one node; ``height`` is up to which of its clusters the node has handed it on."""

    def __init__(self, packet: ProtocolMessage) -> None:
        self.packet: Final[ProtocolMessage] = packet
        self.height: i64 = 0
        # Who is to be told, and for how many clusters; ``NO_NODE`` is the node itself.
        self.parents: Final[dict[i64, i64]] = {}
        # Who has not answered, how often it has to, and who of them serves a cluster and not only itself.
        self.awaited: Final[dict[i64, i64]] = {}
        self._serving: Final[set[i64]] = set()

    def sent(self, child: i64, serves: bool) -> None:
        """A copy has gone to a child, which is to answer."""
        self.awaited[child] = self.awaited.get(child, 0) + 1
        if serves:
            self._serving.add(child)

    def on_ack(self, child: i64) -> bool:
        """A child has answered; false if nobody expected it to."""
        missing = self.awaited.get(child, 0)
        if missing == 0:
            return False
        if missing > 1:
            self.awaited[child] = missing - 1
        else:
            del self.awaited[child]
            self._serving.discard(child)
        return True

    def lost(self, child: i64) -> bool:
        """A child will not answer; whether somebody else has to serve its cluster."""
        del self.awaited[child]
        served = child in self._serving
        self._serving.discard(child)
        return served

    def served(self, me: i64) -> list[i64]:
        """The parents whose part is served by now; they are not to be told again."""
        if len(self.awaited) == 0:
            everybody = list(self.parents)
            self.parents.clear()
            return everybody
        lowest: i64 = 1 << 30
        for child in self.awaited:
            lowest = min(lowest, cluster(me, child))
        done = [parent for parent, height in self.parents.items() if height < lowest]
        for parent in done:
            del self.parents[parent]
        return done

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{self.height} {sorted(self.parents.items())} {sorted(self.awaited.items())}"
