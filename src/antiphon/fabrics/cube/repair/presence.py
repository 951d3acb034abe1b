"""The nodes that one node of a cube can reach, where nodes may fail, and the members that it does not wait for.

The host says which nodes can be reached (``peer_found``) and which cannot any more (``peer_lost``). It may be wrong
about crashes, but both ends of a link hear of it, and messages that have not arrived over it by then are gone.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import member_entries, member_entry
from antiphon.fabrics.cube.topic import CubeTopic
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.process import NO_NODE, Environment


@final
class Presence:
    """The nodes within reach of one node, and since when it has lost others."""

    def __init__(self, environment: Environment, cube: Cube) -> None:
        self._environment: Final[Environment] = environment
        self.present: Final[dict[i64, bool]] = {node: True for node in cube.members() if node != environment.identifier}
        self.lost_at: Final[dict[i64, i64]] = {}
        # For how long they had given no sign of life before; 0 if a connection broke.
        self._silent_before: Final[dict[i64, i64]] = {}
        # By topic, who was found and has not said since whether it is a member.
        self._met: Final[dict[i64, dict[i64, bool]]] = {}

    def watch_all(self) -> None:
        """Ask the host to say when a node is lost."""
        for node in self.present:
            self._environment.watch(node)

    def on_found(self, peer: i64) -> None:
        """A node can be reached."""
        self.present[peer] = True
        self.lost_at.pop(peer, None)
        self._silent_before.pop(peer, None)

    def on_lost(self, peer: i64) -> None:
        """A node cannot be reached any more."""
        del self.present[peer]
        self.lost_at[peer] = self._environment.now()
        self._silent_before[peer] = self._environment.silence_ticks(peer)

    def is_lost_for(self, peer: i64, ticks: i64) -> bool:
        """Whether a node has been lost for so long, its silence before that included."""
        since = self.lost_at.get(peer, NO_NODE)
        return since != NO_NODE and self._environment.now() - since + self._silent_before.get(peer, 0) >= ticks

    def heard_from(self) -> list[i64]:
        """The nodes within reach that are not silent: those that would be lost soon are not among them."""
        return [peer for peer in self.present if self._environment.silence_ticks(peer) == 0]

    # Nodes that may be members of a topic.

    def begin_asking(self, topic: CubeTopic) -> None:
        """This node begins to ask for the members of a topic."""
        self._met.pop(topic.name, None)

    def meet(self, topic: CubeTopic, peer: i64) -> None:
        """A node is found that may be a member of a topic."""
        self._met.setdefault(topic.name, {})[peer] = True

    def hear(self, topic: CubeTopic, peer: i64) -> None:
        """A node says that it is not a member of a topic."""
        met = self._met.get(topic.name)
        if met is not None:
            met.pop(peer, False)

    def met(self, topic: CubeTopic) -> list[i64]:
        """The reachable nodes that were found and may be members: they have not said that they are not."""
        return [peer for peer in self._met.get(topic.name, {}) if peer in self.present]

    def end_asking(self, topic: CubeTopic) -> list[i64]:
        """This node is a member; return the nodes that it has found meanwhile."""
        met = self.met(topic)
        self._met.pop(topic.name, None)
        return met

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{sorted(self.present)} {[(name, sorted(nodes)) for name, nodes in sorted(self._met.items())]}"


def known_members(topic: CubeTopic) -> vec[i64]:
    """All members of a topic that its node knows, also those that are away."""
    members = vec[i64]()
    # A view from the start holds its owner.
    for member in topic.view.active_members():
        members = append(members, member_entry(member, topic.view.counter_of(member), True))
    for member, counter in topic.away.items():
        members = append(members, member_entry(member, counter, False))
    return members


def knows_more(topic: CubeTopic, me: i64, peer: i64, members: vec[i64]) -> bool:
    """Whether this node knows of members of whom another one did not speak, or is away for it."""
    known = member_entries(members)
    return not known.get(me, False) or any(
        member not in known and member != peer for member in [*topic.view.active_members(), *topic.away]
    )


@final
class FormerMembers:
    """By topic, the members that have left and those that are not expected back, with the counter of a subscription.

    Late hearsay about such a subscription does not bring its member back; a later subscription does. A member that has
    left has said so, and others are told. A forgotten member has said nothing: only this node does not wait for it.
    """

    def __init__(self) -> None:
        self._departed: Final[dict[i64, dict[i64, i64]]] = {}
        self._forgotten: Final[dict[i64, dict[i64, i64]]] = {}

    def depart(self, topic: CubeTopic, node: i64, counter: i64) -> None:
        """A member has left."""
        nodes = self._departed.setdefault(topic.name, {})
        nodes[node] = max(counter, nodes.get(node, -1))

    def forget(self, topic: CubeTopic, node: i64, counter: i64) -> None:
        """A member is not expected back."""
        self._forgotten.setdefault(topic.name, {})[node] = counter

    def take_back(self, topic: CubeTopic, node: i64) -> None:
        """A node is a member again."""
        self._departed.get(topic.name, {}).pop(node, None)
        self._forgotten.get(topic.name, {}).pop(node, None)

    def departed(self, topic: CubeTopic, node: i64) -> i64:
        """The counter under which a node has left; -1 if it has not."""
        return self._departed.get(topic.name, {}).get(node, -1)

    def forgotten(self, topic: CubeTopic, node: i64) -> i64:
        """The counter under which a node is not expected back; -1 if it is."""
        return self._forgotten.get(topic.name, {}).get(node, -1)

    def text(self) -> str:
        """The state as text, to compare states."""
        departed = [(name, sorted(nodes.items())) for name, nodes in sorted(self._departed.items())]
        forgotten = [(name, sorted(nodes.items())) for name, nodes in sorted(self._forgotten.items())]
        return f"{departed} {forgotten}"
