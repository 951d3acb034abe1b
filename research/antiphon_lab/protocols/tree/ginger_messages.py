"""The messages of Ginger as published, and which reading of its rules a system follows.

The names are those of the dissertation (chapters 3 and 4). Acknowledgements of total publications carry the
publication that they are about, which chapter 3 forgets (D1).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, Keyed, ProtocolMessage

SINGLE: Final = "single"
DIRECT: Final = "direct"
BARRIER: Final = "barrier"
READINGS: Final = (SINGLE, DIRECT, BARRIER)
"""The publications that the lock of a total one stops: see :mod:`antiphon_lab.protocols.tree.ginger_total_order`."""

LastNumbers = dict[int, int]
"""Per publisher, the number of its last publication."""


@final
class PublishedGingerOptions:
    """Which reading of the published algorithms a system follows; shared by all its brokers.

    The defaults are the listings with minimal corrections. ``total_degree`` bounds the neighbours of a broker, local
    subscriptions included; ``max_hops`` bounds its view; ``patience_ticks`` is the timer of section 4.2.4;
    ``buffer_size`` is the number of publications that a broker keeps of each topic.

    * ``blocking``: which publications a locked key stops. The text leaves it open; none of its literal readings works.
    * ``totals_overtake``: a total publication from the parent is never stopped. Part of ``barrier`` in any case.
    * ``counts_upward_moves``: entries of paths count how often they moved up. As printed a broker is told by the entry
      before it, which fails where several follow each other (D5).
    * ``ancestors_first``: the order of candidates in the text; in the log they are asked by hops (D15).
    * ``expects_most``: a child of the failed root expects the larger of siblings and free degree, as printed and
      logged; else the smaller (D18).
    * ``ends_all_synchronisations``: the end of one synchronisation ends all, as printed (D26).
    * ``drops_duplicates``: a second copy is dropped; nothing printed does that (D31).
    * ``pushes_unknown``: a new child also sends publications of publishers that are not in its parent's list (D32).
    * ``tells_completed``: a new child reports the total publications that are completed at it, as logged; the listings
      have nothing of the kind (D34).
    * ``counts_acknowledgements``: acknowledgements are counted, as logged, without regard to the sender (D39).
    * ``acknowledges_blocked``: a broker that is asked again for a total publication that it has locked acknowledges at
      once, whether all below it have locked it or not (D42).
    * ``announces_forced_topics``: a broker that must take a child subscribes to the child's topics (D46).
    * ``guards_cycles``: a broker that looks for a parent refuses to be one (D47).
    * ``answers_for_completed``: a broker that is asked again for a total publication that is completed at it answers.
      Not printed; without it a root that redoes the work of another waits for ever.
    """

    def __init__(
        self,
        order: str = "causal",
        *,
        total_degree: i64 = 3,
        max_hops: i64 = 3,
        patience_ticks: i64 = 2000,
        buffer_size: i64 = 150,
        blocking: str = BARRIER,
        totals_overtake: bool = False,
        counts_upward_moves: bool = False,
        ancestors_first: bool = False,
        expects_most: bool = False,
        ends_all_synchronisations: bool = False,
        drops_duplicates: bool = True,
        pushes_unknown: bool = True,
        tells_completed: bool = True,
        counts_acknowledgements: bool = False,
        acknowledges_blocked: bool = False,
        announces_forced_topics: bool = False,
        guards_cycles: bool = False,
        answers_for_completed: bool = False,
    ) -> None:
        if order not in ORDER_NAMES:
            raise UsageError(f"Ginger orders by {', '.join(ORDER_NAMES)}, not {order!r}; choose one of these")
        if blocking not in READINGS:
            raise UsageError(f"a lock is read as one of {', '.join(READINGS)}, not {blocking!r}; choose one of these")
        self.strength: Final[i64] = ORDER_NAMES.index(order)
        self.total_degree: Final[i64] = total_degree
        self.max_hops: Final[i64] = max_hops
        self.patience_ticks: Final[i64] = patience_ticks
        self.buffer_size: Final[i64] = buffer_size
        self.blocking: Final[str] = blocking
        self.totals_overtake: Final[bool] = totals_overtake or blocking == BARRIER
        self.counts_upward_moves: Final[bool] = counts_upward_moves
        self.ancestors_first: Final[bool] = ancestors_first
        self.expects_most: Final[bool] = expects_most
        self.ends_all_synchronisations: Final[bool] = ends_all_synchronisations
        self.drops_duplicates: Final[bool] = drops_duplicates
        self.pushes_unknown: Final[bool] = pushes_unknown
        self.tells_completed: Final[bool] = tells_completed
        self.counts_acknowledgements: Final[bool] = counts_acknowledgements
        self.acknowledges_blocked: Final[bool] = acknowledges_blocked
        self.announces_forced_topics: Final[bool] = announces_forced_topics
        self.guards_cycles: Final[bool] = guards_cycles
        self.answers_for_completed: Final[bool] = answers_for_completed


@final
@mypyc_attr(acyclic=True)
class PathEntry:
    """A broker on a path: its distance, whether its message was sent down, and how often it moved up on its way."""

    def __init__(self, address: i64, hops: i64, is_down: bool, ups: i64) -> None:
        self.address: Final[i64] = address
        self.hops: Final[i64] = hops
        self.is_down: Final[bool] = is_down
        self.ups: Final[i64] = ups

    def __repr__(self) -> str:
        return f"{self.address} h{self.hops} {'down' if self.is_down else 'up'}"


@mypyc_attr(acyclic=True)
class Subscribe(ProtocolMessage):
    """A broker on the sender's side subscribes to the topic; ``path`` names the nearest broker first (D3)."""

    def __init__(self, topic: i64, path: list[PathEntry]) -> None:
        super().__init__(0, 0, topic)
        self.path: Final[list[PathEntry]] = path


@mypyc_attr(acyclic=True)
class Register(ProtocolMessage):
    """A broker opens its channel to the parent that it was configured with."""


@mypyc_attr(acyclic=True)
class TreeViewUpdate(ProtocolMessage):
    """The neighbour ``source`` of some broker is new, or has failed; the path is the sender's knowledge of the tree."""

    def __init__(self, source: i64, has_failed: bool, child_count: i64, path: list[PathEntry]) -> None:
        super().__init__(source, 0)
        self.has_failed: Final[bool] = has_failed
        self.child_count: Final[i64] = child_count
        self.path: Final[list[PathEntry]] = path


@mypyc_attr(acyclic=True)
class Metadata(ProtocolMessage):
    """A publication; a total one is ``is_completed`` when all brokers are to deliver it."""

    def __init__(self, publication: Keyed, is_completed: bool) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.publication: Final[Keyed] = publication
        self.is_completed: Final[bool] = is_completed

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class TotalAck(ProtocolMessage):
    """All brokers below the sender have locked the keys of a total publication."""


@mypyc_attr(acyclic=True)
class TotalProcessed(ProtocolMessage):
    """A total publication is to be delivered."""


@mypyc_attr(acyclic=True)
class ParentRequest(ProtocolMessage):
    """An orphan, the source, asks for a parent that serves its topics; ``is_forced`` breaks the degree."""

    def __init__(self, source: i64, topics: list[int], is_forced: bool) -> None:
        super().__init__(source, 0)
        self.topics: Final[list[int]] = topics
        self.is_forced: Final[bool] = is_forced


@mypyc_attr(acyclic=True)
class ParentResponse(ProtocolMessage):
    """The answer to an orphan."""

    def __init__(self, source: i64, is_accepted: bool) -> None:
        super().__init__(source, 0)
        self.is_accepted: Final[bool] = is_accepted


@mypyc_attr(acyclic=True)
class RootElection(ProtocolMessage):
    """A child of the failed root, the source, reports its free degree."""

    def __init__(self, source: i64, residual_degree: i64) -> None:
        super().__init__(source, 0)
        self.residual_degree: Final[i64] = residual_degree


@mypyc_attr(acyclic=True)
class ParentBuffer(ProtocolMessage):
    """The first words of a new parent: per topic, the last publication of each publisher in its buffer."""

    def __init__(self, source: i64, last: dict[int, LastNumbers]) -> None:
        super().__init__(source, 0)
        self.last: Final[dict[int, LastNumbers]] = last


@mypyc_attr(acyclic=True)
class LostMessageRequest(ProtocolMessage):
    """The answer of a new child, per topic: publications that it needs, that its parent misses, and that are completed
    at it.

    ``needed`` has, for each publisher with missing publications, the last one that it has (D29).
    """

    def __init__(
        self,
        source: i64,
        needed: dict[int, LastNumbers],
        pushed: dict[int, list[Metadata]],
        completed: dict[int, LastNumbers],
    ) -> None:
        super().__init__(source, 0)
        self.needed: Final[dict[int, LastNumbers]] = needed
        self.pushed: Final[dict[int, list[Metadata]]] = pushed
        self.completed: Final[dict[int, LastNumbers]] = completed
