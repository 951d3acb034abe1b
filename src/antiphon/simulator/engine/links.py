"""Links that processes watch: who is told of whom, and what is still to be told.

A process says whose links matter to it (:meth:`antiphon.kernel.process.Environment.watch`). In a live system the host
keeps a connection open to each of them, and a connection that breaks is noticed. Here the engine plays that part: a
crash or a leave breaks the links of the node, and each watcher hears of it ``detection`` ticks later; a partition does
so if it lasts that long. Who is still watched and can be reached again is reported as found, with the same delay.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from antiphon.simulator.engine.events import Watch


@final
class Links:
    """All watches of a simulated system, by the node that is watched."""

    def __init__(self) -> None:
        self._watches_of: dict[i64, dict[i64, Watch]] = {}

    def add(self, watcher: i64, peer: i64, life: object) -> Watch | None:
        """Begin to watch; nothing if that is done already."""
        watches = self._watches_of.get(peer)
        if watches is None:
            watches = {}
            self._watches_of[peer] = watches
        known = watches.get(watcher)
        if known is not None and known.life is life:
            return None
        watch = Watch(watcher, peer, life)
        watches[watcher] = watch
        return watch

    def remove(self, watcher: i64, peer: i64, life: object) -> None:
        """Stop watching, if that was done."""
        watches = self._watches_of.get(peer)
        if watches is None:
            return
        watch = watches.get(watcher)
        if watch is not None and watch.life is life:
            watch.is_wanted = False
            del watches[watcher]

    def of(self, peer: i64) -> list[Watch]:
        """Who watches a node, in the order in which they began to."""
        watches = self._watches_of.get(peer)
        return [] if watches is None else list(watches.values())

    def all(self) -> list[Watch]:
        """Every watch there is, in the order of their beginning at each node."""
        found: list[Watch] = []
        for watches in self._watches_of.values():
            found.extend(watches.values())
        return found
