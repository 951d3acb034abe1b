"""Every metric on a trace so small that the result can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.cli.metrics import measure
from antiphon.pipeline.metrics import METRICS
from antiphon.trace.store import OPTIONAL, SCHEMA

pytestmark = pytest.mark.slow

Line = dict[str, Any]


def about(time: int, event: str, node: int, source: int, sequence: int, topic: int = 0, **more: Any) -> Line:
    """A row about a publication."""
    return {"time": time, "event": event, "node": node, "source": source, "sequence": sequence, "topic": topic, **more}


def sent(time: int, node: int, peer: int, source: int, sequence: int, ticks: int, **more: Any) -> Line:
    """A copy with one publication of three bytes leaves the queue after so many ticks."""
    load: dict[str, Any] = {"message": "Ordered", "carried": 1, "entries": 2, "payload": 3, **more}
    return about(time, "send", node, source, sequence, peer=peer, value=ticks, **load)


def received(time: int, node: int, peer: int, source: int, sequence: int, **more: Any) -> Line:
    load: dict[str, Any] = {"message": "Ordered", "carried": 1, "entries": 2, "payload": 3, **more}
    return about(time, "receive", node, source, sequence, peer=peer, **load)


def delivered(time: int, node: int, source: int, sequence: int, latency: int) -> Line:
    return about(time, "deliver", node, source, sequence, value=latency, message="Ordered")


STORY = [
    about(0, "subscribe", 2, 2, 0),
    about(4, "subscribed", 2, 2, 0),
    about(5, "subscribed", 1, 1, 0),
    # Node 0 publishes 1 and 2; they reach node 1 in the wrong order, and node 2 through node 1.
    about(10, "publish", 0, 0, 1, value=3),
    delivered(10, 0, 0, 1, 0),
    sent(10, 0, 1, 0, 1, 2),
    about(11, "publish", 0, 0, 2, value=3),
    delivered(11, 0, 0, 2, 0),
    sent(11, 0, 1, 0, 2, 3),
    received(15, 1, 0, 0, 2),
    sent(15, 1, 2, 0, 2, 1),
    received(18, 1, 0, 0, 1),
    delivered(18, 1, 0, 1, 8),
    delivered(18, 1, 0, 2, 7),
    sent(18, 1, 2, 0, 1, 1),
    received(19, 2, 1, 0, 2),
    delivered(19, 2, 0, 2, 8),
    received(20, 2, 1, 0, 1),
    delivered(20, 2, 0, 1, 10),
    # A copy too many, and one for node 3, which is no member.
    sent(21, 1, 2, 0, 1, 1),
    received(22, 2, 1, 0, 1),
    sent(23, 2, 3, 0, 1, 1),
    received(24, 3, 2, 0, 1),
    # Two publications of node 1 on another topic travel together; an acknowledgement carries four entries.
    sent(30, 1, 2, 1, 1, 1, topic=1, message="Bundle", carried=2, entries=5, payload=9),
    about(31, "drop", 2, 1, 1, topic=1, message="Bundle", peer=1, reason="loss"),
    sent(32, 2, 1, 1, 1, 1, topic=1, message="Acknowledgement", carried=0, entries=4, payload=0),
    {"time": 33, "event": "restart", "node": 2},
    about(34, "unsubscribe", 1, 1, 0),
    delivered(39, 2, 0, 3, 1),
    about(49, "unsubscribed", 1, 1, 0),
]  # fmt: skip


def write(path: Path, rows: list[Line], leave_out: frozenset[str] = frozenset()) -> Path:
    """A trace of these rows; columns may be left out, as in older versions."""
    fields = [field for field in SCHEMA if field.name not in leave_out]
    columns = []
    for field in fields:
        values = [row.get(field.name) for row in rows]
        is_word = pa.types.is_dictionary(field.type)
        columns.append(pa.array(values, pa.string()).cast(field.type) if is_word else pa.array(values, field.type))
    schema = pa.schema(fields, {"antiphon": '{"level": "everything"}'})
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)
    return path


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    path = write(tmp_path_factory.mktemp("traces") / "story.parquet", STORY)
    return {each.name: each.rows for each in measure(spark, [path], list(METRICS.values()))}


def figures(row: Line, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_totals(found: dict[str, list[Line]]) -> None:
    assert found["totals"] == [
        {
            "published": 2, "sent": 8, "received": 6, "dropped": 1, "duplicated": 0, "deliveries": 7, "subscribed": 2,
            "unsubscribed": 1,
        }
    ]  # fmt: skip


def test_delivery_latency(found: dict[str, list[Line]]) -> None:
    """8, 7, 8, 10 and 1."""
    assert figures(found["delivery-latency"][0], "count", "mean", "p50", "maximum") == (5, 6.8, 8, 10)
    assert [figures(row, "from", "to", "deliveries") for row in found["delivery-latency-distribution"]] == [
        (1, 2, 1), (4, 8, 1), (8, 16, 3),
    ]  # fmt: skip


def test_reception_latency(found: dict[str, list[Line]]) -> None:
    """Of 2 at nodes 1 and 2: 4 and 8; of 1 at nodes 1, 2 and 3: 8, 10 and 14. The second copy does not count."""
    assert figures(found["reception-latency"][0], "count", "mean", "maximum") == (5, 8.8, 14)
    assert [figures(row, "from", "to", "receptions") for row in found["reception-latency-distribution"]] == [
        (4, 8, 1), (8, 16, 4),
    ]  # fmt: skip


def test_delivery_wait(found: dict[str, list[Line]]) -> None:
    """At node 1 publication 2 waits for three ticks; nobody else waits, and node 3 never delivers."""
    assert figures(found["delivery-wait"][0], "count", "mean", "maximum") == (4, 0.75, 3)


def test_pending_buffer(found: dict[str, list[Line]]) -> None:
    """When 1 arrives at node 1, 2 waits there; otherwise nothing does."""
    assert figures(found["pending-buffer"][0], "count", "mean", "maximum") == (4, 0.25, 1)


def test_hops(found: dict[str, list[Line]]) -> None:
    """To node 1 one hop, to node 2 two, to node 3 three."""
    assert figures(found["hops"][0], "count", "mean", "maximum") == (5, 1.8, 3)


def test_messages_and_bytes_by_kind(found: dict[str, list[Line]]) -> None:
    """20 for a message, 6 for a name, 4 for an entry."""
    assert [tuple(row.values()) for row in found["messages-by-kind"]] == [
        ("Acknowledgement", 1, 0, 0, 0), ("Bundle", 1, 0, 1, 0), ("Ordered", 6, 6, 0, 0),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in found["bytes-by-kind"]] == [
        ("Acknowledgement", 1, 0, 4, 0, 20 + 6 + 16),
        ("Bundle", 1, 2, 5, 9, 20 + 12 + 20 + 9),
        ("Ordered", 6, 6, 12, 18, 6 * (20 + 6 + 8 + 3)),
    ]


def test_aggregation(found: dict[str, list[Line]]) -> None:
    assert [tuple(row.values()) for row in found["aggregation"]] == [(1, 6, 6), (2, 1, 2)]


def test_causal_information(found: dict[str, list[Line]]) -> None:
    """Two publications travel alone, with two entries each; the bundle does not."""
    assert [figures(row, "message", "count", "mean", "maximum") for row in found["causal-information"]] == [
        ("Ordered", 2, 2.0, 2)
    ]


def test_losses(found: dict[str, list[Line]]) -> None:
    assert found["losses"] == [{"reason": "loss", "dropped": 1}]


def test_queues(found: dict[str, list[Line]]) -> None:
    """The copy of 2 at node 0 finds that of 1, which leaves at 12; all others find nothing but themselves."""
    assert figures(found["output-queue"][0], "count", "maximum") == (8, 3)
    assert figures(found["queue-length"][0], "count", "mean", "maximum") == (7, 8 / 7, 2)


def test_duplicates_and_false_positives(found: dict[str, list[Line]]) -> None:
    assert found["duplicates"] == [{"received": 6, "duplicates": 1, "share": 1 / 6}]
    assert found["false-positives"] == [{"received": 6, "unwanted": 1, "share": 1 / 6}]


def test_reconfiguration_time(found: dict[str, list[Line]]) -> None:
    """Node 1 never asked to subscribe. Node 2 delivers six ticks after its restart."""
    assert [figures(row, "change", "count", "mean") for row in found["reconfiguration-time"]] == [
        ("restart", 1, 6.0), ("subscribe", 1, 4.0), ("unsubscribe", 1, 15.0),
    ]  # fmt: skip


def test_links(found: dict[str, list[Line]]) -> None:
    """0-1, 1-2 and 2-3 on one topic, 1-2 on the other; an acknowledgement makes no link."""
    assert found["links"] == [{"logical": 4, "physical": 3, "logical_per_physical": 4 / 3, "physical_per_node": 1.5}]


def test_bandwidth_by_role(found: dict[str, list[Line]]) -> None:
    """A copy has 37 bytes, the bundle 61 and the acknowledgement 42. On topic 1 nobody published or delivered."""
    assert [figures(row, "role", "nodes", "sent", "received") for row in found["bandwidth-by-role"]] == [
        ("publisher", 1, 2 * 37, 0),
        ("relay", 3, 61 + 42, 37),
        ("subscriber", 2, 4 * 37, 5 * 37),
    ]
    assert found["bandwidth-by-role"][0]["sent_per_tick"] == pytest.approx(74 / 50)


def test_ordering_similarity(found: dict[str, list[Line]]) -> None:
    """Nodes 0 and 1 deliver in the order of publication; node 2 delivers 2 before 1, and 3 at last: two of three."""
    assert figures(found["ordering-similarity"][0], "count", "minimum", "maximum") == (3, 2 / 3, 1.0)


def test_load(found: dict[str, list[Line]]) -> None:
    assert [tuple(row.values()) for row in found["node-load"]] == [
        (0, 2, 2, 0, 2), (1, 0, 4, 2, 2), (2, 0, 2, 3, 3), (3, 0, 0, 1, 0),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in found["topic-load"]] == [(0, 2, 7, 1, 3)]
    assert sum(row["deliveries"] for row in found["throughput"]) == 7


def test_older_traces_are_measured_as_far_as_they_go(spark: SparkSession, tmp_path: Path) -> None:
    """What copies carry is not known; which are copies of publications is told by what is delivered."""
    path = write(tmp_path / "old.parquet", STORY, OPTIONAL)
    names = ("hops", "bytes-by-kind", "duplicates", "ordering-similarity")
    old = {each.name: each.rows for each in measure(spark, [path], [METRICS[name] for name in names])}
    assert figures(old["hops"][0], "count", "mean", "maximum") == (5, 1.8, 3)
    assert old["duplicates"] == [{"received": 6, "duplicates": 1, "share": 1 / 6}]
    assert {row["bytes"] for row in old["bytes-by-kind"]} == {None}
