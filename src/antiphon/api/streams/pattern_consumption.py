"""A named consumer on a pattern of topics: one consumer of that name on each topic that matches, taken together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from antiphon.api.streams.consumption import ConsumedMessage, Consumption
from antiphon.api.streams.starts import StreamStart
from antiphon.api.streams.topics import Topics
from antiphon.api.topic_names import matches
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks

LIST_SECONDS: Final = 2.0
"""How often topics that are new are looked for."""

log = logger("consumer")


class PatternConsumption(Consumption):
    """The members that this program has on all topics with a history that match a pattern.

    ``attach`` makes the member on one topic. A topic that is made later is found after a while; its consumer begins at
    its first message.
    """

    def __init__(
        self,
        topics: Topics,
        pattern: str,
        name: str,
        start: StreamStart,
        window: int,
        attach: Callable[[str, StreamStart, int], Consumption],
    ) -> None:
        self.topic = pattern
        self.name = name
        self.missed = 0
        self._topics = topics
        self._begin: StreamStart = start
        self._window = window
        self._member_of = attach
        self._members: dict[str, Consumption] = {}
        self._taken: deque[ConsumedMessage] = deque()
        self._arrival = asyncio.Event()
        self._failure = None
        self._tasks = Tasks()
        self._listing: asyncio.Task[None] | None = None

    async def ready(self) -> PatternConsumption:
        """Wait until the consumers of all topics that there are hand out messages to this program."""
        if self._failure is not None:
            raise self._failure
        if self._listing is None:
            self._listing = asyncio.get_running_loop().create_task(self._look(is_first=True))
        listing = self._listing
        try:
            await asyncio.shield(listing)
        except BaseException:
            if listing.done():
                self._listing = None
            raise
        return self

    async def _look(self, is_first: bool) -> None:
        """Attach to the topics that match, and forget those that are gone."""
        names = {topic.name for topic in await self._topics.list() if matches(self.topic, topic.name)}
        for name in sorted(names - self._members.keys()):
            member = self._member_of(name, self._begin if is_first else "earliest", self._window)
            self._members[name] = await member.ready()
            self._tasks.spawn(self._pump(name, member))
        for name in self._members.keys() - names:
            await self._members.pop(name).close()
        if is_first:
            self._tasks.spawn(self._look_again())

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LIST_SECONDS)
            try:
                await self._look(is_first=False)
            except ClosedError as error:
                self._fail(error)
                return
            except (PeerError, UsageError) as error:
                log.warning("cannot look for new topics", pattern=self.topic, cause=error)

    async def _pump(self, name: str, member: Consumption) -> None:
        while self._members.get(name) is member:
            try:
                # The window of the member bounds how many wait here.
                self._taken += await member.fetch(self._window)
            except Exception as error:
                if self._members.get(name) is member and not await self._is_gone(name):
                    self._fail(error)
                return
            self.missed = sum(each.missed for each in self._members.values())
            self._arrival.set()

    async def _is_gone(self, name: str) -> bool:
        try:
            return all(topic.name != name for topic in await self._topics.list())
        except PeerError:
            return False

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._arrival.set()

    async def fetch(self, most: int, timeout: float | None = None) -> list[ConsumedMessage]:
        """Some messages, at most so many: those that are here, or else the first that come; none after the timeout."""
        await self.ready()
        if not self._taken:
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), timeout)
            except TimeoutError:
                return []
        if not self._taken and self._failure is not None:
            raise self._failure
        return [self._taken.popleft() for _ in range(min(most, len(self._taken)))]

    async def set_window(self, window: int) -> None:
        """Take so many messages of each topic at a time from now on; with 0, no more until it is changed again."""
        self._window = max(1, window)
        for member in self._members.values():
            await member.set_window(window)

    async def close(self) -> None:
        """Take nothing more: messages that are not acknowledged go to other members at once."""
        self._fail(ClosedError("this program has left the consumer; attach again"))
        if self._listing is not None:
            self._listing.cancel()
        self._tasks.cancel()
        members, self._members = self._members, {}
        for member in members.values():
            await member.close()
