"""Bytes into packets: what a connection may say, checked as the specifications ask.

Server and client both decode all packets that the other side may send, so one function serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.mqtt.protocol import packets as kinds
from antiphon.mqtt.protocol.fields import FieldReader
from antiphon.mqtt.protocol.packets import (
    PACKET_NAMES,
    VERSION_3,
    VERSION_5,
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingPacket,
    PublishAckPacket,
    PublishPacket,
    SubscribeAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)
from antiphon.mqtt.protocol.properties import NOTHING, WILL, Properties, read_properties
from antiphon.mqtt.protocol.reasons import MqttError, Reason, broken, malformed

USERNAME_FLAG: Final = 0x80
PASSWORD_FLAG: Final = 0x40
WILL_RETAIN_FLAG: Final = 0x20
WILL_FLAG: Final = 0x04
CLEAN_FLAG: Final = 0x02
RESERVED_FLAG: Final = 0x01

FLAGS_OF_REQUESTS: Final = 0x02
"""The flags that PUBREL, SUBSCRIBE and UNSUBSCRIBE must have; other packets than PUBLISH have none."""

QOS_AT_MOST: Final = 2

RECEIVED: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
RELEASED: Final = frozenset({0x00, 0x92})
REASONS_ALLOWED: Final = {
    kinds.PUBACK: RECEIVED,
    kinds.PUBREC: RECEIVED,
    kinds.PUBREL: RELEASED,
    kinds.PUBCOMP: RELEASED,
    kinds.DISCONNECT: frozenset({0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0xA3)}) - {0x91, 0x92},
    kinds.AUTH: frozenset({0x00, 0x18, 0x19}),
}
"""The reasons that a packet may give; CONNACK, SUBACK and UNSUBACK come from servers alone."""


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet with this first byte and body; :class:`MqttError` says what is wrong with it."""
    kind, flags = first >> 4, first & 0x0F
    if kind == kinds.PUBLISH:
        return decode_publish(flags, FieldReader(body), version)
    expected = FLAGS_OF_REQUESTS if kind in (kinds.PUBREL, kinds.SUBSCRIBE, kinds.UNSUBSCRIBE) else 0
    decoder = DECODERS.get(kind)
    if decoder is None or (kind == kinds.AUTH and version != VERSION_5):
        raise malformed(f"there is no packet of type {kind}")
    if flags != expected:
        raise malformed(f"a {PACKET_NAMES[kind]} has the flags {flags:#x} instead of {expected:#x}")
    reader = FieldReader(body)
    packet = decoder(kind, reader, version)
    if reader.left:
        raise malformed(f"a {PACKET_NAMES[kind]} has {reader.left} bytes too many")
    return packet


def properties_of(reader: FieldReader, place: int, version: int) -> Properties:
    """The properties of a packet, which MQTT 3.1.1 does not have."""
    return read_properties(reader, place) if version == VERSION_5 else NOTHING


def decode_publish(flags: int, reader: FieldReader, version: int) -> PublishPacket:
    """A message."""
    qos = flags >> 1 & 3
    if qos > QOS_AT_MOST:
        raise malformed("a PUBLISH has QoS 3")
    if qos == 0 and flags & 8:
        raise malformed("a PUBLISH with QoS 0 is marked as a duplicate")
    topic = reader.text()
    packet_id = packet_id_of(reader) if qos else 0
    properties = properties_of(reader, kinds.PUBLISH, version)
    if "+" in topic or "#" in topic:
        raise MqttError(Reason.TOPIC_NAME_INVALID, f"{topic!r} has a wildcard; a message goes to one topic")
    if not topic and properties.topic_alias is None:
        raise broken("a PUBLISH names no topic")
    return PublishPacket(topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet_id, properties)


def packet_id_of(reader: FieldReader) -> int:
    """The identifier of a packet."""
    found = reader.two()
    if found == 0:
        raise broken("the identifier of a packet must not be 0")
    return found


def reason_of(kind: int, reader: FieldReader) -> int:
    """The reason of a packet that a client may send too."""
    reason = reader.byte()
    if reason not in REASONS_ALLOWED[kind]:
        raise malformed(f"a {PACKET_NAMES[kind]} gives the reason {reason:#04x}, which it must not give")
    return reason


# Connecting.


def decode_connect(kind: int, reader: FieldReader, _version: int) -> ConnectPacket:
    """The first packet, which says in which version the rest is."""
    version = protocol_version(reader)
    flags = reader.byte()
    check_connect_flags(flags, version)
    keep_alive = reader.two()
    properties = properties_of(reader, kind, version)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise broken("there is authentication data without a method")
    client_id = reader.text()
    will = None
    if flags & WILL_FLAG:
        will_properties = properties_of(reader, WILL, version)
        topic, payload = reader.text(), reader.binary()
        if not topic or "+" in topic or "#" in topic:
            raise MqttError(Reason.TOPIC_NAME_INVALID, f"the will goes to {topic!r}, which is no topic")
        will = Will(topic, payload, flags >> 3 & 3, bool(flags & WILL_RETAIN_FLAG), will_properties)
    username = reader.text() if flags & USERNAME_FLAG else None
    password = reader.binary() if flags & PASSWORD_FLAG else None
    return ConnectPacket(version, client_id, bool(flags & CLEAN_FLAG), keep_alive, will, username, password, properties)


def protocol_version(reader: FieldReader) -> int:
    """The level of the protocol; another protocol than MQTT is refused."""
    name = reader.binary()
    version = reader.byte()
    if name != b"MQTT" or version not in (VERSION_3, VERSION_5):
        raise MqttError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION, f"this server speaks MQTT 3.1.1 and 5, not {name[:16]!r} {version}"
        )
    return version


def check_connect_flags(flags: int, version: int) -> None:
    """Refuse flags that contradict each other."""
    if flags & RESERVED_FLAG:
        raise malformed("the reserved flag of a CONNECT is set")
    if flags & WILL_FLAG:
        if flags >> 3 & 3 > QOS_AT_MOST:
            raise malformed("a will has QoS 3")
    elif flags & (WILL_RETAIN_FLAG | 0x18):
        raise malformed("a CONNECT has flags of a will and no will")
    if version == VERSION_3 and flags & PASSWORD_FLAG and not flags & USERNAME_FLAG:
        raise malformed("a CONNECT has a password and no user name")


def decode_connack(kind: int, reader: FieldReader, version: int) -> ConnackPacket:
    """The answer to it."""
    flags = reader.byte()
    if flags > 1:
        raise malformed("reserved flags of a CONNACK are set")
    reason = reader.byte()
    return ConnackPacket(bool(flags), reason, properties_of(reader, kind, version))


# Acknowledging.


def decode_publish_ack(kind: int, reader: FieldReader, version: int) -> PublishAckPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    packet_id = packet_id_of(reader)
    if version == VERSION_3 or not reader.left:
        return PublishAckPacket(kind, packet_id)
    reason = reason_of(kind, reader)
    return PublishAckPacket(kind, packet_id, reason, read_properties(reader, kind) if reader.left else NOTHING)


def decode_subscribe(kind: int, reader: FieldReader, version: int) -> SubscribePacket:
    """A request to subscribe."""
    packet_id = packet_id_of(reader)
    properties = properties_of(reader, kind, version)
    filters: list[TopicFilter] = []
    while reader.left:
        filters.append(filter_of(reader.text(), reader.byte(), version))
    if not filters:
        raise broken("a SUBSCRIBE names no topic filter")
    return SubscribePacket(packet_id, tuple(filters), properties)


def filter_of(pattern: str, options: int, version: int) -> TopicFilter:
    """A topic filter with its options."""
    qos, retain_handling = options & 3, options >> 4 & 3
    if qos > QOS_AT_MOST or options & (0xFC if version == VERSION_3 else 0xC0):
        raise malformed(f"a subscription has the options {options:#04x}")
    if retain_handling > 2:
        raise broken("a subscription asks for a fourth way to handle retained messages; there are three")
    is_not_local = bool(options & 4)
    if is_not_local and pattern.startswith("$share/"):
        raise broken("a shared subscription must not leave out local messages")
    return TopicFilter(pattern, qos, is_not_local, bool(options & 8), retain_handling)


def decode_subscribe_ack(kind: int, reader: FieldReader, version: int) -> SubscribeAckPacket:
    """SUBACK or UNSUBACK."""
    packet_id = packet_id_of(reader)
    properties = properties_of(reader, kind, version)
    return SubscribeAckPacket(kind, packet_id, tuple(reader.rest()), properties)


def decode_unsubscribe(kind: int, reader: FieldReader, version: int) -> UnsubscribePacket:
    """A request to end subscriptions."""
    packet_id = packet_id_of(reader)
    properties = properties_of(reader, kind, version)
    patterns: list[str] = []
    while reader.left:
        patterns.append(reader.text())
    if not patterns:
        raise broken("an UNSUBSCRIBE names no topic filter")
    return UnsubscribePacket(packet_id, tuple(patterns), properties)


# The rest.


def decode_ping(kind: int, _reader: FieldReader, _version: int) -> PingPacket:
    """PINGREQ or PINGRESP."""
    return PingPacket(kind)


def decode_disconnect(kind: int, reader: FieldReader, version: int) -> DisconnectPacket:
    """The last packet of a connection."""
    if version == VERSION_3 or not reader.left:
        return DisconnectPacket()
    reason = reason_of(kind, reader)
    return DisconnectPacket(reason, read_properties(reader, kind) if reader.left else NOTHING)


def decode_auth(kind: int, reader: FieldReader, _version: int) -> AuthPacket:
    """A step of an enhanced authentication."""
    if not reader.left:
        return AuthPacket()
    reason = reason_of(kind, reader)
    return AuthPacket(reason, read_properties(reader, kind) if reader.left else NOTHING)


DECODERS: Final[dict[int, Callable[[int, FieldReader, int], Packet]]] = {
    kinds.CONNECT: decode_connect,
    kinds.CONNACK: decode_connack,
    kinds.PUBACK: decode_publish_ack,
    kinds.PUBREC: decode_publish_ack,
    kinds.PUBREL: decode_publish_ack,
    kinds.PUBCOMP: decode_publish_ack,
    kinds.SUBSCRIBE: decode_subscribe,
    kinds.SUBACK: decode_subscribe_ack,
    kinds.UNSUBSCRIBE: decode_unsubscribe,
    kinds.UNSUBACK: decode_subscribe_ack,
    kinds.PINGREQ: decode_ping,
    kinds.PINGRESP: decode_ping,
    kinds.DISCONNECT: decode_disconnect,
    kinds.AUTH: decode_auth,
}
"""How each packet but PUBLISH is read."""
