"""Dissemination latency where processes share machines: Table 4.3 of the thesis of M. Matos.

In a network alone every push protocol delivers 500 messages, five per second, within 99.8 s of the first. The document
measured 128 s for SimpleGossip and 107 s for BRISA, and attributes it to duplicates and to shared machines: 512
processes on 15 machines of two cores.

**The model of hosts** is ours. Each host has two servers and one queue. Every message that a process sends or receives,
of any kind, takes :data:`COST_MS` of a server; a message leaves, or is handled, when it has had its turn. That cost is
not published. It is **chosen** such that SimpleGossip has its published latency, so its row is no evidence; the rows of
the others are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon_lab.experiments.brisa.model import Growth, Watched, published
from antiphon_lab.experiments.brisa.rivals import (
    BRISA,
    PLUMTREE,
    RIVALS_MODEL,
    SIMPLE_GOSSIP,
    SIMPLE_TREE,
    SYSTEMS,
    Rival,
    RivalRun,
)
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Fitted, Refutation

NODES = 512
PROCESSES_PER_HOST = 512 / 15
SERVERS = 2
COST_MS = 0.74
FULL_MESSAGES, FEW_MESSAGES = 500, 30
FIRST_TOKEN = 1 << 40
"""Names of the timers of hosts begin here, above those of processes."""


class Host:
    """One machine: servers, and when each is free."""

    def __init__(self, cost_ms: float) -> None:
        self._cost_ms = cost_ms
        self._free = [0.0] * SERVERS
        self.busy_ms = 0.0

    def done_at(self, now: int) -> int:
        """When a message that comes now has had its turn; ticks are milliseconds, servers know parts of them."""
        server = min(range(SERVERS), key=self._free.__getitem__)
        self._free[server] = max(float(now), self._free[server]) + self._cost_ms
        self.busy_ms += self._cost_ms
        return ceil(self._free[server])


class Sharing(Environment):
    """The environment of a process on a host: messages that it sends wait for their turn."""

    def __init__(self, network: Environment, host: Host) -> None:
        super().__init__(network.identifier)
        self._network = network
        self._host = host
        self._waiting: dict[int, tuple[int, ProtocolMessage, bool]] = {}
        self._tokens = FIRST_TOKEN

    def queue(self, peer: int, message: ProtocolMessage, is_arrival: bool) -> bool:
        """Let a message wait for its turn; false if it need not wait."""
        wait = self._host.done_at(self.now()) - self.now()
        if wait == 0:
            return False
        self._tokens += 1
        self._waiting[self._tokens] = (peer, message, is_arrival)
        self._network.set_timer(wait, self._tokens)
        return True

    def take(self, token: int) -> tuple[int, ProtocolMessage, bool]:
        """A message that has had its turn: a peer, the message, and whether it came from there."""
        return self._waiting.pop(token)

    def send(self, destination: int, message: ProtocolMessage) -> None:
        if not self.queue(destination, message, False):
            self._network.send(destination, message)

    def depart(self, destination: int, message: ProtocolMessage) -> None:
        """Hand a message that has had its turn to the network."""
        self._network.send(destination, message)

    def now(self) -> int:
        return self._network.now()

    def deliver(self, publication: Publication) -> None:
        self._network.deliver(publication)

    def subscribed(self, topic: int) -> None:
        self._network.subscribed(topic)

    def set_timer(self, delay: int, name: int) -> int:
        return self._network.set_timer(delay, name)

    def cancel_timer(self, handle: int) -> None:
        self._network.cancel_timer(handle)

    def random(self) -> RandomStream:
        return self._network.random()


class Hosted(Watched):
    """A process on a host: arriving messages wait for their turn."""

    def __init__(self, environment: Sharing, options: BrisaOptions, growth: Growth) -> None:
        super().__init__(environment, options, growth)
        self._sharing = environment

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if not self._sharing.queue(sender, message, True):
            super().receive(sender, message)

    def expire(self, name: int) -> None:
        if name < FIRST_TOKEN:
            super().expire(name)
            return
        peer, message, is_arrival = self._sharing.take(name)
        if is_arrival:
            super().receive(peer, message)
        else:
            self._sharing.depart(peer, message)


class SharedHosts(Growth):
    """A system whose processes share hosts, as evenly as they can."""

    def __init__(self, case: Rival, seed: int, cost_ms: float) -> None:
        self.hosts = [Host(cost_ms) for _ in range(max(1, round(case.nodes / PROCESSES_PER_HOST)))]
        super().__init__(case, seed)

    def new_process(self, environment: Environment, options: BrisaOptions) -> Watched:
        host = self.hosts[int(environment.identifier) % len(self.hosts)]
        return Hosted(Sharing(environment, host), options, self)


@dataclass(frozen=True)
class HostCase(Rival):
    """A system on hosts, or (at no cost) without them."""

    cost_ms: float = COST_MS

    def __str__(self) -> str:
        return f"{super().__str__()}, {'hosts' if self.cost_ms else 'network alone'}"


@dataclass(frozen=True)
class RivalLatency:
    """From the first to the last message at a process, on average; how busy hosts were while there were messages."""

    seconds: float
    busy: float
    missing: int


def measure(case: HostCase, seed: int) -> RivalLatency:
    """Let a system grow and a stream go through it."""
    growth = SharedHosts(case, seed, case.cost_ms) if case.cost_ms else Growth(case, seed)
    run = RivalRun(case, growth)
    growth.engine.run(run.start - 1)
    hosts = growth.hosts if isinstance(growth, SharedHosts) else []
    before = sum(host.busy_ms for host in hosts)
    growth.engine.run(run.end - 1)
    worked = sum(host.busy_ms for host in hosts) - before
    run.run()
    available = (run.end - run.start) * SERVERS * max(1, len(hosts))
    return RivalLatency(
        seconds=float(np.mean(np.delete(run.dissemination_ms(), growth.source))) / 1000,
        busy=worked / available,
        missing=run.missing(),
    )


Found = Results[HostCase, RivalLatency]


def case_of(plan: Plan, system: str, cost_ms: float) -> HostCase:
    """One of the systems."""
    messages = FULL_MESSAGES if plan.full else FEW_MESSAGES
    return HostCase(max(plan.sizes), messages, system=system, cost_ms=cost_ms)


def systems_of(plan: Plan) -> tuple[str, ...]:
    """The systems of the table, and Plumtree, which is not in it and takes longest, where there is time."""
    return SYSTEMS if plan.full else tuple(system for system in SYSTEMS if system != PLUMTREE)


def cases(plan: Plan) -> list[HostCase]:
    """All systems on hosts; SimpleGossip, which feels them most, also without."""
    return [*(case_of(plan, system, COST_MS) for system in systems_of(plan)), case_of(plan, SIMPLE_GOSSIP, 0)]


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """The table, as overheads and, for as many messages as published, in seconds."""
    is_published = max(plan.sizes) == NODES
    missing = sum(found.missing for case in cases(plan) for found in results.of(case))
    yield promised("deliveries missing, all runs", [missing], "deliveries")
    base = results.sample(case_of(plan, SIMPLE_TREE, COST_MS), seconds)
    overheads, latencies = published().tables["table-4.3/overhead"], published().tables["table-4.3/latency"]
    for row, system in enumerate(overheads.rows):
        overhead = results.sample(case_of(plan, system, COST_MS), seconds).increase_over(base)
        # A short stream is over before the queues of SimpleGossip are as long as they get.
        is_comparable = is_published and (plan.full or system != SIMPLE_GOSSIP)
        number = overheads.number("overhead", row) if is_comparable else None
        why = queues_of_brisa(plan, results) if system == BRISA else None
        yield Row(f"over SimpleTree, {system}", "%", overhead, number, why, chosen(system))
    for row, system in enumerate(latencies.rows):
        latency = results.sample(case_of(plan, system, COST_MS), seconds)
        number = latencies.number("latency", row) if is_published and plan.full else None
        yield Row(f"first to last message, {system}", "s", latency, number, basis=chosen(system))
    alone = results.sample(case_of(plan, SIMPLE_GOSSIP, 0), seconds)
    yield Row("first to last message in a network alone, SimpleGossip", "s", alone)
    if PLUMTREE in systems_of(plan):
        plumtree = results.sample(case_of(plan, PLUMTREE, COST_MS), seconds).increase_over(base)
        yield Row("over SimpleTree, Plumtree", "%", plumtree)
    for system in systems_of(plan):
        busy = results.sample(case_of(plan, system, COST_MS), lambda found: 100 * found.busy)
        yield Row(f"how busy hosts are during the stream, {system}", "%", busy)
    yield latency_figure(plan, results)
    yield Note(
        f"Host contention is modelled, not published: {len(hosts_of(plan))} hosts with {SERVERS} servers each, and "
        f"{COST_MS} ms of a server for every message that is sent or received. The cost was chosen such that "
        "SimpleGossip is as slow as published; so that row shows what was put in. What comes out is that BRISA, with a "
        "fraction of the messages, is not slowed down, and that TAG is slow for another reason: it asks for one "
        "message at a time."
    )


def queues_of_brisa(plan: Plan, results: Found) -> Refutation:
    """Work against the published latencies.

    A stream that comes at a constant rate is stretched by as much as its hosts are overloaded. So if hosts stretched
    that of BRISA, they would have to stretch that of SimpleGossip in the ratio of their work.
    """
    gossip, brisa = published().tables["table-4.3/overhead"].columns["overhead"].values[::2]
    work = [
        results.sample(case_of(plan, system, COST_MS), lambda found: found.busy) for system in (SIMPLE_GOSSIP, BRISA)
    ]
    times = work[0].mean / max(work[1].mean, 1e-9)
    needed = times * (100 + brisa) - 100
    return Refutation(
        f"that shared machines slow BRISA down by {brisa:g} % and SimpleGossip by {gossip:g} %",
        f"SimpleGossip gives hosts {times:.1f} times the work of BRISA, so hosts that BRISA overloads by {brisa:g} % "
        f"would slow SimpleGossip down by {needed:.0f} %; hosts that SimpleGossip overloads by {gossip:g} % are idle "
        "most of the time under BRISA, and do not slow it down",
        2 < times < 10 and needed > 2 * gossip,
        -1,
        1,
    )


def chosen(system: str) -> Fitted | None:
    """The row that was put in: the cost of a message was chosen with it in sight."""
    if system != SIMPLE_GOSSIP:
        return None
    return Fitted(f"the cost of a message at a host, {COST_MS} ms", "the rows of SimpleTree, TAG and BRISA")


def hosts_of(plan: Plan) -> range:
    """The hosts of a plan."""
    return range(max(1, round(max(plan.sizes) / PROCESSES_PER_HOST)))


def seconds(found: RivalLatency) -> float:
    """The latency."""
    return found.seconds


def latency_figure(plan: Plan, results: Found) -> Figure:
    """Table 4.3 as bars."""
    systems = systems_of(plan)
    points = [results.sample(case_of(plan, system, COST_MS), seconds).point(at) for at, system in enumerate(systems)]
    return Figure(
        "latency",
        f"First to last message, {max(plan.sizes)} processes, {case_of(plan, BRISA, COST_MS).messages} messages",
        Axis("system", categories=systems),
        Axis("time", "s"),
        (Series("with hosts", "BRISA", tuple(points), "bars"),),
    )


TABLE_4_3: Experiment[HostCase, RivalLatency] = Experiment(
    name="brisa/table-4.3",
    document="thesis of M. Matos, Table 4.3",
    description="BRISA and its rivals: from the first to the last message, 512 processes on 15 machines (modelled)",
    default=Plan((NODES,), repetitions=3, large_repetitions=3),
    full=Plan((NODES,), repetitions=5, large_repetitions=5, full=True),
    parameters={
        **RIVALS_MODEL,
        "messages": [FEW_MESSAGES, FULL_MESSAGES],
        "hosts": f"{PROCESSES_PER_HOST:.1f} processes each, {SERVERS} servers, one queue",
        "cost_ms_of_a_message": f"{COST_MS}, chosen such that SimpleGossip comes out as published",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Who keeps up with a stream? In a network alone everybody who pushes. Where dozens of processes share two "
    "processors, who handles seven copies of everything falls behind, and who pulls one message at a time cannot keep "
    "up at all.",
)
