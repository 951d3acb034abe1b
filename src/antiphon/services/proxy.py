"""A service as its callers see it: its operations and queries as coroutines.

A proxy has a *home*: the replica that sends it the results of its operations and answers its queries, one in the same
program if there is one. If the home is silent, another replica becomes the home and sends the results that are missing.
An operation is published once, whatever happens to replicas: its author and number make it count once. Where its caller
does not know what became of it, it can make the same call again: then the number that the caller has given it does.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

from antiphon.kernel.errors import AntiphonError, PeerError, UsageError
from antiphon.kernel.interval_set import IntervalSet
from antiphon.runtime.errors import NoReplyError
from antiphon.runtime.logging import logger
from antiphon.services.bundles import Bundler
from antiphon.services.calls import BoundCall, bind, decode_result, encode_call
from antiphon.services.description import ServiceCall, ServiceDescription, ServiceType, describe
from antiphon.services.frames import (
    LATEST,
    OPERATION,
    AskQuery,
    AskReplica,
    AskResults,
    ResultsFrame,
    ServiceFrame,
    encode,
    hello_replies,
    replica_topic,
    result_topic,
    results,
)
from antiphon.services.joining import group_of
from antiphon.services.live_replica import LiveServiceReplica, replica_here
from antiphon.services.peers import check_fabric, host_of, topic_of
from antiphon.services.replica import version_of

TIMEOUT_SECONDS: Final = 15.0
"""How long a caller waits for a result, unless it says otherwise."""

SILENCE_SECONDS: Final = 1.0
"""After so long without a result, another replica is asked for it."""

LOOK_SECONDS: Final = 0.2

GIVEN_UP_AT_MOST: Final = 256
"""So many calls without a result can be made again, the last ones of a caller."""

QUERIES_FROM: Final = 1 << 61
"""Queries in total order have numbers of their own, so that those of operations have no gaps."""

log = logger("services")


class UnansweredError(PeerError):
    """An operation of a service had no result in time: it has taken place once, takes place later, or never does.

    ``again`` makes the same call again, which takes place once at most, and returns its result.
    """

    def __init__(self, text: str, repeat: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(text)
        self._repeat = repeat

    async def again(self) -> Any:
        """Make the same call again: its result, whether it takes place now or did so before."""
        return await self._repeat()


class OpenCall:
    """A call without its result."""

    __slots__ = ("asked_at", "bound", "future", "until")

    def __init__(self, bound: BoundCall, future: asyncio.Future[bytes], now: float, seconds: float) -> None:
        self.bound = bound
        self.future = future
        self.asked_at = now
        self.until = now + seconds


class ServiceProxy:
    """The operations and queries of a service. Made by ``Bank.proxy(client)``: ``await bank.deposit("anna", 100)``.

    ``timeout`` says how many seconds a call waits for its result. An operation whose result did not come in time may
    still take place; the error that says so can make the same call again.
    """

    def __init__(self, description: ServiceDescription, peer: Any, topic: str, timeout: float) -> None:
        if timeout <= 0:
            raise UsageError(f"a timeout is more than 0 seconds, not {timeout}")
        self._description = description
        self._peer = peer
        self._topic = topic
        self._timeout = timeout
        self._version = version_of(description)
        self._caller = secrets.randbits(62) | 1
        self._count = 0
        self._queries = QUERIES_FROM
        self._open: dict[int, OpenCall] = {}
        # Operations that were given up, those that are made again, and those whose results nobody needs.
        self._given_up: dict[int, BoundCall] = {}
        self._repeated: set[int] = set()
        self._finished = IntervalSet()
        self._home = 0
        self._here: LiveServiceReplica | None = None
        self._seen: dict[int, int] = {}
        # Which home what was seen comes from: it needs no reminder.
        self._seen_at = 0
        self._loop = asyncio.get_running_loop()
        self._starting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_listening = False
        self._bundler = Bundler(self._loop, self._post)

    def __getattr__(self, name: str) -> Any:
        call = self.__dict__["_description"].calls.get(name)
        if call is None:
            raise AttributeError(f"{self._description.name} has no operation or query {name!r}")

        async def invoke(*arguments: Any, **named: Any) -> Any:
            return await self._call(call, bind(call, arguments, named))

        invoke.__name__ = name
        invoke.__doc__ = call.method.__doc__
        # The next call finds it without coming here.
        self.__dict__[name] = invoke
        return invoke

    def __repr__(self) -> str:
        return f"{self._description.name}.proxy(topic={self._topic!r})"

    # Calling.

    async def _call(self, call: ServiceCall, bound: BoundCall, number: int = 0) -> Any:
        home = self._here
        if home is None or not home.is_established:
            await self._find_home()
        if call.is_operation or call.mark.strength == "latest":
            payload = await self._publish(bound, number)
        else:
            payload = await self._query(call, bound)
        return decode_result(call, payload)

    async def _again(self, number: int) -> Any:
        """Make a call again that was given up."""
        bound = self._given_up.pop(number, None)
        if bound is None:
            raise UsageError(
                f"this call cannot be made again: it has a result, is under way, or {GIVEN_UP_AT_MOST} later ones "
                "have no result; look with a query whether it took place"
            )
        self._repeated.add(number)
        try:
            return await self._call(bound.call, bound, number)
        finally:
            self._repeated.discard(number)
            if number not in self._open and not self._finished.has(number):
                self._given_up[number] = bound

    def _publish(self, bound: BoundCall, number: int) -> asyncio.Future[bytes]:
        """Publish a call about its keys, with a new number or one that it had before; its result, when it comes."""
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._send(OpenCall(bound, future, self._loop.time(), self._timeout), number)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())
        return future

    def _send(self, opened: OpenCall, number: int = 0) -> None:
        bound = opened.bound
        call, kind = bound.call, OPERATION if bound.call.is_operation else LATEST
        number = number or self._next_number(kind)
        done = self._finished.complete
        frame = ServiceFrame(kind, self._caller, number, self._home, self._version, encode_call(bound), done)
        self._open[number] = opened
        if kind == LATEST or call.order == "total":
            self._bundler.add(frame, bound.keys)
        else:
            self._post(frame, call.order, bound.keys, [number])

    def _next_number(self, kind: int) -> int:
        if kind == LATEST:
            self._queries += 1
            return self._queries
        self._count += 1
        return self._count

    def _close(self, number: int) -> OpenCall | None:
        """A call is not open any more, and its result will not be asked for."""
        opened = self._open.pop(number, None)
        if opened is not None and number < QUERIES_FROM:
            self._finished.add(number)
        return opened

    def _post(self, frame: ServiceFrame, order: str, keys: Collection[bytes], numbers: list[int]) -> Any:
        """Publish something about its keys; if it is refused, so are these calls."""
        value = encode(frame)
        try:
            if len(keys) == 1:
                publishing = self._peer.publish(self._topic, value, order=order, key=next(iter(keys)))
            else:
                publishing = self._peer.publish(self._topic, value, order=order, keys=list(keys) or None)
        except AntiphonError as error:
            self._refused(numbers, error)
            return None
        if publishing.done():
            self._refused(numbers, publishing.exception())
            return None
        publishing.add_done_callback(lambda done: self._refused(numbers, done.exception()))
        return publishing

    def _refused(self, numbers: list[int], error: BaseException | None) -> None:
        """A message was accepted, or refused: then its calls have no result."""
        if error is None:
            return
        for number in numbers:
            # The fate of an earlier message of the same call is not known.
            is_repeated = number in self._repeated
            opened = self._open.pop(number, None) if is_repeated else self._close(number)
            if opened is not None and not opened.future.done():
                opened.future.set_exception(error)

    async def _query(self, call: ServiceCall, bound: BoundCall) -> bytes:
        body = encode_call(bound)
        until = self._loop.time() + self._timeout
        while True:
            seen = self._seen if call.mark.strength == "mine" and self._seen_at != self._home else {}
            left = until - self._loop.time()
            try:
                return await self._ask(AskQuery(body, seen, max(left, 0.01)), max(left, 0.01))
            except PeerError as error:
                if until - self._loop.time() <= LOOK_SECONDS:
                    raise NoReplyError(
                        f"no replica of {self._topic!r} answered {bound.call.full_name}: {error}"
                    ) from error
                await asyncio.sleep(LOOK_SECONDS / 4)
                self._home = 0
                await self._find_home()

    async def _ask(self, asked: AskQuery, seconds: float) -> bytes:
        here = self._here
        if here is not None and here.is_established:
            return await here.query(asked.body, asked.seen, seconds)
        reply = await self._peer.request(
            replica_topic(self._topic), encode(asked), timeout=seconds, group=group_of(self._home)
        )
        return bytes(reply.value)

    # The home.

    async def _find_home(self) -> None:
        """Find a replica that has the state: one in this program, or else any."""
        if self._find_home_here() is not None:
            return
        self._here = None
        if self._home:
            return
        if self._starting is None:
            self._starting = self._loop.create_task(self._listen())
            self._starting.add_done_callback(self._listened)
        await asyncio.shield(self._starting)

    def _find_home_here(self) -> LiveServiceReplica | None:
        """A replica in this program is the home, if there is one."""
        here = replica_here(self._peer, self._topic)
        if here is not None:
            self._here, self._home = here, here.number
            here.register(self._caller, self._take)
        return here

    def _listened(self, task: asyncio.Task[None]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()

    async def _listen(self) -> None:
        if not self._is_listening:
            topic = result_topic(self._topic, self._caller)
            await self._peer.subscribe(topic, callback=self._on_message, when_missed=self._on_missed).ready()
            self._is_listening = True
        seconds = min(5.0, self._timeout)
        try:
            reply = await self._peer.request(replica_topic(self._topic), encode(AskReplica()), timeout=seconds)
        except NoReplyError as error:
            raise NoReplyError(
                f"no replica of {self._topic!r} answered within {seconds:g} seconds, so the call was not made; wait "
                "for replicas, and call again"
            ) from error
        self._home = int(hello_replies.decode(reply.value).replica)

    # Results.

    def _on_message(self, message: Any) -> None:
        try:
            frame = results.decode(message.value)
        except ValueError as error:
            log.warning("results that cannot be read", topic=self._topic, cause=error)
            return
        if frame.caller == self._caller:
            self._take(frame)

    def _on_missed(self, topic: str) -> None:
        for call in self._open.values():
            call.asked_at = 0.0

    def _take(self, frame: ResultsFrame) -> None:
        for number, payload in frame.results:
            call = self._close(number)
            if call is not None and not call.future.done():
                call.future.set_result(payload)
        if frame.replica != self._home:
            return
        self._seen_at = self._home
        for author, number in frame.seen.items():
            if self._seen.get(author, 0) < number:
                self._seen[author] = number

    async def _look(self) -> None:
        """Look for calls whose result does not come, as long as there are open calls."""
        try:
            while self._open:
                await asyncio.sleep(LOOK_SECONDS)
                now = self._loop.time()
                silent: list[int] = []
                for number, call in list(self._open.items()):
                    if call.until <= now:
                        self._give_up(number, call)
                    elif now - call.asked_at >= SILENCE_SECONDS:
                        call.asked_at = now
                        silent.append(number)
                if silent:
                    await self._ask_elsewhere(silent)
        finally:
            self._looking = None

    def _give_up(self, number: int, call: OpenCall) -> None:
        del self._open[number]
        if self._here is None:
            # Its home may be gone, also where callers wait shorter than it takes to ask elsewhere.
            self._home = 0
        name, seconds = call.bound.call.full_name, f"{self._timeout:g} seconds"
        error: PeerError = NoReplyError(f"no replica answered {name} within {seconds}; ask again, or wait for replicas")
        if call.bound.call.is_operation:
            self._given_up[number] = call.bound
            if len(self._given_up) > GIVEN_UP_AT_MOST:
                oldest = next(iter(self._given_up))
                del self._given_up[oldest]
                self._finished.add(oldest)
            error = UnansweredError(
                f"no result of {name} within {seconds}; it may have taken place or take place later: wait for replicas "
                "and call again() of this error, or look with a query",
                partial(self._again, number),
            )
        if not call.future.done():
            call.future.set_exception(error)

    async def _ask_elsewhere(self, numbers: list[int]) -> None:
        """The home is silent: ask any replica for the results; one in this program is the home, if there is one."""
        here = self._find_home_here()
        if here is not None:
            self._take(here.replica.frame(self._caller, here.replica.ask(self._caller, numbers)))
        # It may be behind others.
        missing = [number for number in numbers if number in self._open]
        if not missing:
            return
        try:
            if here is None and not self._is_listening:
                await self._listen()
            asked = encode(AskResults(self._caller, missing))
            reply = await self._peer.request(replica_topic(self._topic), asked, timeout=2 * SILENCE_SECONDS)
            frame = results.decode(reply.value)
        except (AntiphonError, ValueError) as error:
            log.info("no replica knows the results that are missing", topic=self._topic, cause=error)
            return
        if here is None and frame.replica != self._home:
            self._home = frame.replica
            self._here = None
        self._take(frame)
        self._ask_again(missing)

    def _ask_again(self, numbers: list[int]) -> None:
        """Queries whose home is gone take another place in the order; they change nothing."""
        for number in numbers:
            opened = self._open.get(number)
            if opened is not None and number >= QUERIES_FROM:
                del self._open[number]
                self._send(opened)


def proxy_of(service: ServiceType, peer: Any, topic: str | None, timeout: float) -> ServiceProxy:
    """The service for callers at a node or client."""
    host_of(peer)
    check_fabric(peer)
    description = describe(service)
    return ServiceProxy(description, peer, topic_of(description, topic), timeout)
