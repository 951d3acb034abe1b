"""VCube-PS through crashes, returns and partitions, as live nodes run it.

Goes beyond the thesis, which leaves failures as future work (section 6.2). Links are connections: they neither lose nor
reorder while they are up, and the host says when one breaks and when it is back. ``docs/proofs/cube-through-faults.md``
argues it.

* Trees lead around lost nodes (:mod:`antiphon.fabrics.cube.repair.tree_repair`), and a newcomer asks each node itself
  (:mod:`antiphon.fabrics.cube.repair.surveys`).
* Members give each other the publications that a tree failed to carry
  (:mod:`antiphon.fabrics.cube.repair.anti_entropy`), also members that restart with their logs.
* Total order goes on where a majority is within reach (:mod:`antiphon.fabrics.cube.total_order.quorum`). Locks lead
  around lost nodes too (:mod:`antiphon.fabrics.cube.total_order.repair`), and places decide which publications come too
  late (:mod:`antiphon.fabrics.cube.repair.delivery`).

Both sides of a partition go on by themselves, each with its own trees.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.membership import TopicMembership
from antiphon.fabrics.cube.messages import (
    Acknowledgement,
    Bundle,
    SurveyRequest,
    SurveyResponse,
)
from antiphon.fabrics.cube.process import CubeFoundation, CubeProcess
from antiphon.fabrics.cube.repair.anti_entropy import CubeAntiEntropy
from antiphon.fabrics.cube.repair.delivery import RepairedDelivery
from antiphon.fabrics.cube.repair.messages import Digest, RepairBatch, Unavailable
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.repair.retransmission import CubeRetransmission
from antiphon.fabrics.cube.repair.surveys import DirectSurveys
from antiphon.fabrics.cube.repair.tree_repair import RepairedDissemination
from antiphon.fabrics.cube.repair.unsettled import COMPARING, UnsettledTopics
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, CubeTopic, FaultOptions, Options, mixed
from antiphon.fabrics.cube.topology import Cube
from antiphon.fabrics.cube.total_order.calm import EXCLUDING
from antiphon.fabrics.cube.total_order.electorate import Electorate
from antiphon.fabrics.cube.total_order.messages import (
    Unlock,
    VoterAgreement,
    VoterChange,
    VoterChangeResponse,
    VoterNotice,
)
from antiphon.fabrics.cube.total_order.quorum import QuorumLockManager
from antiphon.fabrics.cube.total_order.repair import RepairedTotalOrder
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment


@final
class FaultTolerantVCubePs(CubeProcess):
    """One node of a topic system whose nodes fail, come back and lose each other."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        faults.check(options)
        base = CubeFoundation(environment, cube, options)
        topics, operations, nodes = base.topics, base.operations, base.nodes
        self.presence: Final = Presence(environment, cube)
        self.unsettled_topics: Final = UnsettledTopics(environment, faults.compare_ticks)
        self.retransmission: Final = CubeRetransmission(environment, faults, options.total)
        self.delivery: Final = RepairedDelivery(
            environment, operations, self.presence, self.retransmission, self.unsettled_topics
        )
        self.dissemination: Final = RepairedDissemination(
            environment, topics, nodes, operations, self.delivery, self.retransmission
        )
        self.electorate: Final = Electorate(environment, cube, self.presence, options.total)
        self.lock_manager: Final = QuorumLockManager(
            environment, topics, nodes, operations, self.presence, self.electorate, faults
        )
        self.total_order: Final = RepairedTotalOrder(
            environment,
            topics,
            nodes,
            operations,
            self.dissemination,
            self.delivery,
            self.lock_manager,
            self.presence,
            self.electorate,
            self.unsettled_topics,
        )
        self.direct_surveys: Final = DirectSurveys(environment, topics, nodes, self.total_order, self.presence)
        self.anti_entropy: Final = CubeAntiEntropy(
            environment,
            topics,
            nodes,
            operations,
            self.presence,
            self.unsettled_topics,
            self.delivery,
            self.retransmission,
            self.total_order,
            faults,
        )
        membership = TopicMembership(
            environment,
            topics,
            nodes,
            operations,
            self.dissemination,
            self.delivery,
            self.total_order,
            self.direct_surveys,
            self.anti_entropy,
        )
        super().__init__(base, self.dissemination, self.lock_manager, self.total_order, self.direct_surveys, membership)

    # The life of the process.

    def begin_counting_at(self, counter: i64) -> None:
        super().begin_counting_at(counter)
        self.total_order.attempt = max(self.total_order.attempt, counter)

    def start(self) -> None:
        self.presence.watch_all()
        self.lock_manager.start()

    def expire(self, name: i64) -> None:
        if name == COMPARING:
            self.anti_entropy.expire()
        elif name == EXCLUDING:
            self.lock_manager.expire()

    def synced(self) -> None:
        self.lock_manager.synced()

    # Who is within reach.

    def joined(self, node: i64) -> None:
        if node not in self.presence.present:
            self.environment.watch(node)
            self._on_found(node)
        if self.options.total:
            self.lock_manager.on_voter_found(node)

    def left(self, node: i64) -> None:
        self.peer_lost(node)
        if self.options.total:
            self.lock_manager.on_voter_left(node)

    def peer_found(self, peer: i64) -> None:
        if peer not in self.presence.present:
            self._on_found(peer)
        if self.options.total:
            self.lock_manager.on_voter_found(peer)

    def _on_found(self, peer: i64) -> None:
        self.presence.on_found(peer)
        self.nodes.include(peer)
        self.lock_manager.on_node_joined(peer)
        for topic in self.topics():
            # It may also lack what this node said before it left.
            if topic.state == MEMBER or (topic.state == OUTSIDE and topic.retransmit_buffer is not None):
                self.anti_entropy.on_member_found(topic, peer)
            elif topic.state != OUTSIDE:
                self.presence.meet(topic, peer)

    def peer_lost(self, peer: i64) -> None:
        if peer not in self.presence.present:
            return
        # Before anything goes on for which there is no majority any more.
        self.electorate.count(peer)
        self.presence.on_lost(peer)
        self.nodes.remove(peer)
        for topic in self.topics():
            self._on_member_lost(topic, peer)
        self.lock_manager.on_node_left(peer)
        self.direct_surveys.on_peer_lost(peer)
        if self.options.total:
            self.operations.advance_opened()
            self.lock_manager.on_voter_lost(peer)

    def _on_member_lost(self, topic: CubeTopic, node: i64) -> None:
        """A node is lost, member or not: nothing waits for it, and other nodes serve its clusters."""
        self.dissemination.on_member_lost(topic, node)
        if topic.state == MEMBER and node in topic.away:
            self.unsettled_topics.disturb(topic)
        self.total_order.on_member_lost(topic, node)
        self.anti_entropy.on_member_lost(topic, node)

    # What hosts and operators ask.

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        return self.lock_manager.refusal(order)

    def first_unsettled(self, topic: i64) -> i64:
        return self.dissemination.first_unsettled(topic)

    def frontier_keys(self, topic: i64) -> list[int]:
        return list(mixed(self.topic_table.find(topic)).frontier())

    def voters(self) -> list[int]:
        """The voters: total order needs a majority of them."""
        return sorted(self.electorate.voters)

    def missing_voters(self) -> list[int]:
        """The voters that are out of reach."""
        return self.electorate.missing()

    def dismiss(self, voters: list[int]) -> None:
        """An operator says that voters are gone for good: they do not count any more, and all nodes are told."""
        self.lock_manager.dismiss(voters)

    # What arrives.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, (Publication, Bundle)):
            self.dissemination.on_packet(sender, message)
        elif isinstance(message, Acknowledgement):
            self.dissemination.on_ack(sender, message)
        elif isinstance(message, (Digest, RepairBatch, Unavailable)):
            self.anti_entropy.receive(sender, message)
        elif isinstance(message, (SurveyRequest, SurveyResponse)):
            self._on_survey(sender, message)
        elif isinstance(message, Unlock):
            self.total_order.receive(sender, message)
        elif isinstance(message, (VoterChange, VoterChangeResponse, VoterAgreement, VoterNotice)):
            self.lock_manager.receive(sender, message)
        else:
            self.handle(sender, message)
        if self.options.total:
            self.operations.advance_opened()

    def _on_survey(self, sender: i64, message: ProtocolMessage) -> None:
        self.direct_surveys.receive(sender, message)
        if isinstance(message, SurveyRequest):
            if self.options.total:
                self.operations.advance_opened()
            topic = self.topic(message.topic)
            if topic is not None:
                self._on_newcomer(topic, sender)

    def _on_newcomer(self, topic: CubeTopic, newcomer: i64) -> None:
        """A newcomer answers for itself: everything known of it before is out of date."""
        self.anti_entropy.not_away(topic, newcomer)
        if newcomer not in self.presence.present:
            # It was lost since it asked, or was found and this node does not know yet.
            self._on_member_lost(topic, newcomer)

    def state(self) -> str:
        parts = (
            self.presence.text(),
            self.delivery.text(),
            self.retransmission.text(),
            self.unsettled_topics.text(),
            self.anti_entropy.text(),
        )
        return f"{super().state()} {' '.join(parts)}"
