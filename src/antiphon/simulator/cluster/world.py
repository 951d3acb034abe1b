"""A cluster of whole nodes in virtual time, to which a schedule happens, and the verdict on it.

A schedule says what happens to machines: nodes start, crash, lose power, lose their disks, leave, return, stand still
and are cut off from each other. When all of it is over the network stays whole. A node that gave up joining meanwhile
is started again, as a supervisor would do. After ``SETTLE_US`` every node that is up publishes last words, and the
judge looks at all of them (:mod:`antiphon.audit.membership`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antiphon.audit.membership import JOINING, MembershipJudge, MembershipRules
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.disk import SimulatedDisk
from antiphon.simulator.cluster.fabrics import NodeSettings, table_of
from antiphon.simulator.cluster.network import Network
from antiphon.simulator.cluster.node import NodeLife
from antiphon.simulator.cluster.restarts import Restarts

NETWORK_STREAM: Final = 40
NODE_STREAM: Final = 41
"""Name the streams of random numbers; those below are of the engine and of schedules."""

SETTLE_US: Final = 40 * SECOND_US
"""How long after the last fault all nodes have to be in the cluster and know each other."""

LAST_WORDS_US: Final = 20 * SECOND_US
"""How long last words may take."""

SKIP_US: Final = 140 * SECOND_US
"""How long last words may take in gossip if nodes have ended: a publication that only those nodes had is skipped after
1,280 periods of 0.1 s, and what follows it waits until then."""

Kind = Literal["start", "crash", "power", "wipe", "leave", "pause", "cut", "publish"]


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happens to a machine, or to several.

    ``lasts_us`` is how long it is down, stands still or is cut off; without it a node that ends stays away.
    """

    at_us: int
    kind: Kind
    node: int = 0
    nodes: list[int] = []
    lasts_us: int = 0


class ClusterSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events of a cluster. Node 0 founds it, or on trees the first ``founders``; others join at any node."""

    seed: int
    fabric: str
    nodes: int
    founders: int = 1
    with_disk: list[int] = []
    delay_us: tuple[int, int] = (100, 2000)
    late_us: int = 0
    """How much longer one of 16 frames takes, as a packet does that is sent again."""
    commit_us: int = 5000
    lost_seconds: float = 1.0
    founds_again: bool = False
    """Whether node 0 is started as a founder each time, and finds the others by what it has on disk."""
    scarce: bool = False
    """Whether nodes have no identifiers left to give, and take blocks of them."""
    steps: list[Step] = []

    def end_us(self) -> int:
        """When everything is over that happens."""
        return max((step.at_us + step.lasts_us for step in self.steps), default=0)


class ClusterWorld:
    """One run of a schedule."""

    def __init__(self, schedule: ClusterSchedule) -> None:
        self.schedule = schedule
        self.clock = VirtualClock()
        fabric = FABRICS[schedule.fabric]
        policy = fabric.membership
        self.judge = MembershipJudge(MembershipRules(policy.keeps_identity, policy.begins_apart, policy.is_full))
        self._has_founders = policy.has_founders
        ends_nodes = any(step.kind not in ("start", "pause", "cut", "publish") for step in schedule.steps)
        self._may_skip = not policy.is_full and ends_nodes
        random = RandomStream(schedule.seed, NETWORK_STREAM)
        silent_us = round(schedule.lost_seconds * SECOND_US)
        self.network = Network(self.clock, random, schedule.delay_us, schedule.late_us, silent_us)
        self.places = [f"machine{number}:7400" for number in range(schedule.nodes)]
        implementation = fabric.implementation()
        has_journal = implementation.traits(table_of(schedule.fabric, ())).has_journal
        self.disks = [
            SimulatedDisk(self.clock, number in schedule.with_disk, has_journal, schedule.commit_us)
            for number in range(schedule.nodes)
        ]
        self.nodes: list[NodeLife | None] = [None] * schedule.nodes
        self._restarts = Restarts(self.clock, self.nodes, self._start)
        # Disks that were replaced, or are none, make the next life somebody else.
        self._lineages = list(range(schedule.nodes))
        self._last_lineage = schedule.nodes
        self._lives = 0
        self.published = 0
        self.has_ended = False

    def run(self) -> MembershipJudge:
        """Let the schedule happen to its end, and judge it."""
        schedule = self.schedule
        for step in schedule.steps:
            self.clock.post(step.at_us, lambda step=step: self._take(step))  # type: ignore[misc]
        self.clock.run_until(schedule.end_us() + SETTLE_US)
        self.has_ended = True
        up = {node.number: node for node in self.nodes if node is not None and node.is_up}
        self.judge.knows({number: node.membership.identifiers() for number, node in up.items()})
        words = []
        for number, node in up.items():
            word = b"last words of %d" % number
            if node.publish(word):
                words.append(word)
            elif node.has_entered:
                self.judge.violation(JOINING, f"life {number} cannot publish")
        entered = [number for number, node in up.items() if node.has_entered]
        self.clock.run_until(self.clock.now_us + LAST_WORDS_US)
        if self._may_skip and not self.judge.have_all(entered, words):
            self.clock.run_until(self.clock.now_us + SKIP_US)
        self.judge.last_words(entered, words)
        return self.judge

    def _take(self, step: Step) -> None:
        number = step.node
        node = self.nodes[number]
        is_up = node is not None and node.is_up
        if step.kind == "cut":
            for life in self.nodes:
                if life is not None:
                    self.judge.trouble(life.number)
            self.network.cut(frozenset(self.places[one] for one in step.nodes), step.lasts_us)
        elif step.kind == "start":
            if not is_up:
                self._start(number)
        elif not is_up or node is None:
            return
        elif step.kind == "pause":
            if not node.is_paused:
                self.judge.trouble(node.number)
                node.pause()
                self.clock.post(step.lasts_us, node.resume)
        elif step.kind == "publish":
            self.published += 1
            node.publish(b"%d" % self.published)
        else:
            self._end(node, step)

    def _end(self, node: NodeLife, step: Step) -> None:
        number = step.node
        self.judge.trouble(node.number)
        if step.kind == "leave":
            if node.is_paused:
                return
            node.when_gone = lambda *_: None
            node.handle(node.leave)
        else:
            node.when_gone = lambda *_: None
            node.crash(step.kind != "power")
        if step.kind == "wipe" or number not in self.schedule.with_disk:
            self.disks[number].wiped()
            self._last_lineage += 1
            self._lineages[number] = self._last_lineage
        if step.lasts_us:
            self._restarts.after(number, step.lasts_us)

    def _start(self, number: int) -> None:
        schedule = self.schedule
        had_no_power = self.network.has_power(self.places[number])
        self._lives += 1
        random = RandomStream(schedule.seed, NODE_STREAM, self._lives)
        founders = self.places[: schedule.founders] if self._has_founders else []
        settings = NodeSettings(
            schedule.fabric, self._contacts(number, random), founders, lost_seconds=schedule.lost_seconds
        )
        life = NodeLife(
            self.places[number], self._lives, settings, self.clock, self.network, self.disks[number], self.judge, random
        )
        life.is_scarce = schedule.scarce
        life.when_gone = lambda node, reason: self._gone(number, node, reason)
        self.nodes[number] = life
        self.judge.began(life.number, self._lineages[number])
        if had_no_power:
            # Others notice only now that their connections to an earlier life have ended.
            self.judge.trouble(life.number)
        life.begin()

    def _contacts(self, number: int, random: RandomStream) -> list[str]:
        """The nodes that a node is to ask: none if it is a founder that has never been in the cluster."""
        if self._has_founders and number < self.schedule.founders:
            return []
        others = [place for place in self.places if place != self.places[number]]
        there = [node.place for node in self.nodes if node is not None and node.has_entered and node.place in others]
        if number == 0 and (self.schedule.founds_again or not any(node is not None for node in self.nodes)):
            return []
        first = int(random.below(len(others)))
        # A list that an operator has written: some of it may be out of date, one of it was in the cluster before.
        listed = [others[first], *there]
        return listed if random.below(2) else listed[::-1]

    def _gone(self, number: int, node: NodeLife, reason: str) -> None:
        """A node has ended by itself: it gave up, or failed."""
        self.judge.trouble(node.number)
        if node.is_up:
            node.crash(True)
        if number not in self.schedule.with_disk:
            self.disks[number].wiped()
            self._last_lineage += 1
            self._lineages[number] = self._last_lineage
        if self.clock.now_us > self.schedule.end_us() + node.settings.join_seconds * SECOND_US:
            self.judge.violation(JOINING, f"{node.instance} at {node.place} gave up: {reason}")
        self._restarts.after(number)
