"""StaN in scenarios: its options, and the processes built from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.fabrics.options import Flag, NotNegative, Positive
from antiphon.fabrics.protocol import Builder, Protocol, Setting
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.order import Order
from antiphon_lab.protocols.gossip.stan import Stan
from antiphon_lab.protocols.gossip.stan_options import Rendezvous, StanOptions, view_size

VIEW_STREAM = 11
"""Names the stream from which the first views of a node are drawn."""


class StanTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of StaN."""

    hops: NotNegative = 4
    """How many hops a walk makes; as many as the overlay is wide."""
    period: Positive = 30_000
    """Ticks between two walks."""
    learning: Literal["nothing", "sources", "walks"] = "sources"
    """What visited nodes learn from a walk: nothing, as published; its sender; or all nodes that it has met."""
    random_slots: NotNegative = 0
    """How many entries of each view stay as they were drawn, and are not chosen by weight."""
    refill: NotNegative = 5
    """A view with fewer entries takes more from the findings of a walk."""
    patience: Positive = 8
    """The number of rounds without a change after which a node sends no walks, until something changes."""
    in_step: Flag = False
    """Whether the rounds of all nodes begin at the same time."""
    flood: Literal["crosspost", "simple"] = "crosspost"
    """Whether an event that is posted to several topics takes each link once."""
    remembered: Positive = 4096
    """By how many of the last events a node recognises copies."""


def stan_options(chosen: StanTableOptions, key: int) -> StanOptions:
    """The options of all processes."""
    return StanOptions(
        chosen.hops,
        chosen.period,
        chosen.learning,
        chosen.random_slots,
        chosen.refill,
        chosen.patience,
        chosen.in_step,
        chosen.flood,
        chosen.remembered,
        key,
    )


def prepare_stan(setting: Setting) -> Builder:
    """A function that builds the process at one node.

    A node that is present from the start knows random members of its topics, enough for connected overlays (section
    3.3.3 of the thesis of M. Matos). A node that joins later, or restarts, finds its topics through a rendezvous.
    """
    members, absent, seed = setting.members, setting.absent, setting.seed
    options = stan_options(setting.options, seed & 0xFFFFFFFF)
    rendezvous = Rendezvous(len(members))
    present = [[node for node in nodes if node not in absent] for nodes in members]
    topics_of: dict[int, list[int]] = {}
    for topic, nodes in enumerate(members):
        for node in nodes:
            topics_of.setdefault(node, []).append(topic)

    def build(environment: Environment) -> Stan:
        node = int(environment.identifier)
        process = Stan(environment, options, rendezvous)
        random = RandomStream(seed, VIEW_STREAM, node)
        for topic in topics_of.get(node, ()):
            if environment.now() == 0 and node not in absent:
                process.begin_as_member(topic, drawn_view(present[topic], node, random))
            else:
                process.begin_as_newcomer(topic)
        return process

    return build


def drawn_view(members: Sequence[int], node: int, random: RandomStream) -> list[int]:
    """Random members of a topic, as many as its overlay needs, in the order in which they were drawn."""
    count = view_size(len(members))
    if 2 * count >= len(members):
        others = [member for member in members if member != node]
        for place in range(count):
            other = int(random.between(place, len(others) - 1))
            others[place], others[other] = others[other], others[place]
        return others[:count]
    view: dict[int, None] = {}
    while len(view) < count:
        member = members[random.below(len(members))]
        if member != node:
            view[member] = None
    return list(view)


def no_orders(process: Process) -> list[Order]:
    """Nothing ever waits where nothing is ordered."""
    assert isinstance(process, Stan), "asked about StaN"
    return []


PROTOCOLS = {
    "stan": Protocol(
        StanTableOptions,
        prepare_stan,
        no_orders,
        ("none",),
        has_topics=True,
        agrees_probably=True,
        fabric=GOSSIP.name,
    ),
}
