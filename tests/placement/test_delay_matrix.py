"""Matrices of delays: both forms, and what is wrong with others."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.placement.delay_matrix import read_matrix

PAIRS = """from,to,round_trip_ms
Oslo,Oslo,0.02
Oslo,Rome,40
Rome,Oslo,42.5
Rome,Rome,0.01
"""
SQUARE = """delay_ms,Oslo,Rome,Lima
Oslo,0,20,100
Rome,21,,90
Lima,101,91,0
"""


def test_pairs_are_read_in_any_order_and_halved() -> None:
    header, *lines = PAIRS.splitlines()
    for text in (PAIRS, "\n".join([header, *lines[1:], "", lines[0]])):
        matrix = read_matrix(text, "x")
        assert {(matrix.names[a], matrix.names[b]): matrix.rows[a][b] for a in (0, 1) for b in (0, 1)} == {
            ("Oslo", "Oslo"): 0,
            ("Oslo", "Rome"): 20_000,
            ("Rome", "Oslo"): 21_250,
            ("Rome", "Rome"): 0,
        }


def test_a_square_of_one_direction_is_read_as_it_is() -> None:
    matrix = read_matrix(SQUARE, "x")
    assert matrix.names == ("Oslo", "Rome", "Lima")
    assert matrix.rows == [[0, 20_000, 100_000], [21_000, 0, 90_000], [101_000, 91_000, 0]]
    assert matrix.estimated == 0
    assert matrix.mean_us() == pytest.approx(70_500)


def test_the_lines_of_a_square_may_have_another_order() -> None:
    lines = SQUARE.splitlines()
    assert read_matrix("\n".join([lines[0], lines[3], lines[1], lines[2]]), "x") == read_matrix(SQUARE, "x")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "x is empty"),
        ("a,b\n1,2\n", "x, line 1: the first line is 'from,to,round_trip_ms'"),
        (PAIRS.replace("42.5", "-1"), "x, line 4: -1 ms is negative"),
        (PAIRS.replace("42.5", "fast"), "x, line 4: 'fast' is not a time"),
        (PAIRS.replace("42.5", "inf"), "x, line 4: inf ms is more than 60000"),
        (PAIRS.replace("42.5", "42.5,7"), "x, line 4: a pair has three values"),
        (PAIRS.replace("Rome,Oslo,42.5", ",Oslo,42.5"), "x, line 4: the name of a place is missing"),
        (PAIRS + "Oslo,Rome,41\n", "x, line 6: Oslo to Rome is there twice, first in line 3"),
        (PAIRS.replace("Rome,Oslo,42.5\n", ""), "x lacks Rome to Oslo; measure them, or ask"),
        (PAIRS.replace("42.5", ""), "x lacks Rome to Oslo"),
        ("from,to,round_trip_ms\nOslo,Oslo,1\n", "x has 1 place; a matrix needs two"),
        (SQUARE.replace("Rome,21,,90", "Rome,21,90"), "x, line 3: Rome has 2 delays and there are 3 places"),
        (SQUARE.replace("Lima,101,91,0\n", ""), "x has 3 columns and 2 lines of delays; Lima has no line"),
        (SQUARE.replace("delay_ms,Oslo,Rome", "delay_ms,Oslo,Oslo"), "x, line 1: Oslo names columns 2 and 3"),
        (SQUARE.replace("delay_ms,Oslo", "delay_ms,"), "x, line 1: column 2 has no name"),
        (SQUARE + "Oslo,1,2,3\n", "x, line 5: Oslo has a second line"),
        (SQUARE.replace("\nLima", "\nLimo"), "x, line 4: 'Limo' is not among the names"),
        (SQUARE.replace(",90", ",-90"), "x, line 3, Rome to Lima: -90 ms is negative"),
        (SQUARE.replace(",90", ","), "x lacks Rome to Lima"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_matrix(text, "x")
    assert complaint in str(raised.value)


def test_many_missing_delays_are_counted() -> None:
    with pytest.raises(UsageError, match=r"x lacks A to C, B to C, C to A and 1 more"):
        read_matrix("delay_ms,A,B,C\nA,0,1,\nB,1,0,\nC,,,0\n", "x")


def test_missing_delays_are_estimated_only_if_asked() -> None:
    # Rome to Lima is known the other way, Lima to Oslo in no direction: over Rome it takes 91 + 21.
    text = SQUARE.replace(",90", ",").replace("Oslo,0,20,100", "Oslo,0,20,").replace("Lima,101", "Lima,")
    matrix = read_matrix(text, "x", estimate=True)
    assert matrix.rows == [[0, 20_000, 111_000], [21_000, 0, 91_000], [112_000, 91_000, 0]]
    assert matrix.estimated == 3


def test_what_no_third_place_connects_cannot_be_estimated() -> None:
    with pytest.raises(UsageError, match="x: A to C cannot be estimated"):
        read_matrix("delay_ms,A,B,C\nA,0,1,\nB,1,0,\nC,,,0\n", "x", estimate=True)
