"""Two calls on one state, in both orders: what is wrong if two replicas apply them differently.

**The model.** A replica applies all calls of the service, one after the other; a state is what some sequence of calls
leaves of an empty store. Two calls are *held together* if they have a common key and at least one of them is total:
then all replicas apply them in the same order. Otherwise they are *free*. Calls without a common key are always free.

**Convergence.** If any two free calls commute on any state, replicas that have applied the same calls have the same
state: one history becomes the other by swapping neighbours that are in the wrong order, and such neighbours are free.
So a pair of free calls that does not commute is a counterexample, and without one there is none.

**Order of cause and effect.** A caller that has seen a call ``one`` may call ``other`` because of it. They are not
concurrent, so ``other`` need not commute with ``one``: causal order is enough. Only weaker orders let a replica apply
``other`` first. Whether callers behave like that is for the developer to say: a *sensible* call is one that neither
raises nor breaks an invariant on the state that its caller sees.

**Invariants.** Every replica applies calls one after the other. So a call that breaks an invariant on a state in which
it held breaks it in every order. Only if callers are sensible may an order help: calls that are sensible where they
are made, and break the invariant where they are applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from antiphon.kernel.errors import PeerError
from antiphon.services.calls import BoundCall, apply, is_error
from antiphon.services.declaration import Service
from antiphon.services.description import ServiceDescription
from antiphon.services.store import MemoryStore, ServiceStore

Finding = Literal["alone", "concurrent", "concurrent sensible", "apart", "apart sensible", "together", "after"]

ALONE: Final[Finding] = "alone"
"""The second call breaks an invariant."""
CONCURRENT: Final[Finding] = "concurrent"
"""The calls have a common key and do not commute."""
SENSIBLY: Final[Finding] = "concurrent sensible"
"""The same, though each of them is sensible on the state before both."""
APART: Final[Finding] = "apart"
"""The calls have no common key and do not commute."""
APART_SENSIBLY: Final[Finding] = "apart sensible"
"""The same, though both are sensible."""
TOGETHER: Final[Finding] = "together"
"""Either call alone is sensible, and after both an invariant is broken: no order helps."""
AFTER: Final[Finding] = "after"
"""The second call is sensible after the first one only: it must not come before it."""

NO_KEY: Final = (b"",)
"""What calls without keys are about."""


class BenchStore(MemoryStore):
    """A store in memory for services that need nothing else."""

    @property
    def connection(self) -> Any:
        """There is none, and a service that asks for it cannot be advised."""
        raise PeerError(
            "advise runs on stores in memory, and an operation uses store.connection; it can only advise "
            "services that use get, set, delete and items"
        )


@dataclass(frozen=True)
class PairScript:
    """A state, as the calls that lead to it, and two calls."""

    before: tuple[BoundCall, ...]
    one: BoundCall
    other: BoundCall

    def size(self) -> tuple[int, int]:
        """Smaller scripts are easier to read."""
        return len(self.before), len(str(self))

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.before, self.one, self.other)))


@dataclass(frozen=True)
class State:
    """A state, and whether the last call left it as it should."""

    store: MemoryStore
    broken: str | None
    """The first invariant that does not hold."""
    result: bytes = b""

    @property
    def is_sensible(self) -> bool:
        """Whether the last call neither raised nor broke an invariant."""
        return self.broken is None and not (self.result and is_error(self.result))

    def contents(self) -> list[tuple[bytes, bytes]]:
        """All keys and values."""
        return list(self.store.scan(b""))


class Bench:
    """Applies calls of a service to states, as replicas do."""

    def __init__(self, description: ServiceDescription) -> None:
        self.description: Final = description
        self._service: Final[Service] = description.service()

    def empty(self) -> State:
        """The state of a new service."""
        store = BenchStore()
        return State(store, self.broken(store))

    def after(self, state: State, call: BoundCall) -> State:
        """The state after a call; the one before stays as it is."""
        backend = state.store.copy()
        store = ServiceStore(backend)
        result = apply(self._service, store, call)
        store.commit(b"")
        return State(backend, self.broken(backend), result)

    def broken(self, backend: MemoryStore) -> str | None:
        """The name of the first invariant that does not hold; one that raises does not hold."""
        for invariant in self.description.invariants:
            store = ServiceStore(backend, is_writable=False)
            try:
                holds = bool(invariant.method(self._service, store))
            except PeerError:
                raise
            except Exception:  # an invariant that cannot be evaluated does not hold
                holds = False
            if not holds:
                return invariant.name
        return None

    def reach(self, calls: tuple[BoundCall, ...]) -> State | None:
        """The state after some calls; None if an invariant breaks on the way."""
        state = self.empty()
        for call in calls:
            state = self.after(state, call)
            if state.broken is not None:
                return None
        return state

    def findings(self, script: PairScript) -> frozenset[Finding]:
        """The findings about two calls on a state."""
        start = self.reach(script.before)
        return frozenset() if start is None else Branches(self, start).findings(script.one, script.other)


class Branches:
    """The states that follow a state: after each call and each two calls, applied once and remembered."""

    def __init__(self, bench: Bench, start: State) -> None:
        self._bench = bench
        self._start = start
        self._after: dict[tuple[int, ...], State] = {}
        # Calls are told apart by identity, so they must stay.
        self._calls: list[BoundCall] = []

    def _state(self, *calls: BoundCall) -> State:
        place = tuple(map(id, calls))
        found = self._after.get(place)
        if found is None:
            before = self._start if len(calls) == 1 else self._state(*calls[:-1])
            found = self._after[place] = self._bench.after(before, calls[-1])
            self._calls.extend(calls)
        return found

    def findings(self, call: BoundCall, following: BoundCall) -> frozenset[Finding]:
        """The findings about two calls on this state."""
        one, other = self._state(call), self._state(following)
        if one.broken is not None:
            return frozenset()
        both = self._state(call, following)
        if other.broken is not None:
            # The same as a shorter script: little else about it is worth saying.
            return frozenset({ALONE, AFTER} if one.is_sensible and both.is_sensible else {ALONE})
        reverse = self._state(following, call)
        found: set[Finding] = set()
        are_sensible = one.is_sensible and other.is_sensible
        if both.contents() != reverse.contents():
            meet = meets(call, following)
            found.add(CONCURRENT if meet else APART)
            if are_sensible:
                found.add(SENSIBLY if meet else APART_SENSIBLY)
        if are_sensible and (both.broken is not None or reverse.broken is not None):
            found.add(TOGETHER)
        if one.is_sensible and not other.is_sensible and both.is_sensible:
            found.add(AFTER)
        return frozenset(found)


def keys_of(call: BoundCall) -> tuple[bytes, ...]:
    """The keys of a call; all calls without keys share one."""
    return call.keys or NO_KEY


def meets(one: BoundCall, other: BoundCall) -> bool:
    """Whether two calls are about something in common."""
    return not set(keys_of(one)).isdisjoint(keys_of(other))
