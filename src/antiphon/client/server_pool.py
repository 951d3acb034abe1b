"""The nodes of a client: the addresses that an application gives, and what a node says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.kernel.errors import UsageError
from antiphon.sessions.client_end import Introduction
from antiphon.transport.links import split_address


def addresses_of(given: str | Sequence[str]) -> list[str]:
    """Addresses from a list, or from a text with commas."""
    words = given.split(",") if isinstance(given, str) else list(given)
    found = [word.strip() for word in words if word.strip()]
    if not found:
        raise UsageError("a client needs the address of a node; for example 127.0.0.1:7400, or several with commas")
    for address in found:
        split_address(address)
    return list(dict.fromkeys(found))


def introduction_from(address: str, status: Mapping[str, Any], author: int, clock_us: int) -> Introduction:
    """The words of a node about itself; one of an earlier version does not say everything."""
    lost_seconds = status.get("lost_seconds")
    return Introduction(
        address,
        # Where clients have names, the node knows better than the client under which number it publishes.
        int(status.get("author", author)),
        [peer["address"] for peer in status.get("peers", [])],
        clock_us,
        None if lost_seconds is None else float(lost_seconds),
        bool(status.get("strict_session", False)),
    )
