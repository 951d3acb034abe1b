"""The links that processes watch, and the reports that are still due.

A process names the peers whose links matter to it (:meth:`antiphon.kernel.process.Environment.watch`). In a live system
the host keeps a connection to each of them, and notices when one breaks. Here the engine does so: a crash or a leave
breaks the links of the node, and each watcher is told ``detection`` ticks later; a partition has the same effect if it
lasts that long. A watched peer that is reachable again is reported as found, with the same delay.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from antiphon.simulator.engine.events import LinkWatch


@final
class LinkWatches:
    """All watches of a simulated system, by the watched node."""

    def __init__(self) -> None:
        self._watches_of: dict[i64, dict[i64, LinkWatch]] = {}

    def add(self, watcher: i64, peer: i64, incarnation: object) -> LinkWatch | None:
        """Begin to watch; None if the watch exists already."""
        watches = self._watches_of.get(peer)
        if watches is None:
            watches = {}
            self._watches_of[peer] = watches
        known = watches.get(watcher)
        if known is not None and known.incarnation is incarnation:
            return None
        watch = LinkWatch(watcher, peer, incarnation)
        watches[watcher] = watch
        return watch

    def remove(self, watcher: i64, peer: i64, incarnation: object) -> None:
        """Stop watching, if the watch exists."""
        watches = self._watches_of.get(peer)
        if watches is None:
            return
        watch = watches.get(watcher)
        if watch is not None and watch.incarnation is incarnation:
            watch.is_wanted = False
            del watches[watcher]

    def of(self, peer: i64) -> list[LinkWatch]:
        """The watches of a node, in the order in which they began."""
        watches = self._watches_of.get(peer)
        return [] if watches is None else list(watches.values())

    def all(self) -> list[LinkWatch]:
        """All watches, by watched node and in the order in which they began."""
        found: list[LinkWatch] = []
        for watches in self._watches_of.values():
            found.extend(watches.values())
        return found
