"""Spaces in scenarios: which topics have causal order across them, and the processes that keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.fabrics.protocol import Builder, WaitingCounts
from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.kernel.process import Environment, Process
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import JoinFault, LeaveFault, RestartFault, Scenario
from antiphon.simulator.scenario.toml_document import Document
from antiphon.spaces.process import NO_SPACE, SpaceProcess

PLACE = ("topics", "spaces")


def spaces_of(scenario: Scenario) -> tuple[tuple[int, ...], ...]:
    """The topics of each space."""
    return () if scenario.topics is None else tuple(tuple(space) for space in scenario.topics.spaces)


def check_spaces(scenario: Scenario, document: Document) -> None:
    """Check that spaces are sets of different topics, and that protocol, orders and faults allow them."""
    spaces = spaces_of(scenario)
    if not spaces:
        return
    able = [name for name, protocol in PROTOCOLS.items() if protocol.has_spaces]
    if not PROTOCOLS[scenario.protocol].has_spaces:
        raise document.error(
            PLACE, f'{scenario.protocol} has no spaces; leave this out, or choose: protocol = "{able[0]}"'
        )
    if scenario.order != ORDER_NAMES[CAUSAL] or scenario.mixes_orders():
        raise document.error(
            PLACE, 'on topics of a space all publications are causal; write: order = "causal", and name no other order'
        )
    named = [topic for space in spaces for topic in space]
    for topic in named:
        if not 0 <= topic < scenario.topic_count():
            raise document.error(PLACE, f"there is no topic {topic}; choose from 0 to {scenario.topic_count() - 1}")
        if named.count(topic) > 1:
            raise document.error(PLACE, f"topic {topic} is named twice; a topic is in one space at most")
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, RestartFault | LeaveFault | JoinFault):
            raise document.error(
                ("fault", number), "where there are spaces, all nodes are there from the start, and none comes back"
            )


def with_spaces(build: Builder, scenario: Scenario, options: Any) -> Builder:
    """Put the spaces of a scenario above the processes of a builder; without spaces it stays as it is."""
    spaces = spaces_of(scenario)
    if not spaces or scenario.topics is None:
        return build
    numbers = {topic: number for number, space in enumerate(spaces) for topic in space}
    acknowledge, names = scenario.topics.acknowledge, scenario.topics.names
    give_up = getattr(options, "forget", None)

    def build_above(environment: Environment) -> Process:
        return SpaceProcess(
            environment,
            build,
            lambda topic: numbers.get(topic, NO_SPACE),
            acknowledge_ticks=acknowledge,
            give_up_ticks=give_up,
            names_at_most=names,
        )

    return build_above


def fabric_process(process: Process) -> Process:
    """The process of the fabric, below spaces if there are any."""
    return process.inner if isinstance(process, SpaceProcess) else process


def barriers_of(process: Process) -> Sequence[WaitingCounts]:
    """The barriers of a node, which count the publications that wait for other topics."""
    return [space.barrier for space in process.spaces.values()] if isinstance(process, SpaceProcess) else []
