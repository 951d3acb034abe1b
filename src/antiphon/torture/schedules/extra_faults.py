"""Adds faults that every fabric has in common to a schedule of one fabric.

Partitions of odd shapes, slow links, late packets, clock jumps, disk faults, late joins and leaves: several of them may
happen at the same moment. A schedule gets only faults that its protocol promises to survive; ``docs/torture.md`` has
the table.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import MatrixLaw, Scenario
from antiphon.torture.schedules.last_words import with_last_words
from antiphon.torture.schedules.operations import (
    CLOCK,
    CRASH,
    DISK,
    JOIN,
    LEAVE,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    Shape,
    Trouble,
    named_members,
    operations_of,
    pick,
    with_operations,
)


class ExtraFaults:
    """Adds faults to one schedule."""

    def __init__(self, scenario: Scenario, random: RandomStream) -> None:
        self._scenario = scenario
        self._random = random
        self._operations = operations_of(scenario)
        self._end = 1 + max((one.at for one in self._operations), default=0)
        # All faults at about the same moment, or each at its own.
        self._moment = int(random.below(self._end)) if random.below(2) == 0 else None

    def draw(self) -> Scenario:
        """The schedule with extra faults, if any were drawn, and with last words."""
        for hardship in self._hardships():
            if self._random.below(3) == 0:
                hardship()
        harder = with_last_words(with_operations(self._scenario, self._operations))
        # Without a publication there is nothing to judge.
        return harder if harder.publications else with_last_words(self._scenario)

    def _hardships(self) -> list[Callable[[], None]]:
        """The faults that the protocol promises to survive."""
        found = [self._stall, self._stand_still]
        protocol = PROTOCOLS[self._scenario.protocol]
        if self._may_part():
            found += [self._part, self._crash_apart]
        if protocol.needs_connections:
            found += [self._slow_links, self._late_links]
        elif protocol.tolerates_faults:
            found += [self._slow_links, self._lose, self._come_late, self._leave]
        if protocol.remembers and self._scenario.protocol_options.get("log", 0):
            # Total order needs a majority, and a total publication is in no log before it has its place.
            found += [] if self._scenario.orders_totally() else [self._speak_on_return, self._halve]
            # A refused log comes last: its node never restarts.
            found += [self._lose_writes, self._refuse_log]
        if self._scenario.protocol_options.get("clock") == "global":
            found.append(self._jump)
        return found

    def _may_part(self) -> bool:
        """Whether the schedule survives partitions. A tree does with a quorum, if no crash can remove the majority."""
        scenario = self._scenario
        if PROTOCOLS[scenario.protocol].needs_quorum:
            return any(operation.kind == PART for operation in self._operations)
        if PROTOCOLS[scenario.protocol].remembers and not scenario.protocol_options.get("log", 0):
            # Without logs, a node that is cut off for longer than others keep publications in memory misses the rest.
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
        """Nodes without operations other than pauses; the first contacts stay as they are."""
        busy = {one.node for one in self._operations if one.kind not in (PART, CLOCK, PAUSE)}
        busy.update(self._scenario.protocol_options.get("contacts", (0,)))
        return [node for node in range(self._scenario.nodes) if node not in busy]

    def _stall(self) -> None:
        """Several nodes pause at the same time."""
        for node in self._shuffled()[: int(self._random.between(1, 3))]:
            at = self._when()
            until = at + pick(self._random, (5, 100, 1000, 10_000))
            self._operations.append(Operation(at, PAUSE, node, 0, until))

    def _stand_still(self) -> None:
        """A node pauses for about as long as failure detection takes: a bit less, a bit more, or much more."""
        detection = self._scenario.network.detection
        at = self._when()
        lasts = pick(self._random, (detection // 2, detection - 1, detection + 1, 2 * detection, 20 * detection))
        node = int(self._random.below(self._scenario.nodes))
        self._operations.append(Operation(at, PAUSE, node, 0, at + max(1, lasts)))

    def _halve(self) -> None:
        """Half of the nodes or more crash at once, and all restart with their logs, together or one by one.

        Only nodes whose subscriptions do not change crash: a subscription that is not effective yet would be lost.
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
        """A node crashes while it or others are cut off, and restarts, if it can, before or after that."""
        mortal = self._mortal()
        protocol = PROTOCOLS[self._scenario.protocol]
        votes = protocol.needs_connections and self._scenario.orders_totally()
        if not mortal or votes or protocol.needs_quorum:
            # A crash may remove the majority that total order or the quorum needs.
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
        """Whether a crashed node restarts: with its log, or as a new node under the same number."""
        protocol = PROTOCOLS[self._scenario.protocol]
        return not protocol.remembers or bool(self._scenario.protocol_options.get("log", 0))

    def _part(self) -> None:
        """Split the network into halves, cut one direction, leave one bridge node, or make it a ring."""
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
        """Nodes are at two or three places; links between or within places are slow."""
        places = range(pick(self._random, (2, 3)))
        rows = [[pick(self._random, (1, 20, 100, 300, 1000)) for _ in places] for _ in places]
        self._change_network(delay=MatrixLaw(rows=rows))

    def _late_links(self) -> None:
        """Packets below the connections are lost and sent again: their messages are late, and so are all messages
        behind them.
        """
        self._change_network(
            reordering=pick(self._random, (0.01, 0.1, 0.3)), reordering_window=pick(self._random, (50, 300, 1500))
        )

    def _lose(self) -> None:
        """Links lose as many messages as the protocol allows."""
        self._change_network(loss=0.3, duplication=pick(self._random, (0.0, 0.1)))

    def _change_network(self, **changes: object) -> None:
        network = msgspec.structs.replace(self._scenario.network, **changes)
        self._scenario = msgspec.structs.replace(self._scenario, network=network)

    def _come_late(self) -> None:
        """Some nodes join late."""
        for node in self._mortal()[: pick(self._random, (1, 2))]:
            self._operations.append(Operation(self._when(), JOIN, node))

    def _leave(self) -> None:
        """Some nodes leave orderly, and may come back."""
        for node in reversed(self._mortal()[-pick(self._random, (1, 2, 5)) :]):
            at = self._when()
            back = at + pick(self._random, (1, 500, 5000)) if self._random.below(2) == 0 else 0
            self._operations.append(Operation(at, LEAVE, node, 0, back))

    def _lose_writes(self) -> None:
        """Disks are full for a while, or sync nothing before a crash."""
        for crash in [one for one in self._operations if one.kind == CRASH and one.until > 0]:
            before = pick(self._random, (50, 1000, 5000, 20_000))
            trouble: Trouble = pick(self._random, ("torn", "full"))
            # Some disks recover just before the crash, others right after it.
            until = max(1, crash.at + pick(self._random, (-1, 1, 1, 1)))
            at = max(0, min(crash.at - before, until - 1))
            self._operations.append(Operation(at, DISK, crash.node, 0, until, trouble=trouble))
        at, node = self._when(), int(self._random.below(self._scenario.nodes))
        until = at + pick(self._random, (100, 3000))
        self._operations.append(Operation(at, DISK, node, 0, until, trouble="full"))

    def _speak_on_return(self) -> None:
        """Some nodes crash right after they receive a publication, restart at once and continue."""
        said = [one for one in self._operations if one.kind == PUBLISH]
        # A node that crashes before its subscription is effective is not a member after its restart.
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
        """A node is refused by its own log when it should restart; a new node joins in its place."""
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
        """Clocks jump, forward or back, by more or less than the time of a dissemination."""
        for _ in range(pick(self._random, (1, 1, 3))):
            ticks = pick(self._random, (20, 500, 5000, 100_000)) * pick(self._random, (1, -1))
            node = int(self._random.below(self._scenario.nodes))
            self._operations.append(Operation(self._when(), CLOCK, node, ticks=ticks))
