"""Metrics agree with what the simulator counts itself, and their page says what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from antiphon.cli.metrics import measurable, measure
from antiphon.fabrics.cube import FullCube
from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Traffic
from antiphon.kernel.errors import UsageError
from antiphon.pipeline.metrics import METRICS, as_document, metric_named
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.trace.store import TraceWriter, read_trace
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.reproduction.metrics import (
    QUANTITIES,
    delivery_delays,
    hops,
    publication_rows,
    queue_lengths,
    tree_sends,
)

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

COMING_AND_GOING = {
    "protocol": "vcube-ps",
    "order": "causal",
    "nodes": 24,
    "network": {"delay": {"law": "normal", "mean": 100, "deviation": 30}},
    "topics": {"count": 2, "members": ["0-15", "8-19"]},
    "workload": {"kind": "rate", "mean_gap": 60, "until": 8000, "topic": "any", "payload_bytes": 10},
    "subscribe": [{"at": 2000, "nodes": "20-23", "topic": 0}],
    "unsubscribe": [{"at": 4000, "nodes": "0-7", "topic": 0}],
    "trace": {"level": "everything"},
}
LOSING: dict[str, Any] = {
    "protocol": "broadcast",
    "order": "fifo",
    "nodes": 16,
    "network": {
        "delay": {"law": "normal", "mean": 100, "deviation": 30},
        "loss": 0.05,
        "duplication": 0.1,
        "transmission": 3,
    },
    "workload": {"kind": "rate", "mean_gap": 20, "count": 200, "payload_bytes": 7},
    "trace": {"level": "everything"},
}

Tables = dict[str, list[dict[str, Any]]]


def run_and_measure(spark: SparkSession, scenario: dict[str, Any], path: Path) -> tuple[Result, Tables]:
    result = run_scenario(msgspec.convert(scenario, Scenario), path)
    found = measure(spark, [path], list(METRICS.values()))
    return result, {each.name: each.rows for each in found}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [COMING_AND_GOING, LOSING], ids=["coming-and-going", "losing"])
def test_metrics_are_what_the_simulator_counts(spark: SparkSession, scenario: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    result, found = run_and_measure(spark, scenario, path)
    totals = found["totals"][0]
    assert (totals["published"], totals["deliveries"]) == (result.published, result.deliveries)
    assert (totals["sent"], totals["dropped"]) == (result.sent, result.dropped)
    latency = found["delivery-latency"][0]
    assert latency["mean"] == pytest.approx(result.latency_mean)
    assert latency["maximum"] == result.latency_max
    assert found["false-positives"][0]["unwanted"] == result.refused
    assert sum(row["sent"] for row in found["messages-by-kind"]) == result.sent
    assert sum(row["dropped"] for row in found["losses"]) == result.dropped
    for name in ("throughput", "node-load", "topic-load"):
        assert sum(row["published"] for row in found[name]) == result.published, name
        assert sum(row["deliveries"] for row in found[name]) == result.deliveries, name
    assert len(found["throughput"]) <= 100
    assert sum(row["deliveries"] for row in found["delivery-latency-distribution"]) == latency["count"]
    check_against_rows(path, found, scenario)


def check_against_rows(path: Path, found: Tables, scenario: dict[str, Any]) -> None:
    """The same figures, counted in another way."""
    rows = read_trace(path).to_pylist()
    waits = np.sort([r["value"] for r in rows if r["event"] == "deliver" and r["node"] != r["source"]])
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found["delivery-latency"][0][name] == waits[int(np.ceil(share * len(waits))) - 1], name
    carriers = {r["message"] for r in rows if r["event"] == "deliver"} | {"LeafCopy"}
    received = [r for r in rows if r["event"] == "receive" and r["message"] in carriers]
    first: dict[tuple[int, int, int, int], int] = {}
    for row in received:
        first.setdefault((row["topic"], row["source"], row["sequence"], row["node"]), row["time"])
    assert found["duplicates"][0]["received"] == len(received)
    assert found["duplicates"][0]["duplicates"] == len(received) - len(first)
    asked = {(r["topic"], r["source"], r["sequence"]): r["time"] for r in rows if r["event"] == "publish"}
    away = [
        time - asked[topic, source, number] for (topic, source, number, node), time in first.items() if source != node
    ]
    assert found["reception-latency"][0]["mean"] == pytest.approx(np.mean(away))
    assert found["reception-latency"][0]["count"] == len(away)
    sent = [r for r in rows if r["event"] == "send"]
    carried = sum(r["message"] in carriers for r in sent)
    # Who refuses a copy sends it back, payload and all.
    payload = sum(row["payload_bytes"] for row in found["bytes-by-kind"] if row["message"] in carriers)
    assert payload == carried * scenario["workload"]["payload_bytes"]
    assert sum(row["packets"] for row in found["aggregation"]) == carried
    assert sum(row["receptions"] for row in found["reception-latency-distribution"]) == len(away)
    assert found["output-queue"][0]["maximum"] == max(r["value"] for r in sent)


@pytest.mark.slow
def test_experiments_and_the_pipeline_measure_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Experiments measure in memory what the pipeline measures on Spark."""
    path = tmp_path / "run.parquet"
    scenario = {**LOSING, "network": {**LOSING["network"], "loss": 0.0, "duplication": 0.0}}
    run_scenario(msgspec.convert(scenario, Scenario), path)
    names = ("queue-length", "delivery-wait", "hops")
    found = {each.name: each.rows[0] for each in measure(spark, [path], [metric_named(name) for name in names])}
    trace = read_trace(path).unify_dictionaries()
    receptions = publication_rows(trace, "receive")
    keys = sorted(set(zip(receptions["source"].to_pylist(), receptions["sequence"].to_pylist(), strict=True)))
    ways = []
    for source, sequence in keys:
        one = pc.and_(pc.equal(receptions["source"], source), pc.equal(receptions["sequence"], sequence))
        taken = hops(receptions.filter(one), 16)
        ways.append(taken[taken > 0])
    here = {
        "queue-length": queue_lengths(tree_sends(trace, None))[1],
        "delivery-wait": delivery_delays(trace),
        "hops": np.concatenate(ways),
    }
    assert here.keys() == QUANTITIES.keys()
    for name, values in here.items():
        assert found[name]["count"] == len(values) > 1000, name
        assert found[name]["mean"] == pytest.approx(values.mean()), name
        assert found[name]["maximum"] == values.max() > 1, name


@pytest.mark.slow
def test_bytes_are_those_that_the_protocols_with_packets_count(spark: SparkSession, tmp_path: Path) -> None:
    """Section 4.5 of the thesis: a header, and for each publication its source, its entries and its payload."""
    traffic = Traffic(8)
    cube = FullCube(3)
    path = tmp_path / "packets.parquet"
    with TraceWriter(path, "everything", {}) as writer:
        engine = Engine(
            8,
            NetworkModel(NormalDelay(100, 30), transmission=10),
            lambda environment: PacketBroadcast(environment, cube, PacketFormat(), traffic),
            recorder=writer.recorder,
        )
        for number in range(200):
            engine.at(number * 7, PublishAction(number % 8, b"why?" * (number % 5)))
        assert engine.run() == "finished"
    found = measure(spark, [path], [metric_named("bytes-by-kind"), metric_named("aggregation")])
    assert sum(row["bytes"] for row in found[0].rows) == traffic.bytes_sent > 0
    assert {row["held"]: row["packets"] for row in found[1].rows} == {
        held: count for held, count in enumerate(traffic.by_publications) if count
    }


def test_the_page_about_metrics_is_made_of_their_definitions() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_document(), "write it again: see docs/metrics.md"


def test_a_metric_that_a_trace_cannot_feed_is_refused_if_it_was_asked_for() -> None:
    chosen = [metric_named("totals"), metric_named("duplicates")]
    assert [each.name for each in measurable(chosen, False, False)] == ["totals"]
    assert measurable(chosen, True, True) == chosen
    with pytest.raises(UsageError, match="duplicates needs a trace of level everything"):
        measurable(chosen, False, True)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no metric 'speed'; choose among totals, "):
        metric_named("speed")
