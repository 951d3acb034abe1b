"""A bank with a replica in every region, while brokers crash: what orders per operation are for.

Eight brokers, two banks. Customers at the brokers ask for balances, pay in, withdraw, transfer and get interest; the
root crashes, an inner broker, and one with a replica and customers. What each operation is, and why its order is
enough, is in research/antiphon_lab/experiments/ginger/bank.py: some sixty lines that know nothing of brokers.

Run it: .venv/bin/python examples/bank.py
"""

from __future__ import annotations

from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.simulator.network.delays import MatrixDelay
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup

PARENTS = [-1, 0, 0, 0, 1, 1, 2, 3]
PLACES = ((4, 6, 7), (5, 6, 2))  # the brokers with a replica, of either bank
NEAR_MS, FAR_MS = 20, 120
REGIONS = (0, 1, 0, 2, 1, 1, 0, 2)
CRASHES = ((4_000, 1), (9_000, 4), (14_000, 0))  # when, in milliseconds, and which broker
SEED = 7


def delays_ms() -> list[list[int]]:
    """What a message takes between any two brokers: little within a region, much between them."""
    return [[NEAR_MS if one == other else FAR_MS for other in REGIONS] for one in REGIONS]


def main() -> None:
    """Run the banks, then look at what is left of them."""
    run = BankRun(
        BankSetup(
            nodes=len(PARENTS),
            tree=TreeTableOptions(parents=PARENTS),
            places=PLACES,
            delay=MatrixDelay(delays_ms()),
            accounts=20,
            operations=200,
            interval_ticks=100,
            crashes=CRASHES,
        ),
        SEED,
    )
    run.run()
    audits = run.audit()
    for audit in audits:
        print(f"bank {audit.bank}: {audit.replicas} replicas left, {audit.asked} operations, {audit.refused} refused")
        print(f"  lost {audit.lost}, done twice {audit.repeated}, accounts that differ {audit.differing}")
        print(f"  lowest balance {audit.lowest_cents / 100:.2f}, cents from nowhere {audit.unexplained_cents}")
    print("all is well" if all(audit.is_good for audit in audits) and not run.stuck() else "something is wrong")


if __name__ == "__main__":
    main()
