"""The contract of membership: what its state machines ask of their host, and which events the host hands to them.

A membership (:class:`antiphon.membership.membership.Membership`) decides which nodes belong to a cluster. It is a pure
state machine: it never waits, and it touches no clock, socket, file or thread. Its host calls it when something has
happened, and it calls its host to make something happen. A live node is one host
(:mod:`antiphon.node.membership_host`), the simulator is another (:mod:`antiphon.simulator.cluster.node`).

Each connection is used in one direction. A **link** is a connection that this node has opened, a **connection** is one
that another node has opened to this one. Time is counted in microseconds.

| the host calls the membership | when |
|---|---|
| ``start`` | the node listens; membership begins to look for its place |
| ``greeted``, ``control_received``, ``connection_ended`` | a peer connects and says who it is, sends, goes |
| ``link_opened``, ``link_refused``, ``link_lost`` | a link stands, was refused with a reason, has ended |
| ``expired`` | a timer has run out |
| ``process_stepped`` | the process has handled something, while this node still joins |
| ``leave`` | the node is about to go |

No event comes of a link after ``close``; ``link_lost`` follows ``abort``. A connection that the membership closes ends
with ``connection_ended``, and nothing that it carried is handed over after ``close``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Process
from antiphon.membership.messages import Control, Hello

SECOND_US: Final = 1_000_000

NOBODY: Final = -1
"""The peer of links and timers that belong to no identifier."""

HIGHEST: Final = "highest identifier"
"""Under this name a node keeps the highest identifier that any node ever had, as far as it knows."""

NOT_HERE: Final = "the node that is meant does not live here any more"
"""Why a connection is refused that means an earlier life of a node."""

NO_PLACE_YET: Final = "this cluster has no identifier to give at the moment; ask again"
"""Why a newcomer is refused by a node that is in a cluster, and has to ask others before it can give a place."""

COUNTED_OUT: Final = (
    "this broker counts as failed here, because a connection with it has ended; it cannot return to a tree that runs "
    "without a quorum: start the tree again with all its brokers"
)
"""Why a broker is expelled from a tree without a quorum."""


def microseconds(seconds: float) -> int:
    """A setting in seconds, as a number of ticks."""
    return round(seconds * SECOND_US)


class Timer(NamedTuple):
    """The name of a timer; one that is set under a name replaces another of the same name."""

    kind: str
    peer: int = NOBODY


class Link(Protocol):
    """A connection that this node has opened, or is about to open, to the life of a node or to an address."""

    @property
    def address(self) -> str:
        """Where it leads."""

    @property
    def instance(self) -> str:
        """The life of a node that is meant; empty if any life will do."""

    peer: int
    """The identifier that the membership gave for it, and may change."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands."""

    @property
    def bytes_received(self) -> int:
        """How much the other end has said on it: signs of life, and why it closes."""

    @property
    def frames_sent(self) -> int:
        """How much was sent over it."""

    def close(self) -> None:
        """Send what waits and end."""

    def abort(self) -> None:
        """End at once."""


class Connection(Protocol):
    """A connection that another node has opened to this one, and on which it has said who it is."""

    @property
    def instance(self) -> str:
        """The life of the node at the other end."""

    @property
    def address(self) -> str:
        """Where that node listens."""

    @property
    def certified_name(self) -> str:
        """The name in its certificate; empty without TLS."""

    @property
    def bytes_received(self) -> int:
        """How much has come over it."""

    def close(self) -> None:
        """End."""

    def abort(self) -> None:
        """End at once."""

    def expel(self, reason: str) -> None:
        """Tell the other end that it counts as failed, and end."""


class Facts(Protocol):
    """The facts that a node keeps on its disk for its next life."""

    @property
    def is_kept(self) -> bool:
        """Whether there is a disk."""

    def read(self, name: str) -> bytes | None:
        """The value that was put under a name."""

    def put(self, name: str, value: bytes) -> None:
        """Keep something; it is on the disk with the next commit."""

    def commit_soon(self) -> None:
        """Bring to the disk what was put."""

    @property
    def has_journal(self) -> bool:
        """Whether the process of the node can write something down for its next life."""

    def journal_records(self) -> Sequence[ProtocolMessage]:
        """The records that earlier lives of the process have written."""


class Log(Protocol):
    """Events for operators, with named values."""

    def info(self, event: str, **values: object) -> None:
        """Something an operator wants to know."""

    def warning(self, event: str, **values: object) -> None:
        """Something an operator should look at."""


class Host(Protocol):
    """The actions of a membership: connections, timers, facts on disk."""

    @property
    def facts(self) -> Facts:
        """The disk."""

    @property
    def log(self) -> Log:
        """Where events for operators go."""

    def now(self) -> int:
        """The clock, in microseconds; it never runs backwards."""

    def draw(self, below: int) -> int:
        """A random number from 0 to below another one."""

    def open(self, address: str, hello: Hello, peer: int, patience_us: int = 0, expected_name: str = "") -> Link:
        """Open a link and greet its other end. ``patience_us`` is how long to try where nobody listens yet.

        With TLS, ``expected_name`` is the name in the certificate that must be there, if the greeting means no life.
        """

    def send(self, link: Link, control: Control) -> None:
        """Send a message over a link, when it stands."""

    def set_timer(self, timer: Timer, delay_us: int) -> None:
        """Ask for ``expired(timer)`` after a while, and not at an earlier time that was asked for."""

    def when_safe(self, timer: Timer) -> None:
        """Ask for ``expired(timer)`` when everything is on disk that was put there so far."""

    def cancel_timer(self, timer: Timer) -> None:
        """Do not ask any more."""


class NodeEvents(Protocol):
    """The events of a membership, for the rest of the node."""

    @property
    def process(self) -> Process | None:
        """The process of the node, from the moment it has its place."""

    def placed(self, identifier: int, members: list[int]) -> None:
        """This node has its place beside these others."""

    def displaced(self) -> None:
        """This node has no place after all, and asks for another one."""

    def entered(self) -> None:
        """This node is in its cluster and may be used."""

    def refused(self, reason: str) -> None:
        """This node cannot join."""

    def past_is_void(self) -> None:
        """The deliveries of an earlier life of this node mean nothing in this cluster."""

    def peer_lost(self, identifier: int) -> None:
        """Another node cannot be reached any more."""

    def peer_found(self, identifier: int) -> None:
        """Another node can be reached, for the first time or again."""

    def link_lost(self, identifier: int) -> None:
        """A peer that the process watches is lost."""

    def link_found(self, identifier: int) -> None:
        """A peer that the process watches, and that was lost, can be reached again."""

    def transmit(self, identifier: int, message: ProtocolMessage) -> None:
        """A message of the process, for which there was no link when it was sent, can be sent now."""

    def peers_changed(self) -> None:
        """Clients are to know that they can go to others than before."""

    def news(self) -> list[Control]:
        """The messages with which every new link begins."""

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good."""


class MembershipSettings(Protocol):
    """The settings of a node that say how it belongs to a cluster."""

    @property
    def fabric(self) -> str:
        """How messages travel."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""

    @property
    def join(self) -> list[str]:
        """The nodes that are asked for a place."""

    @property
    def join_seconds(self) -> float:
        """How long joining may take."""

    @property
    def identifier(self) -> int | None:
        """The identifier that the node would like to have."""

    @property
    def lost_seconds(self) -> float:
        """After how long a silent peer counts as lost."""

    @property
    def forget_seconds(self) -> float:
        """After how long nobody looks for a lost node any more."""

    @property
    def maximum_nodes(self) -> int:
        """How many nodes a cluster may have."""


class Place(NamedTuple):
    """The node that a membership is for."""

    instance: str
    address: str
    settings: MembershipSettings
    host: Host
    events: NodeEvents
