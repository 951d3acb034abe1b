"""Tests of your own application: a real cluster inside one test, on a virtual clock, with faults to order.

@antiphon.testing.with_cluster(nodes=3)
async def test_the_answer_waits_for_its_question(cluster: antiphon.testing.Cluster) -> None:
    anna = await cluster.connect(0)
    ...

The nodes and clients are those of the product, and speak over loopback. Only time is not real: when nothing is left to
do, the clock jumps to the next timer, so an hour passes in a moment. ``cluster.py`` is the place to start.
Imports ``node`` and ``client``; nothing but tests imports it.
"""

from __future__ import annotations

from antiphon.testing.cluster import Cluster, run, with_cluster

__all__ = ["Cluster", "run", "with_cluster"]
