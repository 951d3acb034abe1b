"""Campaigns: many random schedules, each run to its end and judged.

A seed names a schedule (:mod:`antiphon.torture.schedules.operations`), the schedule is an ordinary scenario, and the
scenario is run and judged as ``antiphon simulate`` would. So a seed that fails can be looked at with the same tools as
anything else. Seeds do not depend on each other: how they are shared out among processes makes no difference to what is
found.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from antiphon.kernel.errors import ScenarioError, UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.simulator.scenario.last_words import LAST_WORDS
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import DiskFault, Fault, PartitionFault, ResumeFault, Scenario
from antiphon.torture.rates import failure_rate
from antiphon.torture.results import Failed, Journal, Plan, append, now
from antiphon.torture.schedules.epto import played_of, theory_of
from antiphon.torture.schedules.every_fabric import (
    ALL,
    DRAWN,
    SCHEDULES,
    orders_of,
)
from antiphon.torture.schedules.operations import MIXED
from antiphon.trace.contract import HOLES, REQUESTS, STUCK, TOTAL_ORDER

TICKS_PER_SECOND = 1000
"""A tick of a schedule stands for a millisecond: delays of about 100 ticks are those of links between continents."""

ERROR = "error"
ENDLESS = "endless"
UNJUDGED = "unjudged"
"""Ways to fail without being judged: something is raised, the run does not come to its end, or there is no judge."""

KINDS = (
    ERROR,
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
"""All ways to fail; those that say most about their cause come first."""

SEEDS_PER_TASK = 50

Sharing = Callable[[Callable[[range], "Tally"], list[range]], Iterable["Tally"]]
"""How the portions of a campaign are worked through; the answers come in the order of the portions."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one schedule."""

    seed: int
    fabric: str = ""
    ticks: int = 0
    publications: int = 0
    messages: int = 0
    dropped: int = 0
    """Messages that were lost: by the network, or with a node."""
    deliveries: int = 0
    recovered: int = 0
    recovery_ticks: int = 0
    longest_recovery: int = 0
    holes: int = 0
    agreed: int = 0
    owed: int = 0
    """Where agreement is probable only: what all delivered, and what any did."""
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    """By kind, those that there were; empty if the schedule was survived."""
    about: str = ""
    """What the violations are, with examples."""


class Counts(msgspec.Struct, kw_only=True):
    """Numbers that are added up."""

    def add(self, other: Self) -> None:
        """Add what was counted elsewhere."""
        for field in msgspec.structs.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class AgreementCount(Counts, kw_only=True):
    """Publications that all nodes delivered that stayed, of those that any did.

    ``expected`` is what theory says, where all rounds are in step; ``played`` what a game says in which they are not.
    """

    publications: int = 0
    agreed: int = 0
    holes: int = 0
    expected: float = 0.0
    played: float = 0.0

    def as_json(self, theory: bool) -> dict[str, Any] | None:
        """The rate with its interval of 95 % (Wilson 1927); None if there was nothing."""
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


def wilson(successes: int, trials: int, deviations: float = 1.96) -> tuple[float, float]:
    """The interval in which a probability lies, by how often it came true."""
    share = successes / trials
    square = deviations * deviations / trials
    middle = (share + square / 2) / (1 + square)
    half = deviations / (1 + square) * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


class FabricCount(Counts, kw_only=True):
    """What came of the schedules of one fabric."""

    seeds: int = 0
    ticks: int = 0
    faults: int = 0
    publications: int = 0
    messages: int = 0
    deliveries: int = 0
    violations: int = 0
    failed: int = 0

    def as_json(self) -> dict[str, Any]:
        """What a program reads."""
        counts: dict[str, Any] = msgspec.to_builtins(self)
        rate = failure_rate(self.failed, self.seeds)
        return {"simulated_seconds": counts.pop("ticks") / TICKS_PER_SECOND, **counts, "failure_rate": rate}


class Tally(msgspec.Struct, kw_only=True):
    """What came of many schedules."""

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
    """How often a node that had lost all parents in a structure got something from a new one."""
    recovery_ticks: int = 0
    longest_recovery: int = 0
    agreement: AgreementCount = msgspec.field(default_factory=AgreementCount)
    calm_agreement: AgreementCount = msgspec.field(default_factory=AgreementCount)
    """Of all schedules, and of those for which there is a theory."""
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
        self.recovered += outcome.recovered
        self.recovery_ticks += outcome.recovery_ticks
        self.longest_recovery = max(self.longest_recovery, outcome.longest_recovery)
        changes = {"subscribe": len(scenario.subscriptions), "unsubscribe": len(scenario.unsubscriptions)}
        met: dict[str, int] = {}
        for fault in scenario.faults:
            kind = fault_kind(fault)
            if kind is not None:
                met[kind] = met.get(kind, 0) + 1
        add_up(self.faults, {**changes, **met})
        self._count_fabric(scenario, outcome, sum(met.values()) + sum(changes.values()))
        add_up(self.networks, dict.fromkeys(network_kinds(scenario), 1))
        add_up(self.orders, {MIXED if scenario.mixes_orders() else scenario.order: 1})
        add_up(self.violations, outcome.violations)
        self._count_agreement(scenario, outcome)
        if outcome.violations:
            self.failing.append(outcome)

    def count_undrawn(self, outcome: Outcome) -> None:
        """Add a seed whose schedule could not be drawn or run at all."""
        self.seeds += 1
        add_up(self.violations, outcome.violations)
        self.failing.append(outcome)
        if outcome.fabric in DRAWN:
            self.fabrics.setdefault(outcome.fabric, FabricCount()).add(FabricCount(seeds=1, violations=1, failed=1))

    def _count_fabric(self, scenario: Scenario, outcome: Outcome, faults: int) -> None:
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
        self.fabrics.setdefault(fabric_of(scenario), FabricCount()).add(count)

    def _count_agreement(self, scenario: Scenario, outcome: Outcome) -> None:
        theory = theory_of(scenario) if scenario.protocol == "epto" else None
        count = AgreementCount(publications=outcome.owed, agreed=outcome.agreed, holes=outcome.holes)
        self.agreement.add(count)
        if theory is not None:
            count.expected = theory * outcome.owed
            count.played = played_of(scenario) * outcome.owed
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
        """What a program reads."""
        return {
            "seeds": self.seeds,
            "simulated_seconds": self.ticks / TICKS_PER_SECOND,
            "faults": self.faults,
            "fabrics": {name: self.fabrics[name].as_json() for name in DRAWN if name in self.fabrics},
            "networks": dict(sorted(self.networks.items())),
            "orders": dict(sorted(self.orders.items())),
            "publications": self.publications,
            "messages": self.messages,
            "dropped": self.dropped,
            "deliveries": self.deliveries,
            "recovered": self.recovered,
            "recovery_ticks_mean": self.recovery_ticks / self.recovered if self.recovered else None,
            "recovery_ticks_longest": self.longest_recovery if self.recovered else None,
            "holes": self.agreement.holes,
            "agreement": self.agreement.as_json(False),
            "calm_agreement": self.calm_agreement.as_json(True),
            "violations": {kind: self.violations.get(kind, 0) for kind in KINDS if kind != STUCK},
            "stuck": self.violations.get(STUCK, 0),
            "failing_seeds": [outcome.seed for outcome in self.failing],
        }


def add_up(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add counts by name."""
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def fabric_of(scenario: Scenario) -> str:
    """The fabric of which a schedule is one, by the name that campaigns have for it."""
    named = {"vcube-ps": "cube", "vcube-ps-lasting": "cube-faults", "epto": "epto"}
    return named.get(scenario.protocol, scenario.fabric)


def fault_kind(fault: Fault) -> str | None:
    """What a fault is called where faults are counted; the end of a pause is none."""
    if isinstance(fault, ResumeFault):
        return None
    if isinstance(fault, PartitionFault) and (fault.one_way or fault.linked != "apart"):
        return "one way" if fault.one_way else {"chain": "bridge", "ring": "ring"}[fault.linked]
    if isinstance(fault, DiskFault):
        return f"disk {fault.what}"
    return str(fault.__struct_config__.tag)


def network_kinds(scenario: Scenario) -> Iterator[str]:
    """What is special about the network of a schedule."""
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


def run_campaign(
    first_seed: int,
    count: int,
    order: str | None = None,
    watch: Callable[[Tally], None] | None = None,
    share: Sharing = map,
    fabric: str = "cube",
    journal: Journal | None = None,
) -> Tally:
    """Run the schedules of ``count`` seeds from ``first_seed`` on; ``watch`` hears of the tally now and then.

    ``share`` maps a function over portions of the seeds, such as the ``map`` of a pool of processes. In a ``journal``
    each schedule that fails is written down at once.
    """
    total = Tally()
    results, plan = (None, None) if journal is None else (journal.path, journal.plan)
    run = partial(run_seeds, order=order, fabric=fabric, results=results, plan=plan)
    for tally in share(run, tasks(first_seed, count)):
        total.add(tally)
        if watch is not None:
            watch(total)
    return total


def tasks(first_seed: int, count: int) -> list[range]:
    """The seeds in portions, the same however they are shared out."""
    end = first_seed + count
    return [range(start, min(start + SEEDS_PER_TASK, end)) for start in range(first_seed, end, SEEDS_PER_TASK)]


def run_seeds(
    seeds: range, order: str | None, fabric: str = "cube", results: Path | None = None, plan: Plan | None = None
) -> Tally:
    """Run the schedules of some seeds, one after the other; those that fail are written into ``results`` at once."""
    tally = Tally()
    with tidy_collector():
        for seed in seeds:
            outcome = run_seed(tally, seed, order, fabric)
            if outcome.violations and results is not None and plan is not None:
                violations, about = outcome.violations, outcome.about
                failed = Failed(
                    at=now(), plan=plan, seed=seed, fabric=outcome.fabric, violations=violations, about=about
                )
                append(results, failed)
            gc.collect()
    return tally


def run_seed(tally: Tally, seed: int, order: str | None, fabric: str) -> Outcome:
    """Run the schedule of one seed and count it; one that cannot be drawn or run is a finding, and ends nothing."""
    try:
        scenario = SCHEDULES[fabric](seed, order)
        outcome = run_schedule(scenario)
    except Exception as error:
        about = f"the schedule cannot be run: {type(error).__name__}: {error}"
        outcome = Outcome(seed=seed, fabric=fabric, violations={ERROR: 1}, about=about)
        tally.count_undrawn(outcome)
        return outcome
    tally.count(scenario, outcome)
    return outcome


@contextmanager
def tidy_collector() -> Iterator[None]:
    """Let the garbage collector look at what is new, when it is told to, and not at all that was imported.

    Left to itself it takes as long as the schedules do.
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()


def run_schedule(scenario: Scenario) -> Outcome:
    """Run one schedule to its end and judge it."""
    try:
        result = run_scenario(scenario)
    except ScenarioError:
        raise
    except Exception as error:  # whatever a protocol stumbles over is a finding
        about = f"{type(error).__name__}: {error}"
        return Outcome(seed=scenario.seed, fabric=fabric_of(scenario), violations={ERROR: 1}, about=about)
    if result.stopped != "finished":
        violations, about = {ENDLESS: 1}, f"{result.stopped} after {result.events} events"
    elif result.violations is None:
        # A campaign draws what can be judged; what cannot be has not been survived.
        violations, about = {UNJUDGED: 1}, result.judgement
    else:
        violations = {kind: count for kind, count in result.violations.items() if count > 0}
        about = result.judgement
    return Outcome(
        seed=scenario.seed,
        fabric=fabric_of(scenario),
        ticks=result.end_time,
        publications=result.published,
        messages=result.sent,
        dropped=result.dropped,
        deliveries=result.deliveries,
        recovered=result.recovered,
        recovery_ticks=result.recovery_ticks,
        longest_recovery=result.longest_recovery,
        holes=result.lost,
        agreed=result.agreed or 0,
        owed=result.owed or 0,
        violations=violations,
        about=about,
    )


def check_campaign(fabric: str, order: str | None) -> None:
    """Complain about a campaign that cannot be."""
    if fabric not in SCHEDULES:
        raise UsageError(f"there is no fabric {fabric!r}; choose from {', '.join(SCHEDULES)}")
    fabrics = list(DRAWN) if fabric == ALL else [fabric]
    orders = [name for name in (*ORDER_NAMES, MIXED) if any(name in orders_of(one) for one in fabrics)]
    if order is not None and order not in orders:
        raise UsageError(f"the order of a campaign is {', '.join(orders)} or, if none is named, drawn; not {order!r}")
