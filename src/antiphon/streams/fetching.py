"""Fetches the messages of entries that the fabric does not bring, from other replicas."""

from __future__ import annotations

from typing import Final

from antiphon.streams.messages import ContentRequest, ContentResponse, NamedContent
from antiphon.streams.replica_log import ReplicaLog

FETCH_US: Final = 200_000
"""How long a replica waits for the fabric before it asks another replica for messages."""

REST_US: Final = 1000
"""How long it rests between two pieces of a long history."""

FETCHED_AT_MOST: Final = 64
"""How many publications one request names."""

FETCHED_BYTES: Final = 1 << 20
"""An answer has at least one publication, and no more once it has so many bytes."""


class Fetching:
    """The missing messages of one replica."""

    def __init__(self, stream: int, me: int, log: ReplicaLog) -> None:
        self._stream = stream
        self._me = me
        self._log = log
        self._host = log.host
        self._is_asking = False
        self._turn = 0
        # Requests are numbered: a timer of an earlier one does not count.
        self._number = 0

    def advance(self) -> None:
        """Entries or messages have come: if some messages are missing, ask for them after a while."""
        if not self._log.advance() and not self._is_asking:
            self._is_asking = True
            self._ask_after(FETCH_US)

    def _ask_after(self, delay_us: int) -> None:
        self._number += 1
        number = self._number
        self._host.after(delay_us, lambda: self._ask() if number == self._number else None)

    def _ask(self) -> None:
        """Ask a replica, another one each time."""
        host, log = self._host, self._log
        self._is_asking = False
        missing = log.missing(FETCHED_AT_MOST)
        others = [each for each in log.replicas.all if each != self._me and host.is_connected(each)]
        if missing and others:
            self._turn += 1
            host.send(others[self._turn % len(others)], ContentRequest(self._stream, log.term, missing))
        self.advance()

    def on_request(self, sender: int, message: ContentRequest) -> None:
        """Another replica lacks messages."""
        contents: list[NamedContent] = []
        size = 0
        for name in message.publications:
            if size < FETCHED_BYTES:
                found = self._host.read_contents([name])
                contents += found
                size += sum(len(content) for _, _, content in found)
        if contents:
            self._host.send(sender, ContentResponse(self._stream, self._log.term, contents))

    def on_response(self, _sender: int, message: ContentResponse) -> None:
        """Another replica has sent messages; they count when they are on disk."""
        for source, sequence, content in message.contents:
            if not self._host.holds(source, sequence) and not self._log.is_past(source, sequence):
                self._host.write_content(source, sequence, content)

        def written() -> None:
            if self._is_asking and not self._log.advance():
                # A long history: the next piece follows this one.
                self._ask_after(REST_US)
            self.advance()
            self._host.progressed()

        self._host.when_on_disk(written)
