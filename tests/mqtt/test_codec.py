"""Packets and bytes: golden bytes written by hand, round trips, and what is no packet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.mqtt.protocol import packets as kinds
from antiphon.mqtt.protocol import properties as types
from antiphon.mqtt.protocol.decoding import decode
from antiphon.mqtt.protocol.encoding import encode
from antiphon.mqtt.protocol.framing import PacketStream
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
    Will,
)
from antiphon.mqtt.protocol.properties import ROWS, WILL, Properties
from antiphon.mqtt.protocol.reasons import MqttError, Reason

GOLDEN = [
    (VERSION_3, "10 0d 0004 4d515454 04 02 003c 0001 61", ConnectPacket(4, "a", keep_alive_seconds=60)),
    (
        VERSION_5,
        "10 20 0004 4d515454 05 ee 0000 05 1100000010 0001 61 00 0001 74 0001 6d 0001 75 0001 70",
        ConnectPacket(
            5, "a", will=Will("t", b"m", 1, True), username="u", password=b"p",
            properties=Properties(session_expiry_seconds=16),
        ),
    ),
    (VERSION_3, "20 02 01 00", ConnackPacket(True, 0)),
    (VERSION_5, "20 06 00 87 03 2100 0a", ConnackPacket(False, 0x87, Properties(receive_maximum=10))),
    (VERSION_3, "30 05 0003 612f62", PublishPacket("a/b", b"")),
    (VERSION_3, "3d 09 0003 612f62 000a 6869", PublishPacket("a/b", b"hi", 2, True, True, 10)),
    (
        VERSION_5,
        "32 0a 0001 74 0007 02 0101 6869",
        PublishPacket("t", b"hi", 1, packet_id=7, properties=Properties(payload_format=1)),
    ),
    (VERSION_3, "40 02 0007", PublishAckPacket(kinds.PUBACK, 7)),
    (VERSION_5, "50 03 0007 10", PublishAckPacket(kinds.PUBREC, 7, 0x10)),
    (VERSION_5, "62 02 0007", PublishAckPacket(kinds.PUBREL, 7)),
    (VERSION_5, "70 08 0007 92 04 1f0001 78", PublishAckPacket(kinds.PUBCOMP, 7, 0x92, Properties(reason_string="x"))),
    (VERSION_3, "82 08 0001 0003 612f23 02", SubscribePacket(1, (TopicFilter("a/#", 2),))),
    (
        VERSION_5,
        "82 0a 0001 02 0b05 0001 2b 2d 00",
        None,  # the last byte is the beginning of a filter that never comes
    ),
    (
        VERSION_5,
        "82 09 0001 02 0b05 0001 2b 2d",
        SubscribePacket(1, (TopicFilter("+", 1, True, True, 2),), Properties(subscription_identifiers=(5,))),
    ),
    (VERSION_3, "90 04 0001 02 80", SubscribeAckPacket(kinds.SUBACK, 1, (2, 0x80))),
    (VERSION_5, "a2 06 0001 00 0001 74", UnsubscribePacket(1, ("t",))),
    (VERSION_3, "b0 02 0001", SubscribeAckPacket(kinds.UNSUBACK, 1, ())),
    (VERSION_5, "b0 04 0001 00 11", SubscribeAckPacket(kinds.UNSUBACK, 1, (0x11,))),
    (VERSION_3, "c0 00", PingPacket(kinds.PINGREQ)),
    (VERSION_3, "d0 00", PingPacket(kinds.PINGRESP)),
    (VERSION_3, "e0 00", DisconnectPacket()),
    (VERSION_5, "e0 01 04", DisconnectPacket(4)),
    (VERSION_5, "f0 00", AuthPacket()),
]  # fmt: skip


def decoded(data: bytes, version: int) -> Packet:
    stream = PacketStream(1 << 20)
    stream.add(data)
    found = stream.next_packet()
    assert found is not None
    assert stream.waiting_bytes == 0
    return decode(*found, version)


@pytest.mark.parametrize(("version", "digits", "packet"), GOLDEN)
def test_packets_have_the_bytes_of_the_specification(version: int, digits: str, packet: Packet | None) -> None:
    data = bytes.fromhex(digits)
    if packet is None:
        with pytest.raises(MqttError, match="ends"):
            decoded(data, version)
        return
    assert decoded(data, version) == packet
    assert encode(packet, version) == data


# Round trips.

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NAMES = TEXTS.filter(lambda name: name and not set(name) & {"+", "#"})
IDS = st.integers(1, 65_535)


REASONS = {
    kinds.PUBACK: [0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
    kinds.PUBREC: [0, 0x10, 0x80, 0x99],
    kinds.PUBREL: [0, 0x92],
    kinds.PUBCOMP: [0, 0x92],
    kinds.DISCONNECT: [0, 4, 0x80, 0x8B, 0x8D, 0x98, 0xA2],
    kinds.AUTH: [0, 0x18, 0x19],
}


def value_of(row: Any) -> st.SearchStrategy[Any]:
    numbers = {types.BYTE: 255, types.TWO: 65_535, types.FOUR: 2**32 - 1, types.VARIABLE: 268_435_455}
    if row.type in numbers:
        return st.integers(
            0 if row.may_be_zero and row.field != "topic_alias" else 1, 1 if row.is_flag else numbers[row.type]
        )
    if row.field == "response_topic":
        return NAMES
    return {types.TEXT: TEXTS, types.BINARY: st.binary(max_size=12), types.PAIR: st.tuples(TEXTS, TEXTS)}[row.type]


def properties_at(place: int) -> st.SearchStrategy[Properties]:
    wanted: dict[str, st.SearchStrategy[Any]] = {}
    for row in ROWS:
        if place not in row.places:
            continue
        each = value_of(row)
        if row.may_repeat:
            most = 1 if row.field == "subscription_identifiers" and place == kinds.SUBSCRIBE else 3
            wanted[row.field] = st.lists(each, max_size=most).map(tuple)
        else:
            wanted[row.field] = st.none() | each
    return st.builds(Properties, **wanted)


def packets_of(version: int) -> st.SearchStrategy[Packet]:
    def at(place: int) -> st.SearchStrategy[Properties]:
        return properties_at(place) if version == VERSION_5 else st.just(Properties())

    def reasons(kind: int) -> st.SearchStrategy[int]:
        return st.sampled_from(REASONS[kind]) if version == VERSION_5 else st.just(0)

    codes = st.lists(st.integers(0, 255)).map(tuple)
    kinds_of_acks = (kinds.PUBACK, kinds.PUBREC, kinds.PUBREL, kinds.PUBCOMP)
    acks = [st.builds(PublishAckPacket, st.just(kind), IDS, reasons(kind), at(kind)) for kind in kinds_of_acks]
    options = [st.booleans(), st.booleans(), st.integers(0, 2)] if version == VERSION_5 else []
    filters = st.builds(TopicFilter, NAMES, st.integers(0, 2), *options).filter(
        lambda each: not each.pattern.startswith("$share/")
    )
    payloads, qos = st.binary(max_size=300), st.integers(1, 2)
    wills = st.builds(Will, NAMES, st.binary(max_size=9), st.integers(0, 2), st.booleans(), at(WILL))
    connecting = at(kinds.CONNECT).filter(
        lambda each: each.authentication_data is None or each.authentication_method is not None
    )
    return st.one_of(
        st.builds(
            ConnectPacket,
            *(st.just(version), TEXTS, st.booleans(), st.integers(0, 65_535), st.none() | wills, TEXTS),
            st.none() | st.binary(max_size=9),
            connecting,
        ),
        st.builds(ConnackPacket, st.booleans(), st.integers(0, 255), at(kinds.CONNACK)),
        st.builds(PublishPacket, NAMES, payloads, st.just(0), st.booleans(), properties=at(kinds.PUBLISH)),
        st.builds(PublishPacket, NAMES, payloads, qos, st.booleans(), st.booleans(), IDS, at(kinds.PUBLISH)),
        *acks,
        st.builds(SubscribePacket, IDS, st.lists(filters, min_size=1, max_size=3).map(tuple), at(kinds.SUBSCRIBE)),
        st.builds(UnsubscribePacket, IDS, st.lists(TEXTS, min_size=1, max_size=3).map(tuple), at(kinds.UNSUBSCRIBE)),
        st.builds(SubscribeAckPacket, st.just(kinds.SUBACK), IDS, codes, at(kinds.SUBACK)),
        st.builds(DisconnectPacket, reasons(kinds.DISCONNECT), at(kinds.DISCONNECT)),
    )


@given(packets_of(VERSION_3))
def test_packets_of_3_1_1_come_back_as_they_were(packet: Packet) -> None:
    assert decoded(encode(packet, VERSION_3), VERSION_3) == packet


@given(packets_of(VERSION_5))
def test_packets_of_5_come_back_as_they_were(packet: Packet) -> None:
    assert decoded(encode(packet, VERSION_5), VERSION_5) == packet


def test_every_property_can_be_somewhere() -> None:
    assert {row.field for row in ROWS} == {each.name for each in fields(Properties)}
    assert len({row.identifier for row in ROWS}) == len(ROWS)


# Streams.


@given(st.lists(packets_of(VERSION_5), max_size=4), st.integers(1, 40))
def test_a_stream_may_be_cut_anywhere(packets: list[Packet], size: int) -> None:
    data = b"".join(encode(packet, VERSION_5) for packet in packets)
    stream = PacketStream(1 << 20)
    found: list[Packet] = []
    for begin in range(0, len(data), size):
        stream.add(data[begin : begin + size])
        found += [decode(*each, VERSION_5) for each in stream.packets()]
    assert found == packets


@given(st.binary(max_size=60), st.sampled_from([VERSION_3, VERSION_5]))
def test_arbitrary_bytes_are_packets_or_refused(data: bytes, version: int) -> None:
    stream = PacketStream(1 << 16)
    stream.add(data)
    with suppress(MqttError):
        for found in stream.packets():
            decode(*found, version)


def test_a_long_packet_is_refused_before_it_has_come() -> None:
    stream = PacketStream(1000)
    stream.add(bytes.fromhex("30 e9 07"))
    with pytest.raises(MqttError, match="at most 1000") as error:
        stream.next_packet()
    assert error.value.reason == Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize(
    ("digits", "reason"),
    [
        ("00 00", Reason.MALFORMED_PACKET),  # type 0
        ("30 ff ff ff ff 01", Reason.MALFORMED_PACKET),  # [MQTT-1.5.5]: five bytes of length
        ("36 05 0001 74 0001", Reason.MALFORMED_PACKET),  # [MQTT-3.3.1-4]: QoS 3
        ("38 03 0001 74", Reason.MALFORMED_PACKET),  # [MQTT-3.3.1-2]: a duplicate with QoS 0
        ("30 04 0001 2b 00", Reason.TOPIC_NAME_INVALID),  # [MQTT-3.3.2-2]: a wildcard in a name
        ("30 03 0000 00", Reason.PROTOCOL_ERROR),  # [MQTT-3.3.2]: no topic and no alias
        ("32 06 0001 74 0000 00", Reason.PROTOCOL_ERROR),  # [MQTT-2.2.1-3]: the identifier 0
        ("80 07 0001 00 0001 74 00", Reason.MALFORMED_PACKET),  # [MQTT-3.8.1-1]: flags
        ("82 03 0001 00", Reason.PROTOCOL_ERROR),  # [MQTT-3.8.3-2]: no filter
        ("82 07 0001 00 0001 74 03", Reason.MALFORMED_PACKET),  # [MQTT-3.8.3-5]: QoS 3
        ("82 07 0001 00 0001 74 c0", Reason.MALFORMED_PACKET),  # [MQTT-3.8.3-5]: reserved bits
        ("82 07 0001 00 0001 74 30", Reason.PROTOCOL_ERROR),  # a fourth retain handling
        ("a2 03 0001 00", Reason.PROTOCOL_ERROR),  # [MQTT-3.10.3-2]: no filter
        ("60 02 0001", Reason.MALFORMED_PACKET),  # [MQTT-3.6.1-1]: flags of PUBREL
        ("30 05 0002 c328 00", Reason.MALFORMED_PACKET),  # [MQTT-1.5.4-1]: no UTF-8
        ("30 06 0003 eda080 00", Reason.MALFORMED_PACKET),  # [MQTT-1.5.4-1]: a surrogate
        ("30 04 0001 00 00", Reason.MALFORMED_PACKET),  # [MQTT-1.5.4-2]: U+0000
        ("30 06 0001 74 02 0102", Reason.PROTOCOL_ERROR),  # the payload format 2
        ("30 08 0001 74 04 0101 0101", Reason.PROTOCOL_ERROR),  # a property twice
        ("30 07 0001 74 03 230000", Reason.TOPIC_ALIAS_INVALID),  # [MQTT-3.3.2-8]: the alias 0
        ("30 06 0001 74 02 1100", Reason.MALFORMED_PACKET),  # a property of another packet
        ("c1 00", Reason.MALFORMED_PACKET),  # flags of PINGREQ
        ("a0 06 0001 00 0001 74", Reason.MALFORMED_PACKET),  # [MQTT-3.10.1-1]: flags of UNSUBSCRIBE
        ("e1 00", Reason.MALFORMED_PACKET),  # [MQTT-3.14.1-1]: flags of DISCONNECT
        ("f1 00", Reason.MALFORMED_PACKET),  # [MQTT-3.15.1-1]: flags of AUTH
        ("30 07 0001 74 8100 0101", Reason.MALFORMED_PACKET),  # [MQTT-1.5.5-1]: more bytes than the number needs
        ("40 03 0001 03", Reason.MALFORMED_PACKET),  # [MQTT-3.4.2-1]: a reason that a PUBACK does not give
        ("50 03 0001 92", Reason.MALFORMED_PACKET),  # [MQTT-3.5.2-1]
        ("62 03 0001 10", Reason.MALFORMED_PACKET),  # [MQTT-3.6.2-1]
        ("70 03 0001 80", Reason.MALFORMED_PACKET),  # [MQTT-3.7.2-1]
        ("e0 01 03", Reason.MALFORMED_PACKET),  # [MQTT-3.14.2-1]
        ("f0 01 01", Reason.MALFORMED_PACKET),  # [MQTT-3.15.2-1]
        ("30 08 0001 74 04 08 0001 2b", Reason.PROTOCOL_ERROR),  # [MQTT-3.3.2-14]: a wildcard in a response topic
        ("82 10 0001 00 000a 2473686172652f672f74 04", Reason.PROTOCOL_ERROR),  # [MQTT-3.8.3-4]: no local, shared
        ("c0 01 00", Reason.MALFORMED_PACKET),  # bytes too many
    ],
)
def test_what_is_wrong_has_its_reason(digits: str, reason: Reason) -> None:
    with pytest.raises(MqttError) as error:
        decoded(bytes.fromhex(digits), VERSION_5)
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("digits", "reason"),
    [
        ("10 0d 0004 4d515454 05 03 0000 00 0000", Reason.MALFORMED_PACKET),  # [MQTT-3.1.2-3]: the reserved flag
        ("10 0d 0004 4d515454 05 1e 0000 00 0000", Reason.MALFORMED_PACKET),  # [MQTT-3.1.2-12]: a will with QoS 3
        ("10 0d 0004 4d515454 05 22 0000 00 0000", Reason.MALFORMED_PACKET),  # [MQTT-3.1.2-13]: flags without a will
        ("10 0d 0004 4d515454 03 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),  # [MQTT-3.1.2-2]
        ("10 0d 0004 4d515458 05 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),  # [MQTT-3.1.2-1]
        ("10 0c 0004 4d515454 04 42 0000 0000", Reason.MALFORMED_PACKET),  # 3.1.1 [MQTT-3.1.2-22]: a password alone
    ],
)
def test_a_connect_that_contradicts_itself_is_refused(digits: str, reason: Reason) -> None:
    data = bytes.fromhex(digits)
    data = data[:1] + bytes((len(data) - 2,)) + data[2:]
    with pytest.raises(MqttError) as error:
        decoded(data, VERSION_5)
    assert error.value.reason == reason
