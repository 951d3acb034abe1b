"""Small systems with a space over the cube, for the explorer: topics 0, 1, 2, ... are one space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from antiphon.audit.spaces import SpaceOracle
from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment
from antiphon.kernel.message import Publication
from antiphon.simulator.explore.explorer import (
    Exploration,
    ExplorerEnvironment,
    Operation,
    System,
    explore_system,
)
from antiphon.spaces.process import SpaceProcess
from antiphon.spaces.space import SpaceOrder, SpaceOutside

Scripts = Sequence[Sequence[Operation]]
NewSpace = Callable[[int, SpaceOutside], SpaceOrder]


def builder(
    node_count: int, members: Sequence[Iterable[int]], new_space: NewSpace = SpaceOrder, in_space: bool = True
) -> Callable[[Environment], SpaceProcess]:
    """Processes under one space of all topics; per topic the members at the start."""
    cube = full_or_partial(node_count)
    present = [list(nodes) for nodes in members]
    views = [View(cube.dimension, nodes) for nodes in present]

    def build_inner(environment: Environment) -> VCubePs:
        process = VCubePs(environment, cube, Options())
        for topic, nodes in enumerate(present):
            if environment.identifier in nodes:
                process.begin_as_member(topic, views[topic])
        return process

    def build(environment: Environment) -> SpaceProcess:
        return SpaceProcess(environment, build_inner, lambda _: 0 if in_space else -1, new_space=new_space)

    return build


class SpaceWorld(ExplorerEnvironment):
    """Tells the judge of the space too."""

    def __init__(self, identifier: int, system: SpaceSystem) -> None:
        super().__init__(identifier, system)
        self._spaces = system.spaces

    def subscribed(self, topic: int) -> None:
        super().subscribed(topic)
        self._spaces.subscribed(self.identifier, topic)

    def deliver(self, publication: Publication) -> None:
        super().deliver(publication)
        self._spaces.delivered(self.identifier, publication.topic, publication.source, publication.sequence)


class SpaceSystem(System):
    """A system whose topics are one space."""

    spaces: SpaceOracle

    def world(self, identifier: int) -> ExplorerEnvironment:
        if identifier == 0:
            self.spaces = SpaceOracle(self.oracle.findings)
        return SpaceWorld(identifier, self)

    def take(self, choice: int) -> None:
        node = -1 - choice
        if choice < 0 and self._scripts[node][self._done[node]][0] == "unsubscribe":
            self.spaces.leaving(node, self._scripts[node][self._done[node]][1])
        super().take(choice)

    def _publish(self, process: object, topic: int, order: int, keys: list[int]) -> None:
        assert isinstance(process, SpaceProcess)
        number = self._published.get((process.me, topic), 0) + 1
        self.spaces.requested(int(process.me), topic, int(process.me), number)
        super()._publish(process, topic, order, keys)

    def state(self) -> str:
        return f"{super().state()}\n{self.spaces.state()}"

    def wrong_at_the_end(self) -> str | None:
        held = [process.unfinished() for process in self.processes]
        return f"something waits for ever: {held}" if any(held) else super().wrong_at_the_end()


def explore_space(
    members: Sequence[Iterable[int]],
    scripts: Scripts,
    new_space: NewSpace = SpaceOrder,
    in_space: bool = True,
    state_limit: int = 300_000,
) -> Exploration:
    """Follow every schedule of a system, or stop at a violation."""
    build = builder(len(scripts), members, new_space, in_space)
    return explore_system(lambda: SpaceSystem(build, scripts), state_limit)
