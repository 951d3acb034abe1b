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
        "            yield from self._catch_up(topic, client, message, was_member)\n",
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
        "client_subscription",
        "        return is_new and not is_past\n",
        "        return is_new or True\n",
    ),
    client(
        "a resumed subscription begins now",
        "client_subscription",
        "        return self._request(Resume(self._ready_at_us + node_clock_us, seen, past))\n",
        "        return self._request(Resume(1 << 61, seen, past))\n",
    ),
    client(
        "a node replays the last batch first",
        "replay_buffer",
        "        return found[::-1], late\n",
        "        return found, late\n",
    ),
    client(
        "a node vouches for what only nodes out of reach have shown",
        "missed_batches",
        "            if resumption.is_behind(topic.name, topic.replay_buffer.before_all(members)):\n",
        "            if True:\n",
    ),
    client(
        "a node waits for what counts as past if nobody knows whose it is",
        "resume",
        "        return self._publication is None\n",
        "        return False\n",
    ),
    client(
        "what is fetched from others is not shown",
        "replay_buffer",
        "        return is_gap, [*fetched, *replay_buffer.unseen(seen, self.since_us)]\n",
        "        return is_gap, [*replay_buffer.unseen(seen, self.since_us)]\n",
    ),
    client(
        "a client forgets batches that were handed in and not answered",
        "unacked",
        "        self._in_flight.clear()\n        self._bytes_in_flight = 0\n        self._safe.clear()\n",
        "        for number in list(self._in_flight):\n"
        "            self.remove(self._by_number[number])\n"
        "        self._in_flight.clear()\n        self._bytes_in_flight = 0\n        self._safe.clear()\n",
    ),
    client(
        "a node forgets how far a writer has come when it restarts",
        "writers",
        "        for position in sorted(found, key=lambda each: each.written_at_us):\n",
        "        for position in ():\n",
    ),
    client(
        "a broker passes no barrier for a client from another broker",
        "node_end",
        "            yield from self.barrier(topic)\n            yield from self._wait_for_authors(",
        "            yield from self._wait_for_authors(",
    ),
    client(
        "what a node shows comes before what it fetched from others",
        "replay_buffer",
        "        return is_gap, [*fetched, *replay_buffer.unseen(seen, self.since_us)]\n",
        "        return is_gap, [*replay_buffer.unseen(seen, self.since_us), *fetched]\n",
    ),
    client(
        "a node publishes what was sent behind a refused batch",
        "resume",
        "        return message.refusals < self._refusals.get(message.topic, 0)\n",
        "        return False\n",
    ),
    client(
        "a client takes what was past when its subscription began",
        "client_subscription",
        "        return is_new and not is_past\n",
        "        return is_new\n",
    ),
    client(
        "what an author hands in again comes behind what follows it",
        "node_end",
        "            yield from self._wait_for_authors(topic, client, message)\n",
        "            pass\n",
    ),
    client(
        "an ordered batch is shown behind a later one of its author",
        "dedup",
        "        return number > last\n",
        "        return True\n",
    ),
    client(
        "two clients of a lost node wait for each other",
        "client_end",
        "            self._host.after(SOON_US, lambda: self._follow_first(topic, number))\n",
        "            pass\n",
    ),
    client(
        "a broker takes what only its own log holds for safe",
        "node_end",
        "        logged = DedupTable(topic.replay_buffer.shown.ranges() if has_all else None)\n",
        "        logged = DedupTable(topic.replay_buffer.shown.ranges())\n",
    ),
    client(
        "a broker vouches for one that went behind its barrier",
        "missed_batches",
        "            have_answered = passed <= answered\n",
        "            have_answered = barrier == 0 or self._end.host.counted() <= answered\n",
    ),
    client(
        "a newcomer does not publish again what counts as past",
        "resume",
        "        if has_come and self._end.traits.publishes_again and not self._was_shown(serial):\n",
        "        if False:\n",
    ),
    client(
        "no gap is told for a total message whose place is past",
        "replay_buffer",
        "                late.append(batch)\n",
        "                pass\n",
    ),
    client(
        "what a node misses while it asks others is not told",
        "replay_buffer",
        "            is_gap = replay_buffer.has_lost_since(asked_at_us)\n",
        "            is_gap = False\n",
    ),
)
