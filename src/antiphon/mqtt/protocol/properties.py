"""The properties of MQTT 5: one table says what each is called, how it is written, and where it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from antiphon.mqtt.protocol.fields import FieldReader, binary_bytes, text_bytes, variable_bytes
from antiphon.mqtt.protocol.reasons import MqttError, Reason, broken, malformed


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a packet or of a will. None and the empty tuple mean that a property is not there."""

    payload_format: int | None = None
    message_expiry_seconds: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_seconds: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_seconds: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_seconds: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    has_retain: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_bytes: int | None = None
    has_wildcards: int | None = None
    has_subscription_identifiers: int | None = None
    has_shared_subscriptions: int | None = None


NOTHING: Final = Properties()


class FieldType(NamedTuple):
    """How a kind of field is read and written."""

    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]


BYTE: Final = FieldType(FieldReader.byte, lambda value: bytes((value,)))
TWO: Final = FieldType(FieldReader.two, lambda value: value.to_bytes(2, "big"))
FOUR: Final = FieldType(FieldReader.four, lambda value: value.to_bytes(4, "big"))
VARIABLE: Final = FieldType(FieldReader.variable, variable_bytes)
TEXT: Final = FieldType(FieldReader.text, text_bytes)
BINARY: Final = FieldType(FieldReader.binary, binary_bytes)
PAIR: Final = FieldType(
    lambda reader: (reader.text(), reader.text()), lambda pair: text_bytes(pair[0]) + text_bytes(pair[1])
)

WILL: Final = 0
"""The place of the properties of a will; all others are the number of their packet."""

MESSAGE: Final = frozenset({3, WILL})
ACKS: Final = frozenset({2, 4, 5, 6, 7, 9, 11, 14, 15})
EVERYWHERE: Final = frozenset({*range(1, 12), 14, 15, WILL})
ONLY_CONNECT: Final = frozenset({1})
ONLY_CONNACK: Final = frozenset({2})
BOTH_CONNECTS: Final = frozenset({1, 2})
AUTHENTICATION: Final = frozenset({1, 2, 15})


class PropertyRow(NamedTuple):
    """One property."""

    identifier: int
    field: str
    type: FieldType
    places: frozenset[int]
    may_repeat: bool = False
    is_flag: bool = False
    may_be_zero: bool = True


ROWS: Final = (
    PropertyRow(0x01, "payload_format", BYTE, MESSAGE, is_flag=True),
    PropertyRow(0x02, "message_expiry_seconds", FOUR, MESSAGE),
    PropertyRow(0x03, "content_type", TEXT, MESSAGE),
    PropertyRow(0x08, "response_topic", TEXT, MESSAGE),
    PropertyRow(0x09, "correlation_data", BINARY, MESSAGE),
    PropertyRow(0x0B, "subscription_identifiers", VARIABLE, frozenset({3, 8}), may_repeat=True, may_be_zero=False),
    PropertyRow(0x11, "session_expiry_seconds", FOUR, frozenset({1, 2, 14})),
    PropertyRow(0x12, "assigned_client_id", TEXT, ONLY_CONNACK),
    PropertyRow(0x13, "server_keep_alive_seconds", TWO, ONLY_CONNACK),
    PropertyRow(0x15, "authentication_method", TEXT, AUTHENTICATION),
    PropertyRow(0x16, "authentication_data", BINARY, AUTHENTICATION),
    PropertyRow(0x17, "request_problem_information", BYTE, ONLY_CONNECT, is_flag=True),
    PropertyRow(0x18, "will_delay_seconds", FOUR, frozenset({WILL})),
    PropertyRow(0x19, "request_response_information", BYTE, ONLY_CONNECT, is_flag=True),
    PropertyRow(0x1A, "response_information", TEXT, ONLY_CONNACK),
    PropertyRow(0x1C, "server_reference", TEXT, frozenset({2, 14})),
    PropertyRow(0x1F, "reason_string", TEXT, ACKS),
    PropertyRow(0x21, "receive_maximum", TWO, BOTH_CONNECTS, may_be_zero=False),
    PropertyRow(0x22, "topic_alias_maximum", TWO, BOTH_CONNECTS),
    PropertyRow(0x23, "topic_alias", TWO, frozenset({3})),
    PropertyRow(0x24, "maximum_qos", BYTE, ONLY_CONNACK, is_flag=True),
    PropertyRow(0x25, "has_retain", BYTE, ONLY_CONNACK, is_flag=True),
    PropertyRow(0x26, "user", PAIR, EVERYWHERE, may_repeat=True),
    PropertyRow(0x27, "maximum_packet_bytes", FOUR, BOTH_CONNECTS, may_be_zero=False),
    PropertyRow(0x28, "has_wildcards", BYTE, ONLY_CONNACK, is_flag=True),
    PropertyRow(0x29, "has_subscription_identifiers", BYTE, ONLY_CONNACK, is_flag=True),
    PropertyRow(0x2A, "has_shared_subscriptions", BYTE, ONLY_CONNACK, is_flag=True),
)
BY_IDENTIFIER: Final = {row.identifier: row for row in ROWS}

assert {row.field for row in ROWS} == {each.name for each in fields(Properties)}, "each property has its row"


def read_properties(reader: FieldReader, place: int) -> Properties:
    """The properties of a packet, at this place in it; raises what is wrong with them."""
    length = reader.variable()
    if length == 0:
        return NOTHING
    part = reader.part(length)
    found: dict[str, Any] = {}
    while part.left > 0:
        identifier = part.variable()
        row = BY_IDENTIFIER.get(identifier)
        if row is None or place not in row.places:
            raise malformed(f"the property {identifier:#04x} may not be here")
        value = row.type.read(part)
        check_value(row, value)
        if row.may_repeat and not (row.identifier == 0x0B and place != 3):
            found[row.field] = (*found.get(row.field, ()), value)
        elif row.field in found:
            raise broken(f"the property {row.field} is there twice")
        else:
            found[row.field] = (value,) if row.may_repeat else value
    return Properties(**found)


def check_value(row: PropertyRow, value: Any) -> None:
    """Refuse a value that a property must not have."""
    if row.is_flag and value > 1:
        raise broken(f"the property {row.field} is 0 or 1, not {value}")
    if not row.may_be_zero and value == 0:
        raise broken(f"the property {row.field} must not be 0")
    if row.field == "topic_alias" and value == 0:
        raise MqttError(Reason.TOPIC_ALIAS_INVALID, "a topic alias must not be 0")
    if row.field == "response_topic" and (not value or "+" in value or "#" in value):
        raise broken("a response topic is the name of one topic, without wildcards")


def properties_bytes(properties: Properties) -> bytes:
    """The properties behind their length."""
    if properties is NOTHING or properties == NOTHING:
        return b"\0"
    parts: list[bytes] = []
    for row in ROWS:
        value = getattr(properties, row.field)
        if value is None or value == ():
            continue
        values = value if row.may_repeat else (value,)
        parts += [bytes((row.identifier,)) + row.type.write(each) for each in values]
    body = b"".join(parts)
    return variable_bytes(len(body)) + body
