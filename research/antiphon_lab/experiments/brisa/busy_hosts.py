"""Hosts that have other work to do: a second reading of Figure 4.10 of the thesis of M. Matos.

On PlanetLab many experiments share a machine, and what a message waits for is often not the line. Here each process has
a host of its own, which takes some time for every message that is sent or received. The time is drawn once per host,
from an exponential law. The document says nothing about its hosts, so no number is held to this reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon_lab.experiments.brisa.model import Growth, StreamCase, StreamMeasures, Watched, measured
from antiphon_lab.experiments.brisa.rivals_hosts import Host, Hosted, Sharing

HOST_STREAM = 160
BUSY_MS = 40.0
"""The mean time of a host for a message."""


@dataclass(frozen=True)
class RoutingCase(StreamCase):
    """A stream on hosts that take this long for a message on average; 0 is a network alone."""

    busy_ms: float = 0.0

    def __str__(self) -> str:
        return f"{super().__str__()}{f', hosts of {self.busy_ms:g} ms' if self.busy_ms else ''}"


class BusyHosts(Growth):
    """A system in which every process has a host of its own, some of them slow."""

    def __init__(self, case: StreamCase, seed: int) -> None:
        assert isinstance(case, RoutingCase), "a case says how busy hosts are"
        random = RandomStream(seed, HOST_STREAM)
        self.hosts = [Host(-case.busy_ms * log(1 - random.uniform())) for _ in range(case.nodes)]
        super().__init__(case, seed)

    def new_process(self, environment: Environment, options: BrisaOptions) -> Watched:
        return Hosted(Sharing(environment, self.hosts[int(environment.identifier)]), options, self)


def measure_routing(case: StreamCase, seed: int) -> StreamMeasures:
    """Let a system grow on its hosts, and a stream go through it."""
    is_busy = isinstance(case, RoutingCase) and case.busy_ms > 0
    return measured(BusyHosts(case, seed) if is_busy else Growth(case, seed), case)
