"""How a replica comes to the state of a service, when it is new, comes back, or has missed something.

1. It subscribes. From then on everything that is published is shown to it, and waits.
2. It publishes a *mark* in causal order, and asks a replica that has the state. That one waits until it has the mark
   and everything that counts as past where the asking one is. Then it sends what the asking one lacks: operations, if
   it still has them all, or else a snapshot.
3. If no replica has the state, the history of the topic does: it is read from the replica's position up to the mark.
4. The waiting operations are applied; those that the state already has are recognised by author and number.

So nothing is between the state and the subscription, and nothing counts twice.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError, RemovedError
from antiphon.runtime.errors import ClosedError, NobodyServesError
from antiphon.runtime.logging import logger
from antiphon.services.errors import TablesError
from antiphon.services.frames import (
    MARK,
    AskPiece,
    AskReplica,
    AskState,
    StatePiece,
    decode_frames,
    encode,
    hello_replies,
    replica_topic,
    state_pieces,
)
from antiphon.services.live_replica import MARK_SECONDS, LiveServiceReplica
from antiphon.services.peers import PastPublications
from antiphon.services.replica import OutdatedReplicaError
from antiphon.streams.position import Position

PIECE_BYTES: Final = 1 << 20
TRANSFERS_AT_MOST: Final = 4
HISTORY_REPLICAS: Final = 3
AGAIN_SECONDS: Final = 0.5
OPERATIONS_AT_ONCE: Final = 512
MARK_BYTES_AT_MOST: Final = 64

log = logger("services")


class IncompleteHistoryError(PeerError):
    """No replica has the state, and the history of the topic begins too late to build it."""


class ReplicaJoining:
    """Brings one replica to the state of the service, as often as it lacks something."""

    def __init__(self, live: LiveServiceReplica, has_history: bool) -> None:
        self._live = live
        self._has_history = has_history
        self._past = PastPublications(live.peer, live.topic)

    async def run(self) -> None:
        """Come to the state; the subscription is ready."""
        while True:
            self._live.check()
            try:
                source = await self._ask_who()
                if source is None:
                    await self._from_history()
                    return
                await self._from_replica(source)
                if not self._past.is_known:
                    # A client cannot say what its node will not get: once more, for what was under way.
                    await asyncio.sleep(2 * AGAIN_SECONDS)
                    await self._from_replica(source)
                return
            except (ClosedError, OutdatedReplicaError, IncompleteHistoryError, TablesError):
                raise
            except PeerError as error:
                log.warning("a state could not be fetched; asking again", topic=self._live.topic, cause=error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _ask_who(self) -> int | None:
        """A replica that has the state, if there is one."""
        topic = replica_topic(self._live.topic)
        try:
            reply = await self._live.peer.request(topic, encode(AskReplica()), timeout=5.0)
        except NobodyServesError:
            return None
        return int(hello_replies.decode(reply.value).replica)

    async def _from_replica(self, source: int) -> None:
        live = self._live
        mark = await live.publish_mark()
        asked = AskState(mark, live.replica.kept.ranges(), self._past.keys())
        piece = await self._ask_piece(source, asked)
        items: list[tuple[bytes, bytes]] = []
        part, transfer = 0, piece.transfer
        while True:
            if piece.position:
                items.extend(piece.items)
            else:
                await live.apply(piece.operations)
            if piece.is_last:
                break
            part += 1
            piece = await self._ask_piece(source, AskPiece(transfer, part))
        if piece.position:
            await live.restore(items, piece.position)
        log.info("a replica has its state", topic=live.topic, source=source, keys=len(items))

    async def _ask_piece(self, source: int, asked: AskState | AskPiece) -> StatePiece:
        reply = await self._live.peer.request(
            replica_topic(self._live.topic), encode(asked), timeout=2 * MARK_SECONDS, group=group_of(source)
        )
        try:
            piece = state_pieces.decode(reply.value)
        except msgspec.MsgspecError as error:
            raise PeerError(f"replica {source} sent a state that cannot be read: {error}") from error
        if piece.refusal:
            raise TablesError(f"another replica cannot give its state: {piece.refusal}")
        return piece

    # Without a replica.

    async def _from_history(self) -> None:
        """No replica has the state: read the history of the topic, if it has one; else begin with what there is."""
        live = self._live
        if not self._has_history:
            log.info("a replica is the first of its service", topic=live.topic, operations=live.replica.applied)
            return
        progress = live.replica.kept.progress
        start: Any = Position(progress.position, progress.generation) if progress.generation else "earliest"
        marks = {await live.publish_mark()}
        marking = asyncio.get_running_loop().create_task(self._mark_again(marks))
        try:
            await self._read_history(start, marks)
        except RemovedError as error:
            log.warning("the history begins later than the state of a replica", topic=live.topic, cause=error)
            await self._read_history("earliest", marks)
        finally:
            marking.cancel()

    async def _mark_again(self, marks: set[int]) -> None:
        """A mark may get no place in the history: after a while another one will do."""
        while True:
            await asyncio.sleep(MARK_SECONDS)
            marks.add(await self._live.publish_mark())

    async def _read_history(self, start: Any, marks: set[int]) -> None:
        live, waiting = self._live, []
        is_first = True
        async for message in live.peer.history(live.topic, start):
            if is_first and message.position > 0 and not live.replica.applied:
                raise IncompleteHistoryError(
                    f"no replica of {live.topic!r} is there, and its history begins at {message.position}: the state "
                    "before that is gone; start a replica that has its store"
                )
            is_first = False
            waiting.append((message.author, message.author_sequence, message.value))
            if len(waiting) < OPERATIONS_AT_ONCE and not is_mark(message.value, marks):
                continue
            live.replica.kept.reach(message.position.generation, int(message.position))
            await live.apply(waiting)
            waiting.clear()
            if any(live.replica.has_passed(mark) for mark in marks):
                break
        log.info("a replica has its state from the history", topic=live.topic, operations=live.replica.applied)


class StateTransfers:
    """The states that a replica is giving to others, in parts."""

    def __init__(self, live: LiveServiceReplica) -> None:
        self._live = live
        self._past = PastPublications(live.peer, live.topic)
        self._parts: dict[int, list[StatePiece]] = {}

    async def begin(self, asked: AskState) -> StatePiece:
        """The first part of what another replica lacks; :class:`PeerError` if this one cannot say it in time."""
        live = self._live
        if not await live.until(lambda: live.replica.has_passed(asked.mark), MARK_SECONDS):
            raise PeerError("the mark of the asking replica has not come")
        if not await live.until(lambda: self._past.covers(asked.past), MARK_SECONDS):
            raise PeerError("something that the asking replica lacks has not come")
        own = await live.publish_mark()
        if not await live.until(lambda: live.replica.has_passed(own), MARK_SECONDS):
            raise PeerError("the replica is too far behind to give its state")
        async with live.turn:
            parts = await live.work(lambda: self._cut(asked))
        transfer = parts[0].transfer
        self._parts[transfer] = parts
        if len(self._parts) > TRANSFERS_AT_MOST:
            del self._parts[next(iter(self._parts))]
        return parts[0]

    def _cut(self, asked: AskState) -> list[StatePiece]:
        transfer, replica = secrets.randbits(62), self._live.replica
        operations = replica.operations.since(asked.applied)
        if operations is not None:
            lots = pieces_of(operations, lambda each: len(each[2]))
            last = len(lots) - 1
            return [StatePiece(transfer, place == last, operations=lot) for place, lot in enumerate(lots)]
        try:
            whole = list(replica.kept.whole())
        except TablesError as error:
            return [StatePiece(transfer, True, refusal=str(error))]
        rows = pieces_of(whole, lambda each: len(each[0]) + len(each[1]))
        position, last = replica.kept.position(), len(rows) - 1
        return [StatePiece(transfer, place == last, position, items=lot) for place, lot in enumerate(rows)]

    def part(self, asked: AskPiece) -> StatePiece:
        """A further part."""
        parts = self._parts.get(asked.transfer, [])
        if not 0 < asked.part < len(parts):
            raise PeerError("this part of a state is not kept any more; ask for the state anew")
        if asked.part == len(parts) - 1:
            del self._parts[asked.transfer]
        return parts[asked.part]


def pieces_of(rows: list[Any], size_of: Any) -> list[list[Any]]:
    """Rows in pieces that fit into messages; at least one, which may be empty."""
    pieces: list[list[Any]] = [[]]
    size = 0
    for row in rows:
        if size >= PIECE_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(row)
        size += size_of(row) + 16
    return pieces


def is_mark(value: bytes, marks: set[int]) -> bool:
    """Whether a message is one of these marks."""
    if len(value) > MARK_BYTES_AT_MOST:
        return False
    try:
        frames = decode_frames(value)
    except PeerError:
        return False
    return any(frame.kind == MARK and frame.number in marks for frame in frames)


def group_of(replica: int) -> str:
    """By what name one replica is asked."""
    return f"{replica:x}"
