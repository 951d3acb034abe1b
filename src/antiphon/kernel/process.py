"""The contract between a protocol and whatever runs it.

A **process** is one protocol at one node. It is a state machine: the host calls ``start``, ``receive``, ``expire``
or an operation such as ``publish``; the process changes its own state and calls its **environment**; it returns.
It never waits, never reads a clock, never opens a socket or a file and never draws from a global generator. Two
processes that are called in the same way with the same environment do the same, which is what makes a simulated run
repeatable and a failure replayable.

There are two hosts: the simulator (virtual time, one thread) and the live runtime (sockets, disk). The same
classes run in both.

Time is an integer number of **ticks**. The host says how long a tick is: one unit of the published models in the
simulator, a microsecond live. Protocols get durations from their configuration, in ticks, and only compare and add.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.randomness import RandomStream

NO_NODE: Final[i64] = -1
"""Where a node identifier may be missing, this stands for nobody. Identifiers are integers from 0 up."""

UNBOUNDED: Final[i64] = 1 << 40
"""More publications than anybody will hand in."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LogReader:
    """Reads what the log of a node holds of a topic, from its end backwards."""

    def earlier(self) -> list[ProtocolMessage] | None:
        """The part before the one that was read last, as ``recorded``, its last entry last.

        The log begins with the node's subscription: empty before its beginning, None where it is not kept any more.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Environment:
    """The actions of a process on the world. Implemented by each host; one instance per node."""

    def __init__(self, identifier: i64) -> None:
        self.identifier: Final[i64] = identifier

    def now(self) -> i64:
        """The host's clock, in ticks. It never runs backwards at one node."""
        raise NotImplementedError

    def shared_time(self) -> i64:
        """The clock that all hosts share as far as they can, in ticks; it may be wrong, and run backwards."""
        return self.now()

    def send(self, destination: i64, message: ProtocolMessage) -> None:
        """Hand a message to the network. It may arrive late, out of order or not at all; the call never blocks."""
        raise NotImplementedError

    def deliver(self, publication: Publication) -> None:
        """Give a publication to the application of this node. This is the moment that ordering promises speak of."""
        raise NotImplementedError

    def lost(self, topic: i64, source: i64, sequence: i64, is_late: bool = False) -> None:
        """Report, at its place in the order, a publication that this node will never deliver.

        No node has kept it; or, if it ``is_late``, it arrived when its place in total order was already past.
        """

    def log_reader(self, topic: i64) -> LogReader | None:
        """Reads what this node's log holds of a topic; None where there is no log."""
        return None

    def was_logged(self, topic: i64, source: i64, sequence: i64) -> bool:
        """Whether this node's log has ever held a publication; if that is not known it has."""
        return True

    def read_logged(self, topic: i64, source: i64, sequence: i64) -> ProtocolMessage | None:
        """A publication that was delivered here, as the log holds it; None if it does not, or not where to find it."""
        return None

    def restored_frontier(self, topic: i64) -> list[int] | None:
        """Publications that an earlier life of this node delivered on a topic that it had not left, as keys, or None.

        It is closed: with a publication, all that it had to follow is in it, or was past when that life subscribed.
        """
        return None

    def journal(self) -> list[ProtocolMessage] | None:
        """All that earlier lives of this process have written down, in that order; None where nothing is kept."""
        return None

    def write(self, record: ProtocolMessage) -> None:
        """Write something down for the next life of this process, behind all that was written before."""

    def rewrite(self, records: list[ProtocolMessage]) -> None:
        """Replace all that was written down by these records."""

    def sync(self) -> bool:
        """Whether all that was written down, and delivered, is on disk. If not, ``synced`` is called when it is.

        It is called once for each question, in the order of the questions. If the node crashes,
        the records that are not on disk are lost, from some record on.
        """
        return True

    def unwanted(self, message: ProtocolMessage) -> None:
        """A copy of a publication has come to this node, which is no member of its topic; hosts may count them."""

    def subscribed(self, topic: i64) -> None:
        """The subscription is effective: whatever anybody publishes on the topic from now on will be delivered here."""

    def unsubscribed(self, topic: i64) -> None:
        """The subscription has ended: nothing more of this topic will be delivered here."""

    def ordering_epoch(self, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        """This node has begun an epoch in which total publications are ordered; it means nothing to the process.

        The orderer names the members and the groups whose majorities they hold; from others both lists are empty.
        """

    def has_capacity(self, topic: i64) -> bool:
        """Whether the application here takes what is delivered on a topic; if not, publishers are to be slowed."""
        return True

    def set_timer(self, delay: i64, name: i64) -> i64:
        """Ask for ``expire(name)`` after ``delay`` ticks; the answer is a handle for ``cancel_timer``."""
        raise NotImplementedError

    def cancel_timer(self, handle: i64) -> None:
        """Forget a timer. Cancelling one that has expired or was cancelled before does nothing."""
        raise NotImplementedError

    def random(self) -> RandomStream:
        """This node's own stream of random numbers."""
        raise NotImplementedError

    def watch(self, peer: i64) -> None:
        """Keep the link to a peer: the process is told by ``peer_lost`` when it breaks, ``peer_found`` when it is back.

        A link counts as up until it is said to be lost. A host in which nothing can break need not do anything.
        """

    def silence_ticks(self, peer: i64) -> i64:
        """For how long a watched peer has given no sign of life, though nothing else says that it is gone.

        It is 0 until that is half of the time after which the peer is lost, and stays what it was when the peer is lost
        for that reason. A host that only hears of broken links always answers 0.
        """
        return 0

    def unwatch(self, peer: i64) -> None:
        """The link to a peer does not matter any more; nothing is said about it until it is watched again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Process:
    """One protocol at one node. Subclasses override what they need; what they do not expect is an error."""

    def __init__(self, environment: Environment) -> None:
        self.environment: Final[Environment] = environment
        self.me: Final[i64] = environment.identifier

    def start(self) -> None:
        """The node is up: at the beginning, after a join or after a restart. State of an earlier life is gone."""

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        """Publish on a topic; the answer is the sequence number, counted from 1 for each source and topic.

        ``order`` says what this publication waits for; unless it is named, that is the default of the topic. Fabrics
        without topics reach everybody.
        """
        raise NotImplementedError

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        """Publish about some keys of a topic: what is ordered per key waits for these keys only."""
        raise UsageError("this fabric knows no keys; publish without naming any, or use the fabric cube or tree")

    def refusal(self, order: i64, topic: i64 = 0) -> str | None:
        """Why a publication in some order on a topic cannot be accepted now, and what to do; nothing if it can.

        Hosts ask before they publish. An accepted publication is delivered, however long that takes.
        """
        return None

    def room(self, topic: i64) -> i64:
        """How many publications on a topic would begin at once; further ones queue in the process.

        Hosts that can wait hand in no more than that, so that nothing queues without bound.
        """
        return UNBOUNDED

    def first_unsettled(self, topic: i64) -> i64:
        """The number of this node's first publication on a topic that may still be lost with the node.

        It is settled when all members are known to have it. ``UNBOUNDED`` if there is none, or if nobody knows.
        """
        return UNBOUNDED

    def recorded(self, publication: Publication) -> ProtocolMessage:
        """The form in which a log holds a publication that is just being delivered; the process may get it again."""
        return publication

    def frontier_keys(self, topic: i64) -> list[int]:
        """All that counts as past here on a topic, as keys; ``Environment.restored_frontier`` after a restart."""
        raise NotImplementedError

    def of_fabric(self) -> Process:
        """The process of the fabric itself, where this one stands above it."""
        return self

    def recipients(self, topic: i64) -> list[int] | None:
        """The nodes that must have what this node publishes on a topic now; None if it does not know them all.

        A new member counts as past, from the beginning, each publication that started before it was among them.
        """
        return None

    def known_nodes(self) -> list[int]:
        """The nodes that this node knows and can send to."""
        return []

    def check_only_order(self, asked: i64, only: i64) -> None:
        """Complain if an order is asked for where all publications have the same one (or pass none at all)."""
        if asked != UNSPECIFIED and asked != only:
            kept = "no order" if only == UNSPECIFIED else f"order {ORDER_NAMES[only]}"
            raise UsageError(
                f"here every publication has {kept}, and none can choose order {order_name(asked)}; publish without "
                "naming an order, or run VCube-PS with mixed orders"
            )

    def subscribe(self, topic: i64) -> None:
        """Become a member of a topic. The environment is told when everything published from then on will come."""
        raise UsageError("this fabric knows no topics: everybody gets everything; publish without subscribing")

    def unsubscribe(self, topic: i64) -> None:
        """Stop being a member of a topic. The environment is told when nothing more will be delivered."""
        raise UsageError("this fabric knows no topics: everybody gets everything, and nobody can unsubscribe")

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A message has arrived and has been processed by the node's input stage."""
        raise NotImplementedError

    def expire(self, name: i64) -> None:
        """A timer set under this name has run out."""

    def synced(self) -> None:
        """All is on disk that was written when the process first asked ``Environment.sync`` without an answer."""

    def peer_lost(self, peer: i64) -> None:
        """The link to a peer that this process watches is broken: the peer has failed, gone, or is out of reach.

        Messages sent to it lately may be lost. It is still watched, and may be heard of again.
        """

    def peer_found(self, peer: i64) -> None:
        """A watched peer that was lost can be reached again; it may have lost its memory meanwhile."""

    def state(self) -> str:
        """All that decides what this process will do, as text, for hosts that compare states."""
        raise NotImplementedError

    def unfinished(self) -> i64:
        """How many things this process has begun, or was asked for, and waits to finish.

        When nothing is on its way to anybody any more and something is unfinished, the process is stuck.
        """
        return 0

    def joined(self, node: i64) -> None:
        """Another node exists from now on. It may be sent to, and will not begin anything before all were told."""
        raise UsageError("this fabric has a fixed set of nodes; start all of them together")

    def left(self, node: i64) -> None:
        """Another node leaves in an orderly way: it is to be given nothing new. It still answers what it was asked."""
        raise UsageError("this fabric has a fixed set of nodes; stop all of them together")

    def leave(self) -> None:
        """The node is about to go in an orderly way: say what others must know.

        The application has stopped using it, and nothing is unfinished. A host whose nodes come and go still calls
        ``receive``, ``joined`` and ``left`` until all others were told ``left`` and nothing is unfinished again.
        """


def order_name(order: i64) -> str:
    """The name of an order for people, whether it exists or not."""
    return ORDER_NAMES[order] if 0 <= order < len(ORDER_NAMES) else str(order)
