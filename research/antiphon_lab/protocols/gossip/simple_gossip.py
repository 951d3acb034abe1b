"""SimpleGossip: rumours that are pushed once, and anti-entropy for nodes that miss them.

The rival of BRISA at the robust end (thesis of M. Matos, section 4.3.5). There is no structure at all. Views are those
of Cyclon (:mod:`antiphon.fabrics.gossip.sampling.cyclon`). A node that gets a publication for the first time pushes it
to ``fanout`` nodes of its view, and never again (infect and die); with a fanout of ``ln n`` that reaches almost all.
Every period each node asks one node of its view for missing publications
(:mod:`antiphon_lab.protocols.gossip.pulling`); the thesis does that at twice the rate of publications. Answers are not
pushed.

Open points of the thesis: the fanout is rounded up; an answer has at most ``batch`` publications. Silence, newcomers
and publications that no node has any more are as for BRISA (:mod:`antiphon.fabrics.gossip.topic`). A silent node asks
no other, so it learns of missing publications from nodes that ask it; ``patience`` must be long enough that each is
asked. But links have one direction, and a node may be in no view. So the contact with which a node compared before it
fell silent remembers it, and calls it when there is something new; if that contact fails, the node compares with
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.gossip.messages import NOWHERE, Comparison, Data
from antiphon.fabrics.gossip.options import BrisaOptions, rival_rules
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.cyclon import Cyclon, CyclonOptions
from antiphon.fabrics.gossip.sampling.service import Connections, PeerSampling
from antiphon.fabrics.gossip.seeds import Seeds
from antiphon.fabrics.gossip.stream import Stream
from antiphon.fabrics.gossip.topic import Group
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment
from antiphon_lab.protocols.gossip.pulling import Pull, Pulling

FEWEST_ROUNDS: Final = 20
"""The least number of periods of anti-entropy without news before a node falls silent. The probability that no node has
asked a certain one by then, and it sleeps through a rumour, is about ``exp(-FEWEST_ROUNDS)``.
"""


CONNECTED: Final = 0.99

MOST_CALLS: Final = 16
"""So often a contact calls a node that fell silent; it may have failed."""


def usual_fanout(nodes: int) -> int:
    """The natural logarithm of the number of nodes, rounded up (thesis, section 4.3.5)."""
    return max(1, ceil(log(nodes)))


def needed_view(nodes: int) -> int:
    """How many others each must know for a random overlay to hold together with probability 0.99 (section 2.3.3).

    With ``ln n + k`` random links each it does with probability ``exp(-exp(-k))``.
    """
    return max(1, min(nodes - 1, ceil(log(nodes) - log(-log(CONNECTED)))))


class SimpleGossipOptions(BrisaOptions):
    """Each receiver of a rumour sends it to ``fanout`` nodes; each question gets at most ``batch`` publications."""

    def __init__(
        self,
        cyclon: CyclonOptions,
        fanout: i64,
        batch: i64 = 16,
        contacts: Sequence[int] = (0,),
        order: str = "fifo",
        mixed: bool = False,
        period: i64 = 100,
        patience: i64 = 2 * FEWEST_ROUNDS,
        keep: i64 = 256,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
    ) -> None:
        if fanout < 1:
            raise UsageError(
                f"with a fanout of {fanout} no rumour spreads; choose at least 1, for example the logarithm "
                "of the number of nodes"
            )
        if fanout > cyclon.size:
            raise UsageError(
                f"from a view of {cyclon.size} no {fanout} nodes can be drawn; choose a view of at least {fanout}, or "
                f"a fanout of at most {cyclon.size}"
            )
        if batch < 1:
            raise UsageError(f"answers with {batch} publications mend nothing; choose a batch of at least 1")
        if patience < FEWEST_ROUNDS:
            raise UsageError(
                f"after {patience} rounds of anti-entropy some nodes may not have been asked; choose a patience "
                f"of at least {FEWEST_ROUNDS}"
            )
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
            rules=rival_rules(),
        )
        self.cyclon: Final[CyclonOptions] = cyclon
        self.fanout: Final[i64] = fanout
        self.batch: Final[i64] = batch


class Rumours(Trees):
    """Rumours: pushed on to nodes that are drawn, once."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: SimpleGossipOptions,
        sampling: PeerSampling,
        streams: dict[i64, Stream],
    ) -> None:
        super().__init__(environment, topic, options, sampling.neighbours(), streams)
        self._sampling: Final[PeerSampling] = sampling
        self._fanout: Final[i64] = options.fanout
        # Whether something arrived since the last check.
        self.has_news: bool = False

    def begin(self, publication: Publication) -> None:
        self.has_news = True
        data = Data(publication, -1, NOWHERE, False)
        for peer in self._sampling.sample(self._fanout):
            self._environment.send(peer, data)

    def on_data(self, sender: i64, data: Data, is_new: bool) -> None:
        if is_new:
            self.has_news = True
            for peer in self._sampling.sample(self._fanout):
                self._environment.send(peer, data)

    def on_fetch_response(self, publication: Publication, sender: i64, reused: i64) -> None:
        """Nothing to do: an answer is not a rumour."""
        self.has_news = True


class RumourGroup(Group):
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
        # At a contact: nodes that fell silent after they compared with it; nodes to be told, and the number of
        # attempts; by node its last question.
        self._sleepers: Final[set[i64]] = set()
        self._to_wake: Final[dict[i64, i64]] = {}
        self._asked: Final[dict[i64, i64]] = {}
        # The contact with which this node compared last.
        self._keeper: i64 = NO_NODE
        self._links: Final[Connections] = connections
        super().__init__(environment, topic, options, connections, seeds, born)
        assert isinstance(options, SimpleGossipOptions), "made with them"
        self._pulling: Final = Pulling(environment, topic, self.streams, self._quiescence, options.batch)

    def new_sampling(self, connections: Connections) -> PeerSampling:
        options = self._options
        assert isinstance(options, SimpleGossipOptions), "made with them"
        return Cyclon(self._environment, self.topic, connections, self, options.cyclon)

    def new_trees(self) -> Trees:
        options = self._options
        assert isinstance(options, SimpleGossipOptions), "made with them"
        return Rumours(self._environment, self.topic, options, self.sampling, self.streams)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Pull):
            if self.is_synchronised:
                self._on_pull(sender, message)
        else:
            super().receive(sender, message)

    def tell_neighbours(self) -> None:
        for peer in self.sampling.sample(1):
            self._pulling.pull(peer)
        if self._seeds.includes_me:
            self._call_sleepers()

    # Silent nodes.

    def compared(self, sender: i64, message: Comparison) -> None:
        if self._seeds.includes_me and not message.is_answer:
            self._sleepers.add(sender)
            self._asked[sender] = max(message.question, self._asked.get(sender, 0))
        elif message.is_answer:
            self._keep(sender)
        super().compared(sender, message)

    def _keep(self, contact: i64) -> None:
        """Watch the contact that is to call this node; if it fails, another one has to."""
        if contact != self._keeper:
            self._links.hold(contact)
            if self._keeper != NO_NODE:
                self._links.release(self._keeper)
            self._keeper = contact

    def link_lost(self, peer: i64) -> None:
        """A link is broken; perhaps that to the contact that was to call this node."""
        self.sampling.lost(peer)
        if peer == self._keeper:
            self.wake()

    def _on_pull(self, sender: i64, pull: Pull) -> None:
        # A pull that is older than the sender's last question does not show that it got the call: it was awake when it
        # sent the pull, but may sleep now.
        if sender in self._to_wake and pull.questions >= self._asked.get(sender, 0):
            del self._to_wake[sender]
            if pull.is_silent:
                self._sleepers.add(sender)
        self._pulling.on_pull(sender, pull)

    def _call_sleepers(self) -> None:
        """Let sleeping nodes ask: they wake up if there is something for them."""
        trees = self.trees
        assert isinstance(trees, Rumours), "made as such"
        if trees.has_news:
            trees.has_news = False
            for sleeper in sorted(self._sleepers):
                self._to_wake[sleeper] = 0
            self._sleepers.clear()
        for peer in list(self._to_wake):
            self._pulling.call(peer)
            self._to_wake[peer] += 1
            if self._to_wake[peer] >= MOST_CALLS:
                del self._to_wake[peer]
                self._asked.pop(peer, None)

    def neighbours_changed(self, is_loss: bool) -> None:
        """Views change all the time."""

    def notice_gap(self, sender: i64, stream: Stream) -> None:
        """Gaps are for anti-entropy to fill."""


class SimpleGossip(Brisa):
    """SimpleGossip at one node: topics and the application are served as by BRISA."""

    def new_group(self, topic: i64) -> Group:
        now = self.environment.now()
        return RumourGroup(self.environment, topic, self.options, self.connections, self.seeds, now)

    def mistaken_for_neighbour(self, sender: i64, topic: i64) -> None:
        """Links have no second end that would have to agree."""
