"""Answers those who read a history, and publishers that wait for the positions of their messages, at one node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from antiphon.streams.entries import DATA, IndexEntry
from antiphon.streams.requests import (
    AwaitPosition,
    BatchContent,
    HistoryPiece,
    PositionFound,
    ReadHistory,
    Redirect,
    Response,
)
from antiphon.streams.service.deadlines import Deadlines
from antiphon.streams.service.disk_waits import DiskWait, DiskWaits
from antiphon.streams.service.host import StreamClient
from antiphon.streams.service.inquiries import check_generation, first_position, last_values_from
from antiphon.streams.service.live_replica import LiveReplica
from antiphon.streams.service.open_waits import PUBLISHERS_AT_MOST, READERS_AT_MOST, WAIT_US, OpenWaits
from antiphon.streams.service.recent_positions import AwaitedPositions, PlacedBatch, RecentPositions
from antiphon.streams.service.service import StreamService

PIECE_BYTES_AT_MOST: Final = 1 << 20
"""A piece of history has at least one publication, and no more once it has so many bytes."""

READERS_AT_ONCE: Final = 4
"""So many readers get their news in one turn."""

ENTRIES_READ: Final = 256
"""How many publications one piece of history has at most."""


class HistoryRequests:
    """The readers and waiting publishers of all clients of one node."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        self._host = service.host
        # By stream: readers that wait for messages, and the positions of the last publications.
        self._readers: dict[int, dict[Callable[[], None], None]] = {}
        self._positions: dict[int, RecentPositions] = {}
        self._disk_waits = DiskWaits(service)
        self._waiting_readers = OpenWaits("readers", READERS_AT_MOST, service.now_us)
        self._waiting_publishers = OpenWaits("messages", PUBLISHERS_AT_MOST, service.now_us)
        self._deadlines = Deadlines(service)

    def read(
        self, client: StreamClient, replica: LiveReplica, request: ReadHistory, respond: Callable[[Response], None]
    ) -> None:
        """A client reads from a position on, and perhaps waits for what is there."""
        check_generation(replica, request.generation)
        end = replica.coordinator.settled_end
        position = first_position(replica, request.position, request.start_us)
        if position < replica.kept().earliest:
            respond(last_values_from(replica, position, min(request.most_bytes, PIECE_BYTES_AT_MOST)))
        elif position < end:
            respond(self._piece(replica, position, request.most_bytes))
        elif request.wait_us == 0:
            respond(HistoryPiece([], position, replica.stream))
        else:
            self._wait_for_news(client, replica, position, request, respond)

    def _wait_for_news(
        self,
        client: StreamClient,
        replica: LiveReplica,
        position: int,
        request: ReadHistory,
        respond: Callable[[Response], None],
    ) -> None:
        self._waiting_readers.check(client)
        is_answered = False

        def end() -> None:
            nonlocal is_answered
            is_answered = True
            cancel()
            self._readers.get(replica.stream, {}).pop(answer, None)

        def answer() -> None:
            if is_answered:
                return
            end()
            over()
            # Retention may have removed the position meanwhile: then the next question is refused.
            is_kept = position >= replica.kept().earliest
            if is_kept and client.has_room:
                respond(self._piece(replica, position, request.most_bytes))
            else:
                respond(HistoryPiece([], position))

        cancel = self._deadlines.add(min(request.wait_us, WAIT_US), answer)
        over = self._waiting_readers.begin(client, end)
        self._readers.setdefault(replica.stream, {})[answer] = None

    def _wake(self, stream: int, readers: list[Callable[[], None]]) -> None:
        """There is news for readers: some in each turn, because each of them reads from the disk."""
        for answer in readers[:READERS_AT_ONCE]:
            answer()
        if len(readers) > READERS_AT_ONCE:
            self._service.after(0, partial(self._wake, stream, readers[READERS_AT_ONCE:]))

    def _piece(self, replica: LiveReplica, position: int, most_bytes: int) -> HistoryPiece:
        end, size, most_bytes = replica.coordinator.settled_end, 0, min(most_bytes, PIECE_BYTES_AT_MOST)
        batches: list[BatchContent] = []
        for entry in self._service.store.entries_at(replica.stream, position, ENTRIES_READ):
            if entry.end > end or (batches and size > most_bytes):
                break
            content = self.content(replica, entry)
            if content is None:
                break
            batches.append(content)
            size += len(content.payload)
            position = entry.end
        return HistoryPiece(batches, position, replica.stream, bool(replica.replica.log.last_values.by_key))

    def content(self, replica: LiveReplica, entry: IndexEntry) -> BatchContent | None:
        """The messages of an entry, if they are here."""
        found = replica.content_of(entry)
        if found is None:
            return None
        return BatchContent(entry.position, int(found.publisher), int(found.sequence), found.order, found.payload)

    # Positions.

    def await_position(
        self, client: StreamClient, replica: LiveReplica, request: AwaitPosition, respond: Callable[[Response], None]
    ) -> None:
        """A publisher wants to know the positions of its messages."""
        self._waiting_publishers.check(client)
        over: Callable[[], object] = bool

        def answer(response: Response) -> None:
            over()
            respond(response)

        def found(position: int, jumps: list[int], entry: int) -> None:
            nonlocal over
            leading = replica.replica.leading
            placed = PositionFound(replica.stream, position, 0 if leading is None else leading.disks(entry), jumps)
            if request.all_us == 0 or leading is None:
                answer(placed)
                return
            until_us = self._service.now_us() + min(request.all_us, WAIT_US)
            wait = DiskWait(placed, entry, until_us, answer)
            over()
            over = self._waiting_publishers.begin(client, wait.end)
            self._disk_waits.add(replica, wait)

        awaited = AwaitedPositions(request.author, request.sequence, request.count, found, answer)
        give_up = self._positions_of(replica.stream).find(awaited)
        if give_up is not None:
            over = self._waiting_publishers.begin(client, give_up)

    def _positions_of(self, stream: int) -> RecentPositions:
        return self._positions.setdefault(stream, RecentPositions())

    def settled(self, replica: LiveReplica, entry: IndexEntry) -> None:
        """An entry of a stream is settled here."""
        if entry.kind != DATA:
            return
        is_leading = replica.replica.leading is not None
        readers = self._readers.pop(replica.stream, None) if is_leading else None
        if readers:
            self._wake(replica.stream, list(readers))
        # The next leader is asked for positions that were settled before it led.
        batch = replica.batch_of(entry) if is_leading else replica.batch_in_memory(entry)
        if batch is None:
            return
        first = self._host.first_number(batch)
        placed = PlacedBatch(first, int(batch.count), entry.position, replica.replica.log.settled)
        self._positions_of(replica.stream).add(batch.author, placed)

    def leader_changed(self, replica: LiveReplica) -> None:
        """A replica leads no more: publishers ask the next leader."""
        elsewhere = Redirect(self._service.whom_to_ask(replica.stream), "the history has another leader")
        for awaited in self._positions_of(replica.stream).leads_no_more():
            awaited.respond(elsewhere)

    def client_ended(self, client: StreamClient) -> None:
        """A client has gone: nobody waits for its answers."""
        self._waiting_readers.client_ended(client)
        self._waiting_publishers.client_ended(client)
