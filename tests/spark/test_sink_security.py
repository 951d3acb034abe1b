"""TLS and tokens for writers: who may write where, that names belong to their holders, that no token is shown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from antiphon import Node
from antiphon.node.acl import token_hash
from antiphon.spark.sink_options import write_options
from tests.node.secure import ours
from tests.spark.nodes import Nodes

pytestmark = pytest.mark.slow

SHOP, BANK = "shop-token-that-nobody-is-to-see", "bank-token-that-nobody-is-to-see"


@pytest.fixture
def secure(nodes: Nodes, tmp_path: Path) -> Node:
    """A node with TLS that lets two clients write one topic."""
    rights = tmp_path / "rights.toml"
    clients = (("shop", SHOP), ("bank", BANK))
    rights.write_text(
        "".join(
            f'[clients.{name}]\ntoken = "{token_hash(token)}"\npublish = ["room"]\nsubscribe = ["room"]\n'
            for name, token in clients
        )
    )
    return nodes.start(data=str(tmp_path / "data"), keep=["room", "safe"], rights=str(rights), **ours().node("one"))


def write(frame: DataFrame, node: Node, topic: str = "room", token: str = SHOP) -> None:
    access = {"servers": node.address, "tlsAuthority": ours().trust.authority, "token": token}
    frame.write.format("antiphon").options(**access, topic=topic, writeId="same").mode("append").save()


def offsets(node: Node, topic: str) -> int:
    assert node._live.store is not None
    return node._live.store.latest(topic)


def test_a_token_writes_where_it_may_and_for_itself(spark: SparkSession, secure: Node) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    write(frame, secure)
    with pytest.raises(PySparkException, match="client 'shop' may not publish on 'safe'"):
        write(frame, secure, topic="safe")
    with pytest.raises(PySparkException, match="the token is not known here") as caught:
        write(frame, secure, token="not-this-one")
    assert "not-this-one" not in str(caught.value)
    assert (offsets(secure, "room"), offsets(secure, "safe")) == (10, 0)
    write(frame.limit(3), secure, token=BANK)
    assert offsets(secure, "room") == 13, "the same name of another holder is another name"


def test_no_token_is_shown_or_written_down(spark: SparkSession, secure: Node, tmp_path: Path) -> None:
    access = {"servers": secure.address, "tlsAuthority": ours().trust.authority, "token": SHOP, "topic": "room"}
    assert SHOP not in repr(write_options(access, is_stream=False))
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    rows = numbers.selectExpr("cast(value as string) as value").writeStream.format("antiphon").options(**access)
    query = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < 1):
            time.sleep(0.02)
        assert query.lastProgress is not None
        shown = f"{query.lastProgress.json} {query._jsq.explainInternal(True)}"
    finally:
        query.stop()
    assert "antiphon" in shown
    assert SHOP not in shown
    written = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert written
    assert not any(SHOP.encode() in content for content in written)
