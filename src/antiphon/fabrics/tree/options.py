"""How the broker tree is configured."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import UNBOUNDED


@final
class TreeOptions:
    """How brokers behave; shared by all of a system.

    ``order`` is that of publications that name none. ``total_degree`` bounds parent and children of a broker, and
    ``max_hops`` its local view, in which it looks for a new parent by hops, ``ancestors_first``, or ``nearest_first``:
    brokers that answer first. ``patience_ticks`` is how long it waits for an answer. ``collect_ticks`` is how often the
    root finds out which items all brokers have, so that buffers can be emptied. With ``strict_session`` an ordered
    publication waits for an earlier total one of the same publisher, and for one without order that waits for a key;
    without, as in the document, it may overtake both. ``window`` is how many publications of one broker on a topic may
    be under way before hosts that can wait do so. A publication is under way until all brokers are known to have it.

    With ``quorum`` a lost broker may come back: a part of the tree without a majority of the council does not order
    totally. ``council_ticks`` is how long after a change of the tree its brokers are proposed as the council, never
    if 0. ``absence_ticks`` is how long the others keep items for a lost broker. Without a quorum failures are crashes,
    and the last living broker goes on.

    With ``quorum_delivery`` publications of every order, on all topics or on ``quorum_topics``, get a place in the
    order of the root. Brokers deliver them when a majority knows the place, so a publication is on the same side of
    each total one for all brokers. Without, brokers deliver publications of weaker orders at once.
    """

    def __init__(
        self,
        order: str = "causal",
        total_degree: i64 = 8,
        max_hops: i64 = 3,
        ancestors_first: bool = False,
        patience_ticks: i64 = 2000,
        collect_ticks: i64 = 5000,
        strict_session: bool = True,
        window: i64 = UNBOUNDED,
        quorum: bool = False,
        council_ticks: i64 = 20_000,
        absence_ticks: i64 = 1_000_000,
        nearest_first: bool = False,
        quorum_delivery: bool = False,
        quorum_topics: Collection[int] = (),
    ) -> None:
        if order not in ORDER_NAMES:
            raise UsageError(f"the broker tree orders by {', '.join(ORDER_NAMES)}, not {order!r}; choose one of these")
        if total_degree < 2:
            raise UsageError(
                f"a broker needs room for a parent and a child, so a total degree of at least 2, not {total_degree}"
            )
        if max_hops < 2:
            raise UsageError(
                f"with a view of {max_hops} hops a broker knows no other broker that it could ask for a new parent; "
                "use at least 2"
            )
        if patience_ticks < 1 or collect_ticks < 1 or council_ticks < 0 or absence_ticks < 1:
            raise UsageError("patience, collecting and absence take at least one tick, and no time is negative")
        self.strength: Final[i64] = ORDER_NAMES.index(order)
        self.total_degree: Final[i64] = total_degree
        self.max_hops: Final[i64] = max_hops
        self.ancestors_first: Final[bool] = ancestors_first
        self.patience_ticks: Final[i64] = patience_ticks
        self.collect_ticks: Final[i64] = collect_ticks
        self.strict_session: Final[bool] = strict_session
        self.window: Final[i64] = window
        self.quorum: Final[bool] = quorum
        self.council_ticks: Final[i64] = council_ticks
        self.absence_ticks: Final[i64] = absence_ticks
        self.nearest_first: Final[bool] = nearest_first
        self.quorum_delivery: Final[bool] = quorum_delivery
        self.quorum_topics: Final[frozenset[int]] = frozenset(quorum_topics)

    def needs_quorum(self, topic: i64, order: i64) -> bool:
        """Whether a publication is delivered only when a majority knows its place in the order."""
        return order == TOTAL or self.quorum_delivery or topic in self.quorum_topics
