"""Publish/subscribe in which an answer never arrives before its question.

Run a node in your program, or connect to a node; both publish and subscribe with the same calls:

    import antiphon

    async def main():
        async with antiphon.start(listen="127.0.0.1:7400") as node:
            room = await node.subscribe("room").ready()
            await node.publish("room", b"why?", order="causal")
            async for message in room:
                print(message.topic, message.value)
                break

    antiphon.run(main())

start     run a node in this program; it is a Node
connect   connect to a node; the connection is a Client
run       run a coroutine on the fastest event loop that is installed
Service   declare a replicated service, with operation, query and invariant

Every error that Antiphon raises is an AntiphonError: a UsageError (the call was wrong) or a PeerError (a node, the
network or a disk did something). Names that are not listed here, and names with an underscore, may change at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from antiphon.api.batch import Message
    from antiphon.api.columns import Receipt
    from antiphon.api.pubsub import Subscription
    from antiphon.client.handle import Client, connect
    from antiphon.kernel.errors import AntiphonError, DeniedError, NoMajorityError, PeerError, RemovedError, UsageError
    from antiphon.node.handle import Node, start
    from antiphon.runtime.errors import (
        ClosedError,
        JoinError,
        LostTurnError,
        MissedMessagesError,
        NobodyServesError,
        NoReplyError,
        OverloadedError,
        QuotaError,
        RequestFailedError,
        SlowConsumerError,
    )
    from antiphon.runtime.tasks import run
    from antiphon.services.declaration import Service, invariant, operation, query
    from antiphon.services.errors import ResultGoneError, ServiceError, TablesError, UnknownOperationError
    from antiphon.services.proxy import UnansweredError
    from antiphon.services.serving import serve
    from antiphon.services.store import ServiceStore
    from antiphon.streams.position import Position
    from antiphon.transport.tls import Tls

__all__ = [
    "AntiphonError",
    "Client",
    "ClosedError",
    "DeniedError",
    "JoinError",
    "LostTurnError",
    "Message",
    "MissedMessagesError",
    "NoMajorityError",
    "NoReplyError",
    "NobodyServesError",
    "Node",
    "OverloadedError",
    "PeerError",
    "Position",
    "QuotaError",
    "Receipt",
    "RemovedError",
    "RequestFailedError",
    "ResultGoneError",
    "Service",
    "ServiceError",
    "ServiceStore",
    "SlowConsumerError",
    "Subscription",
    "TablesError",
    "Tls",
    "UnansweredError",
    "UnknownOperationError",
    "UsageError",
    "connect",
    "invariant",
    "operation",
    "query",
    "run",
    "serve",
    "start",
]

# Loaded when first used: a simulation needs no sockets, and a command that prints help needs nothing.
HOMES = {
    "antiphon.kernel.errors": (
        "AntiphonError",
        "DeniedError",
        "NoMajorityError",
        "PeerError",
        "RemovedError",
        "UsageError",
    ),
    "antiphon.api.batch": ("Message",),
    "antiphon.client.handle": ("Client", "connect"),
    "antiphon.api.columns": ("Receipt",),
    "antiphon.runtime.errors": (
        "ClosedError",
        "JoinError",
        "LostTurnError",
        "MissedMessagesError",
        "NoReplyError",
        "NobodyServesError",
        "OverloadedError",
        "QuotaError",
        "RequestFailedError",
        "SlowConsumerError",
    ),
    "antiphon.node.handle": ("Node", "start"),
    "antiphon.api.pubsub": ("Subscription",),
    "antiphon.runtime.tasks": ("run",),
    "antiphon.services.declaration": ("Service", "invariant", "operation", "query"),
    "antiphon.services.proxy": ("UnansweredError",),
    "antiphon.services.serving": ("serve",),
    "antiphon.services.errors": ("ResultGoneError", "ServiceError", "TablesError", "UnknownOperationError"),
    "antiphon.services.store": ("ServiceStore",),
    "antiphon.streams.position": ("Position",),
    "antiphon.transport.tls": ("Tls",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in HOMES.items():
        if name in names:
            try:
                return getattr(import_module(home), name)
            except ModuleNotFoundError as error:
                if error.name != "antiphon.node":
                    raise
                reason = "antiphon-client is installed, which cannot run nodes; uninstall it and install antiphon"
                raise AttributeError(f"antiphon.{name} is not here: {reason}") from error
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names that applications use; ``help`` and completion load them."""
    return [*__all__, "__version__"]
