"""A replica at a node or a client: it follows the topic of its service, applies, commits, and sends results.

It first comes to the state that others have (:mod:`antiphon.services.joining`). From then on it takes what its
subscription shows, in that order; what is shown at once shares a transaction. Where messages were missed it comes to
the state of others anew. While its store cannot be reached it waits: nothing is skipped, and callers get an error in
time.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from antiphon.kernel.errors import AntiphonError, PeerError
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.services.description import ServiceDescription
from antiphon.services.frames import MARK, Answer, ResultsFrame, ServiceFrame, encode, result_topic
from antiphon.services.peers import host_of
from antiphon.services.recent import Operation
from antiphon.services.replica import OutdatedReplicaError, ServiceReplica
from antiphon.services.replica_store import StateLostError
from antiphon.services.store import StoreBackend

STORE_AGAIN_SECONDS: Final = (0.05, 2.0)
"""How long a replica waits before it tries its store again: at first, and at most."""

MARK_SECONDS: Final = 30.0

log = logger("services")

Result = TypeVar("Result")

TakeResults = Callable[[ResultsFrame], None]

LOCAL: Final[dict[tuple[int, str], list[LiveServiceReplica]]] = {}
"""The replicas of this program, by the host and topic they work at: a proxy there asks them without messages."""


class LiveServiceReplica:
    """One replica. ``join`` is to bring it to the state of others; it is called again when messages were missed."""

    def __init__(self, description: ServiceDescription, peer: Any, topic: str, backend: StoreBackend) -> None:
        self.peer: Final = peer
        self.topic: Final = topic
        self.replica: Final = ServiceReplica(description, backend, secrets.randbits(62) | 1)
        self.subscription: Any = None
        self.is_established = False
        """Whether it has the state of the service, and answers."""
        self.turn: Final = asyncio.Lock()
        """Held while the state changes: who reads it then sees whole transactions."""
        self.failure: BaseException | None = None
        # Set when it is established, or is not any more.
        self.changed = asyncio.Event()
        self._callers: dict[int, TakeResults] = {}
        self._progress = asyncio.Event()
        # Whether its calls wait for another process.
        self._is_blocking = bool(getattr(backend, "is_blocking", False))
        self._key = (id(host_of(peer)), topic)

    @property
    def number(self) -> int:
        """Which replica this is."""
        return self.replica.number

    # Following.

    async def follow(self) -> None:
        """Apply what is shown until there is an error: :class:`MissedMessagesError` if a state has to be fetched."""
        subscription = self.subscription
        while True:
            async for messages in subscription.batches():
                await self.apply([(each.author, each.author_sequence, each.value) for each in messages])
                self.check()
            raise ClosedError("the subscription of the replica has ended")

    async def apply(self, operations: list[Operation]) -> None:
        """Apply operations, commit them, and send their results."""
        rest = deque(operations)
        async with self.turn:
            while rest:
                try:
                    self._send(await self.work(lambda: self._step(rest)))
                except OutdatedReplicaError:
                    raise
                except PeerError as error:
                    await self._recover(rest, error)
        self._wake()

    def _step(self, rest: deque[Operation]) -> list[Answer]:
        """Apply some operations, and commit when the transaction is full or nothing else has come."""
        replica = self.replica
        while rest and not replica.is_full:
            replica.take(*rest[0])
            rest.popleft()
        if rest or replica.is_full or not self.is_established or not self.subscription.waiting:
            return replica.commit()
        return []

    async def work(self, work: Callable[[], Result]) -> Result:
        """Do something with the store, in a thread if it may take long."""
        if self._is_blocking:
            return await asyncio.to_thread(work)
        return work()

    async def _recover(self, rest: deque[Operation], error: PeerError) -> None:
        """The store has failed: wait until it works, and find out what it has; others answer meanwhile."""
        was_established = self.is_established
        seconds, most = STORE_AGAIN_SECONDS
        while True:
            self.check()
            self.step_back()
            log.warning("the store of a replica does not work", topic=self.topic, again_seconds=seconds, cause=error)
            await asyncio.sleep(seconds)
            seconds = min(most, 2 * seconds)
            try:
                answers, again = await self.work(self.replica.recover)
            except StateLostError:
                raise
            except PeerError as failure:
                error = failure
                continue
            break
        rest.extendleft(reversed(again))
        self._send(answers)
        if was_established:
            self.establish()

    # Results.

    def register(self, caller: int, take: TakeResults) -> None:
        """A caller in this program takes its results here."""
        self._callers[caller] = take

    def _send(self, answers: list[Answer]) -> None:
        by_caller: dict[int, list[tuple[int, bytes]]] = {}
        for caller, number, payload in answers:
            by_caller.setdefault(caller, []).append((number, payload))
        for caller, found in by_caller.items():
            self.send(caller, found)

    def send(self, caller: int, found: list[tuple[int, bytes]]) -> None:
        """Send results to a caller."""
        frame = self.replica.frame(caller, found)
        take = self._callers.get(caller)
        if take is not None:
            take(frame)
            return
        try:
            # Whoever waits for it asks again if it does not come.
            self.peer.publish(result_topic(self.topic, caller), encode(frame), order="fifo")
        except AntiphonError as error:
            log.warning("results could not be sent", topic=self.topic, cause=error)

    # Waiting for progress.

    def _wake(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds of what is applied; false if it does not in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not condition():
            left = until - loop.time()
            if left <= 0:
                return False
            self.check()
            try:
                await asyncio.wait_for(self._progress.wait(), min(left, 0.05))
            except TimeoutError:
                continue
        return True

    async def publish_mark(self) -> int:
        """Publish a mark: whoever has it has everything that this replica had."""
        mark = secrets.randbits(62)
        value = encode(ServiceFrame(MARK, 0, mark, 0, 0, b""))
        await self.peer.publish(self.topic, value, order="causal")
        return mark

    def check(self) -> None:
        """Raise why nothing is applied any more."""
        if self.failure is not None:
            raise self.failure

    # Beginning and ending.

    def establish(self) -> None:
        """It has the state of the service."""
        self.is_established = True
        here = LOCAL.setdefault(self._key, [])
        if self not in here:
            here.append(self)
        self.changed.set()

    async def query(self, body: bytes, seen: dict[int, int], seconds: float) -> bytes:
        """Answer a query when these operations are applied, from a state that is committed."""
        try:
            async with asyncio.timeout(seconds):
                if not await self.until(lambda: self.replica.has_seen(seen), seconds):
                    raise PeerError("the replica has not got all that the caller has seen")
                async with self.turn:
                    return await self.work(lambda: self.replica.query(body))
        except TimeoutError:
            raise PeerError("the store of the replica does not answer") from None

    async def restore(self, items: list[tuple[bytes, bytes]], position: bytes) -> None:
        """Take the state of another replica."""
        async with self.turn:
            await self.work(lambda: self.replica.restore(items, position))

    def step_back(self) -> None:
        """It lacks something, and answers nothing until it has it."""
        self.is_established = False
        here = LOCAL.get(self._key, [])
        if self in here:
            here.remove(self)
        if not here:
            LOCAL.pop(self._key, None)
        self.changed.set()

    def fail(self, error: BaseException) -> None:
        """It ends with an error."""
        self.failure = error
        self.step_back()
        self._wake()

    def close(self) -> None:
        """Stop at once; the store has whole transactions."""
        self.fail(ClosedError(f"the replica of {self.topic!r} has been closed"))
        if self.subscription is not None:
            self.subscription._live.end()
        self.replica.kept.close()


def replica_here(peer: Any, topic: str) -> LiveServiceReplica | None:
    """An established replica at the same node or client."""
    found = LOCAL.get((id(host_of(peer)), topic), [])
    return found[0] if found else None
