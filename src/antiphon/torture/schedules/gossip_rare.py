"""Random schedules for the gossip fabric that need more than one coincidence, so they are drawn as a whole.

* **Apart.** A node is cut off while others publish. One of the others leaves, comes back when the topic has long been
  silent, and publishes when the two can reach each other again: its publication follows some that the first node never
  received.
* **Forgetful.** Members keep a handful of publications, and more only for neighbours that miss them. No node joins,
  leaves or fails, and links lose up to a fifth: no publication that a member misses may be forgotten.
* **Cut off.** A publisher is separated from most others and publishes more than any node keeps
  (:mod:`antiphon.torture.schedules.gossip_partition`).
* **Logged.** All nodes have logs, and partitions outlast every buffer (in the same module).

All schedules of the gossip fabric have last words.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.gossip import draw_gossip_schedule, draw_network
from antiphon.torture.schedules.gossip_partition import (
    TALKING_BEGINS,
    draw_cut_off,
    draw_logged,
    new_scenario,
    with_last_words,
)
from antiphon.torture.schedules.operations import (
    MIXED,
    PART,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    pick,
    with_operations,
)

RARE_STREAM = 25
"""The stream of random numbers. It is separate, so that adding these schedules did not change others."""

LAST_WORDS_STREAM = 26
"""The stream for the last words of all schedules, separate for the same reason."""

WINDOW_STREAM = 60
"""The stream for the windows of publishers, separate for the same reason."""

APART, FORGETFUL, CUT_OFF, LOGGED = range(4)
"""The numbers of these kinds, out of eight equal chances."""

SILENCE = (30_000, 90_000)
"""Ticks of silence after the last publication; a node that left is out of the overlay when it ends."""


def draw_any_gossip_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed: one in eight is of each of these kinds, unless the wanted order is another one than
    theirs.
    """
    scenario = with_window(draw_before_last_words(seed, order), RandomStream(seed, WINDOW_STREAM))
    return with_last_words(scenario, RandomStream(seed, LAST_WORDS_STREAM))


def with_window(scenario: Scenario, random: RandomStream) -> Scenario:
    """Let neighbours slow publishers, as live nodes do, in every other schedule; at rest no publisher may be slowed."""
    if random.below(2) == 0:
        return scenario
    options = scenario.protocol_options
    window = min(pick(random, (1, 4, 64)), options.get("buffer", 1024))
    return msgspec.structs.replace(scenario, protocol_options={**options, "window": window})


def draw_before_last_words(seed: int, order: str | None) -> Scenario:
    """The scenario of a seed without its last words."""
    random = RandomStream(seed, RARE_STREAM)
    chance = random.below(8)
    if order in (None, MIXED, "causal") and chance == APART:
        return draw_apart(seed, random)
    if order in (None, "none", "fifo", "causal") and chance == FORGETFUL:
        return draw_forgetful(seed, order, random)
    if order in (None, MIXED, "none", "fifo", "causal") and chance == CUT_OFF:
        return draw_cut_off(seed, order, random)
    if order in (None, MIXED, "none", "fifo", "causal") and chance == LOGGED:
        return draw_logged(seed, order, random)
    return draw_gossip_schedule(seed, order)


def draw_apart(seed: int, random: RandomStream) -> Scenario:
    """A node leaves and comes back while another one is cut off from all."""
    nodes = int(random.between(3, 8))
    scenario = new_scenario(seed, "causal", nodes, draw_network(random), random)
    contacts = len(scenario.protocol_options["contacts"])
    others = list(range(contacts, nodes)) if contacts < nodes - 1 else list(range(1, nodes))
    away = pick(random, others)
    leaver = pick(random, [node for node in range(nodes) if node not in (0, away)])
    talkers = [node for node in range(nodes) if node not in (away, leaver)]
    begun = TALKING_BEGINS
    operations = [
        Operation(begun + 100 * number, PUBLISH, pick(random, talkers)) for number in range(pick(random, (1, 3, 10)))
    ]
    left = operations[-1].at + pick(random, (500, 3000))
    back = left + int(random.between(*SILENCE))
    found = back + pick(random, (-200, 0, 500, 3000))
    operations.append(Operation(begun - 10, PART, 0, 0, found, None, (away,)))
    operations += [Operation(left, UNSUBSCRIBE, leaver), Operation(back, SUBSCRIBE, leaver)]
    said = max(back, found) + int(random.below(1000))
    operations += [Operation(said + 300 * number, PUBLISH, leaver) for number in range(10)]
    return with_operations(scenario, operations)


def draw_forgetful(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """Links lose many messages, and nodes keep few."""
    nodes = int(random.between(3, 16))
    network = msgspec.structs.replace(draw_network(random), loss=pick(random, (0.05, 0.1, 0.2)))
    chosen = pick(random, ("none", "fifo", "causal")) if order is None else order
    scenario = new_scenario(seed, chosen, nodes, network, random)
    # Views are so large that no node is ever separated from the others while they may forget publications.
    views = {"active": 5, "passive": 30, "expansion": 2.0}
    options = {**scenario.protocol_options, **views, "keep": pick(random, (1, 2, 4))}
    gap = pick(random, (5, 50, 200))
    now, operations = TALKING_BEGINS, []
    speakers = [int(random.below(nodes)) for _ in range(2)]
    for _ in range(pick(random, (40, 80))):
        now += int(random.below(2 * gap))
        operations.append(Operation(now, PUBLISH, pick(random, speakers)))
    return with_operations(msgspec.structs.replace(scenario, protocol_options=options), operations)
