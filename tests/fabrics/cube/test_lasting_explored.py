"""The cube through faults: every schedule of small systems, with a crash at every step (the thesis leaves it open)."""

from __future__ import annotations

import pytest

from antiphon.simulator.explore.crashes import Failure
from antiphon.simulator.explore.systems import SMALL_SYSTEMS, explore_lasting

SYSTEMS = {system.name: system for system in SMALL_SYSTEMS}

# The system, who fails, whether it comes back, how often timers expire, how many of them early, and how many states.
EXPLORED = [
    ("2 nodes, 1 publication", Failure(0, True, 2, 1), 5494),
    ("2 nodes, 1 publication", Failure(1, True, 1), 443),
    ("2 nodes, 2 publications of one", Failure(0, True, 1), 1906),
    ("2 nodes, 2 publications of one", Failure(1, False, 2, 1), 38),
    ("2 nodes, 2 publications", Failure(0, False, 2, 1), 78),
    ("2 nodes, a newcomer", Failure(0, True, 1), 862),
    ("2 nodes, a newcomer", Failure(1, True, 1), 762),
    ("2 nodes, one leaves", Failure(0, True, 1), 2123),
    ("2 nodes, one leaves", Failure(1, True, 1), 1554),
    ("3 nodes, 1 publication", Failure(0, False, 2, 1), 402),
    ("3 nodes, 1 publication", Failure(1, False, 2, 1), 446),
    ("3 nodes, 2 publications", Failure(1, False, 1), 883),
    ("3 nodes, a newcomer", Failure(0, False, 1), 811),
    ("3 nodes, a newcomer", Failure(2, False, 2), 741),
]


@pytest.mark.parametrize(("name", "failure", "states"), EXPLORED)
def test_no_schedule_with_a_crash_loses_blocks_or_reorders(name: str, failure: Failure, states: int) -> None:
    found = explore_lasting(SYSTEMS[name], failure)
    assert found.violation is None, "\n".join([str(found.violation), *found.schedule])
    assert found.exhausted and found.ends > 0
    assert found.states == states


def test_members_that_never_compare_do_not_complete_what_a_dead_publisher_said_last() -> None:
    found = explore_lasting(SYSTEMS["3 nodes, 1 publication"], Failure(0, False, rounds=0))
    assert found.violation is not None and "completeness" in found.violation
    assert "node 0 crashes" in found.schedule
