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
    from antiphon.kernel.errors import AntiphonError, PeerError, UsageError
    from antiphon.live.batch import Message
    from antiphon.live.client import Client, connect
    from antiphon.live.columns import Receipt
    from antiphon.live.errors import (
        ClosedError,
        DeniedError,
        JoinError,
        MissedMessagesError,
        NoMajorityError,
        OverloadedError,
        SlowConsumerError,
    )
    from antiphon.live.node import Node, start
    from antiphon.live.subscription import Subscription
    from antiphon.live.tasks import run
    from antiphon.live.tls import Tls

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
    "antiphon.kernel.errors": ("AntiphonError", "PeerError", "UsageError"),
    "antiphon.live.batch": ("Message",),
    "antiphon.live.client": ("Client", "connect"),
    "antiphon.live.columns": ("Receipt",),
    "antiphon.live.errors": (
        "ClosedError",
        "DeniedError",
        "JoinError",
        "MissedMessagesError",
        "NoMajorityError",
        "OverloadedError",
        "SlowConsumerError",
    ),
    "antiphon.live.node": ("Node", "start"),
    "antiphon.live.subscription": ("Subscription",),
    "antiphon.live.tasks": ("run",),
    "antiphon.live.tls": ("Tls",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
