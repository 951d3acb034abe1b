"""The judge of parts against the judge of small traces, on histories that are right and on ones that were damaged."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.audit.columns import happened_before
from antiphon.audit.columns.happened_before import Followers
from antiphon.audit.columns.histories import DELIVER, PUBLISH, Histories, Rows
from antiphon.audit.columns.incarnations import rows_by_incarnation, spans_in_table
from antiphon.audit.columns.verdict import Judgement, JudgeRules, judge_interval, judge_part, rules_for
from antiphon.audit.findings import KINDS
from antiphon.audit.oracle import judge
from antiphon.audit.verdict import Verdict, judge_trace
from antiphon.kernel.message import CAUSAL, FIFO, publication_key
from antiphon.trace.contract import CUT, FINISHED, TOLD, Contract
from tests.audit.random_traces import Row, as_rows, as_table, damaged, history_with_lives, random_history

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
    judgement = judge_part(as_rows(rows), JudgeRules(CAUSAL, leavers=asks))
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
    whole = judge_part(rows, JudgeRules(CAUSAL))
    shares = [share_of(rows, part, parts) for part in range(parts)]
    columns = {}
    for share in shares:
        followers = Followers(Histories(share, CAUSAL))
        followers.scan()
        columns.update({(topic, source): numbers for topic, source, numbers in followers.columns()})
    together = Judgement()
    for share in shares:
        topics = set(share.topic.tolist())
        known = {name: numbers for name, numbers in columns.items() if name[0] in topics}
        together.add_all(judge_part(share, JudgeRules(CAUSAL), known))
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
    """The running maximum is carried from chunk to chunk and begins anew in each history."""
    rows = as_rows(damaged(random_history(seed, ["causal"]), seed, 3))
    whole = judge_part(rows, JudgeRules(CAUSAL))
    kept = happened_before.ENTRIES_PER_CHUNK
    happened_before.ENTRIES_PER_CHUNK = 3
    try:
        assert judge_part(rows, JudgeRules(CAUSAL)) == whole
    finally:
        happened_before.ENTRIES_PER_CHUNK = kept


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
    found = judge_part(as_rows(rows), JudgeRules(CAUSAL))
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
    assert judge_part(as_rows(rows), JudgeRules(CAUSAL)).counts["causal"] == 1
    assert judge_part(as_rows(rows), JudgeRules(FIFO)).counts["causal"] == 0


def test_nothing_is_wrong_with_nothing() -> None:
    assert judge_part(as_rows([]), JudgeRules(CAUSAL, leavers=True)) == Judgement()


@given(st.integers(0, 1 << 32), st.sampled_from(ORDERS[:5]), st.integers(0, 3), st.integers(2, 5))
def test_causal_order_may_be_judged_by_intervals(
    seed: int, orders: list[str | None], damages: int, intervals: int
) -> None:
    """Each interval is given what came before it since the first row about anything delivered in it."""
    history = asked_earlier(damaged(random_history(seed, orders), seed, damages), seed)
    rows = as_rows([row for row in history if row.topic == 0])
    whole = judge_part(rows, JudgeRules(CAUSAL))
    if whole.counts["validity"] or len(rows) < intervals:
        # Where something is delivered before it is published there is no true order of what happened.
        return
    together = Judgement()
    cuts = [rows.position[len(rows) * number // intervals] for number in range(intervals)]
    for begin, end in pairwise([*cuts, rows.position[-1] + 1]):
        lead, older = lead_of(rows, begin, end)
        inside = (rows.position >= min(lead, begin)) & (rows.position < end)
        together.add_all(judge_interval(rows.taken(inside), JudgeRules(CAUSAL), begin, older))
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


# Nodes that fail and return, and what they say to be lost.


def contract_for(chance: random.Random, remembers: bool) -> Contract:
    """What may be promised where nodes fail."""
    return Contract(
        "any",
        "any",
        nodes=6,
        always=tuple(kind for kind in KINDS if kind != "completeness"),
        at_end=("completeness",),
        remembers=remembers,
        told=chance.choice(TOLD),
        holes_in=chance.choice([None, "total"]),
        leavers=chance.random() < 0.3,
    )


def both_with_lives(rows: list[Row], contract: Contract, stopped: str) -> tuple[Verdict, Judgement]:
    table = as_table(rows)
    spans = spans_in_table(table, contract.remembers)
    judged = judge_part(rows_by_incarnation(table, 0, spans), rules_for(contract, stopped, spans))
    return judge_trace(table, contract, stopped), judged


def starts_in_order(rows: list[Row]) -> bool:
    """Whether every publisher delivers its own in the order of its numbers; otherwise there is no true causality."""
    own = [(row.source, row.sequence or 0) for row in rows if row.event == "deliver" and row.node == row.source]
    numbers: dict[int | None, list[int]] = {}
    for source, number in own:
        numbers.setdefault(source, []).append(number)
    return all(found == sorted(set(found)) for found in numbers.values())


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("stopped", [FINISHED, CUT])
def test_failures_and_losses_that_were_told_are_nobodys_fault(remembers: bool, stopped: str) -> None:
    for seed in range(60):
        rows = history_with_lives(seed, ORDERS[seed % len(ORDERS)], remembers, loses=seed % 2 > 0)
        contract = replace(contract_for(random.Random(seed), remembers), told="always")
        verdict, judgement = both_with_lives(rows, contract, stopped)
        assert not verdict.broken(), (seed, verdict.examples)
        assert not any(judgement.counts.values()), (seed, judgement.examples)


def test_both_judges_find_the_same_where_nodes_fail_and_return() -> None:
    """Hundreds of histories with crashes, returns and losses, as promised and damaged, under every promise."""
    found = dict.fromkeys(KINDS, 0)
    for seed in range(600):
        chance = random.Random(seed)
        remembers = chance.random() < 0.5
        rows = history_with_lives(seed, chance.choice(ORDERS), remembers, chance.random() < 0.6)
        rows = damaged(rows, seed, chance.choice([0, 1, 2]))
        contract, stopped = contract_for(chance, remembers), chance.choice([FINISHED, CUT])
        verdict, judgement = both_with_lives(rows, contract, stopped)
        assert (verdict.publications, verdict.deliveries) == (judgement.publications, judgement.deliveries), seed
        is_exact = verdict.counts["validity"] == 0 and starts_in_order(rows)
        exact = [kind for kind in KINDS if is_exact or kind not in ("causal", "completeness", "validity")]
        assert {kind: judgement.counts[kind] for kind in exact} == {kind: verdict.counts[kind] for kind in exact}, seed
        assert bool(verdict.broken()) == any(judgement.counts.values()), seed
        found = {kind: found[kind] + verdict.counts[kind] for kind in KINDS}
    assert all(found.values()), found


def test_a_loss_excuses_what_it_names_and_nothing_else() -> None:
    """Node 1 says that publication 2 is lost, and lacks 1: as many were told as are missing, and not the same."""
    members = [Row("subscribed", node, 0, node, 0) for node in range(2)]
    published = [Row("deliver", 0, 0, 0, number, "none") for number in (1, 2)]
    contract = replace(contract_for(random.Random(1), False), told="always", leavers=False)
    for named, violations in ((1, 0), (2, 1)):
        told = [Row("lost", 1, 0, 0, named), Row("deliver", 1, 0, 0, 2, "none")]
        verdict, judgement = both_with_lives([*members, *published, *told], contract, FINISHED)
        assert verdict.counts["completeness"] == judgement.counts["completeness"] == violations


def test_what_a_limit_cut_off_is_not_missing_but_what_was_left_out_is() -> None:
    """Node 1 has delivered 3 and not 2, which came before it; 4 was still on its way."""
    rows = [Row("subscribed", node, 0, node, 0) for node in range(2)]
    rows += [Row("deliver", 0, 0, 0, number, "fifo") for number in (1, 2, 3, 4)]
    rows += [Row("deliver", 1, 0, 0, number, "fifo") for number in (1, 3)]
    contract = replace(contract_for(random.Random(1), False), told="never", holes_in=None, leavers=False)
    for stopped, violations in ((CUT, 1), (FINISHED, 2)):
        verdict, judgement = both_with_lives(rows, contract, stopped)
        assert verdict.counts["completeness"] == judgement.counts["completeness"] == violations
