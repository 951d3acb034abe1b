"""The sender's end of QoS 1 and 2: which messages are on their way to a client, and how far each has come.

It outlives connections. After a reconnection the client gets again what it has not acknowledged, in the order in which
it was first sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from antiphon.mqtt.protocol.decoding import decode
from antiphon.mqtt.protocol.encoding import encode
from antiphon.mqtt.protocol.framing import PacketStream
from antiphon.mqtt.protocol.packets import (
    PACKET_BYTES_AT_MOST,
    PACKET_IDS,
    PUBREL,
    VERSION_5,
    PublishAckPacket,
    PublishPacket,
)
from antiphon.mqtt.protocol.reasons import FIRST_FAILURE, Reason, broken

UNACKED_AT_MOST: Final = 1024
UNACKED_BYTES: Final = 4 << 20
"""So much is sent to a client before it acknowledges something; one message may be larger."""


class OutgoingMessages:
    """Messages with QoS 1 and 2 that a client has not acknowledged."""

    def __init__(self) -> None:
        self.receive_maximum = UNACKED_AT_MOST
        self._bytes = 0
        # By packet identifier: the message, or None when the client has it and only the exchange has to end.
        self._unacked: dict[int, PublishPacket | None] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._unacked)

    @property
    def has_room(self) -> bool:
        """Whether the client takes another message."""
        return len(self._unacked) < self.receive_maximum and self._bytes < UNACKED_BYTES

    def take_at_most(self, receive_maximum: int | None) -> None:
        """The client says how many messages it takes before it acknowledges one."""
        self.receive_maximum = min(receive_maximum or UNACKED_AT_MOST, UNACKED_AT_MOST)

    def begin(self, packet: PublishPacket) -> PublishPacket:
        """A message goes out for the first time; the answer is the packet with its identifier."""
        assert self.has_room, "who sends asks first"
        packet_id = self._last_id
        while True:
            packet_id = packet_id % PACKET_IDS + 1
            if packet_id not in self._unacked:
                break
        self._last_id = packet_id
        numbered = replace(packet, packet_id=packet_id)
        self._unacked[packet_id] = numbered
        self._bytes += len(packet.payload)
        return numbered

    def forget(self, packet_id: int) -> None:
        """A message has arrived, was refused, or is longer than the client takes."""
        packet = self._unacked.pop(packet_id, None)
        if packet is not None:
            self._bytes -= len(packet.payload)

    def on_puback(self, ack: PublishAckPacket) -> None:
        """The client has a message with QoS 1."""
        packet = self._unacked.get(ack.packet_id)
        if packet is None or packet.qos != 1:
            raise broken(f"a PUBACK names the identifier {ack.packet_id}, which no message with QoS 1 has")
        self.forget(ack.packet_id)

    def on_pubrec(self, ack: PublishAckPacket) -> PublishAckPacket | None:
        """The client has a message with QoS 2, or refuses it; the PUBREL that answers, if one does."""
        if ack.packet_id not in self._unacked:
            return PublishAckPacket(PUBREL, ack.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)
        packet = self._unacked[ack.packet_id]
        if packet is not None and packet.qos != 2:
            raise broken(f"a PUBREC names the identifier {ack.packet_id}, which no message with QoS 2 has")
        if ack.reason >= FIRST_FAILURE:
            self.forget(ack.packet_id)
            return None
        if packet is not None:
            self._bytes -= len(packet.payload)
        self._unacked[ack.packet_id] = None
        return PublishAckPacket(PUBREL, ack.packet_id)

    def on_pubcomp(self, ack: PublishAckPacket) -> None:
        """The exchange about a message with QoS 2 has ended."""
        if self._unacked.get(ack.packet_id, ack) is None:
            del self._unacked[ack.packet_id]
        elif ack.packet_id in self._unacked:
            raise broken(f"a PUBCOMP names the identifier {ack.packet_id}, about which no PUBREL was sent")

    def resumed(self) -> list[PublishPacket | PublishAckPacket]:
        """The first packets for a client that has connected again: messages as duplicates, and releases."""
        return [
            PublishAckPacket(PUBREL, packet_id) if packet is None else replace(packet, is_duplicate=True)
            for packet_id, packet in self._unacked.items()
        ]

    # Going to another server of the cluster.

    def state(self) -> tuple[list[tuple[int, bytes | None]], int]:
        """The packets under way by their identifiers, and the last identifier, for another server."""
        found = [
            (packet_id, None if packet is None else encode(packet, VERSION_5))
            for packet_id, packet in self._unacked.items()
        ]
        return found, self._last_id

    def restore(self, unacked: list[tuple[int, bytes | None]], last_id: int) -> None:
        """Go on with what another server had under way."""
        self._last_id = last_id
        for packet_id, data in unacked:
            packet: PublishPacket | None = None
            if data is not None:
                stream = PacketStream(PACKET_BYTES_AT_MOST)
                stream.add(data)
                found = stream.next_packet()
                assert found is not None, "a server sends whole packets"
                decoded = decode(*found, VERSION_5)
                assert isinstance(decoded, PublishPacket), "only messages are under way"
                packet = decoded
                self._bytes += len(packet.payload)
            self._unacked[packet_id] = packet
