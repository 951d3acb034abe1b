"""How far writers have come at all nodes: for a writer that writes again, or wants to know that all nodes have it."""

from __future__ import annotations

from typing import Protocol

from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import NodeProducerState
from antiphon.sessions.peer_messages import LaneState, PeerProducerRequest, PeerProducerResponse
from antiphon.sessions.scatter_gather import Others, Questions
from antiphon.sessions.steps import Promise, Steps, Timers, start, wait
from antiphon.sessions.writers import Writers


class StandingsHost(Timers, Others, Protocol):
    """The node, as producer state needs it."""

    @property
    def has_log(self) -> bool:
        """Whether the node keeps what it delivers on a disk."""

    def is_member_of(self, topic: str) -> bool:
        """Whether the node is a member of a topic."""

    def until_committed(self) -> Promise[None]:
        """Kept when everything that was delivered so far is on disk."""


class Standings:
    """Asks for one node, and answers others."""

    def __init__(self, writers: Writers, host: StandingsHost) -> None:
        self._writers = writers
        self._host = host
        self._questions: Questions[Control] = Questions(host, host)

    def ask(self, writer: int, lane: int | None, topics: list[str]) -> Steps[list[NodeProducerState]]:
        """The state at this node and at all others; a node that is gone says nothing."""
        own = yield from self._here(writer, lane, topics)
        answers = yield from self._questions.ask(lambda number: PeerProducerRequest(number, writer, lane, topics))
        others = [
            NodeProducerState(answer.standings, answer.member_of, answer.has_log)
            for answer in answers.values()
            if isinstance(answer, PeerProducerResponse)
        ]
        return [own, *others]

    def _here(self, writer: int, lane: int | None, topics: list[str]) -> Steps[NodeProducerState]:
        """The state on the disk of this node."""
        standings = [
            LaneState(each.topic, each.lane, each.number, each.digest) for each in self._writers.standings(writer, lane)
        ]
        named = dict.fromkeys((*topics, *(each.topic for each in standings)))
        member_of = [name for name in named if self._host.is_member_of(name)]
        yield from wait(self._host.until_committed())
        return NodeProducerState(standings, member_of, self._host.has_log)

    def on_message(self, sender: int, message: PeerProducerRequest | PeerProducerResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, PeerProducerResponse):
            self._questions.answered(sender, message.number, message)
        else:
            start(self._answer(sender, message))

    def _answer(self, sender: int, message: PeerProducerRequest) -> Steps[None]:
        here = yield from self._here(message.writer, message.lane, message.topics)
        self._host.tell(sender, PeerProducerResponse(message.number, here.standings, here.member_of, here.has_log))

    def peer_gone(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._questions.peer_gone(identifier)
