"""The content of batches: what comes back, and what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import decode_columns, encode_columns, read_header
from antiphon.api.columns import Columns, Follows
from antiphon.kernel.errors import ProtocolError


@st.composite
def columns_of_a_batch(draw: st.DrawFn) -> Columns:
    count = draw(st.integers(0, 5))

    def column(entries: st.SearchStrategy[object]) -> object:
        return draw(st.none() | st.lists(entries, min_size=count, max_size=count))

    values = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count))
    keys = column(st.none() | st.binary(max_size=5))
    headers = column(st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=2))
    expires = column(st.integers(0, (1 << 62) - 1))
    follows = column(
        st.none()
        | st.builds(
            Follows, st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 9), max_size=4)), st.booleans()
        )
    )
    times = st.integers(0, 253_402_300_799_999_999)
    first = draw(st.integers(1, (1 << 62) - 1))
    return Columns(first, draw(times), values, keys, headers, expires, None, None, follows)  # type: ignore[arg-type]


@given(columns_of_a_batch())
def test_columns_come_back_as_they_were(columns: Columns) -> None:
    payload = encode_columns(columns)
    assert decode_columns(payload) == columns
    assert read_header(payload)[0] == len(columns.values)
    batch = Batch("room", 3, "fifo", 10, payload)
    assert len(batch) == len(columns.values) and batch.end_offset == 10 + len(columns.values)
    for place, message in enumerate(batch.messages()):
        assert message.value == columns.values[place]
        assert message.key == (columns.keys and columns.keys[place])
        assert message.headers == ((columns.headers and columns.headers[place]) or {})
        assert (message.sequence, message.offset) == (columns.first_sequence + place, 10 + place)
        assert (message.timestamp_us, message.order, message.publisher) == (columns.timestamp_us, "fifo", 3)


@given(columns_of_a_batch(), st.data())
def test_damaged_batches_are_refused_or_are_other_batches(columns: Columns, data: st.DataObject) -> None:
    payload = bytearray(encode_columns(columns))
    for place in data.draw(st.lists(st.integers(0, len(payload) * 8 - 1), min_size=1, max_size=4)):
        payload[place // 8] ^= 1 << place % 8
    cut = data.draw(st.integers(0, len(payload)))
    try:
        found = decode_columns(bytes(payload[:cut]))
    except ProtocolError:
        return
    assert len(found.values) == read_header(bytes(payload))[0]


@pytest.mark.parametrize("place", [2, 3, 4, 5, 8])
def test_columns_of_different_lengths_are_refused(place: int) -> None:
    fields: list[object] = [1, 0, [b"a", b"b"], [None, b"k"], [{}, None], [0, 1], None, None, [None, [{}, True]]]
    decode_columns((2).to_bytes(4, "little") + msgspec.msgpack.encode(fields))
    column = fields[place]
    assert isinstance(column, list)
    column.pop()
    with pytest.raises(ProtocolError, match="a column of 1 entries"):
        decode_columns((2).to_bytes(4, "little") + msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\xc0"])
def test_what_holds_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="holds no batch"):
        decode_columns(payload)


def test_names_of_headers_that_are_no_text_are_refused() -> None:
    payload = encode_columns(Columns(1, 0, [b""], headers=[{"name": b""}]))
    with pytest.raises(ProtocolError, match="holds no batch"):
        decode_columns(payload.replace(b"name", b"nam\xff"))
