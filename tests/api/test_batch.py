"""Batches as subscribers see them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from antiphon.api.batch import Batch, Message
from antiphon.api.batch_codec import COUNT_BYTES, encode_columns, read_header
from antiphon.api.columns import Columns
from antiphon.kernel.errors import ProtocolError


def batch_of(*values: bytes, first_offset: int = 0, expires_us: list[int] | None = None) -> Batch:
    columns = Columns(7, 1_700_000_000_000_000, list(values), expires_us=expires_us)
    return Batch("room", 3, "fifo", first_offset, encode_columns(columns))


def test_messages_know_their_place() -> None:
    first, second = batch_of(b"a", b"b", first_offset=40).messages()
    assert (first.value, first.sequence, first.offset) == (b"a", 7, 40)
    assert (second.value, second.sequence, second.offset) == (b"b", 8, 41)
    assert (first.topic, first.publisher, first.order, first.key, first.headers) == ("room", 3, "fifo", None, {})
    assert first.timestamp == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert repr(first) == "Message('room', b'a', publisher=3, sequence=7)"


def test_only_what_is_wanted_is_seen() -> None:
    batch = batch_of(b"a", b"b", b"c", first_offset=10, expires_us=[0, 5, 9])
    assert [message.value for message in batch.messages(11, now_us=4)] == [b"b", b"c"]
    assert [message.value for message in batch.messages(0, now_us=5)] == [b"a", b"c"]
    assert [message.value for message in batch.messages(0, now_us=9)] == [b"a"]
    assert (batch.count, batch.end_offset) == (3, 13)


def test_whoever_only_hands_a_batch_on_does_not_read_it() -> None:
    payload = (5).to_bytes(COUNT_BYTES, "little") + b"no columns"
    batch = Batch("room", 3, "causal", 0, payload)
    assert (read_header(payload)[0], len(batch), batch.end_offset) == (5, 5, 5)
    with pytest.raises(ProtocolError, match="holds no batch"):
        batch.messages()


def test_messages_are_freed_when_nobody_holds_them() -> None:
    """Compiled objects are not looked at by the garbage collector: a circle of them would stay for ever."""
    value = b"a value of its own"
    columns = Columns(1, 1, [value])
    batch: Batch | None = Batch("room", 0, "causal", 0, encode_columns(columns), columns)
    held = sys.getrefcount(value)
    messages: list[Message] | None = batch.messages() if batch is not None else None
    assert sys.getrefcount(value) == held + 1
    del messages, columns, batch
    assert sys.getrefcount(value) == held - 1
