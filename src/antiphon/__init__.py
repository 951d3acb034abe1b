"""Antiphon: publish/subscribe in which an answer never arrives before its question.

async with antiphon.start(listen="127.0.0.1:7400") as node:
    subscription = await node.subscribe("room").ready()
    await node.publish("room", b"why?")
    async for message in subscription:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from antiphon.api.batch import Message
    from antiphon.api.batch_codec import Receipt
    from antiphon.api.subscription import Subscription
    from antiphon.client.client import Client, connect
    from antiphon.kernel.errors import AntiphonError, NoMajorityError, PeerError, UsageError
    from antiphon.node.node import Node, start
    from antiphon.runtime.errors import (
        ClosedError,
        DeniedError,
        JoinError,
        MissedMessagesError,
        OverloadedError,
        SlowConsumerError,
    )
    from antiphon.runtime.tasks import run
    from antiphon.transport.tls import Tls

__all__ = [
    "AntiphonError",
    "Client",
    "ClosedError",
    "DeniedError",
    "JoinError",
    "Message",
    "MissedMessagesError",
    "NoMajorityError",
    "Node",
    "OverloadedError",
    "PeerError",
    "Receipt",
    "SlowConsumerError",
    "Subscription",
    "Tls",
    "UsageError",
    "connect",
    "run",
    "start",
]

# Loaded when first used: a simulation needs no sockets, and a command that prints help needs nothing.
HOMES = {
    "antiphon.kernel.errors": ("AntiphonError", "NoMajorityError", "PeerError", "UsageError"),
    "antiphon.api.batch": ("Message",),
    "antiphon.client.client": ("Client", "connect"),
    "antiphon.api.batch_codec": ("Receipt",),
    "antiphon.runtime.errors": (
        "ClosedError",
        "DeniedError",
        "JoinError",
        "MissedMessagesError",
        "OverloadedError",
        "SlowConsumerError",
    ),
    "antiphon.node.node": ("Node", "start"),
    "antiphon.api.subscription": ("Subscription",),
    "antiphon.runtime.tasks": ("run",),
    "antiphon.transport.tls": ("Tls",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
