"""Figures 5.6 and 5.7: who gets a copy, over which way, and what the text says about it."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest

from antiphon_lab.experiments.vcube.member_shares import FIG_5_7A, FIG_5_7B
from antiphon_lab.experiments.vcube.one_publisher import (
    FIG_5_6A,
    FIG_5_6B,
    OnePublication,
    Reach,
    compare_copies,
    compare_latency,
    measure,
    member_count,
    tree_size,
)
from antiphon_lab.experiments.vcube.one_topic import HOP_TICKS, ONE_ROOT, PUBLISHED, REPAIRED, Group, draw_group
from antiphon_lab.reproduction.experiment import Plan, Results, Row

SHARES = [(8, 25), (8, 100), (64, 25), (128, 70)]


def path_to_root(node: int, root: int) -> list[int]:
    """The way from a node up to the root of a full cube, without the root: clear the lowest differing bit."""
    path = []
    while node != root:
        path.append(node)
        node ^= (node ^ root) & -(node ^ root)
    return path


def tree_of(group: Group) -> set[int]:
    """Who is below the root in the tree that reaches all members."""
    return {node for member in group.members for node in path_to_root(member, group.root)}


@pytest.mark.parametrize(("nodes", "percent"), SHARES)
@pytest.mark.parametrize("system", [PUBLISHED, REPAIRED])
def test_a_tree_of_members_needs_one_copy_per_other_member(system: str, nodes: int, percent: int) -> None:
    for seed in range(5):
        reach = measure(OnePublication(system, nodes, percent), seed)
        assert (reach.copies, reach.relays, reach.violations) == (nodes * percent // 100 - 1, 0, 0)


@pytest.mark.parametrize(("nodes", "percent"), SHARES)
def test_a_single_root_needs_the_paths_to_all_members_and_one_hop_to_it(nodes: int, percent: int) -> None:
    case = OnePublication(ONE_ROOT, nodes, percent)
    for seed in range(5):
        group = draw_group(nodes, member_count(case), seed)
        reach = measure(case, seed)
        first_hop = int(group.publisher != group.root)
        assert reach.copies == len(tree_of(group)) + first_hop
        # Where the publisher is not the root but the root is no member, the root is a relay too.
        assert reach.relays == len((tree_of(group) | {group.root}) - set(group.members))
        others = [member for member in group.members if member != group.publisher]
        lengths = [len(path_to_root(member, group.root)) + first_hop for member in others]
        assert reach.hops == pytest.approx(sum(lengths) / len(lengths))


@pytest.mark.parametrize("nodes", [16, 256])
def test_where_all_are_members_a_single_root_costs_the_hop_to_it(nodes: int) -> None:
    """What the publisher itself does not wait for is shared by all others."""
    for seed in range(5):
        one, many = (measure(OnePublication(system, nodes, 100), seed) for system in (ONE_ROOT, PUBLISHED))
        group = draw_group(nodes, nodes, seed)
        if group.publisher == group.root:
            assert one.latency == many.latency
        else:
            assert one.latency - many.latency >= HOP_TICKS - longest_path(nodes) / (nodes - 1)
            assert one.latency - many.latency < HOP_TICKS


def longest_path(nodes: int) -> float:
    """The most that one node can wait: it is last in the queue of each of its ancestors."""
    dimension = nodes.bit_length() - 1
    return dimension * HOP_TICKS + dimension * dimension


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
def test_the_size_of_a_tree_is_what_counting_all_sets_of_members_gives(nodes: int, share: float) -> None:
    expected = 0.0
    for count in range(nodes + 1):
        weight = share**count * (1 - share) ** (nodes - count)
        for members in combinations(range(nodes), count):
            expected += weight * len(tree_of(Group(nodes, members, 0, 0)))
    assert tree_size(nodes, share) == pytest.approx(expected)


def test_the_groups_of_all_systems_are_the_same_and_those_of_other_seeds_are_not() -> None:
    groups = [draw_group(64, 16, seed) for seed in range(20)]
    assert groups == [draw_group(64, 16, seed) for seed in range(20)]
    assert len({group.members for group in groups}) == 20
    assert len({group.publisher for group in groups}) > 10
    assert all(group.publisher in group.members and len(set(group.members)) == 16 for group in groups)
    assert any(group.root not in group.members for group in groups)
    assert sorted([*groups[0].members, *groups[0].outsiders]) == list(range(64))


def test_there_is_always_somebody_to_publish_to() -> None:
    assert member_count(OnePublication(PUBLISHED, 8, 10)) == 2
    assert member_count(OnePublication(PUBLISHED, 4096, 30)) == 1228


# What is compared.


def test_figure_5_6_at_1024_nodes() -> None:
    plan = Plan((1024,), repetitions=3, large_repetitions=3)
    report = FIG_5_6A.run(plan, 1, lambda _: None)
    compared = {row.label: row.verdict for row in report.rows if row.published is not None}
    assert list(compared.values()) == [*["reproduced"] * 5, "derived"]
    assert "latency, VCube-PS, 1024 nodes, 25 % members" in compared
    report = FIG_5_6B.run(plan, 1, lambda _: None)
    verdicts = [(row.label, row.verdict) for row in report.rows if row.published is not None]
    assert verdicts[0] == ("VCube-PS below SRPT, 1024 nodes", "reproduced")
    assert [verdict for _, verdict in verdicts[1:]] == ["derived", "derived"]
    assert "and so not compared: 8, 4096 nodes." in report.notes[0]


@pytest.mark.campaign
def test_figure_5_7_at_its_own_size() -> None:
    plan = Plan((4096,), repetitions=3, large_repetitions=3)
    report = FIG_5_7A.run(plan, 1, lambda _: None)
    assert [row.verdict for row in report.rows if row.published is not None] == [*["reproduced"] * 4, "derived"]
    assert report.rows[0].measured.mean == pytest.approx(36, abs=3)


def test_figure_5_7_at_another_size_compares_nothing() -> None:
    for experiment in (FIG_5_7A, FIG_5_7B):
        report = experiment.run(experiment.plan(False, 64, 1), 1, lambda _: None)
        assert {row.verdict for row in report.rows} == {None, "derived"}
        assert any("8192" in note for note in report.notes)


def results_with(latency: dict[str, float], copies: dict[str, int], nodes: int) -> Results[OnePublication, Reach]:
    """Results in which every repetition measured the same."""
    results: Results[OnePublication, Reach] = Results()
    for case in FIG_5_6A.cases(Plan((nodes,), 3, 3)):
        for _ in range(3):
            results.add(case, Reach(latency[case.system], copies[case.system], 0, 6.0, 0))
    return results


def test_verdicts_follow_the_numbers() -> None:
    plan = Plan((1024,), repetitions=3, large_repetitions=3)
    good = results_with(
        {PUBLISHED: 425, REPAIRED: 420, ONE_ROOT: 620}, {PUBLISHED: 255, REPAIRED: 255, ONE_ROOT: 449}, 1024
    )
    rows = [*compare_latency(plan, good), *compare_copies(plan, good)]
    assert {row.verdict for row in rows if isinstance(row, Row) and row.published} == {"reproduced", "derived"}
    bad = results_with(
        {PUBLISHED: 500, REPAIRED: 420, ONE_ROOT: 500}, {PUBLISHED: 255, REPAIRED: 255, ONE_ROOT: 400}, 1024
    )
    rows = [*compare_latency(plan, bad), *compare_copies(plan, bad)]
    assert {row.verdict for row in rows if isinstance(row, Row) and row.published} == {"differs", "derived"}


def test_latency_follows_the_logarithm_of_the_members() -> None:
    """Thesis, section 5.6.2: proportional to log2 N. Doubling the nodes adds half a hop and a little queueing."""
    means = [measure(OnePublication(PUBLISHED, nodes, 100), 1).latency for nodes in (64, 128, 256, 512)]
    steps = [later - earlier for earlier, later in pairwise(means)]
    assert all(HOP_TICKS / 2 - 1 <= step <= HOP_TICKS / 2 + math.log2(512) for step in steps)
