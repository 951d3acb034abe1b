"""Every measured quantity: its name, its unit and its definition. Each is defined here and only here.

The measuring code uses these definitions: the Spark jobs (:mod:`antiphon.pipeline.metrics`), the experiments
(:mod:`antiphon_lab.reproduction.metrics`), the audit, a running node and ``antiphon top``. ``docs/metrics.md`` is
generated from this list. To add one, define it here and measure it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.kernel.errors import UsageError

DELIVERIES = "deliveries"
EVERYTHING = "everything"
AUDIT = "audit"
NODE = "node"
TOPIC = "topic"
CLIENT = "client"
CONSUMER = "consumer"
DOOR = "door"

SOURCES = {
    DELIVERIES: "any trace",
    EVERYTHING: "a trace of level `everything`",
    AUDIT: "the audit of a trace",
    NODE: "a running node",
    TOPIC: "a running node, for each of its topics",
    CLIENT: "a running node, for clients with quotas",
    CONSUMER: "the node that leads the history of a topic, for its named consumers",
    DOOR: "a running node that serves MQTT clients",
}
"""The sources of a quantity."""

HEADER_BYTES = 20
NAME_BYTES = 6
ENTRY_BYTES = 4
"""The size of a message on the wire in simulations, beside its payload (section 4.5 of the thesis on aggregation): a
header, the source and the number of each publication, or of the one that it is about, and its entries.
"""


@dataclass(frozen=True)
class Quantity:
    """One measured quantity."""

    name: str
    unit: str
    source: str
    definition: str


QUANTITIES: dict[str, Quantity] = {}


def define(source: str, name: str, unit: str, definition: str) -> None:
    """Add a quantity to the list."""
    assert name not in QUANTITIES, f"{name} is defined twice"
    QUANTITIES[name] = Quantity(name, unit, source, " ".join(definition.split()))


def quantity(name: str) -> Quantity:
    """A quantity by its name; underscores, as in JSON, stand for hyphens."""
    found = QUANTITIES.get(name.replace("_", "-"))
    if found is None:
        raise UsageError(f"there is no quantity {name!r}; choose among {', '.join(QUANTITIES)}")
    return found


define(DELIVERIES, "totals", "count",
    """The number of events of each kind: requested publications, copies and other messages that were sent, received,
    dropped and duplicated by the network, deliveries, subscriptions that became effective and that ended.""",
)  # fmt: skip
define(DELIVERIES, "delivery-latency", "ticks",
    """From the request of the application for a publication until another node delivers it. The publisher's own
    delivery does not count. Mean, percentiles and maximum over all deliveries.""",
)  # fmt: skip
define(DELIVERIES, "delivery-latency-distribution", "ticks",
    """How many deliveries at other nodes than the publisher's had a latency from ``from`` (included) to ``to``
    (excluded); the classes are 0 and the powers of two.""",
)  # fmt: skip
define(EVERYTHING, "reception-latency", "ticks",
    """From the request of the application for a publication until its first copy reaches another node, whether the node
    can deliver it then or not. Mean, percentiles and maximum over publications and nodes. In a packet with publications
    of several sources only the first counts.""",
)  # fmt: skip
define(EVERYTHING, "reception-latency-distribution", "ticks",
    """How many first receptions had a latency from ``from`` (included) to ``to`` (excluded); the classes are 0 and the
    powers of two.""",
)  # fmt: skip
define(EVERYTHING, "delivery-wait", "ticks",
    """How long a publication waits at a node between the first copy of it that arrives there and its delivery. Mean,
    percentiles and maximum over publications and the nodes that delivered them, without the publisher.""",
)  # fmt: skip
define(EVERYTHING, "pending-buffer", "publications",
    """How many publications a node has received and not yet delivered at the moment when another one arrives there for
    the first time; publications that a node never delivers do not count. Mean, percentiles and maximum over these
    moments.""",
)  # fmt: skip
define(EVERYTHING, "hops", "hops",
    """How many hops the first copy of a publication took from its publisher to a node, through nodes each of which
    forwarded the first copy that it had received. Mean, percentiles and maximum over publications and nodes.""",
)  # fmt: skip
define(EVERYTHING, "messages-by-kind", "messages",
    """For each kind of message how many copies were sent, received, dropped and duplicated by the network.""",
)  # fmt: skip
define(EVERYTHING, "bytes-by-kind", "bytes",
    f"""For each kind of message the number of copies sent, the publications, entries and bytes of payload in them, and
    the total bytes: beside the payload {HEADER_BYTES} for a message, {NAME_BYTES} for each publication in it or for the
    one that it is about, and {ENTRY_BYTES} for each entry. Simulated networks have no other size of messages.""",
)  # fmt: skip
define(EVERYTHING, "aggregation", "packets",
    """The number of sent packets by the number of publications in them, and the number of these publications. A packet
    is a message that carries at least one publication.""",
)  # fmt: skip
define(EVERYTHING, "causal-information", "entries",
    """The number of entries of the causal barrier or the vector of a publication, which name what must be delivered
    before it, by the kind of message. Mean, percentiles and maximum over publications that travel alone.""",
)  # fmt: skip
define(EVERYTHING, "losses", "messages",
    """How many copies were dropped for each reason: lost by the network, separated by a partition, sender or receiver
    down.""",
)  # fmt: skip
define(EVERYTHING, "output-queue", "ticks",
    """How long each message stays in the output queue of its sender, its own transmission included. Where a
    transmission takes one tick this is the length of the queue that the message finds, itself included.""",
)  # fmt: skip
define(EVERYTHING, "queue-length", "messages",
    """The length of the output queue that a message with publications finds at its sender, itself included. Only such
    messages count as being in the queue, from when they are sent until their transmission has ended. Mean, percentiles
    and maximum over these messages.""",
)  # fmt: skip
define(EVERYTHING, "duplicates", "copies",
    """How many copies of publications reached a node that had received the same publication before; with it, how many
    copies were received at all, and the share.""",
)  # fmt: skip
define(EVERYTHING, "false-positives", "copies",
    """How many copies of publications reached a node that at that moment neither was a member of their topic nor had
    asked to be; with it, how many copies were received at all, and the share. On topics without subscriptions all nodes
    are members.""",
)  # fmt: skip
define(DELIVERIES, "reconfiguration-time", "ticks",
    """The duration of a change: from the request for a subscription or for its end until it is effective, and from the
    restart, the join or the resumption of a node until its first delivery. Mean, percentiles and maximum for each kind
    of change.""",
)  # fmt: skip
define(EVERYTHING, "links", "links",
    """The number of links that carried publications. A logical link is a pair of nodes and a topic, a physical link is
    a pair of nodes, in either direction; with them, how many logical links share a physical one, and how many physical
    links a node has on average.""",
)  # fmt: skip
define(EVERYTHING, "bandwidth-by-role", "bytes",
    """The bytes that nodes send and receive, as in bytes-by-kind, by their role in the topic of the message: publisher,
    if they ever published on it; else subscriber, if they ever delivered anything of it; else relay. ``nodes`` counts
    pairs of node and topic that sent or received anything; ``sent_per_tick`` is for one of them.""",
)  # fmt: skip
define(DELIVERIES, "ordering-similarity", "share",
    """The share of the deliveries of a node on a topic that is in the order of publication (by time, then by source):
    the length of the longest subsequence in this order, divided by the number of all. Mean, percentiles, minimum and
    maximum over nodes and topics.""",
)  # fmt: skip
define(DELIVERIES, "throughput", "count per interval",
    """Requested publications and deliveries over time: the run in 100 intervals of equal length, without those in which
    nothing happened. ``from`` is the time at which an interval begins.""",
)  # fmt: skip
define(DELIVERIES, "node-load", "count",
    """For each node the numbers of publications, of messages sent and received, and of deliveries. Traces of level
    ``deliveries`` show no messages, so nothing is sent and received there.""",
)  # fmt: skip
define(DELIVERIES, "topic-load", "count",
    """For each topic the numbers of publications and deliveries, of publishers, and of receiving nodes.""",
)  # fmt: skip

define(AUDIT, "messages", "messages", "Publications that have started: their own publisher has delivered them.")
define(AUDIT, "deliveries", "deliveries", "Publications handed to the application of a node, its own included.")
define(AUDIT, "violations-of-completeness", "publications",
    """A node that was a member when a publication started, and stayed one, never delivered it; or, where the trace
    shows when nodes ask to leave, it left later and delivered only something that follows it. A node that crashes or
    leaves is not a member any more, unless it restarts with its memory. A publication of a failed node may be lost with
    it, if no member has delivered it or something that follows it. A publication that a node has reported as lost is
    excused there, by its name, where such reports are allowed. If a limit cut the run off, only publications count that
    something delivered follows.""",
)  # fmt: skip
define(AUDIT, "violations-of-duplicates", "deliveries", "A node delivered a publication that it had delivered before.")
define(AUDIT, "violations-of-fifo", "deliveries",
    "A node delivered a publication after a later one of the same source that had to wait for it.",
)  # fmt: skip
define(AUDIT, "violations-of-causal", "deliveries",
    "A node delivered a publication after one that follows it and is not a later one of its source.",
)  # fmt: skip
define(AUDIT, "violations-of-total", "topics and keys",
    "No single order fits the deliveries of all nodes on a topic and key that uses total order.",
)  # fmt: skip
define(AUDIT, "violations-of-validity", "deliveries",
    "A node delivered a publication that no node published, or before it was published, or in another order.",
)  # fmt: skip
define(AUDIT, "violations-of-membership", "deliveries",
    "A node delivered a publication on a topic of which it was not a member.",
)  # fmt: skip
define(AUDIT, "violations-of-holes", "words",
    """In a simulated run: a node reported a loss twice, or delivered the publication after all, or reported one of a
    publisher that is up though only publications of failed nodes may be lost, or passed over a number without a report
    where each must be reported.""",
)  # fmt: skip
define(AUDIT, "violations-of-requests", "requests",
    "In a simulated run: a request of the application was not fulfilled, or something happened that it had not "
    "requested.",
)  # fmt: skip
define(AUDIT, "violations-of-stuck", "operations",
    "In a simulated run: a node had unfinished work that could not complete, though no message was in transit.",
)  # fmt: skip
define(AUDIT, "violations-of-durability", "messages",
    "In a live campaign: a killed node had accepted a message that was not on its disk, or its log was unreadable.",
)  # fmt: skip
define(AUDIT, "violations-of-content", "deliveries",
    "In a live campaign: a message arrived with another value than its application had published.",
)  # fmt: skip
define(AUDIT, "violations-of-drops", "subscribers",
    """In a live campaign: a subscriber whose policy drops messages missed more than was reported to it, or fewer could
    have been dropped than were reported.""",
)  # fmt: skip
define(AUDIT, "violations-of-stalls", "messages",
    """In a live campaign: a publisher waited too long for an answer while no fault was active: only slow subscribers
    can have delayed it.""",
)  # fmt: skip

define(NODE, "peers", "nodes", "Other nodes in the cluster")
define(NODE, "clients", "clients", "Connected clients")
define(
    NODE, "refused-connections", "connections", "Connections that this node has cut off because of what came over them"
)
define(NODE, "resumed-clients", "clients", "Clients that came from another node and went on here")
define(NODE, "lanes-known", "lanes", "Lanes of writers, by topic, of which this node knows how far they have come")
define(
    NODE,
    "lanes-forgotten",
    "lanes",
    "Lanes of writers that were forgotten because others came; what they repeat is not recognised",
)
define(NODE, "pieces-repeated", "batches", "Batches of writers that came again and were dropped here")
define(NODE, "pieces-ahead", "batches", "Batches of writers that were dropped because others before them had not come")
define(
    NODE,
    "pieces-in-conflict",
    "batches",
    "Batches of writers that were dropped because something else had been written before",
)
define(NODE, "bytes-sent", "bytes", "Bytes written to peers")
define(NODE, "frames-sent", "frames", "Frames written to peers")
define(NODE, "writes", "writes", "Writes to peers; one holds all frames of a turn, or of the time to gather")
define(NODE, "bytes-unwritten", "bytes", "Bytes sent to peers that the operating system has not taken yet")
define(NODE, "unfinished", "operations", "Things that the protocol has begun and waits to finish")
define(NODE, "commits", "commits", "Group commits of the log")
define(NODE, "bytes-uncommitted", "bytes", "Bytes that wait for the disk")
define(NODE, "bytes-handed-in", "bytes", "Bytes that clients have handed in and that wait to be published")
define(NODE, "clients-held", "clients", "Clients that are not read from because all have handed in too much together")
define(
    NODE, "topics-known", "topics", "Topics that the node knows; figures of the 1,000 with the most messages are shown"
)
define(NODE, "uptime-seconds", "seconds", "Seconds since the node started")
define(NODE, "certificate-days", "days", "Days until the certificate of the node expires; only with TLS")
define(NODE, "audit-dropped", "lines", "Lines of the audit log that were dropped")
define(NODE, "unhandled-errors", "steps", "Steps that failed and did not end the node: a peer lies, or there is a bug")
define(NODE, "healthy", "1 or 0", "1 while nothing is wrong")

define(TOPIC, "delivered-messages", "messages", "Messages delivered")
define(TOPIC, "delivered-bytes", "bytes", "Bytes of batches delivered")
define(TOPIC, "published", "messages", "Messages published by this node")
define(TOPIC, "dropped", "messages", "Messages dropped by the policies of slow subscriptions")
define(TOPIC, "repeated-batches", "batches", "Batches that clients handed in twice and that were dropped here")
define(
    TOPIC,
    "lost-batches",
    "batches",
    "Batches that this node will never deliver: no node has kept them, or they are late",
)
define(TOPIC, "late-batches", "batches", "Lost batches that came when their place in total order was already past")
define(TOPIC, "publisher-waits", "times", "Times that a publisher was slowed down")
define(TOPIC, "lag", "messages", "Messages that wait for the slowest subscription")
define(TOPIC, "unsent", "messages", "Messages that wait to be sent")
define(TOPIC, "bytes-under-way", "bytes", "Bytes published here that other nodes may not have acknowledged yet")
define(TOPIC, "subscriptions-behind", "subscriptions", "Subscriptions here for which publishers wait")
define(TOPIC, "blocked-seconds", "seconds", "For how long publishers here have waited while nothing was sent")
define(TOPIC, "subscriptions", "subscriptions", "Subscriptions of this node's application and clients")
define(TOPIC, "end-offset", "offset", "The offset of the next message")

define(CLIENT, "quota-used", "count or bytes", "How much of a quota all connections of one client use here")
define(CLIENT, "quota-bound", "count or bytes", "How much of it they may use")
define(CLIENT, "quota-hits", "times", "Times that the client was refused or slowed because a quota was used up")

define(DOOR, "mqtt-connections", "connections", "MQTT clients that are connected")
define(DOOR, "mqtt-sessions", "sessions", "MQTT sessions, with and without a connection")
define(DOOR, "mqtt-subscriptions", "subscriptions", "Subscriptions of all MQTT sessions")
define(DOOR, "mqtt-groups", "groups", "Shared subscriptions with members here")
define(DOOR, "mqtt-retained", "messages", "Retained messages")
define(DOOR, "mqtt-received", "messages", "Messages that MQTT clients have published")
define(
    DOOR, "mqtt-dropped", "messages", "Messages dropped because an MQTT client was behind, of sessions that there are"
)
define(DOOR, "mqtt-undeliverable", "messages", "Messages longer than the MQTT client takes")
define(DOOR, "mqtt-refused", "connections", "Connections of MQTT clients that broke the protocol or were not let in")

define(CONSUMER, "consumer-lag", "messages", "Messages from the first one that the consumer has not done to the end")
define(CONSUMER, "consumer-handed-out", "messages", "Messages in the hands of the members of the consumer")
define(CONSUMER, "consumer-members", "programs", "Programs that share the work of the consumer")
define(CONSUMER, "consumer-redelivered", "messages", "Messages that came back and were handed out again")
define(CONSUMER, "consumer-missed", "messages", "Messages that retention removed before the consumer had done them")
