"""Helpers for tests: traces as readable text, an environment that remembers, a broadcast in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from textwrap import dedent
from typing import Any, TypeVar

from hypothesis import strategies as st

from antiphon.fabrics.cube import Cube, full_or_partial
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.kernel import Environment, Process, ProtocolMessage, Publication, RandomStream
from antiphon.orders import Order
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace

OrderOf = Callable[[int], Order]
Element = TypeVar("Element")


def lists_up_to(longest: int, elements: st.SearchStrategy[Element]) -> st.SearchStrategy[list[Element]]:
    """Lists of every length alike; left to itself hypothesis would draw mostly short ones, which test little."""
    return st.integers(0, longest).flatmap(lambda length: st.lists(elements, min_size=length, max_size=length))


def lines_of(table: Any, only: Iterable[str] | None = None) -> str:
    """A trace as text, one line per row: time, event, node, the other end, the message, the value and the reason.

    ``only`` names the events to show; all by default.
    """
    wanted = None if only is None else set(only)
    return "\n".join(line_of(row) for row in table.to_pylist() if wanted is None or row["event"] in wanted)


def line_of(row: dict[str, Any]) -> str:
    """One row of a trace as text."""
    words = [f"{row['time']:>4} {row['event']} {row['node']}"]
    if row["peer"] is not None:
        words.append(f"{'->' if row['event'] == 'send' else '<-'} {row['peer']}")
    if row["source"] is not None:
        words.append(f"{row['message'] or ''}({row['source']},{row['sequence']})")
    if row["topic"]:
        words.append(f"on {row['topic']}")
    if row["value"] is not None:
        words.append(f"[{row['value']}]")
    if row["reason"] is not None:
        words.append(row["reason"])
    return " ".join(words)


def text(block: str) -> str:
    """An indented block of a test as the text it stands for; its first word is a time in four columns."""
    lines = [line for line in dedent(block).splitlines() if line.strip()]
    return "\n".join(f"{line.split()[0]:>4} {' '.join(line.split()[1:])}" for line in lines)


class Notebook(Environment):
    """An environment without a host: it writes down what its process does."""

    def __init__(self, identifier: int, time: int = 0) -> None:
        super().__init__(identifier)
        self.time = time
        self.sent: list[tuple[int, ProtocolMessage]] = []
        self.delivered: list[Publication] = []

    def now(self) -> int:
        return self.time

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append((destination, message))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)

    def random(self) -> RandomStream:
        return RandomStream(1, self.identifier)


class Broadcast:
    """A simulated tree broadcast with the processes within reach and a trace in memory."""

    def __init__(
        self,
        node_count: int,
        network: NetworkModel | None = None,
        cube: Cube | None = None,
        order: OrderOf | None = None,
        build: Callable[[Environment], TreeBroadcast] | None = None,
        acknowledge: bool = False,
        level: str = "everything",
        seed: int = 1,
        can_fail: bool = False,
        absent: set[int] | None = None,
    ) -> None:
        members = full_or_partial(node_count) if cube is None else cube
        self.processes: dict[int, TreeBroadcast] = {}
        self.orders: dict[int, Order] = {}
        self.trace = MemoryTrace(level)

        def broadcast(environment: Environment) -> Process:
            me = environment.identifier
            if build is not None:
                self.processes[me] = build(environment)
            else:
                rule = None if order is None else order(me)
                if rule is not None:
                    self.orders[me] = rule
                self.processes[me] = TreeBroadcast(environment, members, rule, acknowledge)
            return self.processes[me]

        self.engine = Engine(
            node_count,
            NetworkModel(ConstantDelay(100)) if network is None else network,
            broadcast,
            seed=seed,
            recorder=self.trace.recorder,
            can_fail=can_fail,
            absent=absent,
        )

    def lines(self, *only: str) -> str:
        """The trace so far as text."""
        return lines_of(self.trace.table(), only or None)
