"""Members that come and go for hours: the simulation behind Figure 5.11 of the thesis.

One topic with a constant number of members. Somebody publishes every 500 ticks, a tick being a millisecond. A member
stays for an exponential time and leaves; at that moment a node drawn from those that are no members joins.

What section 5.6.6 leaves open, and how it is read here:

* **The rate.** It says "per minute" but all its pairs of median session and rate, such as 69 s and 1 %, are those of
  ``ln 2 / median`` per *second*. So a session lasts ``median / ln 2`` on average.
* **When a session begins.** When the subscription has taken effect. An overloaded system then slows down those who
  change it, as it must have: at twice what a root can send, a queue that nothing holds back would be an hour long.
* **How many nodes there are.** The next power of two above the number of members: the text wants a pool of candidates
  and the same dimension throughout.
* **Who publishes.** Somebody who has been told to subscribe, perhaps not effectively yet. Latency counts from the call;
  how long publishers wait before they can start is measured too.

A run is stationary from the start but for queues, so its first part is not measured. What a second of simulated time
costs is known in advance (:func:`events_per_second`), and ``seconds`` of a case says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.lab.one_topic import (
    ONE_ROOT,
    PROCESSING_TICKS,
    PROPAGATION_TICKS,
    PUBLISHED,
    REPAIRED,
    TOPIC,
    TRANSMISSION_TICKS,
    Build,
    Group,
    as_published,
    as_repaired,
    draw_group,
    with_one_root,
)
from antiphon.simulator.engine import Action, Application, Engine
from antiphon.simulator.network import ConstantDelay, Network
from antiphon.simulator.workload import WORD_BITS, draw_exponential
from antiphon.trace.oracle import judge
from antiphon.trace.store import MemoryTrace

PUBLICATION_GAP_TICKS = 500
TICKS_PER_SECOND = 1000
PUBLISHED_SECONDS = 120 * 60
WARM_UP_SHARE = 4
"""One part in so many of a run is not measured."""

SESSION_STREAM = 110
CHOICE_STREAM = 111
PUBLISHER_STREAM = 112


@dataclass(frozen=True)
class Churn:
    """One simulation. ``median_ticks`` is that of sessions, None where nobody comes or goes."""

    system: str
    members: int
    median_ticks: int | None
    seconds: int
    charged: bool = False
    judged: bool = False

    @property
    def nodes(self) -> int:
        """The next power of two above the number of members."""
        return 1 << self.members.bit_length()

    @property
    def changes_per_second(self) -> float:
        """How many members leave, and how many nodes join, per second."""
        return 0.0 if self.median_ticks is None else self.members * log(2) * TICKS_PER_SECOND / self.median_ticks

    def __str__(self) -> str:
        charged = ", acknowledgements charged" if self.charged else ""
        if self.median_ticks is None:
            return f"{self.system}, {self.members} members, static{charged}"
        return f"{self.system}, {self.members} members, {self.median_ticks / TICKS_PER_SECOND:g} s{charged}"


@dataclass(frozen=True)
class Endured:
    """What came of a run, but for its first part.

    ``latency`` is of receptions (VCube-PS repaired: of deliveries), from the application's call, and ``start_wait`` the
    part of it before publishers could start; ``queue_wait`` is the mean of all copies that went through an output
    queue, ``root_wait`` that which a publication would meet at the root. ``false_positives`` is the share of receptions
    at nodes that are no members, in percent. ``stuck`` counts what was begun and can never be finished.
    """

    latency: float
    start_wait: float
    queue_wait: float
    root_wait: float
    false_positives: float
    changes_per_second: float
    root_load: float
    stuck: int
    violations: int


class Sessions(Application):
    """Lets members leave when their sessions end, and others take their places."""

    def __init__(self, group: Group, median_ticks: int | None, end: int, seed: int) -> None:
        self._mean_ticks = 0 if median_ticks is None else round(median_ticks / log(2))
        self._end = end
        self._times = RandomStream(seed, SESSION_STREAM)
        self._choices = RandomStream(seed, CHOICE_STREAM)
        self.members = list(group.members)
        self._place = {member: place for place, member in enumerate(self.members)}
        self._outsiders = group.outsiders
        self.changes = 0

    def begin(self, engine: Engine) -> None:
        """Members from the start have been there for long: what is left of their sessions is as long as a session."""
        for member in self.members:
            self.subscribed(engine, member, TOPIC)

    def subscribed(self, engine: Engine, node: int, topic: int) -> None:
        if self._mean_ticks > 0:
            ends = engine.calendar.now + (draw_exponential(self._times) * self._mean_ticks >> WORD_BITS)
            if ends < self._end:
                engine.at(ends, SessionEnd(self, node))

    def replace(self, engine: Engine, node: int) -> None:
        """A member leaves; one of those that are no members takes its place."""
        chosen = int(self._choices.below(len(self._outsiders)))
        newcomer = self._outsiders[chosen]
        self._outsiders[chosen] = node
        place = self._place.pop(node)
        self._place[newcomer] = place
        self.members[place] = newcomer
        self.changes += 1
        engine.unsubscribe(node, TOPIC)
        engine.subscribe(newcomer, TOPIC)


class SessionEnd(Action):
    """A member has had enough."""

    def __init__(self, sessions: Sessions, node: int) -> None:
        self._sessions = sessions
        self._node = node

    def run(self, engine: Engine) -> None:
        self._sessions.replace(engine, self._node)


class Announcements(Action):
    """One member, drawn anew each time, publishes; then the same again after a while, until the end."""

    def __init__(self, sessions: Sessions, root: int, end: int, seed: int) -> None:
        self._sessions = sessions
        self._root = root
        self._end = end
        self._random = RandomStream(seed, PUBLISHER_STREAM)
        self.root_waits: list[int] = []

    def run(self, engine: Engine) -> None:
        members = self._sessions.members
        self.root_waits.append(max(0, int(engine.nodes[self._root].free - engine.calendar.now)))
        engine.publish(members[self._random.below(len(members))], b"", TOPIC)
        if engine.calendar.now + PUBLICATION_GAP_TICKS < self._end:
            engine.at(engine.calendar.now + PUBLICATION_GAP_TICKS, self)


@dataclass
class Mark(Action):
    """The counters of an engine at one moment."""

    receptions: int = 0
    reception_ticks: int = 0
    deliveries: int = 0
    latency_sum: int = 0
    own_deliveries: int = 0
    start_ticks: int = 0
    charged: int = 0
    queue_ticks: int = 0
    unwanted: int = 0

    def run(self, engine: Engine) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, int(getattr(engine, name)))

    def since(self, earlier: Mark) -> Mark:
        """What has been added."""
        return Mark(*(getattr(self, name) - getattr(earlier, name) for name in self.__dataclass_fields__))


def build_of(case: Churn, group: Group) -> Build:
    """The processes of a case."""
    if case.system == ONE_ROOT:
        return with_one_root(group)
    return as_repaired(group) if case.system == REPAIRED else as_published(group)


def measure(case: Churn, seed: int) -> Endured:
    """Let members come and go for the time of the case, then let everything come to rest."""
    group = draw_group(case.nodes, case.members, seed)
    end = case.seconds * TICKS_PER_SECOND
    sessions = Sessions(group, case.median_ticks, end, seed)
    trace = MemoryTrace("deliveries") if case.judged else None
    network = Network(
        ConstantDelay(PROPAGATION_TICKS), TRANSMISSION_TICKS, PROCESSING_TICKS, charge_control=case.charged
    )
    processes: list[Process] = []
    build = build_of(case, group)

    def build_and_keep(environment: Environment) -> Process:
        processes.append(build(environment))
        return processes[-1]

    recorder = None if trace is None else trace.recorder
    engine = Engine(case.nodes, network, build_and_keep, seed, recorder, application=sessions)
    announcements, first, last = Announcements(sessions, group.root, end, seed), Mark(), Mark()
    engine.at(end // WARM_UP_SHARE, first)
    engine.at(0, announcements)
    engine.run(until=end)
    last.run(engine)
    engine.run()
    return outcome(case, sessions, announcements, last.since(first), processes, trace)


def outcome(
    case: Churn,
    sessions: Sessions,
    announcements: Announcements,
    counted: Mark,
    processes: list[Process],
    trace: MemoryTrace | None,
) -> Endured:
    """What the counters say."""
    latency = counted.reception_ticks / counted.receptions
    if case.system == REPAIRED:
        latency = counted.latency_sum / (counted.deliveries - counted.own_deliveries)
    waits = announcements.root_waits[len(announcements.root_waits) // WARM_UP_SHARE :]
    return Endured(
        latency=latency,
        start_wait=counted.start_ticks / counted.own_deliveries,
        queue_wait=counted.queue_ticks / counted.charged,
        root_wait=sum(waits) / len(waits),
        false_positives=100 * counted.unwanted / counted.receptions,
        changes_per_second=sessions.changes / case.seconds,
        root_load=0.0,
        stuck=sum(int(process.unfinished()) for process in processes),
        violations=0 if trace is None else sum(judge(trace.table(), case.nodes).counts.values()),
    )
