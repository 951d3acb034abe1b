"""The local view of a broker as published: ancestors and siblings, learnt from paths (Algorithm 1).

A *sibling* has the same parent. An *ancestor* is any broker nearer to the root that was reached through the parent, so
uncles are ancestors here. Paths travel down with subscriptions and with status messages; each broker on the way adds
itself in front and counts all others one hop further away. A broker more than ``max_hops`` away is dropped (D6).

As printed, a broker behind the first is an ancestor if its own message or that of the broker before it on the path was
sent down. That is right on the path of a subscription, which is a line. A status message carries a flattened view, and
of several siblings of the parent that follow each other only the first is taken (D5). ``counts_upward_moves`` tells
them by the number of moves up instead, which needs no order.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon_lab.protocols.tree.ginger_messages import PathEntry, PublishedGingerOptions


def hops_of(entry: PathEntry) -> int:
    """For sorting: how far away a broker is."""
    return int(entry.hops)


@final
class PublishedTreeView:
    """The brokers that one broker may ask to be its new parent."""

    def __init__(self, me: i64, options: PublishedGingerOptions) -> None:
        self._me: Final[i64] = me
        self._options: Final[PublishedGingerOptions] = options
        self.ancestors: list[PathEntry] = []
        self.siblings: list[PathEntry] = []

    def begin(self, ancestors: list[PathEntry], siblings: list[PathEntry]) -> None:
        """Know these from the start."""
        self.ancestors = sorted(ancestors, key=hops_of)
        self.siblings = list(siblings)

    def knows(self, address: i64) -> bool:
        """Whether a broker is in the view."""
        return any(entry.address == address for entry in self.ancestors + self.siblings)

    def remove(self, address: i64) -> None:
        """Take a broker out of the view."""
        self.ancestors = [entry for entry in self.ancestors if entry.address != address]
        self.siblings = [entry for entry in self.siblings if entry.address != address]

    def learn(self, path: list[PathEntry], is_from_parent: bool, neighbours: set[int]) -> list[PathEntry]:
        """Take in a path; the answer is the same path as seen from here."""
        seen = [
            PathEntry(entry.address, entry.hops + 1, entry.is_down, entry.ups)
            for entry in path
            if entry.hops + 1 <= self._options.max_hops
        ]
        if not is_from_parent:
            return seen
        previous: PathEntry | None = None
        for entry in seen:
            if entry.address != self._me and entry.address not in neighbours and not self.knows(entry.address):
                self._take(entry, previous)
            previous = entry
        self.ancestors.sort(key=hops_of)
        self.siblings.sort(key=hops_of)
        return seen

    def _take(self, entry: PathEntry, previous: PathEntry | None) -> None:
        if self._options.counts_upward_moves:
            if entry.ups == 1 and entry.hops == 2:
                self.siblings.append(entry)
            elif entry.ups <= 1 and entry.hops > 2 * entry.ups:
                self.ancestors.append(entry)
        elif entry.hops == 2 and not entry.is_down:
            self.siblings.append(entry)
        elif entry.is_down or (previous is not None and previous.is_down):
            self.ancestors.append(entry)

    def candidates(self) -> list[int]:
        """The brokers to ask, in this order: all ancestors and then siblings, or the nearest first (D15)."""
        entries = self.ancestors + self.siblings
        if not self._options.ancestors_first:
            entries = sorted(entries, key=hops_of)
        return [int(entry.address) for entry in entries]
