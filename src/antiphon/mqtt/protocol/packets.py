"""The packets of MQTT, the same for both versions: what a version does not know is left out when it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from antiphon.mqtt.protocol.properties import NOTHING, Properties

VERSION_3: Final = 4
VERSION_5: Final = 5
"""The protocol levels of MQTT 3.1.1 and 5."""

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

PACKET_NAMES: Final = (
    "RESERVED", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
    "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip

PACKET_IDS: Final = 0xFFFF
"""The largest identifier of a packet."""

PACKET_BYTES_AT_MOST: Final = 268_435_460
"""The longest packet that MQTT knows."""


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the server publishes for a client that is gone without a word."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class ConnectPacket:
    """The first packet of a client."""

    version: int
    client_id: str
    is_clean: bool = True
    keep_alive_seconds: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class ConnackPacket:
    """The answer to it."""

    is_session_present: bool
    reason: int
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class PublishPacket:
    """A message, in either direction. ``packet_id`` is 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    is_duplicate: bool = False
    packet_id: int = 0
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class PublishAckPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as ``kind`` says."""

    kind: int
    packet_id: int
    reason: int = 0
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """One filter of a subscription, with its options."""

    pattern: str
    qos: int = 0
    is_not_local: bool = False
    keeps_retain: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class SubscribePacket:
    """A request to subscribe."""

    packet_id: int
    filters: tuple[TopicFilter, ...]
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class UnsubscribePacket:
    """A request to end subscriptions."""

    packet_id: int
    patterns: tuple[str, ...]
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class SubscribeAckPacket:
    """SUBACK or UNSUBACK, as ``kind`` says, with a reason for each filter."""

    kind: int
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class PingPacket:
    """PINGREQ or PINGRESP, as ``kind`` says."""

    kind: int


@dataclass(frozen=True, slots=True)
class DisconnectPacket:
    """The last packet of a connection."""

    reason: int = 0
    properties: Properties = NOTHING


@dataclass(frozen=True, slots=True)
class AuthPacket:
    """A step of an enhanced authentication."""

    reason: int = 0
    properties: Properties = NOTHING


Packet = (
    ConnectPacket
    | ConnackPacket
    | PublishPacket
    | PublishAckPacket
    | SubscribePacket
    | SubscribeAckPacket
    | UnsubscribePacket
    | PingPacket
    | DisconnectPacket
    | AuthPacket
)
