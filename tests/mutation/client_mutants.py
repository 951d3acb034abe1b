"""Bugs in how clients resume at another node, one at a time: campaigns of clients must find them."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def client(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "clients", f"sessions/{module}.py", old, new)


CLIENTS = (
    client(
        "a client does not hand in again what is not safe",
        "unacked",
        "        self._again = {topic: deque(kept.values()) for topic, kept in self._of_topic.items()}\n",
        "        self.clear()\n",
    ),
    client(
        "a client hands in again in the wrong order",
        "unacked",
        "deque(kept.values()) for topic, kept in self._of_topic.items()}",
        "deque(reversed(list(kept.values()))) for topic, kept in self._of_topic.items()}",
    ),
    client(
        "a node does not catch up with what a client has seen",
        "node_end",
        "            yield from self._catch_up(topic, message.past, was_member)\n",
        "            pass\n",
    ),
    client(
        "a client does not say that it comes from another node",
        "client_end",
        "        if self.reconnects and topic not in self._follows:\n",
        "        if False and topic not in self._follows:\n",
    ),
    client(
        "a client takes batches that it has seen",
        "client_end",
        "        return self.seen_on(topic).add(author, number, is_written)\n",
        "        return self.seen_on(topic).add(author, number, is_written) or True\n",
    ),
    client(
        "a resumed subscription begins now",
        "client_end",
        "        return self._request(Resume(self._ready_at_us + node_clock_us, seen))\n",
        "        return self._request(Resume(1 << 61, seen))\n",
    ),
    client(
        "a node replays the last batch first",
        "replay_buffer",
        "        return found[::-1]\n",
        "        return found\n",
    ),
    client(
        "what is fetched from others is not shown",
        "replay_buffer",
        "        return is_gap, [*(fetched or ()), *recent.unseen(seen, self.since_us)]\n",
        "        return is_gap, [*recent.unseen(seen, self.since_us)]\n",
    ),
)
