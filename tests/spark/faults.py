"""What the proof of exactly once is made of: nodes in processes, a query that dies where it hurts, and an audit.

The query is Spark's own source of numbers, which gives the same rows again when a batch is run again; its sink is the
real one, in a subclass that kills somebody at a chosen place, once: itself in the middle of a partition (``worker``), a
node in the middle of a partition (``node``), or the driver between the last task and the commit (``driver``). As a
program it is a driver of its own:

    python faults.py JSON-OF-A-QUERY TARGET-BATCH
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from antiphon.api.batch_codec import decode_columns
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.spark.sink import TopicStreamWriter
from antiphon.spark.sink_options import write_options
from antiphon.spark.source import AntiphonDataSource
from antiphon.storage.log import DurableLog
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import FABRIC_KINDS

PATIENCE_SECONDS = 400
ROWS_PER_BATCH = 20_000
"""Some five pieces for each of the two partitions."""

PARTITIONS = 2


def takes(weapon: Path) -> int:
    """The process to be killed, for the first who asks; 0 for all others."""
    taken = weapon.with_suffix(".taken")
    try:
        weapon.rename(taken)
    except FileNotFoundError:
        return 0
    return int(taken.read_text(encoding="utf-8"))


class DeadlyWriter(TopicStreamWriter):
    """The sink, at whose work somebody dies."""

    def __init__(self, options: dict[str, str], schema: StructType, place: str, weapon: Path) -> None:
        super().__init__(write_options(options, is_stream=True), schema)
        self._place = place
        self._weapon = weapon

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(self._deadly(iterator))

    def _deadly(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if self._place in ("worker", "node"):
                # What was handed over has time to be published, at least in part.
                time.sleep(0.3)
                victim = takes(self._weapon)
                if victim:
                    os.kill(os.getpid() if self._place == "worker" else victim, signal.SIGKILL)
            yield batch.slice(half)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        super().commit(messages, batchId)
        victim = takes(self._weapon) if self._place == "driver" and batchId > 0 else 0
        if victim:
            os.killpg(victim, signal.SIGKILL)


class DeadlySource(AntiphonDataSource):
    """The format, with that sink."""

    @classmethod
    def name(cls) -> str:
        return "deadly"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        options = dict(self.options)
        place, weapon = options.pop("place"), Path(options.pop("weapon"))
        return DeadlyWriter(options, schema, place, weapon)


@dataclass(frozen=True)
class Query:
    """A query of numbers: where it writes, where its checkpoint is, and who dies by it, where."""

    servers: str
    topic: str
    checkpoint: str
    weapon: str
    place: str = "nowhere"
    order: str = "causal"

    def start(self, session: SparkSession) -> StreamingQuery:
        """Start it, or go on."""
        pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        session.dataSource.register(DeadlySource)
        numbers = session.readStream.format("rate-micro-batch").options(
            rowsPerBatch=str(ROWS_PER_BATCH), numPartitions=str(PARTITIONS)
        )
        rows = numbers.load().selectExpr("cast(value as string) as value", "cast(value % 7 as string) as key")
        access = {"servers": self.servers, "topic": self.topic, "order": self.order, "timeoutSeconds": "30"}
        writer = rows.writeStream.format("deadly").options(**access, place=self.place, weapon=self.weapon)
        return writer.option("checkpointLocation", self.checkpoint).start()

    def last_commit(self) -> int:
        """The last batch that Spark knows to be done; -1 if there is none."""
        commits = Path(self.checkpoint, "commits")
        names = [path.name for path in commits.iterdir()] if commits.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def forget_last_commit(self) -> int:
        """Remove the entry of the last batch, so that it is run again; which one that was."""
        last = self.last_commit()
        for name in (str(last), f".{last}.crc"):
            Path(self.checkpoint, "commits", name).unlink(missing_ok=True)
        return last

    def run(self, session: SparkSession, batch: int) -> bool:
        """Run until a batch is done, and stop; false if the query has failed before."""
        query = self.start(session)
        until = time.monotonic() + PATIENCE_SECONDS
        try:
            while self.last_commit() < batch and query.isActive:
                assert time.monotonic() < until, f"batch {batch} was not done in {PATIENCE_SECONDS} seconds"
                time.sleep(0.02)
        finally:
            query.stop()
        return self.last_commit() >= batch

    def run_apart(self, batch: int, killed_after_seconds: float = PATIENCE_SECONDS) -> int:
        """Run it in a driver of its own, which it may kill, or which is killed after a while; the exit code."""
        process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(asdict(self)), str(batch)],
            start_new_session=True,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        try:
            return process.wait(timeout=killed_after_seconds)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def arm(self, victim: int) -> None:
        """The next who comes to the place kills this process."""
        Path(self.weapon).write_text(str(victim), encoding="utf-8")

    @property
    def is_armed(self) -> bool:
        """Whether nobody has died yet."""
        return Path(self.weapon).exists()


class NodeProcess:
    """A node in a process of its own, with a log on the disk; it may be killed and come back."""

    def __init__(self, address: str, data: Path, *flags: str) -> None:
        self.address = address
        self.data = data
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> NodeProcess:
        """Start it, with whatever is in its log; it may not be ready yet."""
        command = [sys.executable, "-m", "antiphon", "node", "--listen", self.address, "--data", str(self.data)]
        self._process = subprocess.Popen(
            [*command, "--keep", "numbers", "--log-level", "error", *self._flags], stdout=subprocess.PIPE
        )
        return self

    def until_ready(self) -> NodeProcess:
        """Wait for its place in the cluster."""
        assert self._process is not None and self._process.stdout is not None
        assert self._process.stdout.readline(), "the node did not start"
        return self

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def end(self, number: int = signal.SIGTERM) -> None:
        """Let it leave, or kill it, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def rows_on_disk(data: Path, topic: str, fabric: str = "cube") -> list[int]:
    """All rows of a topic in the log of a node that does not run, read without anything that tells repetitions."""
    codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), FABRIC_KINDS[fabric])
    found: list[int] = []
    with DurableLog.open(data) as log:
        offset = log.earliest(topic)
        while entries := log.read(topic, offset, 1 << 24):
            for entry in entries:
                columns = decode_columns(codec.decode_publication(entry.batch).payload)
                found += map(int, columns.values)
            offset = entries[-1].next_offset
    return found


@dataclass(frozen=True)
class Audit:
    """What is wrong with the rows of a log."""

    lost: int
    doubled: int
    strange: int


CLEAN = Audit(0, 0, 0)


def audit(rows: list[int], batches: int) -> Audit:
    """All rows of so many batches must be there once. Of the batch after them there may be some, and nothing else."""
    counts = Counter(rows)
    expected = range(batches * ROWS_PER_BATCH)
    return Audit(
        lost=sum(1 for row in expected if row not in counts),
        doubled=sum(count - 1 for count in counts.values()),
        strange=sum(1 for row in counts if not 0 <= row < (batches + 1) * ROWS_PER_BATCH),
    )


def main() -> None:
    """A driver of its own."""
    from antiphon.pipeline.session import SessionOptions, start_session

    query = Query(**json.loads(sys.argv[1]))
    session = start_session("driver", SessionOptions(master="local[2]", memory="700m", brief=True))
    if query.place == "driver":
        query.arm(os.getpgid(0))
    query.run(session, int(sys.argv[2]))
    session.stop()


if __name__ == "__main__":
    main()
