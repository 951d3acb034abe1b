"""The topics below ``$SYS``: figures of the door at the time of subscribing, for clients with the right ``admin``."""

from __future__ import annotations

from typing import Final

from antiphon import __version__
from antiphon.mqtt.envelope import MqttEnvelope
from antiphon.mqtt.retained import RetainedMessage
from antiphon.mqtt.topics import filter_matches
from antiphon.runtime.clocks import wall_clock_us

SERVER_TOPICS: Final = "$SYS/"


NAMES: Final = {
    "connections": "broker/clients/connected",
    "sessions": "broker/clients/total",
    "received": "broker/messages/received",
    "undeliverable": "broker/messages/undeliverable",
    "missed": "broker/messages/missed",
    "dropped": "broker/messages/dropped",
    "retained": "broker/retained messages/count",
    "subscriptions": "broker/subscriptions/count",
    "groups": "broker/shared subscriptions/count",
    "refused": "broker/clients/refused",
}
"""The names of figures below ``$SYS/``."""


def server_messages(pattern: str, figures: dict[str, int]) -> list[RetainedMessage]:
    """The figures that a filter matches, as retained messages."""
    texts = {
        "broker/version": f"antiphon {__version__}",
        **{NAMES[name]: str(value) for name, value in figures.items()},
    }
    return [
        RetainedMessage(SERVER_TOPICS + name, wall_clock_us(), 0, text.encode(), MqttEnvelope(qos=0))
        for name, text in texts.items()
        if filter_matches(pattern, SERVER_TOPICS + name)
    ]
