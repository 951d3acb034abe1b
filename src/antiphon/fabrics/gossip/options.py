"""How BRISA is configured, and what cannot work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.messages import TREE_BITS
from antiphon.fabrics.gossip.parents import strategy_number
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.orders.order import Order
from antiphon.orders.registry import new_topic_order

MOST_TREES: Final = 1 << TREE_BITS

GOSSIP_ORDERS: Final = ORDER_NAMES
"""The orders by number; the last needs EpTO beside the structures."""


@final
class Rules:
    """Where the published rules leave races open: whether each is closed (section 4.2 of the thesis says nothing).

    ``asks_back``: a new parent says where it is, and a node that is its ancestor takes the adoption back.
    ``watches_positions``: periodic messages carry positions, so a cycle is seen although no data goes through it.
    ``detects_stalls``: a node whose neighbours are ahead while its parents are silent looks for another parent.
    ``breaks_ties``: of two nodes of equal depth only one may adopt the other, and a parent that has come to be too deep
    is given up where there is another.
    ``recovers``: missing publications are fetched from nodes that have them; messages may be lost.
    """

    def __init__(
        self,
        asks_back: bool = True,
        watches_positions: bool = True,
        detects_stalls: bool = True,
        breaks_ties: bool = True,
        recovers: bool = True,
    ) -> None:
        self.asks_back: Final[bool] = asks_back
        self.watches_positions: Final[bool] = watches_positions
        self.detects_stalls: Final[bool] = detects_stalls
        self.breaks_ties: Final[bool] = breaks_ties
        self.recovers: Final[bool] = recovers


def published_rules() -> Rules:
    """As in the thesis: links do not lose, and the races are open."""
    return Rules(False, False, False, False, False)


def rival_rules(recovers: bool = True) -> Rules:
    """For the rivals of BRISA: no trees whose races could be closed, but recovery."""
    return Rules(False, False, False, False, recovers)


class BrisaOptions:
    """How all nodes of a system behave.

    ``contacts`` are nodes through which others join; they belong to the overlay of every topic. ``parents`` is 1 for
    trees, more for graphs. A publisher has ``trees`` of its own and uses them in turn; if it is within ``reuse_depth``
    of the root of somebody else's tree it uses that one instead (0: never). Every ``period`` ticks a node tells its
    neighbours what it has; after ``patience`` periods without news it compares with a contact and falls silent.
    ``keep`` publications of each source are kept for others, more while a neighbour lacks them, at most ``buffer``.
    A publisher is at most ``window`` publications ahead of slow nodes, for each hop between them (0: it never
    waits).
    ``join_window`` spreads the joins at the start over so many ticks. ``floods`` leaves every link active.
    ``bandwidths`` are those of the nodes, one after the other and from the beginning again. No node is deeper than
    ``deepest``. ``total`` says how total order is made; without it there is none. A node that reaches no more than half
    of the nodes that it knows lets total order wait, for at most ``longest_wait`` ticks (0: never).
    """

    def __init__(
        self,
        view: HyParViewOptions | None = None,
        contacts: Sequence[int] = (0,),
        order: str = "causal",
        mixed: bool = False,
        parents: i64 = 1,
        strategy: str = "first-come",
        trees: i64 = 1,
        reuse_depth: i64 = 0,
        period: i64 = 1000,
        patience: i64 = 8,
        keep: i64 = 64,
        buffer: i64 = 1024,
        join_window: i64 = 2000,
        floods: bool = False,
        bandwidths: Sequence[int] = (),
        deepest: i64 = 64,
        rules: Rules | None = None,
        window: i64 = 0,
        total: TotalOptions | None = None,
        longest_wait: i64 = 0,
    ) -> None:
        chosen = HyParViewOptions() if view is None else view
        check_structures(chosen, parents, trees, reuse_depth)
        check_limits(period, patience, keep, buffer, window, join_window, deepest)
        offered = GOSSIP_ORDERS if total is not None else GOSSIP_ORDERS[:-1]
        if order not in offered:
            raise UsageError(f"here orders are {', '.join(offered)}, not {order!r}; choose one of these")
        if len(contacts) == 0:
            raise UsageError("nobody can join without a contact; name at least one node, for example contacts = [0]")
        self.view: Final[HyParViewOptions] = chosen
        self.contacts: Final[list[i64]] = [i64(contact) for contact in contacts]
        self.order: Final[str] = order
        self.strength: Final[i64] = GOSSIP_ORDERS.index(order)
        self.mixed: Final[bool] = mixed
        # Where all publications have the same weaker order there are no total ones.
        self.total: Final[TotalOptions | None] = total if mixed or self.strength == TOTAL else None
        self.orders: Final[list[str]] = list(GOSSIP_ORDERS if self.total is not None else GOSSIP_ORDERS[:-1])
        self.parents: Final[i64] = parents
        self.is_graph: Final[bool] = parents > 1
        self.strategy: Final[i64] = strategy_number(strategy)
        self.trees: Final[i64] = trees
        self.reuse_depth: Final[i64] = reuse_depth
        self.period: Final[i64] = period
        self.patience: Final[i64] = patience
        self.keep: Final[i64] = keep
        self.buffer: Final[i64] = buffer
        self.join_window: Final[i64] = join_window
        self.floods: Final[bool] = floods
        self.bandwidths: Final[list[i64]] = [i64(bandwidth) for bandwidth in bandwidths]
        self.deepest: Final[i64] = deepest
        self.window: Final[i64] = window
        self.longest_wait: Final[i64] = longest_wait
        self.rules: Final[Rules] = Rules() if rules is None else rules

    def new_order(self, me: i64) -> Order:
        """An order of the chosen kind for one topic at one node."""
        return new_topic_order(me, self.strength, self.mixed or self.strength == TOTAL, False)

    def bandwidth_of(self, node: i64) -> i64:
        """The bandwidth of a node; 1 where none are given."""
        return 1 if len(self.bandwidths) == 0 else self.bandwidths[node % len(self.bandwidths)]


def check_limits(
    period: i64, patience: i64, keep: i64, buffer: i64, window: i64, join_window: i64, deepest: i64
) -> None:
    """Complain about times and sizes that leave nothing to work with."""
    for name, value in (("period", period), ("patience", patience), ("keep", keep), ("deepest", deepest)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if buffer < keep:
        raise UsageError(f"a buffer of {buffer} cannot keep {keep} publications; choose at least {keep}")
    if not 0 <= window <= buffer:
        raise UsageError(
            f"a window of {window} lets publishers be further ahead than a buffer of {buffer} holds; choose a "
            f"window from 0 to {buffer}"
        )
    if join_window < 0:
        raise UsageError(f"join_window is a number of ticks and cannot be negative, not {join_window}")


def check_structures(view: HyParViewOptions, parents: i64, trees: i64, reuse_depth: i64) -> None:
    """Complain about structures that cannot emerge."""
    if not 1 <= parents <= view.active:
        raise UsageError(
            f"with an active view of {view.active} a node can have from 1 to {view.active} parents, not {parents}"
        )
    if not 1 <= trees <= MOST_TREES:
        raise UsageError(f"a publisher has from 1 to {MOST_TREES} trees, not {trees}")
    if reuse_depth < 0:
        raise UsageError(f"reuse_depth is a number of hops and cannot be negative, not {reuse_depth}")
    if trees > 1 and reuse_depth > 0:
        raise UsageError(
            "trees that share a stream must stay apart, and reuse would put them together; choose trees = 1 or "
            "reuse_depth = 0"
        )
    if reuse_depth > 0 and parents > 1:
        raise UsageError("a publication goes up a tree and not up a graph; choose parents = 1 or reuse_depth = 0")
