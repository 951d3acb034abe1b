"""Walks through a scenario in the order of time, before the run, and checks the states of nodes.

Each fault, each change of a subscription and each listed publication must find its nodes in a suitable state. The
engine and the protocols accept every scenario that the walk accepts.
"""

from __future__ import annotations

from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    BesideLives,
    CrashFault,
    DiskFault,
    Fault,
    JoinFault,
    LeaveFault,
    PauseFault,
    PublishTable,
    RestartFault,
    ResumeFault,
    Scenario,
    Targeted,
)
from antiphon.simulator.scenario.subscriptions import SubscriptionChange, changes_by_time, first_members
from antiphon.simulator.scenario.toml_document import Document, Place

TRANSITIONS: dict[type[Targeted], tuple[str, tuple[str, ...], str]] = {
    CrashFault: ("crash", ("up", "paused"), "down"),
    RestartFault: ("restart", ("down",), "up"),
    PauseFault: ("pause", ("up",), "paused"),
    ResumeFault: ("resume", ("paused",), "up"),
    JoinFault: ("join", ("absent",), "up"),
    LeaveFault: ("leave", ("up",), "absent"),
}
"""By fault: its name, the states of a node in which it may happen, and the state after it."""

FAULT, CHANGE, PUBLICATION = range(3)
"""The order of events at the same tick."""


def check_states(scenario: Scenario, document: Document) -> None:
    """Raise a ScenarioError at the first event that finds a node in an unsuitable state."""
    Walk(scenario, document).go()


class Walk:
    """The states and subscriptions of all nodes at one moment."""

    def __init__(self, scenario: Scenario, document: Document) -> None:
        self._scenario = scenario
        self._document = document
        self._state_of = dict.fromkeys(scenario.absent_at_start(), "absent")
        self._has_topics = PROTOCOLS[scenario.protocol].has_topics
        # Nodes with damaged logs.
        self._refused: set[int] = set()
        self._subscribed: set[tuple[int, int]] = set()
        if self._has_topics:
            for topic, members in enumerate(first_members(scenario)):
                self._subscribed.update((node, topic) for node in members)

    def go(self) -> None:
        """Walk through all listed events."""
        scenario = self._scenario
        happenings: list[tuple[int, int, int, Fault | SubscriptionChange | PublishTable]] = [
            (fault.at, FAULT, number, fault) for number, fault in scenario.faults_by_time()
        ]
        happenings += [(change.at, CHANGE, change.number, change) for change in changes_by_time(scenario)]
        happenings += [(table.at, PUBLICATION, number, table) for number, table in enumerate(scenario.publications)]
        # Sorting is stable: equal events keep the order in which they happen.
        for _, _, number, what in sorted(happenings, key=lambda happening: happening[:2]):
            if isinstance(what, SubscriptionChange):
                self._change(what)
            elif isinstance(what, PublishTable):
                self._publish(number, what)
            elif isinstance(what, DiskFault):
                self._refused.update(what.targets(scenario.nodes) if what.what in ("lost", "flip") else ())
            elif not isinstance(what, BesideLives):
                for node in what.targets(scenario.nodes):
                    self._fail(number, what, node)

    def _fail(self, number: int, fault: Targeted, node: int) -> None:
        """Check that the state of a node suits a fault, and change it."""
        kind, suitable, following = TRANSITIONS[type(fault)]
        state = self._state_of.get(node, "up")
        if state not in suitable:
            raise self._document.error(
                ("fault", number),
                f"node {node} is {state} at time {fault.at}, but a {kind} needs a node that is {' or '.join(suitable)}"
                f"{remedy(state, suitable[0], node, fault.at)}",
            )
        if isinstance(fault, RestartFault) and node in self._refused:
            raise self._document.error(
                ("fault", number), f"the log of node {node} is damaged and is refused; let another node join instead"
            )
        if isinstance(fault, JoinFault) and fault.continues is not None:
            self._continue(number, fault, fault.continues)
        self._state_of[node] = following

    def _continue(self, number: int, fault: JoinFault, former: int) -> None:
        """Check that a node continues the disk of a crashed one that does not restart itself."""
        state = "down with a damaged log" if former in self._refused else self._state_of.get(former, "up")
        if state != "down" or fault.node is None:
            raise self._document.error(
                ("fault", number, "continues"),
                f"node {former} is {state} at time {fault.at}; a single node continues one that has crashed, and that "
                f"no other node continues; let for example come before it: at = {max(fault.at - 1, 0)}, "
                f'kind = "crash", node = {former}',
            )
        self._state_of[former] = "continued"

    def _change(self, change: SubscriptionChange) -> None:
        """Check that a subscribing node is not subscribed, and that an unsubscribing one is."""
        verb = "subscribe" if change.subscribes else "unsubscribe"
        place: Place = (verb, change.number)
        self._check_up(place, change.node, change.at, verb)
        key = (change.node, change.topic)
        if change.subscribes == (key in self._subscribed):
            already = "is subscribed to" if change.subscribes else "is not subscribed to"
            other = "unsubscribe" if change.subscribes else "subscribe"
            raise self._document.error(
                place,
                f"node {change.node} {already} topic {change.topic} at time {change.at} and cannot {verb}; let for "
                f"example come before it: [[{other}]] with at = {max(change.at - 1, 0)}, node = {change.node}, "
                f"topic = {change.topic}",
            )
        if change.subscribes:
            self._subscribed.add(key)
        else:
            self._subscribed.remove(key)

    def _publish(self, number: int, publication: PublishTable) -> None:
        """Check that a publishing node is up and, where there are topics, subscribed."""
        place: Place = ("publish", number)
        self._check_up(place, publication.node, publication.at, "publish")
        if self._has_topics and (publication.node, publication.topic) not in self._subscribed:
            raise self._document.error(
                place,
                f"node {publication.node} is not subscribed to topic {publication.topic} at time {publication.at} and "
                f"cannot publish on it; let for example come before it: [[subscribe]] with at = {publication.at}, "
                f"node = {publication.node}, topic = {publication.topic}",
            )

    def _check_up(self, place: Place, node: int, time: int, verb: str) -> None:
        state = self._state_of.get(node, "up")
        if state != "up":
            raise self._document.error(
                place, f"node {node} is {state} at time {time} and cannot {verb}{remedy(state, 'up', node, time)}"
            )


def remedy(state: str, wanted: str, node: int, time: int) -> str:
    """A fault that would bring a node from one state into another in time, as an example."""
    for kind, suitable, following in TRANSITIONS.values():
        if state in suitable and following == wanted:
            return f'; let for example come before it: at = {time}, kind = "{kind}", node = {node}'
    return f"; check the faults of node {node} before that time"
