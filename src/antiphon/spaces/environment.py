"""The environment of a fabric under spaces: what concerns topics of spaces goes to these, the rest outside."""

from __future__ import annotations

from typing import Protocol

from mypy_extensions import i64

from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, LogReader
from antiphon.kernel.randomness import RandomStream
from antiphon.spaces.space import SpaceOrder


class SpaceTable(Protocol):
    """The spaces of a node."""

    def space(self, topic: int) -> SpaceOrder | None:
        """The space of a topic; None if it is in none."""


class SpaceEnvironment(Environment):
    """Passes on what a process does; deliveries and subscriptions on topics of spaces go through these."""

    def __init__(self, outer: Environment, table: SpaceTable) -> None:
        super().__init__(outer.identifier)
        self._outer = outer
        self._table = table

    # Through the spaces.

    def deliver(self, publication: Publication) -> None:
        space = self._table.space(int(publication.topic))
        if space is None:
            self._outer.deliver(publication)
        else:
            space.delivered(publication)

    def lost(self, topic: i64, source: i64, sequence: i64, is_late: bool = False) -> None:
        space = self._table.space(int(topic))
        if space is not None and sequence <= space.barrier.count(int(topic), int(source)):
            # The space has given it up, and said so.
            return
        self._outer.lost(topic, source, sequence, is_late)
        if space is not None:
            space.pass_over(int(topic), int(source), int(sequence))

    def subscribed(self, topic: i64) -> None:
        space = self._table.space(int(topic))
        if space is None:
            self._outer.subscribed(topic)
        else:
            space.subscribed(int(topic))

    def unsubscribed(self, topic: i64) -> None:
        space = self._table.space(int(topic))
        if space is not None:
            space.unsubscribed(int(topic))
        self._outer.unsubscribed(topic)

    # As they are.

    def now(self) -> i64:
        return self._outer.now()

    def shared_time(self) -> i64:
        return self._outer.shared_time()

    def send(self, destination: i64, message: ProtocolMessage) -> None:
        self._outer.send(destination, message)

    def log_reader(self, topic: i64) -> LogReader | None:
        return self._outer.log_reader(topic)

    def was_logged(self, topic: i64, source: i64, sequence: i64) -> bool:
        return self._outer.was_logged(topic, source, sequence)

    def read_logged(self, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        space = self._table.space(int(topic))
        # What waits has been acknowledged, and is not in the log yet.
        held = None if space is None else space.barrier.get_held(int(topic), int(source), int(sequence))
        return held if held is not None else self._outer.read_logged(topic, source, sequence)

    def restored_frontier(self, topic: i64) -> list[int] | None:
        return self._outer.restored_frontier(topic)

    def journal(self) -> list[ProtocolMessage] | None:
        return self._outer.journal()

    def write(self, record: ProtocolMessage) -> None:
        self._outer.write(record)

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        self._outer.rewrite(records)

    def sync(self) -> bool:
        return self._outer.sync()

    def unwanted(self, message: ProtocolMessage) -> None:
        self._outer.unwanted(message)

    def ordering_epoch(self, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        self._outer.ordering_epoch(epoch, members, councils)

    def has_capacity(self, topic: i64) -> bool:
        return self._outer.has_capacity(topic)

    def set_timer(self, delay: i64, name: i64) -> i64:
        return self._outer.set_timer(delay, name)

    def cancel_timer(self, handle: i64) -> None:
        self._outer.cancel_timer(handle)

    def random(self) -> RandomStream:
        return self._outer.random()

    def watch(self, peer: i64) -> None:
        self._outer.watch(peer)

    def silence_ticks(self, peer: i64) -> i64:
        return self._outer.silence_ticks(peer)

    def unwatch(self, peer: i64) -> None:
        self._outer.unwatch(peer)
