"""Frames of WebSocket (RFC 6455), as a server reads and writes them: a stream of bytes in binary messages.

MQTT packets and frames need not begin together, so frames are only taken off and put on. Pings are answered, and a
frame that a client must not send ends the connection with the code that the RFC names.
"""

from __future__ import annotations

from typing import Final

from antiphon.kernel.errors import PeerError

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009

FINAL_BIT: Final = 0x80
RESERVED_BITS: Final = 0x70
MASK_BIT: Final = 0x80
CONTROL_BYTES_AT_MOST: Final = 125
"""The longest payload of a frame that is not data."""


class FrameError(PeerError):
    """A client sent a frame that it must not send; the code is what the server says before it closes."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class FrameStream:
    """The frames of one client.

    Data is handed on as it comes, also parts of a frame; nothing is collected but the head of a frame and the payload
    of a control frame.
    """

    def __init__(self, frame_bytes_at_most: int) -> None:
        self._frame_bytes_at_most = frame_bytes_at_most
        self._waiting = bytearray()
        # Of the data frame that has begun: how much is missing, its mask, and how far the mask is used.
        self._missing = 0
        self._mask = b""
        self._is_within_message = False
        self.is_closed = False

    def add(self, data: bytes) -> tuple[bytes, bytes]:
        """More bytes have come: the data in them, and what is to be answered."""
        self._waiting += data
        found: list[bytes] = []
        answers: list[bytes] = []
        while not self.is_closed:
            if self._missing:
                if not self._waiting:
                    break
                found.append(self._take_data())
            elif not self._take_head(answers):
                break
        return b"".join(found), b"".join(answers)

    def _take_data(self) -> bytes:
        part = bytes(self._waiting[: self._missing])
        del self._waiting[: len(part)]
        self._missing -= len(part)
        turn = len(part) % 4
        unmasked = masked(part, self._mask)
        # The next part begins within the mask.
        self._mask = self._mask[turn:] + self._mask[:turn]
        return unmasked

    def _take_head(self, answers: list[bytes]) -> bool:
        """Take the head of the next frame, and all of a control frame; whether it is complete."""
        waiting = self._waiting
        if len(waiting) < 2:
            return False
        kind, is_final = waiting[0] & 0x0F, bool(waiting[0] & FINAL_BIT)
        short = waiting[1] & 0x7F
        extra = 8 if short == 127 else 2 if short == 126 else 0
        self._check_head(kind, is_final, short)
        begin = 2 + extra + 4
        if len(waiting) < begin:
            return False
        length = int.from_bytes(waiting[2 : 2 + extra], "big") if extra else short
        if length > self._frame_bytes_at_most:
            raise FrameError(TOO_BIG, f"a frame of {length} bytes is too long; at most {self._frame_bytes_at_most} fit")
        mask = bytes(waiting[begin - 4 : begin])
        if kind in (CONTINUATION, BINARY):
            del waiting[:begin]
            self._is_within_message = not is_final
            self._missing, self._mask = length, mask
            return True
        if len(waiting) < begin + length:
            return False
        payload = masked(bytes(waiting[begin : begin + length]), mask)
        del waiting[: begin + length]
        if kind == PING:
            answers.append(frame(PONG, payload))
        elif kind == CLOSE:
            self.is_closed = True
            answers.append(frame(CLOSE, payload[:2] if len(payload) >= 2 else b""))
        return True

    def _check_head(self, kind: int, is_final: bool, short: int) -> None:
        first, second = self._waiting[0], self._waiting[1]
        if first & RESERVED_BITS:
            raise FrameError(PROTOCOL_ERROR, "a frame has reserved bits: no extension was agreed")
        if not second & MASK_BIT:
            raise FrameError(PROTOCOL_ERROR, "a frame of a client is not masked")
        if kind == TEXT:
            raise FrameError(UNSUPPORTED_DATA, "MQTT travels in binary messages, and this is a text")
        if kind not in (CONTINUATION, BINARY, CLOSE, PING, PONG):
            raise FrameError(PROTOCOL_ERROR, f"there is no frame of type {kind}")
        if kind >= CLOSE and (not is_final or short > CONTROL_BYTES_AT_MOST):
            raise FrameError(PROTOCOL_ERROR, "a control frame is in parts, or too long")
        if kind in (CONTINUATION, BINARY) and (kind == CONTINUATION) != self._is_within_message:
            raise FrameError(PROTOCOL_ERROR, "a message begins within another one, or goes on without one")


def masked(data: bytes, mask: bytes) -> bytes:
    """Data with a mask put on or taken off."""
    if not data:
        return data
    pattern = (mask * (len(data) // 4 + 1))[: len(data)]
    whole = int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")
    return whole.to_bytes(len(data), "big")


def frame(kind: int, payload: bytes) -> bytes:
    """A frame of the server, whole and without a mask."""
    return head(kind, len(payload)) + payload


def head(kind: int, length: int) -> bytes:
    """The head of a frame of the server."""
    first = bytes((FINAL_BIT | kind,))
    if length <= CONTROL_BYTES_AT_MOST:
        return first + bytes((length,))
    if length < 1 << 16:
        return first + b"\x7e" + length.to_bytes(2, "big")
    return first + b"\x7f" + length.to_bytes(8, "big")


def close_frame(code: int) -> bytes:
    """The last frame of the server."""
    return frame(CLOSE, code.to_bytes(2, "big"))
