"""Judges what the clients of a round of live torture received, from their own records.

A client moves to another node when its own is killed. Every client must receive every accepted message of every client,
once, in the order of its publisher, and all clients must receive total messages about one key in the same order. A
client that was told that messages may be missing is not judged there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.api.batch import Message

LOST = "lost at clients"
TWICE = "twice at clients"
FIFO = "fifo at clients"
TOTAL = "total at clients"
CLIENT_CHECKS = (LOST, TWICE, FIFO, TOTAL)


def name_of(client: int, burst: int, number: int) -> bytes:
    """A value that names the publisher of a message, and its number."""
    return b"%d %d %d" % (client, burst, number)


class ClientRecord:
    """The messages that one client received, and where messages may be missing for it."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self.gaps: list[str] = []
        self.out_of_order: list[bytes] = []
        self.totals: defaultdict[tuple[str, bytes], list[bytes]] = defaultdict(list)
        self._last: dict[tuple[str, int], tuple[int, int]] = {}

    def hear(self, message: Message) -> None:
        """A message has come."""
        self.seen[message.value] += 1
        if message.order == "total":
            for key in message.keys:
                self.totals[message.topic, key].append(message.value)
        if message.order != "none" and not message.value.startswith(b"last"):
            client, burst, number = map(int, message.value.split())
            if (burst, number) <= self._last.get((message.topic, client), (0, -1)):
                self.out_of_order.append(message.value)
            self._last[message.topic, client] = (burst, number)

    def lacks(self, accepted: Sequence[bytes]) -> list[bytes]:
        """Accepted messages that did not arrive."""
        return [] if self.gaps else [value for value in accepted if value not in self.seen]


def judge_listeners(listeners: Sequence[ClientRecord], accepted: Sequence[bytes]) -> dict[str, list[str]]:
    """The violations by kind, one line each."""
    found: dict[str, list[str]] = {check: [] for check in CLIENT_CHECKS}
    for number, listener in enumerate(listeners):
        who = f"client {number}, message"
        found[LOST] += [f"{who} {value!r}" for value in listener.lacks(accepted)]
        found[TWICE] += [f"{who} {value!r}" for value, count in listener.seen.items() if count > 1]
        found[FIFO] += [f"{who} {value!r}" for value in listener.out_of_order if not listener.gaps]
    complete = [listener for listener in listeners if not listener.gaps]
    for topic, key in sorted({each for listener in complete for each in listener.totals}):
        orders = [listener.totals[topic, key] for listener in complete]
        found[TOTAL] += [
            f"client {number} and client 0 differ about {key!r} on {topic}"
            for number, order in enumerate(orders)
            if order != orders[0]
        ]
    return found
