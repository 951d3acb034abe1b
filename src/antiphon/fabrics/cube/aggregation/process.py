"""VCube-PS whose forwarders hold back what nobody below them could deliver yet.

A member that forwards ``x`` holds it back from a cluster while it lacks some ``y`` that happened before ``x`` and that
it will have to send there as well; then both go in one packet. The part that does it, and why it delays no delivery, is
in :mod:`antiphon.fabrics.cube.aggregation.dissemination`; all other parts are those of
:mod:`antiphon.fabrics.cube.vcube_ps`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.aggregation.dissemination import AggregatingDissemination, HoldingFollower
from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Parcel, Traffic
from antiphon.fabrics.cube.delivery import Delivery
from antiphon.fabrics.cube.membership import TopicMembership
from antiphon.fabrics.cube.messages import (
    Acknowledgement,
    Answer,
    Bequest,
    Bundle,
    LeafCopy,
    Question,
    Refusal,
    Register,
    Registered,
    Unregister,
    Unsubscribe,
)
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.operations import Operations
from antiphon.fabrics.cube.process import CubeProcess, carries_lock, unknown
from antiphon.fabrics.cube.surveys import Surveys
from antiphon.fabrics.cube.topic import Options, TopicTable
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_order.lock_manager import LockManager
from antiphon.fabrics.cube.total_order.messages import Closed, Granted, KeeperIs, KeyLock, Standing, ToKeeper
from antiphon.fabrics.cube.total_order.ordering import WaveTotalOrder
from antiphon.kernel.message import Message, Publication
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
        topics = TopicTable(environment.identifier, options)
        operations = Operations(environment, topics)
        nodes = CubeNodes(environment, cube, topics)
        delivery = Delivery(environment, operations)
        self.dissemination: Final = AggregatingDissemination(
            environment, topics, nodes, operations, delivery, form, traffic, holds
        )
        self.lock_manager: Final = LockManager(environment, topics, nodes)
        self.total_order: Final = WaveTotalOrder(
            environment, topics, nodes, operations, self.dissemination, delivery, self.lock_manager
        )
        surveys = Surveys(environment, topics, nodes, self.total_order)
        membership = TopicMembership(
            environment,
            topics,
            nodes,
            operations,
            self.dissemination,
            delivery,
            self.total_order,
            surveys,
            HoldingFollower(self.dissemination),
        )
        super().__init__(
            environment,
            topics,
            operations,
            nodes,
            self.dissemination,
            self.lock_manager,
            self.total_order,
            surveys,
            membership,
        )

    def begin_as_newcomer(self) -> None:
        self.lock_manager.begin_as_newcomer()

    @property
    def held_total(self) -> i64:
        """How many packets were held back."""
        return self.dissemination.held_total

    def held_back(self) -> i64:
        """How many packets still have to go into some cluster."""
        return self.dissemination.held_back()

    # Nodes that come and go.

    def joined(self, node: i64) -> None:
        self.nodes.include(node)
        self.lock_manager.joined(node)

    def left(self, node: i64) -> None:
        self.nodes.remove(node)
        for topic in self.topics():
            topic.view.forget(node)
        self.lock_manager.left(node)
        self.dissemination.node_left()

    def leave(self) -> None:
        self.nodes.leave()
        self.lock_manager.resign()

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, (Publication, Bundle, Acknowledgement, Parcel)):
            self.dissemination.receive(sender, message)
        elif isinstance(message, (Question, Answer)):
            self.surveys.receive(sender, message)
        elif isinstance(message, (Unsubscribe, Register, Registered, Unregister)):
            self.membership.receive(sender, message)
        elif isinstance(message, (KeyLock, Closed, Granted)) or carries_lock(message):
            self.total_order.receive(sender, message)
        elif isinstance(message, (LeafCopy, Refusal)):
            self._receive_copy(sender, message)
        elif isinstance(message, (ToKeeper, KeeperIs, Standing)):
            self.lock_manager.receive(sender, message)
        elif isinstance(message, Bequest):
            self.nodes.receive_bequest(message)
        else:
            raise unknown(sender, message)
        if self.options.total:
            self.operations.advance_opened()
        self.dissemination.send_answers()

    def _receive_copy(self, sender: i64, message: Message) -> None:
        """A copy for this node alone, or one that came back: others may have waited for the former."""
        self.dissemination.receive(sender, message)
        if isinstance(message, LeafCopy):
            if self.options.total:
                self.operations.advance_opened()
            self.dissemination.after_leaf_copy(message)

    def state(self) -> str:
        return f"{super().state()} {self.total_order.text()} {self.lock_manager.text()} {self.dissemination.text()}"
