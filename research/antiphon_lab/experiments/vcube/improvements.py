"""Four improvements of VCube-PS and one repair, each simulated beside the published protocol.

A **trial** is one simulation: a sequence of events in a system. Trials that differ in the system alone have the same
members, publications and changes at the same times, so that they are compared in pairs. All systems are charged for
acknowledgements, the published protocol too, so that savings show.

The docstring of a trial lists its measurements; ``violations`` are the findings of the oracle, which knows no protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from antiphon.fabrics.cube.messages import COUNTER_BITS
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.kernel.process import Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction, SubscribeAction, UnsubscribeAction
from antiphon.simulator.engine.engine import Action
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon_lab.experiments.vcube.one_topic import TOPIC, Group, TopicRun, as_published, as_repaired, draw_group
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubePs, PublishedVCubeTopic

PUBLISHED = "published"

START_STREAM = 107
SOURCE_STREAM = 108
CHANGE_STREAM = 109

START_WINDOW_TICKS = 1000
BURST = 64
CHANGE_GAP_TICKS = 150
"""Between two changes of membership in a churn, on average: much less than a subscription takes."""

Measured = dict[str, float]
"""By quantity."""


@dataclass(frozen=True)
class System:
    """A protocol and its options, which are those of :class:`Options`; without any the published one, corrected.

    They are pairs and no object, for a case is plain data.
    """

    name: str
    options: tuple[tuple[str, int | bool], ...] | None = None

    def run(self, group: Group, seed: int) -> TopicRun:
        """A simulation that is ready for actions."""
        build = as_published(group) if self.options is None else as_repaired(group, options_of(self.options))
        return TopicRun(group, build, seed, charged=True, level="deliveries")


def options_of(pairs: tuple[tuple[str, int | bool], ...]) -> Options:
    """The options that the pairs name."""
    chosen: dict[str, Any] = dict(pairs)
    return Options(**chosen)


def repaired(name: str, **options: int | bool) -> System:
    """The repaired protocol with these options."""
    return System(name, tuple(options.items()))


AS_PUBLISHED = System(PUBLISHED)


@dataclass(frozen=True)
class Trial:
    """One simulation in a system of ``nodes`` nodes."""

    system: System
    nodes: int

    def __str__(self) -> str:
        return f"{self.about()}, {self.system.name}"

    def about(self) -> str:
        """The description of the simulation, without the system."""
        raise NotImplementedError

    def measure(self, seed: int) -> Measured:
        """Simulate it."""
        raise NotImplementedError


def finished(run: TopicRun) -> int:
    """Run to the end; the answer is how many violations there were."""
    run.finish()
    return sum(run.judgement().counts.values())


@dataclass(frozen=True)
class Spreading(Trial):
    """All nodes are members; one of them publishes once, or each does, at a random tick of a window.

    Measured are the ``mean`` and the ``longest`` time from publication to delivery.
    """

    everybody: bool

    def about(self) -> str:
        return f"{self.nodes} nodes, {'all publish' if self.everybody else 'one publishes'}"

    def measure(self, seed: int) -> Measured:
        group = draw_group(self.nodes, self.nodes, seed)
        run = self.system.run(group, seed)
        if self.everybody:
            random = RandomStream(seed, START_STREAM)
            for node in range(self.nodes):
                run.engine.at(random.between(0, START_WINDOW_TICKS), PublishAction(node))
        else:
            run.engine.at(0, PublishAction(group.publisher))
        violations = finished(run)
        return {"mean": run.latency(), "longest": int(run.engine.latency_maximum), "violations": violations}


@dataclass(frozen=True)
class Burst(Trial):
    """All nodes are members; some, drawn at random, publish a burst of messages each in the first tick.

    Measured are when the last delivery was (``ticks``), the ``mean`` time from publication to delivery, and the
    ``packets`` that were sent, acknowledgements included.
    """

    sources: int

    def about(self) -> str:
        return f"{self.nodes} nodes, {self.sources} x {BURST} messages"

    def measure(self, seed: int) -> Measured:
        run = self.system.run(draw_group(self.nodes, self.nodes, seed), seed)
        for source in draw_nodes(self.sources, self.nodes, RandomStream(seed, SOURCE_STREAM)):
            for _ in range(BURST):
                run.engine.at(0, PublishAction(source))
        violations = finished(run)
        return {
            "ticks": int(run.engine.latency_maximum),
            "mean": run.latency(),
            "packets": int(run.engine.sent),
            "violations": violations,
        }


@dataclass(frozen=True)
class Joining(Trial):
    """One node subscribes to a topic of ``members`` members and, when all has settled, unsubscribes.

    Measured are the ``joining`` and ``leaving`` messages, and the ``ticks`` until the subscription took effect.
    """

    members: int

    def about(self) -> str:
        return f"{self.nodes} nodes, {self.members} members"

    def measure(self, seed: int) -> Measured:
        group = draw_group(self.nodes, self.members, seed)
        outsiders = group.outsiders
        newcomer = outsiders[RandomStream(seed, CHANGE_STREAM).below(len(outsiders))]
        run = self.system.run(group, seed)
        run.engine.at(0, SubscribeAction(newcomer))
        run.finish()
        joining, ticks = int(run.engine.sent), int(run.engine.end_time)
        run.engine.at(ticks + 1, UnsubscribeAction(newcomer))
        violations = finished(run)
        return {
            "joining": joining,
            "leaving": int(run.engine.sent) - joining,
            "ticks": ticks,
            "violations": violations,
        }


@dataclass(frozen=True)
class ChurnTrial(Trial):
    """Half of the nodes are members. Members leave and others join, all the time; stable members publish meanwhile.

    A quarter of the first members, at least one, stays; each change is followed by two of their publications. Measured
    are ``false positives`` (copies that reached a non-member), publications ``lost`` to members that were present from
    their start to the end, and delivered ``early``, before a subscription was complete; ``stuck`` operations at the
    end, when no message is in transit any more; other findings of the oracle (``disordered``); and ``remembered``: the
    number of non-members about which nodes still have entries, each in its view of the topic.
    """

    def about(self) -> str:
        return f"{self.nodes} nodes, {self.nodes} changes"

    def measure(self, seed: int) -> Measured:
        group = draw_group(self.nodes, self.nodes // 2, seed)
        run = self.system.run(group, seed)
        members = schedule_churn(run, seed)
        run.finish()
        outside = set(range(self.nodes)) - members
        counts = dict(run.judgement().counts)
        processes = [node.process for node in run.engine.nodes if node.process is not None]
        return {
            "false positives": int(run.engine.unwanted),
            "lost": counts.pop("completeness"),
            "early": counts.pop("membership"),
            "disordered": sum(counts.values()),
            "stuck": sum(int(process.unfinished()) for process in processes),
            "remembered": sum(remembered_by(process, outside) for process in processes),
        }


def schedule_churn(run: TopicRun, seed: int) -> set[int]:
    """Let members join and leave, and others publish; returns the members at the end."""
    random = RandomStream(seed, CHANGE_STREAM)
    group = run.group
    stable = group.members[: max(1, len(group.members) // 4)]
    restless = [node for node in range(group.nodes) if node not in set(stable)]
    members = set(group.members)
    now = 0
    for _ in range(group.nodes):
        now += int(random.between(0, 2 * CHANGE_GAP_TICKS))
        node = restless[random.below(len(restless))]
        change: Action = UnsubscribeAction(node) if node in members else SubscribeAction(node)
        members ^= {node}
        run.engine.at(now, change)
        for _ in range(2):
            now += int(random.between(0, CHANGE_GAP_TICKS // 3))
            run.engine.at(now, PublishAction(stable[random.below(len(stable))]))
    return members


def remembered_by(process: Process, nodes: Iterable[int]) -> int:
    """The number of these nodes about which a node's view of the topic has an entry, including that they have left."""
    assert isinstance(process, VCubePs | PublishedVCubePs), "churn is simulated in VCube-PS only"
    topic = process.topic(TOPIC)
    if topic is None:
        return 0
    if isinstance(topic, PublishedVCubeTopic):
        left = {entry >> (COUNTER_BITS + 1) for entry in topic.view.tombstones()}
    else:
        left = set(topic.departed)
    return sum(1 for node in nodes if node in left or topic.view.contains(node))
