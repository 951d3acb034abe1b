"""Why a node delivered a message when it did: what it waited for, where, how long, and what made that late.

A node holds a message until everything that the message follows has been delivered there. So the delivery just before
the end of the wait, of a message that this one follows, is the cause; why that one was late is asked again. At the end
of the chain stands a copy that travelled slowly, stood in a queue, was lost and sent again, or was published late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from antiphon.console.diagram.cones import TopicHistory
from antiphon.console.diagram.run_index import DELIVER, DROP, NOTHING, RECEIVE, Numbers, RunIndex
from antiphon.console.diagram.words import DiagramWords

DEPTH_AT_MOST: Final = 8
"""So long a chain of waits is told."""

SLOW: Final = 2.0
"""A copy is slow that takes so many times as long as half of all copies at most take."""

CLOSE_TICKS: Final = 2_000
"""Where arrivals are not recorded, deliveries of live nodes so close to each other count as released together."""


@dataclass(frozen=True)
class Hop:
    """One copy on the way of a message: both ends, and the times of sending and arriving."""

    sender: int
    receiver: int
    sent: int
    arrived: int
    queued: int
    """How long the copy stood in the output queue."""

    @property
    def took(self) -> int:
        """The whole time of the copy."""
        return self.arrived - self.sent


@dataclass
class WaitStep:
    """One sentence of an explanation, and the place in the diagram that it is about."""

    text: str
    node: int
    begin: int
    end: int
    topic: int
    source: int
    sequence: int


@dataclass
class Explanation:
    """The steps of an explanation, and the hops of the message itself."""

    steps: list[WaitStep] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)


class WaitExplainer:
    """Explains the deliveries of one run."""

    def __init__(self, run: RunIndex) -> None:
        self._run = run
        self._words = DiagramWords(run.about)
        self._topics: dict[int, TopicHistory] = {}
        self._usual: int | None = None
        self._sends: tuple[Numbers, Numbers] | None = None

    def history(self, topic: int) -> TopicHistory:
        """The deliveries of a topic."""
        if topic not in self._topics:
            self._topics[topic] = TopicHistory(self._run, topic)
        return self._topics[topic]

    def explain(self, delivery: int) -> Explanation:
        """Why a delivery came when it did."""
        found = Explanation(hops=self.hops(delivery))
        self._tell(delivery, found, 0)
        return found

    def explain_waiting(self, arrival: int) -> Explanation:
        """Why a node never delivered a message that it received."""
        found = Explanation()
        self._tell_waiting(arrival, found, 0)
        return found

    def _tell_waiting(self, arrival: int, found: Explanation, depth: int) -> None:
        run, words = self._run, self._words
        node, name = int(run.node[arrival]), words.message(run, arrival)
        topic, source, sequence = int(run.topic[arrival]), int(run.source[arrival]), int(run.sequence[arrival])
        places = run.waiting[0] == arrival
        until = int(run.waiting[1][places][0]) if places.any() else run.last_time
        waited = words.duration(until - int(run.time[arrival]))
        cause = self._undelivered_before(arrival)
        begin = f"Node {node} had {name} for {waited} and never delivered it"
        if cause == NOTHING:
            text = f"{begin}; the trace does not show what it waited for."
        else:
            text = f"{begin}: it follows {words.message(run, cause)}, which was not delivered there."
        found.steps.append(WaitStep(text, node, int(run.time[arrival]), until, topic, source, sequence))
        if cause == NOTHING or depth >= DEPTH_AT_MOST:
            return
        arrivals = self._arrivals(int(run.message[cause]), node)
        if len(arrivals):
            self._tell_waiting(int(arrivals[0]), found, depth + 1)
            return
        lost = [row for row in run.rows_of(int(run.message[cause]), DROP) if int(run.node[row]) == node]
        what = words.message(run, cause)
        text = f"{what[0].upper()}{what[1:]} never arrived at node {node}."
        if lost:
            row = int(lost[0])
            reason = run.reason_names[int(run.reason[row])] if run.reason[row] >= 0 else "lost"
            text = f"{text[:-1]}: the copy from node {int(run.peer[row])} was dropped ({reason})."
        at = int(run.time[lost[0]]) if lost else int(run.time[cause])
        name_of = run.name_of(cause)
        found.steps.append(
            WaitStep(text, node, int(run.time[cause]), at, name_of.topic, name_of.source, name_of.sequence)
        )

    def _undelivered_before(self, arrival: int) -> int:
        """The birth of the last message that another one follows and that its receiver never delivered."""
        run = self._run
        birth = run.birth_of(int(run.message[arrival]))
        order = self._order_of(birth) if birth != NOTHING else ""
        order = order or self._order_of(arrival)
        if birth == NOTHING or order == "none":
            return NOTHING
        history = self.history(int(run.topic[arrival]))
        publisher = history.rows_at(int(run.node[birth]))
        seen = publisher[: np.searchsorted(publisher, birth)]
        if order == "fifo":
            seen = seen[run.source[seen] == run.source[arrival]]
        here = history.rows_at(int(run.node[arrival]))
        missing = seen[~np.isin(run.message[seen], run.message[here]) & (run.source[seen] != run.node[arrival])]
        return run.birth_of(int(run.message[missing[-1]])) if len(missing) else NOTHING

    # The chain of waits.

    def _tell(self, delivery: int, found: Explanation, depth: int) -> None:
        run, words = self._run, self._words
        node, message = int(run.node[delivery]), int(run.message[delivery])
        birth = run.birth_of(message)
        name = words.message(run, delivery)
        if node == int(run.source[delivery]):
            self._add(found, delivery, f"Node {node} published {name} itself.", birth)
            return
        if not run.has_copies:
            self._tell_without_arrivals(delivery, birth, found, depth)
            return
        held = int(run.held[delivery])
        if held <= 0:
            self._add(found, delivery, f"Node {node} delivered {name} as soon as it arrived.", delivery)
            self._tell_journey(delivery, birth, found)
            return
        arrival = int(self._arrivals(message, node)[0])
        blocker = self._blocker(delivery, birth, arrival)
        if blocker == NOTHING:
            text = f"Node {node} held {name} for {words.duration(held)}; the trace does not show what it waited for."
            self._add(found, delivery, text, arrival)
            return
        other = words.message(run, blocker)
        why = "it follows" if self._follows(blocker, birth, delivery) else "the total order has before it"
        text = f"Node {node} held {name} for {words.duration(held)}: {why} {other}."
        self._add(found, delivery, text, arrival)
        if depth < DEPTH_AT_MOST:
            self._tell_lateness(blocker, found, depth + 1)

    def _tell_lateness(self, delivery: int, found: Explanation, depth: int) -> None:
        """Why the cause of a wait was late itself."""
        if int(self._run.held[delivery]) > 0:
            self._tell(delivery, found, depth)
        else:
            self._tell_journey(delivery, self._run.birth_of(int(self._run.message[delivery])), found)

    def _tell_without_arrivals(self, delivery: int, birth: int, found: Explanation, depth: int) -> None:
        """A trace of deliveries alone shows what was released together, and not what had arrived."""
        run, words = self._run, self._words
        node, name = int(run.node[delivery]), words.message(run, delivery)
        if birth == NOTHING:
            text = f"Node {node} delivered {name}; the trace of its publisher is missing."
            self._add(found, delivery, text, delivery)
            return
        took = int(run.time[delivery] - run.time[birth])
        blocker = self._blocker(delivery, birth, birth)
        close = CLOSE_TICKS if words.is_live else 0
        is_close = blocker != NOTHING and int(run.time[delivery] - run.time[blocker]) <= min(close, took // 4)
        if not is_close:
            text = f"Node {node} delivered {name} {words.duration(took)} after it was published."
            self._add(found, delivery, text, birth)
            return
        text = (
            f"Node {node} delivered {name} {words.duration(took)} after it was published, at once behind "
            f"{words.message(run, blocker)}, which it follows: it probably waited for that one."
        )
        self._add(found, delivery, text, birth)
        if depth < DEPTH_AT_MOST:
            self._tell_without_arrivals(blocker, run.birth_of(int(run.message[blocker])), found, depth + 1)

    def _blocker(self, delivery: int, birth: int, since: int) -> int:
        """The delivery that ended a wait: the last one before it, since the arrival, of a message that this follows."""
        run = self._run
        rows = self.history(int(run.topic[delivery])).rows_at(int(run.node[delivery]))
        between = rows[np.searchsorted(rows, since) : np.searchsorted(rows, delivery)][::-1]
        is_total = self._order_of(delivery) == "total"
        for row in between[:2_000]:
            if self._follows(int(row), birth, delivery):
                return int(row)
        return int(between[0]) if is_total and len(between) else NOTHING

    def _follows(self, earlier: int, birth: int, delivery: int) -> bool:
        """Whether a message must come behind another one: of the same publisher, or known to its publisher."""
        run = self._run
        order = self._order_of(delivery)
        is_same_source = run.source[earlier] == run.source[delivery]
        if is_same_source and run.sequence[earlier] < run.sequence[delivery]:
            return order != "none"
        if birth == NOTHING or order in {"fifo", "none"}:
            return False
        history = self.history(int(run.topic[delivery]))
        return history.precedes(int(run.message[earlier]), birth)

    def _order_of(self, row: int) -> str:
        number = int(self._run.order[row])
        return self._run.order_names[number] if number >= 0 else ""

    # The journey of a copy.

    def _tell_journey(self, delivery: int, birth: int, found: Explanation) -> None:
        """Explain why a message that was not held came late: the slowest part of its way."""
        run, words = self._run, self._words
        node, name = int(run.node[delivery]), words.message(run, delivery)
        lost = [row for row in run.rows_of(int(run.message[delivery]), DROP) if int(run.node[row]) == node]
        if lost:
            row = int(lost[0])
            reason = run.reason_names[int(run.reason[row])] if run.reason[row] >= 0 else "lost"
            text = f"A copy of {name} from node {int(run.peer[row])} to node {node} was dropped: {reason}."
            self._add(found, delivery, text, row)
        hops = self.hops(delivery)
        if not hops or birth == NOTHING:
            return
        slowest = max(hops, key=lambda hop: hop.took)
        took = int(run.time[delivery] - run.time[birth])
        link = f"from node {slowest.sender} to node {slowest.receiver}"
        usual = self.usual_ticks()
        if slowest.queued * 2 > slowest.took:
            text = (
                f"On its way, {name} stood {words.duration(slowest.queued)} in the output queue of node "
                f"{slowest.sender}."
            )
        elif usual and slowest.took > SLOW * usual:
            text = (
                f"{name[0].upper()}{name[1:]} was on a slow link: {words.duration(slowest.took)} {link}, where "
                f"{words.duration(usual)} is usual."
            )
        elif len(hops) > 1:
            text = f"{name[0].upper()}{name[1:]} came over {len(hops)} links in {words.duration(took)}."
        else:
            text = f"{name[0].upper()}{name[1:]} took {words.duration(slowest.took)} {link}, which is usual."
        self._add(found, delivery, text, self._row_at(slowest.sent), slowest)

    def hops(self, delivery: int) -> list[Hop]:
        """The way of a message to a node: the copies that brought it, from its publisher on."""
        run = self._run
        message, node = int(run.message[delivery]), int(run.node[delivery])
        found: list[Hop] = []
        seen: set[int] = set()
        while run.has_copies and node != int(run.source[delivery]) and node not in seen:
            seen.add(node)
            arrivals = self._arrivals(message, node)
            if not len(arrivals):
                break
            arrival = int(arrivals[0])
            sender = int(run.peer[arrival])
            send = self._send_of(arrival)
            if send == NOTHING:
                break
            queued = max(0, int(run.value[send]))
            found.append(Hop(sender, node, int(run.time[send]), int(run.time[arrival]), queued))
            node = sender
        return found[::-1]

    def _arrivals(self, message: int, node: int) -> Numbers:
        run = self._run
        rows = run.rows_of(message, RECEIVE)
        found: Numbers = rows[(run.node[rows] == node) & (run.carried[rows] > 0)]
        return found

    def _send_of(self, arrival: int) -> int:
        if self._sends is None:
            copies = self._run.copies
            order = np.argsort(copies.arrival, kind="stable")
            self._sends = copies.arrival[order], copies.send[order]
        arrivals, sends = self._sends
        place = int(np.searchsorted(arrivals, arrival))
        return int(sends[place]) if place < len(arrivals) and arrivals[place] == arrival else NOTHING

    def usual_ticks(self) -> int:
        """The time of half of all copies at most."""
        if self._usual is None:
            copies = self._run.copies
            arrived = copies.carries & (copies.arrival >= 0) & ~copies.is_lost
            times = self._run.time[copies.arrival[arrived]] - self._run.time[copies.send[arrived]]
            self._usual = int(np.median(times)) if len(times) else 0
        return self._usual

    def _row_at(self, time: int) -> int:
        return min(int(np.searchsorted(self._run.time, time)), len(self._run) - 1)

    def _add(self, found: Explanation, delivery: int, text: str, since: int, hop: Hop | None = None) -> None:
        run = self._run
        name = run.name_of(delivery)
        begin = int(run.time[max(since, 0)]) if hop is None else hop.sent
        end = int(run.time[delivery]) if hop is None else hop.arrived
        found.steps.append(WaitStep(text, int(run.node[delivery]), begin, end, name.topic, name.source, name.sequence))


def about_message(run: RunIndex, explainer: WaitExplainer, message: int, node: int | None) -> dict[str, Any]:
    """Everything that the page shows of one message, seen from a node: by default where it waited longest."""
    deliveries = run.rows_of(message, DELIVER)
    birth = run.birth_of(message)
    row = birth if birth != NOTHING else int(deliveries[0]) if len(deliveries) else NOTHING
    if row == NOTHING:
        return {"found": False}
    name = run.name_of(row)
    rows, until = run.waiting
    waits = [(int(each), int(end)) for each, end in zip(rows, until, strict=True) if run.message[each] == message]
    chosen = chosen_delivery(run, deliveries, node)
    # A wait without an end says more than one that ended.
    unfinished = [each for each, _ in waits if node is None or int(run.node[each]) == node]
    if unfinished and (node is None or chosen == NOTHING):
        chosen = unfinished[0]
        explanation = explainer.explain_waiting(chosen)
    else:
        explanation = Explanation() if chosen == NOTHING else explainer.explain(chosen)
    history = explainer.history(name.topic)
    past = {} if birth == NOTHING else history.past(birth)
    future = {} if birth == NOTHING else history.future(message, birth)
    return {
        "found": True,
        "topic": name.topic,
        "source": name.source,
        "sequence": name.sequence,
        "message": message,
        "published": None if birth == NOTHING else int(run.time[birth]),
        "seen_from": None if chosen == NOTHING else int(run.node[chosen]),
        "deliveries": [
            {
                "node": int(run.node[each]),
                "time": int(run.time[each]),
                "held": int(run.held[each]),
                "took": None if birth == NOTHING else int(run.time[each] - run.time[birth]),
            }
            for each in deliveries[:2_000]
        ],
        "waiting": [{"node": int(run.node[each]), "time": int(run.time[each]), "until": end} for each, end in waits],
        "steps": explanation.steps,
        "hops": explanation.hops,
        "past": [[each, int(run.time[row])] for each, row in sorted(past.items())],
        "future": [[each, int(run.time[row])] for each, row in sorted(future.items())],
    }


def chosen_delivery(run: RunIndex, deliveries: Numbers, node: int | None) -> int:
    """The delivery at a node; without one, the delivery that was held for longest, or the last one."""
    if not len(deliveries):
        return NOTHING
    if node is not None:
        here = deliveries[run.node[deliveries] == node]
        return int(here[0]) if len(here) else NOTHING
    held = run.held[deliveries]
    return int(deliveries[np.argmax(held)] if held.max() > 0 else deliveries[-1])
