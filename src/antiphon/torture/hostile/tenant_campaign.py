"""Attackers with a token, and a node that lies, beside honest clients.

Two nodes without a log and one with a log have a tenant that attacks and one that does not; a fourth node is in a
cluster that a lying node joins. The attacks of :mod:`antiphon.torture.hostile.tenants` come from their own process.
Honest clients publish and subscribe all the time: nothing may be lost, come twice or out of order, none may be refused,
and the 99th percentile of their waits has a bound. No process may end or fail to answer ``/health``, and memory at the
end must not exceed that of the first tenth. Order and completeness are not promised beside a node that lies, so at that
node only its process, its memory and its answers count.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

import antiphon
from antiphon.client.handle import Client
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError
from antiphon.node.acl import new_token, token_hash
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.torture.hostile.attacker import HIDDEN, OWN, SHARED, Episode
from antiphon.torture.hostile.campaign import AttackSteps, Progress, Tell, resident_megabytes
from antiphon.torture.hostile.honest import Honest, HonestFindings, HonestWork
from antiphon.torture.hostile.stream_attacks import HISTORY
from antiphon.torture.hostile.tenant_process import AttackPlan
from antiphon.transport.links import split_address

HONEST_P99_SECONDS: Final = 0.25
GROWTH_MEGABYTES: Final = 64.0
WARM_SHARE: Final = 0.1
WARM_SECONDS: Final = 120.0
"""Growth counts from a tenth of the time, and from here at the earliest. By then each attack was run several times, and
whatever has a bound is full, such as the last batches for clients that come back. So what still grows has none."""

MEGABYTES_AT_MOST: Final = 700.0
"""What a node takes under the heaviest load, as ``docs/operations.md`` says."""

WORK: Final = "honest.work"
"""A topic with a history, on whose messages honest clients work."""

HISTORY_BYTES: Final = 20_000_000

LOOK_SECONDS: Final = 0.25
PROBE_SECONDS: Final = 5.0
"""A node that does not answer a health probe within this time counts as dead; other nodes would think so, too."""

QUIET_SECONDS: Final = 3.0
"""How long nodes have, after the last attack, to let go of what the attackers held."""

RIGHTS: Final = """
[clients.shop]
token = "{shop}"
publish = ["{own}.>"]
subscribe = ["{own}.>", "{shared}"]
consume = ["{own}.>"]
manage = ["{own}.kept.>"]

[clients.shop.quotas]
connections = 40
subscriptions = 100
topics = 500
messages_per_second = 20000
bytes_per_second = 10000000
memory = 16000000
series = 200
consumers = 20
histories = 3
history_bytes = 10000
policies = ["drop_oldest", "disconnect"]

[clients.bank]
token = "{bank}"
publish = ["honest.>"]
subscribe = ["honest.>"]
consume = ["honest.>"]
admin = true
"""


@dataclass
class TenantFindings(HonestFindings):
    """The results of a campaign."""

    seconds: float = 0.0
    attacks: Counter[str] = field(default_factory=Counter)
    refusals: dict[str, Counter[str]] = field(default_factory=dict)
    lies: int = 0
    probes: int = 0
    slowest_probe_seconds: float = 0.0
    megabytes_warm: list[float] = field(default_factory=list)
    megabytes_highest: list[float] = field(default_factory=list)
    megabytes_at_end: list[float] = field(default_factory=list)
    refused_connections: int = 0
    quota_hits: Counter[str] = field(default_factory=Counter)


def ignore(_index: int, _line: str) -> None:
    """Let nobody know."""


class TenantCampaign:
    """One campaign, from the start of the nodes to the last message of the honest clients."""

    def __init__(
        self,
        fabric: str,
        seconds: float,
        seed: int,
        directory: Path,
        tell: Tell,
        progress: Progress,
        p99_seconds: float,
        attacks: Sequence[str] = (),
    ) -> None:
        self.findings = TenantFindings()
        self._fabric = fabric
        self._seconds = seconds
        self._seed = seed
        self._directory = directory
        self._tell = tell
        self._progress = progress
        self._p99_seconds = p99_seconds
        self._attacks = attacks
        self._has_histories = FABRICS[fabric].membership.is_full
        self._members: list[Member] = []
        self._share = 0.0

    async def run(self) -> None:
        """Run the whole campaign."""
        shop, bank = new_token(), new_token()
        rights = self._directory / "rights.toml"
        hashes = {"shop": token_hash(shop), "bank": token_hash(bank)}
        rights.write_text(RIGHTS.format(own=OWN, shared=SHARED, **hashes))
        guarded = ["--rights", str(rights), "--insecure"]
        clusters = [
            self._cluster(2, self._tell, guarded),
            self._cluster(1, self._tell, guarded, self._directory / "log"),
            # Errors that it logs about lies are expected.
            self._cluster(1, ignore),
        ]
        try:
            for cluster in clusters:
                await cluster.start()
                self._members += cluster.members
            await self._attack(shop, bank)
        finally:
            for cluster in clusters:
                await cluster.stop()

    def _cluster(self, nodes: int, tell: Tell, flags: Sequence[str] = (), data: Path | None = None) -> ProcessCluster:
        settings = ["--log-level", "error", *flags]
        port, table = 0, None
        if FABRICS[self._fabric].needs_addresses:
            port = any_ports(nodes)
            table = founders_file(self._directory, self._fabric, nodes, port)
        plan = Plan(nodes, port, data, metrics=True, settings=settings, table=table, fabric=self._fabric)
        return ProcessCluster(plan, tell, self._died)

    def _died(self, member: Member) -> None:
        self.findings.violations.append(f"process {member.index} ended with exit code {member.process.returncode}")

    async def _attack(self, shop: str, bank: str) -> None:
        addresses = [member.address for member in self._members]
        clients = [await antiphon.connect(each, token=bank, reconnect_seconds=0.0) for each in addresses[:3]]
        here, there, logged = clients
        pairs = ((HIDDEN, there, here), (SHARED, here, there), ("honest.log", logged, logged))
        honest = [await Honest(topic, publisher, other, self.findings).begin() for topic, publisher, other in pairs]
        if self._has_histories:
            await logged.topics.create(HISTORY, replicas=1, retention_bytes=HISTORY_BYTES)
            await logged.topics.create(WORK, replicas=1, retention_bytes=HISTORY_BYTES)
            honest.append(await HonestWork(WORK, logged, logged, self.findings).begin())
        work = [asyncio.ensure_future(one.receive()) for one in honest]
        work += [asyncio.ensure_future(one.publish()) for one in honest]
        work += [asyncio.ensure_future(self._probe(member)) for member in self._members]
        work.append(asyncio.ensure_future(self._sample()))
        attackers = await self._start_attackers(shop, addresses)
        reading = asyncio.ensure_future(self._read(attackers))
        with self._progress() as steps:
            await self._wait(steps, attackers)
        assert attackers.stdin is not None, "it was made with a pipe"
        attackers.stdin.close()
        await attackers.wait()
        await reading
        for one in honest:
            await one.end()
        await asyncio.sleep(QUIET_SECONDS)
        self.findings.megabytes_at_end = self._megabytes()
        await self._judge(clients)
        for task in work:
            task.cancel()
        for ended in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(ended, Exception):
                self.findings.violations.append(f"an honest client failed: {ended}")
        for client in clients:
            await client.abandon()

    async def _start_attackers(self, token: str, addresses: list[str]) -> Process:
        code = "from antiphon.torture.hostile.tenant_process import main; main()"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
        metrics = [str(member.about["metrics"]) for member in self._members]
        plan = AttackPlan(
            self._seed,
            self._fabric,
            token,
            addresses[:3],
            metrics,
            addresses[3],
            self._has_histories,
            list(self._attacks),
        )
        assert process.stdin is not None, "it was made with a pipe"
        process.stdin.write(msgspec.json.encode(plan) + b"\n")
        return process

    async def _read(self, attackers: Process) -> None:
        """Count the attacks that are over."""
        assert attackers.stdout is not None, "it was made with a pipe"
        async for line in attackers.stdout:
            episode = msgspec.json.decode(line, type=Episode)
            self.findings.attacks[episode.attack] += 1
            self.findings.refusals.setdefault(episode.attack, Counter()).update(episode.reasons)
            self.findings.violations += episode.violations
            if episode.sent > 1:
                self.findings.lies += episode.sent

    async def _wait(self, steps: AttackSteps, attackers: Process) -> None:
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) < self._seconds and not self.findings.violations:
            self._share = passed / self._seconds
            about = f"{self.findings.attacks.total():,} attacks, {self.findings.received:,} honest messages received"
            steps.reach(int(passed), about)
            await asyncio.sleep(LOOK_SECONDS)
            if attackers.returncode is not None:
                self.findings.violations.append("the process of the attackers has ended; the campaign says nothing")
        self.findings.seconds = time.perf_counter() - begun

    def _megabytes(self) -> list[float]:
        return [resident_megabytes(member) for member in self._members]

    async def _sample(self) -> None:
        """Sample the memory of the processes."""
        findings = self.findings
        findings.megabytes_warm = findings.megabytes_highest = self._megabytes()
        while True:
            now = self._megabytes()
            findings.megabytes_highest = [max(pair) for pair in zip(findings.megabytes_highest, now, strict=True)]
            if self._share <= max(WARM_SHARE, WARM_SECONDS / self._seconds):
                findings.megabytes_warm = findings.megabytes_highest
            await asyncio.sleep(LOOK_SECONDS)

    async def _probe(self, member: Member) -> None:
        """Ask a node how it is, as a supervisor does."""
        address = split_address(str(member.about["metrics"]))
        while True:
            begun = time.perf_counter()
            status = ""
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    reader, writer = await asyncio.open_connection(*address)
                    try:
                        writer.write(b"GET /health HTTP/1.1\r\nHost: node\r\n\r\n")
                        status = (await reader.readline()).decode(errors="replace").strip()
                    finally:
                        writer.transport.abort()
            self.findings.probes += 1
            seconds = time.perf_counter() - begun
            self.findings.slowest_probe_seconds = max(self.findings.slowest_probe_seconds, seconds)
            if " 200 " not in status and member.process.returncode is None:
                said = status or f"nothing in {PROBE_SECONDS:g} seconds"
                self.findings.violations.append(f"process {member.index} answered a health probe with {said}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _judge(self, clients: list[Client]) -> None:
        findings = self.findings
        before_and_after = zip(findings.megabytes_warm, findings.megabytes_at_end, strict=True)
        growth = max(after - before for before, after in before_and_after)
        if growth > GROWTH_MEGABYTES:
            findings.violations.append(f"a node has grown by {growth:.0f} MB since a tenth of the time")
        if max(findings.megabytes_highest) > MEGABYTES_AT_MOST:
            findings.violations.append(f"a node took {max(findings.megabytes_highest):.0f} MB")
        p99 = findings.percentile_seconds(0.99)
        if p99 > self._p99_seconds:
            findings.violations.append(f"honest clients waited {p99 * 1000:.0f} ms at the 99th percentile")
        for client in clients:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    status = await client.status()
            except (AntiphonError, TimeoutError) as error:
                findings.violations.append(f"a node does not report its status: {error}")
                continue
            findings.refused_connections += status["refused_connections"]
            findings.quota_hits.update(status["quotas"].get("shop", {}).get("hits", {}))
            findings.violations += status["troubles"]
