"""A question, its answer, and a slow link: what causal order is for.

Run it: .venv/bin/python examples/question_and_answer.py
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.fabrics.cube import full_or_partial
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.orders import CausalVectors, Order, Unordered
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import MatrixDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace

TICKS = [[0, 10, 200], [10, 0, 10], [200, 10, 0]]  # from node 0 to node 2 it is far


def heard_by_node_2(order: Callable[[int], Order]) -> list[str]:
    """Node 0 asks, node 1 answers; in which order does node 2 hear them?"""
    cube = full_or_partial(3)
    trace = MemoryTrace("deliveries")
    engine = Engine(
        3,
        NetworkModel(MatrixDelay(TICKS)),
        lambda node: TreeBroadcast(node, cube, order(node.identifier)),
        recorder=trace.recorder,
    )
    engine.at(0, PublishAction(0, b"why?"))
    engine.at(50, PublishAction(1, b"because"))  # node 1 has heard the question by then
    engine.run()
    deliveries = [row for row in trace.table().to_pylist() if row["event"] == "deliver" and row["node"] == 2]
    return [["question", "answer"][row["source"]] for row in deliveries]


if __name__ == "__main__":
    print("each once:", heard_by_node_2(Unordered))  # ['answer', 'question']
    print("causal:   ", heard_by_node_2(CausalVectors))  # ['question', 'answer']
