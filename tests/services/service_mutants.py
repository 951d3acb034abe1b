"""Bugs that could be in replicas and callers of services; the campaign finds each of them.

    python -m tests.services.service_mutants --seeds 30

Each is planted by replacing one function while schedules run, and the first seed that finds it is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from antiphon.services import joining, live_replica, proxy, recent, replica, replica_store, results
from antiphon.services.applied import AppliedOperations, numbers_of
from antiphon.torture.services.campaign import run_service_schedule
from antiphon.torture.services.schedules import draw_service_schedule

Planting = Callable[[], Any]


def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Planting:
    """Replace a function by what is made of it."""
    return lambda: mock.patch.object(owner, name, make(getattr(owner, name)))


def without_rows(real: Any) -> Any:
    def commit(self: Any, changes: Any, position: bytes = b"") -> None:
        self.applied.take_changes()
        real(self, changes, position)

    return commit


def without_effects(real: Any) -> Any:
    def commit(self: Any, changes: Any, position: bytes = b"") -> None:
        real(self, dict(list(changes.items())[:1]), position)

    return commit


def forgets_applied(real: Any) -> Any:
    def restore(self: Any, items: Any, position: bytes) -> None:
        real(self, [item for item in items if not item[0].startswith(replica_store.OWN)], position)

    return restore


def taken_for_undone(real: Any) -> Any:
    def recover(self: Any) -> bool:
        real(self)
        # What is applied stays as it was before the commit.
        self.applied = AppliedOperations()
        return False

    return recover


def without_base(_: Any) -> Any:
    def since(self: Any, applied: Any) -> list[Any]:
        known = {author: numbers_of(ranges) for author, ranges in applied.items()}
        nothing = numbers_of([0])
        return [each for each in self._kept if not known.get(each[0], nothing).has(each[1])]

    return since


def counts_as_applied(real: Any) -> Any:
    async def apply(self: Any, operations: Any) -> None:
        if operations:
            self.replica.kept.applied.add(*operations[0][:2])
        await real(self, operations)

    return apply


def asks_nobody(_: Any) -> Any:
    async def ask_elsewhere(self: Any, numbers: list[int]) -> None:
        return

    return ask_elsewhere


def without_results(_: Any) -> Any:
    def add(self: Any, caller: int, number: int, payload: bytes) -> None:
        return

    return add


def unwritten_results(real: Any) -> Any:
    def take_changes(self: Any) -> dict[int, bytes | None]:
        real(self)
        return {}

    return take_changes


def snapshot_without_results(real: Any) -> Any:
    def whole(self: Any) -> Iterator[tuple[bytes, bytes]]:
        return (row for row in real(self) if not row[0].startswith(replica_store.RESULTS))

    return whole


def applies_again(real: Any) -> Any:
    def operate(self: Any, frame: Any, changes: Any) -> Any:
        self.kept.calls = AppliedOperations()
        return real(self, frame, changes)

    return operate


def told_before_the_commit(_: Any) -> Any:
    def ask(self: Any, caller: int, number: int) -> Any:
        return self.find(caller, number)

    return ask


def done_counts_as_applied(real: Any) -> Any:
    def operate(self: Any, frame: Any, changes: Any) -> Any:
        for number in range(1, frame.done + 1):
            self.kept.calls.add(frame.caller, number)
        return real(self, frame, changes)

    return operate


def keeps_what_failed(real: Any) -> Any:
    def apply(service: Any, store: Any, bound: Any) -> bytes:
        @contextmanager
        def attempt() -> Iterator[None]:
            try:
                yield
            finally:
                store._kept.update(store._tried)
                store._tried = {}

        with mock.patch.object(store, "attempt", attempt):
            payload: bytes = real(service, store, bound)
            return payload

    return apply


def begins_without_state(_: Any) -> Any:
    async def run(self: Any) -> None:
        return

    return run


def skips_history(_: Any) -> Any:
    async def from_history(self: Any) -> None:
        return

    return from_history


def reads_here(_: Any) -> Any:
    async def until(self: Any, condition: Any, seconds: float) -> bool:
        return True

    return until


MARKS: Final = "nobody waits for marks, nor for what a caller has seen"

MUTANTS: Final[dict[str, Planting]] = {
    "what is applied is not stored": patched(replica_store.ReplicaStore, "commit", without_rows),
    "a transaction holds one effect of several": patched(replica_store.ReplicaStore, "commit", without_effects),
    "a snapshot does not say what is applied": patched(replica_store.ReplicaStore, "restore", forgets_applied),
    "a commit whose answer is lost counts as undone": patched(replica_store.ReplicaStore, "recover", taken_for_undone),
    "a replica gives operations though earlier ones are missing": patched(
        recent.RecentOperations, "since", without_base
    ),
    "the first operation of a batch counts as applied": patched(
        live_replica.LiveServiceReplica, "apply", counts_as_applied
    ),
    "results are not kept": patched(results.KeptResults, "add", without_results),
    "results are not stored": patched(results.KeptResults, "take_changes", unwritten_results),
    "a snapshot lacks the results": patched(replica_store.ReplicaStore, "whole", snapshot_without_results),
    "a call that is made again takes place again": patched(replica.ServiceReplica, "_operate", applies_again),
    "a result is told before it is committed": patched(results.KeptResults, "ask", told_before_the_commit),
    "what a caller needs no more counts as applied": patched(
        replica.ServiceReplica, "_operate", done_counts_as_applied
    ),
    "an operation that raises keeps its effects": patched(replica, "apply", keeps_what_failed),
    "a replica begins without a state": patched(joining.ReplicaJoining, "run", begins_without_state),
    "a replica without others does not read the history": patched(
        joining.ReplicaJoining, "_from_history", skips_history
    ),
    MARKS: patched(live_replica.LiveServiceReplica, "until", reads_here),
    "a caller does not ask other replicas": patched(proxy.ServiceProxy, "_ask_elsewhere", asks_nobody),
}


def first_finding(name: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that finds a bug, and what it finds."""
    with MUTANTS[name]():
        for seed in seeds:
            outcome = run_service_schedule(draw_service_schedule(seed))
            if outcome.violations:
                return seed, outcome.about
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    missed = 0
    for name in MUTANTS:
        if chosen.only in name:
            found = first_finding(name, range(1, chosen.seeds + 1))
            missed += found is None
            print(f"{name}: " + ("NOT FOUND" if found is None else f"seed {found[0]}, {found[1]}"), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
