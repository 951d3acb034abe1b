"""The exchanges of QoS 1 and 2, from both ends."""

from __future__ import annotations

import pytest

from antiphon.mqtt.protocol.incoming import RECEIVE_MAXIMUM, IncomingMessages
from antiphon.mqtt.protocol.outgoing import OutgoingMessages
from antiphon.mqtt.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, PublishAckPacket, PublishPacket
from antiphon.mqtt.protocol.reasons import MqttError, Reason


def message(qos: int, packet_id: int = 0, payload: bytes = b"") -> PublishPacket:
    return PublishPacket("t", payload, qos, packet_id=packet_id)


def ack(kind: int, packet_id: int, reason: int = 0) -> PublishAckPacket:
    return PublishAckPacket(kind, packet_id, reason)


# Sending.


def test_identifiers_in_use_are_passed_over() -> None:
    outgoing = OutgoingMessages()
    first = outgoing.begin(message(1)).packet_id
    for _ in range(65_534):
        outgoing.on_puback(ack(PUBACK, outgoing.begin(message(1)).packet_id))
    assert outgoing.begin(message(1)).packet_id not in (0, first)


def test_no_more_messages_are_under_way_than_the_client_takes() -> None:
    outgoing = OutgoingMessages()
    outgoing.receive_maximum = 2
    one, two = outgoing.begin(message(1)), outgoing.begin(message(2))
    rooms = [outgoing.has_room]
    outgoing.on_pubrec(ack(PUBREC, two.packet_id))
    rooms.append(outgoing.has_room)  # until the PUBCOMP
    outgoing.on_puback(ack(PUBACK, one.packet_id))
    assert [*rooms, outgoing.has_room] == [False, False, True]
    outgoing.on_pubcomp(ack(PUBCOMP, two.packet_id))
    assert len(outgoing) == 0


def test_a_client_that_returns_gets_again_what_it_has_not_acknowledged_in_order() -> None:
    outgoing = OutgoingMessages()
    sent = [outgoing.begin(message(qos, payload=bytes((qos, place)))) for place, qos in enumerate([1, 2, 1, 2])]
    outgoing.on_puback(ack(PUBACK, sent[0].packet_id))
    assert outgoing.on_pubrec(ack(PUBREC, sent[1].packet_id)) == ack(PUBREL, sent[1].packet_id)
    again = outgoing.resumed()
    assert again[0] == ack(PUBREL, sent[1].packet_id)
    assert [(each.payload, each.is_duplicate) for each in again[1:] if isinstance(each, PublishPacket)] == [
        (sent[2].payload, True),
        (sent[3].payload, True),
    ]


def test_a_pubrec_that_refuses_ends_the_exchange() -> None:
    outgoing = OutgoingMessages()
    sent = outgoing.begin(message(2))
    assert outgoing.on_pubrec(ack(PUBREC, sent.packet_id, Reason.QUOTA_EXCEEDED)) is None
    assert len(outgoing) == 0


def test_a_pubrec_for_nothing_is_answered_all_the_same() -> None:
    assert OutgoingMessages().on_pubrec(ack(PUBREC, 9)) == ack(PUBREL, 9, Reason.PACKET_IDENTIFIER_NOT_FOUND)


def test_acknowledgements_of_the_other_qos_break_the_protocol() -> None:
    outgoing = OutgoingMessages()
    one, two = outgoing.begin(message(1)), outgoing.begin(message(2))
    with pytest.raises(MqttError):
        outgoing.on_puback(ack(PUBACK, two.packet_id))
    with pytest.raises(MqttError):
        outgoing.on_pubrec(ack(PUBREC, one.packet_id))
    with pytest.raises(MqttError):
        outgoing.on_pubcomp(ack(PUBCOMP, two.packet_id))
    with pytest.raises(MqttError):
        outgoing.on_puback(ack(PUBACK, 999))
    assert len(outgoing) == 2


# Receiving.


def test_acknowledgements_leave_in_the_order_of_the_messages() -> None:
    incoming = IncomingMessages()
    one, two = incoming.begin(message(1, 1)), incoming.begin(message(2, 2))
    assert one is not None
    assert two is not None
    two.reason = Reason.SUCCESS
    assert incoming.acknowledgements() == []
    one.reason = Reason.SUCCESS
    assert incoming.acknowledgements() == [ack(PUBACK, 1), ack(PUBREC, 2)]


def test_a_message_with_qos_2_is_published_once_however_often_it_comes() -> None:
    incoming = IncomingMessages()
    begun = incoming.begin(message(2, 5))
    assert begun is not None
    begun.reason = Reason.SUCCESS
    assert incoming.acknowledgements() == [ack(PUBREC, 5)]
    assert incoming.begin(message(2, 5)) is None
    assert incoming.acknowledgements() == [ack(PUBREC, 5)]
    assert incoming.on_pubrel(ack(PUBREL, 5)) == ack(PUBCOMP, 5)
    assert incoming.on_pubrel(ack(PUBREL, 5)) == ack(PUBCOMP, 5, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    assert incoming.begin(message(2, 5)) is not None


def test_a_message_with_qos_2_that_was_under_way_when_the_connection_ended_is_not_published_again() -> None:
    incoming = IncomingMessages()
    begun, other = incoming.begin(message(2, 5)), incoming.begin(message(1, 6))
    assert begun is not None
    assert other is not None
    incoming.connection_ended()
    assert incoming.begin(message(2, 5)) is None
    assert incoming.acknowledgements() == []  # not before it is accepted
    begun.reason = Reason.SUCCESS
    assert incoming.acknowledgements() == [ack(PUBREC, 5)]
    assert incoming.begin(message(1, 6)) is not None


def test_a_refused_message_leaves_its_identifier_free() -> None:
    incoming = IncomingMessages()
    begun = incoming.begin(message(2, 5))
    assert begun is not None
    begun.reason = Reason.QUOTA_EXCEEDED
    assert incoming.acknowledgements() == [ack(PUBREC, 5, Reason.QUOTA_EXCEEDED)]
    assert incoming.begin(message(2, 5)) is not None


def test_an_identifier_in_use_and_too_many_messages_are_refused() -> None:
    incoming = IncomingMessages()
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        incoming.begin(message(1, packet_id))
    with pytest.raises(MqttError) as error:
        incoming.begin(message(1, 1))
    assert error.value.reason == Reason.PACKET_IDENTIFIER_IN_USE
    with pytest.raises(MqttError) as error:
        incoming.begin(message(1, 60_000))
    assert error.value.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
