"""Figure 5.9: who answers when, what an answer names, and what is said where numbers cannot all be met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon_lab.experiments.vcube.discussion import (
    CLASSES,
    DELAYED,
    DELAYS_FIT,
    FIG_5_9,
    LONGEST_WAITS,
    SIZES_FIT,
    Answering,
    Discussion,
    Talk,
    cases,
    compare,
    measure,
)
from antiphon_lab.experiments.vcube.one_topic import (
    HOP_TICKS,
    PUBLISHED,
    REPAIRED,
    TopicRun,
    as_published,
    as_repaired,
    draw_group,
)
from antiphon_lab.reproduction.experiment import Note, Plan, Results, Row
from antiphon_lab.reproduction.metrics import delivery_delays


def discuss(nodes: int, starters: list[int], longest_wait: int, prunes: bool = True) -> tuple[TopicRun, Answering]:
    group = draw_group(nodes, nodes, 1)
    answering = Answering(starters, longest_wait, 1)
    build = as_published(group, {"prunes_barriers": prunes})
    run = TopicRun(group, build, 1, charged=False, application=answering)
    for starter in starters:
        run.engine.at(0, PublishAction(starter))
    run.finish()
    return run, answering


@pytest.mark.parametrize("starters", [[3], [0, 5, 9]])
@pytest.mark.parametrize("longest_wait", [0, 40])
def test_everybody_answers_once_within_the_wait_after_the_last_starter(starters: list[int], longest_wait: int) -> None:
    run, answering = discuss(16, starters, longest_wait)
    rows = run.trace.table().to_pylist()
    published = {row["node"]: row["time"] for row in rows if row["event"] == "publish"}
    assert sorted(published) == list(range(16))
    assert len(answering.sizes) == 16
    for node in range(16):
        if node in starters:
            assert published[node] == 0
            continue
        heard = max(
            row["time"]
            for row in rows
            if row["event"] == "deliver" and row["node"] == node and row["source"] in starters
        )
        assert heard <= published[node] <= heard + longest_wait


def test_a_barrier_that_is_not_pruned_names_all_that_was_delivered_before() -> None:
    run, answering = discuss(32, [3], 60, prunes=False)
    delivered = dict.fromkeys(range(32), 0)
    expected = []
    for row in run.trace.table().to_pylist():
        if row["event"] == "deliver":
            if row["node"] == row["source"]:
                expected.append(delivered[row["node"]])
            delivered[row["node"]] += 1
    assert answering.sizes == expected
    assert max(expected) > 5


def test_pruning_makes_barriers_smaller_and_changes_no_delivery() -> None:
    (pruned, small), (full, large) = (discuss(64, [3], 60, prunes) for prunes in (True, False))
    assert np.array_equal(delivery_delays(pruned.trace.table()), delivery_delays(full.trace.table()))
    assert all(one <= other for one, other in zip(small.sizes, large.sizes, strict=True))
    assert sum(small.sizes) < sum(large.sizes)


def test_who_answers_at_once_names_only_the_starter() -> None:
    """Without waits no answer can overtake the question, and with constant delays none arrives before it."""
    talk = measure(Discussion(PUBLISHED, 64, 1, 0), 1)
    assert talk.exact == pytest.approx(100 * 63 / 64)
    assert (talk.mean_size, talk.at_once, talk.longest_delay) == (63 / 64, 100, 0)


@pytest.mark.parametrize("system", [PUBLISHED, REPAIRED])
def test_shares_are_shares_and_nothing_is_violated(system: str) -> None:
    talk = measure(Discussion(system, 64, 10, 50), 1)
    assert 0 < talk.exact < talk.below <= 100
    assert talk.fewer >= 100 * 10 / 64
    assert 0 < talk.at_once <= talk.soon <= 100
    assert talk.largest_size >= talk.mean_size > 0
    assert talk.violations == 0


def test_delays_are_the_time_between_reception_and_delivery() -> None:
    run, _ = discuss(64, [3], 60)
    delays = delivery_delays(run.trace.table())
    rows = run.trace.table().to_pylist()
    received = {
        (row["node"], row["source"]): row["time"]
        for row in rows
        if row["event"] == "receive" and row["message"] == "Pub"
    }
    waits = [
        row["time"] - received[row["node"], row["source"]]
        for row in rows
        if row["event"] == "deliver" and row["node"] != row["source"]
    ]
    assert sorted(waits) == sorted(delays)
    assert len(waits) == 64 * 63
    assert max(waits) > 0
    assert max(waits) < 2 * HOP_TICKS


def test_delays_are_not_defined_for_bundles() -> None:
    group = draw_group(16, 16, 1)
    run = TopicRun(group, as_repaired(group), 1, charged=True)
    for _ in range(100):
        run.engine.at(0, PublishAction(group.publisher))
    run.finish()
    with pytest.raises(UsageError, match="without churn, relays or bundles"):
        delivery_delays(run.trace.table())


def test_starters_are_different_nodes_and_the_same_for_all_waits() -> None:
    drawn = [draw_nodes(10, 64, RandomStream(seed, 103)) for seed in range(5)]
    assert all(len(set(starters)) == 10 for starters in drawn)
    assert len({tuple(starters) for starters in drawn}) == 5


# What is compared.

PLAN = Plan((256,), repetitions=3, large_repetitions=3)


def talk_of(*, exact: float, below: float, at_once: float, late: float, longest: float) -> Talk:
    return Talk(
        fewer=5,
        exact=exact,
        below=below,
        mean_size=5,
        largest_size=40,
        at_once=at_once,
        soon=95.1,
        late=late,
        longest_delay=longest,
        violations=0,
        size_classes=(0.0,) * CLASSES,
        delay_classes=(0.0,) * len(DELAYED),
    )


PUBLISHED_TALKS = {
    1: talk_of(exact=19.9, below=51.6, at_once=87.2, late=81, longest=150),
    10: talk_of(exact=35.2, below=79.7, at_once=84.2, late=457, longest=187),
}


def verdicts(found: dict[Discussion, Talk]) -> dict[str, str | None]:
    results: Results[Discussion, Talk] = Results()
    for case in cases(PLAN):
        for _ in range(3):
            results.add(case, found[case])
    return {row.label: row.verdict for row in compare(PLAN, results) if isinstance(row, Row) and row.published}


def test_numbers_as_published_are_reproduced() -> None:
    found = verdicts({case: PUBLISHED_TALKS[case.starters] for case in cases(PLAN)})
    assert len(found) == 12
    assert set(found.values()) == {"fitted", "derived"}


def test_a_number_that_no_wait_gives_differs() -> None:
    wrong = {
        case: replace(PUBLISHED_TALKS[case.starters], at_once=50.0)
        if case.longest_wait == DELAYS_FIT[1]
        else PUBLISHED_TALKS[case.starters]
        for case in cases(PLAN)
    }
    label = f"p = 1, wait {DELAYS_FIT[1]}, pruned: delivered at once"
    assert verdicts(wrong)[label] == "differs"
    everywhere = {case: replace(PUBLISHED_TALKS[case.starters], at_once=50.0) for case in cases(PLAN)}
    assert verdicts(everywhere)[label] == "differs"


def test_the_readings_are_among_what_is_simulated() -> None:
    assert {wait for wait, _ in SIZES_FIT.values()} | set(DELAYS_FIT.values()) <= set(LONGEST_WAITS)


@pytest.mark.parametrize("nodes", [8, 32])
def test_other_sizes_are_not_compared(nodes: int) -> None:
    report = FIG_5_9.run(FIG_5_9.plan(False, nodes, 1), 1, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, "derived"}
    assert report.notes[0] == f"Published for 256 nodes; nothing is compared at {nodes}."
    assert {case.starters for case in cases(FIG_5_9.plan(False, nodes, 1))} == ({1} if nodes == 8 else {1, 10})


def test_the_notes_say_what_was_tried_and_what_is_believed() -> None:
    results: Results[Discussion, Talk] = Results()
    for case in cases(PLAN):
        results.add(case, PUBLISHED_TALKS[case.starters])
    notes = [finding.text for finding in compare(PLAN, results) if isinstance(finding, Note)]
    assert any("Tried: uniform" in note for note in notes)
    assert any("those of the fault" in note for note in notes)
