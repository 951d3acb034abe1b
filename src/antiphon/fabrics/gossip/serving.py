"""Answers to who lacks something: publications from the buffer, or else from the log, and what is gone.

Buffers keep some publications of each source for neighbours that are late. Who was cut off for longer asks for what is
in nobody's buffer any more; a node that has a log sends it from there. What only nodes without a log had is gone, and
who asks for it is told (:mod:`antiphon.fabrics.gossip.group`, *Loss*).
"""

from __future__ import annotations

from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import Fetch, Gone, Resent
from antiphon.fabrics.gossip.stream import Stream
from antiphon.kernel.process import Environment
from antiphon.orders.order import Ordered


def serve(environment: Environment, stream: Stream, asker: i64, fetch: Fetch) -> None:
    """Send what is there of some numbers; if the first that were here are not, say up to which they are gone."""
    has_sent = False
    gone: i64 = 0
    for number in fetch.numbers:
        if not stream.is_here(number):
            continue
        publication = still_there(environment, stream, fetch.topic, number)
        if publication is not None:
            has_sent = True
            environment.send(asker, Resent(publication))
        elif not has_sent:
            gone = number
    if gone > 0:
        environment.send(asker, Gone(fetch.source, gone, fetch.topic))


def still_there(environment: Environment, stream: Stream, topic: i64, number: i64) -> Ordered | None:
    """A publication that was here."""
    kept = stream.kept.get(number)
    if kept is not None:
        return kept
    recalled = environment.recalled(topic, stream.source, number)
    return recalled if isinstance(recalled, Ordered) else None
