"""One campaign for everything: a seed draws a fabric, a schedule of that fabric, more faults, and last words.

The schedules of a fabric (:mod:`antiphon.torture.schedules.operations` and those beside it) have what hurts its
protocol most. Here comes what all fabrics have in common: networks that fall into odd shapes, links that are slow or
late, clocks that jump, disks that lose, nodes that come late or leave, several of these at the same moment. A fabric
meets only what it promises to survive; ``docs/torture.md`` has the table. In the end everything is healed, and long
after that all members of each topic publish once more: whoever waits for something for ever, or has lost its place, is
found out by what it misses (:mod:`antiphon.simulator.scenario.last_words`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.protocols.registry import PROTOCOLS
from antiphon.simulator.scenario.scenario import MatrixLaw, Scenario
from antiphon.torture.schedules.cube_busy import draw_cube_fault_schedule
from antiphon.torture.schedules.epto import draw_epto_schedule, theory_of
from antiphon.torture.schedules.gossip_rare import draw_any_gossip_schedule
from antiphon.torture.schedules.last_words import with_last_words
from antiphon.torture.schedules.operations import (
    CLOCK,
    CRASH,
    DISK,
    JOIN,
    LEAVE,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    Shape,
    Trouble,
    draw_schedule,
    named_members,
    operations_of,
    pick,
    with_operations,
)
from antiphon.torture.schedules.tree import draw_tree_schedule

ALL_STREAM = 30
"""Names the stream of random numbers; those below are of the simulator and of the schedules of fabrics."""

DRAWN: dict[str, Callable[[int, str | None], Scenario]] = {
    "cube": draw_schedule,
    "cube-faults": draw_cube_fault_schedule,
    "gossip": draw_any_gossip_schedule,
    "tree": draw_tree_schedule,
    "epto": draw_epto_schedule,
}
"""How the schedule of a seed is drawn, by fabric; the order if it is not to be drawn. EpTO stands for itself."""

WEIGHTS = ("cube", "cube-faults", "cube-faults", "tree", "tree", "gossip", "epto")
"""Fabrics, as often as they are drawn: those in which most can go wrong more often."""


def draw_any_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed, on one of the fabrics that have the order, if one is given."""
    random = RandomStream(seed, ALL_STREAM)
    fabric = pick(random, [name for name in WEIGHTS if order in orders_of(name) or order is None])
    scenario = DRAWN[fabric](seed, order)
    return scenario if is_calm(scenario) else Harder(scenario, random).draw()


def draw_schedule_of(fabric: str, seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed on one fabric, with last words."""
    scenario = DRAWN[fabric](seed, order)
    return scenario if is_calm(scenario) else with_last_words(scenario)


def is_calm(scenario: Scenario) -> bool:
    """Whether theory says what comes of a schedule of EpTO; that holds for the schedule as it is."""
    return scenario.protocol == "epto" and theory_of(scenario) is not None


def orders_of(fabric: str) -> tuple[str, ...]:
    """The orders that campaigns on a fabric can be about."""
    if fabric == "epto":
        return (ORDER_NAMES[TOTAL],)
    protocols = {"cube": "vcube-ps", "cube-faults": "vcube-ps-lasting", "gossip": "brisa", "tree": "broker-tree"}
    return (*PROTOCOLS[protocols[fabric]].orders, MIXED)


ALL = "all"

SCHEDULES: dict[str, Callable[[int, str | None], Scenario]] = {
    ALL: draw_any_schedule,
    **{fabric: partial(draw_schedule_of, fabric) for fabric in DRAWN},
}
"""How the schedule of a seed is drawn, by fabric, with last words; the order if it is not to be drawn."""


class Harder:
    """Adds to the schedule of a fabric what fabrics have in common."""

    def __init__(self, scenario: Scenario, random: RandomStream) -> None:
        self._scenario = scenario
        self._random = random
        self._operations = operations_of(scenario)
        self._end = 1 + max((one.at for one in self._operations), default=0)
        # Many at once, or each at a time of its own.
        self._moment = int(random.below(self._end)) if random.below(2) == 0 else None

    def draw(self) -> Scenario:
        """The schedule with more faults, if it is lucky with none, and last words."""
        for hardship in self._hardships():
            if self._random.below(3) == 0:
                hardship()
        harder = with_last_words(with_operations(self._scenario, self._operations))
        # Where nobody is left who could publish there is nothing to see.
        return harder if harder.publications else with_last_words(self._scenario)

    def _hardships(self) -> list[Callable[[], None]]:
        """What the protocol promises to survive."""
        found = [self._stall, self._stand_still]
        protocol = PROTOCOLS[self._scenario.protocol]
        if self._may_part():
            found += [self._part, self._crash_apart]
        if protocol.needs_connections:
            found += [self._slow_links, self._late_links]
        elif protocol.tolerates_faults:
            found += [self._slow_links, self._lose, self._come_late, self._leave]
        if protocol.remembers and self._scenario.protocol_options.get("log", 0):
            # Total order needs a majority, and what was asked for totally is in no log before it has its place.
            found += [] if self._scenario.orders_totally() else [self._speak_on_return, self._halve]
            # A log that is refused comes last: its node does not come back from anything.
            found += [self._lose_writes, self._refuse_log]
        if self._scenario.protocol_options.get("clock") == "global":
            found.append(self._jump)
        return found

    def _may_part(self) -> bool:
        """Whether partitions are survived: by a tree with a quorum if no crash may take the majority with it."""
        scenario = self._scenario
        if scenario.protocol == "broker-tree":
            return any(operation.kind == PART for operation in self._operations)
        if PROTOCOLS[scenario.protocol].remembers and not scenario.protocol_options.get("log", 0):
            # Without logs, who is cut off for longer than a few are kept in memory misses the rest.
            return False
        return PROTOCOLS[scenario.protocol].tolerates_faults

    def _when(self) -> int:
        moment = int(self._random.below(self._end)) if self._moment is None else self._moment
        return moment + pick(self._random, (0, 0, int(self._random.below(300))))

    def _shuffled(self) -> list[int]:
        """All nodes in a random order."""
        nodes = list(range(self._scenario.nodes))
        for place in range(len(nodes) - 1):
            other = int(self._random.between(place, len(nodes) - 1))
            nodes[place], nodes[other] = nodes[other], nodes[place]
        return nodes

    def _mortal(self) -> list[int]:
        """Nodes that do nothing and to which nothing happens, but pauses; the first contacts stay what they are."""
        busy = {one.node for one in self._operations if one.kind not in (PART, CLOCK, PAUSE)}
        busy.update(self._scenario.protocol_options.get("contacts", (0,)))
        return [node for node in range(self._scenario.nodes) if node not in busy]

    def _stall(self) -> None:
        """Several nodes stand still at the same time."""
        for node in self._shuffled()[: int(self._random.between(1, 3))]:
            at = self._when()
            until = at + pick(self._random, (5, 100, 1000, 10_000))
            self._operations.append(Operation(at, PAUSE, node, 0, until))

    def _stand_still(self) -> None:
        """A node stands still for about as long as it takes others to notice: a bit less, a bit more, much more."""
        detection = self._scenario.network.detection
        at = self._when()
        lasts = pick(self._random, (detection // 2, detection - 1, detection + 1, 2 * detection, 20 * detection))
        node = int(self._random.below(self._scenario.nodes))
        self._operations.append(Operation(at, PAUSE, node, 0, at + max(1, lasts)))

    def _halve(self) -> None:
        """Half of the nodes or more crash at once, and all come back with their logs: together, or one by one.

        Only members that stay what they are: a node that is about to become one is none when it is back.
        """
        unsteady = {one.node for one in self._operations if one.kind in (JOIN, SUBSCRIBE, UNSUBSCRIBE)}
        steady = [node for node in self._shuffled() if node not in unsteady]
        nodes = self._scenario.nodes
        least = (nodes + 1) // 2
        if len(steady) < least:
            return
        at = self._when()
        back = at + pick(self._random, (1, 500, 5000, 20_000))
        apart = pick(self._random, (0, 1, 1000))
        for place, node in enumerate(steady[: int(self._random.between(least, max(least, nodes - 1)))]):
            self._operations.append(Operation(at, CRASH, node, 0, back + apart * place))

    def _crash_apart(self) -> None:
        """A node crashes while it is cut off, or while others are, and comes back, if it can, before or after that."""
        mortal = self._mortal()
        votes = PROTOCOLS[self._scenario.protocol].needs_connections and self._scenario.orders_totally()
        if not mortal or votes or self._scenario.fabric == "tree":
            # A crash may take the majority with it that total order needs. Trees draw both together by themselves.
            return
        at = self._when()
        until = at + pick(self._random, (400, 3000, 10_000))
        node = pick(self._random, mortal)
        others = [other for other in self._shuffled() if other != node]
        group = [node] if self._random.below(2) == 0 else others[: int(self._random.between(1, len(others)))]
        crash = at + int(self._random.below(until - at))
        back = crash + pick(self._random, (1, 500, 5000, 15_000))
        self._operations.append(Operation(at, PART, 0, 0, until, None, tuple(sorted(group))))
        self._operations.append(Operation(crash, CRASH, node, 0, back if self._may_return() else 0))

    def _may_return(self) -> bool:
        """Whether a node that crashed comes back: with its log, or as somebody new under the same number."""
        protocol = PROTOCOLS[self._scenario.protocol]
        return not protocol.remembers or bool(self._scenario.protocol_options.get("log", 0))

    def _part(self) -> None:
        """The network falls into halves, loses a direction, hangs on one node, or becomes a ring."""
        at = self._when()
        until = at + pick(self._random, (10, 400, 3000, 10_000, 30_000))
        nodes = self._shuffled()
        half = int(self._random.between(1, len(nodes) - 1))
        kind = pick(self._random, ("halves", "one way", "bridge", "bridge", "ring"))
        first, shape = tuple(sorted(nodes[:half])), Shape(one_way=kind == "one way")
        if kind == "bridge" and len(nodes) > 2:
            half = int(self._random.between(1, len(nodes) - 2))
            first = tuple(sorted(nodes[:half]))
            shape = Shape(False, ((nodes[half],), tuple(sorted(nodes[half + 1 :]))), "chain")
        elif kind == "ring" and len(nodes) > 3:
            first, shape = (nodes[0],), Shape(False, tuple((node,) for node in nodes[1:]), "ring")
        self._operations.append(Operation(at, PART, 0, 0, until, None, first, shape))

    def _slow_links(self) -> None:
        """Nodes are at two or three places, between which, or within which, everything takes long."""
        places = range(pick(self._random, (2, 3)))
        rows = [[pick(self._random, (1, 20, 100, 300, 1000)) for _ in places] for _ in places]
        self._change_network(delay=MatrixLaw(rows=rows))

    def _late_links(self) -> None:
        """Packets under the connections are lost and sent again: what they carry is late, and all that is behind it."""
        self._change_network(
            reordering=pick(self._random, (0.01, 0.1, 0.3)), reordering_window=pick(self._random, (50, 300, 1500))
        )

    def _lose(self) -> None:
        """Links lose as much as can be."""
        self._change_network(loss=0.3, duplication=pick(self._random, (0.0, 0.1)))

    def _change_network(self, **changes: object) -> None:
        network = msgspec.structs.replace(self._scenario.network, **changes)
        self._scenario = msgspec.structs.replace(self._scenario, network=network)

    def _come_late(self) -> None:
        """Some are not there from the start."""
        for node in self._mortal()[: pick(self._random, (1, 2))]:
            self._operations.append(Operation(self._when(), JOIN, node))

    def _leave(self) -> None:
        """Some leave in order, and may come back."""
        for node in reversed(self._mortal()[-pick(self._random, (1, 2, 5)) :]):
            at = self._when()
            back = at + pick(self._random, (1, 500, 5000)) if self._random.below(2) == 0 else 0
            self._operations.append(Operation(at, LEAVE, node, 0, back))

    def _lose_writes(self) -> None:
        """Disks are full for a while, or make nothing safe before a crash."""
        for crash in [one for one in self._operations if one.kind == CRASH and one.until > 0]:
            before = pick(self._random, (50, 1000, 5000, 20_000))
            trouble: Trouble = pick(self._random, ("torn", "full"))
            # Some are well again just before the crash, or as soon as that can be.
            until = max(1, crash.at + pick(self._random, (-1, 1, 1, 1)))
            at = max(0, min(crash.at - before, until - 1))
            self._operations.append(Operation(at, DISK, crash.node, 0, until, trouble=trouble))
        at, node = self._when(), int(self._random.below(self._scenario.nodes))
        until = at + pick(self._random, (100, 3000))
        self._operations.append(Operation(at, DISK, node, 0, until, trouble="full"))

    def _speak_on_return(self) -> None:
        """Some crash right after they got something, are back at once, and go on as if nothing had been."""
        said = [one for one in self._operations if one.kind == PUBLISH]
        # Who is only about to be a member when it crashes is none when it is back.
        unsteady = {one.node for one in self._operations if one.kind in (JOIN, SUBSCRIBE, UNSUBSCRIBE)}
        for _ in range(int(self._random.between(1, 3)) if said else 0):
            heard = pick(self._random, said)
            steady = [node for node in named_members(self._scenario)[heard.topic] if node not in unsteady]
            if steady:
                crash = heard.at + int(self._random.between(1, 300))
                back = crash + int(self._random.between(1, 100))
                node = pick(self._random, steady)
                answer = heard._replace(at=back + pick(self._random, (0, 1, 50)), node=node)
                returned = Operation(crash, CRASH, node, 0, back)
                self._operations += [returned, answer, answer._replace(at=answer.at + 200)]

    def _refuse_log(self) -> None:
        """A node that was to come back is refused by its own log; somebody new comes in its place."""
        self._operations = operations_of(with_operations(self._scenario, self._operations))
        returning = [one for one in self._operations if one.kind == CRASH and one.until > 0 and one.heir == NO_NODE]
        if not returning:
            return
        crash = pick(self._random, returning)
        trouble: Trouble = pick(self._random, ("lost", "flip"))
        later = {one for one in returning if one.node == crash.node and one.at >= crash.at}
        self._operations = [one for one in self._operations if one not in later]
        self._operations.append(crash._replace(until=0))
        self._operations.append(Operation(crash.at, DISK, crash.node, trouble=trouble))
        newcomer = self._scenario.nodes
        self._scenario = msgspec.structs.replace(self._scenario, nodes=newcomer + 1)
        self._operations.append(Operation(crash.until, JOIN, newcomer))
        for topic in range(self._scenario.topic_count()):
            at = crash.until + int(self._random.below(2000))
            self._operations.append(Operation(at, SUBSCRIBE, newcomer, topic))

    def _jump(self) -> None:
        """Clocks jump, ahead or back, by more or less than a dissemination takes."""
        for _ in range(pick(self._random, (1, 1, 3))):
            ticks = pick(self._random, (20, 500, 5000, 100_000)) * pick(self._random, (1, -1))
            node = int(self._random.below(self._scenario.nodes))
            self._operations.append(Operation(self._when(), CLOCK, node, ticks=ticks))
