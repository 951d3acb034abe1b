"""A process for topics on the cube: the parts that each has, and what the application does with it.

Three protocols are put together from such parts: VCube-PS for nodes that do not fail
(:mod:`antiphon.fabrics.cube.vcube_ps`), the same with aggregation (:mod:`antiphon.fabrics.cube.aggregation.process`),
and the one through crashes and partitions that live nodes run (:mod:`antiphon.fabrics.cube.fault_tolerant`). Each
chooses its parts. :meth:`CubeProcess.handle` leads from each message to the part that handles it; ``receive`` of each
protocol adds its own messages.

* ``topics``: the state of each topic, which all parts read and write;
* ``operations``: the queue of operations that the application asks for;
* ``nodes``: the cube;
* ``membership`` and ``surveys``: subscriptions, and the questions that newcomers ask;
* ``dissemination`` and ``delivery``: publications down trees, and in order to the application;
* ``total_order`` and ``lock_manager``: locks of total publications, and the lock manager who grants them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.dissemination import CubeDissemination
from antiphon.fabrics.cube.membership import MembershipListener, TopicMembership
from antiphon.fabrics.cube.messages import (
    Acknowledgement,
    Bundle,
    FrontierHandover,
    LeafCopy,
    Refusal,
    RegisterRequest,
    RegisterResponse,
    SurveyRequest,
    SurveyResponse,
    Unregister,
    Unsubscribe,
)
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.operations import Operations
from antiphon.fabrics.cube.surveys import Surveys
from antiphon.fabrics.cube.topic import MEMBER, CubeTopic, CubeTopicTable, Options
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_order.lock_manager import LockManager
from antiphon.fabrics.cube.total_order.messages import (
    GrantResponse,
    KeyLockRequest,
    KeyLockResponse,
    LockManagerMessage,
    LockManagerNotice,
    OpenClaims,
)
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder, WaveTotalOrder
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import CAUSAL, NO_KEYS, NONE, ORDER_NAMES, TOTAL, UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process, order_name


@final
class CubeFoundation:
    """Holds what all parts of a process on the cube share: the topics, the queue of operations, and the nodes."""

    def __init__(self, environment: Environment, cube: Cube, options: Options) -> None:
        self.environment: Final[Environment] = environment
        self.topics: Final = CubeTopicTable(environment.identifier, options)
        self.operations: Final = Operations(environment, self.topics)
        self.nodes: Final = CubeNodes(environment, cube, self.topics)


@final
class FaultFreeParts:
    """The parts of a process for nodes that do not fail, above its ``dissemination``."""

    def __init__(
        self,
        base: CubeFoundation,
        delivery: CubeDelivery,
        dissemination: CubeDissemination,
        listener: MembershipListener,
    ) -> None:
        environment, topics, nodes, operations = base.environment, base.topics, base.nodes, base.operations
        self.lock_manager: Final = LockManager(environment, topics, nodes)
        self.total_order: Final = WaveTotalOrder(
            environment, topics, nodes, operations, dissemination, delivery, self.lock_manager
        )
        self.surveys: Final = Surveys(environment, topics, nodes, self.total_order)
        self.membership: Final = TopicMembership(
            environment,
            topics,
            nodes,
            operations,
            dissemination,
            delivery,
            self.total_order,
            self.surveys,
            listener,
        )


class CubeProcess(Process):
    """One node of a topic system on the cube."""

    def __init__(
        self,
        base: CubeFoundation,
        dissemination: CubeDissemination,
        lock_manager: LockManager,
        total_order: CubeTotalOrder,
        surveys: Surveys,
        membership: TopicMembership,
    ) -> None:
        super().__init__(base.environment)
        self.options: Final[Options] = base.topics.options
        self.topic_table: Final[CubeTopicTable] = base.topics
        self.operations: Final[Operations] = base.operations
        self.nodes: Final[CubeNodes] = base.nodes
        self._dissemination: Final[CubeDissemination] = dissemination
        self._lock_manager: Final[LockManager] = lock_manager
        self._total_order: Final[CubeTotalOrder] = total_order
        self.surveys: Final[Surveys] = surveys
        self.membership: Final[TopicMembership] = membership
        base.operations.connect(membership, dissemination, total_order, surveys)
        lock_manager.connect(total_order)
        surveys.connect(membership)

    # Before the start.

    def begin_as_member(self, topic: i64, view: View) -> None:
        """Be a member from the start, knowing all other members: no messages are needed (before ``start``)."""
        self.membership.begin_as_member(topic, view)

    def begin_as_home(self, topic: i64, members: Sequence[int]) -> None:
        """List the members from the start, if this node is the topic's home (at every node, before ``start``)."""
        self.membership.begin_as_home(topic, members)

    def begin_counting_at(self, counter: i64) -> None:
        """Number subscriptions above those of a former life under the same identifier (before ``start``)."""
        self.topic_table.counter = max(self.topic_table.counter, counter)

    def begin_as_newcomer(self) -> None:
        """Others were here first: the lock manager among them says who it is (before ``start``)."""
        self._lock_manager.begin_as_newcomer()

    # Nodes that come and go, where nobody fails.

    def joined(self, node: i64) -> None:
        self.nodes.include(node)
        self._lock_manager.on_node_joined(node)

    def left(self, node: i64) -> None:
        self.nodes.remove(node)
        for topic in self.topics():
            topic.view.forget(node)
        self._lock_manager.on_node_left(node)

    def leave(self) -> None:
        self.nodes.leave()
        self._lock_manager.resign()

    # What arrives.

    def handle(self, sender: i64, message: ProtocolMessage) -> None:
        """Lead a message to the part that handles it."""
        if isinstance(message, (Publication, Bundle, Acknowledgement)):
            self._dissemination.receive(sender, message)
        elif isinstance(message, (SurveyRequest, SurveyResponse)):
            self.surveys.receive(sender, message)
        elif isinstance(message, (Unsubscribe, RegisterRequest, RegisterResponse, Unregister)):
            self.membership.receive(sender, message)
        elif isinstance(message, (KeyLockRequest, KeyLockResponse, GrantResponse)) or carries_lock(message):
            self._total_order.receive(sender, message)
        elif isinstance(message, (LeafCopy, Refusal)):
            self._dissemination.receive(sender, message)
        elif isinstance(message, (LockManagerMessage, LockManagerNotice, OpenClaims)):
            self._lock_manager.receive(sender, message)
        elif isinstance(message, FrontierHandover):
            self.nodes.on_frontier_handover(message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which VCube-PS does not know")

    # What the application does.

    def subscribe(self, topic: i64) -> None:
        self.operations.subscribe(topic)

    def unsubscribe(self, topic: i64) -> None:
        self.operations.unsubscribe(topic)

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self.operations.publish(NO_KEYS, payload, topic, self._chosen_order(order))

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        if not self.options.total:
            raise UsageError("keys are for total order, which is off here; publish without keys")
        return self.operations.publish(vec[i64](sorted(set(keys))), payload, topic, self._chosen_order(order))

    def room(self, topic: i64) -> i64:
        state = self.topic_table.get(topic)
        if state is None or state.state != MEMBER:
            return 0
        return max(0, self.options.window - state.in_flight - len(state.queue))

    def frontier_keys(self, topic: i64) -> list[int]:
        return list(self.topic_table.find(topic).order.frontier())

    def recipients(self, topic: i64) -> list[int] | None:
        state = self.topic_table.get(topic)
        if state is None or state.state != MEMBER:
            # A node that has left does not know who else has.
            return None
        return [*state.view.members(), *state.away]

    def known_nodes(self) -> list[int]:
        return self.nodes.cube.members()

    def _chosen_order(self, asked: i64) -> i64:
        """The order of a publication: what was asked for, if that may be, or the default."""
        if asked == UNSPECIFIED:
            return self.options.strength
        if not self.options.mixed:
            self.check_only_order(asked, self.options.strength)
        else:
            strongest = TOTAL if self.options.total else CAUSAL
            if not NONE <= asked <= strongest:
                names = ", ".join(ORDER_NAMES[: strongest + 1])
                raise UsageError(f"there is no order {order_name(asked)} here; choose one of {names}")
        return asked

    # What there is to see.

    def is_subscribed(self, topic: i64) -> bool:
        """Whether the application's last word on this topic was to subscribe."""
        known = self.topic_table.get(topic)
        return known is not None and known.wants_membership

    def topic(self, name: i64) -> CubeTopic | None:
        """The state of a topic, for inspection."""
        return self.topic_table.get(name)

    def topics(self) -> list[CubeTopic]:
        """The state of every topic that this node has heard of, for inspection."""
        return self.topic_table.all()

    def unfinished(self) -> i64:
        return self.topic_table.unfinished() + self.surveys.unfinished()

    def state(self) -> str:
        texts = (
            self.topic_table.text(),
            self.surveys.text(),
            self.membership.text(),
            self.nodes.text(),
            self._total_order.text(),
            self._lock_manager.text(),
        )
        return " ".join(texts)


def carries_lock(message: ProtocolMessage) -> bool:
    """Whether this is a lock for one member alone, or a lock that came back."""
    return isinstance(message, (LeafCopy, Refusal)) and isinstance(message.packet, KeyLockRequest)
