"""Random schedules for clients: they publish and subscribe while their nodes crash, leave, pause and are cut off.

Faults come alone or several at one moment, and publications come in bursts around them: a client hands in a batch, and
its node crashes before, while or after others get it. Some nodes are members of the topic from the beginning; others
become members when a client comes, and lack what was shown before. In half of the schedules some nodes, or all, return
with their logs. If all do, they may crash at once, and an exactly-once writer may write beside the clients. In some
schedules links flap: nodes are cut off several times, mostly too briefly for anybody to notice, while all clients
publish all the time.
"""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.clients.world import ClientKind, ClientSchedule, ClientStep
from antiphon.torture.schedules.operations import pick

CLIENTS_STREAM: Final = 53
DISKS_STREAM: Final = 54
FLAPS_STREAM: Final = 73
"""Name the streams of random numbers."""

FLAPPING: Final = 16
"""In one of so many schedules some nodes are cut off again and again, while all clients publish all the time."""

SPAN_US: Final = 12 * SECOND_US
"""How long something happens."""


def draw_client_schedule(seed: int, order: str | None = None) -> ClientSchedule:
    """The schedule of a seed."""
    return ClientScheduleDraw(seed, order).schedule()


class ClientScheduleDraw:
    """Draws one schedule."""

    def __init__(self, seed: int, order: str | None) -> None:
        self._random = random = RandomStream(seed, CLIENTS_STREAM)
        self._seed = seed
        self._fabric: str = pick(random, tuple(FABRICS))
        self._nodes = int(random.between(3, 5))
        self._clients = int(random.between(2, 4))
        self._lost_seconds = pick(random, (0.5, 1.0, 2.0))
        self._orders = [order] if order else pick(random, (["causal"], ["fifo", "causal"], ["fifo", "causal", "total"]))
        self._moments = [int(random.below(SPAN_US)) for _ in range(int(random.between(1, 3)))]
        self._steps: list[ClientStep] = []
        self._disks = disks = RandomStream(seed, DISKS_STREAM)
        everyone = list(range(self._nodes))
        some = [node for node in everyone if disks.below(2)]
        self._with_disk: list[int] = pick(disks, ([], [], everyone, some))

        self._flaps = RandomStream(seed, FLAPS_STREAM)
        self._writes: list[int] = []
        self._writes_from_us = 0

    def schedule(self) -> ClientSchedule:
        """What happens."""
        random = self._random
        if is_flapping := self._flaps.below(FLAPPING) == 0 and self._may_flap():
            self._flap()
        hardships = [self._crash, self._crash, self._leave, self._pause, self._cut, self._pause_client]
        for _ in range(int(random.between(1, 4))):
            pick(random, hardships)()
        has_disks = len(self._with_disk) == self._nodes
        if has_disks and self._disks.below(2):
            self._writes = [int(self._disks.between(1, 5)) for _ in range(int(self._disks.between(1, 3)))]
            self._writes_from_us = pick(self._disks, (0, *self._moments))
        if has_disks and self._disks.below(2) and self._may_black_out():
            at_us = pick(self._disks, self._moments) + int(self._disks.below(100_000))
            lasts_us = pick(self._disks, (1000, SECOND_US, 4 * SECOND_US))
            self._steps.append(ClientStep(at_us=at_us, kind="blackout", lasts_us=lasts_us))
        self._steps = [step for step in self._steps if self._is_survivable(step)]
        for _ in range(int(random.between(2, 8))):
            self._publish()
        if random.below(4) == 0:
            at_us = self._when_us()
            self._steps.append(ClientStep(at_us=at_us, kind="connect", client=self._clients - 1))
        everyone = list(range(self._nodes))
        keeps = pick(random, (everyone, everyone, [], [node for node in everyone if random.below(2)]))
        keeps = everyone if is_flapping else keeps
        return ClientSchedule(
            seed=self._seed,
            fabric=self._fabric,
            nodes=self._nodes,
            homes=[int(random.below(self._nodes)) for _ in range(self._clients)],
            keeps=keeps,
            with_disk=self._with_disk,
            delay_us=pick(random, ((50, 500), (100, 2000), (1000, 20_000))),
            lost_seconds=self._lost_seconds,
            writes=self._writes,
            writes_from_us=self._writes_from_us,
            writes_order=pick(self._disks, self._orders),
            steps=sorted(self._steps, key=lambda step: step.at_us),
        )

    def _is_survivable(self, step: ClientStep) -> bool:
        """Whether promises hold for it.

        On cubes and trees most of the nodes stay, as those that return without a disk have no vote. On a cube and in
        gossip a batch is safe when all members within reach have it, so a node that is cut off and then crashes may
        take it along.
        """
        if step.kind not in ("crash", "leave"):
            return True
        if not FABRICS[self._fabric].membership.is_full:
            return not any(self._may_isolate(other, step.at_us) for other in self._steps)
        ends = [other for other in self._steps if other.kind in ("crash", "leave")]
        return ends.index(step) < (self._nodes - 1) // 2 and (
            FABRICS[self._fabric].has_barriers or not self._has_cuts()
        )

    def _may_isolate(self, step: ClientStep, at_us: int) -> bool:
        """Whether nodes may have no neighbour at some time because of a cut or a pause."""
        healed_us = step.at_us + step.lasts_us + int(4 * self._lost_seconds * SECOND_US)
        return step.kind in ("cut", "pause") and step.at_us <= at_us <= healed_us

    def _has_cuts(self) -> bool:
        return any(step.kind in ("cut", "pause") for step in self._steps)

    def _may_black_out(self) -> bool:
        """Whether all nodes may crash at once, and what they had accepted comes back with their logs and clients."""
        fabric = FABRICS[self._fabric]
        return fabric.membership.is_full and (fabric.has_barriers or not self._has_cuts())

    def _may_flap(self) -> bool:
        """Whether promises hold if links flap: not in gossip where few nodes may have a message, in memory alone."""
        return FABRICS[self._fabric].membership.is_full or len(self._with_disk) == self._nodes

    def _when_us(self) -> int:
        """About one of the moments at which things happen, or at any time."""
        random = self._random
        if random.below(4) == 0:
            return int(random.below(SPAN_US))
        near_us = pick(random, (0, 1, 1000, 20_000, 300_000))
        return pick(random, self._moments) + int(random.below(near_us + 1))

    def _lasts_us(self) -> int:
        lost_us = int(self._lost_seconds * SECOND_US)
        return pick(self._random, (1000, 50_000, lost_us // 2, lost_us + lost_us // 4, 3 * lost_us, 4 * SECOND_US))

    def _end_node(self, kind: ClientKind) -> None:
        # The first node stays, so that the cluster never ends.
        node = int(self._random.between(1, self._nodes - 1))
        self._steps.append(ClientStep(at_us=self._when_us(), kind=kind, node=node, lasts_us=self._lasts_us()))

    def _crash(self) -> None:
        self._end_node("crash")

    def _leave(self) -> None:
        self._end_node("leave")

    def _pause(self) -> None:
        node = int(self._random.below(self._nodes))
        self._steps.append(ClientStep(at_us=self._when_us(), kind="pause", node=node, lasts_us=self._lasts_us()))

    def _pause_client(self) -> None:
        client = int(self._random.below(self._clients))
        step = ClientStep(at_us=self._when_us(), kind="pause_client", client=client, lasts_us=self._lasts_us())
        self._steps.append(step)

    def _cut(self) -> None:
        """Nodes and clients on two sides; or only clients from their nodes."""
        random = self._random
        nodes = [node for node in range(self._nodes) if random.below(2)] if random.below(2) else []
        clients = [client for client in range(self._clients) if random.below(2)]
        if nodes or clients:
            lasts_us = self._lasts_us()
            at_us = self._when_us()
            self._steps.append(ClientStep(at_us=at_us, kind="cut", nodes=nodes, clients=clients, lasts_us=lasts_us))

    def _flap(self) -> None:
        """The links of some nodes break and heal, too quickly for anybody to notice, or not quite."""
        random = self._flaps
        cut = [node for node in range(self._nodes) if random.below(3) == 0] or [int(random.below(self._nodes))]
        at_us = int(random.below(SPAN_US // 2))
        begun_us = at_us
        for _ in range(int(random.between(3, 8))):
            lasts_us = int(random.between(100_000, 900_000))
            self._steps.append(ClientStep(at_us=at_us, kind="cut", nodes=cut, lasts_us=lasts_us))
            at_us += lasts_us + int(random.between(50_000, 700_000))
        order = pick(random, self._orders)
        while begun_us < at_us:
            client = int(random.below(self._clients))
            self._steps.append(ClientStep(at_us=begun_us, kind="publish", client=client, order=order))
            begun_us += int(random.between(20_000, 140_000))

    def _publish(self) -> None:
        """One client publishes a burst, or several do one after the other."""
        random = self._random
        at_us = self._when_us()
        client = int(random.below(self._clients))
        for _ in range(int(random.between(1, 6))):
            order = pick(random, self._orders)
            self._steps.append(ClientStep(at_us=at_us, kind="publish", client=client, order=order))
            at_us += pick(random, (0, 100, 5000, 100_000))
            if random.below(3) == 0:
                client = int(random.below(self._clients))
