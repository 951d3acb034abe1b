"""Cuts the bytes of a connection into packets."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.mqtt.protocol.reasons import MqttError, Reason, malformed


class PacketStream:
    """The bytes of one connection: the type and flags of each packet, and its body.

    Nothing longer than ``packet_bytes_at_most`` is ever collected.
    """

    def __init__(self, packet_bytes_at_most: int) -> None:
        self.packet_bytes_at_most = packet_bytes_at_most
        self._waiting = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """How many bytes belong to a packet that is not complete."""
        return len(self._waiting)

    def add(self, data: bytes) -> None:
        """More bytes have come."""
        self._waiting += data

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """The packets that are complete, one after the other; whoever stops early goes on with the next one later."""
        while (found := self.next_packet()) is not None:
            yield found

    def next_packet(self) -> tuple[int, bytes] | None:
        """The first byte and the body of the next packet; None if it is not complete."""
        waiting = self._waiting
        length = 0
        for place in range(1, 5):
            if len(waiting) <= place:
                return None
            digit = waiting[place]
            length |= (digit & 0x7F) << 7 * (place - 1)
            if digit < 0x80:
                break
        else:
            raise malformed("the length of a packet has more than four bytes")
        begin = place + 1
        if begin + length > self.packet_bytes_at_most:
            raise MqttError(
                Reason.PACKET_TOO_LARGE,
                f"a packet of {begin + length} bytes is too long; at most {self.packet_bytes_at_most} fit",
            )
        if len(waiting) < begin + length:
            return None
        first, body = waiting[0], bytes(waiting[begin : begin + length])
        del waiting[: begin + length]
        return first, body
