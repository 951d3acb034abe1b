"""Surveys where nodes may fail: a newcomer asks each node itself.

It costs as many messages as a tree of questions and depends on no node between. The newcomer does not wait for lost
nodes.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import SurveyRequest, SurveyResponse, Synchronise
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.surveys import Survey, Surveys, survey_key
from antiphon.fabrics.cube.topic import CubeTopicTable
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder
from antiphon.kernel.process import NO_NODE, Environment


@final
class DirectSurveys(Surveys):
    """The questions that one node asks all others within reach, and answers to theirs."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        total_order: CubeTotalOrder,
        presence: Presence,
    ) -> None:
        super().__init__(environment, topics, nodes, total_order)
        self._presence: Final[Presence] = presence

    def ask_all(self, question: SurveyRequest) -> None:
        present = list(self._presence.present)
        survey = Survey(question, NO_NODE, present)
        if len(present) == 0:
            self.finish(survey)
            return
        self.surveys[survey_key(question)] = survey
        # Nobody is to pass it on.
        alone = question.narrowed_to(vec[i64]())
        for node in present:
            self.environment.send(node, alone)

    def on_response(self, sender: i64, answer: SurveyResponse) -> None:
        survey = self.surveys.get(survey_key(answer))
        # A peer that was lost and found may still answer a question that does not wait for it any more.
        if (
            survey is not None
            and isinstance(survey.question, Synchronise) == answer.is_past
            and survey.pending.waits_for(sender)
        ):
            super().on_response(sender, answer)

    def on_peer_lost(self, peer: i64) -> None:
        """A node will not answer any more."""
        for key, survey in list(self.surveys.items()):
            self.settle(key, survey, peer)

    def text(self) -> str:
        unanswered = [(key, sorted(survey.pending.peers())) for key, survey in sorted(self.surveys.items())]
        return f"{super().text()} {unanswered}"
