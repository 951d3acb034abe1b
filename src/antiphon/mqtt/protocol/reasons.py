"""The reasons that packets give, by their numbers in MQTT 5, and what MQTT 3.1.1 says instead."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from antiphon.kernel.errors import PeerError


class Reason(IntEnum):
    """The reason codes of MQTT 5 that this server sends or looks at."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    PAYLOAD_FORMAT_INVALID = 0x99
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E


FIRST_FAILURE: Final = 0x80
"""Reasons from here on say that something failed."""

CONNECT_REFUSALS: Final = {
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.SERVER_SHUTTING_DOWN: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BAD_AUTHENTICATION_METHOD: 5,
}
"""How MQTT 3.1.1 refuses a connection; for other reasons it closes it without a word."""

SUBSCRIBE_FAILURE: Final = 0x80
"""The only way in which MQTT 3.1.1 refuses a subscription."""


class MqttError(PeerError):
    """A client did what MQTT does not allow; the reason is what the server says before it closes the connection."""

    def __init__(self, reason: Reason, text: str, is_silent_in_3: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        # Whether a client of MQTT 3.1.1, which has no word for it, hears nothing of it.
        self.is_silent_in_3 = is_silent_in_3


def malformed(text: str) -> MqttError:
    """The error for bytes that are no packet."""
    return MqttError(Reason.MALFORMED_PACKET, text)


def broken(text: str) -> MqttError:
    """The error for a packet that may not be sent so, or not now."""
    return MqttError(Reason.PROTOCOL_ERROR, text)
