"""The header of a space: what a publication names of the topics of its space, as bytes.

A *frontier* here says per topic and source up to which number publications come first. It is written as variable-length
integers: the number of topics, and for each its number, the number of sources, and per source the difference from the
source before and the number.
"""

from __future__ import annotations

from antiphon.kernel.errors import ProtocolError

Frontier = dict[int, dict[int, int]]
"""By topic and source: the number up to which publications are meant."""

NOTHING = b"\x00"
"""The header of a publication that names nothing."""

LONGEST_NUMBER_BITS = 63


def encode_frontier(frontier: Frontier) -> bytes:
    """A frontier as bytes; equal frontiers give equal bytes."""
    out = bytearray()
    topics = [(topic, entries) for topic, entries in sorted(frontier.items()) if entries]
    add_number(out, len(topics))
    for topic, entries in topics:
        add_number(out, topic)
        add_number(out, len(entries))
        before = 0
        for source, number in sorted(entries.items()):
            add_number(out, source - before)
            add_number(out, number)
            before = source
    return bytes(out)


def decode_frontier(header: bytes) -> Frontier:
    """The frontier of a header; :class:`ProtocolError` if the bytes are none."""
    reader = NumberReader(header)
    frontier: Frontier = {}
    for _ in range(reader.next()):
        topic = reader.next()
        entries = frontier.setdefault(topic, {})
        source = 0
        for _ in range(reader.next()):
            source += reader.next()
            entries[source] = reader.next()
    if not reader.is_at_end():
        raise ProtocolError(f"the header of a space has bytes behind its end; it is {len(header)} bytes long")
    return frontier


def sorted_frontier(frontier: Frontier) -> str:
    """A frontier as text, the same for equal ones."""
    return str([(topic, sorted(entries.items())) for topic, entries in sorted(frontier.items()) if entries])


def add_number(out: bytearray, number: int) -> None:
    """Append a number: seven bits per byte, the low ones first, the top bit set where more follow."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class NumberReader:
    """Reads variable-length numbers from bytes of a peer."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self.position = 0

    def next(self) -> int:
        """The next number; :class:`ProtocolError` if the bytes end within it, or it is too large."""
        number = shift = 0
        while True:
            if self.position >= len(self._encoded) or shift >= LONGEST_NUMBER_BITS:
                raise ProtocolError("the header of a space is cut off or has a number that is too large")
            byte = self._encoded[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def is_at_end(self) -> bool:
        """Whether all bytes are read."""
        return self.position == len(self._encoded)


class HeaderPlace:
    """Where a host puts the header of a space: before the payload, with its length. Hosts with batches override it."""

    def embed(self, payload: bytes, header: bytes) -> bytes:
        """A payload with a header."""
        out = bytearray()
        add_number(out, len(header))
        return bytes(out) + header + payload

    def extract(self, payload: bytes) -> bytes:
        """The header of a payload."""
        reader = NumberReader(payload)
        length = reader.next()
        begin = reader.position
        if begin + length > len(payload):
            raise ProtocolError(f"a payload of {len(payload)} bytes is shorter than the header of its space")
        return payload[begin : begin + length]
