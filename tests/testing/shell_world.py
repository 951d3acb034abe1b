"""Runs schedules of simulated clients with real nodes and clients: the live shells, on a virtual clock.

The simulator proves the state machines of sessions and membership; this drives the code around them, with the schedules
and the judge of ``antiphon torture --fabric clients``. A paused node or client is cut off instead.

    python -m tests.testing.shell_world 1 200       # the seeds from 1 to 200
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Coroutine
from typing import Any

import antiphon
from antiphon import testing
from antiphon.audit.clients import ERROR, ClientJudge
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.clients.world import ClientSchedule, ClientStep
from antiphon.torture.clients.schedules import draw_client_schedule

BEGIN_SECONDS = 6.0
SETTLE_SECONDS = 75.0
LAST_WORDS_SECONDS = 15.0
RESTART_SECONDS = 1.0
DELAY_STREAM = 90
TOPIC = "room"


class ShellClient:
    """An application with one client: it publishes and subscribes, and tells the judge."""

    def __init__(self, number: int, client: antiphon.Client, world: ShellWorld) -> None:
        self.number = number
        self._client = client
        self._world = world
        self._judge = world.judge
        self._count = 0
        self.is_ready = False
        self.has_ended = False

    def publish(self, order: str) -> None:
        """Publish a message with a name of its own."""
        self._count += 1
        name = f"{self.number}.{self._count}"
        self._judge.asked(self.number, name, order, self._world.now_us())
        self._world.spawn(self._settle(name, order))

    async def _settle(self, name: str, order: str) -> None:
        try:
            await self._client.publish(TOPIC, name.encode(), order=order, key=b"key" if order == "total" else None)
        except antiphon.ClosedError:
            self._gave_up()
        except antiphon.PeerError:
            self._judge.refused(name)
        else:
            self._judge.accepted(name)

    def _gave_up(self) -> None:
        self.has_ended = True
        self._judge.gave_up(self.number)

    async def listen(self) -> None:
        """Show the judge what the subscription shows."""
        try:
            subscription = await self._client.subscribe(TOPIC).ready()
            self.is_ready = True
            self._judge.ready(self.number, self._world.now_us())
            while True:
                try:
                    async for message in subscription:
                        self._judge.shown(self.number, message.value.decode())
                    return
                except antiphon.MissedMessagesError:
                    self._judge.missed(self.number, self._world.now_us())
        except antiphon.ClosedError:
            self._gave_up()


class ShellWorld:
    """One run of a schedule."""

    def __init__(self, schedule: ClientSchedule, cluster: testing.Cluster) -> None:
        self.schedule = schedule
        self.judge = ClientJudge()
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: dict[int, ShellClient] = {}
        self._cuts: list[frozenset[int | str]] = []
        self._everybody: list[int | str] = [*range(schedule.nodes), *map(name_of, range(len(schedule.homes)))]

    def now_us(self) -> int:
        """The virtual clock."""
        return round(self._loop.time() * 1_000_000)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; an error of it is one of the run."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.judge.violation(ERROR, repr(error))

    async def run(self) -> ClientJudge:
        """Let the schedule happen to its end, and judge it."""
        schedule = self.schedule
        self._slow_links()
        await asyncio.sleep(BEGIN_SECONDS)
        late = {step.client for step in schedule.steps if step.kind == "connect"}
        for number in set(range(len(schedule.homes))) - late:
            self.spawn(self._connect(number))
        await asyncio.sleep(1.0)
        begun_us = self.now_us()
        for step in schedule.steps:
            await asyncio.sleep(max(0, begun_us + step.at_us - self.now_us()) / 1_000_000)
            self.spawn(self._take(step))
        longest_us = max((step.lasts_us for step in schedule.steps), default=0)
        await asyncio.sleep(longest_us / 1_000_000 + SETTLE_SECONDS)
        for client in self._clients.values():
            if not client.has_ended:
                client.publish("causal")
        await asyncio.sleep(LAST_WORDS_SECONDS)
        self.judge.judge(client.number for client in self._clients.values() if client.is_ready and not client.has_ended)
        for task in self._tasks:
            task.cancel()
        return self.judge

    def _slow_links(self) -> None:
        random = RandomStream(self.schedule.seed, DELAY_STREAM)
        least, most = self.schedule.delay_us
        for index, one in enumerate(self._everybody):
            for other in self._everybody[:index]:
                self._cluster.delay(one, other, int(random.between(least, most)) / 1_000_000)

    async def _connect(self, number: int) -> None:
        home = self.schedule.homes[number]
        others = [node for node in range(self.schedule.nodes) if node != home]
        try:
            client = await self._cluster.connect(home, *others, name=name_of(number))
        except antiphon.PeerError:
            # No node could be reached at that moment; its application was promised nothing.
            return
        self._clients[number] = ShellClient(number, client, self)
        self.spawn(self._clients[number].listen())

    async def _take(self, step: ClientStep) -> None:
        if step.kind == "connect":
            if step.client not in self._clients:
                await self._connect(step.client)
        elif step.kind == "publish":
            client = self._clients.get(step.client)
            if client is not None and not client.has_ended:
                client.publish(step.order)
        elif step.kind == "cut":
            await self._cut(frozenset([*step.nodes, *map(name_of, step.clients)]), step.lasts_us)
        elif step.kind == "pause":
            await self._cut(frozenset([step.node]), step.lasts_us)
        elif step.kind == "pause_client":
            await self._cut(frozenset([name_of(step.client)]), step.lasts_us)
        elif step.node in self._cluster.running:
            await self._end(step)

    async def _end(self, step: ClientStep) -> None:
        await (self._cluster.crash(step.node) if step.kind == "crash" else self._cluster.stop(step.node))
        await asyncio.sleep(step.lasts_us / 1_000_000)
        while step.node not in self._cluster.running:
            try:
                await self._cluster.restart(step.node)
            except antiphon.PeerError:
                await asyncio.sleep(RESTART_SECONDS)

    async def _cut(self, apart: frozenset[int | str], lasts_us: int) -> None:
        self._cuts.append(apart)
        self._apply_cuts()
        await asyncio.sleep(lasts_us / 1_000_000)
        self._cuts.remove(apart)
        self._apply_cuts()

    def _apply_cuts(self) -> None:
        """Several cuts at a time: only those reach each other that are on one side of each."""
        groups: dict[tuple[bool, ...], list[int | str]] = {}
        for member in self._everybody:
            groups.setdefault(tuple(member in cut for cut in self._cuts), []).append(member)
        self._cluster.partition(*groups.values())


def name_of(client: int) -> str:
    """The name of a client in the network."""
    return f"client-{client}"


def run_seed(seed: int) -> ClientJudge:
    """Run the schedule of a seed."""
    schedule = draw_client_schedule(seed)
    everywhere = len(schedule.keeps) == schedule.nodes

    async def scenario(cluster: testing.Cluster) -> ClientJudge:
        return await ShellWorld(schedule, cluster).run()

    settings: dict[str, Any] = {"keep": [TOPIC]} if everywhere else {}
    return testing.run(scenario, schedule.nodes, fabric=schedule.fabric, lost_seconds=schedule.lost_seconds, **settings)


def main(first: int, last: int) -> int:
    """Run seeds, and say which of them fail."""
    logging.getLogger("antiphon").setLevel(logging.CRITICAL)
    failed, begun = 0, time.perf_counter()
    for seed in range(first, last + 1):
        try:
            judge = run_seed(seed)
        except Exception as error:
            print(f"{seed} {draw_client_schedule(seed).fabric}: {error!r}", flush=True)
            failed += 1
            continue
        if judge.violations:
            failed += 1
            print(f"{seed} {draw_client_schedule(seed).fabric}: {judge.violations} {judge.examples[:2]}", flush=True)
    print(f"{last - first + 1} schedules, {failed} failed, {time.perf_counter() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
