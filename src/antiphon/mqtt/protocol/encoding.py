"""Packets into bytes, for both versions. What MQTT 3.1.1 does not know is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.mqtt.protocol import packets as kinds
from antiphon.mqtt.protocol.decoding import (
    CLEAN_FLAG,
    FLAGS_OF_REQUESTS,
    PASSWORD_FLAG,
    USERNAME_FLAG,
    WILL_FLAG,
    WILL_RETAIN_FLAG,
)
from antiphon.mqtt.protocol.fields import binary_bytes, text_bytes, variable_bytes
from antiphon.mqtt.protocol.packets import (
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
)
from antiphon.mqtt.protocol.properties import NOTHING, Properties, properties_bytes


def encode(packet: Packet, version: int) -> bytes:
    """The bytes of a packet."""
    return ENCODERS[type(packet)](packet, version)


def framed(kind: int, flags: int, body: bytes) -> bytes:
    """A body behind the type, the flags and its length."""
    return bytes((kind << 4 | flags,)) + variable_bytes(len(body)) + body


def properties_for(properties: Properties, version: int) -> bytes:
    """The properties, in the version that has them."""
    return properties_bytes(properties) if version == VERSION_5 else b""


def request(kind: int, packet_id: int, properties: Properties, payload: bytes, version: int) -> bytes:
    """SUBSCRIBE or UNSUBSCRIBE."""
    body = packet_id.to_bytes(2, "big") + properties_for(properties, version) + payload
    return framed(kind, FLAGS_OF_REQUESTS, body)


def encode_publish(packet: PublishPacket, version: int) -> bytes:
    """A message."""
    flags = packet.is_duplicate << 3 | packet.qos << 1 | packet.retain
    body = text_bytes(packet.topic)
    if packet.qos:
        body += packet.packet_id.to_bytes(2, "big")
    return framed(kinds.PUBLISH, flags, body + properties_for(packet.properties, version) + packet.payload)


def encode_publish_ack(packet: PublishAckPacket, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    flags = FLAGS_OF_REQUESTS if packet.kind == kinds.PUBREL else 0
    body = packet.packet_id.to_bytes(2, "big") + ending_of(packet.reason, packet.properties, version)
    return framed(packet.kind, flags, body)


def ending_of(reason: int, properties: Properties, version: int) -> bytes:
    """A reason and properties at the end of a packet, where both may be left out."""
    if version == VERSION_3 or (reason == 0 and properties == NOTHING):
        return b""
    return bytes((reason,)) + (b"" if properties == NOTHING else properties_bytes(properties))


def options_of(each: TopicFilter) -> int:
    """The options of a subscription as a byte."""
    return each.qos | each.is_not_local << 2 | each.keeps_retain << 3 | each.retain_handling << 4


def encode_connect(packet: ConnectPacket, _version: int = VERSION_5) -> bytes:
    """The first packet."""
    version, will = packet.version, packet.will
    flags = CLEAN_FLAG if packet.is_clean else 0
    payload = text_bytes(packet.client_id)
    if will is not None:
        flags |= WILL_FLAG | will.qos << 3 | (WILL_RETAIN_FLAG if will.retain else 0)
        payload += properties_for(will.properties, version) + text_bytes(will.topic) + binary_bytes(will.payload)
    if packet.username is not None:
        flags |= USERNAME_FLAG
        payload += text_bytes(packet.username)
    if packet.password is not None:
        flags |= PASSWORD_FLAG
        payload += binary_bytes(packet.password)
    head = binary_bytes(b"MQTT") + bytes((version, flags)) + packet.keep_alive_seconds.to_bytes(2, "big")
    return framed(kinds.CONNECT, 0, head + properties_for(packet.properties, version) + payload)


def encode_ping(packet: PingPacket, _version: int) -> bytes:
    """PINGREQ or PINGRESP."""
    return bytes((packet.kind << 4, 0))


def encode_subscribe(packet: SubscribePacket, version: int) -> bytes:
    """A request to subscribe."""
    filters = b"".join(text_bytes(each.pattern) + bytes((options_of(each),)) for each in packet.filters)
    return request(kinds.SUBSCRIBE, packet.packet_id, packet.properties, filters, version)


def encode_unsubscribe(packet: UnsubscribePacket, version: int) -> bytes:
    """A request to end subscriptions."""
    patterns = b"".join(map(text_bytes, packet.patterns))
    return request(kinds.UNSUBSCRIBE, packet.packet_id, packet.properties, patterns, version)


def encode_subscribe_ack(packet: SubscribeAckPacket, version: int) -> bytes:
    """SUBACK or UNSUBACK; the UNSUBACK of MQTT 3.1.1 has no reasons."""
    reasons = b"" if version == VERSION_3 and packet.kind == kinds.UNSUBACK else bytes(packet.reasons)
    head = packet.packet_id.to_bytes(2, "big") + properties_for(packet.properties, version)
    return framed(packet.kind, 0, head + reasons)


def encode_connack(packet: ConnackPacket, version: int) -> bytes:
    """The answer to the first packet."""
    head = bytes((packet.is_session_present, packet.reason))
    return framed(kinds.CONNACK, 0, head + properties_for(packet.properties, version))


def encode_disconnect(packet: DisconnectPacket, version: int) -> bytes:
    """The last packet of a connection."""
    return framed(kinds.DISCONNECT, 0, ending_of(packet.reason, packet.properties, version))


def encode_auth(packet: AuthPacket, version: int) -> bytes:
    """A step of an enhanced authentication."""
    return framed(kinds.AUTH, 0, ending_of(packet.reason, packet.properties, version))


ENCODERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    PublishPacket: encode_publish,
    PublishAckPacket: encode_publish_ack,
    PingPacket: encode_ping,
    SubscribePacket: encode_subscribe,
    UnsubscribePacket: encode_unsubscribe,
    SubscribeAckPacket: encode_subscribe_ack,
    ConnectPacket: encode_connect,
    ConnackPacket: encode_connack,
    DisconnectPacket: encode_disconnect,
    AuthPacket: encode_auth,
}
"""How each packet is written."""
