"""Turns what nodes say about themselves into one picture of their cluster, and finds what has happened since the last.

Pure: it is given statuses and times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from antiphon.fabrics.cube.topology import PartialCube, dimension_for

EVENTS_KEPT: Final = 100
TOPICS_SHOWN: Final = 200
"""So many topics are in a picture: the busiest. A picture must stay small however many there are."""

CONSUMERS_SHOWN: Final = 200

RATES: Final = {
    "delivered_messages": "delivered",
    "published": "published",
    "delivered_bytes": "bytes",
    "publisher_waits": "waits",
}
"""The counters of a topic, and the names of their rates per second."""

GAUGES: Final = ("lag", "dropped", "unsent", "bytes_under_way", "subscriptions", "subscriptions_behind")
FACTS: Final = (
    "address", "fabric", "durability", "protocol", "uptime_seconds", "clients", "bytes_uncommitted", "bytes_unwritten",
    "unfinished", "certificate_days", "troubles", "council", "missing", "orders_totally", "topics_known",
)  # fmt: skip
"""What is shown of a node as it says it."""

Status = Mapping[str, Any]


class ClusterPicture:
    """Remembers the last statuses, so that it can say rates and changes."""

    def __init__(self) -> None:
        self._counters: dict[tuple[int, str], Status] = {}
        self._sent: dict[int, int] = {}
        self._known: dict[int, str] = {}
        self._is_there: set[int] = set()
        self._troubles: set[str] = set()
        self._last_s: float | None = None
        self._has_begun = False
        self.events: Final[deque[dict[str, Any]]] = deque(maxlen=EVENTS_KEPT)

    def taken(self, here: int, statuses: Iterable[Status], now_s: float, wall_s: float) -> dict[str, Any]:
        """The picture of the nodes that have answered, and of those that they do not see any more."""
        by_node = {int(status["node"]): status for status in statuses}
        seconds = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        self._changes(here, by_node, wall_s)
        nodes = [self._node(node, status, seconds) for node, status in sorted(by_node.items())]
        # A node that others see and that has not answered yet, or that is lost.
        silent = [
            {"node": node, "address": self._known[node], "answers": False, "is_there": node in self._is_there}
            for node in sorted(self._known.keys() - by_node.keys())
        ]
        return {
            "here": here,
            "time": wall_s,
            "seconds": seconds,
            "nodes": nodes + silent,
            "topics": self._topics(by_node, seconds),
            "consumers": consumers_in(by_node),
            "events": list(self.events)[::-1],
        }

    def _node(self, node: int, status: Status, seconds: float) -> dict[str, Any]:
        sent = int(status.get("bytes_sent", 0))
        before = self._sent.get(node, sent)
        self._sent[node] = sent
        return {
            "node": node,
            "answers": True,
            "is_there": True,
            "peers": sorted(int(peer["node"]) for peer in status["peers"]),
            "sent_per_second": rate(before, sent, seconds),
            **{name: status.get(name) for name in FACTS},
            "round_trips": round_trips(status),
        }

    def _topics(self, by_node: Mapping[int, Status], seconds: float) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        counters: dict[tuple[int, str], Status] = {}
        for node, status in sorted(by_node.items()):
            for name, figures in status["topics"].items():
                before = self._counters.get((node, name))
                counters[node, name] = figures
                topic = found.setdefault(name, {"topic": name, "blocked_by": [], "nodes": []})
                here = {"node": node, **{gauge: figures.get(gauge, 0) for gauge in GAUGES}}
                for counter, label in RATES.items():
                    here[label] = 0.0 if before is None else rate(before[counter], figures[counter], seconds)
                topic["nodes"].append(here)
                topic["blocked_by"] += [f"node {node} waits for {each}" for each in figures.get("blocked_by", ())]
        self._counters = counters
        for topic in found.values():
            each = topic["nodes"]
            topic["published"] = sum(node["published"] for node in each)
            topic["delivered"] = sum(node["delivered"] for node in each)
            topic["bytes"] = sum(node["bytes"] for node in each)
            topic["lag"] = max(node["lag"] for node in each)
            for gauge in ("unsent", "dropped", "subscriptions"):
                topic[gauge] = sum(node[gauge] for node in each)
        busiest = sorted(found.values(), key=lambda topic: (-topic["delivered"], -topic["lag"], topic["topic"]))
        return busiest[:TOPICS_SHOWN]

    def _changes(self, here: int, by_node: Mapping[int, Status], wall_s: float) -> None:
        """Note which nodes have come and gone, and which troubles."""
        seen = {here: ""}
        own = by_node.get(here)
        # This node's own view decides who is there: others may not answer yet, or not any more.
        for status in by_node.values() if own is None else (own,):
            seen |= {int(peer["node"]): str(peer["address"]) for peer in status["peers"]}
        if own is not None:
            seen[here] = str(own["address"])
        for node in sorted(seen.keys() - self._is_there):
            if self._has_begun:
                word = "is back" if node in self._known else "has come"
                self._note("found", f"node {node} {word}, at {seen[node]}", wall_s)
        for node in sorted(self._is_there - seen.keys()):
            self._note("lost", f"node {node} is lost, or has left", wall_s)
        self._is_there = set(seen)
        self._known.update(seen)
        troubles = {
            f"node {node}: {trouble}" for node, status in by_node.items() for trouble in status.get("troubles", ())
        }
        for trouble in sorted(troubles - self._troubles):
            self._note("trouble", trouble, wall_s)
        self._troubles = troubles
        self._has_begun = True

    def _note(self, kind: str, text: str, wall_s: float) -> None:
        self.events.append({"kind": kind, "text": text, "time": wall_s})


def rate(before: float, now: float, seconds: float) -> float:
    """How much a counter grows per second; a node that began again counts from 0."""
    return max(0.0, now - before) / seconds if seconds > 0 else 0.0


def round_trips(status: Status) -> dict[str, int]:
    """The round trips that a node has measured, in microseconds by peer; only gossip measures any."""
    found: dict[str, int] = {}
    for figures in status["topics"].values():
        found |= {peer: us for peer, us in figures.get("neighbours", {}).items() if us >= 0}
    return found


def consumers_in(by_node: Mapping[int, Status]) -> list[dict[str, Any]]:
    """The named consumers of all topics, those that are furthest behind first."""
    found = [{"node": node, **consumer} for node, status in by_node.items() for consumer in status.get("consumers", ())]
    return sorted(found, key=lambda each: -int(each["lag"]))[:CONSUMERS_SHOWN]


def tree_of(publisher: int, nodes: Iterable[int]) -> list[tuple[int, int]]:
    """The tree over which a publication of a node travels on a cube of these nodes: parents and their children."""
    present = sorted(set(nodes))
    if publisher not in present:
        return []
    cube = PartialCube(dimension_for(present[-1] + 1), present)
    found = []
    waiting = [publisher]
    while waiting:
        parent = waiting.pop(0)
        children = cube.children_in_tree(parent, publisher)
        found += [(parent, child) for child in children]
        waiting += children
    return found
