"""What clients saw in a round of live torture, and what is wrong with it; they write it down themselves.

A client goes on at another node when its own is killed. Whatever was accepted of any client is to be seen by all,
once, in the order in which its publisher asked for it, and total messages about one key in the same order by all.
Where a client was told that messages may be missing, nothing is expected of it.
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
    """A value that says whose message it is, and the how many-th."""
    return b"%d %d %d" % (client, burst, number)


class Listener:
    """What one client has seen, and where messages may be missing for it."""

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
        """What has not come, though it was accepted."""
        return [] if self.gaps else [value for value in accepted if value not in self.seen]


def judge_listeners(listeners: Sequence[Listener], accepted: Sequence[bytes]) -> dict[str, list[str]]:
    """What is wrong, by kind: one line for each violation."""
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
