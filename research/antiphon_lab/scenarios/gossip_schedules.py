"""Random schedules for the rivals of BRISA: those of the gossip fabric, with another protocol in its place."""

from __future__ import annotations

from typing import Any

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.gossip import draw_gossip_schedule
from antiphon.torture.schedules.operations import pick
from antiphon_lab.protocols.gossip.simple_gossip import needed_view

RIVAL_STREAM = 10
"""Names the stream from which protocols are drawn, apart from those of the schedule."""


def draw_rival_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed, for Plumtree, Thicket or rumours with anti-entropy."""
    return draw_gossip_schedule(seed, order, choose_rival)


def choose_rival(seed: int, nodes: int, drawn: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A rival with the options that it shares with BRISA, as drawn, and its own."""
    random = RandomStream(seed, RIVAL_STREAM)
    protocol = pick(random, ("plumtree", "simple-gossip", "thicket"))
    shared = {name: drawn[name] for name in ("contacts", "join_window")}
    if protocol != "simple-gossip":
        shared |= {name: drawn[name] for name in ("active", "passive", "expansion", "period")}
    if protocol == "thicket":
        fanout, trees = pick(random, (2, 5)), pick(random, (1, 3, 8))
        own = {"trees": trees, "fanout": fanout, "max_load": max(fanout, trees) + pick(random, (0, 2))}
        return protocol, {**shared, **own, "graft_after": pick(random, (50, 500))}
    if protocol == "plumtree":
        return protocol, {**shared, "graft_after": pick(random, (50, 500)), "per_source": pick(random, (False, True))}
    view = needed_view(nodes) + pick(random, (0, 20))
    own = {
        "period": pick(random, (100, 300)),
        "view": view,
        "fanout": min(view, pick(random, (1, 2, 5))),
        "exchanged": min(view, pick(random, (2, 8))),
        "exchange_periods": pick(random, (1, 10)),
        "batch": pick(random, (1, 16)),
    }
    return protocol, {**shared, **own}
