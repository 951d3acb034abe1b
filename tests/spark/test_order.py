"""Order after a shuffle: what docs/spark.md says and shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.nodes import Nodes

PAGE = Path(__file__).parent.parent.parent / "docs" / "spark.md"


def examples() -> list[str]:
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "history=" not in block]


def test_the_examples_of_the_page_restore_causal_order(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    """Two nodes talk in three conversations, each answering what it has seen; tasks and a shuffle mix the rows."""
    asking, answering = nodes.cluster(2, tmp_path, ["room"])
    expected = {f"c{number}": "" for number in range(3)}
    for turn in range(6):
        for number, node in enumerate((asking, answering, asking)):
            speaker = answering if turn % 2 else node
            line = f"{turn}: {speaker.identifier} says {turn * 7 % 11}"
            nodes.publish(speaker, "room", [line.encode()], key=f"c{number}".encode())
            expected[f"c{number}"] += f"{line}\n"
    names: dict[str, Any] = {"spark": spark, "servers": asking.address}
    opening, restoring = examples()[:2]
    divided = opening.replace('subscribe="room"', 'subscribe="room", minPartitions=4, maxOffsetsPerTrigger=7')
    for block in (divided, restoring):
        exec(block, names)
    assert sorted(bytes(row["value"]).decode() for row in names["rows"].collect()) == sorted(
        line for said in expected.values() for line in said.splitlines()
    )
    found: dict[str, str] = {}
    sizes: list[int] = []

    def collect(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        sizes.append(len(rows))
        found.update({row["conversation"]: row["said"] for row in rows})

    writer = names["conversations"].writeStream.foreachBatch(collect).outputMode("update")
    checkpoint = str(tmp_path / "checkpoint")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert len(sizes) >= 3, "several micro-batches continue each other"
    assert found == expected
