"""How far writers have come at all nodes: for whoever writes something again, or wants to know that all have it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from antiphon.live.client_messages import NodeStandings
from antiphon.live.controls import AskWriter, LaneStanding, WriterIs
from antiphon.live.outbox import set_if_waiting
from antiphon.live.questions import Questions

if TYPE_CHECKING:
    from antiphon.live.node import Node


class Standings:
    """Asks for one node, and answers others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._questions = Questions(node)

    async def ask(self, writer: int, lane: int | None, topics: list[str]) -> list[NodeStandings]:
        """What this node and all others say; who is gone says nothing."""
        own = await self._here(writer, lane, topics)
        answers = await self._questions.ask(lambda number: AskWriter(number, writer, lane, topics))
        others = [
            NodeStandings(answer.standings, answer.member_of, answer.has_log)
            for answer in answers
            if isinstance(answer, WriterIs)
        ]
        return [own, *others]

    async def _here(self, writer: int, lane: int | None, topics: list[str]) -> NodeStandings:
        """What this node has on its disk."""
        node = self._node
        standings = [
            LaneStanding(each.topic, each.lane, each.number, each.digest)
            for each in node.writers.standings(writer, lane)
        ]
        named = dict.fromkeys((*topics, *(each.topic for each in standings)))
        member_of = [name for name in named if name in node.topics and node.topics[name].is_member()]
        if node.commit is not None:
            committed = node.loop.create_future()
            node.commit.then(partial(set_if_waiting, committed))
            await committed
        return NodeStandings(standings, member_of, node.store is not None)

    def told(self, sender: int, message: AskWriter | WriterIs) -> None:
        """Another node asks or answers."""
        if isinstance(message, WriterIs):
            self._questions.answered(sender, message.number, message)
        else:
            self._node.spawn(self._answer(sender, message))

    async def _answer(self, sender: int, message: AskWriter) -> None:
        here = await self._here(message.writer, message.lane, message.topics)
        self._node.cluster.tell(sender, WriterIs(message.number, here.standings, here.member_of, here.has_log))
        self._node.settle()

    def peer_gone(self, identifier: int) -> None:
        """Another node is not there any more."""
        self._questions.peer_gone(identifier)
