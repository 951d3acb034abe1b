"""The streaming audit: a job that reads a live topic from the logs of all its nodes and reports violations of its
order.

Logs are read side by side as partitions of one stream; the rows of a topic meet in a stateful operator, where
:class:`antiphon.audit.streaming.order_watch.OrderWatch` judges them. Spark stores its state with the offsets, so a job
that is restarted with the same checkpoint continues where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from antiphon.audit.streaming.order_watch import Row, kept_of, watch_from
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.spark.logs import Logs, find_logs, run
from antiphon.spark.options import ACCESS_OPTIONS, Given, access_from
from antiphon.spark.plan import no_such_topic

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

VIOLATION_COLUMNS = ("topic", "kind", "partition", "offset", "publisher", "sequence", "text")
VIOLATIONS = "topic string, kind string, partition int, offset long, publisher long, sequence long, text string"
KEPT = "watch binary"
ORDERS = {name: number for number, name in enumerate(ORDER_NAMES)}

Judge = Callable[[tuple[Any, ...], "Iterator[pandas.DataFrame]", "GroupState"], "Iterator[pandas.DataFrame]"]


def find_all_logs(access: Mapping[str, str], topics: Sequence[str]) -> Logs:
    """The logs of all nodes that have one of the topics."""
    logs = run(find_logs(access_from(Given(access, ACCESS_OPTIONS)), topics, (), lambda _: True))
    for topic in topics:
        if not logs.holding(topic):
            raise UsageError(no_such_topic(topic, logs))
    return logs


def violations(
    session: SparkSession, access: Mapping[str, str], logs: Logs, topics: Sequence[str], start: str
) -> DataFrame:
    """A stream of violations of the order of some topics, read from ``start`` of these logs."""
    partitions = {topic: [held.number for held in logs.holding(topic)] for topic in topics}
    own = {held.node: held.number for held in logs.by_number.values()}
    rows = (
        session.readStream.format("antiphon")
        .options(**access)
        .options(assign=json.dumps(partitions), startingOffsets=start, includeKeys="true")
        .load()
        .select("topic", "partition", "offset", "publisher", "sequence", "order", "keys")
    )
    judge = judge_for(own, partitions)
    return rows.groupBy("topic").applyInPandasWithState(judge, VIOLATIONS, KEPT, "append", "NoTimeout")


def judge_for(own: Mapping[int, int], partitions: Mapping[str, Sequence[int]]) -> Judge:
    """The function that Spark calls with the new rows of a topic."""

    def judge(
        key: tuple[Any, ...], frames: Iterator[pandas.DataFrame], state: GroupState
    ) -> Iterator[pandas.DataFrame]:
        import pandas

        (topic,) = key
        watch = watch_from(bytes(state.get[0]) if state.exists else None, own, partitions[topic])
        rows = [row for frame in frames for row in rows_in(frame)]
        # Spark's tasks mix rows; offsets give their order in a log, and those of a later micro-batch are larger.
        rows.sort(key=lambda row: row.offset)
        found = watch.judge(rows)
        state.update((kept_of(watch),))
        yield pandas.DataFrame([(topic, *each) for each in found], columns=list(VIOLATION_COLUMNS))

    return judge


def rows_in(frame: pandas.DataFrame) -> Iterator[Row]:
    """The rows of a frame as the judge takes them."""
    columns = [frame[name].tolist() for name in ("partition", "offset", "publisher", "sequence", "order", "keys")]
    for log, offset, publisher, sequence, order, keys in zip(*columns, strict=True):
        about = () if keys is None else tuple(bytes(key) for key in keys)
        yield Row(log, offset, publisher, sequence, ORDERS[order], about)
