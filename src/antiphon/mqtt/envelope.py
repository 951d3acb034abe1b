"""A message on both sides: what a PUBLISH says beside its payload, as headers of a message of Antiphon.

User properties are headers; with ``antiphon-order`` and ``antiphon-key`` a client chooses the order and the key of a
message. The header ``mqtt`` carries the rest. A message that no MQTT client has published counts as one with QoS 2.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.api.batch import Message
from antiphon.kernel.message import ORDER_NAMES
from antiphon.mqtt.protocol.packets import PublishPacket, Will
from antiphon.mqtt.protocol.properties import NOTHING, Properties
from antiphon.mqtt.protocol.reasons import MqttError, Reason

HEADER: Final = "mqtt"
ORDER_PROPERTY: Final = "antiphon-order"
KEY_PROPERTY: Final = "antiphon-key"
MOST_TTL_SECONDS: Final = 10 * 365 * 86_400
LEAST_TTL_SECONDS: Final = 0.001
"""A message that expires at once still reaches those who are connected."""


class MqttEnvelope(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The parts of a PUBLISH beside topic and payload. ``sender`` is the session that published it."""

    qos: int = 2
    retain: bool = False
    sender: int = 0
    payload_format: int | None = None
    message_expiry_seconds: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    # The user properties, if headers cannot say them: names that stand twice, or in another order.
    user: tuple[tuple[str, str], ...] | None = None


FOREIGN_ENVELOPE: Final = MqttEnvelope()
encoder: Final = msgspec.msgpack.Encoder()
decoder: Final = msgspec.msgpack.Decoder(MqttEnvelope)


class Outline(msgspec.Struct, frozen=True):
    """The arguments of ``publish`` beside topic and value."""

    headers: dict[str, bytes]
    order: str | None = None
    key: str | None = None
    ttl_seconds: float | None = None

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments."""
        return {"headers": self.headers, "order": self.order, "key": self.key, "ttl_seconds": self.ttl_seconds}


def outline_of(packet: PublishPacket | Will, sender: int) -> Outline:
    """How a message of a client is published."""
    properties = packet.properties
    if properties is NOTHING or properties == NOTHING:
        return Outline({HEADER: encoder.encode(MqttEnvelope(packet.qos, packet.retain, sender))})
    if properties.payload_format == 1:
        check_text(packet.payload)
    chosen = dict(properties.user)
    order = chosen.get(ORDER_PROPERTY)
    if order is not None and order not in ORDER_NAMES:
        raise MqttError(
            Reason.IMPLEMENTATION_SPECIFIC,
            f"{ORDER_PROPERTY} is {', '.join(ORDER_NAMES)}, not {order!r}; choose one of these",
        )
    headers = {name: value.encode() for name, value in properties.user if name != HEADER}
    is_exact = tuple((name, value.decode()) for name, value in headers.items()) == properties.user
    envelope = MqttEnvelope(
        packet.qos,
        packet.retain,
        sender,
        properties.payload_format,
        properties.message_expiry_seconds,
        properties.content_type,
        properties.response_topic,
        properties.correlation_data,
        None if is_exact else properties.user,
    )
    headers[HEADER] = encoder.encode(envelope)
    expiry = properties.message_expiry_seconds
    ttl = None if expiry is None or expiry > MOST_TTL_SECONDS else max(expiry, LEAST_TTL_SECONDS)
    return Outline(headers, order, chosen.get(KEY_PROPERTY), ttl)


def check_text(payload: bytes) -> None:
    """Refuse a payload that is said to be text and is not."""
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise MqttError(Reason.PAYLOAD_FORMAT_INVALID, "the payload is said to be UTF-8 and is not") from error


def envelope_of(headers: dict[str, bytes]) -> MqttEnvelope:
    """The parts of the PUBLISH beside topic and payload."""
    found = headers.get(HEADER)
    if found is None:
        return FOREIGN_ENVELOPE
    try:
        return decoder.decode(found)
    except msgspec.MsgspecError:
        # A program that uses the header for something else.
        return FOREIGN_ENVELOPE


def properties_of_message(message: Message, envelope: MqttEnvelope, age_seconds: float) -> Properties:
    """The properties with which MQTT clients see a message."""
    return described(envelope, all_user_properties(message, envelope), age_seconds)


def all_user_properties(message: Message, envelope: MqttEnvelope) -> tuple[tuple[str, str], ...]:
    """The user properties with which MQTT clients see a message: its headers and its key."""
    user = envelope.user
    if user is None:
        user = user_properties_of(message.headers)
    key = message.key
    if key is not None and KEY_PROPERTY not in dict(user):
        user = (*user, *user_properties_of({KEY_PROPERTY: key}))
    return user


def described(envelope: MqttEnvelope, user: tuple[tuple[str, str], ...], age_seconds: float) -> Properties:
    """The properties that an envelope and user properties make."""
    expiry = envelope.message_expiry_seconds
    return Properties(
        payload_format=envelope.payload_format,
        message_expiry_seconds=None if expiry is None else max(0, expiry - int(age_seconds)),
        content_type=envelope.content_type,
        response_topic=envelope.response_topic,
        correlation_data=envelope.correlation_data,
        user=user,
    )


def user_properties_of(headers: dict[str, bytes]) -> tuple[tuple[str, str], ...]:
    """The headers that are texts, as user properties."""
    found: list[tuple[str, str]] = []
    for name, value in headers.items():
        if name == HEADER:
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in name + text:
            found.append((name, text))
    return tuple(found)
