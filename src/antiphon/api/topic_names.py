"""Names of topics, the numbers that protocols know them by, and patterns that match several of them.

A name is made of words between dots, ``orders.europe.paid``. In a pattern, ``*`` stands for one word and ``>``, at the
end, for one or more: ``orders.*.paid``, ``orders.>``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from antiphon.kernel.errors import UsageError

NAME_BYTES_AT_MOST: Final = 255
WILDCARDS: Final = ("*", ">")

SERVING: Final = "$serving."
"""Before the name of a topic: the topic on which programs say that they answer the requests on it."""

CALLERS: Final = "$callers."
"""Before the name of a topic: the topic on which programs look for those that answer."""


def topic_number(name: str) -> int:
    """The number of a topic: 62 bits of a hash, so nodes agree without asking each other.

    Two of a million names share a number with a probability of one in ten million.
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 2


def key_number(key: bytes) -> int:
    """The number of a key that messages are about, made like that of a topic."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 2


def client_number(instance: str) -> int:
    """The number of a client as the author of batches: like that of a key, and never that of a node."""
    return key_number(instance.encode()) | 1 << 61


def is_pattern(name: str) -> bool:
    """Whether a name stands for several topics."""
    return any(word in WILDCARDS for word in name.split("."))


def checked_name(name: str) -> str:
    """The name of one topic; an error says what a name looks like."""
    check_words(name)
    if is_pattern(name):
        raise UsageError(f"{name!r} is a pattern; patterns are for subscribing: publish to one topic")
    return name


def checked_pattern(name: str) -> str:
    """The name of one topic or a pattern."""
    check_words(name)
    if ">" in name.split(".")[:-1]:
        raise UsageError(f"in {name!r} something follows '>'; it stands for all words to the end: put it last")
    return name


def check_words(name: object) -> None:
    """The rules for both names and patterns."""
    if not isinstance(name, str):
        raise UsageError(f"a topic has a name, not {type(name).__name__}; write for example 'orders.europe'")
    if len(name.encode()) > NAME_BYTES_AT_MOST:
        raise UsageError(f"the name of topic {name[:20]!r}... is longer than {NAME_BYTES_AT_MOST} bytes; shorten it")
    for word in name.split("."):
        # The only space that counts as printable is that of ASCII.
        if not word or not word.isprintable() or " " in word:
            raise UsageError(f"{name!r} is no topic: it needs printable words between dots, such as 'orders.europe'")
        if len(word) > 1 and any(wildcard in word for wildcard in WILDCARDS):
            raise UsageError(f"in {name!r}, '*' and '>' stand for whole words; write 'orders.*' or 'orders.>'")


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a topic, among others."""
    pattern_words, words = pattern.split("."), name.split(".")
    if pattern_words[-1] == ">":
        pattern_words.pop()
        if len(words) <= len(pattern_words):
            return False
        words = words[: len(pattern_words)]
    return len(words) == len(pattern_words) and all(p in ("*", w) for p, w in zip(pattern_words, words, strict=True))
