"""VCube-PS whose forwarders hold back what nobody below them could deliver yet.

A member that forwards ``x`` holds it back from a cluster while it lacks some ``y`` that happened before ``x`` and that
it will have to send there as well; then both go in one packet. The part that does it, and why it delays no delivery, is
in :mod:`antiphon.fabrics.cube.aggregation.dissemination`; all other parts are those of
:mod:`antiphon.fabrics.cube.vcube_ps`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.aggregation.dissemination import AggregatingDissemination, HoldingListener
from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Parcel, Traffic
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.messages import LeafCopy
from antiphon.fabrics.cube.process import CubeFoundation, CubeProcess, FaultFreeParts, carries_lock
from antiphon.fabrics.cube.topic import Options
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment


@final
class AggregatingVCubePs(CubeProcess):
    """One node of the topic system, where nobody fails and packets wait for each other.

    ``form`` bounds and measures parcels; ``traffic`` counts them, for those who measure. With ``holds`` false nothing
    is held back, which leaves the measuring.
    """

    def __init__(
        self,
        environment: Environment,
        cube: Cube,
        options: Options,
        form: PacketFormat | None = None,
        traffic: Traffic | None = None,
        holds: bool = True,
    ) -> None:
        base = CubeFoundation(environment, cube, options)
        delivery = CubeDelivery(environment, base.operations)
        self.dissemination: Final = AggregatingDissemination(
            environment, base.topics, base.nodes, base.operations, delivery, form, traffic, holds
        )
        parts = FaultFreeParts(base, delivery, self.dissemination, HoldingListener(self.dissemination))
        super().__init__(
            base, self.dissemination, parts.lock_manager, parts.total_order, parts.surveys, parts.membership
        )

    @property
    def held_total(self) -> i64:
        """How many packets were held back."""
        return self.dissemination.held_total

    def held_back(self) -> i64:
        """How many packets still have to go into some cluster."""
        return self.dissemination.held_back()

    def left(self, node: i64) -> None:
        super().left(node)
        self.dissemination.node_left()

    # What arrives.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Parcel):
            self.dissemination.receive(sender, message)
        else:
            self.handle(sender, message)
        if self.options.total:
            self.operations.advance_opened()
        if isinstance(message, LeafCopy) and not carries_lock(message):
            # Others may have waited for it.
            self.dissemination.after_leaf_copy(message)
            if self.options.total:
                self.operations.advance_opened()
        self.dissemination.send_answers()

    def state(self) -> str:
        return f"{super().state()} {self.dissemination.text()}"
