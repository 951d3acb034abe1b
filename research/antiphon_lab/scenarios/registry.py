"""The protocols of the laboratory by the names that scenarios use; an entry point makes them known to the simulator."""

from __future__ import annotations

from antiphon.fabrics.protocol import Protocol
from antiphon_lab.scenarios.cube import PROTOCOLS as CUBE
from antiphon_lab.scenarios.gossip import PROTOCOLS as GOSSIP
from antiphon_lab.scenarios.stan import PROTOCOLS as STAN
from antiphon_lab.scenarios.tree import PROTOCOLS as TREE

PROTOCOLS: dict[str, Protocol] = {**CUBE, **TREE, **GOSSIP, **STAN}
