"""Signs of life: which of the others has been silent for so long that it counts as lost.

A connection tells of machines: while the other machine answers, the connection is there, also if the process at its
other end stands still. So every node looks, several times in ``lost_seconds``, from which of those that it watches
(:mod:`antiphon.membership.tested_peers`) it has heard nothing. It asks those for a sign, which the event loop of the
other node gives at once. A node that gives none for ``lost_seconds`` is lost: its connections end, and it is found
again when it opens them anew. Where messages come anyway nobody asks.

Silence counts only as far as this node was awake to hear: a node that stood still itself takes nobody for lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

LOOKS: Final = 8
"""How often a node looks in ``lost_seconds``, at least."""

LOOK_SECONDS_AT_MOST: Final = 0.5
"""The longest time between two looks: nobody is lost so much later than it may be silent."""

QUESTIONS: Final = 4
"""How often a silent node is asked before it counts as lost, about."""


SUSPECT_SHARE: Final = 3 / 8
"""The part of ``lost_seconds`` for which a node has been silent, at least, when others are told that it is."""


class Silent(NamedTuple):
    """The nodes to ask for a sign of life, and the lost ones."""

    asked: list[int]
    lost: list[int]


class FailureDetector:
    """How long each of the others has been silent, as one node sees it."""

    def __init__(self, lost_seconds: float, now: float, looks: int = LOOKS) -> None:
        self.look_seconds: Final = min(lost_seconds, LOOK_SECONDS_AT_MOST * LOOKS) / looks
        self._lost_seconds: Final = lost_seconds
        self._question_seconds: Final = lost_seconds / QUESTIONS
        self._looked_at = now
        # By node how much of it had come at the last look, for how long nothing more has come, and since when it has
        # not been asked.
        self._heard: dict[int, int] = {}
        self._silent_seconds: dict[int, float] = {}
        self._unasked_seconds: dict[int, float] = {}

    def silence_seconds(self, node: int) -> float:
        """For how long a node has been silent; 0 unless it would have answered a question meanwhile, if it could."""
        silent = self._silent_seconds.get(node, 0.0)
        return silent if 2 * silent >= self._lost_seconds else 0.0

    def is_suspect(self, node: int) -> bool:
        """Whether a node has left a question unanswered for the time between two looks."""
        return self._silent_seconds.get(node, 0.0) >= self._question_seconds + self.look_seconds

    def expect(self, node: int, amount: int, now: float, is_suspect: bool) -> None:
        """Count the silence of a node that is asked now, if it is not counted yet; ``amount`` is what has come of it.

        One that somebody else suspects has been silent for a part of the time already. The rest is what a sign needs.
        """
        silent = SUSPECT_SHARE * self._lost_seconds if is_suspect else 0.0
        # The next look counts all the time since the last one.
        silent -= min(now - self._looked_at, 2 * self.look_seconds)
        self._silent_seconds[node] = max(silent, self._silent_seconds.get(node, silent))
        self._unasked_seconds[node] = 0.0
        self._heard[node] = amount

    def has_spoken(self, node: int) -> bool:
        """Whether something had come from a node at the last look that had not at the one before."""
        return self._silent_seconds.get(node) == 0.0

    def poll(self, now: float, heard: Mapping[int, int]) -> Silent:
        """``heard`` says how much has come from each of those whose silence counts."""
        awake = min(now - self._looked_at, 2 * self.look_seconds)
        self._looked_at = now
        asked, lost = [], []
        silent_seconds: dict[int, float] = {}
        unasked_seconds: dict[int, float] = {}
        for node, amount in heard.items():
            is_silent = self._heard.get(node) == amount
            silent_seconds[node] = self._silent_seconds.get(node, 0.0) + awake if is_silent else 0.0
            unasked_seconds[node] = self._unasked_seconds.get(node, 0.0) + awake if is_silent else 0.0
            if silent_seconds[node] >= self._lost_seconds:
                lost.append(node)
            elif unasked_seconds[node] >= self._question_seconds:
                unasked_seconds[node] = 0.0
                asked.append(node)
        self._heard, self._silent_seconds, self._unasked_seconds = dict(heard), silent_seconds, unasked_seconds
        return Silent(asked, lost)
