"""A live campaign: a cluster of real processes under load, to which faults are done, and which must recover from each.

Nodes are processes behind doors (:mod:`antiphon.torture.live.proxies`), applications are clients in processes of their
own (:mod:`antiphon.torture.live.load`), and so are crowds of other subscribers (:mod:`antiphon.torture.live.crowds`).
In each cycle faults are drawn, happen and heal (:mod:`antiphon.torture.live.faults`). Then all applications publish
probes on all topics, again and again, until one round of probes has come to everybody; the time from the beginning of
the healing until then is the recovery. At the end what the applications wrote down is judged
(:mod:`antiphon.torture.live.judging`).
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
from antiphon.node.local_cluster import HOST, Member, Plan, ProcessCluster, any_ports, write_tree
from antiphon.runtime.clocks import monotonic_us
from antiphon.torture.live.crowd import COME_SECONDS
from antiphon.torture.live.crowds import Crowds
from antiphon.torture.live.faults import LOST_SECONDS, SECONDS, Fault, Happening, Nemesis
from antiphon.torture.live.judging import CHECKS, Audit, Circumstances, judge_journals
from antiphon.torture.live.load import FLOODS, Orders, Work
from antiphon.torture.live.loads import LoadProcess
from antiphon.torture.live.power import Disk, compile_library
from antiphon.torture.live.proxies import Network
from antiphon.torture.live.remains import Remains

TOPICS: Final = ("bank", "news", "room")
KEYS: Final = ("anna", "ben", "clara", "dora", "emil")
WEAK_KEYS: Final = ("frida", "gustav", "hanna")
LOADS: Final = 2
"""How many processes the applications share."""

LOOK_SECONDS: Final = 0.05
FIRST_PROBE_SECONDS: Final = 1.0
LONGEST_PROBE_SECONDS: Final = 8.0
"""After how long another round of probes begins; twice as long each time."""

SETTLE_SECONDS: Final = 3.0
"""Between two restarts of a rolling one: after two seconds those who are there are the council of a tree."""

STUCK_SECONDS: Final = 120.0
"""Who has not recovered by then never will."""

BURST_MESSAGES: Final = 3000
"""More than the fabrics keep in memory of one publisher for those who are away, and more than may be under way."""

PROGRESS_NAME: Final = "progress.jsonl"
"""The figures after each cycle, one line for each."""

WAIT_SECONDS: Final = LOST_SECONDS + 1.0
"""So long publishers wait at most, whatever happens to other nodes, and for subscribers not even that."""

FLOOD_REST: Final = 0.15
"""When no more of a flood than this is left, nodes have sent as much ahead of each subscriber as they do."""

FLOOD_SECONDS: Final = 15.0

NEVER_US: Final = 1 << 62
CALM_SECONDS: Final = (0.1, 1.0)
"""How long nothing happens between two cycles."""

SPLITS: Final = frozenset({"cut", "oneway", "flap", "hold", "burst", "pause", "stall"})
"""After these a part of a tree may have gone on without a majority."""


EVERYTHING: Final = (
    "kill", "half", "power", "wipe", "restart", "pause", "stall", "cut", "oneway", "flap", "hold", "burst", "delay",
    "disk", "slow", "crowd",
)  # fmt: skip
"""All faults but those that take long and are asked for."""


@dataclass(frozen=True)
class CampaignPlan:
    """What is to be done."""

    fabric: str
    nodes: int
    seconds: float
    seed: int
    faults: tuple[str, ...]
    orders: tuple[str, ...]
    messages_per_second: float
    """Of each application; there is one for each node."""
    directory: Path
    has_logs: bool = True
    """Whether nodes have logs. Without them slow subscribers with the policy ``block`` slow their publishers."""
    floods: tuple[int, ...] = (0, 1, 1, 1)
    """Which floods of messages are drawn for crowds; each of many small ones is as much to judge as minutes of load."""
    disks_lie: bool = False
    """Whether disks say that they have synced and have not: to see whether the judge finds what is lost then."""


@dataclass
class Figures:
    """What happened."""

    cycles: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    refused: int = 0
    deliveries: int = 0
    moves: int = 0
    gaps: int = 0
    gone_with_node: int = 0
    published_bytes: int = 0
    """What applications wanted to publish, in all."""
    subscribers: int = 0
    """How many came in crowds."""
    dropped: int = 0
    """Messages that these were told to have been dropped for them, by their own policies."""
    unsynced_changes: int = 0
    """Changes of files that were not synced when nodes lost power."""
    unsynced_bytes_lost: int = 0
    """How many bytes of these were gone then."""
    stuck: int = 0
    judge: str = ""
    """Who judged: ``memory``, or ``spark``."""
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
        """All of it, with the recoveries summed up by the kind of fault."""
        found = asdict(self)
        found["recoveries"] = {kind: summary_of(times) for kind, times in self.recoveries.items()}
        everything = [seconds for times in self.recoveries.values() for seconds in times]
        found["recovery"] = summary_of(everything)
        found["lost"], found["doubled"] = self.violations["completeness"], self.violations["duplicates"]
        return found


def summary_of(times: list[float]) -> dict[str, float]:
    """How many there are, the one in the middle and the longest."""
    if not times:
        return {"count": 0, "median_seconds": 0.0, "longest_seconds": 0.0}
    return {"count": len(times), "median_seconds": statistics.median(times), "longest_seconds": max(times)}


class Campaign:
    """One campaign, from the start of the cluster to the judgement."""

    def __init__(self, plan: CampaignPlan, progress: Callable[[Figures], None]) -> None:
        self._plan = plan
        self._progress = progress
        self.figures = Figures(faults=dict.fromkeys(plan.faults, 0))
        self._chance = random.Random(plan.seed)
        self._begun = time.monotonic()
        self._loads: list[LoadProcess] = []
        # From when to when something was done to nodes or had not been recovered from, in microseconds.
        self._disturbed: list[tuple[int, int]] = []
        self._flood_messages = 0
        self._probe = 0
        self._is_stopped = asyncio.Event()
        (plan.directory / "journals").mkdir(parents=True)
        port = any_ports(2 * plan.nodes)
        self._listening = [f"{HOST}:{port + place}" for place in range(plan.nodes)]
        doors = [f"{HOST}:{port + plan.nodes + place}" for place in range(plan.nodes)]
        self._network = Network(doors, self._listening)
        self._crowds = Crowds(doors, TOPICS, plan.seed, plan.directory)
        self._log = (plan.directory / "nodes.log").open("w")
        data = plan.directory / "data"
        self._disks = self._new_disks(data) if {"power", "slow"} & set(plan.faults) else []
        self._remains = Remains(data, plan.directory / "remains", TOPICS)
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

    def _new_disks(self, data: Path) -> list[Disk]:
        """A disk for each node that may lose what was not synced."""
        plan = self._plan
        library = compile_library(plan.directory)
        notes = [plan.directory / "unsynced" / f"node-{place}" for place in range(plan.nodes)]
        return [Disk(library, data / note.name, note, plan.disks_lie) for note in notes]

    def _cluster_plan(self, port: int, doors: list[str]) -> Plan:
        plan = self._plan
        settings = ["--log-level", "warning", *(word for topic in TOPICS for word in ("--keep", topic))]
        tree = None
        if FABRICS[plan.fabric].needs_addresses:
            tree = write_tree(plan.directory / "tree.toml", plan.nodes, port, doors=doors)
        data = plan.directory / "data" if plan.has_logs else None
        environment = (lambda place: self._disks[place].environment()) if self._disks else None
        return Plan(
            plan.nodes,
            port,
            data,
            settings=settings,
            tree=tree,
            fabric=plan.fabric,
            doors=doors,
            environment=environment,
        )

    async def run(self) -> None:
        """Do it all but the judgement; when it is cancelled, no process is left behind."""
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
            self._fail(f"the campaign could not go on: {error}")
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
        """Begin no more cycles: heal what is on, and come to an end."""
        self._is_stopped.set()

    def _is_over(self) -> bool:
        is_late = time.monotonic() - self._begun >= self._plan.seconds
        return is_late or self.figures.has_failed or self._is_stopped.is_set()

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until somebody wants it to end."""
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
            work = Work(self._network.doors, places, list(TOPICS), orders, rate, plan.seed, journals)
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
        """Let subscribers come of which one half vanishes some time, and an application publish much meanwhile."""
        await self._crowds.come(self._chance.uniform(seconds / 2, seconds))
        place = self._chance.randrange(self._plan.nodes)
        flood = self._chance.choice(self._plan.floods)
        self._flood_messages, _ = FLOODS[flood]
        await asyncio.gather(*(load.ask("flood", flood, [place]) for load in self._loads if place in load.places))

    async def _until_flooded(self) -> None:
        """Wait until subscribers of a crowd that take nothing must have met their limits, but not for ever."""
        until = time.monotonic() + FLOOD_SECONDS
        while time.monotonic() < until and not self._is_stopped.is_set():
            answers = await asyncio.gather(*(load.ask("look") for load in self._loads))
            if sum(answer["flood_left"] for answer in answers) <= FLOOD_REST * self._flood_messages:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _write_down(self) -> None:
        """Leave on disk what an audit needs, should this process end before it can judge."""
        await asyncio.gather(*(load.ask("figures") for load in self._loads))
        self.figures.seconds = time.monotonic() - self._begun
        self._circumstances(is_whole=False).write(self._plan.directory)
        with (self._plan.directory / PROGRESS_NAME).open("ab") as file:
            file.write(msgspec.json.encode(self.figures.as_json()) + b"\n")

    def _circumstances(self, is_whole: bool) -> Circumstances:
        plan = self._plan
        may_lose = FABRICS[plan.fabric].may_lose_with_node
        # Without logs publishers wait for slow subscribers, of which one may follow the other while a crowd is there.
        wait_seconds = WAIT_SECONDS + (0.0 if plan.has_logs else COME_SECONDS + SECONDS["crowd"][1] + FLOOD_SECONDS)
        killed = list(self._nemesis.killed)
        return Circumstances(plan.fabric, killed, may_lose, is_whole, self._disturbed, wait_seconds)

    async def _recover(self, faults: list[Fault], since: float, comes_to_rest: bool = False) -> None:
        """Let all publish probes until those of one round have come to everybody.

        When everything is to come to rest that is the last round: those of later ones would still be on their way.
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
        """Let all finish, and then publish last words, each on every topic in every order.

        Everybody must get them; and since they follow all that was published before, all of that has come then.
        """
        try:
            async with asyncio.timeout(0.0 if self.figures.stuck else STUCK_SECONDS):
                await asyncio.gather(*(load.ask("quiet") for load in self._loads))
                await self._recover([], time.monotonic(), comes_to_rest=True)
        except TimeoutError:
            if not self.figures.stuck:
                self._fail(f"publications are not answered {STUCK_SECONDS:.0f} s after everything was healed")
        self._count(await asyncio.gather(*(load.ask("close") for load in self._loads)))
        slow = await self._cluster.stop()
        if slow:
            self._fail(f"nodes {slow} could not leave")

    # What is written down.

    def judge(self, audit: Audit) -> None:
        """Judge what has happened, and keep beside it what must be known to do so again."""
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

    def _ended(self, member: Member) -> None:
        self._fail(f"node {member.index} ended by itself with exit code {member.process.returncode}")
