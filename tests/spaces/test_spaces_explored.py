"""Spaces over the cube: every schedule of small systems, and rules that look right and break a promise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from antiphon.kernel.message import Publication
from antiphon.simulator.explore.explorer import Operation
from antiphon.spaces.barrier import SpaceBarrier
from antiphon.spaces.dependencies import SpaceDependencies
from antiphon.spaces.header import Frontier
from antiphon.spaces.space import SpaceOrder, SpaceOutside
from antiphon.spaces.stability import SpaceStability
from tests.spaces.systems import NewSpace, Scripts, SpaceSystem, builder, explore_space

QUESTIONS, ANSWERS, NOTES = 0, 1, 2


def publish(topic: int) -> Operation:
    return ("publish", topic)


def subscribe(topic: int) -> Operation:
    return ("subscribe", topic)


def unsubscribe(topic: int) -> Operation:
    return ("unsubscribe", topic)


class Silent(SpaceStability):
    """Nobody acknowledges, so everything is named for ever: far fewer schedules, and no need to forget."""

    def past_grew(self, topic: int, source: int, number: int) -> None:
        pass


def silent(me: int, outside: SpaceOutside) -> SpaceOrder:
    """A space in which nothing becomes stable."""
    return SpaceOrder(me, outside, stability=Silent(me))


Members = list[list[int]]

ANSWER: tuple[Members, Scripts] = (
    [[0, 1, 2], [0, 1, 2]],
    [[publish(QUESTIONS)], [publish(ANSWERS)], []],
)
"""Node 1 may answer on another topic than the question came on; node 2 gets both."""

ONE_PUBLISHER: tuple[Members, Scripts] = (
    [[0, 1, 2], [0, 1, 2]],
    [[publish(QUESTIONS), publish(ANSWERS)], [], []],
)
UNSEEN: tuple[Members, Scripts] = (
    [[0, 2], [0, 1], [1, 2]],
    [[publish(QUESTIONS), publish(ANSWERS)], [publish(NOTES)], []],
)
"""Node 1 does not get the question, and carries to node 2 that there was one."""

CIRCLE: tuple[Members, Scripts] = (
    [[0, 1], [1, 2], [0, 2]],
    [[publish(QUESTIONS)], [publish(ANSWERS)], [publish(NOTES)]],
)
NEWCOMER: tuple[Members, Scripts] = (
    [[0, 1], [0, 1, 2]],
    [[publish(QUESTIONS)], [publish(ANSWERS)], [subscribe(QUESTIONS)]],
)
PUBLISHING_NEWCOMER: tuple[Members, Scripts] = (
    [[0, 2], [0, 1]],
    [[publish(QUESTIONS), publish(ANSWERS)], [subscribe(QUESTIONS), publish(QUESTIONS)], []],
)
"""Node 1 counts the question as past when it subscribes, and follows it by way of the other topic alone."""

LEAVER: tuple[Members, Scripts] = (
    [[0, 1, 2], [0, 1, 2]],
    [[publish(QUESTIONS)], [publish(ANSWERS)], [unsubscribe(QUESTIONS)]],
)
RETURNER: tuple[Members, Scripts] = (
    [[0, 1], [0, 1]],
    [[publish(QUESTIONS), publish(ANSWERS)], [unsubscribe(QUESTIONS), subscribe(QUESTIONS)]],
)

SILENT_SYSTEMS = {
    "answer": (ANSWER, 208),
    "one publisher": (ONE_PUBLISHER, 91),
    "unseen": (UNSEEN, 70),
    "circle": (CIRCLE, 172),
    "newcomer": (NEWCOMER, 3368),
    "publishing newcomer": (PUBLISHING_NEWCOMER, 6341),
    "leaver": (LEAVER, 1432),
    "returner": (RETURNER, 469),
}
"""The systems in which nothing is forgotten, and how many states each has."""


LONG = {"newcomer", "publishing newcomer", "leaves its own topic to its order", "enters at once", "one is enough"}
"""Those with thousands of schedules, which run in campaigns."""


def shared_out(names: Iterable[str]) -> list[object]:
    """Names as parameters; the long ones marked as campaigns."""
    return [pytest.param(name, marks=[pytest.mark.campaign] if name in LONG else []) for name in names]


@pytest.mark.parametrize("name", shared_out(SILENT_SYSTEMS))
def test_no_schedule_breaks_the_order_of_a_space(name: str) -> None:
    (members, scripts), states = SILENT_SYSTEMS[name]
    found = explore_space(members, scripts, silent)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted
    assert found.ends > 0
    assert found.states == states


BROKEN_WITHOUT = ("answer", "one publisher", "unseen", "newcomer", "leaver", "returner")


@pytest.mark.parametrize("name", BROKEN_WITHOUT)
def test_without_a_space_the_judge_finds_the_answer_before_the_question(name: str) -> None:
    members, scripts = SILENT_SYSTEMS[name][0]
    found = explore_space(members, scripts, in_space=False)
    assert found.violation is not None
    assert "after something of its space that follows it" in found.violation


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["answer", "one publisher", "unseen"])
def test_what_is_stable_is_forgotten_at_the_right_moment(name: str) -> None:
    members, scripts = SILENT_SYSTEMS[name][0]
    found = explore_space(members, scripts)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted


# Rules that look right and are not.


class NamesDirectPredecessors(SpaceDependencies):
    """What a publication names itself is left to it: only what was delivered here is named."""

    def delivered(self, topic: int, source: int, sequence: int, implied: Iterable[int], header: Frontier) -> None:
        super().delivered(topic, source, sequence, implied, {})


class NamesOnce(SpaceDependencies):
    """What this node has named once, all later publications are taken to imply."""

    def published(self, topic: int, sequence: int) -> None:
        self._named.clear()
        super().published(topic, sequence)


class LeavesOwnTopicToItsOrder(SpaceDependencies):
    """A newcomer starts from the frontier of one topic, and never names anything of the topic that it publishes on."""

    def header_on(self, topic: int) -> Frontier:
        found = super().header_on(topic)
        found.pop(topic, None)
        return found


class EntersAtOnce(SpaceOrder):
    """A subscription is effective when it is in the fabric, whatever the node follows by way of other topics."""

    def _enter(self, topic: int) -> None:
        self.entering.discard(topic)
        self._outside.entered(topic)


class CountsOwnAtOnce(SpaceOrder):
    """A node counts its own publication as past at once, though its topic puts it behind one that waits."""

    def delivered(self, publication: Publication) -> None:
        if int(publication.source) != self.me:
            super().delivered(publication)
            return
        topic, sequence = int(publication.topic), int(publication.sequence)
        self.dependencies.published(topic, sequence)
        self._outside.deliver(publication)
        self._release(self.barrier.passed(topic, self.me, sequence))


class OneIsEnough(SpaceStability):
    """A publication is taken to be stable when one other member has it."""

    def settle(self, topic: int, members: Iterable[int] | None) -> int:
        acked = self._acked.get(topic, {})
        for node in acked:
            if super().settle(topic, [node]):
                return acked[node]
        return 0


class WaitsForEveryTopic(SpaceBarrier):
    """Waits for all that a publication names, subscribed or not."""

    def is_member(self, topic: int) -> bool:
        return True


def with_dependencies(kind: type[SpaceDependencies]) -> NewSpace:
    return lambda me, outside: SpaceOrder(me, outside, dependencies=kind(me), stability=Silent(me))


def with_stability(kind: type[SpaceStability]) -> NewSpace:
    return lambda me, outside: SpaceOrder(me, outside, stability=kind(me))


WRONG_RULES: dict[str, tuple[NewSpace, tuple[Members, Scripts], str]] = {
    "names direct predecessors": (with_dependencies(NamesDirectPredecessors), UNSEEN, "causal"),
    "names once": (
        with_dependencies(NamesOnce),
        ([[0, 2], [0, 1], [0, 2]], [[publish(QUESTIONS), publish(ANSWERS), publish(NOTES)], [], []]),
        "causal",
    ),
    "leaves its own topic to its order": (with_dependencies(LeavesOwnTopicToItsOrder), PUBLISHING_NEWCOMER, "causal"),
    "enters at once": (
        lambda me, outside: EntersAtOnce(me, outside, stability=Silent(me)),
        NEWCOMER,
        "causal",
    ),
    "one is enough": (with_stability(OneIsEnough), ANSWER, "causal"),
    "waits for every topic": (
        lambda me, outside: SpaceOrder(me, outside, barrier=WaitsForEveryTopic(), stability=Silent(me)),
        UNSEEN,
        "waits for ever|never delivered",
    ),
}


@pytest.mark.parametrize("name", shared_out(WRONG_RULES))
def test_a_rule_that_looks_right_is_broken_by_a_schedule(name: str) -> None:
    new_space, (members, scripts), complaint = WRONG_RULES[name]
    found = explore_space(members, scripts, new_space)
    assert found.violation is not None, found
    assert any(each in found.violation for each in complaint.split("|"))


OWN_BEHIND = (
    "node 1: publish 0",
    "node 1: publish 1",
    "node 1: publish 1",
    "1->0 Ordered | sequence=1 source=1 topic=1",
    "1->0 Ordered | sequence=2 source=1 topic=1",
    "1->2 Ordered | sequence=1 source=1 topic=1",
    "1->2 Ordered | sequence=2 source=1 topic=1",
    "node 0: publish 1",
    "0->2 Ordered | source=0 topic=1",
    "node 2: publish 1",
    "2->0 Ordered | source=2 topic=1",
    "1->0 Ordered | source=1 topic=0",
)
"""Node 0 publishes while two answers wait there for their question; node 2 has these, and names only node 0's."""


@pytest.mark.parametrize(("kind", "is_right"), [(SpaceOrder, True), (CountsOwnAtOnce, False)])
def test_an_own_publication_is_past_when_what_its_topic_puts_before_it_is(
    kind: type[SpaceOrder], is_right: bool
) -> None:
    answers = publish(ANSWERS)
    build = builder(3, [[0, 1], [0, 1, 2]], lambda me, outside: kind(me, outside, stability=Silent(me)))
    system = SpaceSystem(build, [[answers], [publish(QUESTIONS), answers, answers], [answers]])
    for line in OWN_BEHIND:
        begin, _, end = line.partition(" | ")
        fitting = [
            choice
            for choice in system.choices()
            if system.describe(choice).startswith(begin) and system.describe(choice).endswith(end)
        ]
        assert len(fitting) == 1, line
        system.take(fitting[0])
    assert system.oracle.findings.clean == is_right, str(system.oracle.findings)
