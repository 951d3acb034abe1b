"""Two versions of the protocol on one connection: which they speak, and what each does not know of the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.fabrics.cube.messages import Acknowledgement
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import OLDEST_VERSION, PROTOCOL_VERSION, Hello
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS, TopicAnnouncement
from antiphon.transport.schema import ADDED, SINCE, may_send

CONTROLS = (*PEER_CONTROLS, *CLIENT_CONTROLS)


def test_fields_of_a_later_version_are_not_read_and_are_handed_on() -> None:
    codec = Codec(CONTROLS)
    encoded = msgspec.msgpack.encode([2, 3, 7, 9, "of a later version"])
    message = codec.decode(encoded)
    assert isinstance(message, Acknowledgement) and (message.source, message.sequence, message.topic) == (3, 7, 9)
    assert codec.encode(message) == encoded
    announcement = TopicAnnouncement(["room"], True)
    values = [*msgspec.msgpack.decode(codec.encode_control(announcement)), "of a later version"]
    assert codec.decode(msgspec.msgpack.encode(values)) == announcement


def test_frames_of_an_earlier_version_lack_fields_that_were_added_since(monkeypatch: pytest.MonkeyPatch) -> None:
    field: tuple[type[Any], str] = (Acknowledgement, "topic")
    monkeypatch.setitem(ADDED, field, 5)
    message = Codec().decode(msgspec.msgpack.encode([2, 3, 7]))
    assert isinstance(message, Acknowledgement) and message.topic == 5


def test_a_kind_is_sent_only_to_peers_of_a_version_that_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledgement = Acknowledgement(3, 7, 9)
    assert may_send(acknowledgement, OLDEST_VERSION)
    monkeypatch.setitem(SINCE, Acknowledgement, PROTOCOL_VERSION + 1)
    assert not may_send(acknowledgement, PROTOCOL_VERSION) and may_send(acknowledgement, PROTOCOL_VERSION + 1)


@pytest.mark.parametrize(
    ("version", "oldest", "agreed"),
    [
        (PROTOCOL_VERSION, OLDEST_VERSION, PROTOCOL_VERSION),
        (PROTOCOL_VERSION, 0, PROTOCOL_VERSION),
        (PROTOCOL_VERSION + 3, PROTOCOL_VERSION, PROTOCOL_VERSION),
        (PROTOCOL_VERSION + 3, PROTOCOL_VERSION + 1, None),
        (PROTOCOL_VERSION + 1, 0, None),
        (OLDEST_VERSION, 1, OLDEST_VERSION),
        (OLDEST_VERSION - 1, 1, None),
    ],
)
def test_two_ends_speak_the_lower_of_their_versions_if_both_know_it(
    version: int, oldest: int, agreed: int | None
) -> None:
    hello = Hello(version, "antiphon", "a", "host:1", oldest=oldest)
    if agreed is None:
        with pytest.raises(ProtocolError, match="upgrade the older one"):
            hello.agreed_version()
    else:
        assert hello.agreed_version() == agreed


def test_an_entry_of_a_later_version_in_a_log_is_refused_with_what_to_do() -> None:
    """Fields that were added are not in the way; kinds are."""
    standing = Codec(CONTROLS).encode(Acknowledgement(3, 7, 9))
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(standing), "of a later version"])
    assert isinstance(Codec().decode_own(longer), Acknowledgement)
    with pytest.raises(ProtocolError, match="use the version of Antiphon that wrote it"):
        Codec().decode_own(msgspec.msgpack.encode([99, 3, 7]))
