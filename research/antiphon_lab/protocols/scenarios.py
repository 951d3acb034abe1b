"""The protocols of the laboratory by the names that scenarios use; an entry point makes them known to the simulator."""

from __future__ import annotations

from antiphon.simulator.scenario.protocols.protocol import Protocol
from antiphon_lab.protocols.cube.scenarios import PROTOCOLS as CUBE
from antiphon_lab.protocols.gossip.scenarios import PROTOCOLS as GOSSIP
from antiphon_lab.protocols.gossip.stan_scenarios import PROTOCOLS as STAN
from antiphon_lab.protocols.tree.scenarios import PROTOCOLS as TREE

PROTOCOLS: dict[str, Protocol] = {**CUBE, **TREE, **GOSSIP, **STAN}
