"""Publications of nodes that are lost: given up when they have not come, and named no more.

A source that has been lost for ``give_up_ticks`` is given up: nothing waits for its publications that have not come. It
is *gone* after twice as long, when all nodes have given it up. It cannot say which of its publications are stable, so
nobody names them any more.
"""

from __future__ import annotations

from typing import Final

from antiphon.kernel.process import Environment
from antiphon.spaces.space import SpaceOrder

GIVE_UP_TIMER: Final = (1 << 50) + 1
"""The name of the timer after which lost sources are given up."""

FORGET_TIMER: Final = (1 << 50) + 2
"""The name of the timer after which lost sources are gone."""

GONE_AFTER: Final = 2
"""A source is gone when it has been lost for so many times ``give_up_ticks``."""


class LostSources:
    """The lost nodes of one process with spaces; with ``give_up_ticks`` None nobody is given up."""

    def __init__(self, environment: Environment, spaces: dict[int, SpaceOrder], give_up_ticks: int | None) -> None:
        self._environment = environment
        self._spaces = spaces
        self._give_up_ticks = give_up_ticks
        self.since: dict[int, int] = {}
        """By node, when it was lost or left."""
        self._gives_up_at = 0
        self._has_forget_timer = False

    def lost(self, node: int) -> None:
        """A node is out of reach, or has left."""
        self.since.setdefault(node, int(self._environment.now()))
        if self._give_up_ticks is not None and not self._has_forget_timer:
            self._has_forget_timer = True
            self._environment.set_timer(GONE_AFTER * self._give_up_ticks, FORGET_TIMER)

    def found(self, node: int) -> None:
        """A node is within reach."""
        self.since.pop(node, None)
        for space in self._spaces.values():
            space.back(node)

    def plan(self) -> None:
        """Set a timer if something waits for a source that is lost."""
        if not self.since or self._give_up_ticks is None or self._gives_up_at > 0:
            return
        due = [
            self.since[source] + self._give_up_ticks
            for space in self._spaces.values()
            for _, source, _ in space.barrier.wanted()
            if source in self.since
        ]
        if due:
            now = int(self._environment.now())
            self._gives_up_at = max(min(due), now + 1)
            self._environment.set_timer(self._gives_up_at - now, GIVE_UP_TIMER)

    def expire(self, name: int) -> bool:
        """A timer has run out; whether it was one of this part."""
        if self._give_up_ticks is None or name not in (GIVE_UP_TIMER, FORGET_TIMER):
            return False
        if name == GIVE_UP_TIMER:
            self._gives_up_at = 0
            self._give_up(int(self._environment.now()) - self._give_up_ticks)
        else:
            self._has_forget_timer = False
            self._forget(int(self._environment.now()) - GONE_AFTER * self._give_up_ticks)
        return True

    def _give_up(self, latest: int) -> None:
        """Count what has not come of sources that are lost for long as past, and report it as lost."""
        for space in self._spaces.values():
            for topic, source, number in space.barrier.wanted():
                if self.since.get(source, latest + 1) > latest:
                    continue
                for missing in range(space.barrier.count(topic, source) + 1, number + 1):
                    if not space.barrier.is_held(topic, source, missing):
                        self._environment.lost(topic, source, missing)
                        space.pass_over(topic, source, missing)

    def _forget(self, latest: int) -> None:
        for node, since in self.since.items():
            if since <= latest:
                for space in self._spaces.values():
                    space.gone(node)
        for space in self._spaces.values():
            space.settle_all()
        later = [since for since in self.since.values() if since > latest]
        if later:
            self._has_forget_timer = True
            self._environment.set_timer(min(later) - latest, FORGET_TIMER)
