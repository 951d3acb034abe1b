"""How an application declares a service: a class, with decorators for its operations, queries and invariants.

    class Bank(antiphon.Service):
        @antiphon.operation(order="causal", keys=("account",))
        def deposit(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
            balance = store.get(account, 0) + cents
            store.set(account, balance)
            return balance

        @antiphon.query
        def balance(self, store: antiphon.ServiceStore, account: str) -> int:
            return store.get(account, 0)

        @antiphon.invariant
        def nobody_is_overdrawn(self, store: antiphon.ServiceStore) -> bool:
            return all(balance >= 0 for _, balance in store.items())

The decorators leave the methods as they are, so a test can call them with a store in memory. Every replica applies the
same operations, so an operation must do the same wherever it finds the same store: no clock, no chance, no network,
and no state but the store. A service therefore has no attributes of its own.
"""

from __future__ import annotations

from typing import Any

from antiphon.kernel.errors import UsageError
from antiphon.services.description import ServiceType
from antiphon.services.marks import invariant, operation, query

__all__ = ["Service", "invariant", "operation", "query"]


class Service(metaclass=ServiceType):
    """A replicated service: a subclass declares operations, queries and invariants."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise UsageError(
            f"{type(self).__name__}.{name} cannot be set: a service keeps everything in its store, which replicas, "
            "snapshots and restarts share"
        )

    @classmethod
    def proxy(cls, peer: Any, *, topic: str | None = None, timeout: float = 15.0) -> Any:
        """The service for callers at a node or client: ``bank = Bank.proxy(client)``, ``await bank.balance("anna")``.

        Operations and queries are coroutines with the parameters of the methods, without the store. A call waits for
        its result for ``timeout`` seconds.
        """
        # The declaration itself needs neither nodes nor an event loop.
        from antiphon.services.proxy import proxy_of

        return proxy_of(cls, peer, topic, timeout)
