"""The auditor of replicated banks: compares the remaining replicas, wherever they ran, and trusts none of them.

It has its own list of the customers' requests, by the names that the requesting places gave to their operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from antiphon.kernel.errors import UsageError
from antiphon_lab.experiments.ginger.bank import APPLY_INTEREST, DEPOSIT, OPENING_CENTS, WITHDRAW, Bank, BankOperation

Name = tuple[int, int]
"""The place that requested an operation, and the number of the operation there."""


class Replica:
    """One bank at one place, and the operations that were applied there."""

    def __init__(self, accounts: int) -> None:
        self.bank = Bank(accounts)
        self.done: dict[Name, int | None] = {}
        """Everything that was delivered here, with the answer."""
        self.repeated = 0

    def take(self, name: Name, operation: BankOperation) -> None:
        """Apply a requested operation."""
        if name in self.done:
            self.repeated += 1
        self.done[name] = self.bank.apply(operation)


@dataclass(frozen=True)
class Audit:
    """The findings of the auditor at the remaining replicas of one bank.

    ``lost`` counts due operations that some remaining replica never applied, ``repeated`` operations that one applied
    twice. ``differing`` counts accounts with different balances at replicas. ``unexplained_cents`` is money that exists
    and should not, or is missing, added up over the replicas.
    """

    bank: int
    replicas: int
    asked: int
    refused: int
    lost: int
    repeated: int
    differing: int
    lowest_cents: int
    unexplained_cents: int

    @property
    def is_good(self) -> bool:
        """Whether the bank has kept all its promises."""
        return (
            self.replicas > 0
            and self.lost == self.repeated == self.differing == self.unexplained_cents == 0
            and self.lowest_cents >= 0
        )


def audit_replicas(
    bank: int, replicas: Sequence[Replica], asked: Mapping[Name, BankOperation], owed: Sequence[Name]
) -> Audit:
    """Audit the remaining replicas of one bank. ``owed`` are the requested operations that must have been applied."""
    if not replicas:
        raise UsageError(f"no replica of bank {bank} is left; let at least one of its places live")
    balances = zip(*(replica.bank.balances for replica in replicas), strict=True)
    return Audit(
        bank=bank,
        replicas=len(replicas),
        asked=len(asked),
        refused=sum(answer is None for answer in replicas[0].done.values()),
        lost=sum(name not in replica.done for replica in replicas for name in owed),
        repeated=sum(replica.repeated for replica in replicas),
        differing=sum(len(set(found)) > 1 for found in balances),
        lowest_cents=min(replica.bank.lowest_cents for replica in replicas),
        unexplained_cents=sum(abs(unexplained_cents(replica, asked)) for replica in replicas),
    )


def unexplained_cents(replica: Replica, asked: Mapping[Name, BankOperation]) -> int:
    """The money of a replica beyond opening balances, deposits and interest, less its payments."""
    explained = OPENING_CENTS * len(replica.bank.balances)
    for name, answer in replica.done.items():
        operation = asked[name]
        if operation.kind == DEPOSIT:
            explained += operation.cents
        elif operation.kind == APPLY_INTEREST:
            explained += answer or 0
        elif operation.kind == WITHDRAW and answer is not None:
            explained -= operation.cents
    return replica.bank.total_cents() - explained
