"""The contract of the node's end of sessions: what it asks of its host, a live node or a simulated one.

The host calls :class:`antiphon.sessions.node_end.NodeEnd` when something has happened: a client has connected or gone,
another node has sent a message or is gone, a membership has begun, or something was delivered on a watched topic.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from antiphon.membership.messages import Control
from antiphon.sessions.dedup import DedupTable
from antiphon.sessions.replay_buffer import ReplayBuffer, ShownBatch
from antiphon.sessions.scatter_gather import OtherNodes
from antiphon.sessions.steps import Promise, Timers

B = TypeVar("B", bound=ShownBatch)


class SessionTopic(Protocol[B]):
    """One topic at one node."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def number(self) -> int:
        """Its number for processes."""

    @property
    def seen(self) -> DedupTable:
        """The delivered batches, by author and number."""

    @property
    def replay_buffer(self) -> ReplayBuffer[B]:
        """The batches that it has shown last."""

    learned: Promise[None] | None
    """Kept when the node knows whose batches others had seen before it became a member; None if it was none."""

    is_watched: bool
    """Whether the host must call :meth:`NodeEnd.topics_changed` when it has delivered something."""

    def is_member(self) -> bool:
        """Whether the node is a member of it."""


class ConnectedClient(Protocol):
    """A client that is connected to this node."""

    client: int
    is_sent_away: bool

    def send(self, control: Control) -> None:
        """Send something to the client when the node settles."""


class NodeHost(Timers, OtherNodes, Protocol[B]):
    """The actions that the node's end of sessions asks of its host."""

    @property
    def identifier(self) -> int:
        """The identifier of the node."""

    @property
    def has_returned(self) -> bool:
        """Whether the node has returned with the log of an earlier life."""

    def counted(self) -> set[int]:
        """The other nodes that barriers pass, whether this one has found them or not."""

    def absent(self) -> set[int]:
        """The other nodes that have a say in the cluster and are not in it now."""

    def addresses(self) -> list[str]:
        """Where clients find the other nodes."""

    def draw(self, below: int) -> int:
        """A random number from 0 to below another one."""

    def topic(self, name: str) -> SessionTopic[B]:
        """A topic, from now on if not before."""

    def find_topic(self, name: str) -> SessionTopic[B] | None:
        """A topic that this node has used."""

    def publish_on(self, topic: SessionTopic[B]) -> Promise[None]:
        """Be a publisher of a topic; kept when the node is a member."""

    def publish_barrier(self, topic: SessionTopic[B], key: int) -> tuple[int, Promise[None]]:
        """Publish an empty total batch about a key: its number, and a promise that it has its place."""

    def batch(self, topic: SessionTopic[B], publisher: int, sequence: int, order: str, payload: bytes) -> B:
        """A batch that another node has shown, for clients of this one."""

    def refusal(self) -> str | None:
        """Why the process cannot order totally now, if it cannot."""

    def first_unsettled(self, topic: int) -> int:
        """The first publication of this node on a topic that not all members are known to have."""

    def frontier_keys(self, topic: int) -> list[int]:
        """The publications that count as past on a topic, elsewhere than on a tree."""

    def until_shown(self) -> Promise[None]:
        """Kept when subscribers may see what was delivered so far."""


class FabricTraits(NamedTuple):
    """How a fabric lets a node catch up with others."""

    # Elsewhere than on a tree a barrier would wait for a node that has crashed: processes say what counts as past.
    has_barriers: bool
    counts_past: bool
    # Whether a batch that others have and that does not come is published once more. Only gossip does: the logs of
    # cubes and trees hold no copies, and a node that comes back would wait for what no log holds.
    publishes_again: bool
    # Whether a node knows all others, so that one that it does not reach is lost.
    knows_all: bool = False
