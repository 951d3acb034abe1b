"""The reference says what the code does: commands, settings, traces, the wire protocol and errors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from tests.reference.pages import PAGES, REFERENCE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_describes_itself(name: str) -> None:
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python -m tests.reference.pages"


def documented_frames() -> list[tuple[str, bytes]]:
    """The examples on the page about the wire protocol: a message, and the bytes of its frame."""
    text = (REFERENCE / "wire.md").read_text(encoding="utf-8")
    return [
        (words, bytes.fromhex(octets)) for words, octets in re.findall(r"```\n(\w+\(.*\))\n([0-9a-f ]+)\n```", text)
    ]


def test_the_documented_bytes_are_messages_of_clients() -> None:
    codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS))
    found = documented_frames()
    assert len(found) == 12
    for words, frame in found:
        assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        message = codec.decode(frame[4:])
        assert isinstance(message, Control)
        fields = ", ".join(f"{name}={getattr(message, name)!r}" for name in message.__struct_fields__)
        assert f"{type(message).__name__}({fields})" == words


def test_a_client_that_knows_only_the_wire_protocol_gets_the_answer_behind_its_question() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "wire_client.py"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["room why?", "room and when?", "room because, and soon"]


def test_the_page_about_errors_has_each_exported_error_with_its_family_and_what_to_do() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    rows = {
        row[0].strip("`"): row for row in re.findall(r"^\| (`\w+`) \| (\w+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    }
    errors = {
        name: kind
        for name in antiphon.__all__
        if inspect.isclass(kind := getattr(antiphon, name)) and issubclass(kind, antiphon.AntiphonError)
    }
    assert set(rows) == set(errors)
    for name, kind in errors.items():
        family = (
            "usage"
            if issubclass(kind, antiphon.UsageError)
            else "peer"
            if issubclass(kind, antiphon.PeerError)
            else "both"
        )
        assert rows[name][1] == family
        assert len(rows[name][2]) > 10 and len(rows[name][3]) > 10
