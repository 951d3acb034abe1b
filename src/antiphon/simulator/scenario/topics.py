"""What a scenario may say about topics: the checks for protocols that have them, and for those that do not."""

from __future__ import annotations

from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.protocols.registry import PROTOCOLS
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
    """Every topic that is spoken of exists, and so do its first members."""
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
    """What a right topic looks like."""
    return f"for example: topic = {topic}"


def topics_spoken_of(scenario: Scenario) -> list[tuple[Place, int | str]]:
    """Each topic that something is about, with its place in the file."""
    found: list[tuple[Place, int | str]] = []
    if scenario.workload is not None:
        found.append((("workload", "topic"), scenario.workload.topic))
    found += [(("publish", number, "topic"), table.topic) for number, table in enumerate(scenario.publications)]
    for key, tables in (("subscribe", scenario.subscriptions), ("unsubscribe", scenario.unsubscriptions)):
        found += [((key, number, "topic"), table.topic) for number, table in enumerate(tables)]
    return found


def check_first_members(topics: TopicsTable, scenario: Scenario, document: Document) -> None:
    """First members are drawn or named, not both, for each topic, and exist."""
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
    """A protocol without topics is told nothing about them."""
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
            f"{scenario.protocol} knows no topics: everybody gets everything; leave this out, or choose: "
            f'protocol = "{able}"',
        )


def check_fault_tolerance(scenario: Scenario, document: Document) -> None:
    """Nothing fails under a protocol that promises nothing then. Copies may be late, and nodes may pause."""
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
            ("network", "notices_pauses"), f"{scenario.protocol} needs nodes that nobody counts as lost; {remedy}"
        )
    for number, fault in enumerate(scenario.faults):
        if not isinstance(fault, PauseFault | ResumeFault | ClockFault):
            raise document.error(
                ("fault", number),
                f"{scenario.protocol} needs nodes that do not fail and are there from the start (they may pause and "
                f"resume; members come and go by [[subscribe]] and [[unsubscribe]]); {remedy}",
            )


def check_connections(scenario: Scenario, document: Document) -> None:
    """Links behave like connections; nodes crash or pause, and do not come back under the same number."""
    network = scenario.network
    if not network.in_order:
        raise document.error(
            ("network", "in_order"), f"{scenario.protocol} runs over connections; write: in_order = true"
        )
    for key, share in (("loss", network.loss), ("duplication", network.duplication)):
        if share > 0:
            raise document.error(("network", key), f"{scenario.protocol} runs over connections; leave this out")
    if scenario.protocol == "vcube-ps-lasting":
        check_returns(scenario, document)
        return
    joins = scenario.protocol == "broker-tree"
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
    """Who counts as lost because it stands still comes back only where there is a quorum."""
    if scenario.network.notices_pauses and not scenario.protocol_options.get("quorum", False):
        raise document.error(
            ("network", "notices_pauses"), "without a quorum nobody comes back; write: protocol-options.quorum = true"
        )


def check_fault_of_tree(scenario: Scenario, document: Document, number: int) -> None:
    """With a quorum networks fall apart, and brokers that have disks return with them."""
    fault = scenario.faults[number]
    has_quorum = scenario.protocol_options.get("quorum", False)
    returns = isinstance(fault, RestartFault) and scenario.protocol_options.get("disk", False)
    if has_quorum and (returns or isinstance(fault, PartitionFault)):
        return
    if isinstance(fault, PartitionFault):
        complaint = "without a quorum brokers take a partition for crashes; write: protocol-options.quorum = true"
    elif returns:
        complaint = "without a quorum who is lost stays lost; write: protocol-options.quorum = true"
    else:
        complaint = (
            "a broker that returns without its disk is a new one, under a number of its own; let another node join, or "
            "give brokers disks: protocol-options.disk = true"
        )
    raise document.error(("fault", number), complaint)


def check_disks(scenario: Scenario, document: Document) -> None:
    """Disks are in trouble, or are continued, only where nodes have any that they come back with."""
    has_disks = PROTOCOLS[scenario.protocol].remembers and scenario.protocol_options.get("log", 0)
    for number, fault in enumerate(scenario.faults):
        continues = isinstance(fault, JoinFault) and fault.continues is not None
        if (continues or isinstance(fault, DiskFault)) and not has_disks:
            raise document.error(
                ("fault", number),
                "nodes have no disks that they come back with; leave this out, or choose: "
                'protocol = "vcube-ps-lasting", with protocol-options.log = 1000',
            )
        if isinstance(fault, DiskFault) and fault.until is not None and fault.until <= fault.at:
            raise document.error(
                ("fault", number, "until"),
                f"expected a time after the trouble begins at {fault.at}, not {fault.until}; "
                f"for example: until = {fault.at + 1000}",
            )


def check_returns(scenario: Scenario, document: Document) -> None:
    """Who comes back under its number has its log; who leaves does so by unsubscribing."""
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, RestartFault) and not scenario.protocol_options.get("log", 0):
            raise document.error(
                ("fault", number),
                "a node that returns without its log is a new one, under a number of its own; let another node join, "
                "or give nodes a log: protocol-options.log = 1000",
            )
        if isinstance(fault, LeaveFault):
            raise document.error(
                ("fault", number), f"{scenario.protocol} has no orderly leaving of nodes; let it unsubscribe instead"
            )


def check_newcomers(scenario: Scenario, document: Document) -> None:
    """Who joins a tree asks somebody who is there from the start."""
    absent = scenario.absent_at_start()
    parents = scenario.protocol_options.get("parents")
    if not absent or not isinstance(parents, list):
        return
    for node, parent in enumerate(parents):
        if parent in absent or (node in absent and parent < 0):
            raise document.error(
                ("protocol-options", "parents"),
                f"node {parent if parent in absent else node} joins later, so it is neither root nor parent; its own "
                "parent is whom it asks for a place",
            )


def check_keys(scenario: Scenario, document: Document) -> None:
    """Keys are named only where there are any."""
    protocol = PROTOCOLS[scenario.protocol]
    if protocol.has_keys or protocol.holes_in is not None:
        return
    complaint = f'{scenario.protocol} knows no keys; leave this out, or choose: protocol = "vcube-ps" or "broker-tree"'
    for number, publication in enumerate(scenario.publications):
        if publication.keys:
            raise document.error(("publish", number, "keys"), complaint)
    if scenario.workload is not None and scenario.workload.keys > 0:
        raise document.error(("workload", "keys"), complaint)
