"""Faults of live nodes: drawn at random, injected, and healed.

This module knows nothing about the reaction of nodes. A fault lasts for a while and is healed; the campaign then checks
the recovery. Several faults may be active at once. They are healed together, connections first, so that restarted nodes
find the others.
"""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from antiphon.kernel.errors import UsageError
from antiphon.node.local_cluster import Member, ProcessCluster
from antiphon.node.settings import Settings
from antiphon.torture.live.power import FaultyDisk, Loss
from antiphon.torture.live.proxies import Pair, ProxyNetwork, between

KINDS: Final = {
    "kill": "kill -9, and a restart with its data",
    "power": "kill -9, and a restart after the disk has lost unsynced writes, or some of them",
    "wipe": "kill -9, and a restart with an empty disk",
    "restart": "SIGTERM, and a restart",
    "roll": "a rolling restart of all nodes",
    "half": "kill -9 of half of the nodes or more at once, and a restart of all of them with their data",
    "pause": "SIGSTOP for less than ``lost_seconds``",
    "stall": "SIGSTOP for more than ``lost_seconds``",
    "cut": "connections between two parts break, and new ones are refused",
    "oneway": "the same in one direction only",
    "flap": "connections between two parts break and come back, again and again",
    "hold": "connections between two parts stay open and carry nothing",
    "burst": "one node or two are cut off, and their clients publish more than nodes keep in memory",
    "delay": "connections between nodes are slow",
    "disk": "the disk of a node is full, or full after some more writes",
    "slow": "each sync of the disk of a node takes longer",
    "crowd": "subscribers of every policy and limit connect, lag, close, stay and vanish while one application "
    "publishes more than nodes send ahead",
}

LOST_SECONDS: Final = float(Settings().lost_seconds)
"""A node counts as lost after so long without a sign of life, unless its settings say otherwise."""

SECONDS: Final = {
    "kill": (0.0, 4.0), "power": (0.0, 4.0), "wipe": (0.0, 4.0), "restart": (0.0, 1.0), "roll": (0.0, 0.0),
    "half": (0.0, 2 * LOST_SECONDS), "pause": (0.1, 0.8 * LOST_SECONDS),
    "stall": (1.2 * LOST_SECONDS, 4 * LOST_SECONDS),
    "cut": (0.5, 8.0), "oneway": (0.5, 8.0), "flap": (1.0, 6.0), "hold": (0.5, 8.0), "burst": (3.0, 8.0),
    "delay": (1.0, 6.0), "disk": (0.5, 5.0), "slow": (1.0, 6.0), "crowd": (4.0, 10.0),
}  # fmt: skip
"""The shortest and the longest duration of each fault."""

KILLS: Final = ("kill", "half", "power", "wipe")
"""Faults that end a process at once."""

ALONE: Final = ("roll", "half")
"""Faults that exclude all others meanwhile."""

CUTS: Final = ("cut", "oneway", "flap", "hold", "burst")
"""Faults between two parts of the nodes."""

NEEDS_LOGS: Final = (*KILLS, "restart", "roll", "burst", "disk", "slow")
"""Faults that only nodes with logs survive, through their own disk or the disks of others."""

TAKES_LIVES: Final = (*KILLS, "restart")
"""Faults after which a node with a new incarnation is started."""

FLAP_SECONDS: Final = (0.02, 0.4)
DELAY_SECONDS: Final = (0.005, 0.15)
TOGETHER: Final = 0.25
"""The share of cycles with two faults at once, and of single-node faults that strike two nodes."""

FULL_DISK_BYTES: Final = 4096
"""The file size limit of a process whose disk is full."""

ROOM_BYTES: Final = 256 << 10
"""How far files may grow beyond the largest one until the disk is full: a commit then fails in the middle."""

SYNC_SECONDS: Final = (0.02, 1.0)
"""The shortest and the longest extra time per sync of a slow disk."""

BAD_DISKS: Final = ("disk", "slow")
DIES_AFTER_SECONDS: Final = (0.1, 3.0)
"""How soon a node with a bad disk is killed: what it accepted until then is at stake."""

LEAVE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Fault:
    """A fault of some nodes, or of the connections between two parts, for some time."""

    kind: str
    victims: tuple[int, ...]
    seconds: float
    others: tuple[int, ...] = ()
    after_seconds: float = 0.0
    """How long after the previous fault it begins."""

    @property
    def pairs(self) -> list[Pair]:
        """The affected ways."""
        if self.kind == "oneway":
            return [(source, target) for source in self.victims for target in self.others]
        return between(self.victims, self.others)

    def __str__(self) -> str:
        parts = " and ".join(",".join(map(str, part)) for part in (self.victims, self.others) if part)
        return f"{self.kind}{' ' if parts else ''}{parts} for {self.seconds:.2f} s"


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds of faults that do not exist."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise UsageError(f"there are no faults {', '.join(unknown) or 'named'}; choose from {', '.join(KINDS)}")


@dataclass
class Happening:
    """A line of the timeline."""

    seconds: float
    what: str
    kind: str
    nodes: list[int]
    details: str = ""


@dataclass(frozen=True)
class Draws:
    """Draws faults for a number of nodes."""

    chance: random.Random
    kinds: Sequence[str]
    count: int

    def next(self) -> list[Fault]:
        """Draw one fault, or two that neither strike the same nodes nor end the incarnations of half of them.

        A node that is restarted without its data is a new node: if half of them are new, the others have no majority
        and never will. So half of the nodes or more are killed only by the fault that lets all of them keep their
        disks.
        """
        first = self._draw_one(list(range(self.count)))
        if first.kind in BAD_DISKS and self.chance.random() < TOGETHER and {"kill", "power"} & set(self.kinds):
            return [first, self._end_of(first)]
        if self.chance.random() < TOGETHER and first.kind not in ALONE:
            struck = () if first.kind == "delay" else first.victims
            spared = [place for place in range(self.count) if place not in struck]
            second = self._draw_one(spared)
            lives = sum(len(fault.victims) for fault in (first, second) if fault.kind in TAKES_LIVES)
            if second.kind in (*ALONE, first.kind) or (first.others and second.others) or 2 * lives >= self.count:
                return [first]
            return [first, second]
        return [first]

    def _end_of(self, first: Fault) -> Fault:
        """The kill of a node with a bad disk, while the disk is bad."""
        kind = "power" if "power" in self.kinds else "kill"
        after_seconds = self.chance.uniform(*DIES_AFTER_SECONDS)
        return Fault(kind, first.victims, self.chance.uniform(*SECONDS[kind]), after_seconds=after_seconds)

    def _draw_one(self, places: list[int]) -> Fault:
        chance = self.chance
        kind = chance.choice(self.kinds)
        seconds = chance.uniform(*SECONDS[kind])
        everybody = range(self.count)
        if kind in CUTS:
            # A single node, or anything up to a half; for ``burst``, a publisher and perhaps one other node.
            most = 2 if kind == "burst" else len(everybody) // 2
            size = chance.choice((1, chance.randint(1, max(1, most))))
            part = tuple(sorted(chance.sample(places, min(size, len(places)))))
            return Fault(kind, part, seconds, tuple(place for place in everybody if place not in part))
        if kind == "crowd":
            return Fault(kind, (), seconds)
        if kind in ("roll", "delay"):
            return Fault(kind, tuple(everybody), seconds)
        if kind == "half":
            size = chance.randint((self.count + 1) // 2, self.count - 1)
            return Fault(kind, tuple(sorted(chance.sample(everybody, size))), seconds)
        # A quarter of the nodes at most: other campaigns test larger losses.
        is_pair = kind in ("kill", "power", "pause") and len(everybody) >= 8 and chance.random() < TOGETHER
        return Fault(kind, tuple(sorted(chance.sample(places, min(len(places), 2 if is_pair else 1)))), seconds)


@dataclass
class Nemesis:
    """Draws faults, and injects them into a cluster whose nodes are behind the doors of a proxy network."""

    chance: random.Random
    kinds: Sequence[str]
    cluster: ProcessCluster
    network: ProxyNetwork
    data: Path
    disks: Sequence[FaultyDisk]
    """The disk of each node, where nodes may lose power or have slow disks."""
    remains: Callable[[int, str, int, int], None]
    """Called with a killed node before it is restarted: its place, its door, the time of the kill, and since when its
    disk has its data.
    """
    until_whole: Callable[[], Awaitable[None]]
    """Waits until all nodes are present, so that the next one may be restarted."""
    killed: list[tuple[str, int]] = field(default_factory=list)
    """The doors of killed nodes, with the time in microseconds."""
    losses: list[Loss] = field(default_factory=list)
    """The extents of power losses."""

    _flapping: dict[Fault, asyncio.Task[None]] = field(default_factory=dict)
    _wiped_us: dict[int, int] = field(default_factory=dict)

    def draw(self) -> list[Fault]:
        """Draw the next faults."""
        return Draws(self.chance, self.kinds, len(self.network.doors)).next()

    # Injecting.

    async def inject(self, fault: Fault, now_us: int) -> None:
        """Inject a fault."""
        if fault.others or fault.kind == "delay":
            self._disturb(fault)
        elif fault.kind in KILLS:
            self._kill(fault, now_us)
        elif fault.kind in ("pause", "stall"):
            self._signal(fault, signal.SIGSTOP)
        elif fault.kind == "disk":
            self._fill_disks(fault)
        elif fault.kind == "slow":
            self._slow_disks(fault, self.chance.uniform(*SYNC_SECONDS))
        elif fault.kind == "restart":
            await asyncio.gather(*(self._leave(member) for member in self._members(fault)))
        elif fault.kind == "roll":
            for member in self._members(fault):
                await self._leave(member)
                await self._start(member)
                await self.until_whole()

    def _disturb(self, fault: Fault) -> None:
        """Inject a fault of the ways between nodes."""
        if fault.kind == "hold":
            self.network.hold(fault.pairs)
        elif fault.kind == "flap":
            self._flapping[fault] = asyncio.ensure_future(self._flap(fault))
        elif fault.kind == "delay":
            self.network.delay({pair: self.chance.uniform(*DELAY_SECONDS) for pair in self._all_ways()})
        else:
            self.network.cut(fault.pairs)

    def _kill(self, fault: Fault, now_us: int) -> None:
        for member in self._members(fault):
            self.killed.append((member.address, now_us))
            member.is_expected_to_end = True
            member.process.kill()
            self.network.shut(member.index)

    async def heal(self, faults: Sequence[Fault]) -> None:
        """Heal all faults; returns when all nodes are present again."""
        for fault in faults:
            if fault in self._flapping:
                self._flapping.pop(fault).cancel()
            if fault.others or fault.kind == "delay":
                self.network.mend(self._all_ways())
            elif fault.kind in ("pause", "stall"):
                self._signal(fault, signal.SIGCONT)
            elif fault.kind == "disk":
                self._limit_files(fault, resource.RLIM_INFINITY)
            elif fault.kind == "slow":
                self._slow_disks(fault, 0.0)
        coming = [self._come_back(fault, place) for fault in faults for place in fault.victims]
        await asyncio.gather(*coming)

    async def _come_back(self, fault: Fault, place: int) -> None:
        """Restart a node that was ended."""
        if fault.kind not in TAKES_LIVES:
            return
        member = self._member(place)
        await member.process.wait()
        killed_us = next((time_us for door, time_us in reversed(self.killed) if door == member.address), 0)
        if fault.kind == "wipe":
            shutil.rmtree(self.data / f"node-{place}", ignore_errors=True)
            self._wiped_us[place] = killed_us
            if self.disks:
                self.disks[place].forget()
        elif fault.kind in KILLS:
            if fault.kind == "power":
                self.losses.append(self.disks[place].lose(self.chance))
            remains = (place, member.address, killed_us, self._wiped_us.get(place, 0))
            await asyncio.to_thread(self.remains, *remains)
        await self._start(member)

    async def _start(self, member: Member) -> None:
        await self.network.open(member.index)
        await self.cluster.restart(member)

    async def _leave(self, member: Member) -> None:
        """Let a node leave orderly; kill it if it cannot."""
        member.is_expected_to_end = True
        member.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await member.process.wait()
        except TimeoutError:
            member.process.kill()
            await member.process.wait()
        self.network.shut(member.index)

    async def _flap(self, fault: Fault) -> None:
        while True:
            self.network.cut(fault.pairs)
            await asyncio.sleep(self.chance.uniform(*FLAP_SECONDS))
            self.network.mend(fault.pairs)
            await asyncio.sleep(self.chance.uniform(*FLAP_SECONDS))

    def _signal(self, fault: Fault, number: signal.Signals) -> None:
        for member in self._members(fault):
            if member.process.returncode is None:
                member.process.send_signal(number)

    def _fill_disks(self, fault: Fault) -> None:
        """Let files grow no more, or only a little."""
        size = FULL_DISK_BYTES
        if self.chance.random() < 0.5:
            files = [path for place in fault.victims for path in (self.data / f"node-{place}").rglob("*")]
            size = max(path.stat().st_size for path in files) + self.chance.randint(0, ROOM_BYTES)
        self._limit_files(fault, size)

    def _slow_disks(self, fault: Fault, seconds_per_sync: float) -> None:
        for place in fault.victims:
            self.disks[place].slow_down(seconds_per_sync)

    def _limit_files(self, fault: Fault, size: int) -> None:
        for member in self._members(fault):
            if member.process.returncode is None:
                # A killed process may not have been noticed yet.
                with suppress(ProcessLookupError):
                    resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _all_ways(self) -> list[Pair]:
        places = range(len(self.network.doors))
        return [pair for pair in between(places, places) if pair[0] != pair[1]]

    def _members(self, fault: Fault) -> list[Member]:
        return [self._member(place) for place in fault.victims]

    def _member(self, place: int) -> Member:
        return next(member for member in self.cluster.members if member.index == place)
