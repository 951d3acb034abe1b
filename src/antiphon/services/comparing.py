"""Replicas compare their states in the background, and say which keys differ and since which operation.

Every few seconds a replica tells the others a digest of its state. One that finds a difference asks for the keys of
that range, looks again a moment later, and logs what still differs. Replicas part if an operation does not do the same
everywhere, if its order is too weak for what it does, or if somebody changes a store by hand.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import AntiphonError, PeerError
from antiphon.runtime.logging import logger
from antiphon.services.digests import DigestReport, Divergence, KeyReport, differing_ranges, divergences
from antiphon.services.frames import AskKeys, encode, replica_topic
from antiphon.services.joining import group_of
from antiphon.services.live_replica import LiveServiceReplica

COMPARE_SECONDS: Final = 10.0
"""How often a replica tells the others, unless the program says otherwise."""

AGAIN_SECONDS: Final = 0.5
ASK_SECONDS: Final = 10.0
KEPT_AT_MOST: Final = 1000
AUTHORS_AT_MOST: Final = 8192
"""With more authors a report would be too long to be sent every few seconds."""

log = logger("services")

reports: Final = msgspec.msgpack.Decoder(DigestReport)
key_reports: Final = msgspec.msgpack.Decoder(KeyReport)


class Comparing:
    """One replica's part of it. ``found`` are the differences that it has noticed."""

    def __init__(self, live: LiveServiceReplica, seconds: float) -> None:
        self.found: dict[str, Divergence] = {}
        self.compared = 0
        """How often its state was compared with that of another replica."""
        self._live = live
        self._seconds = seconds
        self._others: dict[int, DigestReport] = {}
        self._news = asyncio.Event()

    @property
    def topic(self) -> str:
        """The topic of reports."""
        return f"{self._live.topic}.digests"

    async def run(self) -> None:
        """Tell others, and compare with what they tell, as long as the replica lives."""
        live = self._live
        subscription = await live.peer.subscribe(self.topic, callback=self._on_report, policy="drop_oldest").ready()
        loop = asyncio.get_running_loop()
        try:
            due = loop.time() + self._seconds
            while True:
                try:
                    await asyncio.wait_for(self._news.wait(), max(0.0, due - loop.time()))
                except TimeoutError:
                    due = loop.time() + self._seconds
                    await self._tell()
                self._news.clear()
                others, self._others = self._others, {}
                for report in others.values():
                    await self._compare(report)
        finally:
            await subscription.close()

    async def _tell(self) -> None:
        live = self._live
        if not live.is_established or live.replica.kept.applied.author_count > AUTHORS_AT_MOST:
            return
        try:
            live.peer.publish(self.topic, encode(await self._report()), order="fifo")
        except AntiphonError as error:
            log.info("others cannot be told of a replica's state", topic=live.topic, cause=error)

    async def _report(self) -> DigestReport:
        live = self._live
        async with live.turn:
            return live.replica.report()

    def _on_report(self, message: Any) -> None:
        try:
            report = reports.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning("a report that cannot be read", topic=self.topic, cause=error)
            return
        if report.replica != self._live.number and len(report.digests) == len(self._live.replica.digests.digests):
            self._others[report.replica] = report
            self._news.set()

    async def _compare(self, other: DigestReport) -> None:
        if not self._live.is_established:
            return
        places = differing_ranges(await self._report(), other)
        if places is None:
            return
        self.compared += 1
        for place in places:
            try:
                await self._look_into(place, other.replica)
            except PeerError as error:
                log.info("keys could not be compared", topic=self._live.topic, cause=error)
                return

    async def _look_into(self, place: int, other: int) -> None:
        """Compare a range twice: only a key that differs both times counts, since operations may be under way."""
        first = await self._differences(place, other)
        if not first:
            return
        await asyncio.sleep(AGAIN_SECONDS)
        hashes = {each.key: each for each in await self._differences(place, other)}
        for each in first:
            again = hashes.get(each.key)
            if again is None or each.key in self.found or len(self.found) >= KEPT_AT_MOST:
                continue
            self.found[each.key] = again
            log.error(
                "replicas have parted",
                topic=self._live.topic,
                key=each.key,
                other=other,
                after_operation=again.operation,
            )

    async def _differences(self, place: int, other: int) -> list[Divergence]:
        live = self._live
        reply = await live.peer.request(
            replica_topic(live.topic), encode(AskKeys(place)), timeout=ASK_SECONDS, group=group_of(other)
        )
        try:
            theirs = key_reports.decode(reply.value)
        except msgspec.MsgspecError as error:
            raise PeerError(f"replica {other} sent keys that cannot be read: {error}") from error
        async with live.turn:
            own = await live.work(lambda: live.replica.keys_in(place))
        return divergences(own, theirs, other)
