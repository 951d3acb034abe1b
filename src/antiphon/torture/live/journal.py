"""The journals of applications in a live campaign: one line per event, as it happens.

A line has the event, its time (microseconds of the clock that all processes of a machine share) and its fields:

* ``begin`` identity: an application has begun; no other one has this number.
* ``node`` address: its client talks to the node there from now on.
* ``ready`` topic: its subscription is effective.
* ``ask`` topic, number, order, keys: it publishes a message with this number on the topic, about these keys.
* ``yes`` topic, number: that message was accepted.
* ``no`` topic, number: that message was refused, or may have been.
* ``see`` topic, identity, number, order, node: a message of an application has arrived, as a publication of this node.
* ``torn`` topic, identity, number: and its value differs from the published one.
* ``dropped`` topic, count: its subscription reports so many dropped messages so far.
* ``gap`` topic: the application was told that messages may be missing here.
* ``end`` topic: it has ended its subscription to the topic.

One file holds the events at one place, where one application may follow another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec

from antiphon.runtime.clocks import monotonic_us

BUFFER_BYTES: Final = 1 << 16
NO_KEYS: Final = "-"


class JournalEntry(msgspec.Struct, frozen=True):
    """One line of a journal."""

    what: str
    time_us: int
    fields: list[str]


class ApplicationJournal:
    """Writes one journal."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", buffering=BUFFER_BYTES, encoding="ascii")

    def begin(self, identity: int) -> None:
        """An application begins."""
        self._write("begin", identity)

    def node(self, address: str) -> None:
        """The client talks to this node from now on."""
        self._write("node", address)

    def ready(self, topic: int) -> None:
        """A subscription is effective."""
        self._write("ready", topic)

    def ask(self, topic: int, number: int, order: str, keys: Sequence[str]) -> None:
        """A message is about to be published."""
        self._write("ask", topic, number, order, ",".join(keys) or NO_KEYS)

    def answered(self, topic: int, number: int, is_accepted: bool) -> None:
        """A message was accepted, or was not."""
        self._write("yes" if is_accepted else "no", topic, number)

    def see(self, topic: int, identity: int, number: int, order: str, publisher: int, is_whole: bool = True) -> None:
        """A message has arrived that a node published, whole or not."""
        self._write("see", topic, identity, number, order, publisher)
        if not is_whole:
            self._write("torn", topic, identity, number)

    def dropped(self, topic: int, count: int) -> None:
        """The subscription reports so many dropped messages so far."""
        self._write("dropped", topic, count)

    def gap(self, topic: int) -> None:
        """Messages may be missing here."""
        self._write("gap", topic)

    def end(self, topic: int) -> None:
        """A subscription has ended."""
        self._write("end", topic)

    def flush(self) -> None:
        """Make the lines so far visible to readers."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, what: str, *fields: object) -> None:
        self._file.write(f"{what} {monotonic_us()} {' '.join(map(str, fields))}\n")


def read_journal(path: Path) -> Iterator[JournalEntry]:
    """The lines of a journal, without an unfinished last line of a process that was killed."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                what, time_us, *fields = line.split()
                yield JournalEntry(what, int(time_us), fields)
