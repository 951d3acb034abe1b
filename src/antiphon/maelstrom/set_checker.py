"""Judges histories of ``broadcast`` and ``g-set``: no acknowledged value is lost, and how soon all nodes had it.

It knows only the history, and shares no code with the nodes. The definitions are those of the checker that Maelstrom
uses for these workloads (``set-full`` of Jepsen):

* A value is *known* from when its addition was acknowledged, or a read that shows it ended, whichever is first.
* It is *lost* if it is known and the last read that began afterwards and could show it did not.
* It is *stable* if some read shows it and all later ones do. Its *stable latency* is from when it was known until the
  beginning of the last read that did not show it; 0 if there was none afterwards.

In addition, a read must show only values that a client has tried to add, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from antiphon.maelstrom.history import Event, PartitionSpan

QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 1.0)


class Element:
    """The facts in the history about one value."""

    def __init__(self) -> None:
        self.known: Event | None = None
        self.last_present: Event | None = None
        self.last_absent: Event | None = None

    def is_stable(self) -> bool:
        """Whether the last read that could show it did."""
        return self.last_present is not None and index_of(self.last_absent) < self.last_present.index

    def is_lost(self) -> bool:
        """Whether it is known, and the last read that began afterwards does not show it."""
        return (
            self.known is not None
            and self.last_absent is not None
            and index_of(self.last_present) < self.last_absent.index
            and self.known.index < self.last_absent.index
        )

    def stable_us(self) -> int:
        """The time from which on all reads show it."""
        return 0 if self.last_absent is None else self.last_absent.time_us + 1


class SetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one history."""

    is_valid: bool
    attempts: int
    acknowledged: int
    stable: int
    stale: int
    never_read: int
    lost: list[Any]
    doubled: list[Any]
    invented: list[Any]
    stable_latencies_ms: dict[str, int]
    """Latencies of all stable values, by quantile."""
    calm_latencies_ms: dict[str, int]
    """Latencies of values that became known outside of partitions, and stable before the next one began."""
    caught_latencies_ms: dict[str, int]
    """Latencies of all other values, from the end of the last partition that they met."""


def check_set(events: Sequence[Event], adds: str, cuts: Sequence[PartitionSpan] = ()) -> SetVerdict:
    """Judge a history in which ``adds`` is the name of the operation that adds a value."""
    elements: dict[bytes, Element] = {}
    values: dict[bytes, Any] = {}
    doubled: dict[bytes, Any] = {}
    invented: dict[bytes, Any] = {}
    acknowledged = 0
    for event in events:
        if event.name == adds and event.outcome == "invoke":
            elements[name_of(event.value)] = Element()
            values[name_of(event.value)] = event.value
        elif event.name == adds and event.outcome == "ok":
            acknowledged += 1
            element = elements[name_of(event.value)]
            element.known = element.known or event
        elif event.name == "read" and event.outcome == "ok":
            shown = [name_of(value) for value in event.value]
            look_at_read(event, events[event.begun], set(shown), elements)
            if len(set(shown)) < len(shown):
                doubled.update((name, values.get(name)) for name in shown if shown.count(name) > 1)
            invented.update((name, msgspec.json.decode(name)) for name in shown if name not in elements)
    lost = [values[name] for name, element in elements.items() if element.is_lost()]
    stable = [element for element in elements.values() if element.is_stable()]
    latencies = [latency_ms(element) for element in stable]
    calm, caught = apart(stable, cuts)
    return SetVerdict(
        is_valid=not (lost or doubled or invented) and len(stable) > 0,
        attempts=len(elements),
        acknowledged=acknowledged,
        stable=len(stable),
        stale=sum(latency > 0 for latency in latencies),
        never_read=len(elements) - len(stable) - len(lost),
        lost=lost,
        doubled=list(doubled.values()),
        invented=list(invented.values()),
        stable_latencies_ms=quantiles(latencies),
        calm_latencies_ms=quantiles(calm),
        caught_latencies_ms=quantiles(caught),
    )


def look_at_read(read: Event, begun: Event, shown: set[bytes], elements: dict[bytes, Element]) -> None:
    """Record for each value whether a read shows it; reads that begin later take precedence."""
    for name, element in elements.items():
        if name in shown:
            element.known = element.known or read
            if index_of(element.last_present) < begun.index:
                element.last_present = begun
        elif index_of(element.last_absent) < begun.index:
            element.last_absent = begun


def apart(stable: Iterable[Element], cuts: Sequence[PartitionSpan]) -> tuple[list[int], list[int]]:
    """The latencies of values that met no partition, and of the others from the end of the last one that they met."""
    calm: list[int] = []
    caught: list[int] = []
    for element in stable:
        assert element.known is not None, "what a read shows is known"
        known_us, stable_us = element.known.time_us, element.stable_us()
        met = [cut for cut in cuts if cut.begin_us < max(stable_us, known_us + 1) and cut.end_us > known_us]
        if not met:
            calm.append(latency_ms(element))
        else:
            # A value that was everywhere before the partition ended did not wait for that.
            caught.append(max(0, stable_us - max(known_us, *(cut.end_us for cut in met))) // 1000)
    return calm, caught


def latency_ms(element: Element) -> int:
    """How long after it was known a value was missing in some read."""
    assert element.known is not None, "what a read shows is known"
    return max(0, element.stable_us() - element.known.time_us) // 1000


def quantiles(latencies: Iterable[int]) -> dict[str, int]:
    """Some quantiles, as Jepsen computes them; empty without values."""
    ordered = sorted(latencies)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {f"{point:g}": ordered[min(last, int(len(ordered) * point))] for point in QUANTILES}


def index_of(event: Event | None) -> int:
    """The index of an event in the history; before everything for None."""
    return -1 if event is None else event.index


def name_of(value: Any) -> bytes:
    """A value as a key of a dictionary."""
    return msgspec.json.encode(value, order="deterministic")
