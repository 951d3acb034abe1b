"""Asks one topic: knows the programs that serve it, chooses one for each request, and collects the replies.

Nothing is agreed between callers. Each knows the serving programs from what these announce. A request goes to one of
them, which is asked for signs of life while the reply is missing. If it gives none, or says that it goes, the request
goes to another one: so a request may be worked on twice, and is answered once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from hashlib import blake2b
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.publisher import Key, Publisher, Value, bytes_of_key
from antiphon.api.pubsub import PubSubHost
from antiphon.api.requests.headers import (
    BUSY,
    END,
    FAILED,
    FROM,
    GONE,
    GROUP,
    LAST,
    PART,
    REPLY,
    REQUEST,
    SERVER,
    STATE,
    TO,
    checked_topic,
    merged,
    order_of,
)
from antiphon.api.subscription import DEFAULT_LIMIT
from antiphon.api.topic_names import CALLERS, SERVING
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.errors import NobodyServesError, NoReplyError, OverloadedError, RequestFailedError

LOOK_SECONDS: Final = 1.0
"""How long a caller waits for a sign of life of a program that serves."""

TIMEOUT_SECONDS_AT_MOST: Final = 86_400.0

PROGRAMS_AT_MOST: Final = 4096
"""So many programs that serve one topic are known at a time."""

REPLIES_AT_MOST: Final = 65_536
"""So many replies to one request wait for the program that asked."""


class ServingProgram:
    """A program that serves, as a caller knows it."""

    def __init__(self, name: bytes, author: int, group: str) -> None:
        self.name: Final = name
        self.author: Final = author
        self.group: Final = group
        self.open = 0
        self.seen_at = 0.0


class OpenRequest:
    """A request without its last reply."""

    def __init__(self) -> None:
        self.program: ServingProgram | None = None
        self.asked_at = 0.0
        self.replies: deque[Message] = deque()
        self.received = 0
        # Whether replies came more quickly than they were taken, and some were dropped.
        self.is_overrun = False
        # Programs that have no room for it.
        self.busy: set[bytes] = set()
        self.news = asyncio.Event()

    def turn_to(self, program: ServingProgram | None, now: float) -> None:
        """Ask another program."""
        if self.program is not None:
            self.program.open -= 1
        self.program = program
        self.asked_at = now
        if program is not None:
            program.open += 1


class Caller:
    """The requests of one node or client on one topic."""

    def __init__(self, host: PubSubHost, topic: str) -> None:
        self.topic: Final = checked_topic(topic)
        self._host = host
        self._publish = Publisher(host).publish
        self._name = b"%x" % secrets.randbits(64)
        self._programs: dict[bytes, ServingProgram] = {}
        self._open: dict[bytes, OpenRequest] = {}
        self._count = 0
        self._looked_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._starting: asyncio.Task[None] | None = None

    async def started(self) -> Caller:
        """Wait until replies will arrive."""
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())
        starting = self._starting
        try:
            await asyncio.shield(starting)
        except BaseException:
            if starting.done() and self._starting is starting:
                self._starting = None
            raise
        return self

    async def _start(self) -> None:
        add = self._host.subscriptions.add
        replies = add(self.topic, "latest", self._on_message, "block", DEFAULT_LIMIT, self._on_missed)
        programs = add(SERVING + self.topic, "latest", self._on_program, "block", DEFAULT_LIMIT, self._on_missed)
        try:
            await replies.ready()
            await programs.ready()
            await self._look()
        except BaseException:
            replies.end()
            programs.end()
            raise

    # What comes.

    def _on_message(self, message: Message) -> None:
        headers = message.headers
        request = self._open.get(headers.get(REPLY, b""))
        if request is None:
            return
        program = request.program
        if program is None or headers.get(FROM) != program.name or message.author != program.author:
            # Another program was asked meanwhile, or somebody answers who was not asked.
            return
        program.seen_at = self._loop.time()
        if headers.get(PART) == BUSY:
            request.busy.add(program.name)
            request.turn_to(None, program.seen_at)
        elif len(request.replies) < REPLIES_AT_MOST:
            request.replies.append(message)
        else:
            request.is_overrun = True
        request.news.set()

    def _on_program(self, message: Message) -> None:
        headers = message.headers
        name, group = headers.get(SERVER), headers.get(GROUP)
        if name is None or group is None:
            return
        known = self._programs.get(name)
        if known is not None and known.author != message.author:
            return
        if headers.get(STATE) == GONE:
            if known is not None:
                self._forget(known)
            return
        if known is None:
            if len(self._programs) >= PROGRAMS_AT_MOST:
                return
            known = self._programs[name] = ServingProgram(name, message.author, group.decode(errors="replace"))
        known.seen_at = self._loop.time()
        for request in self._open.values():
            if request.program is None:
                request.news.set()

    def _on_missed(self, topic: str) -> None:
        # Programs may have come and gone.
        self._looked_at = 0.0

    def _forget(self, program: ServingProgram) -> None:
        """A program serves no more: what it was asked goes to others, unless it has begun to answer."""
        self._programs.pop(program.name, None)
        for request in self._open.values():
            if request.program is program:
                request.turn_to(None, self._loop.time())
                request.news.set()

    # Asking.

    async def ask(
        self,
        value: Value,
        timeout: float,
        group: str | None,
        key: Key | None,
        headers: dict[str, bytes] | None,
    ) -> AsyncGenerator[Message, None]:
        """The replies to a request, one after the other."""
        if not 0 < timeout <= TIMEOUT_SECONDS_AT_MOST:
            raise UsageError(f"a timeout is more than 0 and at most {TIMEOUT_SECONDS_AT_MOST:.0f}, not {timeout}")
        self._count += 1
        name = b"%s.%x" % (self._name, self._count)
        request = self._open[name] = OpenRequest()
        request.asked_at = self._loop.time()
        until = request.asked_at + timeout
        try:
            while True:
                request.news.clear()
                while request.replies:
                    message = request.replies.popleft()
                    request.received += 1
                    part = message.headers.get(PART)
                    if part == FAILED:
                        raise RequestFailedError(f"a request on {self.topic!r} failed: {message.value.decode()}")
                    if part != END:
                        yield message
                    if part in (END, LAST):
                        return
                    until = self._loop.time() + timeout
                left = self._time_left(request, until, timeout)
                if request.program is None:
                    program = self._choice(request, group, key)
                    if program is None:
                        await self._until_served(request, group, min(until, request.asked_at + LOOK_SECONDS))
                        continue
                    request.turn_to(program, self._loop.time())
                    ours = merged(headers, ((REQUEST, name), (TO, program.name)))
                    order = order_of(self._host)
                    await self._publish(self.topic, value, order=order, key=key, headers=ours, ttl_seconds=left)
                await self._wait(request, min(left, LOOK_SECONDS))
        finally:
            request.turn_to(None, 0.0)
            del self._open[name]

    def _time_left(self, request: OpenRequest, until: float, timeout: float) -> float:
        """For how long a reply may still come."""
        if request.is_overrun:
            raise OverloadedError(
                f"replies on {self.topic!r} came more quickly than they were taken: {REPLIES_AT_MOST} waited"
            )
        left = until - self._loop.time()
        if left <= 0 and request.program is not None:
            missing = "no reply" if request.received == 0 else f"no further reply after {request.received}"
            raise NoReplyError(
                f"{missing} on {self.topic!r} within {timeout:g} seconds; the request may still be worked on"
            )
        return max(left, 0.001)

    def _choice(self, request: OpenRequest, group: str | None, key: Key | None) -> ServingProgram | None:
        """The program that gets a request: the same for one key, else one of those that have least to do for us."""
        if request.received:
            raise PeerError(
                f"the program that answered on {self.topic!r} has gone after {request.received} replies; ask again"
            )
        found = [
            each
            for each in self._programs.values()
            if (group is None or each.group == group) and each.name not in request.busy
        ]
        if not found:
            return None
        if key is not None:
            about = bytes_of_key(key)
            return max(found, key=lambda each: blake2b(about, key=each.name[:64], digest_size=8).digest())
        least = min(each.open for each in found)
        return secrets.choice([each for each in found if each.open == least])

    async def _until_served(self, request: OpenRequest, group: str | None, until: float) -> None:
        """Look for a program that serves; an error says that there is none."""
        if request.busy:
            raise OverloadedError(f"{len(request.busy)} programs serve {self.topic!r}, and none has room; ask later")
        left = until - self._loop.time()
        if left <= 0:
            where = repr(self.topic) if group is None else f"{self.topic!r} in the group {group!r}"
            raise NobodyServesError(f"nobody serves {where}; start a program that does: client.serve({self.topic!r})")
        await self._look()
        try:
            await asyncio.wait_for(request.news.wait(), min(left, LOOK_SECONDS / 4))
        except TimeoutError:
            self._host.refuse_if_closed()

    async def _wait(self, request: OpenRequest, seconds: float) -> None:
        """Wait for a reply; meanwhile ask for a sign of life, and let another program do it if there is none."""
        try:
            await asyncio.wait_for(request.news.wait(), seconds)
            return
        except TimeoutError:
            self._host.refuse_if_closed()
        program, now = request.program, self._loop.time()
        if program is None:
            return
        is_due = now - max(program.seen_at, request.asked_at) >= LOOK_SECONDS
        if is_due and self._looked_at > max(program.seen_at, request.asked_at) + LOOK_SECONDS / 2:
            self._forget(program)
        elif is_due:
            await self._look()

    async def _look(self) -> None:
        """Ask all programs that serve to say so; not too often."""
        now = self._loop.time()
        if now - self._looked_at >= LOOK_SECONDS / 4:
            self._looked_at = now
            await self._publish(CALLERS + self.topic, b"", order="fifo", headers={"antiphon-caller": self._name})
