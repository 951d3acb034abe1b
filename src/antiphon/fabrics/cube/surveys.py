"""Questions that newcomers ask on their way to become members, and the answers that come back.

A survey goes down a tree of the cube and its answers come back up. Whom it asks is either everybody, or those whom the
question names. ``docs/proofs/vcube-ps.md`` argues that either is enough.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import SurveyRequest, SurveyResponse, Synchronise, append_all, member_entry
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import OUTSIDE, SUBSCRIBING, CubeTopic, CubeTopicTable, Options
from antiphon.fabrics.cube.topology import cluster
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ProtocolMessage, publication_key
from antiphon.kernel.pending_replies import PendingReplies
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import merged_frontiers


@final
class Survey:
    """A question on its way through this node: its parent, the nodes that have to answer, and the answers so far."""

    def __init__(self, question: SurveyRequest, parent: i64, asked: list[i64]) -> None:
        self.question: Final[SurveyRequest] = question
        self.parent: Final[i64] = parent
        self.pending: Final = PendingReplies(asked)
        self.entries: vec[i64] = vec[i64]()
        self.announced: vec[i64] = vec[i64]()


class SurveyClient:
    """The part of this node that asks questions and uses the answers."""

    def on_survey_done(self, topic: CubeTopic, survey: Survey) -> None:
        """All have answered a question of this node."""
        raise NotImplementedError


class Surveys:
    """The questions that pass through one node, its own and those of others."""

    # It is made after this, because it asks questions: see ``connect``.
    _client: SurveyClient

    def __init__(
        self, environment: Environment, topics: CubeTopicTable, nodes: CubeNodes, total_order: CubeTotalOrder
    ) -> None:
        self.environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self._options: Final[Options] = topics.options
        self._nodes: Final[CubeNodes] = nodes
        self._total_order: Final[CubeTotalOrder] = total_order
        self.surveys: dict[i64, Survey] = {}
        # By topic, those that this node cannot answer yet.
        self._delayed: dict[i64, list[Survey]] = {}

    def connect(self, client: SurveyClient) -> None:
        """Learn which part of this node asks (before anything is asked)."""
        self._client = client

    # Asking.

    def ask_all(self, question: SurveyRequest) -> None:
        """Ask all nodes of the cube, members or not."""
        self._conduct(question, NO_NODE, self._flood(question, self._nodes.cube.dimension))

    def ask(self, question: SurveyRequest) -> None:
        """Ask those whom the question names."""
        self._conduct(question, NO_NODE, self._pass_on(question))

    def _conduct(self, question: SurveyRequest, parent: i64, asked: list[i64]) -> None:
        """Wait for the answers of those below; answer at once if there are none."""
        survey = Survey(question, parent, asked)
        if len(asked) == 0:
            self.finish(survey)
        else:
            self.surveys[survey_key(question)] = survey

    def _flood(self, question: SurveyRequest, height: i64) -> list[i64]:
        """Ask all nodes of this node's clusters up to ``height``, members or not; the children that pass it on."""
        children: list[i64] = []
        s: i64 = 1
        while s <= height:
            child = self._nodes.cube.first(self._me, s)
            if child != NO_NODE:
                self.environment.send(child, question)
                children.append(child)
            s += 1
        return children

    def _pass_on(self, question: SurveyRequest) -> list[i64]:
        """Ask those whom the question names: the first of each cluster, which asks the others there; these first."""
        groups: dict[i64, list[i64]] = {}
        targets = question.targets
        assert targets is not None, "a question that is passed on names whom it is for"
        for target in targets:
            groups.setdefault(cluster(self._me, target), []).append(target)
        for group in groups.values():
            self.environment.send(group[0], question.narrowed_to(vec[i64](group[1:])))
        return [group[0] for group in groups.values()]

    # Answering.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A question or an answer has come."""
        if isinstance(message, SurveyRequest):
            self._on_request(sender, message)
        elif isinstance(message, SurveyResponse):
            self.on_response(sender, message)

    def _on_request(self, sender: i64, question: SurveyRequest) -> None:
        """A newcomer is passive when it subscribes and active when it synchronises."""
        topic = self._topics.get(question.topic)
        if topic is not None and topic.state != OUTSIDE:
            topic.view.add(question.source, question.sequence, isinstance(question, Synchronise))
            if self._options.directory and topic.state == SUBSCRIBING:
                topic.hear_of(question.source)
        if question.targets is None:
            self._conduct(question, sender, self._flood(question, cluster(self._me, sender) - 1))
        else:
            self._conduct(question, sender, self._pass_on(question))

    def on_response(self, sender: i64, answer: SurveyResponse) -> None:
        """Somebody below has answered a question."""
        key = survey_key(answer)
        survey = self.surveys.get(key)
        if survey is None or not survey.pending.waits_for(sender):
            raise ProtocolError(f"an answer about {answer} came to node {self._me}, which did not ask")
        if isinstance(survey.question, Synchronise):
            survey.entries = merged_frontiers(survey.entries, answer.entries)
            survey.announced = append_all(survey.announced, answer.announced)
        else:
            survey.entries = append_all(survey.entries, answer.entries)
        self.settle(key, survey, sender)

    def settle(self, key: i64, survey: Survey, peer: i64) -> None:
        """A node has answered a question, or will not."""
        if survey.pending.settle(peer) and len(survey.pending) == 0:
            del self.surveys[key]
            self.finish(survey)

    def finish(self, survey: Survey) -> None:
        """All children have answered: add the own word and tell the parent, or use what was gathered."""
        question = survey.question
        topic = self._topics.get(question.topic)
        if survey.parent == NO_NODE:
            assert topic is not None, "who asks about a topic knows it"
            self._client.on_survey_done(topic, survey)
            return
        entries = survey.entries
        announced = survey.announced
        is_past = isinstance(question, Synchronise)
        if topic is not None:
            if is_past:
                if topic.undelivered_totals > 0:
                    # Not past here, and it will not reach the newcomer: it is to be past there, with all it names.
                    self._delayed.setdefault(topic.name, []).append(survey)
                    return
                if self._options.total:
                    announced = append_all(announced, self._total_order.announced(topic))
                # Whoever does not ask a node that has left speaks for it.
                past = merged_frontiers(topic.inherited, topic.order.frontier())
                entries = merged_frontiers(entries, past)
            elif topic.state != OUTSIDE:
                entries = append(entries, member_entry(self._me, topic.joined_counter, topic.is_active()))
        answer = SurveyResponse(question.source, question.sequence, question.topic, entries, announced, is_past)
        self.environment.send(survey.parent, answer)

    def answer_delayed(self, topic: CubeTopic) -> None:
        """Answer the questions that were put off."""
        for survey in self._delayed.pop(topic.name, []):
            self.finish(survey)

    def unfinished(self) -> i64:
        """How many surveys wait for answers, or to be answered."""
        count: i64 = len(self.surveys)
        for waiting in self._delayed.values():
            count += len(waiting)
        return count

    def text(self) -> str:
        """The state as text, to compare states."""
        surveys = [
            (key, len(survey.pending), list(survey.entries), list(survey.announced))
            for key, survey in sorted(self.surveys.items())
        ]
        delayed = [
            (name, [(survey_key(one.question), list(one.entries), list(one.announced)) for one in waiting])
            for name, waiting in sorted(self._delayed.items())
        ]
        return f"{surveys} {delayed}"


def survey_key(about: ProtocolMessage) -> i64:
    """Subscriptions are numbered per node over all topics, so source and counter name a survey."""
    return publication_key(about.source, about.sequence)
