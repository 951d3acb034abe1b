"""The addresses of nodes that an application gives to a client."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.kernel.errors import UsageError
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
