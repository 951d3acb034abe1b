"""``antiphon metrics`` of live nodes: topics have their names, and times are no ticks."""

from __future__ import annotations

from pathlib import Path

import antiphon
from antiphon.api.topic_names import topic_number
from antiphon.audit.spark.traces import describe
from antiphon.cli.metrics import Measured, for_live
from antiphon.node.tracing import TOPIC_MASK
from tests.node.support import running


def test_the_trace_of_a_live_node_says_the_names_of_its_topics(tmp_path: Path) -> None:
    file = tmp_path / "node.parquet"

    async def test() -> None:
        async with antiphon.start(trace=str(file)) as node:
            for topic in ("room", "prices.euro"):
                await node.publish(topic, b"")

    running(test)
    about, _ = describe(file)
    assert about["topics"] == {str(topic_number(name) & TOPIC_MASK): name for name in ("room", "prices.euro")}
    assert about["unit"] == "microseconds" and about["host"] == "live"


def test_topics_have_their_names_and_times_their_units() -> None:
    latency = {"count": 3, "mean": 1500.0, "p50": 1000, "p99": None, "maximum": 2500}
    shown = for_live(Measured("delivery-latency", "ticks", "", [latency]), {})
    assert shown.unit == "milliseconds"
    assert shown.rows == [{"count": 3, "mean": 1.5, "p50": 1.0, "p99": None, "maximum": 2.5}]
    classes = [{"from": 1024, "to": 2048, "deliveries": 7}]
    shown = for_live(Measured("delivery-latency-distribution", "ticks", "", classes), {})
    assert shown.rows == [{"from": 1.024, "to": 2.048, "deliveries": 7}]
    intervals = [{"from": begin, "ticks": 500_000, "published": 1, "deliveries": 2} for begin in (7_000_000, 7_500_000)]
    shown = for_live(Measured("throughput", "count", "", intervals), {})
    assert [(row["from_seconds"], row["seconds"], row["published"]) for row in shown.rows] == [
        (0, 0.5, 1),
        (0.5, 0.5, 1),
    ]
    loads = [{"topic": 5, "published": 1}, {"topic": 6, "published": 2}]
    shown = for_live(Measured("topic-load", "count", "", loads), {5: "room"})
    assert shown.rows == [{"topic": "room", "published": 1}, {"topic": "6", "published": 2}]
    assert loads[0]["topic"] == 5, "what was measured stays as it is"
