"""Which process a node runs: the fabric of its settings."""

from __future__ import annotations

from antiphon.fabrics.cube.topic import Options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import VCubePs
from antiphon.fabrics.cube.vcube_ps_aggregation import AggregatingVCubePs
from antiphon.kernel.process import Environment, Process
from antiphon.live.settings import Settings


def new_process(settings: Settings, environment: Environment, members: list[int]) -> Process:
    """The process of a node that has its place beside these others."""
    everybody = sorted((*members, environment.identifier))
    cube = PartialCube(dimension_for(everybody[-1] + 1), everybody)
    # A batch is one publication, and waiting messages make batches longer: the process needs no bundles of them.
    options = Options(order=settings.order, window=settings.window, bundle=1, mixed=True)
    if settings.aggregate:
        # What leaves in one turn for one peer is written at once, so no parcels are needed.
        return AggregatingVCubePs(environment, cube, options)
    return VCubePs(environment, cube, options)
