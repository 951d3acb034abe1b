"""What is pieced together of the traces of live nodes, and what is said not to be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.audit.auditor import audit_files
from antiphon.audit.evidence import messages_of, read_evidence
from antiphon.audit.report import CLEAN, VIOLATED
from antiphon.kernel.message import CAUSAL, UNSPECIFIED
from antiphon.trace.contract import PROMISED, TOLD_ALWAYS, Contract
from antiphon.trace.recorder import BATCH, DELIVER, END, JOIN, LOST, SUBSCRIBED, Recorder
from antiphon.trace.store import TraceWriter, partial_of, read_trace

ABOUT = {"host": "live", PROMISED: Contract("cube", "", leavers=True, told=TOLD_ALWAYS).as_metadata()}


def begun(recorder: Recorder, node: int, batches: dict[int, int]) -> None:
    """A node joins, is a member, and publishes batches that begin with these messages."""
    recorder.record(node, JOIN, node, 1)
    recorder.record_topic(10, SUBSCRIBED, node, 4)
    for batch, first in batches.items():
        recorder.record_run(20 + batch, BATCH, node, node, first, 1, 4, batch, UNSPECIFIED)


def write_pair(directory: Path, seen: list[int], lost: int | None, is_killed: bool) -> list[Path]:
    """Node 0 publishes batches of messages 1, 2 and 3, 4; node 1 delivers some and may say that a batch is lost."""
    first, second = directory / "a.parquet", directory / "b.parquet"
    writer = TraceWriter(first, "deliveries", ABOUT, survives=True)
    begun(writer.recorder, 0, {1: 1, 2: 3})
    writer.recorder.record_run(30, DELIVER, 0, 0, 1, 2 if is_killed else 4, 4, 0, CAUSAL)
    writer.recorder.flush()
    if not is_killed:
        writer.recorder.record(90, END, 0, 0)
        writer.__exit__(None, None, None)
    with TraceWriter(second, "deliveries", ABOUT) as other:
        begun(other.recorder, 1, {})
        for place, number in enumerate(seen):
            other.recorder.record_run(40 + place, DELIVER, 1, 0, number, 1, 4, 0, CAUSAL)
        if lost is not None:
            other.recorder.record_run(50, LOST, 1, 0, lost, 1, 4, 1, UNSPECIFIED)
        other.recorder.record(90, END, 1, 0)
    return [partial_of(first) if is_killed else first, second]


@pytest.mark.parametrize(
    ("seen", "lost", "verdict"),
    [
        ([1, 2, 3, 4], None, CLEAN),
        ([1, 2], None, VIOLATED),
        ([1, 2], 2, CLEAN),
        ([1, 2], 1, VIOLATED),
        ([3, 4], 1, CLEAN),
    ],
)
def test_a_loss_is_told_by_batch_and_excuses_its_messages(
    tmp_path: Path, seen: list[int], lost: int | None, verdict: str
) -> None:
    found = audit_files(write_pair(tmp_path, seen, lost, is_killed=False))
    assert found.verdict == verdict, found
    assert found.unjudged == []


def test_what_was_lost_with_a_killed_node_is_held_against_nobody(tmp_path: Path) -> None:
    """Node 1 delivered 3 and 4, of which node 0 had written nothing when it was killed."""
    files = write_pair(tmp_path, [1, 2, 3, 4], None, is_killed=True)
    found = audit_files(files)
    assert found.verdict == CLEAN, found
    assert (found.messages, found.missing_nodes) == (4, [])
    assert found.unjudged == [
        "Node 0 was killed, or still runs: the rows after its last one are missing, and 2 of its messages are "
        "known only from other nodes."
    ]
    events = read_evidence(files).table["event"].to_pylist()
    assert events.count("crash") == 1 and "end" in events


def test_order_is_judged_although_the_publisher_was_killed(tmp_path: Path) -> None:
    assert audit_files(write_pair(tmp_path, [1, 2, 4, 3], None, is_killed=True)).checks["fifo"].violations == 1
    (tmp_path / "second").mkdir()
    twice = audit_files(write_pair(tmp_path / "second", [1, 2, 3, 3], None, is_killed=True))
    assert twice.checks["duplicates"].violations == 1


def test_a_file_that_ends_in_the_middle_of_a_piece_is_read_up_to_there(tmp_path: Path) -> None:
    partial, _ = write_pair(tmp_path, [], None, is_killed=True)
    rows = read_trace(partial).num_rows
    with partial.open("ab") as file:
        file.write(partial.read_bytes()[-200:-50])
    assert read_trace(partial).num_rows == rows


def test_a_node_that_was_killed_before_it_wrote_is_named(tmp_path: Path) -> None:
    _, other = write_pair(tmp_path, [], None, is_killed=False)
    empty = tmp_path / ".c.parquet.partial"
    empty.write_bytes(b"")
    found = audit_files([other, empty])
    assert [str(empty) in text for text in found.unjudged] == [True]


def test_the_messages_of_a_batch_end_where_the_next_begins() -> None:
    begins = {7: 1, 8: 3, 9: 6}
    numbers = set(range(1, 8))
    assert messages_of(begins, 7, numbers) == [1, 2]
    assert messages_of(begins, 9, numbers) == [6, 7]
    assert messages_of(begins, 5, numbers) is None
