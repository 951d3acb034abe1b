"""The process of attackers with a token: several attacks at a time, and a node that lies, until its input ends.

It is a process of its own, so that the work of attacking does not count as waiting of the honest clients. It reads its
plan as one line of JSON and writes a line for each attack that is over.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec

import antiphon
from antiphon.torture.hostile.attacker import Attacker, Episode
from antiphon.torture.hostile.liar import Liar
from antiphon.torture.hostile.tenants import ATTACKS, ATTACKS_ON_HISTORIES

LANES: Final = 4
"""So many attacks go on at a time, beside the node that lies."""

ATTACK_SECONDS: Final = 15.0
LIE_SECONDS: Final = 5.0
LIAR: Final = "lying node"


class AttackPlan(msgspec.Struct):
    """The targets: nodes of tenants, their status servers, and a node of the cluster that a lying one joins."""

    seed: int
    fabric: str
    token: str
    addresses: list[str]
    metrics: list[str]
    lied_to: str
    has_histories: bool
    attacks: list[str] = []
    """Only these attacks; none: all."""


def say(episode: Episode) -> None:
    """Write down an attack that is over."""
    sys.stdout.write(msgspec.json.encode(episode).decode() + "\n")
    sys.stdout.flush()


async def attack(plan: AttackPlan, lane: int) -> None:
    """Run one attack after the other: all kinds in a drawn order, then all in another one."""
    chance = random.Random(plan.seed * LANES + lane)
    attacks = {**ATTACKS, **(ATTACKS_ON_HISTORIES if plan.has_histories else {})}
    while True:
        names = [name for name in attacks if not plan.attacks or name in plan.attacks]
        chance.shuffle(names)
        for name in names:
            attacker = Attacker(chance, plan.addresses, plan.metrics, plan.token)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(ATTACK_SECONDS):
                    await attacks[name](attacker)
            say(Episode(name, dict(attacker.reasons), attacker.violations))


async def lie(plan: AttackPlan) -> None:
    """Let a node join and lie, again and again."""
    seed = plan.seed
    while True:
        seed += 1
        liar = Liar(plan.fabric, seed, plan.lied_to)
        await liar.lie(LIE_SECONDS)
        say(Episode(LIAR, dict(Counter({"joined": liar.joined})), [], liar.sent.total()))


async def run() -> None:
    """Attack until standard input ends."""
    loop = asyncio.get_running_loop()
    plan = msgspec.json.decode(await loop.run_in_executor(None, sys.stdin.readline), type=AttackPlan)
    tasks = [asyncio.ensure_future(attack(plan, lane)) for lane in range(LANES)]
    tasks.append(asyncio.ensure_future(lie(plan)))
    for task in tasks:
        task.add_done_callback(lambda done: done.cancelled() or done.exception() is None or loop.stop())
    await loop.run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    """Run the process."""
    antiphon.run(run())
