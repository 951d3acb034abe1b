"""The protocols that a scenario can name: those of all fabrics, and those of other distributions.

Each protocol is a :class:`~antiphon.fabrics.protocol.Protocol`: the options that it takes from the table
``[protocol-options]`` of a scenario, its capabilities, and a function that prepares a run and returns a builder of its
process at one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from antiphon.fabrics.protocol import Protocol
from antiphon.fabrics.registry import FABRICS
from antiphon.plugins import PROTOCOLS as PLUGGED
from antiphon.plugins import plugins

OWN: dict[str, Protocol] = {
    name: replace(protocol, fabric=fabric.name)
    for fabric in FABRICS.values()
    for name, protocol in fabric.implementation().protocols.items()
}
"""The protocols that come with the product."""


class Registry(Mapping[str, Protocol]):
    """The protocols by the names that scenarios use: those of the product, then those of other distributions."""

    def __getitem__(self, name: str) -> Protocol:
        return OWN[name] if name in OWN else self._plugged()[name]

    def __iter__(self) -> Iterator[str]:
        yield from OWN
        yield from self._plugged()

    def __len__(self) -> int:
        return len(OWN) + len(self._plugged())

    @staticmethod
    def _plugged() -> dict[str, Protocol]:
        return {name: found for more in plugins(PLUGGED).values() for name, found in more.items()}


PROTOCOLS = Registry()
