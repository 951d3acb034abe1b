"""The network model: the cost of one hop, and its faults.

A copy waits for the sender's output server, which is FIFO and takes ``transmission`` ticks per copy of any size; then
it travels for the link's delay; then the receiver processes it for ``processing`` ticks, a pure delay and not a server.
So a copy sent at ``now`` by a node whose server is free at ``free`` is handled at ``max(now, free) + transmission +
delay + processing`` (section 5.6.1 of the thesis; the reading that reproduces its figures). With
``charge_control=False`` acknowledgements and other control messages skip the output server, as in the published
experiments.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.kernel.errors import UsageError
from antiphon.simulator.network.delays import Delay


class NetworkModel:
    """The parameters of every hop."""

    def __init__(
        self,
        delay: Delay,
        transmission: i64 = 1,
        processing: i64 = 1,
        charge_control: bool = True,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        reordering_window: i64 = 0,
        detection: i64 = 1000,
        in_order: bool = False,
        notices_pauses: bool = False,
    ) -> None:
        for name, share in (("loss", loss), ("duplication", duplication), ("reordering", reordering)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name} is a probability from 0 to 1, not {share}")
        if transmission < 0 or processing < 0 or reordering_window < 0 or detection < 0:
            raise UsageError(
                "transmission, processing, reordering_window and detection are numbers of ticks and cannot be negative"
            )
        if reordering_window >= 1 << 31:
            raise UsageError(f"a reordering_window has at most 2147483647 ticks, not {reordering_window}")
        self.delay: Final[Delay] = delay
        self.transmission: Final[i64] = transmission
        self.processing: Final[i64] = processing
        self.charge_control: Final[bool] = charge_control
        self.loss: Final[float] = loss
        self.duplication: Final[float] = duplication
        self.reordering: Final[float] = reordering
        self.reordering_window: Final[i64] = reordering_window
        # How long after a watched link broke, or is back, its watchers are told.
        self.detection: Final[i64] = detection
        # Whether copies from one node to another never overtake each other, as on a connection.
        self.in_order: Final[bool] = in_order
        # Whether watchers count a node as lost that is paused for longer than detection takes, as live nodes do.
        self.notices_pauses: Final[bool] = notices_pauses

    def is_simple(self) -> bool:
        """Whether every copy travels for the same time and arrives exactly once, so that nothing is drawn."""
        if self.in_order and not self.charge_control:
            return False
        return self.delay.constant() >= 0 and self.loss == 0.0 and self.duplication == 0.0 and self.reordering == 0.0


class NetworkPartition:
    """A partition from ``start`` to ``end``: copies between different groups are lost.

    Nodes that are in no group form a group of their own. A one-way cut loses only copies from the first group to
    others. Where groups are linked as a chain or a ring, neighbouring groups lose nothing: a single node in the middle
    of a chain of three is a bridge. A paused node that others have noticed (``is_standstill``) has lost its
    connections, however soon it resumes.
    """

    def __init__(
        self,
        start: i64,
        end: i64,
        groups: list[list[int]],
        one_way: bool = False,
        linked: str = "apart",
        is_standstill: bool = False,
    ) -> None:
        self.start: Final[i64] = start
        self.end: Final[i64] = end
        self.is_standstill: Final[bool] = is_standstill
        self._one_way: Final[bool] = one_way
        self._is_linked: Final[bool] = linked != "apart"
        # The distance between the first and the last group, which reach each other in a ring; no other distance is as
        # large.
        self._around: Final[i64] = len(groups) - 1 if linked == "ring" else 0
        self._group_of: dict[i64, i64] = {node: number for number, group in enumerate(groups, 1) for node in group}

    def is_between(self, one: i64, other: i64, now: i64) -> bool:
        """Whether at this moment at least one of the two directions is cut."""
        return self.severs(one, other, now, now) or self.severs(other, one, now, now)

    def severs(self, sender: i64, receiver: i64, departed: i64, arrived: i64) -> bool:
        """Whether a copy that was on the link during this time is lost."""
        if arrived < self.start or departed >= self.end:
            return False
        origin = self._group_of.get(sender, 0)
        goal = self._group_of.get(receiver, 0)
        if origin == goal or (origin != 1 and self._one_way):
            return False
        return not self._is_linked or not self._are_beside(origin, goal)

    def _are_beside(self, one: i64, other: i64) -> bool:
        """Whether two groups of a chain or a ring reach each other; a node in no group reaches none."""
        if one == 0 or other == 0:
            return False
        distance = one - other if one > other else other - one
        return distance == 1 or distance == self._around
