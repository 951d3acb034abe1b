"""The page about the wire protocol of clients: prose, the messages as their classes describe them, and their bytes."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns, Follows
from antiphon.membership.messages import PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.sessions import client_messages as messages
from antiphon.sessions.peer_messages import LaneState

PROSE: Final = Path(__file__).with_name("wire_prose.md")

MESSAGES: Final = (Hello, Refused, *messages.CLIENT_CONTROLS)
FROM_NODE: Final = {
    "Refused", "PublishResponse", "SubscriptionReady", "SubscriptionEnded", "Delivery", "StatusResponse",
    "FollowResponse", "SafeUpTo", "MessagesMissed", "NodeAddresses", "TopicStarted", "BatchesDropped", "LogsResponse",
    "RangeResponse", "MarksResponse", "ProducerResponse", "DismissResponse",
}  # fmt: skip
FROM_BOTH: Final = {"HeartbeatRequest", "HeartbeatResponse"}

INSTANCE: Final = "5f1c9a0be2d47786"
PAYLOAD: Final = encode_columns(Columns(1, 1_795_000_000_000_000, [b"why?"]))

EXAMPLES: Final[tuple[Control, ...]] = (
    Hello(PROTOCOL_VERSION, "antiphon", INSTANCE, ""),
    messages.StatusRequest(0, False),
    messages.StatusResponse(0, {"protocol": PROTOCOL_VERSION, "author": 7, "lost_seconds": 5.0, "peers": []}, 42),
    messages.SubscribeRequest(1, "room", "latest", False, "block", 1000),
    messages.SubscriptionReady(1),
    messages.PublishRequest(2, "room", "causal", PAYLOAD, (), 1),
    messages.PublishResponse(2),
    messages.Delivery(1, "room", 0, "causal", 0, 0, PAYLOAD, 1),
    messages.MessagesConsumed(1, 1),
    messages.HeartbeatRequest(),
    messages.HeartbeatResponse(),
    messages.UnsubscribeRequest(1),
)


def type_of(kind: Any) -> str:
    """The name of a type for readers of any language."""
    if typing.get_origin(kind) is typing.Annotated:
        return type_of(typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join("nil" if each is type(None) else type_of(each) for each in typing.get_args(kind))
    if typing.get_origin(kind) in {list, tuple}:
        inner = [type_of(each) for each in typing.get_args(kind) if each is not Ellipsis]
        return f"array of {inner[0]}" if len(inner) == 1 else f"array [{', '.join(inner)}]"
    if typing.get_origin(kind) is dict:
        key, value = typing.get_args(kind)
        return f"map of {type_of(key)} to {type_of(value)}"
    names = {int: "integer", str: "string", bool: "boolean", bytes: "binary", Any: "anything"}
    return names.get(kind, f"[{kind.__name__}](#parts-of-messages)")


def fields_of(kind: type[msgspec.Struct]) -> Iterator[str]:
    """The fields of a struct, in order, with their types and defaults."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        default = ""
        if field.default is not msgspec.NODEFAULT:
            default = f" = {msgspec.json.encode(field.default).decode()}"
        elif field.default_factory is not msgspec.NODEFAULT:
            default = f" = {msgspec.json.encode(field.default_factory()).decode()}"
        yield f"`{field.name}{default}`: {type_of(hints[field.name])}"


def sentence_of(kind: type) -> str:
    """The docstring of a class in one line."""
    return " ".join((inspect.getdoc(kind) or "").split()).replace("``", "`").replace("|", "\\|")


def message_rows() -> Iterator[str]:
    """A row for each message."""
    for kind in MESSAGES:
        name = kind.__name__
        sender = "node" if name in FROM_NODE else "both" if name in FROM_BOTH else "client"
        fields = "<br>".join(fields_of(kind)) or "none"
        yield f"| {kind.__struct_config__.tag} | `{name}` | {sender} | {fields} | {sentence_of(kind)} |"


def part_rows() -> Iterator[str]:
    """A row for each array that is a part of messages."""
    for kind in (messages.LaneOf, messages.Resume, messages.LogRange, messages.NodeProducerState, LaneState, Follows):
        yield f"| `{kind.__name__}` | {'<br>'.join(fields_of(kind))} | {sentence_of(kind)} |"


def frame_of(message: msgspec.Struct) -> bytes:
    """A message as it is sent: its length in four bytes, least first, and its MessagePack."""
    encoded = msgspec.msgpack.encode(message)
    return len(encoded).to_bytes(4, "little") + encoded


def example_lines() -> Iterator[str]:
    """The bytes of the examples."""
    for message in EXAMPLES:
        fields = ", ".join(f"{name}={getattr(message, name)!r}" for name in message.__struct_fields__)
        yield f"```\n{type(message).__name__}({fields})\n{frame_of(message).hex(' ')}\n```\n"


def page() -> str:
    """The whole page."""
    text = PROSE.read_text(encoding="utf-8")
    columns = "\n".join(f"| {number} | {field} |" for number, field in enumerate(fields_of(Columns)))
    for name, lines in {
        "COLUMNS": columns,
        "EXAMPLES": "\n".join(example_lines()),
        "MESSAGES": "\n".join(message_rows()),
        "PARTS": "\n".join(part_rows()),
        "VERSION": str(PROTOCOL_VERSION),
    }.items():
        assert f"@{name}@" in text
        text = text.replace(f"@{name}@", lines)
    return text
