"""A program that runs some set-ups and writes their traces: ``python -P tests/traced_runs.py DIRECTORY SEED``.

It prints which build it ran, as JSON. The test of both builds runs it with each of them and compares the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import antiphon
from antiphon.cli.output import is_compiled
from antiphon.fabrics.cube import Cube, PartialCube, full_or_partial
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.topic import FaultOptions
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment, Process
from antiphon.orders import CausalBarriers, CausalVectors, Fifo, Unordered
from antiphon.simulator.engine.actions import (
    AdmitAction,
    CrashAction,
    ExpelAction,
    JoinAction,
    LeaveAction,
    PartitionAction,
    PauseAction,
    PublishAction,
    RestartAction,
    ResumeAction,
    SubscribeAction,
    UnsubscribeAction,
)
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay, LinkDelay, MatrixDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from antiphon.trace.recorder import Recorder
from antiphon.trace.store import TraceWriter
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation
from antiphon_lab.protocols.cube.timer_bundling import TimerBundling


def causal_over_normal_delays(recorder: Recorder, seed: int) -> Engine:
    """The network of chapter 4 of the thesis, every node publishing three times."""
    cube = full_or_partial(32)

    def build(environment: Environment) -> Process:
        return TreeBroadcast(environment, cube, CausalVectors(environment.identifier))

    engine = Engine(32, NetworkModel(NormalDelay(100, 25)), build, seed=seed, recorder=recorder)
    publish_in_turn(engine, 32, 96, 5)
    return engine


def everything_goes_wrong_on_the_way(recorder: Recorder, seed: int) -> Engine:
    """Loss, duplicates and reordering; a number of nodes that is no power of two."""
    cube = full_or_partial(21)
    network = NetworkModel(ConstantDelay(40), loss=0.05, duplication=0.1, reordering=0.3, reordering_window=200)

    def build(environment: Environment) -> Process:
        return TreeBroadcast(environment, cube, Unordered(environment.identifier), largest_first=True)

    engine = Engine(21, network, build, seed=seed, recorder=recorder)
    publish_in_turn(engine, 21, 60, 7)
    return engine


def nodes_come_and_go(recorder: Recorder, seed: int) -> Engine:
    """Faults of every kind, with a membership oracle, under barriers."""
    members = PartialCube(4, range(12))

    def build(environment: Environment) -> Process:
        return TreeBroadcast(environment, members, CausalBarriers(environment.identifier))

    network = NetworkModel(LinkDelay(NormalDelay(60, 30), seed), transmission=2, processing=3)
    engine = Engine(16, network, build, seed=seed, recorder=recorder, can_fail=True, absent={12, 13, 14, 15})
    publish_in_turn(engine, 12, 80, 11)
    for time, action in (
        (100, CrashAction(3)),
        (150, ExpelAction(3, members)),
        (200, PauseAction(5)),
        (230, PartitionAction(NetworkPartition(230, 320, [[0, 1, 2]]))),
        (300, JoinAction(12)),
        (301, AdmitAction(12, members)),
        (400, ResumeAction(5)),
        (450, RestartAction(3)),
        (451, AdmitAction(3, members)),
        (500, ExpelAction(7, members)),
        (501, LeaveAction(7)),
    ):
        engine.at(time, action)
    return engine


def one_tree_for_all(recorder: Recorder, seed: int) -> Engine:
    """A single tree over a matrix of delays, acknowledgements free of charge, a little loss."""
    cube: Cube = full_or_partial(16)
    network = NetworkModel(MatrixDelay([[5, 80, 120], [80, 7, 60], [120, 60, 9]]), charge_control=False, loss=0.01)

    def build(environment: Environment) -> Process:
        return SingleTreeBroadcast(environment, cube, 6, Fifo(environment.identifier))

    engine = Engine(16, network, build, seed=seed, recorder=recorder)
    publish_in_turn(engine, 16, 64, 3)
    return engine


def orders_are_mixed(recorder: Recorder, seed: int) -> Engine:
    """Publications of all orders on one topic, which some leave and others join, while copies overtake each other."""
    cube = full_or_partial(12)
    members = range(8)
    view = View(cube.dimension, members)
    options = Options(mixed=True)

    def build(environment: Environment) -> Process:
        process = VCubePs(environment, cube, options)
        if environment.identifier in members:
            process.begin_as_member(0, view)
        return process

    network = NetworkModel(NormalDelay(50, 80), reordering=0.4, reordering_window=300)
    engine = Engine(12, network, build, seed=seed, recorder=recorder)
    for number in range(90):
        engine.at(9 * number, PublishAction(number % 5, b"", 0, number * 7 % 11 % 3))
    for node in range(4):
        engine.at(120 * node, SubscribeAction(8 + node))
        engine.at(170 * node, UnsubscribeAction(5 + node % 3) if node < 3 else SubscribeAction(5))
    return engine


def packets_wait_for_causes(recorder: Recorder, seed: int) -> Engine:
    """Causal aggregation, while half of the nodes bundle by a timer: both send packets of the same kind."""
    cube = full_or_partial(32)

    def build(environment: Environment) -> Process:
        if environment.identifier % 2:
            return TimerBundling(environment, cube, timer_ticks=20)
        return CausalAggregation(environment, cube)

    engine = Engine(32, NetworkModel(NormalDelay(100, 60)), build, seed=seed, recorder=recorder)
    publish_in_turn(engine, 32, 96, 5)
    return engine


def many_quiet_rounds(recorder: Recorder, seed: int) -> Engine:
    """A member is away for so long that the others compare in vain in more rounds than a number has bits."""
    members = range(4)
    faults = FaultOptions(keep=128, compare_ticks=10, forget_ticks=15_000, exclude_ticks=100)

    def build(environment: Environment) -> Process:
        process = FaultTolerantVCubePs(environment, PartialCube(2, members), Options(mixed=True), faults)
        process.begin_as_member(0, View(2, members))
        return process

    network = NetworkModel(NormalDelay(5, 2), in_order=True, detection=3)
    engine = Engine(4, network, build, seed=seed, recorder=recorder, can_fail=True, reconnects=True)
    publish_in_turn(engine, 4, 24, 15)
    engine.at(400, CrashAction(3))
    engine.at(20_000, PublishAction(0, b"the last"))
    return engine


def publish_in_turn(engine: Engine, nodes: int, publications: int, interval: int) -> None:
    """Node after node publishes, one every ``interval`` ticks."""
    for number in range(publications):
        engine.at(interval * number, PublishAction(number % nodes, bytes(number % 7)))


SET_UPS: dict[str, tuple[str, Callable[[Recorder, int], Engine]]] = {
    "normal.parquet": ("everything", causal_over_normal_delays),
    "lossy.arrow": ("everything", everything_goes_wrong_on_the_way),
    "faults.parquet": ("everything", nodes_come_and_go),
    "single.arrow": ("deliveries", one_tree_for_all),
    "mixed.parquet": ("everything", orders_are_mixed),
    "packets.parquet": ("everything", packets_wait_for_causes),
    "quiet.parquet": ("everything", many_quiet_rounds),
}


def main(directory: Path, seed: int) -> None:
    """Run every set-up and write its trace."""
    counters = {}
    for name, (level, set_up) in SET_UPS.items():
        with TraceWriter(directory / name, level, {"set-up": name}, chunk_rows=500) as writer:
            engine = set_up(writer.recorder, seed)
            outcome = engine.run()
        counters[name] = [outcome, int(engine.events), int(engine.latency_sum), int(engine.end_time), writer.rows]
    print(json.dumps({"compiled": is_compiled(), "package": antiphon.__file__, "counters": counters}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
