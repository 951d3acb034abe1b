"""The clients of a run: the operations of each workload, drawn at random, and the final operations that show the
result.

As in Maelstrom each client is bound to one node, has one operation in progress at a time, and waits five seconds for an
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from antiphon.maelstrom.history import Event, History, Outcome
from antiphon.maelstrom.kafka_checker import KafkaVerdict, check_kafka
from antiphon.maelstrom.network import MaelstromNetwork, RpcError
from antiphon.maelstrom.set_checker import SetVerdict, check_set

TIMEOUT_SECONDS: Final = 5.0
KEYS: Final = 4
MESSAGES_PER_KEY: Final = 256
"""The number of messages after which a log is replaced by another key."""

FINAL_SECONDS: Final = 10.0
"""How long clients poll at the end, unless they have seen everything before."""


class WorkloadClient:
    """One client, at one node."""

    def __init__(self, number: int, node: str, network: MaelstromNetwork, clock: Callable[[], int]) -> None:
        self.number: Final = number
        self.node: Final = node
        self.clock: Final = clock
        # For logs: the next offset by key.
        self.offsets: dict[str, int] = {}
        self._network = network

    async def call(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask the client's node."""
        return await self._network.call(f"c{self.number}", self.node, {"type": kind, **fields}, TIMEOUT_SECONDS)


class Workload:
    """The operations of a workload."""

    def draw(self, client: WorkloadClient, random: Random) -> tuple[str, Any]:
        """Draw the next operation of a client: its name, and its value before it is done."""
        raise NotImplementedError

    async def perform(self, client: WorkloadClient, name: str, value: Any) -> Any:
        """Carry out an operation; returns its value afterwards."""
        raise NotImplementedError

    async def prepare(self, client: WorkloadClient, nodes: list[str]) -> None:
        """Set up a node before the first operation."""

    async def conclude(self, client: WorkloadClient, history: History) -> None:
        """The last operations of a client."""
        raise NotImplementedError

    def check(self, history: History) -> SetVerdict | KafkaVerdict:
        """Judge the history."""
        raise NotImplementedError

    async def do(self, client: WorkloadClient, history: History, name: str, value: Any, is_final: bool = False) -> Any:
        """Carry out an operation and record its outcome; None if it did not succeed."""
        begun = history.begin(client.clock(), client.number, client.node, name, value, is_final)
        try:
            found = await self.perform(client, name, value)
        except RpcError as error:
            history.end(begun, client.clock(), *self.undone(begun, error))
            return None
        history.end(begun, client.clock(), "ok", found)
        return found

    def undone(self, begun: Event, error: RpcError) -> tuple[Outcome, Any]:
        """The recorded outcome of an operation that did not succeed."""
        return "fail" if error.is_definite else "info", begun.value


class ValuesWorkload(Workload):
    """``broadcast`` and ``g-set``: half of the operations add a number, half read all of them."""

    def __init__(self, adds: str, added: str, shown: str, has_topology: bool) -> None:
        self._adds = adds
        self._added = added
        self._shown = shown
        self._has_topology = has_topology
        self._next = 0

    async def prepare(self, client: WorkloadClient, nodes: list[str]) -> None:
        if self._has_topology:
            await client.call("topology", topology=grid(nodes))

    def draw(self, client: WorkloadClient, random: Random) -> tuple[str, Any]:
        if random.random() < 1 / 2:
            return "read", None
        self._next += 1
        return self._adds, self._next - 1

    async def perform(self, client: WorkloadClient, name: str, value: Any) -> Any:
        if name == "read":
            return (await client.call("read"))[self._shown]
        await client.call(name, **{self._added: value})
        return value

    async def conclude(self, client: WorkloadClient, history: History) -> None:
        await self.do(client, history, "read", None, is_final=True)

    def check(self, history: History) -> SetVerdict:
        return check_set(history.events, self._adds, history.cuts)


class LogsWorkload(Workload):
    """``kafka``: clients send numbers to a few logs, poll them and commit what they have seen."""

    def __init__(self) -> None:
        self._next = 0
        # By key, the highest offset that any client was told of: final polls go that far.
        self._highest: dict[str, int] = {}

    def _keys(self) -> list[str]:
        """The keys that receive messages now."""
        first = self._next // (KEYS * MESSAGES_PER_KEY) * KEYS
        return [f"k{number}" for number in range(first, first + KEYS)]

    def draw(self, client: WorkloadClient, random: Random) -> tuple[str, Any]:
        chance = random.random()
        keys = self._keys()
        if not client.offsets or chance < 1 / 16:
            return "assign", random.sample(keys, random.randint(1, len(keys)))
        if chance < 1 / 2:
            return "poll", None
        self._next += 1
        return "send", {"key": random.choice(keys), "message": self._next - 1}

    async def perform(self, client: WorkloadClient, name: str, value: Any) -> Any:
        if name == "send":
            offset = (await client.call("send", key=value["key"], msg=value["message"]))["offset"]
            self._highest[value["key"]] = max(offset, self._highest.get(value["key"], 0))
            return {**value, "offset": offset}
        if name == "assign":
            listed = (await client.call("list_committed_offsets", keys=value))["offsets"]
            client.offsets = {key: listed.get(key, -1) + 1 for key in value}
            return {"keys": value, "listed": listed}
        return await self._poll(client)

    async def _poll(self, client: WorkloadClient) -> dict[str, Any]:
        asked = dict(client.offsets)
        messages = (await client.call("poll", offsets=asked))["msgs"]
        commits = {key: pairs[-1][0] for key, pairs in messages.items() if pairs}
        for key, offset in commits.items():
            client.offsets[key] = offset + 1
        if commits:
            try:
                await client.call("commit_offsets", offsets=commits)
            except RpcError as error:
                # Messages that were shown count; they are recorded with the rest, and commits may have happened.
                raise PollError(error, {"from": asked, "messages": messages, "commits": commits}) from error
        return {"from": asked, "messages": messages, "commits": commits}

    def undone(self, begun: Event, error: RpcError) -> tuple[Outcome, Any]:
        if isinstance(error, PollError):
            return "info", error.shown
        outcome, value = super().undone(begun, error)
        return outcome, {"from": {}, "messages": {}} if begun.name == "poll" else value

    async def conclude(self, client: WorkloadClient, history: History) -> None:
        """Poll all logs from the beginning, until everything is seen that any client was told of."""
        client.offsets = dict.fromkeys(self._highest, 0)
        begun = history.begin(client.clock(), client.number, client.node, "assign", list(client.offsets), True)
        history.end(begun, client.clock(), "ok", {"keys": list(client.offsets), "listed": {}})
        until = client.clock() + int(FINAL_SECONDS * 1_000_000)
        while client.clock() < until:
            await self.do(client, history, "poll", None, is_final=True)
            if all(client.offsets[key] > highest for key, highest in self._highest.items()):
                return

    def check(self, history: History) -> KafkaVerdict:
        return check_kafka(history.events)


class PollError(RpcError):
    """A poll has shown messages, but they could not be committed."""

    def __init__(self, error: RpcError, shown: dict[str, Any]) -> None:
        super().__init__(error.code, str(error))
        self.shown: Final = shown


def grid(nodes: list[str]) -> dict[str, list[str]]:
    """Neighbours on a square grid, Maelstrom's default topology."""
    side = 1
    while side * side < len(nodes):
        side += 1
    found: dict[str, list[str]] = {}
    for place, node in enumerate(nodes):
        row, column = divmod(place, side)
        near = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        places = [r * side + c for r, c in near if r >= 0 and 0 <= c < side and r * side + c < len(nodes)]
        found[node] = [nodes[other] for other in places]
    return found


def workload_for(name: str) -> Workload:
    """The operations of a workload by its name, which :func:`antiphon.maelstrom.services.service_for` has checked."""
    if name == "broadcast":
        return ValuesWorkload("broadcast", "message", "messages", has_topology=True)
    if name == "g-set":
        return ValuesWorkload("add", "element", "value", has_topology=False)
    return LogsWorkload()
