"""Weaker publications that begin while only nodes that are down have a total one about their keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from antiphon.audit.out_of_reach import publications_out_of_reach

CRASH = ("crash", 0)
TOTAL = ("total", 0, 0, 1)
"""Node 0 publishes 1 in total order."""

WEAK = ("weak", 3, 3, 1)
"""Node 3 publishes 1 about the same key in a weaker order."""


def rows_of(*events: tuple[Any, ...], keys: list[int] | None = None, weak_keys: list[int] | None = None) -> pa.Table:
    """Deliveries (order, node, source, number), and ends and starts of nodes."""
    schema = pa.schema(
        {
            "event": pa.string(),
            "node": pa.int32(),
            "topic": pa.int32(),
            "source": pa.int32(),
            "sequence": pa.int64(),
            "order": pa.string(),
            "keys": pa.list_(pa.int64()),
        }
    )
    rows: list[dict[str, Any]] = []
    for what, node, *about in events:
        if about:
            order, named = ("total", keys) if what == "total" else ("fifo", weak_keys)
            rows.append({"event": "deliver", "node": node, "topic": 0, "order": order, "keys": named})
            rows[-1]["source"], rows[-1]["sequence"] = about
        else:
            rows.append({"event": what, "node": node})
    return pa.Table.from_pylist(rows, schema)


def test_a_publication_is_out_of_reach_while_all_that_have_it_are_down() -> None:
    back = ("total", 3, 0, 1)
    assert publications_out_of_reach(rows_of(TOTAL, CRASH, WEAK, ("join", 9), back)) == {(0, 3, 1)}


@pytest.mark.parametrize(
    "events",
    [
        (TOTAL, WEAK, CRASH),
        (TOTAL, ("total", 2, 0, 1), CRASH, WEAK),
        (TOTAL, CRASH, ("total", 2, 0, 1), WEAK),
        (CRASH, WEAK, ("total", 2, 0, 1)),
        (TOTAL, ("crash", 1), WEAK),
        (WEAK, TOTAL, CRASH, ("weak", 2, 3, 1)),
    ],
)
def test_it_is_in_reach_of_any_other(events: tuple[Any, ...]) -> None:
    """It begins before the crash, or a node that is up has the total one, or it is only delivered meanwhile."""
    assert publications_out_of_reach(rows_of(*events)) == set()


def test_a_publication_about_other_keys_is_judged() -> None:
    assert publications_out_of_reach(rows_of(TOTAL, CRASH, WEAK, keys=[1], weak_keys=[2])) == set()
    assert publications_out_of_reach(rows_of(TOTAL, CRASH, WEAK, keys=[1, 2], weak_keys=[2, 3])) == {(0, 3, 1)}
    assert publications_out_of_reach(rows_of(TOTAL, CRASH, WEAK, keys=None, weak_keys=[2])) == set()
