"""Names of topics on both sides: ``orders/new`` is ``orders.new``, ``+`` is ``*``, and ``#`` is ``>`` and the parent.

A level of MQTT becomes a word. Characters that words do not have (dots, spaces, ``*``, ``>``, ``%`` and what cannot be
printed) are written as ``%`` and two hexadecimal digits for each byte; an empty level is ``%00``, which no level can
contain otherwise. The other way round, characters of words that levels do not have (``/``, ``+``, ``#``) are written
the same way behind ``%%``. So every name of one side is one name of the other side, and comes back as it was.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from antiphon.api.topic_names import NAME_BYTES_AT_MOST
from antiphon.mqtt.protocol.reasons import MqttError, Reason

EMPTY_LEVEL: Final = "%00"
FOREIGN: Final = "%%"
"""What a level begins with that stands for a word which no other level stands for."""

ESCAPED: Final = re.compile(rb"%([0-9A-F]{2})")
SHARED: Final = "$share/"
LEVELS_AT_MOST: Final = 128
NAMES_KEPT: Final = 10_000
"""So many names are remembered with what they stand for."""


def topic_name(mqtt_name: str) -> str:
    """The topic that a name of MQTT stands for."""
    return checked_length(".".join(map(word_of, mqtt_name.split("/"))), mqtt_name)


@lru_cache(maxsize=NAMES_KEPT)
def mqtt_name(topic: str) -> str:
    """The name by which MQTT clients know a topic."""
    return "/".join(map(level_of, topic.split(".")))


def topic_patterns(mqtt_filter: str) -> tuple[str, ...]:
    """The patterns that together match what a filter of MQTT matches; raises if it is not a filter."""
    levels = mqtt_filter.split("/")
    if not mqtt_filter or len(levels) > LEVELS_AT_MOST:
        raise MqttError(Reason.TOPIC_FILTER_INVALID, f"{mqtt_filter[:64]!r} is not a topic filter")
    for place, level in enumerate(levels):
        is_misplaced = level == "#" and place < len(levels) - 1
        if is_misplaced or (len(level) > 1 and ("+" in level or "#" in level)):
            raise MqttError(
                Reason.TOPIC_FILTER_INVALID,
                f"in {mqtt_filter[:64]!r} a wildcard is not a whole level, or '#' is not the last one",
            )
    words = ["*" if level == "+" else ">" if level == "#" else word_of(level) for level in levels]
    patterns = [".".join(words)]
    if words[-1] == ">" and len(words) > 1:
        patterns.append(".".join(words[:-1]))
    return tuple(checked_length(pattern, mqtt_filter) for pattern in patterns)


def filter_matches(mqtt_filter: str, name: str) -> bool:
    """Whether a filter matches a name, both of MQTT; wildcards at the beginning leave out names that begin with $."""
    levels, words = mqtt_filter.split("/"), name.split("/")
    if name.startswith("$") and levels[0] in ("+", "#"):
        return False
    if levels[-1] == "#":
        levels.pop()
        if len(words) < len(levels):
            return False
        words = words[: len(levels)]
    return len(levels) == len(words) and all(level in ("+", word) for level, word in zip(levels, words, strict=True))


def shared_filter(mqtt_filter: str) -> str:
    """The filter of a shared subscription behind ``$share/NAME/``; of any other, the filter itself."""
    if not mqtt_filter.startswith(SHARED):
        return mqtt_filter
    name, separator, inner = mqtt_filter.removeprefix(SHARED).partition("/")
    if not name or not separator or not inner or "+" in name or "#" in name:
        raise MqttError(
            Reason.TOPIC_FILTER_INVALID,
            f"{mqtt_filter[:64]!r} is no shared subscription: say $share/NAME/FILTER, with a name without wildcards",
        )
    return inner


def checked_length(name: str, mqtt_text: str) -> str:
    """Refuse names that are longer than names of topics may be."""
    if len(name.encode()) > NAME_BYTES_AT_MOST:
        raise MqttError(
            Reason.TOPIC_NAME_INVALID,
            f"{mqtt_text[:32]!r}... has more than {NAME_BYTES_AT_MOST} bytes as a topic; use a shorter name",
        )
    return name


def is_kept(character: str) -> bool:
    """Whether words may have a character that stands for itself."""
    return character not in "%.*> " and character.isprintable()


def word_of(level: str) -> str:
    """The word of a level."""
    if not level:
        return EMPTY_LEVEL
    if level.startswith(FOREIGN):
        word = unescaped(level.removeprefix(FOREIGN))
        # Only the level that stands for a word may be taken for it.
        if word and all(is_kept(each) or each == "%" for each in word) and level_of(word) == level:
            return word
    return "".join(each if is_kept(each) else escaped(each) for each in level)


def level_of(word: str) -> str:
    """The level of a word."""
    if word == EMPTY_LEVEL:
        return ""
    level = unescaped(word)
    # The word of this level, unless other bytes are escaped in it than need be. The text gets shorter in each call.
    if level and not any(each in level for each in "/+#\0") and word_of(level) == word:
        return level
    return FOREIGN + "".join(each if each not in "%/+#" else escaped(each) for each in word)


def escaped(character: str) -> str:
    """A character as the hexadecimal digits of its bytes."""
    return "".join(f"%{byte:02X}" for byte in character.encode())


def unescaped(text: str) -> str | None:
    """The text with escaped bytes in their places; None if it has a % that escapes nothing."""
    if "%" not in text:
        return text
    if len(ESCAPED.findall(text.encode())) != text.count("%"):
        return None
    try:
        return ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), text.encode()).decode()
    except UnicodeDecodeError:
        return None
