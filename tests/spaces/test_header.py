"""The headers of spaces as bytes, and sets of publications without those that wait."""

from __future__ import annotations

import pytest

from antiphon.kernel import ProtocolError
from antiphon.kernel.message import publication_key
from antiphon.spaces.header import NOTHING, HeaderPlace, decode_frontier, encode_frontier
from antiphon.spaces.process import without

FRONTIER = {3: {0: 1, 7: 300}, 1 << 61: {5: 1 << 40}}


def test_a_frontier_comes_back_from_its_bytes() -> None:
    assert decode_frontier(encode_frontier(FRONTIER)) == FRONTIER
    assert encode_frontier({}) == encode_frontier({4: {}}) == NOTHING
    assert decode_frontier(NOTHING) == {}


def test_small_entries_take_few_bytes() -> None:
    # One byte for the number of topics; per topic its number and the number of sources; per source two.
    assert len(encode_frontier({1: {0: 5, 1: 6}, 2: {9: 100}})) == 1 + 2 + 4 + 2 + 2


def test_a_payload_keeps_what_is_behind_its_header() -> None:
    place, header = HeaderPlace(), encode_frontier(FRONTIER)
    whole = place.embed(b"payload", header)
    assert place.extract(whole) == header
    assert whole.endswith(b"payload")


@pytest.mark.parametrize("end", range(len(encode_frontier(FRONTIER))))
def test_a_header_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(ProtocolError, match="header of a space"):
        decode_frontier(encode_frontier(FRONTIER)[:end])


@pytest.mark.parametrize("header", [NOTHING + b"\x00", b"\xff" * 12, b"\x01\x00\x01\x00" + b"\x80" * 9 + b"\x01"])
def test_a_header_with_too_much_in_it_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="header of a space"):
        decode_frontier(header)


def test_a_payload_that_is_shorter_than_its_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="shorter than the header"):
        HeaderPlace().extract(b"\x05\x00")


def test_a_frontier_without_what_waits_names_the_rest_one_by_one() -> None:
    keys = [publication_key(1, 5), publication_key(2, 2), ~publication_key(2, 4)]
    found = without(keys, [publication_key(1, 3), publication_key(2, 4)])
    assert found == [publication_key(1, 2), publication_key(2, 2), ~publication_key(1, 4), ~publication_key(1, 5)]
