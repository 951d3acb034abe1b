"""TAG: a tree along which nodes pull, in a list of all nodes by the time of joining.

Liu and Zhou (2006), "Tree-assisted gossiping", as the thesis of M. Matos describes and measures it (section 4.3.5). The
list, the tree and their repair are in :mod:`antiphon_lab.protocols.gossip.tag_list`. Every period a node asks its
parent for missing publications, or one of the peers that it met when it joined while it has no parent, and gets up to
``batch`` publications (:mod:`antiphon_lab.protocols.gossip.pulling`). With one for each question, every 0.4 s, a stream
of 5 per second takes twice as long as it was published: the latency that the thesis reports.

A publication of another node than the root is pushed up to the root, so that all pulling nodes find it. An idle node
stops asking, as everywhere in this fabric; its parent tells it when there is something again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.messages import NOWHERE, Data
from antiphon.fabrics.gossip.options import BrisaOptions, rival_rules
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.service import Connections, PeerSampling
from antiphon.fabrics.gossip.seeds import Seeds
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.structure import Repairs
from antiphon.fabrics.gossip.topic import Group
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.gossip.pulling import Pull, Pulling
from antiphon_lab.protocols.gossip.simple_tree import check_coordinator
from antiphon_lab.protocols.gossip.tag_list import TagList

ASLEEP_PERIODS: Final = 2
"""The number of periods without a question after which a child is told of news."""


class TagOptions(BrisaOptions):
    """A node has up to ``capacity`` children and is up to ``deepest`` hops from the root; it remembers ``peers``.

    ``batch`` publications come for each question; ``handshakes`` round trips open a connection on the way along the
    list.
    """

    def __init__(
        self,
        contacts: Sequence[int] = (0,),
        order: str = "fifo",
        mixed: bool = False,
        batch: i64 = 1,
        capacity: i64 = 8,
        deepest: i64 = 4,
        peers: i64 = 4,
        handshakes: i64 = 0,
        period: i64 = 400,
        patience: i64 = 20,
        keep: i64 = 512,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
    ) -> None:
        check_coordinator(contacts)
        for name, value in (("batch", batch), ("capacity", capacity), ("deepest", deepest), ("peers", peers)):
            if value < 1:
                raise UsageError(f"TAG cannot work with {name} = {value}; choose at least 1")
        if handshakes < 0:
            raise UsageError(f"handshakes is a number of round trips and cannot be negative, not {handshakes}")
        super().__init__(
            contacts=contacts,
            order=order,
            mixed=mixed,
            period=period,
            patience=patience,
            keep=keep,
            buffer=buffer,
            join_window=join_window,
            floods=True,
            deepest=deepest,
            rules=rival_rules(),
        )
        self.batch: Final[i64] = batch
        self.capacity: Final[i64] = capacity
        self.peers: Final[i64] = peers
        self.handshakes: Final[i64] = handshakes


def room_in_tree(capacity: int, deepest: int) -> int:
    """How many nodes a tree of that width and depth has room for."""
    total, level = 1, 1
    for _ in range(deepest):
        level *= capacity
        total += level
        if total > 1 << 40:
            break
    return total


@mypyc_attr(acyclic=True)
class Wake(ProtocolMessage):
    """The sender, a parent, has something of the source that the receiver has not asked for."""


class PulledTree(Trees):
    """The tree: own publications go up, everything else waits to be asked for."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: TagOptions,
        place: TagList,
        streams: dict[i64, Stream],
    ) -> None:
        super().__init__(environment, topic, options, place.neighbours(), streams)
        self._place: Final[TagList] = place
        self._asleep_ticks: Final[i64] = ASLEEP_PERIODS * options.period
        # When each child asked last.
        self.asked_at: Final[dict[i64, i64]] = {}

    def begin(self, publication: Publication) -> None:
        self._go_up(publication)

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        if is_new:
            self._go_up(data.publication)

    def on_fetch_response(self, publication: Publication, sender: i64, reused: i64) -> None:
        if sender == self._place.parent:
            self._place.note_recovery()
        self._wake_children(publication)

    def _go_up(self, publication: Publication) -> None:
        if self._place.parent != NO_NODE:
            self._environment.send(self._place.parent, Data(publication, -1, NOWHERE, True))
        self._wake_children(publication)

    def _wake_children(self, publication: Publication) -> None:
        now = self._environment.now()
        for child in self._place.children:
            if now - self.asked_at.get(child, 0) > self._asleep_ticks:
                # Not again before it had time to ask.
                self.asked_at[child] = now
                self._environment.send(child, Wake(publication.source, publication.sequence, self._topic))

    def neighbour_down(self, peer: i64) -> None:
        super().neighbour_down(peer)
        self.asked_at.pop(peer, None)


class TagGroup(Group):
    """A topic at one node."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        connections: Connections,
        seeds: Seeds,
        born: i64,
    ) -> None:
        super().__init__(environment, topic, options, connections, seeds, born)
        assert isinstance(options, TagOptions), "made with them"
        self._pulling: Final = Pulling(environment, topic, self.streams, self._quiescence, options.batch)

    def new_sampling(self, connections: Connections) -> PeerSampling:
        options = self._options
        assert isinstance(options, TagOptions), "made with them"
        return TagList(
            self._environment,
            self.topic,
            connections,
            self,
            options.contacts[0],
            options.capacity,
            options.deepest,
            options.peers,
            options.handshakes,
        )

    def new_trees(self) -> Trees:
        options = self._options
        assert isinstance(options, TagOptions), "made with them"
        return PulledTree(self._environment, self.topic, options, self.place(), self.streams)

    def place(self) -> TagList:
        """The node's place in list and tree."""
        place = self.sampling
        assert isinstance(place, TagList), "made as such"
        return place

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Wake):
            stream = self.stream(message.source)
            if self.is_synchronised and message.sequence > stream.heard:
                stream.heard = message.sequence
                stream.quiet = 0
                self.wake()
        elif isinstance(message, Pull):
            if self.is_synchronised:
                self._on_pull(sender, message)
        else:
            super().receive(sender, message)

    def _on_pull(self, sender: i64, pull: Pull) -> None:
        trees = self.trees
        assert isinstance(trees, PulledTree), "made as such"
        trees.asked_at[sender] = self._environment.now()
        self._pulling.on_pull(sender, pull)

    def tell_neighbours(self) -> None:
        parent = self.place().parent
        if parent != NO_NODE:
            self._pulling.pull(parent)
            return
        for peer in self.sampling.sample(1):
            self._pulling.pull(peer)

    def neighbours_changed(self, is_loss: bool) -> None:
        """Nothing to do: a node without a parent knows it, and looks for one."""
        self.wake()

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Nothing to do: missing publications are pulled anyway."""


class Tag(Brisa):
    """TAG at one node: topics and the application are served as by BRISA."""

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return TagGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Links have no second end that would have to agree."""

    def place(self, topic: i64) -> TagList:
        """The node's place in the list and the tree of a topic."""
        group = self.group(topic)
        assert isinstance(group, TagGroup), "made as such"
        return group.place()

    def repairs(self) -> list[Repairs]:
        found: list[Repairs] = []
        for group in self._groups.values():
            assert isinstance(group, TagGroup), "made as such"
            found.append(group.place().repairs)
        return found
