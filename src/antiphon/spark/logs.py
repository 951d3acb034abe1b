"""Finds logs: asks nodes for their logs, and skips nodes that do not answer.

The nodes in ``servers`` are asked first, all at once. A topic or log that none of them has is looked for at all nodes
that they know. Spark's driver does all this, a few times per query or once per micro-batch; a connection lasts for one
question. A stream remembers the answers and the silent nodes (:class:`LogMemory`), so that a micro-batch waits for no
dead node, and asks no more nodes than it needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from antiphon.client.client import LiveClient
from antiphon.client.remote_log import RemoteLog
from antiphon.kernel.errors import DeniedError, PeerError
from antiphon.runtime.logging import logger
from antiphon.sessions.client_messages import LogRange, LogsResponse
from antiphon.spark.options import Access
from antiphon.storage.log_server import NO_LOG

ANSWER_SECONDS: Final = 5.0
"""The longest time for a node to list its logs."""

ASKED_AT_A_TIME: Final = 32

SHUNNED_SECONDS: Final = 30.0
"""For how long a node that exceeded that time is not asked, if there are others."""

SEARCH_SECONDS: Final = 10.0
"""The interval at which all nodes are asked for known topics that none of the asked nodes has."""

log = logger("spark")

Result = TypeVar("Result")


def new_runner() -> asyncio.Runner:
    """A loop for one piece of work, on uvloop where it is available."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that waits for nodes."""
    with new_runner() as runner:
        return runner.run(work)


async def connect(access: Access, addresses: str | Sequence[str]) -> LiveClient:
    """A client of the first of these nodes that answers. It does not move to another node, which has another log."""
    client = LiveClient(addresses, access.cluster, reconnect_seconds=0.0, tls=access.tls, token=access.token)
    try:
        return await client.start()
    except BaseException:
        await client.abandon()
        raise


class HeldLog(NamedTuple):
    """The log of one node, with its ranges of the requested topics."""

    number: int
    address: str
    node: int
    topics: dict[str, LogRange]


class Logs:
    """The answers of nodes, and the reasons of those that did not answer."""

    def __init__(self) -> None:
        self.by_number: dict[int, HeldLog] = {}
        self.elsewhere: set[str] = set()
        self.peers: set[str] = set()
        self.asked: set[str] = set()
        self.silent: dict[str, str] = {}
        self.timed_out: set[str] = set()
        self.without_log: list[str] = []

    def add(self, address: str, answer: LogsResponse) -> None:
        """Add the answer of a node."""
        self.peers.update(answer.peers)
        self.elsewhere.update(answer.elsewhere)
        if answer.log == NO_LOG:
            self.without_log.append(address)
            return
        held = HeldLog(answer.log, address, answer.node, {each.topic: each for each in answer.topics})
        self.by_number.setdefault(answer.log, held)

    def names(self) -> set[str]:
        """All topics in any log."""
        return {name for held in self.by_number.values() for name in held.topics}

    def holding(self, topic: str) -> list[HeldLog]:
        """The logs that have a topic."""
        return [held for held in self.by_number.values() if topic in held.topics]

    def range(self, topic: str, number: int) -> LogRange | None:
        """The range of a topic in a log; None if no node with that log was found."""
        held = self.by_number.get(number)
        return None if held is None else held.topics.get(topic)

    def fullest(self, topic: str) -> HeldLog | None:
        """The log with the most messages of a topic; among equal logs the choice depends on the topic.

        So topics that all nodes hold are read from all of them.
        """
        holding = self.holding(topic)
        if not holding:
            return None

        def fullness(held: HeldLog) -> tuple[int, int]:
            found = held.topics[topic]
            return found.end - found.first, scattered(topic, held.number)

        return max(holding, key=fullness)

    def silence(self) -> str:
        """The nodes that did not answer, for a message; empty if all did."""
        return "; ".join(self.silent.values())


def scattered(topic: str, number: int) -> int:
    """A pseudo-random but fixed number, to choose among equal logs of a topic."""
    from hashlib import blake2b

    return int.from_bytes(blake2b(f"{topic}/{number}".encode(), digest_size=8).digest(), "big")


class LogMemory:
    """The knowledge of a stream about nodes, from one micro-batch to the next."""

    def __init__(self) -> None:
        self._homes: dict[int, str] = {}
        self._shunned_until: dict[str, float] = {}
        self._search_at = 0.0

    def learn(self, logs: Logs) -> None:
        """Remember the answers, and the nodes that did not answer."""
        self._homes.update({number: held.address for number, held in logs.by_number.items()})
        until = time.monotonic() + SHUNNED_SECONDS
        self._shunned_until.update(dict.fromkeys(logs.timed_out, until))

    def first(self, servers: Sequence[str], numbers: Iterable[int]) -> list[str]:
        """The nodes to ask first: the servers and the holders of these logs, without nodes that took too long."""
        now = time.monotonic()
        wanted = [*servers, *(self._homes[number] for number in numbers if number in self._homes)]
        lively = [address for address in wanted if self._shunned_until.get(address, 0.0) <= now]
        return list(dict.fromkeys(lively or wanted))

    def may_search(self) -> bool:
        """Whether it is time to ask all nodes for topics that none of the asked nodes has."""
        now = time.monotonic()
        if now < self._search_at:
            return False
        self._search_at = now + SEARCH_SECONDS
        return True


Lacks = Callable[[Logs], bool]


async def find_logs(
    access: Access,
    topics: Sequence[str] | None,
    times_us: Sequence[int],
    lacks: Lacks,
    first: Sequence[str] | None = None,
) -> Logs:
    """Ask the servers, or the nodes in ``first``, for their logs; if something is missing then, ask all nodes they
    know.
    """
    found = Logs()
    await ask(found, access, first or access.servers, topics, times_us)
    if not found.peers and not found.by_number and not found.without_log:
        raise PeerError(f"none of {len(found.asked)} nodes answers: {found.silence()}")
    if lacks(found):
        await ask(found, access, sorted(found.peers), topics, times_us)
    return found


async def ask(
    found: Logs, access: Access, addresses: Iterable[str], topics: Sequence[str] | None, times_us: Sequence[int]
) -> None:
    """Ask some nodes, many at a time; nodes that were asked before are not asked again."""
    room = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def ask_one(address: str) -> None:
        async with room:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    client = await connect(access, address)
                    try:
                        found.add(address, await RemoteLog(client).topics(topics, times_us))
                    finally:
                        await client.abandon()
            except DeniedError:
                # Other nodes would refuse as well.
                raise
            except TimeoutError:
                found.timed_out.add(address)
                found.silent[address] = f"the node at {address} gave no answer in {ANSWER_SECONDS:g} seconds"
            except PeerError as error:
                found.silent[address] = str(error)

    fresh = [address for address in addresses if address not in found.asked]
    found.asked.update(fresh)
    await asyncio.gather(*(ask_one(address) for address in fresh))
    for address, reason in found.silent.items():
        log.warning("a node is skipped", address=address, reason=reason)
