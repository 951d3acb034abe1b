"""The judge of total order, on the delivery files of two replicas that the dissertation on Ginger prints (annex IX).

Each entry is ``publisher:number`` and the order: E for eventual (none), C for causal, T for total. All are about one
key.
"""

from __future__ import annotations

import pytest

from antiphon.trace.total_order import Name, circle_in, pairs_of

FIRST = (
    "1:42C 2:47C 2:64T 2:84E 1:98E 2:95C 2:102T 1:131E 2:131E 2:133C 1:189T 2:265C 2:295T 2:399E 2:449C 1:464E 2:465T "
    "1:501C 2:519T 2:545C 1:675T 1:840E 2:907E 1:909T 1:938T"
)
SECOND = (
    "1:42C 2:47C 2:64T 2:84E 2:95C 1:98E 2:102T 2:131E 1:131E 2:133C 1:189T 2:265C 2:295T 2:399E 2:449C 1:464E 2:465T "
    "1:501C 2:519T 2:545C 1:675T 1:840E 2:907E 1:909T 1:938T"
)

Lane = list[tuple[Name, bool]]


def lane_of(text: str) -> Lane:
    """What one replica delivered, each with whether it is total."""
    lane: Lane = []
    for word in text.split():
        publisher, number = word[:-1].split(":")
        lane.append(((int(publisher), int(number)), word.endswith("T")))
    return lane


def is_one_order(*lanes: Lane) -> bool:
    """Whether the judge finds no circle."""
    return not circle_in({pair for lane in lanes for pair in pairs_of(lane)})


def test_the_published_deliveries_are_in_total_order() -> None:
    first, second = lane_of(FIRST), lane_of(SECOND)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(first) == 25
    assert sum(is_total for _, is_total in first) == 9
    assert is_one_order(first, second)


@pytest.mark.parametrize("place", range(24))
def test_a_swap_with_a_total_one_is_found_and_no_other(place: int) -> None:
    """A total publication is a synchronisation point: also those without order are before it everywhere, or after."""
    first, second = lane_of(FIRST), lane_of(SECOND)
    second[place], second[place + 1] = second[place + 1], second[place]
    touches_total = second[place][1] or second[place + 1][1]
    assert is_one_order(first, second) == (not touches_total)
