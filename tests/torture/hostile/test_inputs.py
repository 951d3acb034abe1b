"""What hostile peers send: recordings are real, inputs are the same for the same seed, and the decoder stands them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

import antiphon
from antiphon.api.batch_codec import check_payload
from antiphon.kernel.errors import ProtocolError
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.torture.hostile.inputs import Mutator, Recordings, cut, framed, record, record_tls
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import FABRIC_KINDS

HELLO, PUBLISH, SUBSCRIBE = 100, 150, 152


@cache
def recorded(fabric: str) -> Recordings:
    return antiphon.run(record(fabric))


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_recordings_hold_greetings_and_what_follows(fabric: str) -> None:
    found = recorded(fabric)
    for session in (*found.clients, *found.peers):
        assert msgspec.msgpack.decode(session[0])[0] == HELLO
    said = {msgspec.msgpack.decode(frame)[0] for session in found.clients for frame in session}
    assert {PUBLISH, SUBSCRIBE} <= said
    # Nodes exchange messages of their processes, too.
    assert any(msgspec.msgpack.decode(frame)[0] < HELLO for session in found.peers for frame in session)


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = (Mutator(recorded("cube"), seed) for seed in (7, 7, 8))
    inputs = [first.input() for _ in range(200)]
    assert [again.input() for _ in range(200)] == inputs
    assert [other.input() for _ in range(200)] != inputs
    assert set(Counter(kind for kind, _ in inputs)) == {"bytes", "greeting", "client", "peer", "cut"}


def test_streams_are_cut_into_frames_and_back() -> None:
    frames = [b"", b"a", bytes(300)]
    assert cut(framed(frames)) == frames
    assert cut(framed(frames)[:-1]) == frames[:-1]


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_the_decoder_refuses_changed_frames_with_one_error_and_takes_the_others(fabric: str) -> None:
    codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), FABRIC_KINDS[fabric], check_payload)
    mutator = Mutator(recorded(fabric), 3)
    outcomes: Counter[str] = Counter()
    for _ in range(1500):
        for frame in cut(mutator.input()[1]):
            try:
                codec.decode(frame)
                outcomes["taken"] += 1
            except ProtocolError:
                outcomes["refused"] += 1
    assert outcomes["taken"] > 500 and outcomes["refused"] > 500


def test_values_nested_without_end_are_refused() -> None:
    """Where a field may hold anything, a decoder that follows it down would run out of stack."""
    codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), FABRIC_KINDS["cube"])
    status = msgspec.msgpack.encode([159, 1, {"a": 0}, 0, ""])
    deep = status.replace(b"\xa1a\x00", b"\xa1a" + b"\x91" * 100_000 + b"\x90")
    assert len(deep) > 100_000
    with pytest.raises(ProtocolError):
        codec.decode(deep)


def test_recordings_of_tls_are_of_records(tmp_path: Path) -> None:
    found, settings = antiphon.run(record_tls(tmp_path / "certificates"))
    assert all(stream.startswith(b"\x16\x03\x01") for stream in found.tls) and len(found.tls) == 3
    assert Path(settings["tls_certificate"]).exists()
    mutator = Mutator(found, 1)
    assert {mutator.input()[0] for _ in range(100)} == {"tls", "bytes", "cleartext"}
