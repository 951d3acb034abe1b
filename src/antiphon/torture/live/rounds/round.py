"""Rounds of live torture: clusters of real nodes that lose some of them for good, under load, and are audited.

Each round starts a whole cluster and kills nodes, while all of them publish and subscribe. A killed node leaves no
trace; those of the others are judged together. Publications of killed nodes may be lost, but not for only some of the
nodes that were present from the beginning to the end: that is *agreement*.

Killed brokers do not return: a tree loses most of its brokers and must continue with the rest or, with a quorum, loses
only as many as leave a majority (:mod:`antiphon.torture.live.rounds.tree`). Nodes of a gossip cluster are replaced by
new ones (:mod:`antiphon.torture.live.rounds.gossip`).

Clients produce the load. Clients of a tree move to another broker when theirs is killed, and are judged by their own
records too (:mod:`antiphon.torture.live.rounds.listeners`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import antiphon
from antiphon.kernel.errors import PeerError
from antiphon.node.local_cluster import Member, Plan, ProcessCluster
from antiphon.torture.live.judging import FAILED_LINE, Audit
from antiphon.torture.live.rounds.listeners import CLIENT_CHECKS, ClientRecord, judge_listeners, name_of
from antiphon.trace.store import read_trace

if TYPE_CHECKING:
    from antiphon.api.pubsub import Subscription
    from antiphon.client.handle import Client

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
TOPICS = ("bank", "news")
PAUSE_SECONDS = 0.005
"""The average pause of a publisher between two bursts."""

BURST_AT_MOST = 8
SURVIVORS = 3
"""A round ends when so few brokers are left."""

KILL_SECONDS = (0.3, 3.0)
"""The shortest and the longest time between two kills."""

TOGETHER = 0.25
"""The share of kills that take two nodes at once."""

AGREEMENT = "agreement"
LOOK_SECONDS = 0.05
STUCK_SECONDS = 30.0
"""A client whose messages are not accepted by then, or that misses last words of a survivor by then, counts as stuck.
"""

QUIET = ["--log-level", "error"]
"""Settings of all nodes."""


@dataclass
class RoundFigures:
    """The results of all rounds."""

    rounds: int = 0
    kills: int = 0
    founders_killed: int = 0
    newcomers: int = 0
    moves: int = 0
    gaps: int = 0
    holes: int = 0
    """Batches that stable nodes passed over in total order, and reported."""
    accepted: int = 0
    messages: int = 0
    deliveries: int = 0
    stuck: int = 0
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*CHECKS, AGREEMENT, *CLIENT_CHECKS), 0))
    examples: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether any promise was broken."""
        return self.stuck > 0 or any(self.violations.values())


def judge(figures: RoundFigures, traces: Path, stable: list[str], audit: Audit, has_holes: bool = False) -> None:
    """Audit the traces of the survivors, and compare the stable nodes, given by the names of their files.

    Where nodes have reported holes, total messages may be missing.
    """
    files = sorted(traces.glob("*.parquet"))
    count_disagreements(figures, [file for file in files if file.stem in stable], has_holes)
    found = audit(files)
    figures.messages += found.messages
    figures.deliveries += found.deliveries
    for name, check in found.checks.items():
        if has_holes and name == "completeness":
            continue
        figures.violations[name] += check.violations
        if check.example is not None:
            figures.examples.append(f"round {figures.rounds}, {name}: {check.example}")


def count_disagreements(figures: RoundFigures, files: list[Path], has_holes: bool) -> None:
    """Compare the deliveries of nodes that were subscribed from before the first message to the end."""
    sets = []
    for file in files:
        rows = read_trace(file).select(["event", "topic", "source", "sequence", "order"]).to_pylist()
        delivered = [row for row in rows if row["event"] == "deliver" and not (has_holes and row["order"] == "total")]
        sets.append({(row["topic"], row["source"], row["sequence"]) for row in delivered})
    everything = set().union(*sets)
    for file, found in zip(files, sets, strict=True):
        missing = everything - found
        figures.violations[AGREEMENT] += len(missing)
        if missing:
            topic, source, sequence = min(missing)
            figures.examples.append(
                f"round {figures.rounds}: {file.stem} lacks publication {sequence} of node {source} on topic {topic}"
            )


class Round:
    """One cluster, from its start to the end of its last node."""

    reconnect_seconds = 0.0
    """How long clients look for another node when theirs is gone. Clients that do are judged."""

    def __init__(
        self,
        figures: RoundFigures,
        chance: random.Random,
        nodes: int,
        directory: Path,
        complain: Callable[[str], None],
    ) -> None:
        self.figures = figures
        self.chance = chance
        self._say = complain
        (directory / "traces").mkdir()
        self.cluster = ProcessCluster(self.plan(nodes, directory), self._complain, self._ended)
        # Nodes that are present from the beginning to the end.
        self.stable: list[Member] = []
        self._load: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()
        self._listeners: list[ClientRecord] = []
        self._accepted: list[bytes] = []
        self._are_judged = asyncio.Event()
        self._all_subscribed = asyncio.Event()

    # Differences between fabrics.

    def plan(self, nodes: int, directory: Path) -> Plan:
        """The cluster to start."""
        raise NotImplementedError

    async def trouble(self) -> None:
        """Kill nodes for as long as the round lasts, and name the stable ones."""
        raise NotImplementedError

    def publish_one(self, client: Client, topic: str, value: bytes, chance: random.Random) -> Any:
        """Publish one message of any kind; the result must be awaited."""
        raise NotImplementedError

    async def agree(self, clients: list[Client], nodes: list[int]) -> None:
        """Let the stable nodes publish last words, and wait until all of them have everything."""
        raise NotImplementedError

    # Shared by all fabrics.

    async def run(self) -> list[str]:
        """Start, load, kill, wait for the survivors, stop; returns the names of the traces of stable nodes."""
        figures = self.figures
        await self.cluster.start()
        try:
            for member in self.cluster.members:
                self.load(member)
            await asyncio.wait(
                [asyncio.create_task(self._until_all_subscribed()), *self._load], return_when="FIRST_COMPLETED"
            )
            await self.trouble()
            self._is_over.set()
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    await self._end_in_agreement()
                    await self._until_heard()
                    self._are_judged.set()
                    await asyncio.gather(*self._load)
            except (TimeoutError, PeerError) as error:
                figures.stuck += 1
                figures.examples.append(f"round {figures.rounds}: survivors do not continue: {error!r}")
        finally:
            for publishing in self._load:
                publishing.cancel()
            await asyncio.gather(*self._load, return_exceptions=True)
            slow = await self.cluster.stop()
        self._judge_clients()
        if slow:
            figures.stuck += 1
            figures.examples.append(f"round {figures.rounds}: nodes {slow} could not leave")
        figures.rounds += 1
        return [f"node-{member.index}" for member in self.stable]

    def alive_members(self) -> list[Member]:
        """Nodes that were not killed; a killed process takes a moment to end."""
        return [member for member in self.cluster.alive if not member.is_expected_to_end]

    def kill(self, member: Member) -> None:
        """Kill a node as a power failure of its machine would."""
        member.is_expected_to_end = True
        self.figures.kills += 1
        self.figures.founders_killed += 1 if member.about["node"] == 0 else 0
        member.process.kill()

    def load(self, member: Member) -> None:
        """Let a client publish at a node."""
        self._load.append(asyncio.create_task(self._publish(member)))

    async def _end_in_agreement(self) -> None:
        clients = [await antiphon.connect(member.address, reconnect_seconds=0.0) for member in self.stable]
        try:
            await self.agree(clients, [member.about["node"] for member in self.stable])
        finally:
            for client in clients:
                await client.abandon()

    async def _publish(self, member: Member) -> None:
        """Publish at one node, or at others when it is gone, until the round is over or no node is found."""
        chance = random.Random(self.chance.getrandbits(62))
        connecting = antiphon.connect(
            member.address, reconnect_seconds=self.reconnect_seconds, on_reconnect=self._moved
        )
        try:
            client = await connecting
            try:
                await self._subscribe(client)
                burst = 0
                while not self._is_over.is_set():
                    burst += 1
                    await self._burst(client, chance, member.index, burst)
                    await asyncio.sleep(chance.expovariate(1 / PAUSE_SECONDS))
                await self._are_judged.wait()
            finally:
                # Where the cluster does not continue, no client waits for messages that were not accepted.
                await client.abandon()
        except PeerError:
            if self.reconnect_seconds or not member.is_expected_to_end:
                raise

    def _moved(self, address: str) -> None:
        self.figures.moves += 1

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to all topics, and wait until all clients have done so."""
        listener = ClientRecord()
        subscriptions = [
            client.subscribe(topic, callback=listener.hear, when_missed=listener.gaps.append) for topic in TOPICS
        ]
        await asyncio.gather(*(subscription.ready() for subscription in subscriptions))
        self._listeners.append(listener)
        if len(self._listeners) == len(self.cluster.members):
            self._all_subscribed.set()
        await self._all_subscribed.wait()

    async def _until_all_subscribed(self) -> None:
        await self._all_subscribed.wait()

    async def _burst(self, client: Client, chance: random.Random, index: int, burst: int) -> None:
        topic = chance.choice(TOPICS)
        values = [name_of(index, burst, number) for number in range(chance.randint(1, BURST_AT_MOST))]
        receipts = [self.publish_one(client, topic, value, chance) for value in values]
        for value, receipt in zip(values, receipts, strict=True):
            await receipt
            self.figures.accepted += 1
            self._accepted.append(value)

    async def _until_heard(self) -> None:
        """Wait until every judged client has received all accepted messages."""
        while self.reconnect_seconds and any(listener.lacks(self._accepted) for listener in self._listeners):
            await asyncio.sleep(LOOK_SECONDS)

    def _judge_clients(self) -> None:
        if not self.reconnect_seconds:
            return
        figures = self.figures
        figures.gaps += sum(len(listener.gaps) for listener in self._listeners)
        for check, found in judge_listeners(self._listeners, self._accepted).items():
            figures.violations[check] += len(found)
            if found:
                figures.examples.append(f"round {figures.rounds}, {check}: {found[0]}")

    def _complain(self, index: int, line: str) -> None:
        self._say(f"node {index}: {line}")
        if FAILED_LINE in line:
            self.figures.stuck += 1
            self.figures.examples.append(f"round {self.figures.rounds}: node {index}: {line}")

    def _ended(self, member: Member) -> None:
        self.figures.stuck += 1
        self.figures.examples.append(
            f"round {self.figures.rounds}: node {member.about['node']} ended unexpectedly with exit code "
            f"{member.process.returncode}"
        )


async def last_words(subscription: Subscription, count: int) -> list[bytes]:
    """The last words of so many nodes, in the order in which they arrived."""
    words: list[bytes] = []
    async for message in subscription:
        if message.value.startswith(b"last"):
            words.append(message.value)
            if len(words) == count:
                break
    return words
