"""Every quantity that is measured anywhere: its name, its unit, and what it means. Each is defined here and only here.

Whoever measures one takes the words from here: the Spark jobs (:mod:`antiphon.pipeline.metrics`), the experiments
(:mod:`antiphon_lab.reproduction.metrics`), the audit, a running node and ``antiphon top``. ``docs/metrics.md`` is made
of this list. To add one, add it here and measure it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.kernel.errors import UsageError

DELIVERIES = "deliveries"
EVERYTHING = "everything"
AUDIT = "audit"
NODE = "node"
TOPIC = "topic"

SOURCES = {
    DELIVERIES: "any trace",
    EVERYTHING: "a trace of level `everything`",
    AUDIT: "the audit of a trace",
    NODE: "a running node",
    TOPIC: "a running node, for each of its topics",
}
"""Where a quantity can be read off."""

HEADER_BYTES = 20
NAME_BYTES = 6
ENTRY_BYTES = 4
"""What a message takes on the wire in simulations, besides its payload (section 4.5 of the thesis on aggregation): a
header, the source and the number of each publication, or of the one that it is about, and its entries."""


@dataclass(frozen=True)
class Quantity:
    """One thing that is measured."""

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
    """A quantity by its name; where names have underscores, as in JSON, these stand for hyphens."""
    found = QUANTITIES.get(name.replace("_", "-"))
    if found is None:
        raise UsageError(f"there is no quantity {name!r}; choose among {', '.join(QUANTITIES)}")
    return found


define(DELIVERIES, "totals", "count",
    """How often each thing happened: publications asked for, copies and other messages sent, received, dropped and
    doubled by the network, deliveries, subscriptions that took effect and that ended.""",
)  # fmt: skip
define(DELIVERIES, "delivery-latency", "ticks",
    """From the moment when the application asks for a publication until another node delivers it. The publisher's own
    delivery does not count. Mean, percentiles and maximum over all deliveries.""",
)  # fmt: skip
define(DELIVERIES, "delivery-latency-distribution", "ticks",
    """How many deliveries at other nodes than the publisher's had a latency from ``from`` (included) to ``to``
    (excluded); the classes are 0 and the powers of two.""",
)  # fmt: skip
define(EVERYTHING, "reception-latency", "ticks",
    """From the moment when the application asks for a publication until the first copy of it reaches another node,
    whether the node can deliver it then or not. Mean, percentiles and maximum over publications and nodes. Of a packet
    that holds publications of several sources only the first is seen.""",
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
    the first time; what a node never delivers does not count. Mean, percentiles and maximum over these moments.""",
)  # fmt: skip
define(EVERYTHING, "hops", "hops",
    """How many hops the first copy of a publication took from its publisher to a node, through nodes each of which
    handed on the first copy that it had received. Mean, percentiles and maximum over publications and nodes.""",
)  # fmt: skip
define(EVERYTHING, "messages-by-kind", "messages",
    """For each kind of message how many copies were sent, received, dropped and doubled by the network.""",
)  # fmt: skip
define(EVERYTHING, "bytes-by-kind", "bytes",
    f"""For each kind of message the number of copies sent, the publications, entries and bytes of payload in them, and
    the bytes in all: besides the payload {HEADER_BYTES} for a message, {NAME_BYTES} for each publication in it or for
    the one that it is about, and {ENTRY_BYTES} for each entry. Simulated networks have no other size of messages.""",
)  # fmt: skip
define(EVERYTHING, "aggregation", "packets",
    """How many packets were sent that held so many publications, and how many publications these are. A packet is a
    message that carries at least one publication.""",
)  # fmt: skip
define(EVERYTHING, "causal-information", "entries",
    """How many entries a publication carries to say what must be delivered before it, of its causal barrier or its
    vector, by the kind of message. Mean, percentiles and maximum over publications that travel alone.""",
)  # fmt: skip
define(EVERYTHING, "losses", "messages",
    """How many copies were dropped for each reason: lost by the network, cut off by a partition, sender or receiver
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
    asked to be; with it, how many copies were received at all, and the share. On topics where nobody ever subscribes
    everybody is a member.""",
)  # fmt: skip
define(DELIVERIES, "reconfiguration-time", "ticks",
    """How long a change takes: from asking for a subscription or for its end until it takes effect, and from the
    restart, the arrival or the resumption of a node until its first delivery. Mean, percentiles and maximum for each
    kind of change.""",
)  # fmt: skip
define(EVERYTHING, "links", "links",
    """Over how many links publications went. A logical link is a pair of nodes and a topic, a physical link is a pair
    of nodes, whatever the direction; with them, how many logical links share a physical one, and how many physical
    links a node has on average.""",
)  # fmt: skip
define(EVERYTHING, "bandwidth-by-role", "bytes",
    """What nodes send and receive, in bytes as in bytes-by-kind, by their role in the topic of the message: publisher,
    if they ever published on it; else subscriber, if they ever delivered anything of it; else relay. ``nodes`` counts
    pairs of node and topic that sent or received anything; ``sent_per_tick`` is for one of them.""",
)  # fmt: skip
define(DELIVERIES, "ordering-similarity", "share",
    """How much of what a node delivered of a topic is in the order in which it was published (by time, then by source):
    the length of the longest subsequence that is in this order, as a share of all. Mean, percentiles, minimum and
    maximum over nodes and topics.""",
)  # fmt: skip
define(DELIVERIES, "throughput", "count per interval",
    """Publications asked for and deliveries over time: the run in 100 intervals of equal length, of which those are
    listed in which anything happened. ``from`` is the time at which an interval begins.""",
)  # fmt: skip
define(DELIVERIES, "node-load", "count",
    """For each node what it published, sent, received and delivered. Traces of level ``deliveries`` show no messages,
    so nothing is sent and received there.""",
)  # fmt: skip
define(DELIVERIES, "topic-load", "count",
    """For each topic what was published and delivered on it, by how many publishers, and to how many nodes.""",
)  # fmt: skip

define(AUDIT, "messages", "messages", "Publications that have started: their own publisher has delivered them.")
define(AUDIT, "deliveries", "deliveries", "Publications handed to the application of a node, its own included.")
define(AUDIT, "violations-of-completeness", "publications",
    """A node that was a member when a publication started, and stayed one, never delivered it; or, where it is known
    when nodes ask to leave, it left later and delivered only something that follows it. A node that crashes or leaves
    is no member any more, unless it comes back with its memory. What a node that failed had published may be lost with
    it, if no member has delivered it or something that follows it. A publication that a node has said to be lost is
    excused there, by its name, where that may be said. If a limit cut the run off, only what follows something
    delivered counts.""",
)  # fmt: skip
define(AUDIT, "violations-of-duplicates", "deliveries", "A node delivered a publication that it had delivered before.")
define(AUDIT, "violations-of-fifo", "deliveries",
    "A node delivered a publication after a later one of the same source that had to wait for it.",
)  # fmt: skip
define(AUDIT, "violations-of-causal", "deliveries",
    "A node delivered a publication after one that follows it in another way than as a later one of its source.",
)  # fmt: skip
define(AUDIT, "violations-of-total", "topics and keys",
    "Nodes delivered publications of a topic and key that ask for total order so that no single order fits them all.",
)  # fmt: skip
define(AUDIT, "violations-of-validity", "deliveries",
    "A node delivered what nobody published, or before it was published, or as of another order.",
)  # fmt: skip
define(AUDIT, "violations-of-membership", "deliveries",
    "A node delivered something of a topic of which it was no member.",
)  # fmt: skip
define(AUDIT, "violations-of-holes", "words",
    """In a simulated run: a node said of something that it is lost to it twice, or delivered it all the same, or said
    it of a publisher that lives though only what failed nodes published may be lost, or passed over a number without a
    word where each must be told.""",
)  # fmt: skip
define(AUDIT, "violations-of-requests", "requests",
    "In a simulated run: what the application asked for did not happen, or something happened for which it had not "
    "asked.",
)  # fmt: skip
define(AUDIT, "violations-of-stuck", "operations",
    "In a simulated run: a node had begun something and could not finish it, though nothing was on its way any more.",
)  # fmt: skip
define(AUDIT, "violations-of-durability", "messages",
    """In a live campaign: a node had accepted a message and did not have it on its disk when it was killed; or its log
    could not be read.""",
)  # fmt: skip
define(AUDIT, "violations-of-content", "deliveries",
    "In a live campaign: a message came that was not, byte for byte, what its application had published.",
)  # fmt: skip
define(AUDIT, "violations-of-drops", "subscribers",
    """In a live campaign: a subscriber whose policy lets messages be dropped missed more than it was told, or was told
    of more than it can have missed.""",
)  # fmt: skip
define(AUDIT, "violations-of-stalls", "messages",
    """In a live campaign: a publisher waited for an answer for longer than it may, while nothing was done to nodes:
    only slow subscribers can have kept it.""",
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
define(NODE, "uptime-seconds", "seconds", "Seconds since the node started")
define(NODE, "healthy", "1 or 0", "1 while nothing is wrong")

define(TOPIC, "delivered-messages", "messages", "Messages delivered")
define(TOPIC, "delivered-bytes", "bytes", "Bytes of batches delivered")
define(TOPIC, "published", "messages", "Messages published by this node")
define(TOPIC, "dropped", "messages", "Messages dropped by the policies of slow subscriptions")
define(TOPIC, "repeated-batches", "batches", "Batches that clients handed in twice and that were dropped here")
define(TOPIC, "lost-batches", "batches", "Batches that will never be delivered here, because nobody has kept them")
define(TOPIC, "publisher-waits", "times", "Times that a publisher was slowed down")
define(TOPIC, "lag", "messages", "Messages that wait for the slowest subscription")
define(TOPIC, "unsent", "messages", "Messages that wait to be sent")
define(TOPIC, "bytes-under-way", "bytes", "Bytes published here that other nodes may not have acknowledged yet")
define(TOPIC, "subscriptions-behind", "subscriptions", "Subscriptions here for which publishers wait")
define(TOPIC, "blocked-seconds", "seconds", "For how long publishers here have waited while nothing was sent")
define(TOPIC, "subscriptions", "subscriptions", "Subscriptions of this node's application and clients")
define(TOPIC, "end-offset", "offset", "The offset of the next message")
