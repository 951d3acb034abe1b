"""Who publishes to whom, and how much."""

from __future__ import annotations

import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.peers.workload import MARKER, PAYLOAD_LEAST_BYTES, Round, parse_workload


def test_one_publisher_is_not_a_subscriber() -> None:
    workload = parse_workload("1-to-7", 100)
    assert (workload.name, workload.processes, workload.everyone_does_both) == ("1-to-7", 8, False)
    assert [workload.publishes(index) for index in range(8)] == [True] + [False] * 7
    assert [workload.receives(index) for index in range(8)] == [False] + [True] * 7


def test_one_to_one_takes_two_processes() -> None:
    assert parse_workload("1-to-1", 100).processes == 2


def test_where_both_are_equally_many_everyone_does_both() -> None:
    workload = parse_workload(" 7-to-7", 1024)
    assert (workload.processes, workload.everyone_does_both) == (7, True)
    assert all(workload.publishes(index) and workload.receives(index) for index in range(7))


@pytest.mark.parametrize("text", ["", "1", "1-7", "0-to-7", "7-to-0", "-1-to-7", "1-to-7-to-7", "a-to-b"])
def test_what_is_no_workload_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="written like 1-to-7"):
        parse_workload(text, 100)


def test_too_many_processes_are_refused() -> None:
    with pytest.raises(UsageError, match="needs 100 processes; at most 64"):
        parse_workload("1-to-99", 100)


@pytest.mark.parametrize("size", [0, PAYLOAD_LEAST_BYTES - 1, 2**20 + 1])
def test_payloads_have_bounds(size: int) -> None:
    with pytest.raises(UsageError, match="change --payload"):
        parse_workload("1-to-1", size)


def test_no_payload_is_as_short_as_a_marker() -> None:
    assert MARKER.size < PAYLOAD_LEAST_BYTES


def test_publishers_share_a_round_and_nothing_is_left_over() -> None:
    shares = [Round(1, 100, 1.0).share(publisher, 7) for publisher in range(7)]
    assert shares == [15, 15, 14, 14, 14, 14, 14]
    assert sum(shares) == 100
