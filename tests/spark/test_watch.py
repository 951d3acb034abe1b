"""The streaming audit: quiet while all is well, and it tells of violations that were planted in the logs of nodes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from librt.vecs import vec
from mypy_extensions import i64
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.api.topic_names import topic_number
from antiphon.audit.streaming.job import find_all_logs, violations
from antiphon.cli.main import app_for
from antiphon.cli.watch import Watched, count_rows, start_query, watch_topics
from antiphon.kernel.message import CAUSAL
from antiphon.orders.order import Ordered
from antiphon.storage.log import DurableLog
from antiphon.transport.codec import Codec
from tests.spark.nodes import Nodes

QUESTION, ANSWER = (0, 1), (1, 1)


def plant(log: DurableLog, *deliveries: tuple[int, int]) -> None:
    """Write into a log that its node delivered publications, each a message, in this order."""
    for source, sequence in deliveries:
        payload = encode_columns(Columns(sequence, 1_700_000_000_000_000, [b"planted"]))
        publication = Ordered(source, sequence, 0, payload, vec[i64](), topic_number("room"), CAUSAL)
        log.append("room", 1, 1_700_000_000_000_000, Codec().encode(publication))
    log.commit()


def test_a_violation_in_the_logs_is_told_and_is_exit_code_1(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    orders = [(QUESTION, ANSWER), (QUESTION, ANSWER), (ANSWER, QUESTION)]
    for place, deliveries in enumerate(orders):
        with DurableLog.open(tmp_path / f"node-{place}") as log:
            plant(log, *deliveries)
    three = nodes.cluster(3, tmp_path, ["room"])
    assert [node.identifier for node in three] == [0, 1, 2]
    options = ["--servers", three[0].address, "--start", "earliest", "--once", "--json"]
    options += ["--checkpoint", str(tmp_path / "checkpoint")]
    called = CliRunner().invoke(app_for("watch"), ["watch", "room", *options])
    told, end = (json.loads(line) for line in called.stdout.splitlines())
    assert (told["kind"], told["partition"], told["offset"]) == ("causal", three[2]._live.log_server.number, 1)
    assert told["text"].endswith("delivered after 1 of node 1, which follows it")
    assert end == {
        "topics": ["room"], "logs": 3, "deliveries": 6, "violations": {"causal": 1}, "verdict": "violated",
    }  # fmt: skip
    assert called.exit_code == 1
    # Who watches again goes on where that ended.
    again = CliRunner().invoke(app_for("watch"), ["watch", "room", *options])
    assert (json.loads(again.stdout)["deliveries"], again.exit_code) == (0, 0)


def test_a_violation_is_told_when_it_happens(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    one, other = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(one, "room", [b"why?"])
    access = {"servers": other.address}
    told: list[tuple[str, int, int]] = []

    def tell(frame: DataFrame, _: int) -> None:
        told.extend((row["kind"], row["partition"], row["offset"]) for row in frame.collect())

    found = violations(spark, access, find_all_logs(access, ["room"]), ["room"], "earliest")
    writer = found.writeStream.foreachBatch(tell).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="50 milliseconds").start()
    try:
        query.processAllAvailable()
        assert told == []
        assert other._live.store is not None
        plant(other._live.store, (0, 1))
        query.processAllAvailable()
        assert told == [("duplicates", other._live.log_server.number, 1)]
    finally:
        query.stop()


def test_a_live_topic_in_order_is_quiet(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    some = nodes.cluster(3, tmp_path, ["room"])
    for node in some:
        nodes.publish(node, "room", [b"%d" % number for number in range(50)])
        nodes.publish(node, "room", [b"all agree"] * 5, order="total")
    found = watch_topics({"servers": some[1].address}, ["room"], "earliest", True, None, None, as_json=True)
    assert (found.logs, found.deliveries, found.violations) == (3, 3 * 3 * 55, {})


def test_deliveries_on_a_quiet_topic_are_counted(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    """Between two messages Spark says several times that the next micro-batch is empty."""
    some = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(some[0], "room", [b"before"])
    access = {"servers": some[0].address}
    found = Watched(["room"], 2)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    checkpoint = tmp_path / "checkpoint"
    query = start_query(spark, access, find_all_logs(access, ["room"]), found, "latest", checkpoint, False, True)
    counted = -1
    try:
        query.processAllAvailable()
        for number in range(2):
            told = len(query.recentProgress)
            while len(query.recentProgress) == told:
                time.sleep(0.05)
            counted = count_rows(query, found, counted)
            nodes.publish(some[number], "room", [b"quiet"])
            query.processAllAvailable()
        count_rows(query, found, counted)
        assert found.deliveries == 4
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_gets_the_result_and_no_stack(
    spark: SparkSession, nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    some = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(some[0], "room", [b"why?"])
    before = signal.getsignal(number)

    def stop() -> None:
        # A query runs as soon as its signals are heard.
        while signal.getsignal(number) is before or not spark.streams.active:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    stopping = threading.Thread(target=stop)
    stopping.start()
    found = watch_topics({"servers": some[1].address}, ["room"], "earliest", False, None, None, as_json=True)
    stopping.join()
    assert found.verdict == "clean" and not spark.streams.active
    assert signal.getsignal(number) is before
    assert "Traceback" not in capfd.readouterr().err
