"""What applications of a live campaign wrote down is judged by both judges, who find the same.

Lives of applications, changes of nodes and gaps that were told are part of what goes well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.audit.auditor import audit_files
from antiphon.audit.report import Audit
from antiphon.audit.spark.auditor import audit_in_session
from antiphon.torture.live.audit import audit_campaign
from antiphon.torture.live.judging import Circumstances
from tests.audit.spark.live_journals import seen_in, well_behaved, write_journals

Damage = Callable[[list[str]], None]


def lose_one(lines: list[str]) -> None:
    """What all others have seen is not seen here, by the application that stays until the end."""
    *_, (last, _) = seen_in(lines)
    del lines[last]


def see_the_later_first(lines: list[str]) -> None:
    """Two messages of one publisher on one topic, in order, in one life, change places."""
    found: dict[tuple[str, str], int] = {}
    for index, words in reversed(list(seen_in(lines))):
        _, _, topic, identity, _, order = words
        later = found.get((topic, identity))
        if order == "causal" and later is not None:
            first, second = lines[index].split(), lines[later].split()
            lines[index] = " ".join([*first[:2], *second[2:]])
            lines[later] = " ".join([*second[:2], *first[2:]])
            return
        if order == "causal":
            found[topic, identity] = index
    raise AssertionError("nobody has published twice")


def judged_by_both(directory: Path, spark: SparkSession) -> list[Audit]:
    return [
        audit_campaign(directory, audit_files),
        audit_campaign(directory, lambda files: audit_in_session(spark, files)),
    ]


def broken(audit: Audit) -> dict[str, int]:
    return {name: check.violations for name, check in audit.checks.items() if check.violations}


@pytest.fixture
def places() -> list[list[str]]:
    lines = well_behaved(random.Random(5), places=4, topics=2, steps=400)
    text = "\n".join(line for place in lines for line in place)
    assert all(f"\n{word} " in text for word in ("gap", "end", "begin")), "the journals are too short"
    return lines


def test_both_judges_find_nothing_where_all_went_well(
    tmp_path: Path, spark: SparkSession, places: list[list[str]]
) -> None:
    write_journals(tmp_path, places)
    Circumstances("tree").write(tmp_path)
    in_memory, on_spark = judged_by_both(tmp_path, spark)
    assert (in_memory.judge, on_spark.judge) == ("memory", "spark")
    assert broken(in_memory) == broken(on_spark) == {}
    assert in_memory.messages == on_spark.messages > 300 and in_memory.deliveries == on_spark.deliveries > 1000


@pytest.mark.parametrize(("damage", "check"), [(lose_one, "completeness"), (see_the_later_first, "fifo")])
def test_both_judges_find_what_is_wrong(
    tmp_path: Path, spark: SparkSession, places: list[list[str]], damage: Damage, check: str
) -> None:
    damage(places[1])
    write_journals(tmp_path, places)
    Circumstances("tree").write(tmp_path)
    in_memory, on_spark = judged_by_both(tmp_path, spark)
    assert in_memory.checks[check].violations > 0
    assert broken(in_memory).keys() == broken(on_spark).keys()
    assert in_memory.checks[check].violations == on_spark.checks[check].violations
    assert on_spark.checks[check].example is not None
