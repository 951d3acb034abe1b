"""VCube-PS, repaired: topics with per-publisher trees of subscribers only, through joins and leaves.

Follows chapter 5 of the thesis: a publication goes down a tree that is rooted at its publisher and holds subscribers
only; a wave of acknowledgements comes back up; causal order is kept per topic by causal barriers. The printed
algorithms lose publications and block subscribers when membership changes
(:mod:`antiphon_lab.protocols.cube.vcube_ps_published` has them as they are). This module differs from them:

* A newcomer floods ``Subscribe`` to all nodes; it is *passive* at every node that knows it. When all have answered it
  has a complete view: each member has answered for itself, and no node for others. It floods ``Synchronise``, which
  makes it *active*; the answers carry what each node counts as past. Their union is a consistent cut, the newcomer's
  starting point. Then the subscription is effective, and the environment is told.
* Only active members are given a cluster to serve. Passive ones get a copy of their own where a cluster has no active
  member.
* A receiver that is not a member returns the copy; the sender forgets it and gives the cluster to the next member.
  So there are no relays, nothing is lost to a stale view, and a stale entry is corrected at its first use. An
  ``Unsubscribe`` therefore needs neither acknowledgement nor tombstones.
* Publications are numbered per topic without gaps, so several can be in flight (``window``): order is restored at the
  receiver and no longer bought with one round trip per publication. Those that had to queue for the window travel
  together (``bundle``).
* Each publication may choose its own order (``mixed``), also total order about some keys (``total``).
* With ``directory`` a newcomer asks the topic's home node for the members instead of flooding.

``docs/proofs/vcube-ps.md`` argues why nothing is lost and nobody blocks; the tests explore all schedules of small
systems. Links must not lose or duplicate; they may reorder. Nodes do not fail here: those that may are in
:mod:`antiphon.fabrics.cube.fault_tolerant`.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.dissemination import WaveDissemination
from antiphon.fabrics.cube.membership import MembershipListener
from antiphon.fabrics.cube.process import CubeFoundation, CubeProcess, FaultFreeParts
from antiphon.fabrics.cube.topic import CubeTopic, Options
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment

__all__ = ["CubeTopic", "Options", "VCubePs"]


@final
class VCubePs(CubeProcess):
    """One node of the topic system, where nobody fails."""

    def __init__(self, environment: Environment, cube: Cube, options: Options) -> None:
        base = CubeFoundation(environment, cube, options)
        delivery = CubeDelivery(environment, base.operations)
        dissemination = WaveDissemination(environment, base.topics, base.nodes, base.operations, delivery)
        parts = FaultFreeParts(base, delivery, dissemination, MembershipListener())
        super().__init__(base, dissemination, parts.lock_manager, parts.total_order, parts.surveys, parts.membership)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        self.handle(sender, message)
        if self.options.total:
            self.operations.advance_opened()
