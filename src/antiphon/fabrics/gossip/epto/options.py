"""How EpTO is configured, and what cannot give agreement."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.analysis import MOST_ROUNDS, Spread, published_fanout, published_ttl
from antiphon.fabrics.gossip.epto.corrections import CorrectingOrdering
from antiphon.fabrics.gossip.epto.order import KeyOrdering, Ordering
from antiphon.fabrics.gossip.epto.published import INVERTED, LATER, NOT_EARLIER, StampOrdering
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment

GLOBAL, LOGICAL = "global", "logical"
CLOCKS: Final = (GLOBAL, LOGICAL)

KEYS, STRICT = "keys", "strict"
ORDERINGS: Final = (KEYS, STRICT, "printed-ties", "printed-barrier", "printed-comparison")
"""Whole keys; stamps alone, compared strictly in both places; and three readings of the printed algorithm, which break
total order (:mod:`antiphon.fabrics.gossip.epto.published`)."""

LEAST_AGREEMENT: Final = 0.999
"""How likely it must be that an event reaches everybody for a configuration to be accepted."""


@final
class EptoOptions:
    """How all nodes of a system behave.

    ``nodes`` is how many there are, or are thought to be. A node sends what it relays to ``fanout`` others every
    ``period`` ticks, give or take ``drift`` periods; an event is relayed ``ttl`` times at most, and is delivered when
    its age is above ``ttl``, or twice that where the clock is logical. Where these are not given they follow from the
    number of nodes and the ``loss`` of the network (:func:`needed_ttl`). ``agreement`` is how likely it must be that an
    event reaches everybody; with less the options are refused.

    ``persists``: an event stays in the balls until it has been relayed ``ttl`` times. As published it leaves them in
    every round in which it does not come in again, so if all copies of the first ball are lost, so is the event.
    ``digests``: balls name events, and the payload of each comes once. ``keep`` is for how many rounds it is kept for
    others, ``patience`` for how many rounds a node waits for a payload when the event could be
    delivered, and after how many rounds in which nothing happens it falls silent. ``adapts``: period, fanout and ttl
    follow from measured delays and an estimated size; no period is shorter than ``least_period``. ``carried``: payloads
    come another way, together with publications that are no events (:mod:`antiphon.fabrics.gossip.epto.topic`).
    ``corrects``: a late event is no hole, and the listener is told its place
    (:mod:`antiphon.fabrics.gossip.epto.corrections`).
    """

    def __init__(
        self,
        nodes: i64,
        fanout: i64 = 0,
        ttl: i64 = 0,
        period: i64 = 125,
        drift: float = 0.1,
        clock: str = GLOBAL,
        ordering: str = KEYS,
        persists: bool = True,
        digests: bool = False,
        keep: i64 = 64,
        patience: i64 = 16,
        adapts: bool = False,
        loss: float = 0.0,
        agreement: float = LEAST_AGREEMENT,
        carried: bool = False,
        least_period: i64 = 1,
        corrects: bool = False,
    ) -> None:
        check_words(clock, ordering)
        if corrects and (ordering != KEYS or digests or carried):
            raise UsageError(
                "late events are corrected in the order of whole keys and if balls carry whole events; choose "
                f"ordering = {KEYS!r} and digests = false, or corrects = false"
            )
        for name, value in (
            ("period", period),
            ("keep", keep),
            ("patience", patience),
            ("least_period", least_period),
        ):
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if drift < 0:
            raise UsageError(f"drift is a share of the period and cannot be negative, not {drift}")
        self.nodes: Final[i64] = nodes
        self.fanout: Final[i64] = fanout if fanout > 0 else published_fanout(nodes)
        self.ttl: Final[i64] = ttl if ttl > 0 else needed_ttl(nodes, self.fanout, loss, persists, agreement)
        self.period: Final[i64] = period
        self.drift: Final[float] = drift
        self.clock: Final[str] = clock
        self.is_logical: Final[bool] = clock == LOGICAL
        self.ordering: Final[str] = ordering
        self.persists: Final[bool] = persists
        self.digests: Final[bool] = digests or carried
        self.keep: Final[i64] = keep
        self.patience: Final[i64] = patience
        self.adapts: Final[bool] = adapts
        self.loss: Final[float] = loss
        self.agreement: Final[float] = agreement
        self.carried: Final[bool] = carried
        self.corrects: Final[bool] = corrects
        self.least_period: Final[i64] = least_period
        self.spread: Final[Spread] = Spread(nodes, self.fanout, loss, persists)
        check_agreement(self, agreement)

    def ttl_for(self, nodes: i64, fanout: i64) -> i64:
        """The ttl for another number of nodes, where it follows from that."""
        return needed_ttl(nodes, fanout, self.loss, self.persists, self.agreement)

    def new_ordering(self, environment: Environment, topic: i64, is_founder: bool) -> Ordering:
        """The ordering component at one node."""
        if self.corrects:
            return CorrectingOrdering(environment, topic, is_founder)
        if self.ordering == KEYS:
            return KeyOrdering(environment, topic, is_founder, not self.carried)
        accepts = LATER
        if self.ordering == "printed-comparison":
            accepts = INVERTED
        elif self.ordering == "printed-ties":
            accepts = NOT_EARLIER
        return StampOrdering(environment, topic, is_founder, accepts, self.ordering == STRICT)


def check_words(clock: str, ordering: str) -> None:
    """Complain about names that nothing has."""
    if clock not in CLOCKS:
        raise UsageError(f"there is no clock {clock!r}; choose from {', '.join(CLOCKS)}")
    if ordering not in ORDERINGS:
        raise UsageError(f"there is no ordering {ordering!r}; choose from {', '.join(ORDERINGS)}")


def needed_ttl(nodes: i64, fanout: i64, loss: float, persists: bool, agreement: float) -> i64:
    """How often events are to be relayed: as published, and more often where messages are lost."""
    published = published_ttl(nodes)
    needed = Spread(nodes, fanout, loss, persists).rounds_for(agreement)
    return max(published, needed)


def check_agreement(options: EptoOptions, agreement: float) -> None:
    """Refuse a fanout and a ttl by which events do not reach everybody, and say what would."""
    reached = options.spread.stable(float(options.ttl))
    if reached >= agreement or options.nodes < 2:
        return
    about = (
        f"with fanout {options.fanout} and ttl {options.ttl} an event reaches all {options.nodes} nodes with "
        f"probability {reached:.3g}, and agreement asks for {agreement:g}"
    )
    remedies = []
    rounds = options.spread.rounds_for(agreement)
    if 0 < rounds < MOST_ROUNDS:
        remedies.append(f"ttl = {rounds}")
    fanout = needed_fanout(options, agreement)
    if fanout > 0:
        remedies.append(f"fanout = {fanout}")
    if not options.persists:
        remedies.append("persists = true")
    remedies.append(f"agreement = {floor_of(reached):g}")
    raise UsageError(f"{about}; choose {' or '.join(remedies)}")


def needed_fanout(options: EptoOptions, agreement: float) -> i64:
    """The smallest fanout that is enough with the given ttl; 0 if there is none."""
    low, high = options.fanout, options.nodes - 1
    if Spread(options.nodes, high, options.loss, options.persists).stable(float(options.ttl)) < agreement:
        return 0
    while low + 1 < high:
        middle = (low + high) // 2
        if Spread(options.nodes, middle, options.loss, options.persists).stable(float(options.ttl)) < agreement:
            low = middle
        else:
            high = middle
    return high


def floor_of(probability: float) -> float:
    """A probability that people write, not above a given one."""
    return float(int(probability * 100.0)) / 100.0


def check_period(period: i64, ttl: i64, delay: i64) -> None:
    """Refuse a period in which events are taken for stable before they have come anywhere (thesis, section 5.2.6).

    Two nodes that publish at the same time take their own events for stable after ``ttl`` periods, and must have heard
    of each other by then.
    """
    rounds = ttl - 1 if ttl > 1 else 1
    least = (delay + rounds - 1) // rounds
    if period < least:
        raise UsageError(
            f"with a period of {period} and ttl {ttl} an event counts as stable before it has arrived anywhere: "
            f"messages take {delay} ticks; choose period = {least} at least, better {delay}, "
            f"or ttl = {delay // period + 2}, or agreement = 0 to see the holes"
        )
