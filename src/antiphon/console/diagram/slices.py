"""The data of a picture of one stretch of time: each row of a short stretch, and counts per column of a long one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from antiphon.console.diagram.run_index import (
    CRASH,
    DELIVER,
    DROP,
    DUPLICATE,
    EVENTS,
    LIFE_EVENTS,
    LOST,
    NOTHING,
    PUBLISH,
    RECEIVE,
    SEND,
    Flags,
    Numbers,
    RunIndex,
)

ROWS_DRAWN: Final = 6_000
"""A stretch with more dots and arrows than this is drawn as counts: more would be a smear, and slow."""

BINS_AT_MOST: Final = 2_000
LANES_AT_MOST: Final = 400
"""A picture has so many lines at most; the rest is reached by scrolling."""

ARROWS_SAMPLED: Final = 400
"""So many arrows are drawn over counts: those of the copies that took longest."""

ACTIVITY_BINS: Final = 300
ABSENT_AFTER: Final = {"crash": "down", "leave": "away", "pause": "paused"}


@dataclass(frozen=True)
class Stretch:
    """The wanted part of the diagram: a time from and to, lines from and before, and what is left out."""

    begin: int
    end: int
    first_lane: int = 0
    last_lane: int = LANES_AT_MOST
    bins: int = 400
    topic: int = NOTHING
    shows_control: bool = False
    """Whether copies that bring no publication are drawn too."""


def slice_of(run: RunIndex, stretch: Stretch) -> dict[str, Any]:
    """The dots and arrows of a stretch; or, if there are too many, counts."""
    low = int(np.searchsorted(run.time, stretch.begin))
    high = int(np.searchsorted(run.time, stretch.end, side="right"))
    rows = np.arange(low, high)
    is_dot = visible(run, rows, stretch) & is_drawn(run, rows)
    arrows = arrows_in(run, stretch, low, high)
    if int(is_dot.sum()) + len(arrows[0]) <= ROWS_DRAWN:
        found = dots_of(run, rows[is_dot])
        return {"exact": True, **found, "waiting": waits_in(run, stretch), "arrows": arrow_columns(run, *arrows)}
    return counts_of(run, stretch, rows[is_dot]) | {"arrows": arrow_columns(run, *slowest(run, *arrows))}


def visible(run: RunIndex, rows: Numbers, stretch: Stretch) -> Flags:
    """Which rows are on the wanted lines and about the wanted topic."""
    lanes = run.lanes[rows]
    found: Flags = (lanes >= stretch.first_lane) & (lanes < stretch.last_lane)
    if stretch.topic != NOTHING:
        found &= (run.topic[rows] == stretch.topic) | (run.topic[rows] == NOTHING)
    return found


def is_drawn(run: RunIndex, rows: Numbers) -> Flags:
    """Which rows are dots: all but the ends of copies, which arrows show, and timers."""
    event = run.event[rows]
    found: Flags = (event == PUBLISH) | (event == DELIVER) | (event == LOST) | (event == DROP)
    return found | np.isin(event, LIFE_EVENTS)


def arrows_in(run: RunIndex, stretch: Stretch, low: int, high: int) -> tuple[Numbers, Numbers, Flags]:
    """The arrows that are under way during a stretch: where each begins, where it ends, and whether it was lost."""
    if not run.has_copies:
        return deliveries_as_arrows(run, stretch, low, high)
    copies = run.copies
    # Copies are sorted by their beginnings; one that began before may still be under way.
    before = int(np.searchsorted(copies.send, high))
    send, end = copies.send[:before], copies.arrival[:before]
    wanted = end >= low
    if not stretch.shows_control:
        wanted &= copies.carries[:before]
    wanted &= visible(run, send, stretch) | visible(run, np.maximum(end, 0), stretch)
    found = np.flatnonzero(wanted)
    return send[found], end[found], copies.is_lost[:before][found]


def deliveries_as_arrows(run: RunIndex, stretch: Stretch, low: int, high: int) -> tuple[Numbers, Numbers, Flags]:
    """A trace without copies shows for each delivery where its message was published."""
    deliveries = np.flatnonzero((run.event == DELIVER) & (run.birth_rows >= 0) & (run.node != run.source))
    deliveries = deliveries[deliveries >= low]
    births = run.birth_rows[deliveries]
    wanted = births < high
    births, deliveries = births[wanted], deliveries[wanted]
    shown = visible(run, births, stretch) | visible(run, deliveries, stretch)
    return births[shown], deliveries[shown], np.zeros(int(shown.sum()), np.bool_)


def slowest(run: RunIndex, begin: Numbers, end: Numbers, is_lost: Flags) -> tuple[Numbers, Numbers, Flags]:
    """The arrows that took longest; the others would be a smear."""
    if len(begin) <= ARROWS_SAMPLED:
        return begin, end, is_lost
    took = run.time[end] - run.time[begin]
    chosen = np.sort(np.argpartition(took, -ARROWS_SAMPLED)[-ARROWS_SAMPLED:])
    return begin[chosen], end[chosen], is_lost[chosen]


def dots_of(run: RunIndex, rows: Numbers) -> dict[str, Any]:
    """Rows as columns for the page."""
    return {
        "row": rows.tolist(),
        "time": run.time[rows].tolist(),
        "lane": run.lanes[rows].tolist(),
        "event": run.event[rows].tolist(),
        "source": run.source[rows].tolist(),
        "sequence": run.sequence[rows].tolist(),
        "topic": run.topic[rows].tolist(),
        "message": run.message[rows].tolist(),
        "held": run.held[rows].tolist(),
    }


def waits_in(run: RunIndex, stretch: Stretch) -> dict[str, Any]:
    """The messages of a stretch that a node received and never delivered."""
    rows, until = run.waiting
    is_seen = visible(run, rows, stretch) & (run.time[rows] <= stretch.end) & (until >= stretch.begin)
    rows, until = rows[is_seen][:ROWS_DRAWN], until[is_seen][:ROWS_DRAWN]
    return {
        "time": run.time[rows].tolist(),
        "until": until.tolist(),
        "lane": run.lanes[rows].tolist(),
        "message": run.message[rows].tolist(),
        "source": run.source[rows].tolist(),
        "sequence": run.sequence[rows].tolist(),
    }


def arrow_columns(run: RunIndex, begin: Numbers, end: Numbers, is_lost: Flags) -> dict[str, Any]:
    """Arrows as columns for the page."""
    return {
        "from_time": run.time[begin].tolist(),
        "from_lane": run.lanes[begin].tolist(),
        "to_time": run.time[end].tolist(),
        "to_lane": run.lanes[end].tolist(),
        "source": run.source[end].tolist(),
        "message": run.message[end].tolist(),
        "lost": is_lost.astype(np.int64).tolist(),
        "carries": (run.carried[begin] > 0).astype(np.int64).tolist() if run.has_copies else [1] * len(begin),
    }


def counts_of(run: RunIndex, stretch: Stretch, rows: Numbers) -> dict[str, Any]:
    """How much happened on each line in each column of pixels, and the longest wait there."""
    bins = max(1, min(stretch.bins, BINS_AT_MOST))
    lanes = max(1, min(stretch.last_lane, len(run.nodes)) - stretch.first_lane)
    span = max(1, stretch.end - stretch.begin)
    cell = (run.lanes[rows] - stretch.first_lane) * bins
    cell += np.minimum((run.time[rows] - stretch.begin) * bins // span, bins - 1)
    event = run.event[rows]

    def counted(chosen: Flags) -> Numbers:
        return np.bincount(cell[chosen], minlength=lanes * bins)

    waits = np.zeros(lanes * bins, np.int64)
    np.maximum.at(waits, cell, run.held[rows])
    delivered = counted(event == DELIVER)
    published = counted(event == PUBLISH)
    trouble = counted((event != DELIVER) & (event != PUBLISH))
    used = np.flatnonzero(delivered + published + trouble)
    return {
        "exact": False,
        "begin": stretch.begin,
        "end": stretch.end,
        "bins": bins,
        "first_lane": stretch.first_lane,
        "cell": used.tolist(),
        "delivered": delivered[used].tolist(),
        "published": published[used].tolist(),
        "trouble": trouble[used].tolist(),
        "longest_wait": waits[used].tolist(),
    }


def totals(run: RunIndex) -> dict[str, int]:
    """How many rows of each kind the run has."""
    names = (("published", PUBLISH), ("delivered", DELIVER), ("sent", SEND), ("received", RECEIVE))
    more = (("dropped", DROP), ("lost", LOST), ("duplicated", DUPLICATE))
    return {name: int(np.count_nonzero(run.event == event)) for name, event in (*names, *more)}


def activity(run: RunIndex) -> dict[str, list[int]]:
    """How much happened over the whole run, for the strip below the picture."""
    span = max(1, run.last_time - run.first_time)
    cell = np.minimum((run.time - run.first_time) * ACTIVITY_BINS // span, ACTIVITY_BINS - 1)
    is_trouble = (run.event == DROP) | (run.event == LOST) | (run.event == CRASH)
    return {
        "delivered": np.bincount(cell[run.event == DELIVER], minlength=ACTIVITY_BINS).tolist(),
        "trouble": np.bincount(cell[is_trouble], minlength=ACTIVITY_BINS).tolist(),
    }


def absences(run: RunIndex) -> list[tuple[int, int, int | None, str]]:
    """When nodes did not work: the line, from and to, and why; to None if it was so at the end."""
    found: list[tuple[int, int, int | None, str]] = []
    begun: dict[int, tuple[int, str]] = {}
    for row in np.flatnonzero(np.isin(run.event, LIFE_EVENTS)):
        lane, event = int(run.lanes[row]), EVENTS[int(run.event[row])]
        if event in ABSENT_AFTER:
            begun[lane] = int(run.time[row]), ABSENT_AFTER[event]
        elif lane in begun:
            begin, why = begun.pop(lane)
            found.append((lane, begin, int(run.time[row]), why))
    return found + [(lane, begin, None, why) for lane, (begin, why) in sorted(begun.items())]


def longest_waits(run: RunIndex, count: int) -> list[dict[str, Any]]:
    """The deliveries that waited longest at their nodes; where arrivals are not recorded, the slowest."""
    if run.has_copies:
        ticks = run.held
        label = "held"
    else:
        known = run.birth_rows >= 0
        ticks = np.where(known, run.time - run.time[np.maximum(run.birth_rows, 0)], NOTHING)
        label = "took"
    candidates = np.flatnonzero(ticks > 0)
    if len(candidates) > count:
        candidates = candidates[np.argpartition(ticks[candidates], -count)[-count:]]
    chosen = candidates[np.argsort(-ticks[candidates], kind="stable")]
    return [
        {
            "row": int(row),
            "node": int(run.node[row]),
            "time": int(run.time[row]),
            "topic": int(run.topic[row]),
            "source": int(run.source[row]),
            "sequence": int(run.sequence[row]),
            label: int(ticks[row]),
        }
        for row in chosen
    ]
