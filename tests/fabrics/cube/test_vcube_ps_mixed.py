"""VCube-PS with orders that publications choose: every schedule of small systems, and rules that would be too weak."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel import CAUSAL, FIFO, NONE, Environment, Process, RandomStream, UsageError
from antiphon.kernel.message import Publication
from antiphon.orders import MixedOrder, Order
from antiphon.orders.order import merged_frontiers, prefixes_of, singles_of
from antiphon.simulator.explore.explorer import Operation, System, explore, judgement
from tests.fabrics.cube.test_vcube_ps import builder
from tests.support import Notebook

SUBSCRIBE: Operation = ("subscribe", 0)
UNSUBSCRIBE: Operation = ("unsubscribe", 0)
WITHOUT: Operation = ("publish", 0, NONE)
IN_FIFO: Operation = ("publish", 0, FIFO)
CAUSALLY: Operation = ("publish", 0, CAUSAL)

Scripts = list[list[Operation]]


def test_each_publication_has_the_order_that_it_asks_for_or_the_default() -> None:
    process = builder(2, [0, 1], Options("fifo", mixed=True))(notebook := Notebook(0))
    for order in (NONE, FIFO, CAUSAL):
        process.publish(b"", 0, order)
    process.publish(b"", 0)
    assert [publication.order for publication in notebook.delivered] == [NONE, FIFO, CAUSAL, FIFO]


def test_an_order_that_does_not_exist_is_refused() -> None:
    process = builder(2, [0, 1], Options(mixed=True))(Notebook(0))
    with pytest.raises(UsageError, match="there is no order 7"):
        process.publish(b"", 0, 7)


def test_where_all_have_one_order_no_other_can_be_asked_for() -> None:
    process = builder(2, [0, 1], Options("fifo"))(notebook := Notebook(0))
    process.publish(b"", 0, FIFO)
    with pytest.raises(UsageError, match="every publication has order fifo, and none can choose order causal"):
        process.publish(b"", 0, CAUSAL)
    assert [publication.sequence for publication in notebook.delivered] == [1]


# Every schedule: members at the start, what each node does, whether there is a directory, and how many states.
SMALL_SYSTEMS: list[tuple[list[int], Scripts, bool, int]] = [
    ([0, 1], [[WITHOUT, IN_FIFO, CAUSALLY], [CAUSALLY]], False, 424),
    ([0, 1], [[IN_FIFO, WITHOUT], [CAUSALLY, WITHOUT]], False, 385),
    ([0, 1, 2], [[CAUSALLY], [WITHOUT, CAUSALLY], []], False, 2584),
    ([0, 1, 2], [[IN_FIFO, WITHOUT], [CAUSALLY], []], False, 2404),
    ([0], [[IN_FIFO, WITHOUT], [SUBSCRIBE, CAUSALLY]], False, 465),
    ([0], [[IN_FIFO, WITHOUT], [SUBSCRIBE, CAUSALLY]], True, 477),
    ([0, 1], [[CAUSALLY, WITHOUT], [UNSUBSCRIBE, SUBSCRIBE]], False, 867),
]


@pytest.mark.parametrize(("members", "scripts", "directory", "states"), SMALL_SYSTEMS)
def test_no_schedule_breaks_what_an_order_promises(
    members: list[int], scripts: Scripts, directory: bool, states: int
) -> None:
    found = explore(builder(len(scripts), members, Options(directory=directory, mixed=True)), scripts)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted
    assert found.ends > 0
    assert found.states == states


# Rules that look right and are not. Each is shown to break its promise, and the true one not to, in the same schedules.


class Variant(Order):
    """Does as a mixed order does, but for what a subclass changes."""

    def __init__(self, me: int) -> None:
        super().__init__(CAUSAL)
        self.inner = MixedOrder(me)

    def stamp(self, sequence: int, order: int = CAUSAL) -> vec[i64]:
        return self.inner.stamp(sequence, order)

    def arrived(self, publication: Publication) -> list[Publication]:
        return self.inner.arrived(publication)

    def frontier(self) -> vec[i64]:
        return self.inner.frontier()

    def start_from(self, frontier: vec[i64]) -> None:
        self.inner.start_from(frontier)

    def waiting(self) -> int:
        return self.inner.waiting()

    def state(self) -> str:
        return self.inner.state()


class WeakEmptiesTheBarrier(Variant):
    """A weaker publication leaves its source as if it had named what was delivered before."""

    def stamp(self, sequence: int, order: int = CAUSAL) -> vec[i64]:
        dependencies = self.inner.stamp(sequence, CAUSAL)
        return dependencies if order == CAUSAL else vec[i64]()


class WeakPrunes(Variant):
    """A weaker publication names what was delivered before, and so takes it out of the barriers of others."""

    def stamp(self, sequence: int, order: int = CAUSAL) -> vec[i64]:
        return self.inner.stamp(sequence, CAUSAL)


def all_up_to_singles(keys: vec[i64]) -> vec[i64]:
    """Take each single publication for all up to it."""
    union = prefixes_of(keys)
    for key in sorted(singles_of(keys)):
        union = merged_frontiers(union, vec[i64]([key]))
    return union


class NamesWhatIsMissing(Variant):
    """What lies beyond a gap is named as all up to it, which the publisher has not delivered."""

    def stamp(self, sequence: int, order: int = CAUSAL) -> vec[i64]:
        return all_up_to_singles(self.inner.stamp(sequence, order))


class HidesWhatLiesBeyond(Variant):
    """Newcomers are told only up to where each source is complete."""

    def frontier(self) -> vec[i64]:
        return prefixes_of(self.inner.frontier())


class CountsGapsAsPast(Variant):
    """Newcomers are told the highest number of each source."""

    def frontier(self) -> vec[i64]:
        return all_up_to_singles(self.inner.frontier())


class Sticking(Variant):
    """What is delivered out of sequence counts as all up to it."""

    def arrived(self, publication: Publication) -> list[Publication]:
        released = self.inner.arrived(publication)
        if self.inner.waiting() == 0:
            self.inner.start_from(all_up_to_singles(self.inner.frontier()))
        return released


def with_order(make: Callable[[int], Order], node_count: int, members: list[int]) -> Callable[[Environment], Process]:
    """Processes whose order on topic 0 is another one."""
    build = builder(node_count, members, Options(mixed=True))

    def changed(environment: Environment) -> VCubePs:
        process = build(environment)
        process.topic_table.find(0).order = make(environment.identifier)
        return process

    return changed


def wander(build: Callable[[Environment], Process], scripts: Scripts, walks: int) -> str | None:
    """Follow random schedules; the first thing that goes wrong in one of them."""
    for walk in range(walks):
        random = RandomStream(walk, 1)
        system = System(build, scripts)
        while choices := system.choices():
            system.take(choices[random.below(len(choices))])
            violation = judgement(system, bool(system.choices()))
            if violation is not None:
                return violation
    return None


# The rule, the members at the start, what each node does, and what goes wrong.
TOO_WEAK: list[tuple[type[Variant], list[int], Scripts, str]] = [
    (WeakEmptiesTheBarrier, [0, 1, 2], [[CAUSALLY], [WITHOUT, CAUSALLY], []], "causal"),
    (WeakPrunes, [0, 1, 2, 3], [[CAUSALLY], [WITHOUT], [CAUSALLY], []], "causal"),
    (Sticking, [0, 1], [[IN_FIFO, WITHOUT], []], "completeness"),
]
WALKS = 2_000


@pytest.mark.parametrize(("rule", "members", "scripts", "kind"), TOO_WEAK)
def test_a_weaker_rule_breaks_a_promise_and_the_true_one_does_not(
    rule: type[Variant], members: list[int], scripts: Scripts, kind: str
) -> None:
    violation = wander(with_order(rule, len(scripts), members), scripts, WALKS)
    assert violation is not None
    assert violation.startswith(kind)
    assert wander(with_order(MixedOrder, len(scripts), members), scripts, WALKS // 10) is None


# What is named, and what newcomers are told. A step is the beginning of its text, and perhaps what else is in it.
Step = tuple[str, str]


def steps(*lines: str) -> list[Step]:
    """Lines as steps; what follows a bar is to be found somewhere in the text."""
    return [(start, part) for start, _, part in (line.partition("|") for line in lines)]


NAMING = steps(
    "node 0: publish 0 fifo",
    "node 0: publish 0 none",
    "0->2 Ordered|sequence=1",
    "0->2 Ordered|sequence=2",
    "0->1 Ordered|sequence=2",  # delivered beyond the gap
    "node 1: publish 0 causal",  # does it name what the gap holds?
    "1->2 Ordered|",
    "node 2: publish 0 causal",  # follows everything
    "2->0 Ordered|",
    "1->0 Ordered|",
    "0->1 Ordered|source=2",  # if the one before names everything, this one names it alone, and node 1 has it
    "0->1 Ordered|source=0",
)

HIDING = steps(
    "node 2: subscribe",
    "2->0 Subscribe",
    "0->1 Subscribe",
    "1->0 SurveyResponse",
    "0->2 SurveyResponse",
    "2->0 Synchronise",
    "0->1 Synchronise",  # node 1 answers: nothing is past
    "node 1: publish 0 fifo",
    "node 1: publish 0 none",
    "1->0 Ordered|sequence=2",  # delivered beyond the gap
    "node 0: publish 0 causal",  # follows it
    "1->0 SurveyResponse",  # node 0 answers: its own publication is past
    "node 0: publish 0 causal",  # names nothing: its own predecessor implies the rest
    "0->2 SurveyResponse",
    "0->2 Ordered|sequence=2",
    "1->2 Ordered|sequence=2",  # comes too late, unless it is past
)

COUNTING = steps(
    "node 3: subscribe",
    "3->2 Subscribe",
    "3->1 Subscribe",
    "1->0 Subscribe",
    "0->1 SurveyResponse",
    "1->3 SurveyResponse",
    "2->3 SurveyResponse",
    "3->1 Synchronise",
    "1->0 Synchronise",
    "0->1 SurveyResponse",  # nodes 0 and 1 answer: nothing is past
    "node 1: publish 0 causal",
    "1->0 Ordered|",
    "node 0: publish 0 causal",  # follows that
    "node 0: publish 0 none",
    "0->2 Ordered|sequence=2",  # delivered beyond the gap
    "3->2 Synchronise",  # node 2 answers: is what the gap holds past?
    "1->3 SurveyResponse",
    "2->3 SurveyResponse",
    "node 0: publish 0 causal",  # names nothing: its own predecessors imply the rest
    "0->2 Ordered|sequence=3",
    "2->3 Ordered|sequence=3",
    "1->3 Ordered|sequence=1",  # comes too late, if the gap was past and did not hold the last one up
)


def violations_after(make: Callable[[int], Order], members: list[int], scripts: Scripts, way: list[Step]) -> int:
    """Follow a schedule; how often causal order was broken."""
    system = System(with_order(make, len(scripts), members), scripts)
    for start, part in way:
        texts = {system.describe(choice): choice for choice in system.choices()}
        fitting = [choice for text, choice in texts.items() if text.startswith(start) and part in text]
        assert len(fitting) == 1, f"{start!r} with {part!r} does not name one of {sorted(texts)}"
        system.take(fitting[0])
    return system.oracle.findings.counts["causal"]


@pytest.mark.parametrize(
    ("rule", "members", "scripts", "way"),
    [
        (NamesWhatIsMissing, [0, 1, 2], [[IN_FIFO, WITHOUT], [CAUSALLY], [CAUSALLY]], NAMING),
        (HidesWhatLiesBeyond, [0, 1], [[CAUSALLY, CAUSALLY], [IN_FIFO, WITHOUT], [SUBSCRIBE]], HIDING),
        (CountsGapsAsPast, [0, 1, 2], [[CAUSALLY, WITHOUT, CAUSALLY], [CAUSALLY], [], [SUBSCRIBE]], COUNTING),
    ],
)
def test_exactly_what_was_delivered_must_be_named_and_told_to_newcomers(
    rule: type[Variant], members: list[int], scripts: Scripts, way: list[Step]
) -> None:
    assert violations_after(rule, members, scripts, way) == 1
    assert violations_after(MixedOrder, members, scripts, way) == 0
