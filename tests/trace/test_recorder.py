"""Rows as packed integers: what goes in comes out as columns, in order, whatever the size of the chunks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import Acknowledgement
from antiphon.fabrics.cube.aggregation.packets import Packet
from antiphon.fabrics.cube.messages import Bundle, LeafCopy, SurveyResponse
from antiphon.kernel import CAUSAL, FIFO, NO_NODE, NONE, UNSPECIFIED, ProtocolMessage, Publication
from antiphon.orders.order import Ordered
from antiphon.trace.recorder import (
    CRASH,
    DELIVER,
    DROP,
    DROP_REASONS,
    DROPPED_PARTITION,
    EVENT_NAMES,
    EXPIRE,
    PUBLISH,
    RECEIVE,
    SEND,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBED,
    Recorder,
)
from antiphon.trace.store import SCHEMA, MemoryTrace, to_batch
from antiphon_lab.protocols.cube.published_messages import Pub

LARGEST_NODE = (1 << 22) - 1
LARGEST_SEQUENCE = (1 << 41) - 1


def rows_of(trace: MemoryTrace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = trace.table().to_pylist()
    return rows


def row(**known: object) -> dict[str, object]:
    """A row with these columns; the others are null. A copy carries nothing unless it is said."""
    load = {"carried": 0, "entries": 0, "payload": 0} if known["event"] in ("send", "receive") else {}
    return {column: {**load, **known}.get(column) for column in SCHEMA.names}


def test_a_row_about_a_message() -> None:
    trace = MemoryTrace()
    trace.recorder.record_message(17, SEND, 3, 5, Publication(2, 9, 0, b"", topic=4), 6)
    assert rows_of(trace) == [
        row(
            time=17, event="send", node=3, peer=5, message="Publication", source=2, sequence=9, topic=4, value=6,
            carried=1,
        )
    ]  # fmt: skip


def test_a_copy_says_what_it_carries() -> None:
    """Publications, entries of barriers or vectors, and bytes of payload; what wraps others counts theirs."""
    trace = MemoryTrace()
    one = Ordered(2, 9, 0, b"why?", vec[i64]([5, 6, 7]))
    other = Ordered(2, 10, 0, b"because", vec[i64]([5]))
    pub = Pub(1, 1, 0, b"so", vec[i64]([8, 9]))
    answer = SurveyResponse(3, 1, 0, vec[i64]([1, 2, 3, 4]), vec[i64](), False)
    bundle = Bundle([one, other])
    for message in (one, bundle, LeafCopy(bundle), Packet([one, other]), pub, answer, Acknowledgement(2, 9)):
        trace.recorder.record_message(0, SEND, 1, 2, message, 0)
        trace.recorder.record_message(0, RECEIVE, 2, 1, message, 0)
    found = [(each["carried"], each["entries"], each["payload"]) for each in rows_of(trace)]
    assert found[::2] == found[1::2]
    assert found[::2] == [(1, 3, 4), (2, 4, 11), (2, 4, 11), (2, 4, 11), (1, 2, 2), (0, 4, 0), (0, 0, 0)]


def test_rows_that_are_about_no_copy_carry_nothing() -> None:
    trace = MemoryTrace()
    trace.recorder.record_message(0, DELIVER, 1, NO_NODE, Ordered(2, 9, 0, b"why?", vec[i64]([5])), 0)
    trace.recorder.record_message(0, SEND, 1, 2, Ordered(2, 9, 0, b"why?", vec[i64]([5])), 0)
    trace.recorder.record(1, CRASH, 1, 0)
    assert [each["payload"] for each in rows_of(trace)] == [None, 4, None]


class Keyed(Publication):
    """A publication of a user that is in total order under keys."""

    def __init__(self, sequence: int, keys: list[int]) -> None:
        super().__init__(1, sequence, 0, b"")
        self.keys = keys

    def total_order_keys(self) -> vec[i64]:
        return vec[i64](self.keys)


@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_deliveries_say_under_which_keys_they_are_ordered(chunk_rows: int) -> None:
    trace = MemoryTrace("deliveries", chunk_rows)
    for sequence, keys in enumerate([[], [4], [5, 1 << 40], [], [6, 7, 8]]):
        trace.recorder.record_message(0, DELIVER, 1, NO_NODE, Keyed(sequence, keys), 0)
        trace.recorder.flush_if_full()
    assert [each["keys"] for each in rows_of(trace)] == [None, [4], [5, 1 << 40], None, [6, 7, 8]]


def test_a_row_about_a_publication_says_its_order() -> None:
    """The largest of everything in the same word leaves the order as it is, and the order leaves them."""
    trace = MemoryTrace()
    node, peer = LARGEST_NODE, LARGEST_NODE - 1
    for order in (UNSPECIFIED, NONE, FIFO, CAUSAL):
        trace.recorder.record_message(0, UNSUBSCRIBED, node, peer, Publication(1, 2, 0, b"", 3, order), 4)
    trace.recorder.fill(trace.recorder.reserve(), 5, PUBLISH, 6, 7, 8, 9, FIFO)
    about = {"event": "unsubscribed", "node": node, "peer": peer, "message": "Publication"}
    expected = [
        row(time=0, **about, source=1, sequence=2, topic=3, order=name) for name in (None, "none", "fifo", "causal")
    ]
    expected.append(row(time=5, event="publish", node=6, source=6, sequence=7, topic=8, value=9, order="fifo"))
    assert rows_of(trace) == expected


def test_a_row_about_a_node() -> None:
    trace = MemoryTrace()
    trace.recorder.record(17, CRASH, 3, 0)
    assert rows_of(trace) == [row(time=17, event="crash", node=3)]


def test_a_row_about_a_topic() -> None:
    trace = MemoryTrace()
    trace.recorder.record_topic(17, SUBSCRIBED, 3, 8)
    assert rows_of(trace) == [row(time=17, event="subscribed", node=3, source=3, sequence=0, topic=8)]


def test_a_row_that_is_reserved_stands_before_what_happened_while_it_was_empty() -> None:
    trace = MemoryTrace()
    place = trace.recorder.reserve()
    trace.recorder.record(17, CRASH, 3, 0)
    trace.recorder.fill(place, 17, PUBLISH, 3, 1, 8, 40)
    trace.recorder.fill(trace.recorder.reserve(), 18, SUBSCRIBE, 3, 2, 8, 0)
    assert rows_of(trace) == [
        row(time=17, event="publish", node=3, source=3, sequence=1, topic=8, value=40),
        row(time=17, event="crash", node=3),
        row(time=18, event="subscribe", node=3, source=3, sequence=2, topic=8),
    ]


@given(
    time=st.integers(0, 1 << 62),
    node=st.integers(0, LARGEST_NODE),
    peer=st.one_of(st.just(NO_NODE), st.integers(0, LARGEST_NODE)),
    source=st.integers(0, LARGEST_NODE),
    sequence=st.integers(0, LARGEST_SEQUENCE - 1),
    topic=st.integers(0, (1 << 31) - 1),
    value=st.integers(0, (1 << 32) - 1),
)
def test_every_number_that_fits_comes_out_as_it_went_in(
    time: int, node: int, peer: int, source: int, sequence: int, topic: int, value: int
) -> None:
    trace = MemoryTrace()
    trace.recorder.record_message(time, DELIVER, node, peer, ProtocolMessage(source, sequence, topic), value)
    assert rows_of(trace) == [
        row(
            time=time,
            event="deliver",
            node=node,
            peer=None if peer == NO_NODE else peer,
            message="ProtocolMessage",
            source=source,
            sequence=sequence,
            topic=topic,
            value=value,
        )
    ]


def test_a_value_that_does_not_fit_is_written_as_the_largest() -> None:
    trace = MemoryTrace()
    trace.recorder.record_message(0, DELIVER, 0, NO_NODE, ProtocolMessage(0, 1, 6), 1 << 40)
    assert [(each["value"], each["topic"]) for each in rows_of(trace)] == [((1 << 32) - 1, 6)]


@pytest.mark.parametrize("name", [0, 7, -1, 1 << 32, 5 << 40, -(1 << 63), (1 << 63) - 1])
def test_a_timer_may_have_any_name(name: int) -> None:
    """Protocols name timers after publications, whose keys are longer than 32 bits."""
    trace = MemoryTrace()
    trace.recorder.record(3, EXPIRE, 2, name)
    assert rows_of(trace) == [row(time=3, event="expire", node=2, value=name)]


def test_only_some_events_have_a_value() -> None:
    trace = MemoryTrace()
    for event in range(1, len(EVENT_NAMES)):
        trace.recorder.record_message(0, event, 0, NO_NODE, ProtocolMessage(0, 1), 3)
    with_value = [each["event"] for each in rows_of(trace) if each["value"] is not None]
    rare = ["join", "restart", "lost", "stuck", "end", "batch", "epoch"]
    assert with_value == ["publish", "send", "deliver", "expire", *rare]


def test_only_a_drop_has_a_reason() -> None:
    trace = MemoryTrace()
    trace.recorder.record_message(0, RECEIVE, 0, 1, ProtocolMessage(0, 1), DROPPED_PARTITION)
    for reason in range(1, len(DROP_REASONS)):
        trace.recorder.record_message(0, DROP, 0, 1, ProtocolMessage(0, 1), reason)
    assert [each["reason"] for each in rows_of(trace)] == [None, "loss", "partition", "receiver down", "sender down"]


class Riddle(ProtocolMessage):
    """A kind of message of a user."""


def record_some(recorder: Recorder, count: int) -> None:
    """Rows of several kinds; new kinds of message come up while chunks have gone out already."""
    kinds = [ProtocolMessage(1, 1), Publication(1, 2, 0, b""), Acknowledgement(1, 3), Riddle(1, 4)]
    for number in range(count):
        recorder.record_message(number, SEND, number, 9, kinds[min(number // 2, 3)], number)
        recorder.flush_if_full()


def test_chunks_go_out_when_they_are_full_and_the_rest_at_a_flush() -> None:
    chunks: list[int] = []

    def keep(words: object, loads: object, keys: object) -> None:
        chunks.append(to_batch(words, loads, keys, recorder.kind_names).num_rows)

    recorder = Recorder(True, keep, chunk_rows=4)
    record_some(recorder, 11)
    assert chunks == [4, 4]
    recorder.flush()
    recorder.flush()
    assert chunks == [4, 4, 3]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 7, 100])
def test_the_size_of_the_chunks_does_not_matter(chunk_rows: int) -> None:
    chunked, whole = MemoryTrace(chunk_rows=chunk_rows), MemoryTrace()
    record_some(chunked.recorder, 12)
    record_some(whole.recorder, 12)
    assert rows_of(chunked) == rows_of(whole)
    assert [each["message"] for each in rows_of(chunked)[::2]] == [
        "ProtocolMessage", "Publication", "Acknowledgement", "Riddle", "Riddle", "Riddle",
    ]  # fmt: skip


def test_a_trace_without_rows_is_a_table_without_rows() -> None:
    assert rows_of(MemoryTrace()) == []


def test_only_a_trace_of_everything_wants_copies() -> None:
    assert MemoryTrace("everything").recorder.wants_copies
    assert not MemoryTrace("deliveries").recorder.wants_copies
