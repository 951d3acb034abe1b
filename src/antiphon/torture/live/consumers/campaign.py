"""A live campaign with consumers: nodes and programs are killed, disks are wiped, and the history is judged at the end.

Each cycle strikes nodes and programs, lets them come back, and waits until a message gets the receipt of a majority.
No more than a minority of the disks is lost at a time: after a disk was wiped, nothing else happens before another
node keeps the history in its place. The list of topics replaces a lost disk after ten minutes only, so few are wiped.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import antiphon
from antiphon.client.handle import Client
from antiphon.node.local_cluster import HOST, Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.torture.live.consumers.judge import CONSUMER_CHECKS, ConsumerJudge, HistoryAtEnd
from antiphon.torture.live.consumers.programs import KEYS, RECONNECT_SECONDS, TOPIC, ProgramWork
from antiphon.torture.live.consumers.records import ACKED, ACKING, ASKED, GOT, RECEIPT, REFUSED, WorkRecords, records_in
from antiphon.torture.live.load_process import end_process, start_process

MODES: Final = {"audit": "any", "billing": "any", "ledger": "key", "answers": "causal"}
REPLICAS: Final = 3
PROGRAMS: Final = 3
REPLACE_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 120.0
CALM_SECONDS: Final = (0.5, 2.0)
DOWN_SECONDS: Final = (0.0, 4.0)
PAUSED_SECONDS: Final = (0.5, 5.0)
WIPES_AT_MOST: Final = 2
LEAVE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
DRAINED_AT_ONCE: Final = 256

STRIKES: Final = ("kill", "kill two", "wipe", "pause", "program", "program", "kill and program")


@dataclass(frozen=True)
class ConsumerPlan:
    """Describes one campaign with consumers."""

    fabric: str
    nodes: int
    seconds: float
    seed: int
    messages_per_second: float
    directory: Path


@dataclass
class ConsumerCampaignFigures:
    """The results."""

    cycles: int = 0
    strikes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STRIKES, 0))
    asked: int = 0
    receipts: int = 0
    in_history: int = 0
    handed_out: int = 0
    acknowledged: int = 0
    lost_turns: int = 0
    recovery_seconds: list[float] = field(default_factory=list)
    """From the end of a strike until a message has a receipt, longest last."""
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CONSUMER_CHECKS, 0))
    stuck: int = 0
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether any promise was broken."""
        return self.stuck > 0 or any(self.violations.values())


class ConsumerCampaign:
    """One campaign, from the start of the cluster to the judgement."""

    def __init__(self, plan: ConsumerPlan, progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._progress = progress
        self._chance = random.Random(plan.seed)
        self.figures = ConsumerCampaignFigures()
        port = any_ports(plan.nodes)
        self._addresses = [f"{HOST}:{port + place}" for place in range(plan.nodes)]
        self._data = plan.directory / "data"
        table = founders_file(plan.directory, plan.fabric, plan.nodes, port)
        settings = ["--log-level", "error"]
        self._log = (plan.directory / "nodes.log").open("w")
        wanted = Plan(plan.nodes, port, self._data, settings=settings, table=table, fabric=plan.fabric)
        self._cluster = ProcessCluster(wanted, self._write_log, self._ended)
        self._programs: dict[int, Process] = {}
        self._lives: dict[int, int] = {}
        self._wiped = 0
        self._probes = 0
        self._records = WorkRecords(plan.directory / "program-driver.jsonl")

    def _write_log(self, index: int, line: str) -> None:
        with suppress(ValueError):
            self._log.write(f"{time.monotonic():.3f} node {index}: {line}\n")

    def _ended(self, member: Member) -> None:
        self._fail(f"node {member.index} ended unexpectedly with exit code {member.process.returncode}")

    def _fail(self, what: str) -> None:
        self.figures.stuck += 1
        self.figures.examples.append(what)

    async def run(self) -> ConsumerCampaignFigures:
        """Run everything; if cancelled, no process is left behind."""
        figures, begun = self.figures, time.monotonic()
        try:
            await self._cluster.start()
            async with antiphon.connect(self._addresses, reconnect_seconds=RECONNECT_SECONDS) as client:
                await self._begin(client)
                while time.monotonic() - begun < self._plan.seconds and not figures.stuck:
                    await self._cycle(client)
                for process in self._programs.values():
                    await end_process(process, LEAVE_SECONDS)
                if not figures.stuck:
                    history = await self._drained(client)
                    self._judge(history)
        except antiphon.AntiphonError as error:
            self._fail(f"the campaign could not continue: {error}")
        finally:
            figures.seconds = time.monotonic() - begun
            for process in self._programs.values():
                with suppress(ProcessLookupError):
                    process.kill()
            await self._cluster.kill()
            self._log.close()
            self._records.close()
        return figures

    async def _begin(self, client: Client) -> None:
        async with asyncio.timeout(STUCK_SECONDS):
            while True:
                with suppress(antiphon.PeerError):
                    await client.topics.create(TOPIC, replicas=REPLICAS, replace_seconds=REPLACE_SECONDS)
                    if (await client.topics.describe(TOPIC)).connected == REPLICAS:
                        break
                await asyncio.sleep(LOOK_SECONDS)
        for number in range(PROGRAMS):
            await self._start_program(number)

    # Programs.

    async def _start_program(self, number: int) -> None:
        plan = self._plan
        life = self._lives[number] = self._lives.get(number, 0) + 1
        # Each begins at another node.
        first = self._chance.randrange(len(self._addresses))
        addresses = [*self._addresses[first:], *self._addresses[:first]]
        rate, where = plan.messages_per_second, str(plan.directory)
        work = ProgramWork(addresses, number, life, plan.seed, dict(MODES), rate, where)
        module = "antiphon.torture.live.consumers.programs"
        self._programs[number] = await start_process(module, work)

    async def _kill_program(self) -> None:
        number = self._chance.randrange(PROGRAMS)
        process = self._programs[number]
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await self._start_program(number)

    # Cycles.

    async def _cycle(self, client: Client) -> None:
        await asyncio.sleep(self._chance.uniform(*CALM_SECONDS))
        strike = self._chance.choice(STRIKES)
        if strike == "wipe" and self._wiped >= WIPES_AT_MOST:
            strike = "kill"
        self.figures.strikes[strike] += 1
        if "program" in strike:
            await self._kill_program()
        if strike == "pause":
            await self._pause()
        elif "kill" in strike or strike == "wipe":
            await self._kill_nodes(2 if strike == "kill two" else 1, strike == "wipe")
        begun = time.monotonic()
        if await self._recovered(client, strike == "wipe"):
            self.figures.recovery_seconds = sorted([*self.figures.recovery_seconds, time.monotonic() - begun])
        self.figures.cycles += 1
        self._progress(f"{self.figures.cycles}: {strike}, {time.monotonic() - begun:.1f} s until a receipt")

    async def _pause(self) -> None:
        member = self._chance.choice(self._cluster.alive)
        member.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(*PAUSED_SECONDS))
        member.process.send_signal(signal.SIGCONT)

    async def _kill_nodes(self, count: int, is_wiped: bool) -> None:
        victims = self._chance.sample(self._cluster.alive, count)
        for member in victims:
            member.is_expected_to_end = True
            member.process.kill()
        for member in victims:
            await member.process.wait()
        if is_wiped:
            self._wiped += 1
            await asyncio.to_thread(shutil.rmtree, self._data / f"node-{victims[0].index}")
        await asyncio.sleep(self._chance.uniform(*DOWN_SECONDS))
        for member in victims:
            async with asyncio.timeout(STUCK_SECONDS):
                await self._cluster.restart(member)

    async def _recovered(self, client: Client, needs_all: bool) -> bool:
        """Wait until a message has a receipt; with ``needs_all``, of every replica."""
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                while True:
                    self._probes += 1
                    name = f"driver:{self._probes}"
                    self._records.note(ASKED, name, KEYS[0])
                    try:
                        acks = "all" if needs_all else "quorum"
                        found = await client.publish(TOPIC, name.encode(), key=KEYS[0], acks=acks)
                        self._records.note(RECEIPT, name, found.generation, int(found.position), found.disks)
                        return True
                    except antiphon.PeerError:
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            self._fail(f"no receipt for {STUCK_SECONDS:.0f} s after everything was healed")
            return False

    # The end.

    async def _drained(self, client: Client) -> HistoryAtEnd:
        """Do the work that is left, then read the history."""
        await self._recovered(client, needs_all=True)
        for name, mode in MODES.items():
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    await self._drain(client, name, mode)
            except TimeoutError:
                self._fail(f"the consumer {name!r} did not come to its end")
        names: dict[int, str] = {}
        generation = 0
        async for message in client.history(TOPIC, follow=False):
            assert message.position is not None, "messages of a history have positions"
            names[int(message.position)] = message.value.decode()
            generation = message.position.generation
        return HistoryAtEnd(generation, names)

    async def _drain(self, client: Client, name: str, mode: str) -> None:
        member = f"driver.{name}"
        async with client.consume(TOPIC, name, mode=mode, ack_seconds=2.0) as work:
            while True:
                taken = await work.fetch(DRAINED_AT_ONCE, timeout=1.0)
                for message in taken:
                    place = (int(message.position), message.delivery)
                    self._records.note(GOT, name, member, *place, message.value.decode())
                    self._records.note(ACKING, name, member, *place)
                # Many at once: the acknowledgements of one turn go together.
                for message, acknowledgement in [(message, message.ack()) for message in taken]:
                    place = (int(message.position), message.delivery)
                    try:
                        await acknowledgement
                        self._records.note(ACKED, name, member, *place)
                    except antiphon.LostTurnError:
                        self._records.note(REFUSED, name, member, *place)
                found = await client.topics.describe(TOPIC)
                if all(each.lag == 0 for each in found.consumers if each.name == name):
                    return

    def _judge(self, history: HistoryAtEnd) -> None:
        judge = ConsumerJudge(MODES, history)
        judge.judge(records_in(self._plan.directory))
        figures, counts = self.figures, judge.counts
        figures.asked, figures.receipts, figures.in_history = counts[ASKED], counts[RECEIPT], len(history.names)
        figures.handed_out, figures.acknowledged = counts[GOT], counts[ACKED]
        figures.lost_turns = counts[REFUSED]
        figures.violations = judge.violations
        figures.examples += judge.examples
