"""TLS and tokens: who may read what, and that tokens stay out of plans, errors and what Spark writes down."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon import Node, PeerError
from antiphon.kernel.errors import DeniedError
from antiphon.node.acl import token_hash
from antiphon.spark.options import read_options
from antiphon.spark.reader import TopicReader
from tests.node.secure import ours
from tests.spark.nodes import Nodes

TOKEN = "shop-token-that-nobody-is-to-see"


@pytest.fixture
def secure(nodes: Nodes, tmp_path: Path) -> Node:
    """A node with TLS that lets one client read one topic."""
    rights = tmp_path / "rights.toml"
    rights.write_text(f'[clients.shop]\ntoken = "{token_hash(TOKEN)}"\nsubscribe = ["room"]\n')
    node = nodes.start(data=str(tmp_path / "data"), keep=["room", "safe"], rights=str(rights), **ours().node("one"))
    nodes.publish(node, "room", [b"open"])
    nodes.publish(node, "safe", [b"shut"])
    return node


def options_for(node: Node, **more: str) -> dict[str, str]:
    return {"servers": node.address, "tlsAuthority": ours().trust.authority, "token": TOKEN, **more}


def test_a_token_opens_the_topics_that_it_is_for(spark: SparkSession, secure: Node, tmp_path: Path) -> None:
    frame = spark.read.format("antiphon").options(**options_for(secure, subscribe="room")).load()
    assert [bytes(row["value"]) for row in frame.collect()] == [b"open"]
    shown = f"{frame._jdf.queryExecution()} {frame._jdf.queryExecution().analyzed().treeString()}"
    assert "antiphon" in shown
    assert TOKEN not in shown


def test_only_what_a_client_may_read_is_told_of(secure: Node) -> None:
    matching = TopicReader(read_options(options_for(secure, subscribePattern=".*"), is_stream=False))
    assert [piece.partition.topic for piece in matching.partitions()] == ["room"]
    with pytest.raises(DeniedError, match="client 'shop' may not read 'safe'"):
        TopicReader(read_options(options_for(secure, subscribe="safe"), is_stream=False)).partitions()


def test_a_wrong_token_is_said_and_not_shown(secure: Node) -> None:
    wrong = options_for(secure, subscribe="room", token="not-this-one")
    with pytest.raises(DeniedError, match="the token is not known here") as caught:
        TopicReader(read_options(wrong, is_stream=False)).partitions()
    assert "not-this-one" not in str(caught.value)
    without_tls = {"servers": secure.address, "subscribe": "room"}
    with pytest.raises(PeerError, match="if it wants TLS, say so"):
        TopicReader(read_options(without_tls, is_stream=False)).partitions()


def test_a_stream_writes_no_token_down(spark: SparkSession, nodes: Nodes, secure: Node, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = options_for(secure, subscribe="room", startingOffsets="earliest")
    frame = spark.readStream.format("antiphon").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress is not None
    assert query.lastProgress["sources"][0]["numInputRows"] == 1
    plan = frame._jdf.queryExecution().toString()
    assert "antiphon" in plan
    assert TOKEN not in f"{plan} {query.lastProgress.json} {query._jsq.explainInternal(True)}"
    written = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
    assert written
    assert not any(TOKEN.encode() in content for content in written)
