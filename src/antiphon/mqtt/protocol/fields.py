"""The types of which packets are made, as bytes: numbers, texts and binary data."""

from __future__ import annotations

from typing import Final

from antiphon.mqtt.protocol.reasons import malformed

VARIABLE_AT_MOST: Final = 268_435_455
"""The largest number of variable length: 28 bits in four bytes."""

BYTES_AT_MOST: Final = 0xFFFF
"""The longest text or binary field."""


class FieldReader:
    """Reads the fields of one packet; what is missing or wrong is a malformed packet."""

    __slots__ = ("_body", "_end", "position")

    def __init__(self, body: bytes, position: int = 0, end: int | None = None) -> None:
        self._body = body
        self.position = position
        self._end = len(body) if end is None else end

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return self._end - self.position

    def part(self, length: int) -> FieldReader:
        """A reader of the next bytes, which this one passes over."""
        if length > self.left:
            raise malformed("a packet ends within its properties")
        found = FieldReader(self._body, self.position, self.position + length)
        self.position += length
        return found

    def rest(self) -> bytes:
        """All that is left."""
        found = self._body[self.position : self._end]
        self.position = self._end
        return found

    def bytes_of(self, length: int) -> bytes:
        """So many bytes."""
        begin, end = self.position, self.position + length
        if end > self._end:
            raise malformed("a packet ends within a field")
        self.position = end
        return self._body[begin:end]

    def byte(self) -> int:
        """A number of one byte."""
        begin = self.position
        if begin >= self._end:
            raise malformed("a packet ends before all of its fields")
        self.position = begin + 1
        return self._body[begin]

    def two(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.bytes_of(2), "big")

    def four(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self.bytes_of(4), "big")

    def variable(self) -> int:
        """A number of one to four bytes, in as few as it needs."""
        value = 0
        for place in range(4):
            digit = self.byte()
            value |= (digit & 0x7F) << 7 * place
            if digit < 0x80:
                if place > 0 and digit == 0:
                    raise malformed("a number of variable length has more bytes than it needs")
                return value
        raise malformed("a number of variable length has more than four bytes")

    def binary(self) -> bytes:
        """Bytes, behind their length."""
        return self.bytes_of(self.two())

    def text(self) -> str:
        """A text in UTF-8 without U+0000, behind its length."""
        try:
            found = self.binary().decode("utf-8")
        except UnicodeDecodeError as error:
            raise malformed(f"a text is not valid UTF-8: {error.reason}") from error
        if "\0" in found:
            raise malformed("a text has the character U+0000")
        return found


def variable_bytes(value: int) -> bytes:
    """A number of variable length."""
    if value < 0x80:
        return bytes((value,))
    if value > VARIABLE_AT_MOST:
        raise malformed(f"a packet of {value} bytes is longer than MQTT allows")
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def binary_bytes(value: bytes) -> bytes:
    """Bytes, behind their length."""
    if len(value) > BYTES_AT_MOST:
        raise malformed(f"a field of {len(value)} bytes is longer than {BYTES_AT_MOST}")
    return len(value).to_bytes(2, "big") + value


def text_bytes(value: str) -> bytes:
    """A text, behind its length."""
    return binary_bytes(value.encode("utf-8"))
