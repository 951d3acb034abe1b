"""What applications write down in a live campaign, line by line, as it happens.

A line is what happened, when (microseconds of the clock that all processes of a machine share) and what it was about:

===========  =====================================  ==================================================================
line         fields                                 meaning
===========  =====================================  ==================================================================
``begin``    identity                               an application has begun; it has this number, and nobody else
``node``     address                                its client talks to the node there from now on
``ready``    topic                                  its subscription is effective
``ask``      topic, number, order, keys             it publishes: its how many-th message on the topic, about these keys
``yes``      topic, number                          that message was accepted
``no``       topic, number                          the application was told that it was not, or may not have been
``see``      topic, identity, number, order         a message of an application has come
``torn``     topic, identity, number                and it was not as it had been published
``dropped``  topic, count                           so many messages were dropped so far, as its subscription says
``gap``      topic                                  the application was told that messages may be missing here
``end``      topic                                  it does not want to hear more of the topic
===========  =====================================  ==================================================================

One file holds what happened at one place, where an application may follow another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec

from antiphon.runtime.clocks import monotonic_us

BUFFER_BYTES: Final = 1 << 16
NO_KEYS: Final = "-"


class Entry(msgspec.Struct, frozen=True):
    """One line."""

    what: str
    time_us: int
    fields: list[str]


class Journal:
    """Writes one file."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", buffering=BUFFER_BYTES, encoding="ascii")

    def begin(self, identity: int) -> None:
        """Somebody begins."""
        self._write("begin", identity)

    def node(self, address: str) -> None:
        """This is the node from now on."""
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

    def see(self, topic: int, identity: int, number: int, order: str, is_whole: bool = True) -> None:
        """A message has come, as it was published or not."""
        self._write("see", topic, identity, number, order)
        if not is_whole:
            self._write("torn", topic, identity, number)

    def dropped(self, topic: int, count: int) -> None:
        """So many messages were dropped so far."""
        self._write("dropped", topic, count)

    def gap(self, topic: int) -> None:
        """Messages may be missing."""
        self._write("gap", topic)

    def end(self, topic: int) -> None:
        """A subscription is given up."""
        self._write("end", topic)

    def flush(self) -> None:
        """Let others read what was written."""
        self._file.flush()

    def close(self) -> None:
        """No more is written."""
        self._file.close()

    def _write(self, what: str, *fields: object) -> None:
        self._file.write(f"{what} {monotonic_us()} {' '.join(map(str, fields))}\n")


def read_journal(path: Path) -> Iterator[Entry]:
    """The lines of a file; one that was not finished, because its process was ended, is left out."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                what, time_us, *fields = line.split()
                yield Entry(what, int(time_us), fields)
