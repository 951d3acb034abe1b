"""Queues: by hand, against brute force, and against what the engine itself writes down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.vcube.broadcasts import MANY_TREES, ONE_TREE, BroadcastCase, root_of, simulate
from antiphon_lab.reproduction.metrics import in_classes, mean_per_node, queue_lengths, tree_sends


def table_of(sends: list[tuple[int, int, int]]) -> pa.Table:
    """Copies as (node, time, ticks until it has left)."""
    node, time, value = (list(column) for column in zip(*sends, strict=True)) if sends else ([], [], [])
    return pa.table(
        {"node": pa.array(node, pa.int32()), "time": pa.array(time, pa.int64()), "value": pa.array(value, pa.int64())}
    )


def test_a_burst_of_copies_finds_an_ever_longer_queue() -> None:
    node, length = queue_lengths(table_of([(5, 10, 1), (5, 10, 2), (5, 10, 3), (5, 12, 2), (5, 14, 1)]))
    assert node.tolist() == [5] * 5
    # At 12 the copies that leave at 11 and 12 are gone; at 14 the one that leaves at 14 is.
    assert length.tolist() == [1, 2, 3, 2, 1]


def test_nodes_have_queues_of_their_own() -> None:
    node, length = queue_lengths(table_of([(1, 0, 1), (0, 0, 1), (1, 0, 2), (0, 0, 2), (1, 5, 1)]))
    assert node.tolist() == [0, 0, 1, 1, 1]
    assert length.tolist() == [1, 2, 1, 2, 1]


def test_no_copies_no_queue() -> None:
    node, length = queue_lengths(table_of([]))
    assert (len(node), len(length)) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 4)), max_size=40))
def test_the_queue_of_any_fifo_server(arrivals: list[tuple[int, int, int]]) -> None:
    """Each copy is (node, time, transmission); the length is counted again copy by copy."""
    free: dict[int, int] = {}
    sends: list[tuple[int, int, int]] = []
    expected: dict[int, list[int]] = {}
    left: dict[int, list[int]] = {}
    for node, time, transmission in sorted(arrivals, key=lambda arrival: arrival[1]):
        free[node] = max(time, free.get(node, 0)) + transmission
        sends.append((node, time, free[node] - time))
        left.setdefault(node, []).append(free[node])
        expected.setdefault(node, []).append(sum(departure > time for departure in left[node]))
    _, length = queue_lengths(table_of(sends))
    assert length.tolist() == [count for node in sorted(expected) for count in expected[node]]


def trace_of(case: BroadcastCase) -> Any:
    trace = MemoryTrace("everything")
    simulate(case, 1, trace.recorder)
    return trace.table()


def test_where_a_copy_takes_one_tick_the_engine_writes_the_same_length() -> None:
    sends = tree_sends(trace_of(BroadcastCase(MANY_TREES, 64, 100, 10)), None)
    node, length = queue_lengths(sends)
    by_node = sends.take(pa.array(np.argsort(sends["node"].to_numpy(), kind="stable")))
    assert by_node["node"].to_pylist() == node.tolist()
    assert by_node["value"].to_pylist() == length.tolist()
    assert max(length) > 6


@pytest.mark.parametrize("acknowledged", [False, True])
def test_copies_down_a_tree_are_neither_acknowledgements_nor_the_hop_to_the_root(acknowledged: bool) -> None:
    case = BroadcastCase(ONE_TREE, 16, 100, 100, acknowledged)
    root = root_of(case, 1)
    sends = tree_sends(trace_of(case), root)
    assert sends.num_rows == 16 * 15
    assert set(sends["message"].to_pylist()) == {"Ordered"}
    assert root not in sends["peer"].to_pylist()


def test_means_per_node_are_zero_where_nothing_was_seen() -> None:
    assert mean_per_node(np.array([1, 1, 3]), np.array([4, 5, 7]), 5).tolist() == [0, 4.5, 0, 7, 0]


def test_classes_exclude_their_lower_and_include_their_upper_border() -> None:
    values = np.array([0, 0.5, 2, 2.01, 4, 5, 9])
    assert in_classes(values, [0, 2, 4, 8]) == [1, 2, 2, 1]
