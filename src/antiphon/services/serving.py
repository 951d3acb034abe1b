"""``antiphon.serve``: a replica of a service in this program, from its store to the questions that it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.api.lifecycle import Starting
from antiphon.kernel.errors import AntiphonError, DeniedError, PeerError, UsageError
from antiphon.runtime.errors import ClosedError, MissedMessagesError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.services.backends.postgres_store import PostgresStore
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.comparing import COMPARE_SECONDS, Comparing
from antiphon.services.description import ServiceType, describe
from antiphon.services.digests import Divergence
from antiphon.services.frames import (
    AskKeys,
    AskPiece,
    AskQuery,
    AskResults,
    AskState,
    HelloReply,
    encode,
    inquiries,
    replica_topic,
)
from antiphon.services.joining import AGAIN_SECONDS, HISTORY_REPLICAS, ReplicaJoining, StateTransfers, group_of
from antiphon.services.live_replica import LiveServiceReplica
from antiphon.services.peers import check_fabric, check_fabric_of_client, host_of, topic_of
from antiphon.services.replica_store import StateLostError
from antiphon.services.store import MemoryStore, StoreBackend

QUERY_SECONDS_AT_MOST: Final = 60.0
INQUIRIES_AT_MOST: Final = 4096

log = logger("services")


class ServedReplica:
    """A replica of a service in this program. Made by :func:`antiphon.serve`."""

    def __init__(self, live: LiveServiceReplica, joining: ReplicaJoining, compare_seconds: float) -> None:
        self._live = live
        self._joining = joining
        self._transfers = StateTransfers(live)
        self._comparing = Comparing(live, compare_seconds)
        # What others ask it; only while it has the state.
        self._serving: Any = None
        self._tasks = Tasks()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def topic(self) -> str:
        """The topic of its operations."""
        return self._live.topic

    @property
    def operations(self) -> int:
        """How many messages of the topic are part of its state."""
        return self._live.replica.applied

    @property
    def repeated(self) -> int:
        """How many messages came again, and were passed over."""
        return self._live.replica.repeated

    @property
    def divergences(self) -> list[Divergence]:
        """Keys whose values differ between this replica and another one, as far as it has noticed."""
        return list(self._comparing.found.values())

    async def until_ended(self) -> None:
        """Wait until the replica has ended. Raises the error that ended it, unless the program closed it."""
        await asyncio.shield(self._ended)

    async def start(self) -> ServedReplica:
        """Come to the state of the service, and answer from then on."""
        live = self._live
        live.subscription = await live.peer.subscribe(live.topic).ready()
        await self._joining.run()
        # Others find it before it has its first caller.
        await self._open_door()
        live.establish()
        self._tasks.spawn(self._run())
        self._tasks.spawn(self._keep_door())
        self._tasks.spawn(self._comparing.run())
        return self

    async def _open_door(self) -> None:
        live = self._live
        serving = live.peer.serve(replica_topic(live.topic), group=group_of(live.number), limit=INQUIRIES_AT_MOST)
        self._serving = await serving.ready()
        self._tasks.spawn(self._answer_all(serving))

    async def _keep_door(self) -> None:
        """Be found by others while this replica has the state, and not while it lacks something."""
        live = self._live
        while True:
            await live.changed.wait()
            live.changed.clear()
            try:
                if not live.is_established and self._serving is not None:
                    serving, self._serving = self._serving, None
                    await serving.close()
                elif live.is_established and self._serving is None:
                    await self._open_door()
            except AntiphonError as error:
                log.warning("others cannot be told about a replica", topic=live.topic, cause=error)
                await asyncio.sleep(AGAIN_SECONDS)
                live.changed.set()

    async def _run(self) -> None:
        """Follow the topic; come to the state of others where something was missed."""
        live = self._live
        try:
            while True:
                try:
                    await live.follow()
                except (MissedMessagesError, StateLostError) as error:
                    log.warning("a replica lacks operations; it fetches them", topic=live.topic, cause=error)
                    live.step_back()
                    await self._joining.run()
                    live.establish()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("a replica has ended", topic=live.topic, cause=error)
            live.fail(error)
            if not self._ended.done():
                self._ended.set_exception(error)
                # Nobody has to wait for it.
                self._ended.exception()

    # Questions.

    async def _answer_all(self, serving: Any) -> None:
        try:
            async for request in serving:
                self._tasks.spawn(self._answer(request))
        except AntiphonError as error:
            log.info("a replica is not asked any more", topic=self.topic, cause=error)

    async def _answer(self, request: Any) -> None:
        try:
            await request.reply(await self._reply_to(request.value))
        except AntiphonError as error:
            try:
                await request.fail(str(error))
            except AntiphonError as failure:
                log.warning("a question could not be answered", topic=self.topic, cause=failure)

    async def _reply_to(self, value: bytes) -> bytes:
        live = self._live
        try:
            asked = inquiries.decode(value)
        except msgspec.MsgspecError as error:
            raise PeerError(f"the question cannot be read: {error}") from error
        if not live.is_established:
            raise PeerError("this replica lacks operations and is fetching them; ask another one")
        if isinstance(asked, AskQuery):
            return await live.query(asked.body, asked.seen, min(asked.seconds, QUERY_SECONDS_AT_MOST))
        if isinstance(asked, AskResults):
            return encode(live.replica.frame(asked.caller, live.replica.ask(asked.caller, asked.numbers)))
        if isinstance(asked, AskState):
            return encode(await self._transfers.begin(asked))
        if isinstance(asked, AskKeys):
            async with live.turn:
                return encode(await live.work(lambda: live.replica.keys_in(asked.place)))
        if isinstance(asked, AskPiece):
            return encode(self._transfers.part(asked))
        return encode(HelloReply(live.number, live.replica.version, live.replica.applied))

    # Ending.

    async def close(self) -> None:
        """Stop: what is applied is in the store, and a replica with this store goes on from there."""
        self._tasks.cancel()
        if self._serving is not None:
            await self._serving.close()
        async with self._live.turn:
            self.abandon()

    def abandon(self) -> None:
        """Stop at once, as a crash does: what is not committed is gone from the store, and callers notice it."""
        self._tasks.cancel()
        if self._serving is not None:
            self._serving.abandon()
        self._live.close()
        if not self._ended.done():
            self._ended.set_result(None)


def open_store(store: object) -> StoreBackend:
    """The backend that a program names."""
    if store == "memory":
        return MemoryStore()
    if isinstance(store, str) and store.startswith(("postgresql://", "postgres://")):
        return PostgresStore(store)
    if isinstance(store, str) and "://" in store:
        raise UsageError(f"there is no store {store!r}; name a file, 'memory', 'postgresql://...', or pass a backend")
    if isinstance(store, (str, Path)):
        return SqliteStore(store)
    if all(hasattr(store, name) for name in ("read", "scan", "commit", "position", "tables", "restore")):
        return store  # type: ignore[return-value]
    raise UsageError(f"a store is a file, 'memory' or a backend, not {type(store).__name__}")


def serve(
    service: ServiceType,
    peer: Any,
    *,
    store: str | Path | StoreBackend = "memory",
    topic: str | None = None,
    compare_seconds: float = COMPARE_SECONDS,
) -> Starting[ServedReplica]:
    """Run a replica: ``async with antiphon.serve(Bank, node, store="bank.db")``.

    ``store`` is a file of SQLite, ``"memory"``, or a backend. A replica with a store that it used before goes on where
    that store is; all others get the state from a replica that runs, or from the history of the topic.
    Every ``compare_seconds`` replicas compare their states, see ``ServedReplica.divergences``.
    """
    if not compare_seconds > 0:
        raise UsageError(f"compare_seconds is more than 0, not {compare_seconds}")
    description = describe(service)
    host_of(peer)
    check_fabric(peer)
    name = topic_of(description, topic)

    async def begin() -> ServedReplica:
        await check_fabric_of_client(peer)
        has_history = await ensure_history(peer, name)
        live = LiveServiceReplica(description, peer, name, open_store(store))
        served = ServedReplica(live, ReplicaJoining(live, has_history), compare_seconds)
        try:
            return await served.start()
        except BaseException:
            await served.close()
            raise

    return Starting(begin())


async def ensure_history(peer: Any, topic: str) -> bool:
    """Keep the history of a topic at up to three nodes; whether there is one."""
    for replicas in range(HISTORY_REPLICAS, 0, -1):
        try:
            await peer.topics.create(topic, replicas=replicas)
        except ClosedError:
            raise
        except DeniedError:
            # Whoever may make it has done so, or not.
            return await is_described(peer, topic)
        except PeerError as error:
            log.info("the service has no history with so many replicas", topic=topic, replicas=replicas, cause=error)
            continue
        return True
    return False


async def is_described(peer: Any, topic: str) -> bool:
    """Whether there is a history that this program may read."""
    try:
        await peer.topics.describe(topic)
    except PeerError as error:
        log.warning("this program may not make the history of the service", topic=topic, cause=error)
        return False
    return True
