"""The receiver's end of QoS 1 and 2: which messages of a client are being accepted, and which are known already.

Acknowledgements leave in the order in which the messages came, whatever the order in which they were accepted. The
record of messages with QoS 2 outlives connections, so a message that comes again is not published again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from antiphon.mqtt.protocol.packets import PUBACK, PUBCOMP, PUBREC, PublishAckPacket, PublishPacket
from antiphon.mqtt.protocol.reasons import FIRST_FAILURE, MqttError, Reason

RECEIVE_MAXIMUM: Final = 1024
"""So many messages with QoS 1 and 2 of one client may be unacknowledged; a CONNACK says so."""


@dataclass(slots=True)
class IncomingMessage:
    """A message that has come; its reason is None until it is accepted or refused."""

    packet_id: int
    kind: int
    reason: int | None = None


class IncomingMessages:
    """Messages with QoS 1 and 2 that a client has sent."""

    def __init__(self) -> None:
        # Identifiers with QoS 2 that were acknowledged and are not released yet.
        self._unreleased: set[int] = set()
        self._begun: dict[int, IncomingMessage] = {}
        # What is to be acknowledged on this connection, in the order in which it came.
        self._waiting: deque[IncomingMessage] = deque()

    def __len__(self) -> int:
        return len(self._begun) + len(self._unreleased)

    def begin(self, packet: PublishPacket) -> IncomingMessage | None:
        """A message has come: the record to settle when it is accepted or refused; None if it was published before."""
        packet_id, kind = packet.packet_id, PUBACK if packet.qos == 1 else PUBREC
        known = self._begun.get(packet_id)
        if known is not None and (known.kind != kind or known in self._waiting):
            raise MqttError(Reason.PACKET_IDENTIFIER_IN_USE, f"a message with the identifier {packet_id} is under way")
        if known is None and packet_id in self._unreleased:
            if kind == PUBACK:
                raise MqttError(
                    Reason.PACKET_IDENTIFIER_IN_USE, f"the identifier {packet_id} is in use until its PUBREL"
                )
            self._unreleased.discard(packet_id)
            known = self._begun[packet_id] = IncomingMessage(packet_id, kind, Reason.SUCCESS)
        if known is not None:
            self._waiting.append(known)
            return None
        if len(self) >= RECEIVE_MAXIMUM:
            raise MqttError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED, f"{RECEIVE_MAXIMUM} messages of the client are not acknowledged"
            )
        message = self._begun[packet_id] = IncomingMessage(packet_id, kind)
        self._waiting.append(message)
        return message

    def acknowledgements(self) -> list[PublishAckPacket]:
        """The acknowledgements that may leave now: of all messages before the first one that is not settled."""
        found: list[PublishAckPacket] = []
        while self._waiting and (reason := self._waiting[0].reason) is not None:
            message = self._waiting.popleft()
            del self._begun[message.packet_id]
            if message.kind == PUBREC and reason < FIRST_FAILURE:
                self._unreleased.add(message.packet_id)
            found.append(PublishAckPacket(message.kind, message.packet_id, reason))
        return found

    def on_pubrel(self, release: PublishAckPacket) -> PublishAckPacket:
        """The client knows that a message was accepted; the PUBCOMP that answers."""
        is_known = release.packet_id in self._unreleased
        self._unreleased.discard(release.packet_id)
        reason = Reason.SUCCESS if is_known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        return PublishAckPacket(PUBCOMP, release.packet_id, reason)

    def connection_ended(self) -> None:
        """Nothing is acknowledged any more; the client sends again what it has not heard of."""
        for message in self._waiting:
            if message.kind == PUBACK:
                del self._begun[message.packet_id]
        self._waiting.clear()

    # Going to another server of the cluster.

    def unreleased(self) -> list[int]:
        """The identifiers with QoS 2 that were taken and are not released, for another server."""
        return sorted(self._unreleased | {each.packet_id for each in self._begun.values() if each.kind == PUBREC})

    def restore(self, unreleased: Iterable[int]) -> None:
        """Go on with what another server has taken."""
        self._unreleased.update(unreleased)
