"""The judge of live campaigns with consumers finds each kind of broken promise, and nothing where none is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.torture.live.consumers.judge import CONSUMER_CHECKS, ConsumerJudge, HistoryAtEnd
from antiphon.torture.live.consumers.records import (
    ACKED,
    ACKING,
    ASKED,
    GOT,
    RECEIPT,
    REFUSED,
    WorkRecord,
    WorkRecords,
    records_in,
)

MODES = {"any": "any", "key": "key", "causal": "causal"}
GENERATION = 7
NAMES = {0: "1.1:1", 1: "1.1:2", 2: "2.1:1"}

Line = tuple[str, list[str | int]]


def done(consumer: str, position: int, member: str = "m", delivery: int = 1) -> list[Line]:
    place: list[str | int] = [consumer, member, position, delivery]
    return [(GOT, [*place, NAMES[position]]), (ACKING, place), (ACKED, place)]


def kept() -> list[Line]:
    """Records of a campaign in which everything is as it should be."""
    lines: list[Line] = [(ASKED, [name, "anna"]) for name in NAMES.values()]
    for position, name in NAMES.items():
        lines.append((RECEIPT, [name, GENERATION, position, 2]))
    return lines + [line for consumer in MODES for position in NAMES for line in done(consumer, position)]


def judged(lines: list[Line], names: dict[int, str] | None = None) -> dict[str, int]:
    judge = ConsumerJudge(MODES, HistoryAtEnd(GENERATION, NAMES if names is None else names))
    judge.judge(WorkRecord(number, what, fields) for number, (what, fields) in enumerate(lines))
    return {kind: count for kind, count in judge.violations.items() if count}


def without_ack(consumer: str, position: int) -> list[Line]:
    wanted: list[str | int] = [consumer, "m", position, 1]
    return [line for line in kept() if line not in ((ACKING, wanted), (ACKED, wanted))]


def handed_early(consumer: str) -> list[Line]:
    """Another member gets the second message before the first is done."""
    early: Line = (GOT, [consumer, "other", 1, 1, NAMES[1]])
    lines = kept()
    place = lines.index((ACKING, [consumer, "m", 0, 1]))
    return [*lines[:place], early, *lines[place:]]


def test_nothing_is_found_where_nothing_is_broken() -> None:
    assert judged(kept()) == {}
    # A message that was handed out twice before anybody had acknowledged it, and whose first member lost its turn.
    lost: list[Line] = [
        (GOT, ["any", "slow", 0, 1, NAMES[0]]),
        *done("any", 0, "m", 2),
        (ACKING, ["any", "slow", 0, 1]),
        (REFUSED, ["any", "slow", 0, 1]),
    ]
    assert judged([*lost, *(line for line in kept() if line not in done("any", 0))]) == {}
    # With mode ``key`` the member that has the earlier one gets the next one, too.
    same: list[Line] = [(GOT, ["key", "m", 0, 1, NAMES[0]]), (GOT, ["key", "m", 1, 1, NAMES[1]])]
    assert judged([*kept()[:6], *same, *kept()[6:]]) == {}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("receipt", lambda: judged([*kept(), (RECEIPT, ["1.1:3", GENERATION, 3, 2])])),
        ("receipt", lambda: judged([*kept(), (RECEIPT, [NAMES[0], GENERATION + 1, 0, 2])])),
        ("receipt", lambda: judged([*kept(), (RECEIPT, [NAMES[0], GENERATION, 0, 1])])),
        ("again", lambda: judged([*kept(), (GOT, ["any", "other", 1, 2, NAMES[1]])])),
        ("key order", lambda: judged(handed_early("key"))),
        ("causal order", lambda: judged(handed_early("causal"))),
        ("not done", lambda: judged(without_ack("any", 2))),
        ("not done", lambda: judged([*kept(), (REFUSED, ["any", "m", 1, 1])])),
    ],
)
def test_each_broken_promise_is_found(kind: str, found: Callable[[], dict[str, int]]) -> None:
    assert found() == {kind: 1}
    assert kind in CONSUMER_CHECKS


def test_a_message_that_is_there_twice_is_found() -> None:
    again = {**NAMES, 3: NAMES[2]}
    lines = kept()
    for consumer in MODES:
        lines.append((ACKING, [consumer, "m", 3, 1]))
    assert judged(lines, again) == {"twice": 1}


def test_lines_of_a_process_that_was_killed_are_read_up_to_the_last_whole_one(tmp_path: Path) -> None:
    records = WorkRecords(tmp_path / "program-1-1.jsonl")
    records.note(ASKED, "1.1:1", "anna")
    records.note(RECEIPT, "1.1:1", GENERATION, 0, 2)
    records.close()
    with (tmp_path / "program-1-1.jsonl").open("ab") as file:
        file.write(b'[17,"got",["any","m"')
    assert [record.what for record in records_in(tmp_path)] == [ASKED, RECEIPT]
