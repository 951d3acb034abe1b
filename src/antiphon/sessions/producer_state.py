"""How far writers have come at all nodes: for whoever writes something again, or wants to know that all have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from antiphon.api.topic_state import LiveTopic
from antiphon.membership.messages import Control
from antiphon.runtime.scatter_gather import Others, Questions
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.writers import Writers
from antiphon.storage.disk import Disk
from antiphon.transport.client_messages import NodeProducerState
from antiphon.transport.peer_messages import LaneState, PeerProducerRequest, PeerProducerResponse


class Standings:
    """Asks for one node, and answers others."""

    def __init__(
        self,
        writers: Writers,
        topics: Mapping[str, LiveTopic],
        disk: Disk,
        others: Others,
        settle: Callable[[], None],
        tasks: Tasks,
    ) -> None:
        self._writers = writers
        self._topics = topics
        self._disk = disk
        self._others = others
        self._settle = settle
        self._tasks = tasks
        self._questions: Questions[Control] = Questions(others, settle)

    async def ask(self, writer: int, lane: int | None, topics: list[str]) -> list[NodeProducerState]:
        """What this node and all others say; who is gone says nothing."""
        own = await self._here(writer, lane, topics)
        answers = await self._questions.ask(lambda number: PeerProducerRequest(number, writer, lane, topics))
        others = [
            NodeProducerState(answer.standings, answer.member_of, answer.has_log)
            for answer in answers
            if isinstance(answer, PeerProducerResponse)
        ]
        return [own, *others]

    async def _here(self, writer: int, lane: int | None, topics: list[str]) -> NodeProducerState:
        """What this node has on its disk."""
        standings = [
            LaneState(each.topic, each.lane, each.number, each.digest) for each in self._writers.standings(writer, lane)
        ]
        named = dict.fromkeys((*topics, *(each.topic for each in standings)))
        member_of = [name for name in named if name in self._topics and self._topics[name].is_member()]
        if self._disk.commit is not None:
            await self._disk.commit.until_committed()
        return NodeProducerState(standings, member_of, self._disk.store is not None)

    def on_message(self, sender: int, message: PeerProducerRequest | PeerProducerResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, PeerProducerResponse):
            self._questions.answered(sender, message.number, message)
        else:
            self._tasks.spawn(self._answer(sender, message))

    async def _answer(self, sender: int, message: PeerProducerRequest) -> None:
        here = await self._here(message.writer, message.lane, message.topics)
        self._others.tell(sender, PeerProducerResponse(message.number, here.standings, here.member_of, here.has_log))
        self._settle()

    def peer_gone(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._questions.peer_gone(identifier)
