"""``antiphon bench live``: small rounds of real processes."""

from __future__ import annotations

import json

import pytest

import antiphon
from antiphon_lab.bench.live_nodes import measure_nodes
from antiphon_lab.bench.live_stages import measure_stages
from antiphon_lab.bench.peers.registry import OURS
from tests.cli.conftest import Command


def test_a_small_round_of_each_durability_loses_nothing(command: Command) -> None:
    code, printed, _ = command(
        "bench", "live", "--only", "antiphon,antiphon-disk,antiphon-tls", "--workload", "1-to-1", "--payload", "100",
        "--messages", "2000", "--rounds", "1", "--seconds", "5", "--no-latency", "--no-stages", "--json",
    )  # fmt: skip
    assert code == 0
    report = json.loads(printed)
    assert [one["contender"] for one in report["figures"]] == ["antiphon", "antiphon-disk", "antiphon-tls"]
    for one in report["figures"]:
        assert one["throughput"]["lost"] == 0
        assert one["throughput"]["delivered_per_second"] > 0


def test_an_unknown_variant_is_named(command: Command) -> None:
    code, _, complaint = command("bench", "live", "--only", "antiphon-paper")
    assert code == 2
    assert "there is no variant named 'antiphon-paper'" in complaint
    assert all(name in complaint for name in OURS)


@pytest.mark.parametrize("payload_bytes", [100])
def test_every_stage_costs_something(payload_bytes: int) -> None:
    stages = measure_stages(payload_bytes)
    assert len(stages) == len({stage.name for stage in stages})
    assert all(0 < stage.microseconds_per_message < 100_000 for stage in stages)


def test_nodes_in_several_processes_know_of_a_failure() -> None:
    costs = antiphon.run(measure_nodes(4, 2, lost_seconds=0.5, idle_seconds=0.5))
    assert (costs.nodes, costs.processes) == (4, 2)
    assert costs.descriptors >= 3 and costs.memory_kib > 0 and costs.idle_cpu_ms_per_second >= 0
    assert 0 < costs.killed_known_seconds < 60
    assert 0.5 * 0.625 <= costs.stopped_known_seconds < 60
