"""``antiphon torture --live``: real brokers in processes of their own, killed at random under load, and audited.

A broker that was killed cannot return, so the time is filled with rounds: in each a whole tree is started, loses most
of its brokers, and has to go on with the rest. A killed broker leaves no trace; those of the survivors are judged
together. What the dead published may be lost with them, but not for some of the survivors only: that is *agreement*.

The load comes from clients, one at each broker, which go on at another broker when theirs is killed. They are judged
too, by what they have written down themselves: whatever was accepted of any of them is to be seen by all, once.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.audit import CHECKS, audit_files, files_in
from antiphon.cli.processes import Member, Plan, ProcessCluster, any_ports, write_tree
from antiphon.kernel.errors import PeerError, UsageError

if TYPE_CHECKING:
    from antiphon.live.batch import Message
    from antiphon.live.client import Client
    from antiphon.live.subscription import Subscription

TOPICS = ("bank", "news")
KEYS = ("anna", "ben", "clara", "dora", "emil")
ORDERS = ("none", "fifo", "causal", "total", "total")
PAUSE_SECONDS = 0.005
"""How long a publisher pauses between two bursts, on average."""

BURST_AT_MOST = 8
SURVIVORS = 3
"""A round ends when no more than so many brokers are left."""

KILL_SECONDS = (0.3, 3.0)
"""The least and the longest time between two kills."""

TOGETHER = 0.25
"""How often two are killed at once."""

AGREEMENT = "agreement"
LOST = "lost at clients"
TWICE = "twice at clients"
LOOK_SECONDS = 0.05
STUCK_SECONDS = 30.0
"""Whose messages are not accepted, or who has not heard the last words of all survivors by then never will."""


@dataclass
class Figures:
    """What happened in all rounds."""

    rounds: int = 0
    kills: int = 0
    roots_killed: int = 0
    moves: int = 0
    gaps: int = 0
    accepted: int = 0
    messages: int = 0
    deliveries: int = 0
    stuck: int = 0
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*CHECKS, AGREEMENT, LOST, TWICE), 0))
    examples: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether any promise was broken."""
        return self.stuck > 0 or any(self.violations.values())


def torture_live(fabric: str, seconds: float, nodes: int, seed: int, as_json: bool) -> None:
    """Run rounds until the time is over, and report."""
    import antiphon

    if fabric != "tree":
        raise UsageError("only a tree of brokers survives crashes; use --live with --fabric tree")
    if nodes <= SURVIVORS:
        raise UsageError(f"{SURVIVORS} brokers are left alive in each round; start more of them with --nodes")
    figures = Figures()
    begun = time.perf_counter()
    chance = random.Random(seed)
    while not figures.has_failed and (figures.rounds == 0 or time.perf_counter() - begun < seconds):
        with tempfile.TemporaryDirectory(prefix="antiphon-torture-") as directory:
            antiphon.run(Round(figures, chance, nodes, Path(directory)).run())
            judge(figures, Path(directory) / "traces")
        if not as_json:
            output.errors.print(f"torture: {summary(figures)}", highlight=False)
    found = {"seconds": time.perf_counter() - begun, "brokers": nodes, **vars(figures)}
    if as_json:
        output.print_json(found)
    else:
        show(found)
    if figures.has_failed:
        raise typer.Exit(1)


def judge(figures: Figures, traces: Path) -> None:
    """Audit the traces of those who survived."""
    files = files_in([traces])
    count_disagreements(figures, files)
    found = audit_files(files)
    figures.messages += found.messages
    figures.deliveries += found.deliveries
    for name, check in found.checks.items():
        figures.violations[name] += check.violations
        if check.example is not None:
            figures.examples.append(f"round {figures.rounds}, {name}: {check.example}")


def count_disagreements(figures: Figures, files: list[Path]) -> None:
    """Compare what the survivors delivered: all of them were subscribed from before the first message to the end."""
    from antiphon.trace.store import read_trace

    sets = []
    for file in files:
        rows = read_trace(file).select(["event", "topic", "source", "sequence"]).to_pylist()
        sets.append({(row["topic"], row["source"], row["sequence"]) for row in rows if row["event"] == "deliver"})
    everything = set().union(*sets)
    for file, found in zip(files, sets, strict=True):
        missing = everything - found
        figures.violations[AGREEMENT] += len(missing)
        if missing:
            topic, source, sequence = min(missing)
            figures.examples.append(
                f"round {figures.rounds}: {file.stem} lacks publication {sequence} of node {source} on topic {topic}"
            )


class Listener:
    """What one client has seen, and where messages may be missing for it."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self.gaps: list[str] = []

    def hear(self, message: Message) -> None:
        """A message has come."""
        self.seen[message.value] += 1

    def lacks(self, accepted: list[bytes]) -> list[bytes]:
        """What has not come, though it was accepted; nothing is expected where the client was told of a gap."""
        return [] if self.gaps else [value for value in accepted if value not in self.seen]


class Round:
    """One tree, from its start to the end of the last broker."""

    def __init__(self, figures: Figures, chance: random.Random, nodes: int, directory: Path) -> None:
        self._figures = figures
        self._chance = chance
        port = any_ports(nodes)
        tree = write_tree(directory / "tree.toml", nodes, port)
        (directory / "traces").mkdir()
        settings = ["--log-level", "error", *(word for topic in TOPICS for word in ("--keep", topic))]
        plan = Plan(nodes, port, None, directory / "traces", settings=settings, tree=tree)
        self._cluster = ProcessCluster(plan, self._complain, self._ended)
        self._is_over = asyncio.Event()
        self._listeners: list[Listener] = []
        self._accepted: list[bytes] = []
        self._are_judged = asyncio.Event()
        self._all_subscribed = asyncio.Event()

    async def run(self) -> None:
        """Start, load, kill, wait for the survivors, stop."""
        figures = self._figures
        await self._cluster.start()
        try:
            load = [asyncio.ensure_future(self._publish(member)) for member in self._cluster.members]
            await asyncio.wait(
                [asyncio.ensure_future(self._all_subscribed.wait()), *load], return_when="FIRST_COMPLETED"
            )
            await self._kill_some()
            self._is_over.set()
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    await self._agree(self._standing())
                    await self._until_heard()
                    self._are_judged.set()
                    await asyncio.gather(*load)
            except (TimeoutError, PeerError) as error:
                figures.stuck += 1
                figures.examples.append(f"round {figures.rounds}: survivors do not go on: {error!r}")
        finally:
            for publishing in load:
                publishing.cancel()
            await asyncio.gather(*load, return_exceptions=True)
            slow = await self._cluster.stop()
        self._judge_clients()
        if slow:
            figures.stuck += 1
            figures.examples.append(f"round {figures.rounds}: brokers {slow} could not leave")
        figures.rounds += 1

    def _standing(self) -> list[Member]:
        """Those that nobody has killed; a process that was killed takes a moment to end."""
        return [member for member in self._cluster.alive if not member.is_expected_to_end]

    async def _kill_some(self) -> None:
        chance = self._chance
        is_first = True
        while len(self._standing()) > SURVIVORS:
            await asyncio.sleep(chance.uniform(*KILL_SECONDS))
            alive = self._standing()
            count = 2 if chance.random() < TOGETHER and len(alive) > SURVIVORS + 1 else 1
            victims = chance.sample(alive, count)
            if is_first and self._figures.rounds % 2 == 0:
                # The root is never spared for long.
                victims[0] = alive[0]
            for victim in set(map(id, victims)):
                self._kill(next(member for member in alive if id(member) == victim))
            is_first = False

    def _kill(self, member: Member) -> None:
        member.is_expected_to_end = True
        self._figures.kills += 1
        self._figures.roots_killed += 1 if member.about["node"] == 0 else 0
        member.process.kill()

    async def _publish(self, member: Member) -> None:
        """Publish at one broker, and at others when it is gone, until the round is over."""
        import antiphon

        chance = random.Random(self._chance.getrandbits(62))
        addresses = [member.address, *(other.address for other in self._cluster.members)]
        async with antiphon.connect(addresses, on_reconnect=self._moved) as client:
            await self._subscribe(client)
            burst = 0
            while not self._is_over.is_set():
                burst += 1
                await self._burst(client, chance, b"%d %d" % (member.about["node"], burst))
                await asyncio.sleep(chance.expovariate(1 / PAUSE_SECONDS))
            await self._are_judged.wait()

    def _moved(self, address: str) -> None:
        self._figures.moves += 1

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to everything, and wait until all have done so."""
        listener = Listener()
        subscriptions = [
            client.subscribe(topic, callback=listener.hear, when_missed=listener.gaps.append) for topic in TOPICS
        ]
        await asyncio.gather(*(subscription.ready() for subscription in subscriptions))
        self._listeners.append(listener)
        if len(self._listeners) == len(self._cluster.members):
            self._all_subscribed.set()
        await self._all_subscribed.wait()

    async def _burst(self, client: Client, chance: random.Random, name: bytes) -> None:
        topic = chance.choice(TOPICS)
        receipts = []
        for number in range(chance.randint(1, BURST_AT_MOST)):
            keys = chance.sample(KEYS, chance.choice((1, 1, 2)))
            value = b"%b %d" % (name, number)
            receipts.append((value, client.publish(topic, value, order=chance.choice(ORDERS), keys=keys)))
        for value, receipt in receipts:
            await receipt
            self._figures.accepted += 1
            self._accepted.append(value)

    async def _until_heard(self) -> None:
        """Wait until every client has seen all that was accepted of any."""
        while any(listener.lacks(self._accepted) for listener in self._listeners):
            await asyncio.sleep(LOOK_SECONDS)

    def _judge_clients(self) -> None:
        figures = self._figures
        for number, listener in enumerate(self._listeners):
            lost = listener.lacks(self._accepted)
            twice = [value for value, count in listener.seen.items() if count > 1]
            figures.gaps += len(listener.gaps)
            figures.violations[LOST] += len(lost)
            figures.violations[TWICE] += len(twice)
            for what, values in ((LOST, lost), (TWICE, twice)):
                if values:
                    example = values[0].decode()
                    figures.examples.append(f"round {figures.rounds}: {what}: client {number}, message {example!r}")

    async def _agree(self, survivors: list[Member]) -> None:
        """Every survivor publishes last words about all keys and hears those of all."""
        import antiphon

        clients = [await antiphon.connect(member.address, reconnect_seconds=0.0) for member in survivors]
        try:
            for topic in TOPICS:
                heard = [client.subscribe(topic) for client in clients]
                await asyncio.gather(*(subscription.ready() for subscription in heard))
                for client, member in zip(clients, survivors, strict=True):
                    word = b"last %d on %b" % (member.about["node"], topic.encode())
                    await client.publish(topic, word, order="total", keys=KEYS)
                orders = await asyncio.gather(*(last_words(each, len(clients)) for each in heard))
                if any(order != orders[0] for order in orders):
                    raise PeerError(f"survivors heard last words in different orders: {orders}")
        finally:
            for client in clients:
                await client.abandon()

    def _complain(self, index: int, line: str) -> None:
        output.complain(f"broker {index}: {line}")

    def _ended(self, member: Member) -> None:
        self._figures.stuck += 1
        self._figures.examples.append(
            f"round {self._figures.rounds}: broker {member.about['node']} ended by itself with exit code "
            f"{member.process.returncode}"
        )


async def last_words(subscription: Subscription, count: int) -> list[bytes]:
    """The last words of so many brokers, in the order in which they were heard."""
    words: list[bytes] = []
    async for message in subscription:
        if message.value.startswith(b"last"):
            words.append(message.value)
            if len(words) == count:
                break
    return words


def summary(figures: Figures) -> str:
    """How far it has come, on one line."""
    broken = sum(figures.violations.values()) + figures.stuck
    failed = f"{broken:,} promises broken" if broken else "nothing broken"
    return (
        f"{figures.rounds} rounds, {figures.kills} brokers killed, {figures.messages:,} messages, "
        f"{figures.deliveries:,} deliveries, {failed}"
    )


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("rounds", f"{found['rounds']} in {found['seconds']:.0f} s, {found['brokers']} brokers each")
    table.add_row("killed", f"{found['kills']} brokers, {found['roots_killed']} of them the first root")
    table.add_row("clients", f"changed their broker {found['moves']} times; told of {found['gaps']} gaps")
    table.add_row("accepted", f"{found['accepted']:,} messages")
    table.add_row("judged", f"{found['messages']:,} messages, {found['deliveries']:,} deliveries")
    violated = ", ".join(f"{name} {count:,}" for name, count in found["violations"].items() if count)
    table.add_row("violations", violated or f"none; checked: {', '.join(found['violations'])}")
    table.add_row("stuck", f"{found['stuck']:,}" if found["stuck"] else "nothing")
    for example in found["examples"][:10]:
        table.add_row("example", example)
    output.console.print(table)
