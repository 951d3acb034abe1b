"""Bugs in streams, one at a time: campaigns of streams, with whole nodes and programs, must find them."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def stream(name: str, module: str, old: str, new: str, folder: str = "streams") -> Mutant:
    return Mutant(name, "streams", f"{folder}/{module}.py", old, new)


STREAMS = (
    stream(
        "a lease never ends",
        "handing",
        "            if lease is not None and lease.ends_us == ends_us and not lease.is_settling:\n",
        "            if False and lease is not None:\n",
    ),
    stream(
        "a receipt comes before a majority has the message",
        "leading",
        "        number = sorted(held, reverse=True)[replicas.majority - 1]\n",
        "        number = max(held)\n",
        "streams/leaders",
    ),
    stream(
        "what a message follows does not matter",
        "readiness",
        "        before = self._pending.first_awaited(position)\n",
        "        before = None\n",
    ),
    stream(
        "a key goes to anybody",
        "readiness",
        "        place = queue.member if queue.leased else ANYBODY\n",
        "        place = ANYBODY\n",
    ),
    stream(
        "a node that returns does not look at what was delivered before it ended",
        "live_replica",
        "            self.replica.delivered(source, sequence, count, len(content.payload))\n            self.next",
        "            self.next",
        "streams/service",
    ),
    stream(
        "members of a leader that leads no more are told nothing",
        "stream_gateway",
        "                attachment.client.answer(attachment.number, encode(reason))\n\n    def bury",
        "                pass\n\n    def bury",
        "streams/service",
    ),
    stream(
        "a node greets others without its number as a replica",
        "service",
        "StreamGreeting(self.identity, DIRECTORY in self.replicas, sorted(self.replicas))",
        "StreamGreeting(0, DIRECTORY in self.replicas, sorted(self.replicas))",
        "streams/service",
    ),
    stream(
        "a publisher that asks before its message is settled is not answered",
        "recent_positions",
        "            if not awaited.take(batch):\n                awaited.answer()\n",
        "            if not awaited.take(batch):\n                pass\n",
        "streams/service",
    ),
    stream(
        "a position is forgotten at once",
        "recent_positions",
        "        self._by_author.setdefault(author, deque()).append(batch)\n",
        "        self._by_author.setdefault(author, deque()).clear()\n        self._by_author[author].append(batch)\n",
        "streams/service",
    ),
    stream(
        "a leader waits for no majority that is connected",
        "leading",
        "        number = sorted(held, reverse=True)[replicas.majority - 1]\n",
        "        number = sorted(held, reverse=True)[-1]\n",
        "streams/leaders",
    ),
    stream(
        "a publication that is settled gets another place",
        "numbering",
        "        return numbers is not None and numbers.has(name[1])\n",
        "        return False\n",
    ),
    stream(
        "acknowledged messages are forgotten by a snapshot",
        "live_replica",
        "        self.coordinator.table.restore(consumers)\n",
        "        pass\n",
        "streams/service",
    ),
)
