"""Batches of simulated clients and writers: one message each, with its author in front of it."""

from __future__ import annotations

from typing import Final, NamedTuple

SEPARATOR: Final = b"|"
WRITTEN: Final = b"written"


class LaneOrigin(NamedTuple):
    """The author of a batch that a lane of a writer has written; :class:`antiphon.sessions.writers.LaneBatch`."""

    client: int
    number: int
    writer: int
    lane: int
    digest: int
    previous: int


class SimulatedBatch(NamedTuple):
    """A batch as a node shows it."""

    publisher: int
    sequence: int
    order: str
    payload: bytes
    author: int
    number: int
    origin: LaneOrigin | None = None

    @property
    def is_written(self) -> bool:
        """Whether an exactly-once writer published it."""
        return self.origin is not None

    @property
    def name(self) -> str:
        """The message."""
        return self.payload.rpartition(SEPARATOR)[2].decode()

    @property
    def total_keys(self) -> set[bytes | None]:
        """All messages are about one key."""
        return {None}


def client_payload(client: int, serial: int, message: bytes) -> bytes:
    """The batch of a client."""
    return b"%d|%d|%s" % (client, serial, message)


def written_payload(origin: LaneOrigin, message: bytes) -> bytes:
    """The batch of a lane."""
    return SEPARATOR.join((WRITTEN, *(b"%d" % value for value in origin), message))


def batch_of(publisher: int, sequence: int, order: str, payload: bytes) -> SimulatedBatch:
    """A batch with the author that its payload names; a barrier has none."""
    if not payload:
        return SimulatedBatch(publisher, sequence, order, payload, publisher, sequence)
    parts = payload.split(SEPARATOR)
    if parts[0] == WRITTEN:
        origin = LaneOrigin(*map(int, parts[1:-1]))
        return SimulatedBatch(publisher, sequence, order, payload, origin.client, origin.number, origin)
    return SimulatedBatch(publisher, sequence, order, payload, int(parts[0]), int(parts[1]))
