"""Finds out whether a node reaches most of the nodes that it knows; while it does not, total order waits there.

Parts of a network that order without each other cannot agree later: what one part has published is too late for the
other (:mod:`antiphon.fabrics.gossip.epto.order`). So a node that finds itself with the fewer of its neighbours,
or with half of them, gives no stamps and delivers nothing in total order for a while. When the parts are together again
it gets what it lacks first, and goes on after that. A cut that is shorter than ``longest`` makes no holes, but for what
was under way when it began. After ``longest`` a node goes on with those that it reaches: none waits for ever.

A neighbour is *reached* when it has confirmed what this node sent not long ago: periodic messages say which of them
came last from the other end. So links that carry one direction only are found out too. Neighbours whose links broke
count as missing until they are heard of again. A node that misses a neighbour asks other nodes that it knows as well,
so that the few links it has do not decide alone on which side it is.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.parents import LinkMeasurements
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.fabrics.gossip.stream import Stream
from antiphon.kernel.process import Environment

PROBE_PERIODS: Final = 3
"""After so many periods without a confirmation a neighbour is asked for one."""

SILENT_PERIODS: Final = 5
"""After so many it counts as missing."""

GRACE_PERIODS: Final = 8
"""So many periods at least a node that was apart goes on waiting, to hear of what it missed first."""

LONGEST_GRACE_PERIODS: Final = 40
"""So many at most, though something is still missing: perhaps nobody has it."""

SURVEYED: Final = 16
"""So many nodes that are no neighbours are asked when a neighbour is missing."""


@final
class Reach:
    """The nodes that one node reaches in one topic. Times are those of its own clock; ``longest`` is in ticks."""

    def __init__(self, period: i64, longest: i64) -> None:
        self._period: Final[i64] = period
        self._longest: Final[i64] = longest
        # By neighbour when something was sent that it has confirmed; when links broke.
        self._confirmed: Final[dict[i64, i64]] = {}
        self._lost: Final[dict[i64, i64]] = {}
        # Nodes that are no neighbours and were asked: since when, and whether they have answered.
        self._surveyed: Final[dict[i64, i64]] = {}
        self._answered: Final[set[i64]] = set()
        self._survey_at: i64 = -1
        # Nodes that this one knew when a link broke: it forgets them when it finds that it does not reach them.
        self._known: list[i64] = []
        self.wants_survey: bool = False
        self._awake_since: i64 = 0
        # Since when most are missing, and since when they are not any more; -1 for never.
        self._apart_since: i64 = -1
        self._together_since: i64 = -1
        self._polls: i64 = 0
        self.must_wait: bool = False

    def woke(self, now: i64) -> None:
        """Neighbours may have been silent because there was nothing to say."""
        self._awake_since = now
        self._apart_since = -1
        self._together_since = -1
        self.must_wait = False

    def neighbour_up(self, peer: i64, now: i64) -> None:
        """A node has become a neighbour: it has been heard of."""
        self._confirmed[peer] = now
        self._lost.pop(peer, None)
        self._surveyed.pop(peer, None)

    def neighbour_down(self, peer: i64) -> None:
        """It is no neighbour any more."""
        self._confirmed.pop(peer, None)

    def link_lost(self, peer: i64, now: i64, known: list[i64]) -> None:
        """The link to a neighbour has broken; these others are known."""
        self._lost[peer] = now
        if len(self._known) == 0 and self._is_survey_due(now):
            self._known = known

    def _is_survey_due(self, now: i64) -> bool:
        return self._survey_at < 0 or now - self._survey_at > self._longest

    def confirmed(self, peer: i64, sent_at: i64) -> None:
        """A node has confirmed what was sent to it at a time."""
        if len(self._lost) > 0:
            self._lost.pop(peer, None)
        if peer in self._surveyed:
            self._answered.add(peer)
        if sent_at > self._confirmed.get(peer, sent_at):
            self._confirmed[peer] = sent_at

    def poll(self, now: i64, links: dict[i64, LinkMeasurements], is_behind: bool) -> list[i64]:
        """A period has passed: see which nodes are missing. The answer lists those to ask for a sign of life."""
        self._polls += 1
        missing: i64 = 0
        doubtful: list[i64] = []
        for peer, link in links.items():
            known_at = max(self._confirmed.get(peer, 0), self._awake_since)
            silent_for = now - known_at - max(0, link.round_trip)
            if silent_for > PROBE_PERIODS * self._period:
                doubtful.append(peer)
            if silent_for > SILENT_PERIODS * self._period:
                missing += 1
        others_reached, others_missing = self._count_others(now, doubtful)
        reached = len(links) - missing + others_reached
        missing += others_missing
        self.wants_survey = missing > 0 and self._is_survey_due(now)
        self._decide(now, missing > reached, is_behind)
        return doubtful

    def _count_others(self, now: i64, doubtful: list[i64]) -> tuple[i64, i64]:
        """How many are reached, and how many missing, of those that were neighbours or were surveyed."""
        reached: i64 = 0
        missing: i64 = 0
        asks = self._polls % PROBE_PERIODS == 0
        for peer, lost_at in list(self._lost.items()):
            if now - lost_at > self._longest:
                del self._lost[peer]
                continue
            missing += 1
            if asks:
                doubtful.append(peer)
        for peer, asked_at in list(self._surveyed.items()):
            if now - asked_at > self._longest:
                del self._surveyed[peer]
            elif peer in self._answered:
                reached += 1
            else:
                missing += 1 if now - asked_at > SILENT_PERIODS * self._period else 0
                if asks:
                    doubtful.append(peer)
        return reached, missing

    def survey(self, peers: list[i64], now: i64) -> list[i64]:
        """Other nodes are to show on which side this one is; the answer lists those to ask."""
        self._survey_at = now
        self.wants_survey = False
        others = [*self._known, *[peer for peer in peers if peer not in self._known]]
        asked = [peer for peer in others if peer not in self._confirmed and peer not in self._lost]
        self._known = []
        self._surveyed.clear()
        self._answered.clear()
        for peer in asked:
            self._surveyed[peer] = now
        return asked

    def _decide(self, now: i64, is_apart: bool, is_behind: bool) -> None:
        if is_apart:
            self._together_since = -1
            if self._apart_since < 0:
                self._apart_since = now
        elif self._apart_since >= 0:
            if self._together_since < 0:
                self._together_since = now
            together_for = now - self._together_since
            has_caught_up = together_for > GRACE_PERIODS * self._period and not is_behind
            if has_caught_up or together_for > LONGEST_GRACE_PERIODS * self._period:
                self._apart_since = -1
                self._together_since = -1
        grace = LONGEST_GRACE_PERIODS * self._period if self._together_since >= 0 else 0
        self.must_wait = self._apart_since >= 0 and now - self._apart_since <= self._longest + grace


@final
class PartitionGuard:
    """Lets total order wait on one topic while this node is apart from most others, and until it has what it missed."""

    def __init__(
        self,
        environment: Environment,
        reach: Reach,
        overlay: PeerSampling,
        links: dict[i64, LinkMeasurements],
        streams: dict[i64, Stream],
        delivery: GossipDelivery,
        longest_wait: i64,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._reach: Final[Reach] = reach
        self._overlay: Final[PeerSampling] = overlay
        self._links: Final[dict[i64, LinkMeasurements]] = links
        self._streams: Final[dict[i64, Stream]] = streams
        self._delivery: Final[GossipDelivery] = delivery
        self._may_wait: Final[bool] = longest_wait > 0 and delivery.has_total_order()

    def link_lost(self, peer: i64) -> None:
        """The link to a neighbour has broken."""
        if self._may_wait:
            self._reach.link_lost(peer, self._environment.now(), self._overlay.sample(SURVEYED))

    def period_passed(self) -> None:
        """See which nodes are reached, ask the doubtful ones, and let total order wait or go on."""
        if not self._may_wait:
            return
        is_behind = False
        if self._reach.must_wait:
            for stream in self._streams.values():
                is_behind = is_behind or stream.is_missing()
        now = self._environment.now()
        doubtful = self._reach.poll(now, self._links, is_behind)
        if self._delivery.may_probe():
            if self._reach.wants_survey:
                doubtful.extend(self._reach.survey(self._overlay.sample(SURVEYED), now))
            self._delivery.probe(doubtful)
        self._delivery.hold(self._reach.must_wait)
