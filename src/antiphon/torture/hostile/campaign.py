"""Attacks a live cluster with changed recordings, while honest clients continue.

Two nodes in separate processes receive input from strangers and clients, and a third one does so over TLS. Attackers
open many connections at a time and send one input over each; :mod:`antiphon.torture.hostile.inputs` makes them, and
:mod:`antiphon.torture.hostile.mqtt_inputs` those for the MQTT doors.
Meanwhile honest clients publish at both nodes and must receive everything, once and in order. The memory of the
processes is sampled all the time: it must not grow with the number of attackers.

No attacker is an admitted node. Without TLS every peer is admitted, by design; with TLS, only peers with a certificate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import antiphon
from antiphon.client.handle import Client
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.torture.hostile.honest import PATIENCE_SECONDS, Honest, HonestFindings
from antiphon.torture.hostile.inputs import Mutator, record, record_tls
from antiphon.torture.hostile.mqtt_inputs import MqttMutator, why_not_served
from antiphon.transport.links import split_address

CONNECTIONS = 200
"""The number of concurrent attackers."""


LINGER_SECONDS = 1.0
"""How long an attacker waits for the node to disconnect it."""


OPEN_SECONDS = 20.0
"""A node that accepts no connection for so long counts as dead."""


TLS_SHARE = 8
"""One in so many inputs goes to the node with TLS."""


MQTT_SHARE = 4
"""One in so many inputs goes to an MQTT door."""


LOOK_SECONDS = 0.25


WARM_SHARE = 0.1
"""The share of inputs after which nodes have all the memory that they need; growth is measured from there."""


GROWTH_MEGABYTES = 64.0


TOPICS = 2000
"""The number of topics that attackers may leave behind (``maximum_topics``)."""


NODE_FLAGS = ["--log-level", "error", "--maximum-topics", str(TOPICS)]


@dataclass
class HostileFindings(HonestFindings):
    """The results of a hostile campaign."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    megabytes_warm: float = 0.0
    megabytes_highest: float = 0.0
    megabytes_at_end: float = 0.0
    refused_connections: int = 0


class AttackSteps(Protocol):
    """Shows how many inputs have been sent."""

    def reach(self, done: int, about: str) -> None:
        """Show the number of inputs sent, and a remark."""


Progress = Callable[[], AbstractContextManager[AttackSteps]]
"""Starts to show progress when the attack begins."""

Tell = Callable[[int, str], None]
"""Takes an output line of a node, with the number of its process."""


class Attack(asyncio.Protocol):
    """Sends one input over one connection."""

    def __init__(self, data: bytes, done: asyncio.Future[str]) -> None:
        self._data = data
        self._done = done
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._data)
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._finish, "stayed")

    def data_received(self, data: bytes) -> None:
        self._answer = data[:16]

    def connection_lost(self, exc: Exception | None) -> None:
        # A refusal is an array with the number 101 or, with TLS, an alert.
        is_told = self._answer[4:6] in (b"\x93\x65", b"\x92\x65") or self._answer[:1] == b"\x15"
        self._finish("refused" if is_told else "cut off")

    def _finish(self, outcome: str) -> None:
        if not self._done.done():
            self._done.set_result(outcome)
        if self._transport is not None:
            self._transport.abort()


class HostileCampaign:
    """One hostile campaign, from the first recording to the last message of the honest clients."""

    def __init__(self, fabric: str, inputs: int, seed: int, directory: Path, tell: Tell, progress: Progress) -> None:
        self.findings = HostileFindings()
        self._tell = tell
        self._progress = progress
        self._fabric = fabric
        self._inputs = inputs
        self._seed = seed
        self._directory = directory
        self._members: list[Member] = []
        self._doors: list[str] = []
        self._begun = 0
        self._mqtt = MqttMutator(seed)

    async def run(self) -> None:
        """Run the whole campaign."""
        plain = Mutator(await record(self._fabric), self._seed)
        recorded, settings = await record_tls(self._directory / "certificates")
        secure = Mutator(recorded, self._seed)
        flags = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
        clusters = [
            ProcessCluster(self._plan(2, NODE_FLAGS), self._tell, self._died),
            ProcessCluster(self._plan(1, [*NODE_FLAGS, *flags]), self._tell, self._died),
        ]
        try:
            for cluster in clusters:
                await cluster.start()
                self._members += cluster.members
            await self._attack(plain, secure, settings)
        finally:
            for cluster in clusters:
                await cluster.stop()

    def _plan(self, nodes: int, flags: list[str]) -> Plan:
        if not FABRICS[self._fabric].needs_addresses:
            return Plan(nodes, settings=flags, fabric=self._fabric, mqtt_port=0)
        port = any_ports(nodes)
        table = founders_file(self._directory, self._fabric, nodes, port)
        return Plan(nodes, port, settings=flags, table=table, fabric=self._fabric, mqtt_port=0)

    def _died(self, member: Member) -> None:
        self.findings.violations.append(f"process {member.index} ended with exit code {member.process.returncode}")

    async def _attack(self, plain: Mutator, secure: Mutator, settings: dict[str, Any]) -> None:
        target, second, guarded = (member.address for member in self._members)
        self._doors = [str(member.about["mqtt"]) for member in self._members]
        files = self._directory / "certificates"
        tls = {"authority": settings["tls_authority"], "certificate": f"{files}/recorded.pem"}
        tls["key"] = f"{files}/recorded.key"
        here = await antiphon.connect(target, reconnect_seconds=0.0)
        there = await antiphon.connect(second, reconnect_seconds=0.0)
        safe = await antiphon.connect(guarded, reconnect_seconds=0.0, tls=tls)
        pairs = (("honest-in", there, here), ("honest-out", here, there), ("honest-tls", safe, safe))
        honest = [await Honest(topic, publisher, other, self.findings).begin() for topic, publisher, other in pairs]
        work = [asyncio.ensure_future(one.receive()) for one in honest]
        work += [asyncio.ensure_future(one.publish()) for one in honest]
        work.append(asyncio.ensure_future(self._look()))
        with self._progress() as steps:
            attackers = [self._attacker(plain, secure, target, guarded, steps) for _ in range(CONNECTIONS)]
            await asyncio.gather(*attackers)
        for one in honest:
            await one.end()
        for door in self._doors[:2]:
            why_not = await why_not_served(door)
            if why_not:
                self.findings.violations.append(f"over MQTT {why_not}")
        await self._judge([here, there, safe])
        for task in work:
            task.cancel()
        for ended in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(ended, AntiphonError):
                self.findings.violations.append(f"an honest client failed: {ended}")
        for client in (here, there, safe):
            await client.abandon()

    async def _attacker(self, plain: Mutator, secure: Mutator, target: str, guarded: str, steps: AttackSteps) -> None:
        """Send one input after the other."""
        while self._begun < self._inputs and not self.findings.violations:
            self._begun += 1
            address = target
            mutator: Mutator | MqttMutator = plain
            if self._begun % TLS_SHARE == 0:
                address, mutator = guarded, secure
            elif self._begun % MQTT_SHARE == 1:
                address, mutator = self._doors[0], self._mqtt
            kind, data = mutator.input()
            outcome = await attack(address, data)
            self.findings.kinds[kind] += 1
            self.findings.outcomes[outcome] += 1
            self.findings.inputs += 1
            if outcome == "not let in":
                self.findings.violations.append("a node no longer accepts connections")
            if self.findings.inputs % 100 == 0:
                steps.reach(self.findings.inputs, f"{self.findings.received:,} honest messages received")

    async def _look(self) -> None:
        """Sample the memory of the processes."""
        while True:
            megabytes = max(resident_megabytes(member) for member in self._members)
            findings = self.findings
            if findings.inputs >= self._inputs * WARM_SHARE:
                findings.megabytes_warm = findings.megabytes_warm or megabytes
                findings.megabytes_highest = max(findings.megabytes_highest, megabytes)
            findings.megabytes_at_end = megabytes
            await asyncio.sleep(LOOK_SECONDS)

    async def _judge(self, clients: list[Client]) -> None:
        findings = self.findings
        growth = findings.megabytes_highest - findings.megabytes_warm
        if growth > GROWTH_MEGABYTES:
            findings.violations.append(f"a node has grown by {growth:.0f} MB since a tenth of the inputs")
        for client in clients:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    status = await client.status()
            except (AntiphonError, TimeoutError) as error:
                findings.violations.append(f"a node does not report its status: {error}")
                continue
            findings.refused_connections += status["refused_connections"]
            findings.violations += status["troubles"]


async def attack(address: str, data: bytes) -> str:
    """Send an input over a new connection; returns the outcome."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await loop.create_connection(lambda: Attack(data, done), *split_address(address))
    except (OSError, TimeoutError):
        return "not let in"
    return await done


def resident_megabytes(member: Member) -> float:
    """The resident memory of a process."""
    try:
        with open(f"/proc/{member.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return 0.0
