"""Judges histories of ``kafka``: offsets mean the same for all clients, grow, and no acknowledged message is lost.

It knows only the history, and shares no code with the nodes. The kinds of violations are those of Maelstrom's
documentation of the workload:

* ``divergent``: one offset of a key holds two messages, or a message has two offsets.
* ``lost``: a known message is missing in a poll that began at or before it and went beyond it; or no final poll of some
  client shows an acknowledged one, although these poll everything from the beginning, long after all faults.
* ``nonmonotonic``: offsets in one poll do not grow; a client is shown a message again though it did not seek back; of
  two messages that one client sent to a key in sequence, the second has no greater offset.
* ``unasked``: a poll shows a message before the requested offset.
* ``invented``: a poll shows a message that no client has tried to send.
* ``committed``: a listed offset is higher than any that a client has tried to commit, or lower than one that the same
  node has acknowledged or listed before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from antiphon.maelstrom.history import Event
from antiphon.maelstrom.set_checker import name_of

KINDS: Final = ("divergent", "lost", "nonmonotonic", "unasked", "invented", "committed")
EXAMPLES: Final = 8


class KafkaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one history."""

    is_valid: bool
    keys: int
    attempts: int
    acknowledged: int
    polled: int
    """Messages shown by polls, counted each time."""
    violations: dict[str, int]
    examples: dict[str, list[str]]


class Judge:
    """Reads a history from its beginning to its end."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, int], bytes] = {}
        self.offsets: dict[tuple[str, bytes], int] = {}
        self.tried: set[tuple[str, bytes]] = set()
        self.acknowledged: dict[str, set[int]] = {}
        self.polled = 0
        self.violations: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.examples: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self._sent: dict[tuple[int, str], int] = {}
        self._shown: dict[tuple[int, str], int] = {}
        self._attempted_commits: dict[str, int] = {}
        self._node_commits: dict[tuple[str, str], int] = {}

    def complain(self, kind: str, text: str) -> None:
        """Record a violation."""
        self.violations[kind] += 1
        if len(self.examples[kind]) < EXAMPLES:
            self.examples[kind].append(text)

    def learn(self, key: str, offset: int, message: Any) -> None:
        """A client was told that an offset holds a message."""
        name = name_of(message)
        held = self.messages.setdefault((key, offset), name)
        if held != name:
            self.complain("divergent", f"{key}:{offset} is {held.decode()} and {name.decode()}")
        other = self.offsets.setdefault((key, name), offset)
        if other != offset:
            self.complain("divergent", f"{name.decode()} is at {key}:{other} and at {key}:{offset}")

    # Operations.

    def look_at(self, event: Event) -> None:
        """Check one event."""
        if event.name == "send":
            key, message = event.value["key"], event.value["message"]
            if event.outcome == "invoke":
                self.tried.add((key, name_of(message)))
            elif event.outcome == "ok":
                self._look_at_sent(event.client, key, event.value["offset"], message)
        elif event.name == "assign" and event.outcome == "ok":
            self._look_at_assigned(event)
        elif event.name == "poll" and event.outcome in ("ok", "info"):
            self._look_at_polled(event)

    def _look_at_sent(self, client: int, key: str, offset: int, message: Any) -> None:
        self.acknowledged.setdefault(key, set()).add(offset)
        self.learn(key, offset, message)
        before = self._sent.get((client, key), -1)
        if offset <= before:
            self.complain("nonmonotonic", f"client {client} sent {key}:{offset} after {key}:{before}")
        self._sent[client, key] = offset

    def _look_at_assigned(self, event: Event) -> None:
        for shown in [place for place in self._shown if place[0] == event.client]:
            del self._shown[shown]
        for key, offset in event.value["listed"].items():
            highest = self._attempted_commits.get(key, -1)
            if offset > highest:
                self.complain("committed", f"{event.node} lists {key}:{offset}, and {highest} was committed at most")
            self._note_commit(event, key, offset, "lists")

    def _note_commit(self, event: Event, key: str, offset: int, verb: str) -> None:
        before = self._node_commits.get((event.node, key), -1)
        if verb == "lists" and offset < before:
            self.complain("committed", f"{event.node} lists {key}:{offset} after {key}:{before}")
        self._node_commits[event.node, key] = max(before, offset)

    def _look_at_polled(self, event: Event) -> None:
        for key, pairs in event.value["messages"].items():
            offsets = [offset for offset, _ in pairs]
            self.polled += len(offsets)
            for offset, message in pairs:
                if (key, name_of(message)) not in self.tried:
                    self.complain("invented", f"{key}:{offset} holds {message!r}")
                self.learn(key, offset, message)
            if any(later <= earlier for earlier, later in pairwise(offsets)):
                self.complain("nonmonotonic", f"one poll of client {event.client} shows {key}:{offsets}")
            asked = event.value["from"].get(key, 0)
            if offsets and offsets[0] < asked:
                self.complain("unasked", f"client {event.client} asked for {key}:{asked} and is shown {offsets[0]}")
            before = self._shown.get((event.client, key), -1)
            if offsets and offsets[0] <= before:
                self.complain("nonmonotonic", f"client {event.client} is shown {key}:{offsets[0]} after {before}")
            if offsets:
                self._shown[event.client, key] = max(before, offsets[-1])
        for key, offset in event.value.get("commits", {}).items():
            self._attempted_commits[key] = max(offset, self._attempted_commits.get(key, -1))
            if event.outcome == "ok":
                self._note_commit(event, key, offset, "acknowledges")

    # At the end, when all existing offsets are known.

    def look_for_lost(self, events: Sequence[Event]) -> None:
        """Check whether polls leave out messages that are known to exist."""
        known: dict[str, list[int]] = {}
        for key, offset in sorted(self.messages):
            known.setdefault(key, []).append(offset)
        final: dict[int, dict[str, set[int]]] = {}
        for event in events:
            if event.name != "poll" or event.outcome not in ("ok", "info"):
                continue
            for key, pairs in event.value["messages"].items():
                shown = {offset for offset, _ in pairs}
                self._look_for_gaps(event, key, shown, known[key] if shown else [])
                if event.is_final:
                    final.setdefault(event.client, {}).setdefault(key, set()).update(shown)
            if event.is_final:
                final.setdefault(event.client, {})
        for client, seen in final.items():
            for key, offsets in self.acknowledged.items():
                missing = sorted(offsets - seen.get(key, set()))
                if missing:
                    self.complain("lost", f"client {client} never sees {key}:{missing[:5]}")

    def _look_for_gaps(self, event: Event, key: str, shown: set[int], known: list[int]) -> None:
        """Check one poll; ``known`` are the existing offsets of the key, in order."""
        first, last = event.value["from"].get(key, 0), max(shown, default=0)
        between = known[bisect_left(known, first) : bisect_left(known, last)]
        missing = [offset for offset in between if offset not in shown]
        if missing:
            self.complain("lost", f"client {event.client} is shown {key}:{last} and not {missing[:5]}")


def check_kafka(events: Sequence[Event]) -> KafkaVerdict:
    """Judge a history."""
    judge = Judge()
    for event in events:
        judge.look_at(event)
    judge.look_for_lost(events)
    acknowledged = sum(len(offsets) for offsets in judge.acknowledged.values())
    return KafkaVerdict(
        is_valid=acknowledged > 0 and not any(judge.violations.values()),
        keys=len(judge.acknowledged),
        attempts=len(judge.tried),
        acknowledged=acknowledged,
        polled=judge.polled,
        violations=judge.violations,
        examples={kind: texts for kind, texts in judge.examples.items() if texts},
    )
