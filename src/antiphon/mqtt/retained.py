"""Retained messages: the last value of each topic, by one rule at all doors of a cluster.

Doors tell each other of retained messages on a topic of their own. Each message carries a stamp: the clock of its door,
and more than any stamp that the door has seen. The greatest stamp wins everywhere, and of two equal ones the door with
the greater number. So doors that have heard the same agree, in whatever order they heard it. A client that answers a
retained message is later than it, whatever the clocks say. A door that begins asks for what the others have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from antiphon.mqtt.envelope import MqttEnvelope

RETAINED_AT_MOST: Final = 100_000
"""So many topics with a retained message a door remembers."""

FORGET_REMOVED_US: Final = 3_600_000_000
"""For so long a door remembers that a retained message was removed."""


class RetainedMessage(msgspec.Struct, frozen=True, array_like=True, tag="message"):
    """The retained message of a topic; one with an empty payload says that there is none any more."""

    topic: str
    stamp_us: int
    door: int
    payload: bytes
    envelope: MqttEnvelope
    user: tuple[tuple[str, str], ...] = ()

    @property
    def is_retained(self) -> bool:
        """Whether it is a retained message, as messages from other doors may be."""
        return True

    @property
    def is_removed(self) -> bool:
        """Whether it only says that the topic has no retained message."""
        return not self.payload

    @property
    def expires_us(self) -> int | None:
        """When it ends, if it does."""
        seconds = self.envelope.message_expiry_seconds
        return None if seconds is None else self.stamp_us + seconds * 1_000_000

    def wins_over(self, other: RetainedMessage) -> bool:
        """Whether it is the later one."""
        return (self.stamp_us, self.door) > (other.stamp_us, other.door)


class RetainedRequest(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """A door has begun, and asks what is retained."""

    number: int


class RetainedAnswer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """A part of what is retained; the last part says so."""

    number: int
    messages: tuple[RetainedMessage, ...]
    is_last: bool


Notice = RetainedMessage | RetainedRequest | RetainedAnswer


class Level:
    """One level of the names of retained topics: the message that ends here, and the levels below."""

    __slots__ = ("below", "message")

    def __init__(self) -> None:
        self.message: RetainedMessage | None = None
        self.below: dict[str, Level] = {}


class RetainedTable:
    """The retained messages that one door knows, by the levels of their topics."""

    def __init__(self, door: int, clock_us: Callable[[], int]) -> None:
        self._door = door
        self._clock_us = clock_us
        self._stamp_us = 0
        self._top = Level()
        # Those that were removed, the oldest first; only a removal that somebody may not have heard of matters.
        self._removed: dict[str, RetainedMessage] = {}
        self.count = 0

    def stamped(
        self, topic: str, payload: bytes, envelope: MqttEnvelope, user: tuple[tuple[str, str], ...]
    ) -> RetainedMessage:
        """A new retained message, later than all that this door has heard of."""
        self._stamp_us = max(self._stamp_us + 1, self._clock_us())
        return RetainedMessage(topic, self._stamp_us, self._door, payload, envelope, user)

    def has_room_for(self, topic: str) -> bool:
        """Whether a topic may have a retained message."""
        return self.count < RETAINED_AT_MOST or self._find(topic) is not None

    def merge(self, message: RetainedMessage) -> bool:
        """Hear of a retained message; whether it is the last one of its topic."""
        self._stamp_us = max(self._stamp_us, message.stamp_us)
        known = self._find(message.topic) or self._removed.get(message.topic)
        if known is not None and not message.wins_over(known):
            return False
        if message.is_removed:
            self._remove(message.topic)
            self._removed.pop(message.topic, None)
            self._removed[message.topic] = message
            self._forget_removed()
            return True
        self._removed.pop(message.topic, None)
        level = self._top
        for name in message.topic.split("/"):
            level = level.below.setdefault(name, Level())
        if level.message is None:
            self.count += 1
        level.message = message
        return True

    def matching(self, mqtt_filter: str) -> Iterator[RetainedMessage]:
        """The messages whose topics a filter matches. Those that have expired are removed on the way."""
        now_us = self._clock_us()
        expired: list[str] = []
        for message in self._matching(self._top, mqtt_filter.split("/"), is_top=True):
            expires_us = message.expires_us
            if expires_us is not None and expires_us <= now_us:
                expired.append(message.topic)
            else:
                yield message
        for topic in expired:
            self._remove(topic)

    def messages(self) -> list[RetainedMessage]:
        """All that it would tell another door, removals included."""
        return [*self._all(self._top), *self._removed.values()]

    def _find(self, topic: str) -> RetainedMessage | None:
        level: Level | None = self._top
        for name in topic.split("/"):
            if level is None:
                return None
            level = level.below.get(name)
        return None if level is None else level.message

    def _matching(self, level: Level, names: list[str], is_top: bool = False) -> Iterator[RetainedMessage]:
        name, below = names[0], names[1:]
        if name == "#":
            if level.message is not None:
                yield level.message
            for word, next_level in tuple(level.below.items()):
                if not (is_top and word.startswith("$")):
                    yield from self._all(next_level)
            return
        for word in tuple(level.below) if name == "+" else (name,):
            found = level.below.get(word)
            if found is None or (is_top and name == "+" and word.startswith("$")):
                continue
            if below:
                yield from self._matching(found, below)
            elif found.message is not None:
                yield found.message

    def _all(self, level: Level) -> Iterator[RetainedMessage]:
        if level.message is not None:
            yield level.message
        for found in tuple(level.below.values()):
            yield from self._all(found)

    def _remove(self, topic: str) -> None:
        """Take out a message, and the levels that lead to no other one."""
        way = [self._top]
        names = topic.split("/")
        for name in names:
            found = way[-1].below.get(name)
            if found is None:
                return
            way.append(found)
        if way[-1].message is not None:
            way[-1].message = None
            self.count -= 1
        for name in reversed(names):
            level = way.pop()
            if level.message is not None or level.below:
                return
            del way[-1].below[name]

    def _forget_removed(self) -> None:
        horizon_us = self._clock_us() - FORGET_REMOVED_US
        while self._removed:
            topic, oldest = next(iter(self._removed.items()))
            if len(self._removed) <= RETAINED_AT_MOST and oldest.stamp_us >= horizon_us:
                return
            del self._removed[topic]
