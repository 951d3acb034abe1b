"""Starts the nodes of a simulated cluster again, as a supervisor would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.membership.host import SECOND_US
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.node import NodeLife

RESTART_US: Final = SECOND_US
"""How long a supervisor waits."""


class Restarts:
    """``start`` begins another life of a node of a number."""

    def __init__(self, clock: VirtualClock, nodes: Sequence[NodeLife | None], start: Callable[[int], None]) -> None:
        self._clock = clock
        self._nodes = nodes
        self._start = start

    def after(self, number: int, delay_us: int = RESTART_US) -> None:
        """Start a node after a while, when its former life has ended."""
        self._clock.post(delay_us, lambda: self._start_if_down(number))

    def _start_if_down(self, number: int) -> None:
        node = self._nodes[number]
        if node is None or not node.is_up:
            self._start(number)
        else:
            # It still takes its leave.
            self.after(number)
