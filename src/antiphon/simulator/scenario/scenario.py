"""The typed form of a scenario, the file that ``antiphon simulate`` runs.

The structures mirror the file key by key. Complaints about wrong values show the descriptions and examples of the
annotations, after the word "expected" (:mod:`antiphon.simulator.scenario.toml_document`).
:mod:`antiphon.simulator.scenario.file` makes the checks that types cannot express, such as that a node exists or is
down when it restarts.

All times are ticks from the start of the run. At the same tick faults come first, in the order of the file, then
unsubscriptions, then subscriptions, then publications, then messages between nodes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from antiphon.fabrics.options import Flag, NodeNumber
from antiphon.fabrics.registry import DEFAULT_FABRIC
from antiphon.kernel.errors import UsageError
from antiphon.spaces.process import NAMES_AT_MOST

LATEST = 10**15
LARGEST_DRAW = (1 << 31) - 1
LARGEST_SEED = (1 << 63) - 1

Ticks = Annotated[int, Meta(ge=0, le=LATEST, description="a number of ticks, 0 or more", examples=[100])]
PositiveTicks = Annotated[int, Meta(ge=1, le=LATEST, description="a number of ticks, 1 or more", examples=[100])]
DrawnTicks = Annotated[
    int, Meta(ge=0, le=LARGEST_DRAW, description=f"a number of ticks from 0 to {LARGEST_DRAW}", examples=[1000])
]
Time = Annotated[int, Meta(ge=0, le=LATEST, description="a time in ticks, 0 or more", examples=[500])]
Probability = Annotated[float, Meta(ge=0, le=1, description="a probability from 0 to 1", examples=[0.01])]
NodeSet = Annotated[
    list[int] | str, Meta(description="a list of nodes, or ranges of them in quotes", examples=["0-15,20"])
]
Word = Annotated[str, Meta(description="a name in quotes", examples=[DEFAULT_FABRIC])]
TopicNumber = Annotated[int, Meta(ge=0, lt=1 << 16, description="the number of a topic, from 0 up", examples=[0])]

OrderName = Annotated[str, Meta(description="the name of an order in quotes", examples=["fifo"])]

ANY_TOPIC = "any"

NODE_RANGES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")


class ScenarioTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table: immutable, and strict about unknown keys."""


# Delays.


class ConstantLaw(ScenarioTable, frozen=True, kw_only=True, tag_field="law", tag="constant"):
    """The same delay for every copy."""

    ticks: Ticks


class NormalLaw(ScenarioTable, frozen=True, kw_only=True, tag_field="law", tag="normal"):
    """A normal delay, rounded to ticks, drawn for every copy."""

    mean: Annotated[float, Meta(ge=1, le=1e9, description="a mean in ticks, 1 or more", examples=[100])]
    deviation: Annotated[
        float, Meta(gt=0, le=1e5, description="a standard deviation in ticks, above 0, up to 100000", examples=[20])
    ]


class QuantileLaw(ScenarioTable, frozen=True, kw_only=True, tag_field="law", tag="quantiles"):
    """A measured distribution, as points of a share of the copies and the delay that they do not exceed."""

    points: Annotated[
        list[tuple[Probability, DrawnTicks]],
        Meta(
            description="a list of points, each a share from 0 to 1 and a delay in ticks",
            examples=[[[0, 1], [0.5, 125], [1, 800]]],
        ),
    ]


class LinkLaw(ScenarioTable, frozen=True, kw_only=True, tag_field="law", tag="link"):
    """Each link draws its delay once and keeps it."""

    of: Annotated[
        ConstantLaw | NormalLaw | QuantileLaw,
        Meta(description="the law that links draw from", examples=[{"law": "normal", "mean": 100, "deviation": 20}]),
    ]
    symmetric: Flag = True


class MatrixLaw(ScenarioTable, frozen=True, kw_only=True, tag_field="law", tag="matrix"):
    """A delay for each pair of places; node ``i`` is at place ``i`` modulo the number of places."""

    rows: Annotated[
        list[list[Ticks]],
        Meta(
            description="one row of delays in ticks for each place, as long as there are rows",
            examples=[[[1, 80], [80, 1]]],
        ),
    ]


DelayLaw = Annotated[
    ConstantLaw | NormalLaw | QuantileLaw | LinkLaw | MatrixLaw,
    Meta(description="a law of delays", examples=[{"law": "constant", "ticks": 100}]),
]


def mean_ticks(law: DelayLaw) -> float:
    """The mean of a law of delays; of a matrix the largest delay."""
    if isinstance(law, ConstantLaw):
        return law.ticks
    if isinstance(law, NormalLaw):
        return law.mean
    if isinstance(law, LinkLaw):
        return mean_ticks(law.of)
    if isinstance(law, QuantileLaw):
        return sum((to - at) * (low + high) / 2 for (at, low), (to, high) in pairwise(law.points))
    return max(max(row) for row in law.rows)


class NetworkTable(ScenarioTable, frozen=True, kw_only=True):
    """The cost of one hop, and its faults."""

    delay: DelayLaw = ConstantLaw(ticks=100)
    transmission: Ticks = 1
    processing: Ticks = 1
    charge_control: Flag = True
    loss: Probability = 0.0
    duplication: Probability = 0.0
    reordering: Probability = 0.0
    reordering_window: DrawnTicks = 0
    detection: Ticks = 1000
    in_order: Flag = False
    notices_pauses: Flag = False


# Memberships.


class TopicsTable(ScenarioTable, frozen=True, kw_only=True):
    """The topics and their members at the start: a drawn share of the nodes, or listed nodes."""

    count: Annotated[int, Meta(ge=1, le=1 << 16, description="a number of topics from 1 to 65536", examples=[2])] = 1
    share: Annotated[float, Meta(ge=0, le=1, description="a share of the nodes from 0 to 1", examples=[0.5])] = 1.0
    members: (
        Annotated[
            list[NodeSet], Meta(description="a list with a set of nodes for each topic", examples=[["0-31", [5, 9]]])
        ]
        | None
    ) = None
    spaces: Annotated[
        list[list[int]], Meta(description="a list of spaces, each a list of topics", examples=[[[0, 1]]])
    ] = []
    acknowledge: Ticks = 300
    names: Annotated[
        int, Meta(ge=1, description="the most publications that one of a space may name", examples=[100])
    ] = NAMES_AT_MOST


class Targeted(ScenarioTable, frozen=True, kw_only=True):
    """An event at one node or, at the same time, at several."""

    at: Time
    node: NodeNumber | None = None
    nodes: NodeSet | None = None

    def targets(self, node_count: int) -> list[int]:
        """The nodes of the event."""
        if self.nodes is not None:
            return expand_nodes(self.nodes, node_count)
        return [] if self.node is None else [self.node]


class SubscribeTable(Targeted, frozen=True, kw_only=True):
    """Nodes subscribe to a topic, or unsubscribe from it."""

    topic: TopicNumber = 0


# Publications.

PayloadBytes = Annotated[int, Meta(ge=0, le=1 << 20, description="a number of bytes from 0 to 1048576", examples=[100])]
DrawnOrders = Annotated[
    list[OrderName], Meta(description="a list of orders to draw from", examples=[["none", "fifo", "causal"]])
]
Key = Annotated[int, Meta(ge=0, lt=1 << 62, description="a number from 0 up", examples=[7])]
DrawnKeys = Annotated[int, Meta(ge=0, le=1 << 31, description="a number of keys to draw from", examples=[100])]
DrawnTopic = Annotated[int | str, Meta(description='the number of a topic, or "any"', examples=[ANY_TOPIC])]


class OnceWorkload(ScenarioTable, frozen=True, kw_only=True, tag_field="kind", tag="once"):
    """A share of the nodes, drawn at random, publishes once each, at a random time of a window."""

    share: Annotated[float, Meta(gt=0, le=1, description="a share of the nodes, above 0, up to 1", examples=[0.25])] = (
        1.0
    )
    start: Time = 0
    window: DrawnTicks = 0
    topic: DrawnTopic = 0
    orders: DrawnOrders = []
    keys: DrawnKeys = 0
    payload_bytes: PayloadBytes = 0


class RateWorkload(ScenarioTable, frozen=True, kw_only=True, tag_field="kind", tag="rate"):
    """Publications at random times with a given mean gap, each by a random node."""

    mean_gap: Annotated[
        float, Meta(ge=0.001, le=1e9, description="a mean number of ticks, from 0.001 to 1e9", examples=[50])
    ]
    count: Annotated[int, Meta(ge=1, description="a number of publications, 1 or more", examples=[1000])] | None = None
    until: Time | None = None
    start: Time = 0
    topic: DrawnTopic = 0
    orders: DrawnOrders = []
    keys: DrawnKeys = 0
    payload_bytes: PayloadBytes = 0


class PublishTable(ScenarioTable, frozen=True, kw_only=True):
    """One listed publication."""

    at: Time
    node: NodeNumber
    topic: TopicNumber = 0
    order: OrderName | None = None
    keys: Annotated[list[Key], Meta(description="a list of keys", examples=[[3, 7]])] = []
    payload: Annotated[str, Meta(description="a text in quotes", examples=["why?"])] = ""


# Faults.


class CrashFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="crash"):
    """Nodes stop at once and forget everything; the others' trees know after ``detected_after`` ticks, or never."""

    detected_after: Ticks | None = None


class RestartFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="restart"):
    """Crashed nodes restart with an empty memory."""


class PauseFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="pause"):
    """Nodes pause; arriving messages wait."""


class ResumeFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="resume"):
    """Paused nodes resume."""


class JoinFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="join"):
    """Absent nodes start and become members; or a single one, which ``continues`` a crashed node with its disk."""

    continues: NodeNumber | None = None


class LeaveFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="leave"):
    """Nodes leave orderly and are not members any more."""


class PartitionFault(ScenarioTable, frozen=True, kw_only=True, tag_field="kind", tag="partition"):
    """Copies between different groups are lost for a while, or for ever."""

    at: Time
    until: Time | None = None
    groups: Annotated[list[NodeSet], Meta(description="a list of groups of nodes", examples=[["0-31", "32-63"]])]
    one_way: Flag = False
    linked: Literal["apart", "chain", "ring"] = "apart"


class ClockFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="clock"):
    """The wall clocks of nodes jump, forward or back; their timers continue unchanged."""

    ticks: Annotated[
        int, Meta(ge=-LARGEST_DRAW, le=LARGEST_DRAW, description="a number of ticks, ahead or back", examples=[-5000])
    ]


class DiskFault(Targeted, frozen=True, kw_only=True, tag_field="kind", tag="disk"):
    """A fault of the disks of nodes.

    ``torn``: writes from now on are not synced ``until`` then; a crash before loses them. ``full``: the same, and the
    node knows, so it accepts no publications. ``lost`` and ``flip``: synced writes are missing, or have wrong bits; the
    log is refused, and the node does not restart.
    """

    what: Literal["torn", "full", "lost", "flip"]
    until: Time | None = None


Fault = (
    CrashFault
    | RestartFault
    | PauseFault
    | ResumeFault
    | JoinFault
    | LeaveFault
    | PartitionFault
    | ClockFault
    | DiskFault
)
BesideLives = PartitionFault | ClockFault | DiskFault
"""Faults that neither start nor end an incarnation of a node."""


# The rest.


class LimitsTable(ScenarioTable, frozen=True, kw_only=True):
    """Limits at which a run ends even if events are left."""

    time: PositiveTicks = 10**9
    events: Annotated[
        int, Meta(ge=1, le=LATEST, description="a number of events, 1 or more", examples=[200_000_000])
    ] = 200_000_000


class TraceTable(ScenarioTable, frozen=True, kw_only=True):
    """The contents of the trace."""

    level: Literal["counts", "deliveries", "everything"] = "deliveries"


class Scenario(ScenarioTable, frozen=True, kw_only=True):
    """A whole scenario. Only the number of nodes and something to publish are required."""

    name: Annotated[str, Meta(description="a title in quotes", examples=["a first try"])] = "unnamed"
    seed: Annotated[int, Meta(ge=0, le=LARGEST_SEED, description="an integer from 0 to 2**63 - 1", examples=[7])] = 1
    fabric: Word = DEFAULT_FABRIC
    protocol: Word = "broadcast"
    order: Word = "causal"
    nodes: Annotated[int, Meta(ge=1, le=1 << 22, description="a number of nodes from 1 to 4194304", examples=[64])]
    protocol_options: Annotated[
        dict[str, Any], Meta(description="a table of options of the protocol", examples=[{"acknowledge": False}])
    ] = field(name="protocol-options", default_factory=dict)
    network: Annotated[
        NetworkTable, Meta(description="a table that describes the network", examples=[{"loss": 0.01}])
    ] = NetworkTable()
    topics: (
        Annotated[TopicsTable, Meta(description="a table about the topics", examples=[{"count": 2, "share": 0.5}])]
        | None
    ) = None
    workload: (
        Annotated[
            OnceWorkload | RateWorkload,
            Meta(description="a table that describes the workload", examples=[{"kind": "once", "window": 1000}]),
        ]
        | None
    ) = None
    publications: Annotated[
        list[PublishTable], Meta(description="tables [[publish]]", examples=[[{"at": 0, "node": 5}]])
    ] = field(name="publish", default_factory=list)
    subscriptions: Annotated[
        list[SubscribeTable],
        Meta(description="tables [[subscribe]]", examples=[[{"at": 0, "node": 5, "topic": 0}]]),
    ] = field(name="subscribe", default_factory=list)
    unsubscriptions: Annotated[
        list[SubscribeTable],
        Meta(description="tables [[unsubscribe]]", examples=[[{"at": 900, "node": 5, "topic": 0}]]),
    ] = field(name="unsubscribe", default_factory=list)
    faults: Annotated[
        list[Fault], Meta(description="tables [[fault]]", examples=[[{"at": 500, "kind": "crash", "node": 5}]])
    ] = field(name="fault", default_factory=list)
    limits: Annotated[LimitsTable, Meta(description="a table of limits", examples=[{"time": 100_000}])] = LimitsTable()
    trace: Annotated[TraceTable, Meta(description="a table about the trace", examples=[{"level": "everything"}])] = (
        TraceTable()
    )

    def uses_order(self, order: str) -> bool:
        """Whether publications may have an order."""
        named = set() if self.workload is None else set(self.workload.orders)
        named.update(publication.order for publication in self.publications if publication.order is not None)
        return self.order == order or order in named

    def mixes_orders(self) -> bool:
        """Whether publications choose their own orders; ``order`` is the default then."""
        drawn = self.workload is not None and len(self.workload.orders) > 0
        return drawn or any(publication.order is not None for publication in self.publications)

    def orders_totally(self) -> bool:
        """Whether publications may be total, or have keys."""
        if self.order == "total" or any(one.order == "total" or one.keys for one in self.publications):
            return True
        return self.workload is not None and ("total" in self.workload.orders or self.workload.keys > 0)

    def topic_count(self) -> int:
        """The number of topics; 1 without a table."""
        return 1 if self.topics is None else self.topics.count

    def changes_membership(self) -> bool:
        """Whether nodes enter or leave the trees during the run."""
        return any(
            isinstance(fault, JoinFault | LeaveFault)
            or (isinstance(fault, CrashFault) and fault.detected_after is not None)
            for fault in self.faults
        )

    def faults_by_time(self) -> list[tuple[int, Fault]]:
        """The faults in the order of time, each with its position in the file, counted from 0."""
        return sorted(enumerate(self.faults), key=lambda numbered: numbered[1].at)

    def later_incarnations(self) -> set[int]:
        """The nodes that start with the disk of a crashed one; no other node knows them before."""
        return {
            node
            for fault in self.faults
            if isinstance(fault, JoinFault) and fault.continues is not None
            for node in fault.targets(self.nodes)
        }

    def absent_at_start(self) -> set[int]:
        """The nodes whose first fault is a join."""
        seen: set[int] = set()
        absent: set[int] = set()
        for _, fault in self.faults_by_time():
            if isinstance(fault, BesideLives):
                continue
            for node in fault.targets(self.nodes):
                if node not in seen and isinstance(fault, JoinFault):
                    absent.add(node)
                seen.add(node)
        return absent


def expand_nodes(nodes: list[int] | str, node_count: int) -> list[int]:
    """A set of nodes as a list, in the order in which they are written; all of them exist."""
    if isinstance(nodes, str):
        text = nodes.replace(" ", "")
        if NODE_RANGES.fullmatch(text) is None:
            raise UsageError(f'expected ranges of nodes, not "{nodes}"; write for example "0-15,20"')
        ranges = [[int(end) for end in part.split("-")] for part in text.split(",")]
    else:
        ranges = [[node] for node in nodes]
    for ends in ranges:
        for end in (ends[0], ends[-1]):
            check_node(end, node_count)
        if ends[0] > ends[-1]:
            raise UsageError(f'the range {ends[0]}-{ends[-1]} runs backwards; write "{ends[-1]}-{ends[0]}"')
    return [node for ends in ranges for node in range(ends[0], ends[-1] + 1)]


def check_node(node: int, node_count: int) -> None:
    """Complain about a node that does not exist."""
    if not 0 <= node < node_count:
        raise UsageError(
            f"there is no node {node} among {node_count}; choose from 0 to {node_count - 1}, for example: "
            f"{node_count // 2}"
        )
