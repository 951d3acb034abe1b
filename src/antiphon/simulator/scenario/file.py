"""Reads a scenario file, and makes the checks that its types alone cannot make.

Nothing runs and nothing is written before all of them have passed. They end with a walk through all events in the order
of time (:mod:`antiphon.simulator.scenario.walk`), so that a restart of a node that is not down is found before the run
and not in its middle.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from antiphon.fabrics.protocol import SCENARIO_ORDERS, Mistake, NetworkFigures
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import PeerError, ScenarioError, UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.simulator.network.delays import QuantileDelay
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    LinkLaw,
    MatrixLaw,
    OnceWorkload,
    PartitionFault,
    QuantileLaw,
    RateWorkload,
    Scenario,
    Targeted,
    check_node,
    expand_nodes,
    mean_ticks,
)
from antiphon.simulator.scenario.spaces import check_spaces
from antiphon.simulator.scenario.toml_document import Document, Place, wrong_word
from antiphon.simulator.scenario.topics import (
    check_connections,
    check_disks,
    check_fault_tolerance,
    check_keys,
    check_no_topics,
    check_topics,
)
from antiphon.simulator.scenario.walk import check_states
from antiphon.simulator.scenario.workload import MAXIMUM_PUBLICATIONS, publisher_count

LEAST_GROUPS = {"chain": 3, "ring": 4}
"""With fewer groups, all linked groups are neighbours."""


def load_scenario(path: Path, seed: int | None = None, nodes: int | None = None) -> Scenario:
    """Load and check a scenario file; ``seed`` and ``nodes`` replace the values in the file."""
    text = read_text(path, "scenario")
    return parse_scenario(text, str(path), seed, nodes)


def read_text(path: Path, what: str) -> str:
    """The text of a scenario file, or of another kind of file named by ``what``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"there is no {what} at {path}; check the name") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a directory; name one {what} file in it, such as {path / 'a.toml'}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte {error.start + 1} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise PeerError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error


def parse_scenario(text: str, name: str = "scenario", seed: int | None = None, nodes: int | None = None) -> Scenario:
    """Parse and check a scenario; complaints call the text ``name``."""
    document = Document(name, text)
    table = document.table()
    if seed is not None:
        table["seed"] = seed
    if nodes is not None:
        table["nodes"] = nodes
    scenario = document.convert(table, Scenario)
    check_scenario(scenario, document)
    return scenario


def check_scenario(scenario: Scenario, document: Document | None = None) -> None:
    """Raise a ScenarioError if the scenario cannot be run."""
    if document is None:
        document = Document("scenario")
    check_names(scenario, document)
    check_network(scenario, document)
    check_workload(scenario, document)
    check_operations(scenario, document)
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.has_topics:
        check_topics(scenario, document)
    else:
        check_no_topics(scenario, document)
    check_disks(scenario, document)
    if not protocol.tolerates_faults:
        check_fault_tolerance(scenario, document)
    if protocol.needs_connections:
        check_connections(scenario, document)
    check_keys(scenario, document)
    check_spaces(scenario, document)
    check_states(scenario, document)


def check_names(scenario: Scenario, document: Document) -> None:
    """Check that the fabric, the protocol, the order and the protocol's options exist."""
    check_word(document, "fabric", scenario.fabric, sorted(FABRICS))
    check_word(document, "protocol", scenario.protocol, PROTOCOLS)
    check_word(document, "order", scenario.order, SCENARIO_ORDERS)
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.fabric != scenario.fabric:
        raise document.error(
            ("protocol",),
            f'{scenario.protocol} runs on another fabric than {scenario.fabric}; write: fabric = "{protocol.fabric}"',
        )
    if scenario.order not in protocol.orders:
        raise document.error(
            ("order",),
            f"{scenario.protocol} supports the orders {', '.join(protocol.orders)}, not {scenario.order}; "
            f'for example: order = "{protocol.orders[0]}"',
        )
    check_own_orders(scenario, document)
    options = document.convert(scenario.protocol_options, protocol.options, ("protocol-options",))
    for key in protocol.node_options:
        check_exists(document, ("protocol-options", key), getattr(options, key), scenario.nodes)
    mistake = None if protocol.mistake is None else protocol.mistake(options, scenario.nodes)
    if mistake is not None:
        raise document.error(("protocol-options", *mistake.place), mistake.complaint)
    is_total = scenario.uses_order(ORDER_NAMES[TOTAL])
    misfit: Mistake | None = None
    if protocol.misfit is not None and is_total:
        network = NetworkFigures(scenario.network.loss, mean_ticks(scenario.network.delay))
        misfit = protocol.misfit(options, scenario.nodes, network)
    if misfit is not None:
        raise document.error(("protocol-options", *misfit.place), misfit.complaint)


def check_own_orders(scenario: Scenario, document: Document) -> None:
    """Check that publications name their own orders only where the protocol allows it, and that these exist."""
    named: list[tuple[Place, str]] = []
    if scenario.workload is not None:
        named += [(("workload", "orders", number), order) for number, order in enumerate(scenario.workload.orders)]
    for number, publication in enumerate(scenario.publications):
        if publication.order is not None:
            named.append((("publish", number, "order"), publication.order))
    for place, order in named:
        if not PROTOCOLS[scenario.protocol].mixes_orders:
            able = next(name for name, protocol in PROTOCOLS.items() if protocol.mixes_orders)
            raise document.error(
                place,
                f"all publications of {scenario.protocol} have the order of the scenario; leave this out, or choose: "
                f'protocol = "{able}"',
            )
        able_to = PROTOCOLS[scenario.protocol].orders
        if order not in able_to:
            raise document.error(place, wrong_word("order", order, list(able_to)))


def check_word(document: Document, key: str, word: str, known: Collection[str]) -> None:
    """Check that a name is known; the full list is made only for the complaint."""
    if word not in known:
        raise document.error((key,), wrong_word(key, word, list(known)))


def check_exists(document: Document, place: Place, node: int, node_count: int) -> None:
    """Check that a node exists."""
    try:
        check_node(node, node_count)
    except UsageError as error:
        raise document.error(place, str(error)) from error


def check_network(scenario: Scenario, document: Document) -> None:
    """Check that the parameters of the network are consistent."""
    network = scenario.network
    delay = network.delay
    if isinstance(delay, MatrixLaw):
        for number, row in enumerate(delay.rows):
            if len(row) != len(delay.rows):
                raise document.error(
                    ("network", "delay", "rows", number),
                    f"expected as many delays as there are rows, {len(delay.rows)}, not {len(row)}; "
                    "for example: rows = [[1, 80], [80, 1]]",
                )
        if not delay.rows:
            raise document.error(
                ("network", "delay", "rows"), "a matrix needs a row; for example: rows = [[1, 80], [80, 1]]"
            )
    points = delay.of if isinstance(delay, LinkLaw) else delay
    if isinstance(points, QuantileLaw):
        try:
            QuantileDelay(points.points)
        except UsageError as error:
            raise document.error(("network", "delay"), str(error)) from error
    if network.reordering > 0 and network.reordering_window == 0:
        raise document.error(
            ("network", "reordering"),
            "reordered copies need a largest delay; add for example: reordering_window = 50",
        )


def check_workload(scenario: Scenario, document: Document) -> None:
    """Check that something is published, not too much, and before the run ends."""
    workload = scenario.workload
    count: float = len(scenario.publications)
    if workload is None:
        if count == 0 and not scenario.subscriptions and not scenario.unsubscriptions:
            raise document.error(
                (), 'nothing is published; add for example: workload = { kind = "once", window = 1000 }'
            )
    elif isinstance(workload, OnceWorkload):
        count += publisher_count(workload, scenario.nodes)
    else:
        count += rate_count(workload, document)
    if count > MAXIMUM_PUBLICATIONS:
        raise document.error(
            ("workload",),
            f"expected at most {MAXIMUM_PUBLICATIONS} publications, not {int(count)}; "
            "publish fewer, for example: count = 100000",
        )
    if workload is not None:
        check_time(document, ("workload", "start"), workload.start, scenario)


def rate_count(workload: RateWorkload, document: Document) -> float:
    """The approximate number of publications of a workload with a rate."""
    if workload.until is None:
        if workload.count is None:
            raise document.error(("workload",), "a rate needs an end; add for example: count = 1000, or: until = 50000")
        return workload.count
    if workload.until <= workload.start:
        raise document.error(
            ("workload", "until"),
            f"expected a time after the start, {workload.start}, not {workload.until}; "
            f"for example: until = {workload.start + 1000}",
        )
    until_end = (workload.until - workload.start) / workload.mean_gap
    return until_end if workload.count is None else min(workload.count, until_end)


def check_time(document: Document, place: Place, time: int, scenario: Scenario) -> None:
    """Check that an event is before the end of the run."""
    if time > scenario.limits.time:
        raise document.error(
            place,
            f"{time} is after the end of the run; choose an earlier time, for example: {scenario.limits.time // 2}, "
            f"or a later end in [limits], for example: time = {time * 2}",
        )


def check_operations(scenario: Scenario, document: Document) -> None:
    """Check each listed publication, subscription change and fault by itself."""
    for number, publication in enumerate(scenario.publications):
        place: Place = ("publish", number)
        check_exists(document, (*place, "node"), publication.node, scenario.nodes)
        check_time(document, (*place, "at"), publication.at, scenario)
    for key, tables in (("subscribe", scenario.subscriptions), ("unsubscribe", scenario.unsubscriptions)):
        for number, table in enumerate(tables):
            check_time(document, (key, number, "at"), table.at, scenario)
            check_targets(table, (key, number), scenario, document)
    for number, fault in enumerate(scenario.faults):
        place = ("fault", number)
        check_time(document, (*place, "at"), fault.at, scenario)
        if isinstance(fault, PartitionFault):
            check_partition(fault, place, scenario, document)
        else:
            check_targets(fault, place, scenario, document)


def check_targets(table: Targeted, place: Place, scenario: Scenario, document: Document) -> None:
    """Check that a fault or change has one node or several, and that they exist."""
    if (table.node is None) == (table.nodes is None):
        given = "neither" if table.node is None else "both"
        raise document.error(
            place, f"expected node or nodes, but found {given}; for example: node = 5, or: nodes = [5, 6]"
        )
    if table.node is not None:
        check_exists(document, (*place, "node"), table.node, scenario.nodes)
    if table.nodes is not None:
        members = checked_nodes(table.nodes, (*place, "nodes"), scenario, document)
        if not members:
            raise document.error((*place, "nodes"), "expected at least one node; for example: nodes = [5, 6]")


def checked_nodes(nodes: list[int] | str, place: Place, scenario: Scenario, document: Document) -> list[int]:
    """The nodes of a set, checked to exist."""
    try:
        return expand_nodes(nodes, scenario.nodes)
    except UsageError as error:
        raise document.error(place, str(error)) from error


def check_partition(fault: PartitionFault, place: Place, scenario: Scenario, document: Document) -> None:
    """Check that a partition has a duration, that its groups do not overlap, and that it separates some nodes."""
    if fault.until is not None and fault.until <= fault.at:
        raise document.error(
            (*place, "until"),
            f"expected a time after the partition begins at {fault.at}, not {fault.until}; "
            f"for example: until = {fault.at + 1000}",
        )
    group_of: dict[int, int] = {}
    sizes: list[int] = []
    for number, group in enumerate(fault.groups):
        members = checked_nodes(group, (*place, "groups", number), scenario, document)
        for node in members:
            if group_of.setdefault(node, number) != number:
                raise document.error(
                    (*place, "groups", number),
                    f"node {node} is in group {group_of[node] + 1} too; put each node into one group at most, "
                    'for example: groups = ["0-31", "32-63"]',
                )
        sizes.append(len(set(members)))
    if 0 in sizes or not sizes or sizes[0] == scenario.nodes:
        raise document.error(
            (*place, "groups"),
            "expected groups of at least one node each, and nodes outside of the first group; "
            'for example: groups = ["0-31", "32-63"]',
        )
    least = LEAST_GROUPS.get(fault.linked, 1)
    if len(sizes) < least:
        raise document.error(
            (*place, "groups"),
            f"a {fault.linked} of groups separates no nodes unless there are at least {least}, not {len(sizes)}; "
            f"for example: groups = {[[node] for node in range(least)]}",
        )
