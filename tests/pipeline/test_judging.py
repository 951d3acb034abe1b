"""The judge of parts against the judge of small traces, on histories that are right and on ones that were damaged."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.kernel.message import CAUSAL, FIFO, publication_key
from antiphon.pipeline import following
from antiphon.pipeline.following import Followers
from antiphon.pipeline.judging import Judgement, Rules, judge_interval, judge_part
from antiphon.pipeline.lanes import DELIVER, PUBLISH, Lanes, Rows
from antiphon.trace.oracle import KINDS, judge
from tests.pipeline.random_traces import Row, as_rows, as_table, damaged, random_history

ORDERS: list[list[str | None]] = [
    ["causal"],
    ["causal", None],
    ["fifo", "causal"],
    ["none", "causal"],
    ["none", "fifo", "causal"],
    ["fifo"],
    ["none"],
    ["total", "fifo"],
    ["none", "fifo", "causal", "total"],
]


def both(rows: list[Row], asks: bool) -> tuple[dict[str, int], Judgement]:
    """What both judges find; they must agree on how much there was to judge."""
    findings = judge(as_table(rows), 6, leavers=asks)
    judgement = judge_part(as_rows(rows), Rules(CAUSAL, leavers=asks))
    assert (judgement.deliveries, judgement.publications) == (findings.deliveries, findings.publications)
    assert judgement.examples.keys() == {kind for kind in KINDS if judgement.counts[kind]}
    return findings.counts, judgement


@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_what_is_right_is_found_to_be_right(orders: list[str | None]) -> None:
    for seed in range(60):
        rows = random_history(seed, orders, says_so=seed % 3 > 0, asks=seed % 2 > 0)
        counts, judgement = both(rows, seed % 2 > 0)
        assert not any(counts.values())
        assert not any(judgement.counts.values()), judgement.examples


@given(st.integers(0, 1 << 32), st.sampled_from(ORDERS), st.booleans(), st.booleans(), st.integers(1, 5))
def test_both_judges_find_the_same_in_damaged_histories(
    seed: int, orders: list[str | None], says_so: bool, asks: bool, damages: int
) -> None:
    rows = damaged(random_history(seed, orders, says_so, asks), seed, damages)
    counts, judgement = both(rows, asks)
    assert any(counts.values()) == any(judgement.counts.values())
    # Where something was delivered before it was published there is no true order of what happened, and the two may
    # differ in how much they blame on causality.
    exact = [kind for kind in KINDS if kind != "causal" or counts["validity"] == 0]
    assert {kind: judgement.counts[kind] for kind in exact} == {kind: counts[kind] for kind in exact}


def test_many_damaged_histories_with_every_kind_of_violation() -> None:
    found = dict.fromkeys(KINDS, 0)
    for seed in range(400):
        rows = damaged(random_history(seed, ORDERS[seed % 5], asks=seed % 2 > 0), seed, 1)
        counts, judgement = both(rows, seed % 2 > 0)
        found = {kind: found[kind] + counts[kind] for kind in KINDS}
        if counts["validity"] == 0:
            assert judgement.counts == counts, seed
    assert all(found.values()), found


@given(st.integers(0, 1 << 32), st.sampled_from(ORDERS[:5]), st.integers(0, 3), st.integers(2, 3))
def test_a_topic_may_be_judged_in_parts(seed: int, orders: list[str | None], damages: int, parts: int) -> None:
    """Each part knows all that was published, and what the others learnt about who follows whom."""
    rows = as_rows(damaged(random_history(seed, orders), seed, damages))
    whole = judge_part(rows, Rules(CAUSAL))
    shares = [share_of(rows, part, parts) for part in range(parts)]
    columns = {}
    for share in shares:
        followers = Followers(Lanes(share, CAUSAL))
        followers.look()
        columns.update({(topic, source): numbers for topic, source, numbers in followers.columns()})
    together = Judgement()
    for share in shares:
        topics = set(share.topic.tolist())
        known = {name: numbers for name, numbers in columns.items() if name[0] in topics}
        together.add_all(judge_part(share, Rules(CAUSAL), known))
    assert together.counts == whole.counts
    assert together.examples == whole.examples
    assert (together.deliveries, together.publications) == (whole.deliveries, whole.publications)


def share_of(rows: Rows, part: int, parts: int) -> Rows:
    """The rows of some nodes, and what all others published."""
    judged = rows.node % parts == part
    context = (rows.event == PUBLISH) | ((rows.event == DELIVER) & (rows.node == rows.source))
    kept = np.flatnonzero(judged | context)
    share = rows.taken(kept)
    return replace(share, judged=judged[kept])


@example(seed=7)
@given(st.integers(0, 1 << 32))
def test_small_chunks_find_the_same(seed: int) -> None:
    """The running maximum is carried from chunk to chunk and begins anew in each lane."""
    rows = as_rows(damaged(random_history(seed, ["causal"]), seed, 3))
    whole = judge_part(rows, Rules(CAUSAL))
    kept = following.ENTRIES_PER_CHUNK
    following.ENTRIES_PER_CHUNK = 3
    try:
        assert judge_part(rows, Rules(CAUSAL)) == whole
    finally:
        following.ENTRIES_PER_CHUNK = kept


def test_the_example_names_what_was_delivered_too_early() -> None:
    rows = [
        *(Row("subscribed", node, 0, node, 0) for node in range(3)),
        Row("deliver", 0, 0, 0, 1, "causal"),
        Row("deliver", 1, 0, 0, 1, "causal"),
        Row("deliver", 1, 0, 1, 1, "causal"),
        Row("deliver", 2, 0, 1, 1, "causal"),
        Row("deliver", 2, 0, 0, 1, "causal"),
        Row("deliver", 0, 0, 1, 1, "causal"),
    ]
    found = judge_part(as_rows(rows), Rules(CAUSAL))
    assert found.counts == {**dict.fromkeys(KINDS, 0), "causal": 1}
    wrong = found.examples["causal"]
    assert (wrong.node, wrong.source, wrong.sequence) == (2, 0, 1)
    assert (wrong.witness_source, wrong.witness_sequence) == (1, 1)


def test_the_default_is_for_those_that_name_no_order() -> None:
    rows = [
        *(Row("subscribed", node, 0, node, 0) for node in range(3)),
        Row("deliver", 0, 0, 0, 1),
        Row("deliver", 1, 0, 0, 1),
        Row("deliver", 1, 0, 1, 1),
        Row("deliver", 2, 0, 1, 1),
        Row("deliver", 2, 0, 0, 1),
        Row("deliver", 0, 0, 1, 1),
    ]
    assert judge_part(as_rows(rows), Rules(CAUSAL)).counts["causal"] == 1
    assert judge_part(as_rows(rows), Rules(FIFO)).counts["causal"] == 0


def test_nothing_is_wrong_with_nothing() -> None:
    assert judge_part(as_rows([]), Rules(CAUSAL, leavers=True)) == Judgement()


@given(st.integers(0, 1 << 32), st.sampled_from(ORDERS[:5]), st.integers(0, 3), st.integers(2, 5))
def test_causal_order_may_be_judged_by_intervals(
    seed: int, orders: list[str | None], damages: int, intervals: int
) -> None:
    """Each interval is given what came before it since the first row about anything delivered in it."""
    history = asked_earlier(damaged(random_history(seed, orders), seed, damages), seed)
    rows = as_rows([row for row in history if row.topic == 0])
    whole = judge_part(rows, Rules(CAUSAL))
    if whole.counts["validity"] or len(rows) < intervals:
        # Where something is delivered before it is published there is no true order of what happened.
        return
    together = Judgement()
    cuts = [rows.position[len(rows) * number // intervals] for number in range(intervals)]
    for begin, end in pairwise([*cuts, rows.position[-1] + 1]):
        lead, older = lead_of(rows, begin, end)
        inside = (rows.position >= min(lead, begin)) & (rows.position < end)
        together.add_all(judge_interval(rows.taken(inside), Rules(CAUSAL), begin, older))
    assert together.counts["causal"] == whole.counts["causal"]
    assert together.examples.get("causal") == whole.examples.get("causal")


def asked_earlier(rows: list[Row], seed: int) -> list[Row]:
    """The same with some publications asked for long before they start, as where publishers have to wait."""
    chance = random.Random(seed)
    moved = list(rows)
    for place, row in enumerate(rows):
        if row.event == "publish" and chance.random() < 0.3:
            moved.insert(chance.randint(0, place), moved.pop(place))
    return moved


def lead_of(rows: Rows, begin: int, end: int) -> tuple[int, list[int]]:
    """The first row about something that is delivered in an interval, or about a later one of the same source.

    With it, the publications that somebody had delivered before that row.
    """
    is_delivery = rows.event == DELIVER
    about = (rows.event == PUBLISH) | is_delivery
    inside = np.flatnonzero(is_delivery & (rows.position >= begin) & (rows.position < end))
    leads = [
        rows.position[about & (rows.source == rows.source[place]) & (rows.sequence >= rows.sequence[place])].min()
        for place in inside
    ]
    lead = int(min(leads, default=begin))
    before = is_delivery & (rows.position < lead)
    return lead, [publication_key(*name) for name in zip(rows.source[before], rows.sequence[before], strict=True)]
