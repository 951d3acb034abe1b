"""Surveys where nodes may fail: a newcomer asks each node itself.

It costs as many messages as a tree of questions and does not depend on anybody between. Who is lost is not waited for.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import Answer, Question, Synchronise
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.surveys import Survey, Surveys, survey_key
from antiphon.fabrics.cube.topic import TopicTable
from antiphon.fabrics.cube.total_order.ordering import TotalOrder
from antiphon.kernel.process import NO_NODE, Environment


@final
class DirectSurveys(Surveys):
    """The questions that one node asks all others within reach, and answers to theirs."""

    def __init__(
        self,
        environment: Environment,
        topics: TopicTable,
        nodes: CubeNodes,
        total_order: TotalOrder,
        presence: Presence,
    ) -> None:
        super().__init__(environment, topics, nodes, total_order)
        self._presence: Final[Presence] = presence
        # By own question, who has not answered it.
        self._unanswered: dict[i64, dict[i64, bool]] = {}

    def ask_everybody(self, question: Question) -> None:
        present = self._presence.present
        survey = Survey(question, NO_NODE, len(present))
        if len(present) == 0:
            self.finish(survey)
            return
        key = survey_key(question)
        self.surveys[key] = survey
        self._unanswered[key] = dict(present)
        # Nobody is to pass it on.
        alone = question.narrowed_to(vec[i64]())
        for node in present:
            self.environment.send(node, alone)

    def receive_answer(self, sender: i64, answer: Answer) -> None:
        key = survey_key(answer)
        unanswered = self._unanswered.get(key)
        # A peer that was lost and found may still answer a question that does not wait for it any more.
        if unanswered is None or isinstance(self.surveys[key].question, Synchronise) != answer.is_past:
            return
        if sender in unanswered:
            self._not_waiting_for(key, unanswered, sender)
            super().receive_answer(sender, answer)

    def lost(self, peer: i64) -> None:
        """A node will not answer any more."""
        for key, unanswered in list(self._unanswered.items()):
            if peer in unanswered:
                self._not_waiting_for(key, unanswered, peer)
                self.one_answered(key, self.surveys[key])

    def _not_waiting_for(self, key: i64, unanswered: dict[i64, bool], peer: i64) -> None:
        del unanswered[peer]
        if len(unanswered) == 0:
            del self._unanswered[key]

    def text(self) -> str:
        unanswered = [(key, sorted(nodes)) for key, nodes in sorted(self._unanswered.items())]
        return f"{super().text()} {unanswered}"
