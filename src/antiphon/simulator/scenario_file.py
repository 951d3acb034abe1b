"""Reading a scenario file, and the checks that its types alone cannot make.

Nothing runs and nothing is written before all of them have passed. They include a walk through the faults of every
node in the order of time, so that a restart of a node that is not down is found before the run and not in its middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from antiphon.kernel.errors import PeerError, ScenarioError, UsageError
from antiphon.simulator.protocols import FABRICS, ORDERS, PROTOCOLS
from antiphon.simulator.scenario import (
    CrashFault,
    JoinFault,
    LeaveFault,
    MatrixLaw,
    NodeFault,
    OnceWorkload,
    PartitionFault,
    PauseFault,
    RateWorkload,
    RestartFault,
    ResumeFault,
    Scenario,
    check_node,
    expand_nodes,
)
from antiphon.simulator.toml_document import Document, Place, wrong_word
from antiphon.simulator.workload import MAXIMUM_PUBLICATIONS, publisher_count

TRANSITIONS: dict[type[NodeFault], tuple[str, tuple[str, ...], str]] = {
    CrashFault: ("crash", ("up", "paused"), "down"),
    RestartFault: ("restart", ("down",), "up"),
    PauseFault: ("pause", ("up",), "paused"),
    ResumeFault: ("resume", ("paused",), "up"),
    JoinFault: ("join", ("absent",), "up"),
    LeaveFault: ("leave", ("up",), "absent"),
}
"""What each fault is called, the states in which it may meet a node, and the state in which it leaves the node."""


def load_scenario(path: Path, seed: int | None = None, nodes: int | None = None) -> Scenario:
    """The scenario in a file, checked; ``seed`` and ``nodes`` replace what the file says."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"there is no scenario at {path}; check the name") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a directory; name one scenario file in it, such as {path / 'a.toml'}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte {error.start + 1} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise PeerError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
    return parse_scenario(text, str(path), seed, nodes)


def parse_scenario(text: str, name: str = "scenario", seed: int | None = None, nodes: int | None = None) -> Scenario:
    """The scenario in a text, checked; ``name`` is what complaints call the text."""
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
    check_faults(scenario, document)
    check_states(scenario, document)


def check_names(scenario: Scenario, document: Document) -> None:
    """Fabric, protocol, order and the protocol's options exist."""
    check_word(document, "fabric", scenario.fabric, FABRICS)
    check_word(document, "protocol", scenario.protocol, PROTOCOLS)
    check_word(document, "order", scenario.order, ORDERS)
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.fabric != scenario.fabric:
        raise document.error(
            ("protocol",),
            f'{scenario.protocol} runs on another fabric than {scenario.fabric}; write: fabric = "{protocol.fabric}"',
        )
    options = document.convert(scenario.protocol_options, protocol.options, ("protocol-options",))
    for key in protocol.node_options:
        check_exists(document, ("protocol-options", key), getattr(options, key), scenario.nodes)


def check_word(document: Document, key: str, word: str, known: Iterable[str]) -> None:
    """A name is one of those known."""
    words = list(known)
    if word not in words:
        raise document.error((key,), wrong_word(key, word, words))


def check_exists(document: Document, place: Place, node: int, node_count: int) -> None:
    """A node exists."""
    try:
        check_node(node, node_count)
    except UsageError as error:
        raise document.error(place, str(error)) from error


def check_network(scenario: Scenario, document: Document) -> None:
    """The parameters of the network fit together."""
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
    if network.reordering > 0 and network.reordering_window == 0:
        raise document.error(
            ("network", "reordering"),
            "reordered copies need a time by which they may be late; add for example: reordering_window = 50",
        )


def check_workload(scenario: Scenario, document: Document) -> None:
    """Something is published, not too much, and within the time of the run."""
    workload = scenario.workload
    count: float = len(scenario.publications)
    if workload is None:
        if count == 0:
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
    """About how many publications a workload with a rate makes."""
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
    """Something that is to happen does so before the run ends."""
    if time > scenario.limits.time:
        raise document.error(
            place,
            f"{time} is after the end of the run; choose an earlier time, for example: {scenario.limits.time // 2}, "
            f"or a later end in [limits], for example: time = {time * 2}",
        )


def check_faults(scenario: Scenario, document: Document) -> None:
    """Each fault makes sense for itself, and so does each publication that is spelled out."""
    for number, publication in enumerate(scenario.publications):
        place: Place = ("publish", number)
        check_exists(document, (*place, "node"), publication.node, scenario.nodes)
        check_time(document, (*place, "at"), publication.at, scenario)
    for number, fault in enumerate(scenario.faults):
        place = ("fault", number)
        check_time(document, (*place, "at"), fault.at, scenario)
        if isinstance(fault, PartitionFault):
            check_partition(fault, place, scenario, document)
        else:
            check_targets(fault, place, scenario, document)


def check_targets(fault: NodeFault, place: Place, scenario: Scenario, document: Document) -> None:
    """A fault happens to one node or to several, which exist."""
    if (fault.node is None) == (fault.nodes is None):
        given = "neither" if fault.node is None else "both"
        raise document.error(
            place, f"expected node or nodes, but found {given}; for example: node = 5, or: nodes = [5, 6]"
        )
    if fault.node is not None:
        check_exists(document, (*place, "node"), fault.node, scenario.nodes)
    if fault.nodes is not None:
        members = checked_nodes(fault.nodes, (*place, "nodes"), scenario, document)
        if not members:
            raise document.error((*place, "nodes"), "expected at least one node; for example: nodes = [5, 6]")


def checked_nodes(nodes: list[int] | str, place: Place, scenario: Scenario, document: Document) -> list[int]:
    """The nodes of a set, which exist."""
    try:
        return expand_nodes(nodes, scenario.nodes)
    except UsageError as error:
        raise document.error(place, str(error)) from error


def check_partition(fault: PartitionFault, place: Place, scenario: Scenario, document: Document) -> None:
    """A partition lasts, its groups do not overlap, and they part something."""
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
            "expected groups of at least one node each that leave somebody to be parted from; "
            'for example: groups = ["0-31", "32-63"]',
        )


def check_states(scenario: Scenario, document: Document) -> None:
    """Walk through faults and publications in the order of time: each meets its nodes in a state that suits it."""
    states = dict.fromkeys(scenario.absent_at_start(), "absent")
    publications = sorted(enumerate(scenario.publications), key=lambda numbered: numbered[1].at)
    waiting = iter(publications)
    publication = next(waiting, None)
    for number, fault in scenario.faults_by_time():
        while publication is not None and publication[1].at < fault.at:
            check_publisher(publication[0], states, scenario, document)
            publication = next(waiting, None)
        if not isinstance(fault, PartitionFault):
            for node in fault.targets(scenario.nodes):
                check_transition(number, fault, node, states, document)
    while publication is not None:
        check_publisher(publication[0], states, scenario, document)
        publication = next(waiting, None)


def check_transition(number: int, fault: NodeFault, node: int, states: dict[int, str], document: Document) -> None:
    """A fault meets a node in a state that suits it, and changes it."""
    kind, suitable, following = TRANSITIONS[type(fault)]
    state = states.get(node, "up")
    if state not in suitable:
        raise document.error(
            ("fault", number),
            f"node {node} is {state} at time {fault.at}, but a {kind} needs a node that is {' or '.join(suitable)}"
            f"{remedy(state, suitable[0], node, fault.at)}",
        )
    states[node] = following


def check_publisher(number: int, states: dict[int, str], scenario: Scenario, document: Document) -> None:
    """A node that is told to publish is up."""
    publication = scenario.publications[number]
    state = states.get(publication.node, "up")
    if state != "up":
        raise document.error(
            ("publish", number),
            f"node {publication.node} is {state} at time {publication.at} and cannot publish"
            f"{remedy(state, 'up', publication.node, publication.at)}",
        )


def remedy(state: str, wanted: str, node: int, time: int) -> str:
    """How a node could have come from one state into another in time."""
    for kind, suitable, following in TRANSITIONS.values():
        if state in suitable and following == wanted:
            return f'; let for example come before it: at = {time}, kind = "{kind}", node = {node}'
    return f"; check the faults of node {node} before that time"
