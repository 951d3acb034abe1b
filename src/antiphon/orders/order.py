"""What an order is: a rule that says which of the publications that arrived may be delivered now.

An order knows nothing of trees, gossip or sockets, so any of them can stand above any fabric. One instance serves one
process. A process stamps what it publishes, hands in what arrives, and delivers what comes back, in that sequence.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import Publication


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Ordered(Publication):
    """A publication that carries what must be delivered before it.

    ``dependencies`` holds one key per source (:func:`antiphon.kernel.message.publication_key`), meaning that
    publication and all before it from that source. The publication's own predecessor at its source is not listed;
    the sequence number implies it.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        dependencies: vec[i64],
        topic: i64 = 0,
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic)
        self.dependencies: Final[vec[i64]] = dependencies


@mypyc_attr(allow_interpreted_subclasses=True)
class Order:
    """The interface of every order.

    ``held_total`` counts the publications that had to wait, ``held_peak`` the most that waited at one time.
    """

    def __init__(self) -> None:
        self.held_total: i64 = 0
        self.held_peak: i64 = 0

    def count_held(self) -> None:
        """Called by orders when a publication begins to wait."""
        self.held_total += 1
        waiting = self.waiting()
        if waiting > self.held_peak:
            self.held_peak = waiting

    def stamp(self, sequence: i64) -> vec[i64]:
        """Called when this process publishes: the dependencies that its publication ``sequence`` must carry.

        The publication counts as delivered here from now on.
        """
        raise NotImplementedError

    def arrived(self, publication: Ordered) -> list[Ordered]:
        """Called once per arriving copy: what may now be delivered, in order. Duplicates give nothing."""
        raise NotImplementedError

    def waiting(self) -> i64:
        """How many publications have arrived and may not yet be delivered."""
        raise NotImplementedError
