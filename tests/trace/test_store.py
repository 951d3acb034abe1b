"""Traces on disk: the documented schema, whole files or none, clear complaints."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import antiphon.trace.store
from antiphon.fabrics.cube import FullCube
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.kernel import PeerError, UsageError
from antiphon.simulator.engine.actions import (
    CrashAction,
    JoinAction,
    LeaveAction,
    PauseAction,
    PublishAction,
    RestartAction,
    ResumeAction,
)
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.recorder import CRASH, DROP_REASONS, EVENT_NAMES, SUBSCRIBED, Recorder
from antiphon.trace.store import LEVELS, SCHEMA, MemoryTrace, TraceWriter, about_trace, read_trace
from tests.support import lines_of

WORD = pa.dictionary(pa.int8(), pa.string())
ENDINGS = pytest.mark.parametrize("ending", [".parquet", ".arrow"])
ABOUT = {"seed": 7, "scenario": {"nodes": 4, "name": "Übung"}}


def record_a_run(recorder: Recorder) -> None:
    """A run with copies and acknowledgements, loss, duplicates and faults."""
    cube = FullCube(2)
    network = NetworkModel(NormalDelay(30, 10), loss=0.1, duplication=0.1)
    engine = Engine(4, network, lambda environment: TreeBroadcast(environment, cube), recorder=recorder, can_fail=True)
    for time in range(0, 200, 10):
        engine.at(time, PublishAction(time // 10 % 4, b"why?"))
    for time, fault in enumerate(
        (CrashAction(1), PauseAction(2), LeaveAction(3), RestartAction(1), ResumeAction(2), JoinAction(3))
    ):
        engine.at(40 + 20 * time, fault)
    assert engine.run() == "finished"


def write(path: Path, level: str = "everything", chunk_rows: int = 1 << 20) -> TraceWriter:
    """The run in a file."""
    with TraceWriter(path, level, ABOUT, chunk_rows) as writer:
        record_a_run(writer.recorder)
    return writer


def in_memory(level: str = "everything") -> pa.Table:
    trace = MemoryTrace(level)
    record_a_run(trace.recorder)
    return trace.table()


# The schema.


def test_the_columns_and_their_types() -> None:
    assert [(field.name, field.type, field.nullable) for field in SCHEMA] == [
        ("time", pa.int64(), False),
        ("event", WORD, False),
        ("node", pa.int32(), False),
        ("peer", pa.int32(), True),
        ("message", WORD, True),
        ("source", pa.int32(), True),
        ("sequence", pa.int64(), True),
        ("topic", pa.int32(), True),
        ("value", pa.int64(), True),
        ("reason", WORD, True),
        ("order", WORD, True),
        ("carried", pa.int32(), True),
        ("entries", pa.int32(), True),
        ("payload", pa.int32(), True),
        ("keys", pa.list_(pa.field("element", pa.int64())), True),
    ]


def test_the_documentation_names_every_column_event_and_reason() -> None:
    documentation = antiphon.trace.store.__doc__
    assert documentation is not None
    table = documentation.split("meaning\n")[1]
    first_words = [line.split()[0] for line in table.splitlines() if line and not line.startswith((" ", "="))]
    assert first_words[: len(SCHEMA.names)] == SCHEMA.names
    for name in (*EVENT_NAMES[1:], *DROP_REASONS[1:]):
        assert f"``{name}``" in table


def test_the_run_of_these_tests_has_nearly_every_event_and_reason() -> None:
    """So that what holds for its trace means something."""
    table = in_memory()
    missing = set(EVENT_NAMES) - set(table["event"].to_pylist())
    about_topics = {"subscribe", "unsubscribe", "subscribed", "unsubscribed", "lost", "unshown"}
    assert missing == {"", "expire", "stuck", "end", "batch", "epoch"} | about_topics
    assert {"loss", "receiver down"} <= set(table["reason"].to_pylist())
    assert set(table["message"].to_pylist()) == {None, "Ordered", "Acknowledgement"}


# Files.


@ENDINGS
def test_a_file_holds_what_was_recorded(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    writer = write(path)
    table = read_trace(path)
    assert table.schema.equals(SCHEMA)
    assert lines_of(table) == lines_of(in_memory())
    assert writer.rows == table.num_rows > 200
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_both_kinds_of_file_give_the_same_table(tmp_path: Path) -> None:
    tables = []
    for ending in (".parquet", ".arrow"):
        write(tmp_path / f"trace{ending}", chunk_rows=64)
        tables.append(read_trace(tmp_path / f"trace{ending}"))
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert tables[0].unify_dictionaries().combine_chunks().equals(tables[1].unify_dictionaries().combine_chunks())


@ENDINGS
@pytest.mark.parametrize("chunk_rows", [1, 50, 1000])
def test_the_size_of_the_chunks_does_not_matter(tmp_path: Path, ending: str, chunk_rows: int) -> None:
    """The first chunks know fewer kinds of message than the last ones."""
    path = tmp_path / f"trace{ending}"
    write(path, chunk_rows=chunk_rows)
    assert read_trace(path).to_pylist() == in_memory().to_pylist()


@ENDINGS
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    paths = [tmp_path / f"{name}{ending}" for name in ("one", "other")]
    for path in paths:
        write(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@ENDINGS
def test_a_file_says_what_it_is_about(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    write(path, "deliveries")
    assert about_trace(read_trace(path)) == {"schema": 4, "level": "deliveries", **ABOUT}


@ENDINGS
def test_a_trace_without_rows_can_be_written_and_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    with TraceWriter(path, "everything", {}):
        pass
    table = read_trace(path)
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == 0


def test_directories_are_made_where_they_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "today" / "trace.arrow"
    write(path)
    assert read_trace(path).num_rows > 0


# Levels.


def test_the_level_of_deliveries_leaves_out_what_only_concerns_copies_that_fare_well() -> None:
    """Sends, receptions and timers; what applications and operators see is the same at both levels."""
    everything = [row for row in in_memory().to_pylist() if row["event"] not in ("send", "receive", "expire")]
    assert in_memory("deliveries").to_pylist() == everything
    assert {"publish", "deliver", "drop", "duplicate", "crash"} <= {row["event"] for row in everything}


@pytest.mark.parametrize("level", ["counts", "all", ""])
def test_a_file_has_one_of_two_levels(tmp_path: Path, level: str) -> None:
    """Counts need no file."""
    assert LEVELS == ("counts", "deliveries", "everything")
    with pytest.raises(UsageError, match=f"a trace has no level '{level}'; choose 'deliveries' or 'everything'"):
        TraceWriter(tmp_path / "trace.arrow", level, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", ["counts", "all", ""])
def test_a_trace_in_memory_has_one_of_the_levels_too(level: str) -> None:
    with pytest.raises(UsageError, match=f"a trace has no level '{level}'; choose 'deliveries' or 'everything'"):
        MemoryTrace(level)


@pytest.mark.parametrize("name", ["trace.csv", "trace", "parquet"])
def test_a_file_has_one_of_two_endings(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"written as .parquet, .arrow or .txt, not as '{name}'; change its ending"):
        TraceWriter(tmp_path / name, "everything", {})
    assert list(tmp_path.iterdir()) == []


# Whole files or none.


class StumbleError(Exception):
    """What goes wrong in the middle of a run."""


def write_and_stumble(path: Path) -> None:
    with TraceWriter(path, "everything", ABOUT, chunk_rows=50) as writer:
        record_a_run(writer.recorder)
        raise StumbleError


@ENDINGS
def test_a_run_that_fails_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    with pytest.raises(StumbleError):
        write_and_stumble(tmp_path / f"trace{ending}")
    assert list(tmp_path.iterdir()) == []


@ENDINGS
def test_a_run_that_fails_leaves_an_older_trace_alone(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    write(path)
    before = path.read_bytes()
    with pytest.raises(StumbleError):
        write_and_stumble(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@ENDINGS
def test_until_it_is_complete_a_file_does_not_have_its_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    with TraceWriter(path, "everything", ABOUT, chunk_rows=50) as writer:
        record_a_run(writer.recorder)
        assert not path.exists()
    assert path.exists()


@ENDINGS
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, ending: str) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / f"trace{ending}"
    with pytest.raises(PeerError, match=f"cannot write the trace to {path}: .*; choose another place"):
        TraceWriter(path, "everything", {})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full, a disk without space")
@ENDINGS
def test_a_full_disk_is_the_disks_fault_and_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace{ending}"
    (tmp_path / f".{path.name}.partial").symlink_to("/dev/full")
    with pytest.raises(PeerError, match=f"cannot write the trace to {path}: "):
        write(path, chunk_rows=50)
    assert list(tmp_path.iterdir()) == []


# Reading.


@pytest.mark.parametrize("name", ["trace.parquet", "trace.arrow"])
def test_a_missing_trace_is_the_callers_fault(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"there is no trace at {tmp_path / name}; check the name"):
        read_trace(tmp_path / name)


@ENDINGS
@pytest.mark.parametrize("damage", ["empty", "other", "cut short"])
def test_a_damaged_trace_is_called_unreadable(tmp_path: Path, ending: str, damage: str) -> None:
    path = tmp_path / f"trace{ending}"
    write(path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "other": b"time,event\n1,crash\n", "cut short": whole[: len(whole) // 2]}[damage])
    with pytest.raises(PeerError, match=f"{path} is not a readable trace: .*; write it again"):
        read_trace(path)


def test_a_table_of_somebody_else_is_not_a_trace(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": [1, 2]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="is not an Antiphon trace"):
        about_trace(read_trace(tmp_path / "other.parquet"))


def test_a_text_trace_says_the_same_to_people(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "a.txt", "everything", {}) as writer:
        writer.recorder.record(7, CRASH, 3, 0)
        writer.recorder.record_topic(9, SUBSCRIBED, 12, 1)
    assert (tmp_path / "a.txt").read_text().splitlines() == [
        "      time  node  what",
        "         7     3  crash",
        "         9    12  subscribed        topic 1",
    ]
