"""A node among others: its process gets a place in the cluster, and hears of whoever comes, goes and says something.

Here the membership of a node (:mod:`antiphon.membership.membership`) meets the parts that have to do with other nodes:
the topics they publish on, the clients that go from one to another, and how far writers have come.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from antiphon.api.batch import Batch
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.topic_names import checked_name
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Process
from antiphon.membership.host import Place
from antiphon.membership.messages import Control
from antiphon.membership.policies import new_membership
from antiphon.node.environment import LiveEnvironment
from antiphon.node.gateway.session_host import SessionHost, check_batches
from antiphon.node.loop import NodeLoop
from antiphon.node.membership_host import MembershipHost
from antiphon.node.settings import Settings
from antiphon.node.spaces import new_process_with_spaces
from antiphon.node.streams.relay import StreamRelay
from antiphon.node.subscriptions import Subscriptions
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.client_messages import StreamRequest, StreamResponse
from antiphon.sessions.host import FabricTraits
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.peer_messages import (
    DedupRequest,
    DedupResponse,
    FrontierRequest,
    FrontierResponse,
    PeerProducerRequest,
    PeerProducerResponse,
    ReplayRequest,
    ReplayResponse,
)
from antiphon.sessions.producer_state import ProducerStates
from antiphon.storage.disk import Disk
from antiphon.storage.log_reader import topics_in
from antiphon.streams.service.service import StreamService
from antiphon.transport.peer_messages import CreditRequest, StreamFrame, TopicAnnouncement, TopicAnnouncementAck


def check_foreign_name(name: str, sender: int) -> None:
    """Refuse names that no application could have given."""
    try:
        checked_name(name)
    except UsageError as error:
        raise ProtocolError(f"node {sender} names a topic that cannot be: {error}") from error


@dataclass(frozen=True)
class Foundation:
    """The parts of a node that are there before it knows where it listens."""

    settings: Settings
    instance: str
    context: ssl.SSLContext | None
    loop: NodeLoop
    disk: Disk
    tasks: Tasks
    lifecycle: Lifecycle


class ProcessMaker:
    """Makes the process of a node, and what connects it to the other nodes; experiments make others."""

    def new_members(self, node: Foundation, address: str, publish_on: Callable[[str], None]) -> Members:
        """The other nodes, as a node sees them that listens at an address."""
        return Members(node, address, self, publish_on)

    def new_environment(self, node: Foundation, identifier: int) -> LiveEnvironment:
        """The actions of the node's process on the world."""
        return LiveEnvironment(identifier, node.loop, node.disk, secrets.randbits(62))

    def new_process(self, node: Foundation, environment: LiveEnvironment, members: list[int]) -> Process:
        """The process of a node, which has its place beside these others."""
        settings = node.settings
        new_process, choices = FABRICS[settings.fabric].implementation().new_process, settings.choices()
        return new_process_with_spaces(
            settings, node.loop.topics, environment, lambda below: new_process(choices, below, members)
        )


class Members:
    """The other nodes, and what happens when they come, go or say something."""

    counts_past = True
    """Whether the process can say all that counts as past; those of experiments need not."""

    def __init__(self, node: Foundation, address: str, maker: ProcessMaker, publish_on: Callable[[str], None]) -> None:
        settings, loop, disk, tasks = node.settings, node.loop, node.disk, node.tasks
        self._node = node
        self._loop = loop
        self._disk = disk
        self._maker = maker
        self._environment: LiveEnvironment | None = None
        self.host = MembershipHost(loop, disk, node.context, settings.lost_seconds)
        place = Place(node.instance, address, settings, self.host, self)
        fabric = FABRICS[settings.fabric]
        self.cluster = loop.cluster = self.host.membership = new_membership(fabric.membership, place, settings.table)
        counts_past = self.counts_past and not fabric.has_barriers
        traits = FabricTraits(fabric.has_barriers, counts_past, fabric.may_pass_over, fabric.membership.is_full)
        self.session_host = SessionHost(loop, self.cluster, disk, node.lifecycle, publish_on)
        self.sessions: NodeEnd[Batch] = NodeEnd(traits, self.session_host)
        loop.sessions = self.sessions
        self.producer_states = ProducerStates(loop.writers, self.session_host)
        self.subscriptions = Subscriptions(loop, self.sessions, node.lifecycle, tasks)
        self._topic_registry = self.subscriptions.topic_registry
        # Set when the node has its place, if it keeps streams.
        self.streams: StreamService | None = None
        self.relay: StreamRelay
        if disk.store is not None:
            self._topic_registry.learn(topics_in(disk.store))

    @property
    def identifier(self) -> int:
        """The number of this node in its cluster."""
        return self._loop.identifier

    @property
    def process(self) -> Process | None:
        """The process of this node, from the moment it has its place."""
        return self._loop.process

    def peer_addresses(self) -> list[str]:
        """Where the other nodes are."""
        return self.cluster.addresses()

    def topic_names(self) -> set[str]:
        """The topics that this node has heard of."""
        return self._topic_registry.names

    def news(self) -> list[Control]:
        """The facts for every node to which this one opens a link: the topics that it has heard of."""
        names = sorted(self._topic_registry.names)
        return [TopicAnnouncement(names, False)] if names else []

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good."""
        self._loop.fail(error)

    # The place of this node.

    def placed(self, identifier: int, members: list[int]) -> None:
        """This node has its place: there is a process from now on."""
        self._loop.identifier = identifier
        if self._disk.journal is not None and not self.cluster.is_returning:
            # What an earlier life has written was said under another identifier.
            self._disk.journal.rewrite([])
        self._environment = self._maker.new_environment(self._node, identifier)
        process = self._loop.process = self._maker.new_process(self._node, self._environment, members)
        process.start()

    def entered(self) -> None:
        """This node is in its cluster."""
        self.host.entered()

    def refused(self, reason: str) -> None:
        """This node cannot join."""
        self.host.refused(reason)

    def displaced(self) -> None:
        """This node has no place any more: nothing is to be done that its process wanted."""
        if self._environment is not None:
            self._environment.cancel_all_timers()

    def past_is_void(self) -> None:
        """The deliveries of an earlier incarnation of this node mean nothing in this cluster."""
        if self._loop.checkpoints is not None:
            self._loop.checkpoints.void()

    # Those who come and go.

    def peer_lost(self, identifier: int) -> None:
        """Another node cannot be reached any more."""
        self._topic_registry.on_peer_lost(identifier)
        if self.streams is not None:
            self.streams.peer_lost(identifier)
        self.relay.peer_lost(identifier)
        self.sessions.on_peer_lost(identifier)
        self.producer_states.on_peer_lost(identifier)

    def peer_found(self, identifier: int) -> None:
        """Another node can be reached, for the first time or again."""
        self._topic_registry.peer_joined(identifier)
        if self.streams is not None:
            self.streams.peer_found(identifier)

    def transmit(self, identifier: int, message: ProtocolMessage) -> None:
        """A message of the process, for which there was no link when it was sent, can be sent now."""
        self._loop.transmit(identifier, message)

    def peers_changed(self) -> None:
        """Clients are to know that they can go to others than before."""
        self.sessions.tell_nodes()

    def link_lost(self, identifier: int) -> None:
        """A peer that the process watches is lost."""
        assert self.process is not None, "only a process watches"
        try:
            self.process.peer_lost(identifier)
        except Exception as error:
            self._loop.unhandled(error)
        # In gossip nobody else says that a neighbour is lost, and its answers would be awaited.
        self.sessions.on_peer_lost(identifier)
        self.producer_states.on_peer_lost(identifier)
        self._loop.settle_everywhere()

    def link_found(self, identifier: int) -> None:
        """A peer that the process watches, and that was lost, can be reached again."""
        assert self.process is not None, "only a process watches"
        try:
            self.process.peer_found(identifier)
        except Exception as error:
            self._loop.unhandled(error)
        self._loop.settle_everywhere()

    def control_received(self, sender: int, message: msgspec.Struct) -> None:
        """A peer's host has something to say."""
        if isinstance(message, TopicAnnouncement):
            for name in message.topics:
                check_foreign_name(name, sender)
            self._topic_registry.peer_publishes(sender, message)
        elif isinstance(message, TopicAnnouncementAck):
            self._topic_registry.on_ack(sender, message.topic)
        elif isinstance(message, CreditRequest):
            self._loop.credit_wanted(message.topic)
        elif isinstance(
            message, (DedupRequest, DedupResponse, ReplayRequest, ReplayResponse, FrontierRequest, FrontierResponse)
        ):
            if isinstance(message, ReplayResponse):
                check_batches(sender, message)
            self.sessions.on_message(sender, message)
        elif isinstance(message, (StreamFrame, StreamRequest, StreamResponse)):
            self._on_streams(sender, message)
        elif isinstance(message, (PeerProducerRequest, PeerProducerResponse)):
            self.producer_states.on_message(sender, message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which only clients send")

    def _on_streams(self, sender: int, message: StreamFrame | StreamRequest | StreamResponse) -> None:
        if not isinstance(message, StreamFrame):
            self.relay.on_message(sender, message)
        elif self.streams is not None:
            # A node that has no place yet greets the others when it has one.
            self.streams.on_frame(sender, message.is_replica, message.payload)
