"""The published overlay of Ginger with fault tolerance, its load, and one run of it.

The dissertation (P. Matos, 2024, sections 5.2 and 5.4) runs BankService on eight brokers in three regions, with two
banks and five clients. Its open points, and how they are read here:

* **Delays.** Europe to North America 115 ms and Europe to Asia 240 ms follow from its text. Links within a region have
  5 to 70 ms in a picture that is lost; they are drawn once, with a fixed seed, for every pair of brokers of a region,
  and where repairs are timed anew for each repetition, so that times scatter as far as the picture leaves them open.
  North America to Asia, which only repairs can link, takes 300 ms, the most that it names for links between regions.
* **Clients** are applications at their brokers, without a link between. Two at one broker are customers of two banks.
* **Detection.** A broken connection is noticed after its messages in transit have arrived: 240 ms, the longest delay.
* **Faults** are crashes of the root's children, all at once, at a moment drawn for each repetition from the middle
  third of the time in which customers ask. One crash is that of broker 1, two are of 1 and 3, three of 1, 2 and 3.
* **Latency** is from a customer's request to the delivery at a replica of another place, whole runs, ends included.

A broker here takes as many neighbours as the document allows, parent and children; it does not count clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.audit.oracle import judge
from antiphon.audit.total_order import judge_total_order
from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.kernel.message import NONE
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.network.delays import MatrixDelay
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup

BROKERS = 8
PARENTS = [int(NO_NODE), 0, 0, 0, 1, 1, 2, 3]
PLACES = ((4, 6, 7), (5, 6))
"""The brokers at which the clients of each bank are."""

EUROPE, AMERICA, ASIA = "Europe", "North America", "Asia"
REGIONS = (EUROPE, AMERICA, EUROPE, ASIA, AMERICA, AMERICA, EUROPE, ASIA)
BETWEEN_MS = {
    frozenset((EUROPE, AMERICA)): 115,
    frozenset((EUROPE, ASIA)): 240,
    frozenset((AMERICA, ASIA)): 300,
}
WITHIN_MS = (5, 70)
DELAY_SEED = 2024
DELAY_STREAM = 132
MOMENT_STREAM = 133

TOTAL_DEGREE = 3
MAX_HOPS = 3
PATIENCE_MS = 2000
COLLECT_MS = 5000
DETECTION_MS = 240
INTERVAL_MS = 50
KEYS = 100

FAULTS: dict[int, tuple[int, ...]] = {0: (), 1: (1,), 2: (1, 3), 3: (1, 2, 3)}
"""Which brokers crash, by number of faults."""

AS_PUBLISHED = "Ginger, ours"
STRICT = "Ginger, ours, strict sessions"
SYSTEMS = {AS_PUBLISHED: False, STRICT: True}
"""Whether ordered publications of a client wait for its own earlier total publications; in the document, they do not.
"""

EVENTUAL, CAUSAL, TOTAL = "none", "causal", "total"
ORDERS = {EVENTUAL: "eventual", CAUSAL: "causal", TOTAL: "total"}
"""The names that the document has for orders."""


def delays_ms(seed: int = DELAY_SEED, short_repairs: bool = False) -> list[list[int]]:
    """The delay between any two brokers; ``short_repairs`` draws those of links that only repairs make, all of them."""
    rows = [[0] * BROKERS for _ in range(BROKERS)]
    for one in range(BROKERS):
        for other in range(one + 1, BROKERS):
            between = BETWEEN_MS.get(frozenset((REGIONS[one], REGIONS[other])))
            is_repair = one != PARENTS[other] and other != PARENTS[one]
            if between is None or (short_repairs and is_repair):
                between = int(RandomStream(seed, DELAY_STREAM, one, other).between(*WITHIN_MS))
            rows[one][other] = rows[other][one] = between
    return rows


def tree_options(strict: bool, collect_ms: int = COLLECT_MS) -> TreeTableOptions:
    """The published configuration."""
    return TreeTableOptions(
        parents=list(PARENTS),
        total_degree=TOTAL_DEGREE,
        max_hops=MAX_HOPS,
        patience=PATIENCE_MS,
        collect=collect_ms,
        strict_session=strict,
    )


def crashes_of(faults: tuple[int, ...], operations: int, seed: int) -> tuple[tuple[int, int], ...]:
    """When each of some brokers crashes: all at once."""
    third = operations * INTERVAL_MS // 3
    moment = third + int(RandomStream(seed, MOMENT_STREAM).below(third))
    return tuple((moment, broker) for broker in faults)


@dataclass(frozen=True)
class BankCase:
    """One simulation on the published overlay, which has one size; ``operations`` is per client."""

    system: str
    faults: tuple[int, ...]
    keys: int
    operations: int
    nodes: int = BROKERS

    @property
    def is_strict(self) -> bool:
        """Whether clients wait for their own total publications."""
        return SYSTEMS[self.system]

    def __str__(self) -> str:
        crashed = f"{counted(len(self.faults), 'fault')}"
        return f"{self.system}, {crashed}, {counted(self.keys, 'key')}"

    def setup(self, seed: int) -> BankSetup:
        """The system and its load."""
        return BankSetup(
            nodes=self.nodes,
            tree=tree_options(self.is_strict),
            places=PLACES,
            delay=MatrixDelay(delays_ms()),
            accounts=self.keys,
            operations=self.operations,
            interval_ticks=INTERVAL_MS,
            detection_ticks=DETECTION_MS,
            crashes=crashes_of(self.faults, self.operations, seed),
        )


def counted(number: int, thing: str) -> str:
    """1 key, 2 keys."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def broken_promises(run: BankRun, trace: MemoryTrace, is_strict: bool) -> int:
    """The violations that the judges, which know no protocol, and the auditor of the banks found in a run.

    Where sessions are not strict a client's causal publications may overtake its own total ones, which is not a
    violation; so fifo and causal order are judged only with strict sessions.
    """
    table = trace.table()
    circles, _ = judge_total_order(table)
    counts = judge(table, run.setup.nodes, default=NONE).counts
    found = sum(count for kind, count in counts.items() if is_strict or kind not in ("fifo", "causal"))
    bad_banks = sum(not audit.is_good for audit in run.audit())
    return found + circles + bad_banks + run.stuck()


def overtakings(run: BankRun, trace: MemoryTrace) -> int:
    """The deliveries that break fifo or causal order, whatever the sessions promise."""
    counts = judge(trace.table(), run.setup.nodes, default=NONE).counts
    return int(counts.get("fifo", 0) + counts.get("causal", 0))


MODEL: dict[str, object] = {
    "brokers": BROKERS,
    "parents": PARENTS,
    "places_of_banks": PLACES,
    "delays_ms": delays_ms(),
    "detection_ms": DETECTION_MS,
    "total_degree": TOTAL_DEGREE,
    "max_hops": MAX_HOPS,
    "patience_ms": PATIENCE_MS,
    "collect_ms": COLLECT_MS,
    "interval_ms": INTERVAL_MS,
    "load": "40 % getBalance (eventual), 30 % deposit (causal), 10 % each withdraw, transfer about two keys, "
    "applyInterest (total); keys uniform",
    "latency": "from the customer's wish to the delivery at another place, mean over all pairs, whole run",
    "faults": "brokers 1; 1 and 3; 1, 2 and 3, at once, at a moment drawn from the middle third",
}
