"""What a live campaign does to a cluster at a time: no more than a fabric promises to survive."""

from __future__ import annotations

import random

from antiphon.lab.live_campaign import EVERYTHING
from antiphon.lab.live_faults import TAKES_LIVES, Draws


def test_two_faults_at_once_never_take_the_lives_of_half_of_the_nodes() -> None:
    draws = Draws(random.Random(205), EVERYTHING, 8)
    lives: set[int] = set()
    for _ in range(20_000):
        faults = draws.next()
        assert len(faults) <= 2
        taken = [place for fault in faults if fault.kind in TAKES_LIVES for place in fault.victims]
        assert len(set(taken)) == len(taken)
        lives.add(len(taken))
    assert lives == {0, 1, 2, 3}
