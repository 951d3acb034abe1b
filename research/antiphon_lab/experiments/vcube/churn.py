"""Members that join and leave for hours: the simulation behind Figure 5.11 of the thesis.

One topic with a constant number of members. A member publishes every 500 ticks, a tick being a millisecond. A member
stays for an exponential time and leaves; at that moment a node drawn from the non-members joins.

Open points of section 5.6.6, and how they are read here:

* **The rate.** The text has "per minute" but all its pairs of median session and rate, such as 69 s and 1 %, are those
  of ``ln 2 / median`` per *second*. So a session lasts ``median / ln 2`` on average.
* **The limit of changes.** At twice the load that a root can send, an unlimited queue would be an hour long; the text
  has 10 s. So nodes cannot have changed faster than the system let them, and there are three rules for this limit
  (``rule`` of a case). They differ only where a system is overloaded.
* **The number of nodes.** The next power of two above the number of members: the text requires a pool of candidates and
  the same dimension throughout.
* **The publisher.** A node that was told to subscribe, perhaps not effectively yet. Latency counts from the call; the
  wait of publishers before they can start is measured too.

A run is stationary from the start except for queues, so its first part is not measured. The cost of a second of
simulated time is known in advance (:func:`events_per_second`), and ``seconds`` of a case gives their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from antiphon.audit.oracle import judge
from antiphon.kernel.message import Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.simulator.scenario.workload import WORD_BITS, draw_exponential
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.vcube.one_topic import (
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

PUBLICATION_GAP_TICKS = 500
TICKS_PER_SECOND = 1000
PUBLISHED_SECONDS = 120 * 60
WARM_UP_SHARE = 4
"""The share of a run that is not measured: one part in this many."""

SUCCESSOR = "successors free"
EFFECTIVE = "sessions from effect"
CALL = "sessions from call"
RULES = {
    SUCCESSOR: "who leaves waits for a successor who has left before and is told so; sessions begin with their effect",
    EFFECTIVE: "successors may still be leaving, and begin when they have; sessions begin with their effect",
    CALL: "successors may still be leaving; sessions begin with the call, and ends wait until a beginning took effect",
}
"""Under every rule a node has at most one change in progress, and changes wait their turn at the node."""

SESSION_STREAM = 110
CHOICE_STREAM = 111
PUBLISHER_STREAM = 112


def seconds_text(ticks: int) -> str:
    """A time as people write it: 30 min, 69.3 s."""
    if ticks % (60 * TICKS_PER_SECOND) == 0:
        return f"{ticks // (60 * TICKS_PER_SECOND)} min"
    return f"{ticks / TICKS_PER_SECOND:.3g} s"


@dataclass(frozen=True)
class ChurnRunCase:
    """One simulation. ``median_ticks`` is that of sessions, None where no node joins or leaves."""

    system: str
    members: int
    median_ticks: int | None
    seconds: int
    charged: bool = False
    judged: bool = False
    rule: str = EFFECTIVE

    @property
    def nodes(self) -> int:
        """The next power of two above the number of members."""
        return 1 << self.members.bit_length()

    @property
    def changes_per_second(self) -> float:
        """How many members leave, and how many nodes join, per second."""
        return 0.0 if self.median_ticks is None else self.members * log(2) * TICKS_PER_SECOND / self.median_ticks

    def __str__(self) -> str:
        name = f"{self.system}, {self.members} members"
        name += ", static" if self.median_ticks is None else f", median {seconds_text(self.median_ticks)}"
        return (
            name
            + (", acknowledgements charged" if self.charged else "")
            + ("" if self.rule == EFFECTIVE else f", {self.rule}")
        )


@dataclass(frozen=True)
class Endured:
    """The results of a run, without its first part.

    ``latency`` is of receptions (VCube-PS repaired: of deliveries), from the application's call, and ``start_wait`` the
    part of it before publishers could start; ``queue_wait`` is the mean of all copies that went through an output
    queue, ``root_wait`` the wait that a publication would have at the root. ``false_positives`` is the share of
    receptions at non-members, in percent. ``stuck`` counts operations that began and can never finish.
    """

    latency: float
    start_wait: float
    queue_wait: float
    root_wait: float
    false_positives: float
    changes_per_second: float
    stuck: int
    violations: int


class Sessions(SimulatedApplication):
    """Lets members leave when their sessions end, and others take their places; by the application's word, at once."""

    def __init__(self, case: ChurnRunCase, group: Group, end: int, seed: int) -> None:
        self._mean_ticks = 0 if case.median_ticks is None else round(case.median_ticks / log(2))
        self._rule = case.rule
        self._end = end
        self._times = RandomStream(seed, SESSION_STREAM)
        self._choices = RandomStream(seed, CHOICE_STREAM)
        self.members = list(group.members)
        self._place = {member: place for place, member in enumerate(self.members)}
        self._candidates = group.outsiders
        self._waiting: list[int] = []
        self.changes = 0
        # Deliveries at nodes that had been told to leave and had not left yet.
        self.late = 0

    def subscribed(self, engine: Engine, node: int, topic: int) -> None:
        # Members from the start have been present for long, but the rest of an exponential time is as long as the
        # whole.
        if self._rule != CALL or engine.calendar.now == 0:
            self._begin_session(engine, node)

    def _begin_session(self, engine: Engine, node: int) -> None:
        if self._mean_ticks > 0:
            ends = engine.calendar.now + (draw_exponential(self._times) * self._mean_ticks >> WORD_BITS)
            if ends < self._end:
                engine.at(ends, SessionEnd(self, node))

    def unsubscribed(self, engine: Engine, node: int, topic: int) -> None:
        if self._rule == SUCCESSOR:
            self._candidates.append(node)
            if self._waiting and engine.calendar.now < self._end:
                engine.at(engine.calendar.now, SessionEnd(self, self._waiting.pop(0)))

    def end_session(self, engine: Engine, node: int) -> None:
        """A member leaves, and one of the candidates takes its place; where there is none it has to stay for now."""
        if not self._candidates:
            self._waiting.append(node)
            return
        self.changes += 1
        position = int(self._choices.below(len(self._candidates)))
        successor = self._candidates[position]
        self._candidates[position] = self._candidates[-1]
        self._candidates.pop()
        place = self._place.pop(node)
        self._place[successor] = place
        self.members[place] = successor
        if self._rule != SUCCESSOR:
            self._candidates.append(node)
        engine.unsubscribe(node, TOPIC)
        engine.subscribe(successor, TOPIC)
        if self._rule == CALL:
            self._begin_session(engine, successor)


class WatchedSessions(Sessions):
    """Counts the deliveries of nodes that are about to leave SRPT. VCube-PS ends a membership with the call."""

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        if node not in self._place:
            self.late += 1


class SessionEnd(Action):
    """A member has had enough."""

    def __init__(self, sessions: Sessions, node: int) -> None:
        self._sessions = sessions
        self._node = node

    def run(self, engine: Engine) -> None:
        self._sessions.end_session(engine, self._node)


class Announcements(Action):
    """One member, drawn each time, publishes; the action repeats after a while, until the end."""

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

    def root_wait(self) -> float:
        """How long a copy would have waited at the root, on average over the measured part of the run."""
        measured = self.root_waits[len(self.root_waits) // WARM_UP_SHARE :]
        return sum(measured) / len(measured)


COUNTERS = (
    "receptions",
    "reception_ticks",
    "deliveries",
    "own_deliveries",
    "latency_sum",
    "start_ticks",
    "charged",
    "queue_ticks",
    "unwanted",
)


class CounterMark(Action):
    """Remembers the counters of an engine, and the late deliveries, at one moment."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.counters: dict[str, int] = {}

    def run(self, engine: Engine) -> None:
        self.counters = {name: int(getattr(engine, name)) for name in COUNTERS}
        self.counters["late"] = self._sessions.late

    def since(self, earlier: CounterMark) -> dict[str, int]:
        """The differences since an earlier mark."""
        return {name: count - earlier.counters[name] for name, count in self.counters.items()}


def build_of(case: ChurnRunCase, group: Group) -> Build:
    """The processes of a case."""
    if case.system == ONE_ROOT:
        return with_one_root(group)
    return as_repaired(group) if case.system == REPAIRED else as_published(group)


def measure(case: ChurnRunCase, seed: int) -> Endured:
    """Let members come and go for the time of the case, then let everything come to rest."""
    group = draw_group(case.nodes, case.members, seed)
    end = case.seconds * TICKS_PER_SECOND
    sessions = (WatchedSessions if case.system == ONE_ROOT else Sessions)(case, group, end, seed)
    trace = MemoryTrace("deliveries") if case.judged else None
    network = NetworkModel(
        ConstantDelay(PROPAGATION_TICKS), TRANSMISSION_TICKS, PROCESSING_TICKS, charge_control=case.charged
    )
    processes: list[Process] = []
    build = build_of(case, group)

    def build_and_keep(environment: Environment) -> Process:
        processes.append(build(environment))
        return processes[-1]

    recorder = None if trace is None else trace.recorder
    engine = Engine(case.nodes, network, build_and_keep, seed, recorder, application=sessions)
    announcements, first, last = (
        Announcements(sessions, group.root, end, seed),
        CounterMark(sessions),
        CounterMark(sessions),
    )
    engine.at(end // WARM_UP_SHARE, first)
    engine.at(0, announcements)
    engine.run()
    last.run(engine)
    counted = last.since(first)
    latency = counted["reception_ticks"] / counted["receptions"]
    if case.system == REPAIRED:
        latency = counted["latency_sum"] / (counted["deliveries"] - counted["own_deliveries"])
    return Endured(
        latency=latency,
        start_wait=counted["start_ticks"] / counted["own_deliveries"],
        queue_wait=counted["queue_ticks"] / counted["charged"],
        root_wait=announcements.root_wait(),
        false_positives=100 * (counted["unwanted"] + counted["late"]) / counted["receptions"],
        changes_per_second=sessions.changes / case.seconds,
        stuck=sum(int(process.unfinished()) for process in processes),
        violations=0 if trace is None else sum(judge(trace.table(), case.nodes).counts.values()),
    )


def median_ticks(percent: float) -> int:
    """The median session if this percentage of the members leaves per second."""
    return round(log(2) * TICKS_PER_SECOND * 100 / percent)


def events_per_second(case: ChurnRunCase) -> float:
    """The approximate number of events per second of simulated time, without overload.

    About every node receives a publication, a subscription or its end, and acknowledges it; SRPT has no
    acknowledgements. VCube-PS repaired asks all nodes twice for each subscription, and announces a leave without
    acknowledgement.
    """
    publications = TICKS_PER_SECOND / PUBLICATION_GAP_TICKS
    per_publication = 1 if case.system == ONE_ROOT else 2
    per_change = {ONE_ROOT: 2, PUBLISHED: 4, REPAIRED: 5}[case.system]
    return case.nodes * (publications * per_publication + case.changes_per_second * per_change)
