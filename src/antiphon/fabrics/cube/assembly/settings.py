"""The options of protocols on the cube, as scenarios give them in ``[protocol-options]``.

Live nodes have no table of their own for the cube: ``window`` and ``forget_seconds`` are settings of every node, and
the other times are those below (:mod:`antiphon.fabrics.cube.assembly.implementation`).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.options import Flag, NodeNumber, Seconds

Publications = Annotated[int, Meta(ge=1, le=1 << 31, description="a number of publications, 1 or more", examples=[64])]
DEFAULT: Final = Options()
THROUGH_FAULTS: Final = FaultOptions()

Ticks = Annotated[int, Meta(ge=1, le=1 << 40, description="a number of ticks", examples=[1000])]


class BroadcastOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree per source."""

    acknowledge: Annotated[Flag, "Send a wave of acknowledgements up each tree."] = True
    largest_first: Annotated[Flag, "Serve the child with the largest subtree first instead of last."] = False


class SingleTreeOptions(BroadcastOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree for all sources."""

    root: Annotated[NodeNumber, "The node whose tree all publications take."] = 0


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of protocols whose publishers may have several publications in transit."""

    window: Annotated[
        Publications, "The most own publications that a node may have in transit at a time, per topic."
    ] = int(DEFAULT.window)
    bundle: Annotated[Publications, "The most queued publications that may travel together."] = int(DEFAULT.bundle)


class VCubePsOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers."""

    largest_first: Annotated[Flag, "Serve the child with the largest subtree first instead of last."] = (
        DEFAULT.largest_first
    )
    directory: Annotated[Flag, "Newcomers ask the topic's home node for the members instead of asking all nodes."] = (
        False
    )
    aggregate: Annotated[
        Flag, "Delay a publication whose causal predecessors are still missing, and send them in one packet."
    ] = False


class LastingOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers where nodes fail and restart."""

    keep: Annotated[
        int,
        Meta(ge=2, le=1 << 31, description="a number of publications", examples=[256]),
        "The number of publications of each source that a member keeps in memory for other members.",
    ] = int(THROUGH_FAULTS.keep)
    compare: Annotated[
        Ticks,
        "The time between two comparisons of received publications among members, while a fault is active.",
        Seconds(0.1),
    ] = int(THROUGH_FAULTS.compare_ticks)
    forget: Annotated[Ticks, "After this time a disconnected member is not expected back.", Seconds(600)] = int(
        THROUGH_FAULTS.forget_ticks
    )
    exclude: Annotated[
        Ticks,
        "After this time total order continues without an unreachable node, where there is a majority.",
        Seconds(2),
    ] = int(THROUGH_FAULTS.exclude_ticks)
    log: Annotated[
        int,
        Meta(ge=0, le=1 << 31, description="a number of publications", examples=[1000]),
        "The number of publications of a topic in the log of each node, which survives crashes; 0: no log.",
    ] = 0
    sync: Annotated[
        int,
        Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[50]),
        "The time until a record of a node's process for its next incarnation is on its disk.",
    ] = 0
