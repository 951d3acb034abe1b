"""Campaigns over whole nodes: what is drawn, counted, shrunk, written and replayed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.kernel.errors import ScenarioError, UsageError
from antiphon.simulator.cluster.file import is_cluster_file, load_schedule
from antiphon.simulator.cluster.world import ClusterSchedule, Step
from antiphon.torture import clusters
from antiphon.torture.campaign import check_campaign, run_campaign
from antiphon.torture.clusters import ClusterShrinker, draw_cluster, draws_cluster, write_cluster_failure
from antiphon.torture.schedules.every_fabric import ALL
from antiphon.torture.tally import MEMBERSHIP, Outcome


def test_a_campaign_counts_schedules_of_every_fabric() -> None:
    tally = run_campaign(1, 12, fabric=MEMBERSHIP)
    assert tally.failing == [] and tally.fabrics[MEMBERSHIP].seeds == 12
    assert {draw_cluster(seed).fabric for seed in range(1, 13)} == {"cube", "tree", "gossip"}
    assert tally.deliveries > 0 and tally.faults["crash"] > 0


def test_a_campaign_over_everything_draws_some() -> None:
    drawn = sum(draws_cluster(seed, None, ALL) for seed in range(400))
    assert 30 < drawn < 70
    assert not any(draws_cluster(seed, "causal", ALL) or draws_cluster(seed, None, "tree") for seed in range(100))
    with pytest.raises(UsageError, match="no order"):
        check_campaign(MEMBERSHIP, "causal")


def test_a_failing_schedule_shrinks_to_a_file_that_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted judge finds fault with every schedule in which node 1 is wiped."""

    def judged(schedule: ClusterSchedule) -> Outcome:
        is_wiped = any(step.kind == "wipe" and step.node == 1 for step in schedule.steps)
        return Outcome(seed=schedule.seed, fabric=MEMBERSHIP, violations={"identity": 1} if is_wiped else {})

    monkeypatch.setattr(clusters, "run_cluster", judged)
    wipe = Step(at_us=9_000_000, kind="wipe", node=1, lasts_us=1)
    drawn = draw_cluster(3)
    large = msgspec.structs.replace(drawn, nodes=6, steps=[*drawn.steps, wipe], founds_again=False)
    small = ClusterShrinker(large, "identity").shrink()
    assert small.steps == [Step(at_us=0, kind="start"), wipe] and small.nodes == 2 and small.with_disk == []
    path = write_cluster_failure(judged(large), "identity", small, tmp_path, "shrunk")
    assert is_cluster_file(path) and load_schedule(path) == small


def test_a_file_with_a_node_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        'cluster = true\nseed = 1\nfabric = "cube"\nnodes = 2\n[[steps]]\nat_us = 0\nkind = "start"\nnode = 2\n'
    )
    with pytest.raises(ScenarioError, match="only 2 nodes"):
        load_schedule(path)
