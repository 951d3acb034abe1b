"""BankService on the broker tree, simulated: replicas at brokers, customers with requests, brokers that crash.

A topic is a bank, an account is a key. :class:`BankRun` builds a system, lets customers send requests for a while and
then lets everything come to rest; :meth:`BankRun.audit` audits the remaining replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from antiphon.fabrics.protocol import Builder
from antiphon.fabrics.tree.assembly.scenario import tree_builder
from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import ORDER_NAMES, Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import CrashAction
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon.simulator.network.delays import Delay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.recorder import Recorder
from antiphon_lab.experiments.ginger.bank import ORDERS, BankOperation, Customers, Kind, decode, encode
from antiphon_lab.experiments.ginger.bank_audit import Audit, Name, Replica, audit_replicas

START_STREAM = 131


@dataclass(frozen=True)
class BankSetup:
    """A system and its load. A tick is a millisecond.

    ``places`` are, for each bank, the brokers that have a replica and customers. Each of these places asks for
    ``operations`` operations, one every ``interval_ticks``. ``crashes`` are pairs of time and broker.
    ``detection_ticks`` is how long it takes until the neighbours of a broker know that it has crashed.
    """

    nodes: int
    tree: TreeTableOptions
    places: tuple[tuple[int, ...], ...]
    delay: Delay
    accounts: int
    operations: int
    interval_ticks: int = 50
    detection_ticks: int = 100
    transmission_ticks: int = 0
    crashes: tuple[tuple[int, int], ...] = ()
    orders: Mapping[Kind, int] = field(default_factory=lambda: ORDERS)


class BankLatency:
    """How long publications of one order took, from the customer's wish to the delivery at a replica."""

    def __init__(self) -> None:
        self.elsewhere_ticks = 0
        self.elsewhere = 0
        self.own_ticks = 0
        self.own = 0

    def add(self, ticks: int, is_own: bool) -> None:
        """One delivery."""
        if is_own:
            self.own_ticks += ticks
            self.own += 1
        else:
            self.elsewhere_ticks += ticks
            self.elsewhere += 1

    @property
    def mean(self) -> float:
        """Over all deliveries at other places than the publisher's."""
        return self.elsewhere_ticks / self.elsewhere if self.elsewhere else 0.0

    @property
    def mean_with_own(self) -> float:
        """Over all deliveries."""
        count = self.elsewhere + self.own
        return (self.elsewhere_ticks + self.own_ticks) / count if count else 0.0


class BankService(SimulatedApplication):
    """All replicas of all banks."""

    def __init__(self, setup: BankSetup) -> None:
        self.replicas = {
            (place, bank): Replica(setup.accounts) for bank, places in enumerate(setup.places) for place in places
        }
        self.asked: list[dict[Name, BankOperation]] = [{} for _ in setup.places]
        """The requests of customers, by bank."""
        self.latency = {order: BankLatency() for order in ORDER_NAMES}

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        name = (int(publication.source), int(publication.sequence))
        self.replicas[int(node), int(publication.topic)].take(name, decode(publication.payload))
        ticks = int(engine.calendar.now - publication.timestamp)
        self.latency[ORDER_NAMES[publication.order]].add(ticks, publication.source == node)


class Counter(Action):
    """Where the customers of one bank at one place ask, one after the other."""

    def __init__(self, service: BankService, setup: BankSetup, place: int, bank: int, seed: int) -> None:
        self._asked = service.asked[bank]
        self._setup = setup
        self._place = place
        self._bank = bank
        self._customers = Customers(setup.accounts, seed, place, bank)
        self._count = 0

    def run(self, engine: Engine) -> None:
        operation = self._customers.ask()
        order = self._setup.orders[operation.kind]
        if not engine.publish(self._place, encode(operation), self._bank, order, operation.keys()):
            # The broker has crashed, and the counter with it.
            return
        self._count += 1
        self._asked[self._place, self._count] = operation
        if self._count < self._setup.operations:
            engine.at(engine.calendar.now + self._setup.interval_ticks, self)


class BankRun:
    """A simulated BankService: built, run once, then audited."""

    def __init__(
        self,
        setup: BankSetup,
        seed: int,
        recorder: Recorder | None = None,
        make: Callable[[Environment, TreeOptions, Overlay], TreeBroker] = TreeBroker,
        build: Builder | None = None,
    ) -> None:
        """``make`` makes brokers of ours; ``build`` builds brokers of another kind in their place."""
        self.setup = setup
        self.service = BankService(setup)
        build = build or tree_builder(setup.tree, setup.nodes, "total", setup.places, make)
        network = NetworkModel(
            setup.delay,
            transmission=setup.transmission_ticks,
            processing=0,
            detection=setup.detection_ticks,
            in_order=True,
        )
        self.engine = Engine(
            setup.nodes,
            network,
            build,
            seed,
            recorder,
            can_fail=bool(setup.crashes),
            application=self.service,
        )
        for bank, places in enumerate(setup.places):
            for place in places:
                # Not all at once: places are not synchronised.
                start = RandomStream(seed, START_STREAM, place, bank).below(setup.interval_ticks)
                self.engine.at(start, Counter(self.service, setup, place, bank, seed))
        for at, node in setup.crashes:
            self.engine.at(at, CrashAction(node))

    def run(self) -> None:
        """Let customers ask, and everything come to rest."""
        stopped = self.engine.run()
        assert stopped == "finished", "nothing limits a run"

    def processes(self) -> list[Process]:
        """The brokers that are left."""
        return [node.process for node in self.engine.nodes if node.process is not None]

    def stuck(self) -> int:
        """The unfinished work of brokers when no message is in transit any more."""
        return sum(int(process.unfinished()) for process in self.processes())

    def audit(self) -> list[Audit]:
        """Look at every bank."""
        living = [place for place in range(self.setup.nodes) if self.engine.nodes[place].process is not None]
        return [self._audit_of(bank, living) for bank in range(len(self.setup.places))]

    def _audit_of(self, bank: int, living: Sequence[int]) -> Audit:
        service = self.service
        replicas = [service.replicas[place, bank] for place in self.setup.places[bank] if place in living]
        asked = service.asked[bank]
        owed = [name for name in asked if name[0] in living]
        return audit_replicas(bank, replicas, asked, owed)
