"""T9, annex IX: what two replicas of the experiments delivered about one account, and the judges of order.

The file has the 25 deliveries of each: 9 total, 8 causal, 8 eventual; 10 of replica 1 and 15 of replica 2.
"""

from __future__ import annotations

import csv
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from antiphon.trace.total_order import judge_total_order

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


NEIGHBOURS = [
    (number, position)
    for number in (1, 2)
    for position, (one, other) in enumerate(pairwise(replica(number)))
    if "total" in (one[2], other[2])
]


@pytest.mark.parametrize(("number", "position"), NEIGHBOURS)
def test_a_total_publication_and_its_neighbour_cannot_change_places(number: int, position: int) -> None:
    changed = replica(number)
    changed[position], changed[position + 1] = changed[position + 1], changed[position]
    assert circles(changed, replica(3 - number)) == 1


def test_others_can() -> None:
    """Between two total publications the order is free, as the two replicas show."""
    changed = replica(1)
    changed[7], changed[8] = changed[8], changed[7]
    assert circles(changed, replica(2)) == 0
