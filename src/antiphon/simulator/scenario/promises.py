"""Determines the promises that apply to a run of a scenario.

Completeness is not promised where copies are lost, nor causal order under ``fifo``. The promises are written into the
trace (:mod:`antiphon.trace.contract`), so that its judge needs no protocol. ``stuck``: a process began something and
cannot finish it, though no message is in transit any more. ``holes``: a node reported a loss of a publication that it
delivered, reported it twice, or reported one that cannot be lost.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from antiphon.fabrics.gossip.recovery import KEEP_ALL_PERIODS
from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.simulator.scenario.incarnations import (
    changes_lives,
    crashing_nodes,
    failing_publisher,
    returns_as_itself,
)
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    LeaveFault,
    PartitionFault,
    PauseFault,
    ResumeFault,
    Scenario,
)
from antiphon.simulator.scenario.spaces import spaces_of
from antiphon.simulator.scenario.workload import plan
from antiphon.trace.contract import (
    COMPLETENESS,
    HOLES,
    PROMISED,
    REQUESTS,
    STUCK,
    TOLD_ALWAYS,
    TOLD_NEVER,
    TOLD_UNKEPT,
    TOTAL_ORDER,
    UNJUDGED,
    Contract,
)

PROMISES = {
    "none": ("duplicates", "validity"),
    "fifo": ("duplicates", "validity", "fifo"),
    "causal": ("duplicates", "validity", "fifo", "causal"),
    TOTAL_ORDER: ("duplicates", "validity", "fifo", "causal", TOTAL_ORDER),
}
"""The promises of each order on any network."""


def why_not_judged(scenario: Scenario) -> str | None:
    """Why a scenario cannot be judged; None if it can."""
    if scenario.trace.level == "counts":
        return "the level of the trace is counts"
    if scenario.order not in PROMISES:
        return f"{scenario.order} promises nothing"
    if changes_lives(scenario) and PROTOCOLS[scenario.protocol].agrees_probably:
        twice = publishes_in_two_lives(scenario)
        return None if twice is None else f"node {twice} publishes before and after a restart, and numbers from 1 again"
    if changes_lives(scenario):
        if not PROTOCOLS[scenario.protocol].recovers:
            return "the protocol defines no promise to nodes that crash, join or leave"
        publisher = failing_publisher(scenario)
        outlives = PROTOCOLS[scenario.protocol].outlives_publishers or all_have_logs(scenario)
        if publisher is not None and not outlives:
            return f"node {publisher} publishes and fails, and its publications may be lost with it"
    return None


def has_holes(scenario: Scenario) -> bool:
    """Whether publications have an order that allows holes."""
    order = PROTOCOLS[scenario.protocol].holes_in
    return order is not None and scenario.uses_order(order)


def strongest(scenario: Scenario) -> str:
    """The strongest order of any publication of a scenario."""
    return PROTOCOLS[scenario.protocol].orders[-1] if scenario.mixes_orders() else scenario.order


def loses(scenario: Scenario) -> bool:
    """Whether copies may never arrive: they are lost, or a node is paused for ever."""
    recovers = PROTOCOLS[scenario.protocol].recovers and not scenario.protocol_options.get("published", False)
    heals = PROTOCOLS[scenario.protocol].needs_connections or recovers
    if (scenario.network.loss > 0 and not recovers) or any(
        isinstance(fault, PartitionFault) and (fault.until is None or not heals) for fault in scenario.faults
    ):
        return True
    if standing_still(scenario) and not heals:
        return True
    return paused_for_ever(scenario)


def any_partition(scenario: Scenario) -> bool:
    """Whether the network splits, for however long, or others count a paused node as lost."""
    return any(isinstance(fault, PartitionFault) for fault in scenario.faults) or bool(standing_still(scenario))


def standing_still(scenario: Scenario) -> set[int]:
    """The nodes that are paused for so long that others count them as lost, as if partitioned from all others."""
    if not scenario.network.notices_pauses:
        return set()
    since: dict[int, int] = {}
    found: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PauseFault):
            since.update(dict.fromkeys(fault.targets(scenario.nodes), fault.at))
        elif isinstance(fault, ResumeFault | CrashFault):
            for node in fault.targets(scenario.nodes):
                if node in since and fault.at - since.pop(node) >= scenario.network.detection:
                    found.add(node)
    return found | set(since)


def paused_for_ever(scenario: Scenario) -> bool:
    """Whether a node never resumes after its last pause."""
    paused: set[int] = set()
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, PauseFault | ResumeFault):
            targets = fault.targets(scenario.nodes)
            paused = paused.difference(targets) if isinstance(fault, ResumeFault) else paused.union(targets)
    return bool(paused)


def waits_for_majority(scenario: Scenario) -> bool:
    """Whether publications of every order wait for a majority before any node delivers them."""
    return bool(scenario.protocol_options.get("quorum_delivery", False))


def nodes_apart(scenario: Scenario) -> set[int]:
    """The nodes that may have published on a side of a partition that was not asked when a total publication completed.

    Their weaker publications have a place among total ones on their own side only, and nothing outside shows which side
    was asked; brokers of a tree record it. The same holds for a publication that a node logged and sent to no other
    node before it crashed, if the node restarts.
    """
    if scenario.protocol_options.get("quorum", False):
        return set()
    if any_partition(scenario):
        return set(range(scenario.nodes))
    return crashing_nodes(scenario) if PROTOCOLS[scenario.protocol].remembers else set()


def publishes_in_two_lives(scenario: Scenario) -> int | None:
    """A node that publishes before and after a crash or a leave, so that two publications have the same name."""
    ends: dict[int, list[int]] = {}
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, CrashFault | LeaveFault):
            for node in fault.targets(scenario.nodes):
                ends.setdefault(node, []).append(fault.at)
    lives: dict[int, set[int]] = {}
    for planned in plan(scenario):
        if planned.node in ends:
            lives.setdefault(planned.node, set()).add(sum(end <= planned.at for end in ends[planned.node]))
    return next((node for node, found in lives.items() if len(found) > 1), None)


def may_pass_over(scenario: Scenario) -> bool:
    """Whether a node may be cut off for longer than others keep publications; it then reports the missing ones."""
    protocol = PROTOCOLS[scenario.protocol]
    parted = any_partition(scenario) and protocol.recovers and not protocol.needs_connections
    return parted and not all_fits_buffers(scenario)


def all_fits_buffers(scenario: Scenario) -> bool:
    """Whether nodes that stay up keep everything that any node misses, in buffers or logs: then nothing is lost.

    BRISA nodes that have lost a neighbour forget nothing for ``KEEP_ALL_PERIODS``, as far as it fits.
    """
    protocol = PROTOCOLS[scenario.protocol]
    if not protocol.keeps_after_cut:
        return False
    options: Any = msgspec.convert(scenario.protocol_options, protocol.options)
    published = Counter((planned.node, planned.topic) for planned in plan(scenario))
    # Publishers are up, and are asked themselves.
    has_log = options.log >= published.total()
    unlogged = [name for name in published if not has_log or name[0] not in (options.log_nodes or (name[0],))]
    cuts = [fault for fault in scenario.faults if isinstance(fault, PartitionFault)]
    is_short = all(cut.until is not None and cut.until - cut.at < KEEP_ALL_PERIODS * options.period for cut in cuts)
    is_kept = is_short and not changes_lives(scenario)
    return all(is_kept and published[name] <= options.buffer for name in unlogged)


def all_have_logs(scenario: Scenario) -> bool:
    """Whether all nodes of a gossip fabric have logs that hold everything, so that they outlive publishers."""
    protocol = PROTOCOLS[scenario.protocol]
    if not protocol.keeps_after_cut:
        return False
    options: Any = msgspec.convert(scenario.protocol_options, protocol.options)
    return not options.log_nodes and options.log >= max(1, sum(1 for _ in plan(scenario)))


def whose_losses(scenario: Scenario) -> str:
    """The publications that a node may report as lost instead of delivering them."""
    if PROTOCOLS[scenario.protocol].remembers:
        # A node that fails for good may take publications with it that others know of; they report it, unless a member
        # has delivered them: that one gives them to others. The sides of a partition that begin to order totally
        # without each other report losses too. No other loss may be reported.
        return TOLD_ALWAYS if scenario.uses_order(TOTAL_ORDER) and any_partition(scenario) else TOLD_UNKEPT
    if failing_publisher(scenario) is not None and all_have_logs(scenario):
        return TOLD_UNKEPT
    return TOLD_ALWAYS if may_pass_over(scenario) else TOLD_NEVER


def contract_of(scenario: Scenario) -> Contract:
    """The promises to a run that can be judged, as its trace records them."""
    protocol = PROTOCOLS[scenario.protocol]
    told = whose_losses(scenario)
    # Where orders are mixed, the oracle judges each publication by its own order.
    always = PROMISES[strongest(scenario)]
    always += ("membership",) if protocol.has_topics else ()
    always += (HOLES,) if protocol.agrees_probably or has_holes(scenario) or told != TOLD_NEVER else ()
    at_end: tuple[str, ...] = ()
    if protocol.agrees_probably:
        # Holes are allowed, and are counted; a remaining node has delivered its own publications.
        at_end = () if paused_for_ever(scenario) else (REQUESTS, STUCK)
    elif not loses(scenario):
        at_end = (COMPLETENESS, REQUESTS)
        # Where copies are duplicated, so are answers, and a wave that was opened twice is not closed twice.
        at_end += (STUCK,) if scenario.network.duplication == 0 else ()
    return Contract(
        scenario.fabric,
        scenario.protocol,
        nodes=scenario.nodes,
        everybody=not protocol.has_topics,
        # Which publications of failed nodes must be delivered depends on the publications that wait for them.
        default=ORDER_NAMES[min(ORDER_NAMES.index(scenario.order), CAUSAL)],
        always=always,
        at_end=at_end,
        remembers=protocol.remembers,
        told=told,
        holes_in=TOTAL_ORDER if has_holes(scenario) else None,
        counts_all=protocol.agrees_probably,
        apart=tuple(sorted(nodes_apart(scenario))),
        # Where weaker publications overtake total ones, only total ones are in one order.
        weaker_pass=has_holes(scenario),
        secured=bool(scenario.protocol_options.get("quorum", False)) and not waits_for_majority(scenario),
        all_asked=waits_for_majority(scenario),
        loose_sessions=not scenario.protocol_options.get("strict_session", True),
        returns=returns_as_itself(scenario),
        spaces=spaces_of(scenario),
    )


def promised_to(scenario: Scenario) -> dict[str, Any]:
    """The metadata of a trace about its promises, or why it cannot be judged."""
    reason = why_not_judged(scenario)
    return {PROMISED: contract_of(scenario).as_metadata()} if reason is None else {UNJUDGED: reason}
