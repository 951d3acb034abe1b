"""The judge of total order, on what two replicas of Ginger delivered about one account (annex IX of its dissertation).

The file has the 25 deliveries of each: 9 total, 8 causal, 8 eventual; 10 of replica 1 and 15 of replica 2.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from antiphon.audit.total_order import judge_total_order

ROWS = list(csv.DictReader(Path(__file__).with_name("annex_ix.csv").read_text().splitlines()))

Delivery = tuple[int, int, str]
"""Publisher, number, order."""


def replica(number: int) -> list[Delivery]:
    """What a replica delivered, in order."""
    return [
        (int(row["source"]), int(row["message"]), row["guarantee"]) for row in ROWS if int(row["replica"]) == number
    ]


def circles(*replicas: list[Delivery]) -> int:
    """On how many keys the judge finds no single order."""
    rows = [
        {
            "event": "deliver",
            "node": node,
            "topic": 0,
            "source": source,
            "sequence": number,
            "order": order,
            "keys": [1],
        }
        for node, deliveries in enumerate(replicas)
        for source, number, order in deliveries
    ]
    return judge_total_order(pa.Table.from_pylist(rows))[0]


def test_the_file_is_that_of_the_annex() -> None:
    for number in (1, 2):
        delivered = replica(number)
        assert Counter(order for _, _, order in delivered) == {"total": 9, "causal": 8, "none": 8}
        assert Counter(source for source, _, _ in delivered) == {1: 10, 2: 15}
    assert {row["key"] for row in ROWS} == {"162550483"}
    assert replica(1) != replica(2)
    assert sorted(replica(1)) == sorted(replica(2))


def test_the_replicas_agree() -> None:
    assert circles(replica(1), replica(2)) == 0


def test_causal_and_total_publications_of_a_replica_keep_their_order() -> None:
    for number in (1, 2):
        for source in (1, 2):
            numbers = [message for by, message, order in replica(number) if by == source and order != "none"]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("position", range(24))
def test_a_swap_with_a_total_publication_is_found_and_no_other(number: int, position: int) -> None:
    """Those without order too are before it everywhere, or after it; between two total ones the order is free."""
    changed = replica(number)
    changed[position], changed[position + 1] = changed[position + 1], changed[position]
    touches_total = "total" in (changed[position][2], changed[position + 1][2])
    assert circles(changed, replica(3 - number)) == (1 if touches_total else 0)
