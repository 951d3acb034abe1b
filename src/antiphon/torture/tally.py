"""The results of schedules, counted: one outcome per schedule, one tally per campaign.

A tally can be added to another one, so several processes can run portions of a campaign. ``as_json`` is the form in
which ``antiphon torture --json`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import msgspec

from antiphon.audit.clients import LOST, WRITTEN
from antiphon.audit.clients import TOTAL as CLIENT_TOTAL
from antiphon.audit.membership import IDENTITY, JOINING, KNOWLEDGE, TOGETHERNESS
from antiphon.audit.services import SERVICE_KINDS
from antiphon.audit.streams import STREAM_KINDS
from antiphon.simulator.scenario.last_words import LAST_WORDS
from antiphon.simulator.scenario.scenario import DiskFault, Fault, PartitionFault, ResumeFault, Scenario
from antiphon.torture.rates import failure_rate, wilson
from antiphon.torture.schedules.families import FAMILIES, agreement_of, family_name, played_agreement_of
from antiphon.torture.schedules.operations import MIXED
from antiphon.trace.contract import HOLES, REQUESTS, STUCK, TOTAL_ORDER

TICKS_PER_SECOND = 1000
"""A tick of a schedule stands for a millisecond: delays of about 100 ticks are those of links between continents."""

ERROR = "error"
ENDLESS = "endless"
UNJUDGED = "unjudged"
"""Failures without a verdict: an exception was raised, the run did not end, or no judge applies."""

MEMBERSHIP = "membership"
"""Schedules of whole nodes are counted under this name, beside the families."""

CLIENTS = "clients"
"""Schedules of whole nodes with clients are counted under this name and that of their fabric."""

STREAMS = "streams"
"""Schedules of nodes that keep a history, and of programs, are counted under this name and that of their fabric."""

SERVICES = "services"
"""The same for schedules of replicas and callers of services."""

KINDS = (
    ERROR,
    IDENTITY,
    TOGETHERNESS,
    JOINING,
    KNOWLEDGE,
    "duplicates",
    "validity",
    "membership",
    "fifo",
    "causal",
    TOTAL_ORDER,
    "completeness",
    LAST_WORDS,
    HOLES,
    REQUESTS,
    STUCK,
    ENDLESS,
    UNJUDGED,
)
"""All kinds of failure. Those that say most about their cause come first."""

CLIENT_KINDS = (CLIENT_TOTAL, LOST, WRITTEN)
"""Those that only schedules with clients have."""


STREAM_ONLY_KINDS = tuple(kind for kind in STREAM_KINDS if kind not in (*KINDS, *CLIENT_KINDS))
"""Those that only schedules of streams have."""


SERVICE_ONLY_KINDS = tuple(kind for kind in SERVICE_KINDS if kind not in (*KINDS, *CLIENT_KINDS))
"""Those that only schedules of services have."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one schedule."""

    seed: int
    fabric: str = ""
    ticks: int = 0
    publications: int = 0
    messages: int = 0
    dropped: int = 0
    """Messages lost by the network or with a node."""
    deliveries: int = 0
    recovered: int = 0
    recovery_ticks: int = 0
    longest_recovery: int = 0
    moves: int = 0
    gaps: int = 0
    """How often clients went on at another node, and were told that messages may be missing."""
    holes: int = 0
    agreed: int = 0
    owed: int = 0
    """Where agreement is only probable: publications that all nodes delivered, and publications that at least one
    delivered.
    """
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    """Violations by kind; empty if the schedule was survived."""
    about: str = ""
    """Describes the violations, with examples."""


class Counts(msgspec.Struct, kw_only=True):
    """Numbers that can be added to those of another instance."""

    def add(self, other: Self) -> None:
        """Add the counts of another instance."""
        for field in msgspec.structs.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class AgreementCount(Counts, kw_only=True):
    """Publications that all remaining nodes delivered, out of those that at least one delivered.

    ``expected`` is the prediction of theory for rounds in step; ``played`` is the prediction of a game with rounds that
    are not in step.
    """

    publications: int = 0
    agreed: int = 0
    holes: int = 0
    expected: float = 0.0
    played: float = 0.0

    def as_json(self, theory: bool) -> dict[str, Any] | None:
        """The rate with its 95 % interval (Wilson 1927); None without publications."""
        if self.publications == 0:
            return None
        low, high = wilson(self.agreed, self.publications)
        return {
            "publications": self.publications,
            "rate": self.agreed / self.publications,
            "low": low,
            "high": high,
            "theory": self.expected / self.publications if theory else None,
            "played": self.played / self.publications if theory else None,
        }


class FabricCount(Counts, kw_only=True):
    """The results of the schedules of one family."""

    seeds: int = 0
    ticks: int = 0
    faults: int = 0
    publications: int = 0
    messages: int = 0
    deliveries: int = 0
    violations: int = 0
    failed: int = 0

    def as_json(self) -> dict[str, Any]:
        """The form in which ``--json`` prints it."""
        counts: dict[str, Any] = msgspec.to_builtins(self)
        rate = failure_rate(self.failed, self.seeds)
        return {"simulated_seconds": counts.pop("ticks") / TICKS_PER_SECOND, **counts, "failure_rate": rate}


class Tally(msgspec.Struct, kw_only=True):
    """The results of many schedules."""

    seeds: int = 0
    ticks: int = 0
    faults: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(("subscribe", "unsubscribe", "pause"), 0)
    )
    fabrics: dict[str, FabricCount] = msgspec.field(default_factory=dict)
    networks: dict[str, int] = msgspec.field(default_factory=dict)
    orders: dict[str, int] = msgspec.field(default_factory=dict)
    publications: int = 0
    messages: int = 0
    dropped: int = 0
    deliveries: int = 0
    recovered: int = 0
    """How often a node that had lost all parents in a structure received something from a new parent, and how often a
    message of a client was accepted later than 0.1 s after it was asked for and all faults before had ended."""
    recovery_ticks: int = 0
    longest_recovery: int = 0
    moves: int = 0
    gaps: int = 0
    agreement: AgreementCount = msgspec.field(default_factory=AgreementCount)
    calm_agreement: AgreementCount = msgspec.field(default_factory=AgreementCount)
    """Counts all schedules; ``calm_agreement`` counts those for which theory predicts agreement."""
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    failing: list[Outcome] = msgspec.field(default_factory=list)

    def count(self, scenario: Scenario, outcome: Outcome) -> None:
        """Add one schedule."""
        self.seeds += 1
        self.ticks += outcome.ticks
        self.publications += outcome.publications
        self.messages += outcome.messages
        self.dropped += outcome.dropped
        self.deliveries += outcome.deliveries
        self._count_recovery(outcome)
        changes = {"subscribe": len(scenario.subscriptions), "unsubscribe": len(scenario.unsubscriptions)}
        met: dict[str, int] = {}
        for fault in scenario.faults:
            kind = fault_kind(fault)
            if kind is not None:
                met[kind] = met.get(kind, 0) + 1
        add_up(self.faults, {**changes, **met})
        self._count_family(family_name(scenario), outcome, sum(met.values()) + sum(changes.values()))
        add_up(self.networks, dict.fromkeys(network_kinds(scenario), 1))
        add_up(self.orders, {MIXED if scenario.mixes_orders() else scenario.order: 1})
        add_up(self.violations, outcome.violations)
        self._count_agreement(scenario, outcome)
        if outcome.violations:
            self.failing.append(outcome)

    def count_cluster(self, steps: list[str], outcome: Outcome) -> None:
        """Add a schedule of whole nodes, to which these steps happen."""
        faults = [step for step in steps if step not in ("start", "connect", "publish", "consume", "read")]
        add_up(self.faults, {kind: faults.count(kind) for kind in dict.fromkeys(faults)})
        self.seeds += 1
        self.ticks += outcome.ticks
        self.publications += outcome.publications
        self.messages += outcome.messages
        self.deliveries += outcome.deliveries
        self._count_recovery(outcome)
        self.moves += outcome.moves
        self.gaps += outcome.gaps
        add_up(self.violations, outcome.violations)
        self._count_family(outcome.fabric, outcome, len(faults))
        if outcome.violations:
            self.failing.append(outcome)

    def _count_recovery(self, outcome: Outcome) -> None:
        self.recovered += outcome.recovered
        self.recovery_ticks += outcome.recovery_ticks
        self.longest_recovery = max(self.longest_recovery, outcome.longest_recovery)

    def count_undrawn(self, outcome: Outcome) -> None:
        """Add a seed whose schedule could not be drawn or run."""
        self.seeds += 1
        add_up(self.violations, outcome.violations)
        self.failing.append(outcome)
        if outcome.fabric in FAMILIES:
            self.fabrics.setdefault(outcome.fabric, FabricCount()).add(FabricCount(seeds=1, violations=1, failed=1))

    def _count_family(self, name: str, outcome: Outcome, faults: int) -> None:
        count = FabricCount(
            seeds=1,
            ticks=outcome.ticks,
            faults=faults,
            publications=outcome.publications,
            messages=outcome.messages,
            deliveries=outcome.deliveries,
            violations=sum(outcome.violations.values()),
            failed=1 if outcome.violations else 0,
        )
        self.fabrics.setdefault(name, FabricCount()).add(count)

    def _count_agreement(self, scenario: Scenario, outcome: Outcome) -> None:
        theory = agreement_of(scenario)
        count = AgreementCount(publications=outcome.owed, agreed=outcome.agreed, holes=outcome.holes)
        self.agreement.add(count)
        if theory is not None:
            count.expected = theory * outcome.owed
            count.played = played_agreement_of(scenario) * outcome.owed
            self.calm_agreement.add(count)

    def add(self, other: Tally) -> None:
        """Add the schedules of another tally."""
        for field in msgspec.structs.fields(self):
            mine, more = getattr(self, field.name), getattr(other, field.name)
            if field.name == "fabrics":
                for fabric, count in more.items():
                    self.fabrics.setdefault(fabric, FabricCount()).add(count)
            elif isinstance(mine, dict):
                add_up(mine, more)
            elif isinstance(mine, AgreementCount):
                mine.add(more)
            elif field.name == "longest_recovery":
                self.longest_recovery = max(mine, more)
            else:
                setattr(self, field.name, mine + more)

    def as_json(self) -> dict[str, Any]:
        """The form in which ``--json`` prints it."""
        with_clients = sorted(name for name in self.fabrics if name.startswith((CLIENTS, STREAMS)))
        with_services = sorted(name for name in self.fabrics if name.startswith(SERVICES))
        has_streams = any(name.startswith(STREAMS) for name in with_clients)
        names = [*(name for name in (*FAMILIES, MEMBERSHIP) if name in self.fabrics), *with_clients, *with_services]
        kinds = [*KINDS, *(CLIENT_KINDS if with_clients else ()), *(STREAM_ONLY_KINDS if has_streams else ())]
        kinds += [kind for kind in SERVICE_ONLY_KINDS if with_services and kind not in kinds]
        return {
            "seeds": self.seeds,
            "simulated_seconds": self.ticks / TICKS_PER_SECOND,
            "faults": self.faults,
            "fabrics": {name: self.fabrics[name].as_json() for name in names},
            "networks": dict(sorted(self.networks.items())),
            "orders": dict(sorted(self.orders.items())),
            "publications": self.publications,
            "messages": self.messages,
            "dropped": self.dropped,
            "deliveries": self.deliveries,
            "moves": self.moves,
            "gaps": self.gaps,
            "recovered": self.recovered,
            "recovery_ticks_mean": self.recovery_ticks / self.recovered if self.recovered else None,
            "recovery_ticks_longest": self.longest_recovery if self.recovered else None,
            "holes": self.agreement.holes,
            "agreement": self.agreement.as_json(False),
            "calm_agreement": self.calm_agreement.as_json(True),
            "violations": {kind: self.violations.get(kind, 0) for kind in kinds if kind != STUCK},
            "stuck": self.violations.get(STUCK, 0),
            "failing_seeds": [outcome.seed for outcome in self.failing],
        }


def add_up(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add counts by name."""
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def fault_kind(fault: Fault) -> str | None:
    """The name under which a fault is counted; None for the end of a pause, which is not counted."""
    if isinstance(fault, ResumeFault):
        return None
    if isinstance(fault, PartitionFault) and (fault.one_way or fault.linked != "apart"):
        return "one way" if fault.one_way else {"chain": "bridge", "ring": "ring"}[fault.linked]
    if isinstance(fault, DiskFault):
        return f"disk {fault.what}"
    return str(fault.__struct_config__.tag)


def network_kinds(scenario: Scenario) -> Iterator[str]:
    """The names of the special properties of a schedule's network."""
    network = scenario.network
    yield str(network.delay.__struct_config__.tag)
    if network.reordering > 0:
        yield "late packets" if network.in_order else "reordering"
    if network.transmission > 1:
        yield "slow output"
    if network.loss > 0:
        yield "loss"
    if network.duplication > 0:
        yield "duplication"
