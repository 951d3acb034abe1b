"""The code of the cube: its messages, its process on a live node, and its protocols in scenarios."""

from __future__ import annotations

from typing import Any, Final

from antiphon.fabrics.cube import messages
from antiphon.fabrics.cube.assembly.broadcast_scenario import BROADCAST, SINGLE_TREE
from antiphon.fabrics.cube.assembly.scenario import LASTING, VCUBE_PS
from antiphon.fabrics.cube.assembly.settings import LastingOptions
from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.repair import messages as repair
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.total_order import messages as total_order
from antiphon.fabrics.fabric import Implementation, NodeChoices, ProcessTraits
from antiphon.fabrics.options import options_of
from antiphon.kernel.process import Environment, Process
from antiphon.spaces import messages as spaces

KEPT_BESIDE: Final = 64
"""So many batches of each publisher are kept in memory beyond those that may be in transit."""

LARGEST_BATCH_BYTES: Final = 16 << 20
"""More than one message of the largest size, with everything around it."""

TICKS: Final = {
    option.name: option.from_live(option.live.default)
    for option in options_of(LastingOptions)
    if option.live is not None
}
"""The times of live nodes. They cannot be set, but for ``forget``."""


def cube_options(order: str, window: int) -> Options:
    """The options of the process of a live node."""
    # A batch is one publication, and waiting messages make batches longer: the process needs no bundles of them.
    return Options(order=order, window=window, bundle=1, mixed=True, total=True)


def new_cube(choices: NodeChoices, environment: Environment, options: Options) -> FaultTolerantVCubePs:
    """A process that knows no other node yet."""
    me = int(environment.identifier)
    keep = choices.window + options.bundle + KEPT_BESIDE
    # More than is in transit: other nodes may have larger windows.
    keep_bytes = 3 * choices.window_bytes + LARGEST_BATCH_BYTES
    faults = FaultOptions(keep, TICKS["compare"], choices.forget_ticks, TICKS["exclude"], keep_bytes)
    return FaultTolerantVCubePs(environment, PartialCube(dimension_for(me + 1), [me]), options, faults)


def new_process(choices: NodeChoices, environment: Environment, members: list[int]) -> Process:
    """The process of a node beside these others."""
    process = new_cube(choices, environment, cube_options(choices.order, choices.window))
    if members:
        process.begin_as_newcomer()
    return process


def traits(_table: Any) -> ProcessTraits:
    """The traits of a live node."""
    return ProcessTraits(has_journal=True)


IMPLEMENTATION: Final = Implementation(
    messages={**messages.NUMBERED, **repair.NUMBERED, **total_order.NUMBERED, **spaces.NUMBERED},
    protocols={
        "broadcast": BROADCAST,
        "single-tree": SINGLE_TREE,
        "vcube-ps": VCUBE_PS,
        "vcube-ps-lasting": LASTING,
    },
    new_process=new_process,
    traits=traits,
)
