"""A next version of Antiphon, made for tests from the sources of this one.

It speaks the next version of the protocol, and this one. It adds an optional field to a message of hosts and to a
message of each fabric, and a kind of message that this version does not know. Its nodes append a line to the file
``$ANTIPHON_TONES``, if there is one, for each message of the new kind that they hear. A campaign runs it too:

    python -m tests.versions.next_version DIRECTORY
    antiphon torture --live --faults roll --other-version DIRECTORY
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from antiphon.membership.messages import PROTOCOL_VERSION

REPOSITORY = Path(__file__).parents[2]

TONE = '''

class Tone(Control, frozen=True, array_like=True, tag=FIRST_CONTROL + 40):
    """A kind that the version before does not know."""

    topic: Name


PEER_CONTROLS: Final = (
    Tone,
'''

SHADE = """
ADDED[cube.Acknowledgement, "shade"] = 7
ADDED[tree.CollectRequest, "shade"] = 7
ADDED[gossip.Beat, "shade"] = 7
FIELDS["shade"] = Integer
"""

ACKNOWLEDGEMENT = '''    """The whole subtree of the sender has the publication."""

    def __init__(self, source: i64, sequence: i64, topic: i64 = 0, shade: i64 = 7) -> None:
        super().__init__(source, sequence, topic)
        self.shade: Final[i64] = shade
'''

HEARD = """        elif type(message).__name__ == "Tone":
            import os
            with open(os.environ.get("ANTIPHON_TONES", os.devnull), "a") as file:
                file.write(f"{sender} {message.topic}\\n")
        else:
            raise ProtocolError(f"node {sender} sent a"""

SPREAD = """        from antiphon.transport.peer_messages import Tone

        for topic in topics:
            self._cluster.spread(Tone(topic.name))
"""

ANNOUNCING = "        for topic in topics:\n            if others:\n"


def with_shade(arguments: str) -> tuple[str, str]:
    """The end of the constructor of a message before and after the new field."""
    before = f"{arguments}) -> None:\n"
    return before, f"{arguments}, shade: i64 = 7) -> None:\n        self.shade: Final[i64] = shade\n"


CHANGES = [
    (
        "membership/messages.py",
        f"PROTOCOL_VERSION: Final = {PROTOCOL_VERSION}",
        f"PROTOCOL_VERSION: Final = {PROTOCOL_VERSION + 1}",
    ),
    ("transport/peer_messages.py", "    wants_answer: bool\n", '    wants_answer: bool\n    colour: Name = "blue"\n'),
    ("transport/peer_messages.py", "\n\nPEER_CONTROLS: Final = (\n", TONE),
    ("transport/schema.py", "\n\ndef may_send(", f"\n{SHADE}\n\ndef may_send("),
    (
        "transport/codec.py",
        "\n\nclass Kind:",
        f"\nfrom antiphon.transport import peer_messages, schema\n"
        f"schema.SINCE[peer_messages.Tone] = {PROTOCOL_VERSION + 1}\n\n\nclass Kind:",
    ),
    (
        "fabrics/cube/messages.py",
        '    """The whole subtree of the sender has the publication."""\n',
        ACKNOWLEDGEMENT,
    ),
    ("fabrics/tree/messages.py", *with_shade("epoch: i64, names: list[int]")),
    ("fabrics/gossip/messages.py", *with_shade("stamp: i64, echo: i64, held: i64")),
    ("node/topic_registry.py", ANNOUNCING, SPREAD + ANNOUNCING),
    ("node/members.py", "        else:\n            raise ProtocolError(f\"node {sender} sent a", HEARD),
]  # fmt: skip
"""Files, and what stands there in this version and in the next."""


def build_next(directory: Path) -> Path:
    """Write the next version into a directory; gives the path under which Python finds it."""
    package = directory / "antiphon"
    # The command loads the laboratory, which must be of the same build.
    for source in (REPOSITORY / "src" / "antiphon", REPOSITORY / "research" / "antiphon_lab"):
        shutil.copytree(source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name, before, after in CHANGES:
        file = package / name
        text = file.read_text()
        assert before in text, f"{name} has changed; the next version must follow: {before}"
        file.write_text(text.replace(before, after, 1))
    return directory


if __name__ == "__main__":
    build_next(Path(sys.argv[1]))
