"""A live campaign: a cluster of real processes under load, which must recover from each injected fault.

Nodes are processes behind doors (:mod:`antiphon.torture.live.proxies`); applications are clients in separate processes
(:mod:`antiphon.torture.live.load`), and so are crowds of other subscribers
(:mod:`antiphon.torture.live.crowd_process`). Each cycle draws, injects and heals faults
(:mod:`antiphon.torture.live.faults`). Then all applications publish probes on all topics, in repeated rounds, until one
round of probes has arrived everywhere; the time from the beginning of healing until then is the recovery time. At the
end the journals of the applications are judged (:mod:`antiphon.torture.live.judging`).
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import PeerError
from antiphon.node.local_cluster import HOST, Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.runtime.clocks import monotonic_us
from antiphon.torture.live.crowd import COME_SECONDS
from antiphon.torture.live.crowd_process import Crowds
from antiphon.torture.live.disk_snapshots import DiskSnapshots
from antiphon.torture.live.faults import LOST_SECONDS, SECONDS, Fault, Happening, Nemesis
from antiphon.torture.live.judging import CHECKS, FAILED_LINE, Audit, Circumstances, judge_journals
from antiphon.torture.live.load import FLOODS, LoadWork, Orders
from antiphon.torture.live.load_process import LoadProcess
from antiphon.torture.live.power import FaultyDisk, compile_library
from antiphon.torture.live.proxies import ProxyNetwork

TOPICS: Final = ("bank", "news", "room")
KEYS: Final = ("anna", "ben", "clara", "dora", "emil")
WEAK_KEYS: Final = ("frida", "gustav", "hanna")
LOADS: Final = 2
"""The number of processes that the applications share."""

LOOK_SECONDS: Final = 0.05
FIRST_PROBE_SECONDS: Final = 1.0
LONGEST_PROBE_SECONDS: Final = 8.0
"""The longest time until another round of probes begins; the time doubles with each round."""

SETTLE_SECONDS: Final = 3.0
"""The pause between two restarts of a rolling one: after two seconds the present brokers are the council of a tree."""

STUCK_SECONDS: Final = 120.0
"""A cluster that has not recovered by then counts as stuck."""

BURST_MESSAGES: Final = 3000
"""More than the fabrics keep in memory of one publisher for disconnected nodes, and more than may be in transit."""

PROGRESS_NAME: Final = "progress.jsonl"
"""The file with the figures after each cycle, one line each."""

WAIT_SECONDS: Final = LOST_SECONDS + 1.0
"""The longest time that publishers may wait because of faults of other nodes; slow subscribers must not make them wait
even that long.
"""

FLOOD_REST: Final = 0.15
"""When at most this share of a flood is left, nodes have sent the maximum ahead of each subscriber."""

FLOOD_SECONDS: Final = 15.0

LOST_LINE: Final = "messages are lost"
"""The text that a node logs where a subscriber misses messages."""

NEVER_US: Final = 1 << 62
CALM_SECONDS: Final = (0.1, 1.0)
"""The pause between two cycles."""

SPLITS: Final = frozenset({"cut", "oneway", "flap", "hold", "burst", "pause", "stall"})
"""Faults after which a part of a tree may have continued without a majority."""


EVERYTHING: Final = (
    "kill", "half", "power", "wipe", "restart", "pause", "stall", "cut", "oneway", "flap", "hold", "burst", "delay",
    "disk", "slow", "crowd",
)  # fmt: skip
"""All faults except those that take long and must be asked for."""


@dataclass(frozen=True)
class CampaignPlan:
    """Describes one campaign."""

    fabric: str
    nodes: int
    seconds: float
    seed: int
    faults: tuple[str, ...]
    orders: tuple[str, ...]
    messages_per_second: float
    """The rate of each application; there is one per node."""
    directory: Path
    has_logs: bool = True
    """Whether nodes have logs. Without them, slow subscribers with the policy ``block`` slow their publishers down."""
    floods: tuple[int, ...] = (0, 1, 1, 1)
    """The floods to draw from for crowds; a flood of many small messages takes as long to judge as minutes of load."""
    disks_lie: bool = False
    """Whether disks report syncs that they did not do; the judge must find the loss."""
    other_version: Path | None = None
    """Where Python finds another version of Antiphon. Each node runs this version and that one in turn."""


@dataclass
class LiveFigures:
    """The results of a campaign."""

    cycles: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    refused: int = 0
    deliveries: int = 0
    moves: int = 0
    gaps: int = 0
    node_gaps: dict[str, int] = field(default_factory=dict)
    """Gaps that nodes logged, by cause: ``late`` for total order, ``gone`` where no node has kept a message."""
    gone_with_node: int = 0
    published_bytes: int = 0
    """The bytes that applications asked to publish."""
    subscribers: int = 0
    """The number of subscribers in crowds."""
    dropped: int = 0
    """Messages that these subscribers' policies dropped, as reported to them."""
    unsynced_changes: int = 0
    """Changes of files that were not synced at a power loss."""
    unsynced_bytes_lost: int = 0
    """The bytes of these that were lost."""
    stuck: int = 0
    judge: str = ""
    """The judge: ``memory`` or ``spark``."""
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHECKS, 0))
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    timeline: list[Happening] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether any promise was broken."""
        return self.stuck > 0 or any(self.violations.values())

    def as_json(self) -> dict[str, Any]:
        """The form in which ``--json`` prints it, with recovery times by kind of fault."""
        found = asdict(self)
        found["recoveries"] = {kind: summary_of(times) for kind, times in self.recoveries.items()}
        everything = [seconds for times in self.recoveries.values() for seconds in times]
        found["recovery"] = summary_of(everything)
        found["lost"], found["doubled"] = self.violations["completeness"], self.violations["duplicates"]
        return found


def summary_of(times: list[float]) -> dict[str, float]:
    """The count, the median and the maximum."""
    if not times:
        return {"count": 0, "median_seconds": 0.0, "longest_seconds": 0.0}
    return {"count": len(times), "median_seconds": statistics.median(times), "longest_seconds": max(times)}


class LiveCampaign:
    """One campaign, from the start of the cluster to the judgement."""

    def __init__(self, plan: CampaignPlan, progress: Callable[[LiveFigures], None]) -> None:
        self._plan = plan
        self._progress = progress
        self.figures = LiveFigures(faults=dict.fromkeys(plan.faults, 0))
        self._chance = random.Random(plan.seed)
        self._begun = time.monotonic()
        self._loads: list[LoadProcess] = []
        # Spans in which faults were active or not recovered from, in microseconds.
        self._disturbed: list[tuple[int, int]] = []
        self._flood_messages = 0
        self._probe = 0
        self._is_stopped = asyncio.Event()
        (plan.directory / "journals").mkdir(parents=True)
        port = any_ports(2 * plan.nodes)
        self._listening = [f"{HOST}:{port + place}" for place in range(plan.nodes)]
        doors = [f"{HOST}:{port + plan.nodes + place}" for place in range(plan.nodes)]
        self._network = ProxyNetwork(doors, self._listening)
        self._crowds = Crowds(doors, TOPICS, plan.seed, plan.directory)
        self._log = (plan.directory / "nodes.log").open("w")
        data = plan.directory / "data"
        # How often each node was started.
        self._starts: dict[int, int] = {}
        self._disks = self._new_disks(data) if {"power", "slow"} & set(plan.faults) else []
        self._remains = DiskSnapshots(data, plan.directory / "remains", TOPICS)
        self._cluster = ProcessCluster(self._cluster_plan(port, doors), self._write_log, self._ended)
        self._nemesis = Nemesis(
            self._chance,
            plan.faults,
            self._cluster,
            self._network,
            data,
            self._disks,
            self._remains.take,
            self._until_whole,
        )

    def _new_disks(self, data: Path) -> list[FaultyDisk]:
        """A disk for each node that may lose unsynced writes."""
        plan = self._plan
        library = compile_library(plan.directory)
        notes = [plan.directory / "unsynced" / f"node-{place}" for place in range(plan.nodes)]
        return [FaultyDisk(library, data / note.name, note, plan.disks_lie) for note in notes]

    def _cluster_plan(self, port: int, doors: list[str]) -> Plan:
        plan = self._plan
        settings = ["--log-level", "warning", *(word for topic in TOPICS for word in ("--keep", topic))]
        table = founders_file(plan.directory, plan.fabric, plan.nodes, port, doors)
        data = plan.directory / "data" if plan.has_logs else None
        return Plan(
            plan.nodes,
            port,
            data,
            settings=settings,
            table=table,
            fabric=plan.fabric,
            doors=doors,
            environment=self._environment,
        )

    def _environment(self, place: int) -> dict[str, str]:
        """The environment variables of a node that is about to start."""
        found = self._disks[place].environment() if self._disks else {}
        self._starts[place] = self._starts.get(place, 0) + 1
        if self._plan.other_version is not None and self._starts[place] % 2 == 0:
            found["PYTHONPATH"] = str(self._plan.other_version.resolve())
        return found

    async def run(self) -> None:
        """Run everything but the judgement; if cancelled, no process is left behind."""
        try:
            for place in range(self._plan.nodes):
                await self._network.open(place)
            await self._cluster.start()
            await self._start_load()
            self._begun = time.monotonic()
            while not self._is_over():
                await self._cycle()
            await self._end()
        except PeerError as error:
            self._fail(f"the campaign could not continue: {error}")
        finally:
            self.figures.seconds = time.monotonic() - self._begun
            await self._crowds.go()
            for load in self._loads:
                await load.end()
            await self._cluster.kill()
            await self._network.close()
            await asyncio.to_thread(self._remains.close)
            self._log.close()

    def stop(self) -> None:
        """Begin no more cycles: heal active faults, and end."""
        self._is_stopped.set()

    def _is_over(self) -> bool:
        is_late = time.monotonic() - self._begun >= self._plan.seconds
        return is_late or self.figures.has_failed or self._is_stopped.is_set()

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until the campaign is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_stopped.wait()

    async def _start_load(self) -> None:
        plan, fabric = self._plan, FABRICS[self._plan.fabric]
        weak_keys = list(WEAK_KEYS) if fabric.has_keys and SPLITS & set(plan.faults) else []
        keys = list(KEYS) if fabric.has_keys else []
        orders = Orders(list(plan.orders), keys, weak_keys, fabric.has_keys)
        for number in range(min(LOADS, plan.nodes)):
            places = list(range(number, plan.nodes, LOADS))
            journals = str(plan.directory / "journals")
            rate = plan.messages_per_second
            work = LoadWork(self._network.doors, places, list(TOPICS), orders, rate, plan.seed, journals)
            self._loads.append(await LoadProcess.start(work))
        await asyncio.gather(*(load.until_begun() for load in self._loads))
        await self._recover([], time.monotonic())

    async def _until_whole(self) -> None:
        await self._recover([], time.monotonic())
        await asyncio.sleep(SETTLE_SECONDS)

    # One cycle.

    async def _cycle(self) -> None:
        figures = self.figures
        await self._wait(self._chance.uniform(*CALM_SECONDS))
        faults = self._nemesis.draw()
        begun_us = monotonic_us()
        for fault in faults:
            await self._wait(fault.after_seconds)
            figures.faults[fault.kind] += 1
            self._note("happens", fault)
            await self._happen(fault)
        await self._wait(max(fault.seconds for fault in faults))
        await self._until_flooded()
        healing = time.monotonic()
        for fault in faults:
            self._note("heals", fault)
        await self._crowds.settle()
        await self._nemesis.heal(faults)
        await self._recover(faults, healing)
        if figures.stuck or any(fault.kind != "crowd" for fault in faults):
            self._disturbed.append((begun_us, NEVER_US if figures.stuck else monotonic_us()))
        await asyncio.gather(*(load.ask("home") for load in self._loads))
        figures.cycles += 1
        await self._write_down()
        self._progress(figures)

    async def _happen(self, fault: Fault) -> None:
        if fault.kind == "crowd":
            await self._let_crowd_come(fault.seconds)
            return
        await self._nemesis.inject(fault, monotonic_us())
        if fault.kind == "burst":
            await asyncio.gather(*(load.ask("burst", BURST_MESSAGES, fault.victims) for load in self._loads))

    async def _let_crowd_come(self, seconds: float) -> None:
        """Start a crowd, of which one half vanishes after some time, while an application publishes a flood."""
        await self._crowds.come(self._chance.uniform(seconds / 2, seconds))
        place = self._chance.randrange(self._plan.nodes)
        flood = self._chance.choice(self._plan.floods)
        self._flood_messages, _ = FLOODS[flood]
        await asyncio.gather(*(load.ask("flood", flood, [place]) for load in self._loads if place in load.places))

    async def _until_flooded(self) -> None:
        """Wait, up to a limit, until crowd subscribers that take nothing must have reached their limits."""
        until = time.monotonic() + FLOOD_SECONDS
        while time.monotonic() < until and not self._is_stopped.is_set():
            answers = await asyncio.gather(*(load.ask("look") for load in self._loads))
            if sum(answer["flood_left"] for answer in answers) <= FLOOD_REST * self._flood_messages:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _write_down(self) -> None:
        """Write what an audit needs to disk, in case this process ends before it can judge."""
        await asyncio.gather(*(load.ask("figures") for load in self._loads))
        self.figures.seconds = time.monotonic() - self._begun
        self._circumstances(is_whole=False).write(self._plan.directory)
        with (self._plan.directory / PROGRESS_NAME).open("ab") as file:
            file.write(msgspec.json.encode(self.figures.as_json()) + b"\n")

    def _circumstances(self, is_whole: bool) -> Circumstances:
        plan = self._plan
        may_lose = FABRICS[plan.fabric].may_lose_with_node
        # Without logs publishers wait for slow subscribers; while a crowd is present, one may follow another.
        wait_seconds = WAIT_SECONDS + (0.0 if plan.has_logs else COME_SECONDS + SECONDS["crowd"][1] + FLOOD_SECONDS)
        killed = list(self._nemesis.killed)
        return Circumstances(plan.fabric, killed, may_lose, is_whole, self._disturbed, wait_seconds)

    async def _recover(self, faults: list[Fault], since: float, comes_to_rest: bool = False) -> None:
        """Let all applications publish probes until those of one round have arrived everywhere.

        With ``comes_to_rest`` that round is the last one: probes of later rounds would still be in transit.
        """
        pause_seconds, next_at = FIRST_PROBE_SECONDS, 0.0
        first = self._probe + 1
        while True:
            now = time.monotonic()
            if now - since > STUCK_SECONDS:
                self._fail(
                    f"not recovered after {STUCK_SECONDS:.0f} s from {'; '.join(map(str, faults)) or 'the start'}"
                )
                return
            if now >= next_at:
                self._probe += 1
                next_at, pause_seconds = now + pause_seconds, min(2 * pause_seconds, LONGEST_PROBE_SECONDS)
                command = "last" if comes_to_rest else "probe"
                answers = await asyncio.gather(*(load.ask(command, self._probe) for load in self._loads))
            else:
                answers = await asyncio.gather(*(load.ask("look") for load in self._loads))
            self._count(answers)
            complete = set.intersection(*(set(answer["probes"]) for answer in answers))
            wanted = self._probe if comes_to_rest else first
            if any(probe >= wanted for probe in complete) and await self._crowds.are_served(first):
                break
            await asyncio.sleep(LOOK_SECONDS)
        recovery = time.monotonic() - since
        await self._crowds.go()
        for fault in faults:
            self.figures.recoveries.setdefault(fault.kind, []).append(recovery)
            self._note("recovered", fault, f"after {recovery:.3f} s")

    def _count(self, answers: list[dict[str, Any]]) -> None:
        figures = self.figures
        figures.deliveries = sum(answer["seen"] for answer in answers)
        for name in ("accepted", "refused", "gaps", "moves", "published_bytes"):
            setattr(figures, name, sum(answer[name] for answer in answers))

    async def _end(self) -> None:
        """Let all applications finish, and then publish last words, each on every topic in every order.

        All nodes must receive them; and since they follow all earlier publications, all of those must have arrived
        then.
        """
        try:
            async with asyncio.timeout(0.0 if self.figures.stuck else STUCK_SECONDS):
                await asyncio.gather(*(load.ask("quiet") for load in self._loads))
                await self._recover([], time.monotonic(), comes_to_rest=True)
        except TimeoutError:
            if not self.figures.stuck:
                self._fail(f"publications are unanswered {STUCK_SECONDS:.0f} s after everything was healed")
        self._count(await asyncio.gather(*(load.ask("close") for load in self._loads)))
        slow = await self._cluster.stop()
        if slow:
            self._fail(f"nodes {slow} could not leave")

    # Journals and logs.

    def judge(self, audit: Audit) -> None:
        """Judge the campaign, and store what is needed to judge it again."""
        figures, plan = self.figures, self._plan
        figures.unsynced_changes = sum(loss.changes for loss in self._nemesis.losses)
        figures.unsynced_bytes_lost = sum(loss.bytes for loss in self._nemesis.losses)
        if figures.accepted:
            circumstances = self._circumstances(is_whole=not figures.stuck)
            circumstances.write(plan.directory)
            found = judge_journals(plan.directory, circumstances, audit, plan.directory)
            figures.violations, figures.gone_with_node = found.violations, found.gone_with_node
            figures.accepted, figures.deliveries, figures.judge = found.accepted, found.deliveries, found.judge
            figures.subscribers, figures.dropped = found.subscribers, found.dropped
            figures.examples += found.examples

    def _note(self, what: str, fault: Fault, details: str = "") -> None:
        since = time.monotonic() - self._begun
        line = Happening(round(since, 3), what, fault.kind, list(fault.victims), details or str(fault))
        self.figures.timeline.append(line)

    def _fail(self, example: str) -> None:
        self.figures.stuck += 1
        self.figures.examples.append(example)

    def _write_log(self, index: int, line: str) -> None:
        with suppress(ValueError):
            self._log.write(f"{time.monotonic() - self._begun:.3f} node {index}: {line}\n")
            self._log.flush()
        if FAILED_LINE in line:
            self._fail(f"node {index}: {line}")
        if LOST_LINE in line:
            cause = line.rpartition("cause=")[2].strip()
            self.figures.node_gaps[cause] = self.figures.node_gaps.get(cause, 0) + 1

    def _ended(self, member: Member) -> None:
        self._fail(f"node {member.index} ended unexpectedly with exit code {member.process.returncode}")
