"""Checks what a scenario says about topics, for protocols with topics and for those without."""

from __future__ import annotations

from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    ANY_TOPIC,
    ClockFault,
    CrashFault,
    DiskFault,
    JoinFault,
    LeaveFault,
    PartitionFault,
    PauseFault,
    RestartFault,
    ResumeFault,
    Scenario,
    TopicsTable,
    expand_nodes,
)
from antiphon.simulator.scenario.toml_document import Document, Place


def check_topics(scenario: Scenario, document: Document) -> None:
    """Check that every mentioned topic exists, and its first members too."""
    if scenario.topics is not None:
        check_first_members(scenario.topics, scenario, document)
    for place, topic in topics_spoken_of(scenario):
        if topic == ANY_TOPIC and place[0] == "workload":
            continue
        if not isinstance(topic, int):
            raise document.error(place, f'expected the number of a topic or "{ANY_TOPIC}", not "{topic}"; {example(0)}')
        if not 0 <= topic < scenario.topic_count():
            raise document.error(
                place,
                f"there is no topic {topic}; choose from 0 to {scenario.topic_count() - 1}, or have more of them: "
                f"[topics] with count = {max(topic, 0) + 1}",
            )


def example(topic: int) -> str:
    """An example of a valid topic."""
    return f"for example: topic = {topic}"


def topics_spoken_of(scenario: Scenario) -> list[tuple[Place, int | str]]:
    """Each mentioned topic, with its place in the file."""
    found: list[tuple[Place, int | str]] = []
    if scenario.workload is not None:
        found.append((("workload", "topic"), scenario.workload.topic))
    found += [(("publish", number, "topic"), table.topic) for number, table in enumerate(scenario.publications)]
    for key, tables in (("subscribe", scenario.subscriptions), ("unsubscribe", scenario.unsubscriptions)):
        found += [((key, number, "topic"), table.topic) for number, table in enumerate(tables)]
    return found


def check_first_members(topics: TopicsTable, scenario: Scenario, document: Document) -> None:
    """Check that first members are drawn or listed, not both, for each topic, and exist."""
    if topics.members is None:
        return
    place: Place = ("topics", "members")
    if topics.share != TopicsTable().share:
        raise document.error(place, "members are drawn or named, not both; leave out members, or share")
    if len(topics.members) != topics.count:
        raise document.error(
            place,
            f"expected a set of nodes for each of {topics.count} topics, not {len(topics.members)} sets; "
            f"write for example: count = {len(topics.members)}",
        )
    for number, nodes in enumerate(topics.members):
        try:
            expand_nodes(nodes, scenario.nodes)
        except UsageError as error:
            raise document.error((*place, number), str(error)) from error


def check_no_topics(scenario: Scenario, document: Document) -> None:
    """Refuse topics under a protocol without topics."""
    mistaken: list[Place] = [place for place, topic in topics_spoken_of(scenario) if topic != 0]
    if scenario.unsubscriptions:
        mistaken.insert(0, ("unsubscribe", 0))
    if scenario.subscriptions:
        mistaken.insert(0, ("subscribe", 0))
    if scenario.topics is not None:
        mistaken.insert(0, ("topics",))
    if mistaken:
        able = next(name for name, protocol in PROTOCOLS.items() if protocol.has_topics)
        raise document.error(
            mistaken[0],
            f"{scenario.protocol} has no topics: all nodes receive everything; leave this out, or choose: "
            f'protocol = "{able}"',
        )


def check_fault_tolerance(scenario: Scenario, document: Document) -> None:
    """Refuse faults under a protocol that promises nothing then. Copies may be late, and nodes may pause."""
    able = next(name for name, protocol in PROTOCOLS.items() if protocol.tolerates_faults)
    remedy = f'leave this out, or choose: protocol = "{able}"'
    for key, share in (("loss", scenario.network.loss), ("duplication", scenario.network.duplication)):
        if share > 0:
            raise document.error(
                ("network", key),
                f"{scenario.protocol} needs links that neither lose nor duplicate (they may delay and reorder, see "
                f"reordering); {remedy}",
            )
    if scenario.network.notices_pauses:
        raise document.error(
            ("network", "notices_pauses"), f"{scenario.protocol} needs nodes that are never counted as lost; {remedy}"
        )
    for number, fault in enumerate(scenario.faults):
        if not isinstance(fault, PauseFault | ResumeFault | ClockFault):
            raise document.error(
                ("fault", number),
                f"{scenario.protocol} needs nodes that do not fail and are up from the start (they may pause and "
                f"resume; members join and leave by [[subscribe]] and [[unsubscribe]]); {remedy}",
            )


def check_connections(scenario: Scenario, document: Document) -> None:
    """Check that links behave like connections, and that nodes have only faults that the protocol survives."""
    network = scenario.network
    if not network.in_order:
        raise document.error(
            ("network", "in_order"), f"{scenario.protocol} runs over connections; write: in_order = true"
        )
    for key, share in (("loss", network.loss), ("duplication", network.duplication)):
        if share > 0:
            raise document.error(("network", key), f"{scenario.protocol} runs over connections; leave this out")
    if PROTOCOLS[scenario.protocol].remembers:
        check_returns(scenario, document)
        return
    joins = PROTOCOLS[scenario.protocol].needs_quorum
    check_standstills(scenario, document)
    for number, fault in enumerate(scenario.faults):
        survived = (CrashFault, PauseFault, ResumeFault, ClockFault)
        if isinstance(fault, survived) or (joins and isinstance(fault, JoinFault)):
            continue
        if not joins:
            complaint = f"{scenario.protocol} survives crashes and pauses, and nothing else; leave this out"
            raise document.error(("fault", number), complaint)
        check_fault_of_tree(scenario, document, number)
    check_newcomers(scenario, document)


def check_standstills(scenario: Scenario, document: Document) -> None:
    """Check for a quorum where paused nodes count as lost: without it they cannot come back."""
    if scenario.network.notices_pauses and not scenario.protocol_options.get("quorum", False):
        raise document.error(
            ("network", "notices_pauses"),
            "without a quorum no lost node comes back; write: protocol-options.quorum = true",
        )


def check_fault_of_tree(scenario: Scenario, document: Document, number: int) -> None:
    """Check a fault of a tree: with a quorum, partitions are allowed, and brokers with disks may restart."""
    fault = scenario.faults[number]
    has_quorum = scenario.protocol_options.get("quorum", False)
    returns = isinstance(fault, RestartFault) and scenario.protocol_options.get("disk", False)
    if has_quorum and (returns or isinstance(fault, PartitionFault)):
        return
    if isinstance(fault, PartitionFault):
        complaint = "without a quorum brokers take a partition for crashes; write: protocol-options.quorum = true"
    elif returns:
        complaint = "without a quorum a lost broker stays lost; write: protocol-options.quorum = true"
    else:
        complaint = (
            "a broker without a disk cannot restart under its number; let another node join, or "
            "give brokers disks: protocol-options.disk = true"
        )
    raise document.error(("fault", number), complaint)


def check_disks(scenario: Scenario, document: Document) -> None:
    """Refuse disk faults, and nodes that continue a disk, where nodes have no disks to restart with."""
    has_disks = PROTOCOLS[scenario.protocol].remembers and scenario.protocol_options.get("log", 0)
    for number, fault in enumerate(scenario.faults):
        continues = isinstance(fault, JoinFault) and fault.continues is not None
        if (continues or isinstance(fault, DiskFault)) and not has_disks:
            raise document.error(
                ("fault", number),
                "nodes have no disks to restart with; leave this out, or choose: "
                'protocol = "vcube-ps-lasting", with protocol-options.log = 1000',
            )
        if isinstance(fault, DiskFault) and fault.until is not None and fault.until <= fault.at:
            raise document.error(
                ("fault", number, "until"),
                f"expected a time after the fault begins at {fault.at}, not {fault.until}; "
                f"for example: until = {fault.at + 1000}",
            )


def check_returns(scenario: Scenario, document: Document) -> None:
    """Check that restarting nodes have logs, and that no node leaves: it must unsubscribe."""
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, RestartFault) and not scenario.protocol_options.get("log", 0):
            raise document.error(
                ("fault", number),
                "a node without a log cannot restart under its number; let another node join, "
                "or give nodes a log: protocol-options.log = 1000",
            )
        if isinstance(fault, LeaveFault):
            raise document.error(
                ("fault", number),
                f"{scenario.protocol} does not support leaving nodes; let the node unsubscribe instead",
            )


def check_newcomers(scenario: Scenario, document: Document) -> None:
    """Check that a node that joins a tree later has a parent that is up from the start."""
    absent = scenario.absent_at_start()
    parents = scenario.protocol_options.get("parents")
    if not absent or not isinstance(parents, list):
        return
    for node, parent in enumerate(parents):
        if parent in absent or (node in absent and parent < 0):
            raise document.error(
                ("protocol-options", "parents"),
                f"node {parent if parent in absent else node} joins later, so it can be neither root nor parent; it "
                "asks its own parent for a place when it joins",
            )


def check_keys(scenario: Scenario, document: Document) -> None:
    """Refuse keys under a protocol without keys."""
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.has_keys or protocol.holes_in is not None:
        return
    complaint = f'{scenario.protocol} has no keys; leave this out, or choose: protocol = "vcube-ps" or "broker-tree"'
    for number, publication in enumerate(scenario.publications):
        if publication.keys:
            raise document.error(("publish", number, "keys"), complaint)
    if scenario.workload is not None and scenario.workload.keys > 0:
        raise document.error(("workload", "keys"), complaint)
