"""The streaming audit: quiet while all is well, and it tells of a violation that was planted in a node's log."""

from __future__ import annotations

from pathlib import Path

from librt.vecs import vec
from mypy_extensions import i64
from pyspark.sql import SparkSession

from antiphon.cli.watch import watch_topics
from antiphon.kernel.message import CAUSAL
from antiphon.live.columns import Columns, encode_columns
from antiphon.live.log import DurableLog
from antiphon.live.names import topic_number
from antiphon.live.wire import Codec
from antiphon.orders.order import Ordered
from tests.spark.nodes import Nodes


def plant(directory: Path, *deliveries: tuple[int, int]) -> None:
    """Write a log in which a node delivered publications, each a message, in this order."""
    with DurableLog.open(directory) as log:
        for place, (source, sequence) in enumerate(deliveries):
            payload = encode_columns(Columns(sequence, 1_700_000_000_000_000 + place, [b"planted"]))
            publication = Ordered(source, sequence, place, payload, vec[i64](), topic_number("room"), CAUSAL)
            log.append("room", 1, 1_700_000_000_000_000 + place, Codec().encode(publication))


def test_live_nodes_in_order_are_quiet_and_a_planted_violation_is_told_of(
    spark: SparkSession, nodes: Nodes, tmp_path: Path
) -> None:
    question, answer = (0, 1), (1, 1)
    plant(tmp_path / "node-0", question, answer)
    plant(tmp_path / "node-1", question, answer)
    plant(tmp_path / "node-2", answer, question)
    first, *others = nodes.cluster(3, tmp_path, ["room"])
    assert [node.identifier for node in (first, *others)] == [0, 1, 2]
    access = {"servers": first.address}
    checkpoint = tmp_path / "checkpoint"
    found = watch_topics(access, ["room"], "earliest", True, checkpoint, None, as_json=False)
    assert (found.deliveries, found.violations, found.verdict) == (6, {"causal": 1}, "violated")
    # It goes on where it was.
    quiet = watch_topics(access, ["room"], "earliest", True, checkpoint, None, as_json=False)
    assert (quiet.deliveries, quiet.verdict) == (0, "clean")


def test_a_live_topic_in_order_is_quiet(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    some = nodes.cluster(3, tmp_path, ["room"])
    for node in some:
        nodes.publish(node, "room", [b"%d" % number for number in range(50)])
        nodes.publish(node, "room", [b"all agree"] * 5, order="total")
    found = watch_topics({"servers": some[1].address}, ["room"], "earliest", True, None, None, as_json=True)
    assert (found.logs, found.deliveries, found.violations) == (3, 3 * 3 * 55, {})
