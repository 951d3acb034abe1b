"""What applications of a live campaign write down is judged: what is wrong is found, and what was told is excused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from antiphon.audit.auditor import audit_files
from antiphon.kernel.errors import UsageError
from antiphon.torture.live.audit import audit_campaign
from antiphon.torture.live.crowd import DROPPING_NAME, FIRST_IDENTITY
from antiphon.torture.live.judging import CampaignJudgement, Circumstances, judge_journals

BEGIN = ["begin 1 {me}", "node 1 door-{me}", "ready 2 0"]


def judged(
    directory: Path,
    *places: list[str],
    killed: list[tuple[str, int]] | None = None,
    may_lose: bool = False,
    dropping: list[list[str]] | None = None,
    disturbed: list[tuple[int, int]] | None = None,
    fabric: str = "tree",
) -> CampaignJudgement:
    """Judge journals that are given as lines, one list for each place; each begins with a subscription to topic 0.

    Those of subscribers that drop messages have a directory of their own. Publishers may wait for 20 microseconds.
    """
    for kind, all_lines in (("journals", list(places)), (DROPPING_NAME, dropping or [])):
        (directory / kind).mkdir()
        for place, lines in enumerate(all_lines, FIRST_IDENTITY if kind == DROPPING_NAME else 0):
            text = "\n".join([*(line.format(me=place) for line in BEGIN), *lines]) + "\n"
            (directory / kind / f"place-{place}.txt").write_text(text)
    circumstances = Circumstances(fabric, killed or [], may_lose, disturbed=disturbed or [], wait_seconds=20e-6)
    return judge_journals(directory, circumstances, audit_files, directory)


def broken(found: CampaignJudgement) -> dict[str, int]:
    return {name: count for name, count in found.violations.items() if count}


ASKS = ["ask 10 0 1 causal -", "ask 11 0 2 causal -", "yes 12 0 1", "yes 12 0 2"]
SEES = ["see 20 0 0 1 causal", "see 21 0 0 2 causal"]


def test_what_is_right_is_found_right(tmp_path: Path) -> None:
    found = judged(tmp_path, [*ASKS, *SEES], SEES)
    assert broken(found) == {}
    assert (found.asked, found.accepted, found.deliveries, found.gone_with_node) == (2, 2, 4, 0)


@pytest.mark.parametrize(
    ("check", "own", "others"),
    [
        ("completeness", SEES, SEES[:1]),
        ("completeness", SEES[:1], SEES),
        ("completeness", [], []),
        ("duplicates", SEES, [*SEES, "see 22 0 0 1 causal"]),
        ("fifo", SEES, [SEES[1], "see 22 0 0 1 causal"]),
        ("validity", SEES, [*SEES, "see 22 0 0 3 causal"]),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, check: str, own: list[str], others: list[str]) -> None:
    assert check in broken(judged(tmp_path, [*ASKS, *own], others))


def test_an_answer_before_its_question_is_found(tmp_path: Path) -> None:
    """A question is asked at 10, answered at 30, and the answer comes first at the third place."""
    asks = ["ask 10 0 1 causal -", "yes 11 0 1", "see 20 0 0 1 causal"]
    answers = ["see 21 0 0 1 causal", "ask 30 0 1 causal -", "yes 31 0 1", "see 32 0 1 1 causal"]
    late = ["see 40 0 1 1 causal", "see 41 0 0 1 causal"]
    found = judged(tmp_path, [*asks, "see 33 0 1 1 causal"], answers, late)
    assert broken(found) == {"causal": 1}


def test_what_was_asked_for_before_something_came_does_not_follow_it(tmp_path: Path) -> None:
    """It is shown to its own publisher after that, all the same."""
    asks = ["ask 10 0 1 causal -", "yes 11 0 1", "see 20 0 0 1 causal", "see 50 0 1 1 causal"]
    meanwhile = ["ask 12 0 1 causal -", "see 21 0 0 1 causal", "yes 22 0 1", "see 23 0 1 1 causal"]
    found = judged(tmp_path, asks, meanwhile, ["see 40 0 1 1 causal", "see 41 0 0 1 causal"])
    assert broken(found) == {}


def test_total_order_is_judged_by_what_was_shown(tmp_path: Path) -> None:
    one = ["ask 10 0 1 total anna", "yes 30 0 1", "see 31 0 1 1 total", "see 32 0 0 1 total"]
    other = ["ask 11 0 1 total anna,ben", "yes 30 0 1", "see 31 0 1 1 total", "see 32 0 0 1 total"]
    assert broken(judged(tmp_path, one, other)) == {}
    (tmp_path / "again").mkdir()
    assert broken(judged(tmp_path / "again", [*one[:2], "see 31 0 0 1 total", "see 32 0 1 1 total"], other)) == {
        "total": 1
    }


@pytest.mark.parametrize(
    ("fabric", "gap", "copy", "is_excused", "answer"),
    [
        *product(["gossip"], [["gap 25 0"]], [8], [True], ["total", "causal"]),
        *product(["gossip"], [["gap 25 0"]], [7], [False], ["total", "causal"]),
        *product(["gossip"], [["gap 9 0"], []], [8], [False], ["total", "causal"]),
        ("tree", ["gap 25 0"], 8, False, "total"),
    ],
)
def test_a_second_copy_behind_a_gap_has_another_place_in_gossip(
    tmp_path: Path, fabric: str, gap: list[str], copy: int, is_excused: bool, answer: str
) -> None:
    """The third place was told of a gap, and shown the question behind the answer, as the publication of node 8."""
    asks = ["ask 10 0 1 total -", "yes 11 0 1", "see 20 0 0 1 total 7", f"see 33 0 1 1 {answer} 7"]
    answers = ["see 21 0 0 1 total 7", f"ask 30 0 1 {answer} -", "yes 31 0 1", f"see 32 0 1 1 {answer} 7"]
    late = [*gap, f"see 40 0 1 1 {answer} 7", f"see 41 0 0 1 total {copy}"]
    found = broken(judged(tmp_path, asks, answers, late, fabric=fabric))
    assert found == ({} if is_excused else {answer: 1})


def test_a_second_copy_is_not_shown_behind_what_its_publisher_asked_for_later(tmp_path: Path) -> None:
    asks = ["ask 10 0 1 total -", "yes 11 0 1", "ask 12 0 2 causal -", "yes 13 0 2"]
    sees = ["see 20 0 0 1 total 7", "see 21 0 0 2 causal 7"]
    late = ["gap 25 0", "see 40 0 0 2 causal 7", "see 41 0 0 1 total 8"]
    assert broken(judged(tmp_path, [*asks, *sees], sees, late, fabric="gossip")) == {"fifo": 1}


def test_who_was_told_of_a_gap_is_owed_nothing_that_was_under_way(tmp_path: Path) -> None:
    later = ["ask 40 0 3 causal -", "yes 41 0 3", "see 42 0 0 3 causal"]
    assert broken(judged(tmp_path, [*ASKS, *SEES, *later], ["gap 30 0", "see 43 0 0 3 causal"])) == {}
    (tmp_path / "again").mkdir()
    assert broken(judged(tmp_path / "again", [*ASKS, *SEES, *later], [*SEES, "gap 30 0"])) == {"completeness": 1}


def test_what_was_refused_need_not_come_but_comes_to_all_or_none(tmp_path: Path) -> None:
    refused = ["ask 10 0 1 causal -", "no 11 0 1", "ask 12 0 2 causal -", "yes 13 0 2"]
    second = ["see 21 0 0 2 causal"]
    assert broken(judged(tmp_path, [*refused, *second], second)) == {}
    (tmp_path / "again").mkdir()
    found = judged(tmp_path / "again", [*refused, *second], [*SEES[:1], *second], second)
    assert broken(found) == {"completeness": 1}


@pytest.mark.parametrize("may_lose", [True, False])
def test_what_went_with_its_node_is_excused_where_that_may_be(tmp_path: Path, may_lose: bool) -> None:
    """Nobody else had it: then it is gone. Who has seen it elsewhere shows that it was not."""
    asks = ["ask 10 0 1 causal -", "yes 11 0 1", "see 12 0 0 1 causal"]
    found = judged(tmp_path, asks, [], killed=[("door-0", 20)], may_lose=may_lose)
    assert broken(found) == ({} if may_lose else {"completeness": 1})
    assert found.gone_with_node == (1 if may_lose else 0)
    (tmp_path / "again").mkdir()
    seen = ["see 13 0 0 1 causal"]
    assert broken(judged(tmp_path / "again", asks, seen, [], killed=[("door-0", 20)], may_lose=may_lose)) == {
        "completeness": 1
    }


KEPT = ["kept 50 door-0 0", "has 50 0 0 1", "has 50 0 0 2"]


@pytest.mark.parametrize(
    ("remains", "missing"),
    [
        (KEPT, 0),
        (KEPT[:2], 1),
        (KEPT[:1], 2),
        (["kept 50 door-0 0", "refused 50 it is damaged"], 1),
        # It had an empty disk since then, also if what it had said before came later, was killed before, or is another
        # node.
        (["kept 50 door-0 30"], 0),
        (["kept 50 door-0 10"], 0),
        (["kept 11 door-0 0"], 0),
        (["kept 50 door-1 0"], 0),
    ],
)
def test_what_was_accepted_is_on_the_disk_of_its_node(tmp_path: Path, remains: list[str], missing: int) -> None:
    (tmp_path / "remains").mkdir()
    (tmp_path / "remains" / "0-node-0.txt").write_text("\n".join(remains) + "\n")
    found = judged(tmp_path, [*ASKS, *SEES], SEES)
    assert broken(found) == ({"durability": missing} if missing else {})


def test_what_a_campaign_has_kept_is_audited_again(tmp_path: Path) -> None:
    found = judged(tmp_path, [*ASKS, *SEES], SEES[:1])
    assert broken(found) == {"completeness": 1}
    with pytest.raises(UsageError, match="does not describe a campaign"):
        audit_campaign(tmp_path, audit_files)
    Circumstances("tree").write(tmp_path)
    (tmp_path / "remains").mkdir()
    (tmp_path / "remains" / "0-node-0.txt").write_text("\n".join(KEPT[:2]) + "\n")
    audit = audit_campaign(tmp_path, audit_files)
    assert {name: check.violations for name, check in audit.checks.items() if check.violations} == {
        "completeness": 1,
        "durability": 1,
    }
    assert audit.verdict == "violated" and (audit.messages, audit.deliveries) == (2, 3)


def test_a_message_that_was_changed_on_its_way_is_found(tmp_path: Path) -> None:
    assert broken(judged(tmp_path, [*ASKS, *SEES], [*SEES, "torn 21 0 0 2"])) == {"content": 1}


@pytest.mark.parametrize(
    ("disturbed", "stalls"),
    [
        ([], 1),
        # Something that was over before it was asked for, or began when it was answered, is no reason.
        ([(1, 9), (51, 60)], 1),
        ([(1, 10)], 0),
        ([(50, 60)], 0),
        ([(20, 30)], 0),
    ],
)
def test_a_publisher_that_waits_for_no_reason_is_found(
    tmp_path: Path, disturbed: list[tuple[int, int]], stalls: int
) -> None:
    asks = ["ask 10 0 1 causal -", "ask 40 0 2 causal -", "yes 50 0 1", "yes 50 0 2", "see 51 0 0 1 causal"]
    seen = ["see 52 0 0 1 causal", "see 53 0 0 2 causal"]
    found = judged(tmp_path, [*asks, seen[1]], seen, disturbed=disturbed)
    assert broken(found) == ({"stalls": stalls} if stalls else {})


FIVE = [f"ask 1{number} 0 {number} causal -" for number in range(1, 6)]
ALL_FIVE = [f"see 2{number} 0 0 {number} causal" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("lines", "violations"),
    [
        (ALL_FIVE, {}),
        ([ALL_FIVE[0], "dropped 25 0 3", ALL_FIVE[4]], {}),
        # More is missing before the last than was told, or nothing was told.
        ([ALL_FIVE[0], "dropped 25 0 2", ALL_FIVE[4]], {"drops": 1}),
        ([ALL_FIVE[0], ALL_FIVE[4]], {"drops": 1}),
        # What is behind the last may be on its way.
        ([ALL_FIVE[0]], {}),
        ([ALL_FIVE[0], "dropped 25 0 4"], {}),
        # There was less than what is said to be dropped.
        ([ALL_FIVE[0], "dropped 25 0 5"], {"drops": 1}),
        # It was told that messages may be missing, at another node.
        ([ALL_FIVE[0], "node 22 door-1", "gap 23 0", ALL_FIVE[4]], {}),
        # What comes is in order, and once, whatever is missing.
        (["dropped 21 0 3", ALL_FIVE[4], "see 26 0 0 1 causal"], {"fifo": 1}),
        (["dropped 21 0 4", ALL_FIVE[4], "see 26 0 0 5 causal"], {"duplicates": 1}),
    ],
)
def test_who_drops_messages_is_told_how_many_and_gets_the_others_in_order(
    tmp_path: Path, lines: list[str], violations: dict[str, int]
) -> None:
    found = judged(tmp_path, [*FIVE, *ALL_FIVE], ALL_FIVE, dropping=[lines])
    assert broken(found) == violations
    assert found.subscribers == 1


def test_what_was_published_before_a_subscription_is_not_missed_by_it(tmp_path: Path) -> None:
    """The second subscriber at the place comes when the first messages have been asked for."""
    later = ["end 12 0", f"begin 13 {FIRST_IDENTITY + 1}", "node 13 door-0", "ready 13 0", ALL_FIVE[4]]
    found = judged(tmp_path, [*FIVE, *ALL_FIVE], dropping=[[*later, "dropped 26 0 1"]])
    assert broken(found) == {}
    (tmp_path / "again").mkdir()
    found = judged(tmp_path / "again", [*FIVE, *ALL_FIVE], dropping=[later])
    assert broken(found) == {"drops": 1} and "missed 1" in found.examples[0]


def test_an_answer_before_its_question_is_found_where_messages_are_dropped_too(tmp_path: Path) -> None:
    asks = ["ask 10 0 1 causal -", "yes 11 0 1", "see 20 0 0 1 causal", "see 33 0 1 1 causal"]
    answers = ["see 21 0 0 1 causal", "ask 30 0 1 causal -", "yes 31 0 1", "see 32 0 1 1 causal"]
    late = ["see 40 0 1 1 causal", "see 41 0 0 1 causal"]
    assert broken(judged(tmp_path, asks, answers, dropping=[late])) == {"causal": 1}
