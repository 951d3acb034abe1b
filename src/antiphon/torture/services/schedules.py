"""Random schedules of services: callers, and what happens to replicas, nodes and the network, one after the other."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.torture.schedules.operations import pick

SERVICES_STREAM: Final = 63
"""Names the stream of random numbers."""

REPLICAS: Final = 3
MOST_CALLERS: Final = 4
PATIENCE_MS: Final = 60_000
"""No fault lasts so long."""

HASTE_MS: Final = 400
"""A hasty caller makes a call again when it has no result by then."""

REMEMBERED_AT_MOST: Final = 65_536

ServiceFault = Literal["program", "commit", "wipe", "store", "node", "network", "blackout", "slow", "unheard"]
FAULTS: Final[tuple[ServiceFault, ...]] = get_args(ServiceFault)
COMMITS: Final = ("before", "after", "unanswered")


class ServiceStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault at one of the nodes, or at all, and the end of it. The next one begins after that.

    ``program``: the program of a replica is killed. ``commit``: it is killed around its next commit. ``wipe``: it is
    killed, and its store is gone. ``store``: its store does not work for a while. ``node``: the node is killed as well.
    ``network``: the node is cut off. ``blackout``: all replicas are killed, and one store is gone. ``slow``: a node
    returns without its store while messages between the others take long. ``unheard``: every replica is killed between
    its next commit and the reply. Nodes and programs return in the ``order`` of their numbers.
    """

    kind: ServiceFault
    node: int = 0
    after_ms: int = 200
    lasts_ms: int = 500
    commit: str = "after"
    delay_ms: int = 0
    order: list[int] = msgspec.field(default_factory=lambda: list(range(REPLICAS)))
    again_ms: list[int] = msgspec.field(default_factory=lambda: [0] * REPLICAS)


class ServiceCaller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that makes calls: at a client that knows these nodes, or at node 0 if it knows none."""

    seed: int
    nodes: list[int] = []
    timeout_ms: int = PATIENCE_MS


class ServiceSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster with a replica at each node, callers, and all that happens to them.

    Replicas remember ``remembered`` operations; to one that lacks more they send a snapshot.
    """

    seed: int
    fabric: str
    callers: list[ServiceCaller]
    steps: list[ServiceStep]
    remembered: int = REMEMBERED_AT_MOST
    calls_ms: int = 500
    """How long a caller waits between two calls, at most."""


def draw_service_schedule(seed: int) -> ServiceSchedule:
    """The schedule of a seed."""
    mine = RandomStream(seed, SERVICES_STREAM)
    fabric = pick(mine, [name for name, fabric in FABRICS.items() if not fabric.may_pass_over])
    return ServiceSchedule(
        seed=seed,
        fabric=fabric,
        callers=[draw_caller(mine, number) for number in range(int(mine.between(2, MOST_CALLERS)))],
        steps=[draw_step(mine) for _ in range(int(mine.between(2, 5)))],
        remembered=pick(mine, (8, 16, REMEMBERED_AT_MOST)),
        calls_ms=pick(mine, (200, 500, 500, 1000)),
    )


def draw_caller(mine: RandomStream, number: int) -> ServiceCaller:
    """The first caller works at a node, the others at clients."""
    nodes = shuffled(mine) if number else []
    return ServiceCaller(seed=int(mine.below(1 << 30)), nodes=nodes, timeout_ms=pick(mine, (PATIENCE_MS, HASTE_MS)))


def draw_step(mine: RandomStream) -> ServiceStep:
    """One fault."""
    kind = pick(mine, FAULTS)
    node = int(mine.below(REPLICAS))
    if kind in ("node", "slow"):
        # A caller works at node 0, and does not survive it.
        node = int(mine.between(1, REPLICAS - 1))
    return ServiceStep(
        kind=kind,
        node=node,
        after_ms=int(mine.between(100, 2000)),
        lasts_ms=int(mine.between(50, 4000)),
        commit=pick(mine, COMMITS),
        delay_ms=int(mine.between(200, 1500)) if kind == "slow" else 0,
        order=shuffled(mine),
        again_ms=[int(mine.below(2000)) for _ in range(REPLICAS)],
    )


def shuffled(mine: RandomStream) -> list[int]:
    """The nodes in any order."""
    left = list(range(REPLICAS))
    return [left.pop(int(mine.below(len(left)))) for _ in range(REPLICAS)]
