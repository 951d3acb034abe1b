"""The search of a broker for a parent.

Follows section 4.2 of the dissertation: the children of a failed broker look for a new parent in their local view; the
children of a failed root choose its successor. Here no messages elect the next root: brokers that know the same epoch
compute the same successors (``Overlay.successors``).

A broker asks one candidate after the other. After the last it begins again, and asks to be accepted whatever the degree
of its new parent. ``attachment.py`` answers the requests.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.messages import ParentRequest, ProbeRequest, ProbeResponse
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topology import NO_EPOCH
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.process import NO_NODE, Environment

PATIENCE: Final[i64] = 1
"""The name of the timer that runs out when no candidate has answered."""

DOUBLINGS_AT_MOST: Final[i64] = 6
"""So often the time between two questions is doubled while there is no answer."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SearchEvents:
    """The search tells this to the other parts of a broker."""

    def became_root(self) -> None:
        """This broker takes over: it is the first living successor, or that one is below it."""
        raise NotImplementedError


@final
class ParentSearch:
    """Looks for a parent: in the local view first, then among all brokers."""

    def __init__(self, environment: Environment, options: TreeOptions, view: TreeView, events: SearchEvents) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._events: Final[SearchEvents] = events
        # How many brokers have been asked in all, the first of them that counts, and the one that is asked now.
        self.attempt: i64 = 0
        self._first_attempt: i64 = 1
        self._asked: i64 = NO_NODE
        # The candidates that this search has still to ask, and those that it has asked.
        self._candidates: list[int] = []
        self._tried: set[int] = set()
        self._is_forced: bool = False
        self._patience: i64 = -1
        # The number of searches, and the brokers that have answered in this one, the nearest first.
        self._searches: i64 = 0
        self._echoes: list[int] = []
        # How often its time of waiting for answers has been doubled.
        self._doublings: i64 = 0

    def begin(self) -> None:
        """Look for a parent, or become the root."""
        view = self._view
        overlay = view.overlay
        near = overlay.neighbourhood(view.me, self._options.max_hops, self._options.ancestors_first)
        others = [broker for broker in view.everybody() if broker not in near]
        mine = view.reached()
        self._candidates = [
            broker for broker in near + others if broker != view.me and broker not in mine and broker not in view.dead
        ]
        self._asked = NO_NODE
        self._tried = set()
        self._searches += 1
        self._echoes = []
        if overlay.root != NO_NODE and overlay.root not in view.dead:
            self._environment.watch(overlay.root)
        if self.consider_succession():
            return
        near = [broker for broker in near if broker in self._candidates]
        if self._options.nearest_first and len(near) > 1:
            for broker in near:
                self._environment.send(broker, ProbeRequest(view.me, self._searches))
            self._stop_asking()
            self._be_patient()
        else:
            self.ask_next()

    def consider_succession(self) -> bool:
        """Become the root if the first living successor is this broker, or below it; otherwise watch that one."""
        view = self._view
        mine = view.reached()
        if view.overlay.epoch == NO_EPOCH:
            return False
        for broker in view.overlay.successors(self._options.total_degree):
            if broker == view.me or broker in mine:
                self._become_root()
                return True
            if broker not in view.dead:
                self._environment.watch(broker)
                return False
        return False

    def _must_lead(self) -> bool:
        """Whether no other broker can become the root, although none has granted this broker a place.

        All successors may be gone, while this broker has only heard of their tree. Then it leads those that it reaches.
        If others do so too, they find each other by claims. A newcomer never leads: no root counts it yet.
        """
        view = self._view
        return view.was_counted and all(broker in view.dead for broker in view.overlay.parents)

    def _become_root(self) -> None:
        self._view.is_root = True
        self._view.is_complete = False
        self._first_attempt = self.attempt + 1
        self._stop_asking()
        self._candidates = []
        self._events.became_root()

    # Asking.

    def ask_next(self) -> None:
        """Ask the next candidate; after the last wait, and begin again, this time to be accepted in any case."""
        self._stop_asking()
        view = self._view
        mine = view.reached()
        while self._candidates:
            candidate = self._candidates.pop(0)
            if candidate not in view.dead and candidate not in mine:
                self.attempt += 1
                self._asked = candidate
                self._tried.add(candidate)
                self._environment.watch(candidate)
                self._environment.send(candidate, ParentRequest(view.me, self.attempt, self._is_forced, []))
                break
        else:
            self._is_forced = True
        self._be_patient()

    def _be_patient(self) -> None:
        self._patience = self._environment.set_timer(self._options.patience_ticks << self._doublings, PATIENCE)

    def _stop_asking(self) -> None:
        self._asked = NO_NODE
        if self._patience >= 0:
            self._environment.cancel_timer(self._patience)
            self._patience = -1

    def patience_ends(self) -> None:
        """No candidate has answered in time."""
        self._patience = -1
        if not self._view.has_place:
            if self._candidates:
                self.ask_next()
            elif self._must_lead():
                self._become_root()
            else:
                self._is_forced = True
                # Answers may take longer than expected, and asking again makes them no faster.
                self._doublings = min(self._doublings + 1, DOUBLINGS_AT_MOST)
                self.begin()

    def peer_lost(self, peer: i64) -> None:
        """A broker cannot be reached, perhaps the one that is asked, or the one that was to become the root."""
        if peer == self._asked:
            self.ask_next()
        self.consider_succession()

    def has_tried(self, broker: i64) -> bool:
        """Whether a broker was asked in this search."""
        return broker in self._tried

    def prefer(self, broker: i64) -> None:
        """Ask a broker before all others that are left."""
        self._candidates.insert(0, int(broker))

    # Answers.

    def on_probe_request(self, sender: i64, probe: ProbeRequest) -> None:
        """An orphan looks for brokers near it."""
        self._environment.send(sender, ProbeResponse(self._view.me, probe.sequence))

    def on_probe_response(self, sender: i64, echo: ProbeResponse) -> None:
        """Brokers that answer are asked for a place in the order of their answers, before all others."""
        if self._view.has_place or echo.sequence != self._searches or sender not in self._candidates:
            return
        self._candidates.remove(int(sender))
        self._echoes.append(int(sender))
        waiting = [broker for broker in self._echoes if broker not in self._tried]
        rest = [broker for broker in self._candidates if broker not in waiting]
        self._candidates = waiting + rest
        if self._asked == NO_NODE:
            self.ask_next()

    def wants(self, attempt: i64) -> bool:
        """Whether an answer to some attempt still counts.

        One that comes late is as good as any, but not one to an earlier search: much may have changed since.
        """
        return not self._view.has_place and attempt >= self._first_attempt

    def refused(self, attempt: i64) -> None:
        """The broker that was asked has no room, or no way to the root."""
        if self.wants(attempt) and attempt == self.attempt and not self.consider_succession():
            self.ask_next()

    def end(self) -> None:
        """A parent is found."""
        self._stop_asking()
        self._candidates = []
        self._is_forced = False
        self._doublings = 0
        self._first_attempt = self.attempt + 1
