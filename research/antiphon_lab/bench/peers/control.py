"""The messages between the conductor and its workers: one line of JSON each, over standard input and output."""

from __future__ import annotations

import msgspec

from antiphon_lab.bench.peers.contender import Place
from antiphon_lab.bench.peers.workload import Round, Workload

LINE_MOST_BYTES = 1 << 26
"""A line with all latencies of a round is long."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """From the conductor to a worker."""


class Open(Order, frozen=True):
    """Connect and subscribe."""

    contender: str
    workload: Workload
    place: Place


class Probe(Order, frozen=True):
    """Publish a probe."""


class Begin(Order, frozen=True):
    """Forget the round before; count from here."""

    round: Round


class Publish(Order, frozen=True):
    """Publish your share of the round, then its end, again and again until the round is over."""


class Over(Order, frozen=True):
    """All subscribers have everything: stop repeating the end."""


class Close(Order, frozen=True):
    """Disconnect and end."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """From a worker to the conductor."""


class Opened(Answer, frozen=True):
    """Connected and subscribed."""


class Probed(Answer, frozen=True):
    """A probe has been published."""


class Heard(Answer, frozen=True):
    """Probes of all publishers have arrived."""


class Begun(Answer, frozen=True):
    """Ready for the round."""


class Published(Answer, frozen=True):
    """All messages of this publisher's share have been published, or its time is over."""

    messages: int
    begun_nanoseconds: int
    ended_nanoseconds: int


class Received(Answer, frozen=True):
    """The ends of all publishers have arrived."""

    messages: int
    finished_nanoseconds: int
    latencies_nanoseconds: list[int]
    """The latency of every message, in a paced round."""


class Spent(Answer, frozen=True):
    """Processor time of this worker since the beginning of the round."""

    processor_seconds: float


class Closed(Answer, frozen=True):
    """Disconnected."""


class Failed(Answer, frozen=True):
    """Something went wrong; the worker ends."""

    reason: str


AnyOrder = Open | Probe | Begin | Publish | Over | Close
AnyAnswer = Opened | Probed | Heard | Begun | Published | Received | Spent | Closed | Failed

orders = msgspec.json.Decoder(AnyOrder)
answers = msgspec.json.Decoder(AnyAnswer)


def line_of(word: Order | Answer) -> bytes:
    """A message as one line."""
    return msgspec.json.encode(word) + b"\n"
