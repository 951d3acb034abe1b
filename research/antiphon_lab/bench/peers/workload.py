"""A workload: its publishers and subscribers, its amount, and the format of its messages.

A data message has the size of the workload and carries the time of its publication in its first eight bytes. Markers
are shorter than any data message: probes, which show that a subscription is effective, and ends, which carry the number
of messages that a publisher has published in a round. All contenders keep the order of one publisher, so an end arrives
last.
"""

from __future__ import annotations

import re
import struct

import msgspec

from antiphon.kernel.errors import UsageError

STAMP = struct.Struct("<q")
"""Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share."""

MARKER = struct.Struct("<cHHQ")
"""Kind, round, publisher, number of messages."""

PROBE = b"p"
END = b"e"

PAYLOAD_LEAST_BYTES = 32
PAYLOAD_MOST_BYTES = 1 << 20
PROCESSES_AT_MOST = 64

CHUNK_MESSAGES = 256
"""The number of messages between two reads of the clock; also the length of a pipeline for clients that need one."""


class Workload(msgspec.Struct, frozen=True):
    """A number of publishers and of subscribers, one process each; if they are equal, every process does both."""

    publishers: int
    subscribers: int
    payload_bytes: int

    @property
    def everyone_does_both(self) -> bool:
        """Whether every process publishes and receives, its own messages included."""
        return self.publishers == self.subscribers > 1

    @property
    def processes(self) -> int:
        """The number of processes, without servers."""
        return self.publishers if self.everyone_does_both else self.publishers + self.subscribers

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.publishers}-to-{self.subscribers}"

    def publishes(self, index: int) -> bool:
        """Whether the process with this index publishes."""
        return index < self.publishers

    def receives(self, index: int) -> bool:
        """Whether the process with this index receives."""
        return self.everyone_does_both or index >= self.publishers


class Round(msgspec.Struct, frozen=True):
    """One stretch of publishing, bounded in number and in time; with a rate it is paced and timed."""

    number: int
    messages: int
    """The messages of all publishers together."""
    seconds: float
    rate: float = 0.0
    """Messages per second of all publishers together; 0 is as fast as the contender accepts them."""

    @property
    def is_paced(self) -> bool:
        """Whether latency is measured rather than speed."""
        return self.rate > 0

    def share(self, publisher: int, publishers: int) -> int:
        """How many messages this publisher may publish."""
        return self.messages // publishers + (publisher < self.messages % publishers)


def parse_workload(text: str, payload_bytes: int) -> Workload:
    """Read ``1-to-7``."""
    found = re.fullmatch(r"([0-9]{1,3})-to-([0-9]{1,3})", text.strip())
    if found is None or 0 in (sizes := (int(found[1]), int(found[2]))):
        raise UsageError(f"a workload is written like 1-to-7, publishers to subscribers, not {text!r}")
    workload = Workload(*sizes, payload_bytes)
    if workload.processes > PROCESSES_AT_MOST:
        raise UsageError(f"{text} needs {workload.processes} processes; at most {PROCESSES_AT_MOST} are started")
    if not PAYLOAD_LEAST_BYTES <= payload_bytes <= PAYLOAD_MOST_BYTES:
        raise UsageError(
            f"a payload has {PAYLOAD_LEAST_BYTES} to {PAYLOAD_MOST_BYTES:,} bytes, not {payload_bytes}; "
            "change --payload"
        )
    return workload


def marker(kind: bytes, round_number: int, publisher: int, messages: int = 0) -> bytes:
    """A message without data."""
    return MARKER.pack(kind, round_number, publisher, messages)
