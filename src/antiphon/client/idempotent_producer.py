"""The client's side of a writer: one lane of it writes a series, again if it has to, and knows when all have it.

A program whose work may be done again opens a :class:`Lane`, hands in the same pieces in the same order and finishes.
Pieces that all nodes have on their disks are not sent again. A piece that differs from an earlier attempt is refused.
When :meth:`Lane.finish` returns, every member of the topics has every piece once. If anything goes wrong, whatever it
is, nothing is promised, and everything may be begun again at any node (:mod:`antiphon.sessions.writers` says why that
is so).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.client.remote_log import AskingClient
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.membership.messages import Control
from antiphon.sessions.client_messages import (
    LaneOf,
    NodeProducerState,
    ProducerRequest,
    ProducerResponse,
    PublishRequest,
)
from antiphon.sessions.peer_messages import LaneState
from antiphon.sessions.writers import DIGEST_BITS, number_of, place_of, series_of

UNDER_WAY_AT_MOST: Final = 16
"""Batches that a lane has handed in and that are not accepted, before it waits."""

STALLED_SECONDS: Final = 10.0
"""For so long nobody who lacks something may stand still before the lane gives up."""

LEVEL_SECONDS: Final = 1.0
"""For so long somebody who lacks something of an earlier series may stand still before a new one begins."""

PAUSES_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
CONTENT_ENCODER: Final = msgspec.msgpack.Encoder()


class NoLogError(UsageError):
    """The node keeps nothing on a disk, so it cannot know after a restart what has been written."""


class ConflictError(UsageError):
    """Something else has been written under the same name and numbers before."""


class LaneProgress:
    """The progress of a lane on one topic, in this series."""

    def __init__(self) -> None:
        self.place = 0
        self.digest = 0
        # What all who count had when the lane was opened, and the furthest that anybody had.
        self.everywhere = 0
        self.furthest = 0
        self.furthest_digests: set[int] = set()


class Lane:
    """One lane of a writer that writes one series. Made by :meth:`open`; calls must not overlap."""

    def __init__(self, client: AskingClient, writer: str, lane: int, series: int, order: str) -> None:
        self._client = client
        self._writer = writer
        self._lane = lane
        self._series = series
        self._order = order
        self._progress: dict[str, LaneProgress] = {}
        self._under_way: deque[asyncio.Future[Any]] = deque()
        # Topics on which not all have the same of an earlier series.
        self._uneven: set[str] = set()
        self.skipped = 0
        """Pieces that were not sent because all have them."""

    @classmethod
    async def open(
        cls,
        client: AskingClient,
        writer: str,
        lane: int,
        series: int,
        order: str = "causal",
        topics: Iterable[str] = (),
        needs_log: bool = True,
    ) -> Lane:
        """Ask all nodes how far this lane has come."""
        number_of(series, 1)
        opened = cls(client, writer, lane, series, order)
        wanted = list(dict.fromkeys(topics))
        nodes = await opened._ask(wanted)
        found = {position.topic for node in nodes for position in node.lane_states}
        if not found <= set(wanted):
            # Also those who know nothing of the lane are members of these topics.
            nodes = await opened._ask([*dict.fromkeys((*wanted, *sorted(found)))])
        if needs_log and not nodes[0].has_log:
            raise NoLogError(
                f"the node at {client.address} keeps no log, so it could not tell after a restart what has been "
                "written; start nodes with a data directory (--data), or allow it (durable=false)"
            )
        opened._begin(nodes)
        return opened

    async def _ask(self, topics: list[str]) -> list[NodeProducerState]:
        def ask(number: int) -> Control:
            return ProducerRequest(number, self._writer, self._lane, topics)

        answer = await self._client.request(ask)
        assert isinstance(answer, ProducerResponse), "nothing else answers this"
        return answer.nodes

    def _begin(self, nodes: list[NodeProducerState]) -> None:
        for topic in sorted({position.topic for node in nodes for position in node.lane_states}):
            numbers = [number for node in nodes for number, _ in standings_on(topic, node)]
            later = max(numbers)
            if series_of(later) > self._series:
                raise ConflictError(
                    f"lane {self._lane} of {self._writer!r} has already written series {series_of(later)} on {topic!r} "
                    f"and now comes with series {self._series}: the record of what was done is older than what was "
                    "written (was a checkpoint restored from a copy?); go on under another name"
                )
            if series_of(later) < self._series:
                if len(set(self._numbers(topic, nodes))) > 1:
                    self._uneven.add(topic)
                continue
            progress = self._progress[topic] = LaneProgress()
            progress.furthest = place_of(later)
            progress.furthest_digests = {
                digest for node in nodes for number, digest in standings_on(topic, node) if number == later
            }
            # In causal and total order, what is written now comes after all that this node had, also to those who could
            # not be asked. In fifo order that is so only of what goes through this node, so everything does.
            progress.everywhere = 0 if self._order == "fifo" else min(self._places(topic, nodes))

    def _numbers(self, topic: str, nodes: list[NodeProducerState]) -> list[int]:
        """How far the lane has come at the node that was asked and at all members of a topic."""
        return [
            max((number for number, _ in standings_on(topic, node)), default=0)
            for index, node in enumerate(nodes)
            if index == 0 or topic in node.member_of
        ]

    def _places(self, topic: str, nodes: list[NodeProducerState]) -> list[int]:
        """The same in this series."""
        return [place_of(number) if self._is_of_series(number) else 0 for number in self._numbers(topic, nodes)]

    async def _until_level(self, topic: str) -> None:
        """Wait for those who catch up with an earlier series: what comes of it behind the new one is dropped.

        A node that does not come further was away when the series was written, and has a gap there as for all messages.
        """
        loop = asyncio.get_running_loop()
        moved_at, best, attempt = loop.time(), -1, 0
        while loop.time() - moved_at < LEVEL_SECONDS:
            numbers = self._numbers(topic, await self._ask([topic]))
            if len(set(numbers)) == 1:
                return
            if sum(numbers) > best:
                best, moved_at, attempt = sum(numbers), loop.time(), 0
            await asyncio.sleep(PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)])
            attempt += 1

    def _is_of_series(self, number: int) -> bool:
        return series_of(number) == self._series

    async def write(self, topic: str, columns: Columns, about: tuple[int, ...] = ()) -> None:
        """Hand in the next piece for a topic. It is accepted when :meth:`finish` returns and not before."""
        progress = self._progress.get(topic)
        if progress is None:
            progress = self._progress[topic] = LaneProgress()
        if topic in self._uneven:
            self._uneven.discard(topic)
            await self._until_level(topic)
        previous = progress.digest
        progress.place += 1
        progress.digest = chained(previous, topic, self._order, columns)
        if progress.place == progress.furthest and progress.furthest_digests != {progress.digest}:
            raise self._conflict(topic)
        if progress.place <= progress.everywhere:
            self.skipped += 1
            return
        number = number_of(self._series, progress.place)
        lane = LaneOf(self._writer, self._lane, progress.digest, previous)
        payload = encode_columns(columns)
        while len(self._under_way) >= UNDER_WAY_AT_MOST:
            await self._under_way.popleft()
        self._under_way.append(
            self._client.request(lambda reply: PublishRequest(reply, topic, self._order, payload, about, number, lane))
        )

    def _conflict(self, topic: str) -> ConflictError:
        return ConflictError(
            f"lane {self._lane} of {self._writer!r} has written other rows in series {self._series} on {topic!r} "
            "before; what is done again must give the same rows in the same order. Nothing more was written: find out "
            "what is not deterministic (or has changed), and go on under another name"
        )

    async def finish(self) -> dict[str, tuple[int, int]]:
        """Wait until every member of the topics has every piece; how many there are of each topic, and their digest."""
        while self._under_way:
            await self._under_way.popleft()
        loop = asyncio.get_running_loop()
        moved_at, best, attempt = loop.time(), -1, 0
        while True:
            nodes = await self._ask(list(self._progress))
            for topic in {position.topic for node in nodes for position in node.lane_states} | self._progress.keys():
                self._check_end(topic, nodes)
            places = [place for topic in self._progress for place in self._places(topic, nodes)]
            if all(
                place == progress.place
                for topic, progress in self._progress.items()
                for place in self._places(topic, nodes)
            ):
                return {topic: (progress.place, progress.digest) for topic, progress in self._progress.items()}
            if sum(places) > best:
                best, moved_at, attempt = sum(places), loop.time(), 0
            if loop.time() - moved_at > STALLED_SECONDS:
                raise PeerError(
                    f"lane {self._lane} of {self._writer!r}: a member of {', '.join(self._progress)} lacks batches "
                    f"and has received none for {STALLED_SECONDS:g} seconds; write the same batches again"
                )
            await asyncio.sleep(PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)])
            attempt += 1

    def _check_end(self, topic: str, nodes: list[NodeProducerState]) -> None:
        """Nobody may have more than was written now, or something else."""
        progress = self._progress.get(topic) or LaneProgress()
        for node in nodes:
            for number, digest in standings_on(topic, node):
                if not self._is_of_series(number):
                    continue
                place = place_of(number)
                if place > progress.place or (place == progress.place and digest != progress.digest):
                    raise self._conflict(topic)


async def lane_states_of_series(client: AskingClient, writer: str, series: int) -> list[LaneState]:
    """How far all lanes of a writer have come at any node, of those that have written in this series."""

    def ask(number: int) -> Control:
        return ProducerRequest(number, writer, None, [])

    answer = await client.request(ask)
    assert isinstance(answer, ProducerResponse), "nothing else answers this"
    return [each for node in answer.nodes for each in node.lane_states if series_of(each.number) == series]


def standings_on(topic: str, node: NodeProducerState) -> list[tuple[int, int]]:
    """Numbers and digests of one topic."""
    return [(position.number, position.digest) for position in node.lane_states if position.topic == topic]


def chained(previous: int, topic: str, order: str, columns: Columns) -> int:
    """The digest of everything up to a piece. When it was published makes no difference."""
    content = (topic, order, columns.values, columns.keys, columns.headers, columns.about)
    state = blake2b(previous.to_bytes(8, "big"), digest_size=8)
    state.update(CONTENT_ENCODER.encode(content))
    return int.from_bytes(state.digest(), "big") >> 64 - DIGEST_BITS
