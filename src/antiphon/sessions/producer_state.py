"""How far writers have come at all nodes: for a writer that writes again, or wants to know that all nodes have it."""

from __future__ import annotations

from typing import Protocol

from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import NodeProducerState
from antiphon.sessions.peer_messages import LaneState, PeerProducerRequest, PeerProducerResponse
from antiphon.sessions.scatter_gather import OtherNodes, ScatterGather
from antiphon.sessions.steps import Promise, Steps, Timers, start, wait
from antiphon.sessions.writers import Writers


class ProducerStateHost(Timers, OtherNodes, Protocol):
    """The node, as producer state needs it."""

    @property
    def has_log(self) -> bool:
        """Whether the node keeps what it delivers on a disk."""

    def is_member_of(self, topic: str) -> bool:
        """Whether the node is a member of a topic."""

    def until_committed(self) -> Promise[None]:
        """Kept when everything that was delivered so far is on disk."""


class ProducerStates:
    """Asks for one node, and answers others."""

    def __init__(self, writers: Writers, host: ProducerStateHost) -> None:
        self._writers = writers
        self._host = host
        self._scatter_gather: ScatterGather[Control] = ScatterGather(host, host)

    def ask(self, writer: int, lane: int | None, topics: list[str]) -> Steps[list[NodeProducerState]]:
        """The state at this node and at all others; a node that is gone says nothing."""
        own = yield from self._here(writer, lane, topics)
        answers = yield from self._scatter_gather.ask(lambda number: PeerProducerRequest(number, writer, lane, topics))
        others = [
            NodeProducerState(answer.lane_states, answer.member_of, answer.has_log)
            for answer in answers.values()
            if isinstance(answer, PeerProducerResponse)
        ]
        return [own, *others]

    def _here(self, writer: int, lane: int | None, topics: list[str]) -> Steps[NodeProducerState]:
        """The state on the disk of this node."""
        lane_states = [
            LaneState(each.topic, each.lane, each.number, each.digest)
            for each in self._writers.lane_states(writer, lane)
        ]
        named = dict.fromkeys((*topics, *(each.topic for each in lane_states)))
        member_of = [name for name in named if self._host.is_member_of(name)]
        yield from wait(self._host.until_committed())
        return NodeProducerState(lane_states, member_of, self._host.has_log)

    def on_message(self, sender: int, message: PeerProducerRequest | PeerProducerResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, PeerProducerResponse):
            self._scatter_gather.on_response(sender, message.number, message)
        else:
            start(self._answer(sender, message))

    def _answer(self, sender: int, message: PeerProducerRequest) -> Steps[None]:
        here = yield from self._here(message.writer, message.lane, message.topics)
        self._host.send_control(
            sender, PeerProducerResponse(message.number, here.lane_states, here.member_of, here.has_log)
        )

    def on_peer_lost(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._scatter_gather.on_peer_lost(identifier)
