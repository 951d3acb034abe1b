"""Metrics agree with what the simulator counts itself, and their page says what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pyspark.sql import SparkSession

from antiphon.cli.metrics import measurable, measure
from antiphon.kernel.errors import UsageError
from antiphon.pipeline.metrics import METRICS, as_document, metric_named
from antiphon.simulator.run import Result, run_scenario
from antiphon.simulator.scenario import Scenario
from antiphon.trace.store import read_trace

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
LOSING = {
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
    assert sum(row["bytes"] for row in found["payload-bytes"]) == carried * scenario["workload"]["payload_bytes"]
    assert found["output-queue"][0]["maximum"] == max(r["value"] for r in sent)


def test_the_page_about_metrics_is_made_of_their_definitions() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_document(), "write it again: see docs/metrics.md"


def test_every_metric_says_what_it_means() -> None:
    for each in METRICS.values():
        assert len(each.definition.split()) > 10, each.name
        assert each.unit


def test_a_metric_that_a_trace_cannot_feed_is_refused_if_it_was_asked_for() -> None:
    chosen = [metric_named("totals"), metric_named("duplicates")]
    assert [each.name for each in measurable(chosen, False, False)] == ["totals"]
    assert measurable(chosen, True, True) == chosen
    with pytest.raises(UsageError, match="duplicates needs a trace of level everything"):
        measurable(chosen, False, True)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no metric 'speed'; choose among totals, "):
        metric_named("speed")
