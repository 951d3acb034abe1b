"""VCube's diagnosis: nodes find out which nodes are up, by tests along the cube.

Follows section 2.4 of the thesis, which takes it from the work on VCube: time is cut into **rounds**. In each round a
node deals with one of its clusters, one after the other, and tests a node of it if it is itself the first in the
*tested* node's opposite cluster that is thought to be there. Where all are there, everybody makes one test per round
and is tested once; where nodes have failed their tests fall to others. The answer to a test also carries what
the tested node knows, so news travels along the cube. All nodes know of a failure after ``log2 N`` rounds on average,
and at worst after the square of that.

*What is known* of each node is a number: how often it has changed between being there (even) and not (odd). A higher
number is newer. A node that hears that it has failed raises its own number. A node that comes back without memory
learns its number from the first answer. Two nodes that exchange tests send each other only the changes since the last
time. If an answer does not come, the next test repeats what the last one said.

*Timing.* With rounds of ``round_ticks`` and ``patience_ticks`` for an answer, a failure is noticed by the first tester
after half a round on average, and the patience. Patience must be longer than a round trip; otherwise a slow node
counts as failed until it answers. Each node sends at most one test and one answer per round, plus the tests of
those that have failed before it in its clusters.

*Beyond the document*: with ``tells`` a node does not wait to be asked. It sends its own findings down its own tree of
the cube at once; all nodes know them after ``log2 N`` hops instead of as many rounds.
"""

from __future__ import annotations

from typing import Any, Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.topology import PartialCube, cluster, dimension_for
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment, Process

ROUND: Final[i64] = -1
"""The name of the timer of rounds; others are named after the node whose answer is awaited."""


@mypyc_attr(acyclic=True)
class StateReport(ProtocolMessage):
    """The changes that one node tells another: ``news`` are pairs of a node and its number."""

    def __init__(self, source: i64, news: vec[i64]) -> None:
        super().__init__(source, 0)
        self.news: Final[vec[i64]] = news

    def entries_carried(self) -> i64:
        return len(self.news) >> 1


@mypyc_attr(acyclic=True)
class DiagnosisRequest(StateReport):
    """A test: the receiver answers if it is up."""


@mypyc_attr(acyclic=True)
class DiagnosisResponse(StateReport):
    """The answer to a test."""


@mypyc_attr(acyclic=True)
class News(StateReport):
    """The findings of one node, on their way down its tree."""


@final
class DiagnosisOptions:
    """How often is tested, how long an answer may take, and whether news are told at once; shared by all."""

    def __init__(self, node_count: int, round_ticks: i64, patience_ticks: i64, tells: bool = False) -> None:
        if node_count < 2:
            raise UsageError(f"{node_count} nodes have nobody to test; at least 2")
        if round_ticks < 1 or patience_ticks < 1:
            raise UsageError("a round and the patience for an answer take at least one tick")
        self.node_count: Final[int] = node_count
        self.dimension: Final[i64] = dimension_for(node_count)
        self.round_ticks: Final[i64] = round_ticks
        self.patience_ticks: Final[i64] = patience_ticks
        self.tells: Final[bool] = tells


@mypyc_attr(allow_interpreted_subclasses=True)
class Diagnosis(Process):
    """One node that tests, answers, and knows who is there."""

    def __init__(self, environment: Environment, options: DiagnosisOptions) -> None:
        super().__init__(environment)
        self.options: Final[DiagnosisOptions] = options
        # Who is thought to be there, and how often each has changed.
        self.present: Final[PartialCube] = PartialCube(options.dimension, range(options.node_count))
        self._changes: Final[dict[i64, i64]] = {}
        self.absent: Final[set[i64]] = set()
        # What has changed, in that order, and how far of it each of those was told with whom tests are exchanged.
        self._heard: Final[list[i64]] = []
        self._told: Final[dict[i64, i64]] = {}
        self._round: i64 = 0
        # Timers of those whose answer is awaited, and how far they had been told before.
        self._awaited: Final[dict[i64, i64]] = {}
        self._told_before: Final[dict[i64, i64]] = {}

    def changed(self, node: i64, is_present: bool) -> None:
        """This node has found out, or has been told, that another one is there or not; for those who build on it."""

    def start(self) -> None:
        # Not all at the same time.
        first = 1 + self.environment.random().below(self.options.round_ticks)
        self.environment.set_timer(first, ROUND)

    # Testing.

    def expire(self, name: i64) -> None:
        if name != ROUND:
            self._no_answer(name)
            return
        self.environment.set_timer(self.options.round_ticks, ROUND)
        s = 1 + self._round % self.options.dimension
        self._round += 1
        for node in self.tested(s):
            if node not in self._awaited:
                self._test(node)

    def tested(self, s: i64) -> list[i64]:
        """The nodes of cluster ``s`` that it falls to this one to test.

        They are those in whose opposite cluster this one is the first: its opposite, and where nodes before it have
        failed, their opposites. So only those that have failed are looked through.
        """
        opposite = self.me ^ (1 << (s - 1))
        found: list[i64] = []
        for offset in [0, *[self.me ^ failed for failed in self.absent if cluster(self.me, failed) < s]]:
            node = opposite ^ offset
            if node < self.options.node_count and self.present.first(node, s) == self.me:
                found.append(node)
        return found

    def _test(self, node: i64) -> None:
        self._told_before[node] = self._told.get(node, 0)
        self._awaited[node] = self.environment.set_timer(self.options.patience_ticks, node)
        self.environment.send(node, DiagnosisRequest(self.me, self._news_for(node)))

    def _no_answer(self, node: i64) -> None:
        self._awaited.pop(node, None)
        # Whether it has got what it was told is not known.
        self._told[node] = self._told_before.pop(node, 0)
        number = self._changes.get(node, 0)
        if number % 2 == 0:
            self._learn(node, number + 1)
            self._spread(append(append(vec[i64](), node), number + 1), self.options.dimension)

    # Knowing.

    def _news_for(self, node: i64) -> vec[i64]:
        """The changes since this node was told the last time; each node once, with its current number."""
        news = vec[i64]()
        latest: set[i64] = set()
        position: i64 = self._told.get(node, 0)
        while position < len(self._heard):
            changed = self._heard[position]
            if changed not in latest:
                latest.add(changed)
                news = append(append(news, changed), self._changes[changed])
            position += 1
        self._told[node] = len(self._heard)
        return news

    def _learn(self, node: i64, number: i64) -> bool:
        """Whether it is news that a node has changed so often."""
        if number <= self._changes.get(node, 0):
            return False
        was_present = self._changes.get(node, 0) % 2 == 0
        self._changes[node] = number
        self._heard.append(node)
        is_present = number % 2 == 0
        if is_present:
            self.present.add(node)
            self.absent.discard(node)
        else:
            self.present.remove(node)
            self.absent.add(node)
        if was_present != is_present:
            self.changed(node, is_present)
        return True

    def _take(self, news: vec[i64]) -> vec[i64]:
        """Learn what somebody tells; the answer is what of it was new."""
        fresh = vec[i64]()
        position: i64 = 0
        while position < len(news):
            node, number = news[position], news[position + 1]
            if node == self.me and number % 2 == 1:
                # They think that this node has failed, or it had, and has come back.
                if self._learn(node, number + 1):
                    self._spread(append(append(vec[i64](), node), number + 1), self.options.dimension)
            elif self._learn(node, number):
                fresh = append(append(fresh, node), number)
            position += 2
        return fresh

    def _spread(self, news: vec[i64], height: i64) -> None:
        """Send news down the clusters ``1 .. height``, if they do not wait for tests."""
        if self.options.tells:
            for child in self.present.children(self.me, height):
                self.environment.send(child, News(self.me, news))

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        assert isinstance(message, StateReport), "diagnosis has tests, answers and news"
        fresh = self._take(message.news)
        if isinstance(message, News):
            if len(fresh) > 0:
                self._spread(fresh, cluster(self.me, sender) - 1)
            return
        if isinstance(message, DiagnosisResponse):
            self.environment.cancel_timer(self._awaited.pop(sender, -1))
            self._told_before.pop(sender, None)
        else:
            # Who tests is there, and one that has come back does not know that it was missed.
            self._told[sender] = 0 if sender in self.absent else self._told.get(sender, 0)
            self.environment.send(sender, DiagnosisResponse(self.me, self._news_for(sender)))


NUMBERED: Final[dict[int, type[Any]]] = {79: DiagnosisRequest, 80: DiagnosisResponse, 81: News}
"""The messages by their numbers on the wire; only nodes that run the diagnosis understand them."""
