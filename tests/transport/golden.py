"""One representative of everything that goes over a wire, and a file with its bytes: ``golden_messages.txt``.

Nodes and clients of one version of the protocol understand each other by these bytes, and logs hold some of them for
years. A class or a field may be renamed freely; its number, its place and its bytes stay. Write the file anew with

    python -m tests.transport.golden

which takes new messages and new names, and refuses to change bytes. If bytes are to change, raise ``PROTOCOL_VERSION``
and say ``--change-bytes``. A message that a log holds must be readable as it was written: see ``tests/storage``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import NO_AUTHOR, Author, Columns
from antiphon.fabrics.cube import messages as cube
from antiphon.fabrics.cube.total_order import messages as cube_totals
from antiphon.fabrics.gossip import messages as gossip
from antiphon.fabrics.gossip.epto import messages as epto
from antiphon.fabrics.tree import messages as tree
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import Keyed
from antiphon.membership import messages as membership
from antiphon.orders.order import KeyedOrdered, Ordered, Placed
from antiphon.sessions import client_messages as client
from antiphon.sessions import peer_messages as session
from antiphon.transport import peer_messages as peer
from antiphon.transport.codec import Codec
from antiphon.transport.schema import KINDS, parameters

FILE = Path(__file__).with_name("golden_messages.txt")
CONTROLS = (*peer.PEER_CONTROLS, *client.CLIENT_CONTROLS)
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


class Example(NamedTuple):
    """A representative: under which label it stands in the file, what it is called, and its bytes."""

    label: str
    name: str
    encoded: bytes

    def line(self) -> str:
        """As it stands in the file."""
        return f"{self.label} | {self.name} | {self.encoded.hex()}"


def array_of(*numbers: int) -> Any:
    """A flat array."""
    return vec[i64](numbers)


ordered = Ordered(3, 70_000, -1_000, b"why?", array_of(5, -6), 1 << 40, 2)
keyed_ordered = KeyedOrdered(4, 8, 1 << 50, b"", array_of(), 9, 3, array_of(10, 11))
placed = Placed(5, 9, 12, b"because", array_of(1), 13, 3, array_of(14), 15)
bundle = cube.Bundle([ordered, keyed_ordered, placed])
key_lock = cube_totals.KeyLockRequest(6, 16, 17, array_of(18), 19, 20)
keyed = Keyed(7, 21, 22, b"how?", 23, 3, array_of(24, 25))
council = Council(26, [[27, 28], [29]])
overlay = Overlay(30, 1, {1: -1, 2: 1, 3: 1}, [4], council, True, [5])
item = tree.Item((1 << 30) + 8, 31, 1, keyed)
lock_item = tree.LockItem((1 << 30) + 9, 32, 33, keyed)
join = tree.JoinRequest(34, {35: 36}, {37: 38}, {39: 40}, [item, lock_item])
position = gossip.TreePosition(array_of(41, 42), 43)
report = gossip.Report(array_of(44, 45), array_of(46), array_of(64), [position], array_of(47, 48), 49, 50, 51)
stamped = epto.Stamped(52, 53, 54, b"when?", 55, 56, array_of(57))

VALUES: dict[str, Any] = {
    "source": 100, "sequence": 101, "topic": 102, "timestamp": 103, "payload": b"104", "order": 1, "counter": 105,
    "was_leaf": True, "place": 106, "attempt": 107, "before": 108, "version": 109, "origin": 110, "number": 111,
    "kind": 2, "epoch": 112, "root": 113, "champion": 114, "is_forced": True, "is_granted": True, "is_settled": True,
    "is_apart": True, "is_final": True, "can_order": True, "key": 115, "depth": 116, "last": 117, "uptime": 118,
    "load": 119, "bandwidth": 120, "stamp": 121, "echo": 122, "held": 123, "hops": 124, "is_upward": True,
    "is_answer": True, "is_urgent": True, "wants_pulse": True, "question": 125, "whole": False, "latest": 126,
    "sent_at": 127, "asks": 2, "is_member": True, "is_last": True, "is_past": True, "incarnation": 128,
    "reserved": 129, "proposal": 168, "last_stamp": 172, "last_name": 173,
    "dependencies": array_of(130), "targets": array_of(131), "entries": array_of(132, -133), "announced": array_of(134),
    "voters": array_of(135), "added": array_of(136), "removed": array_of(137), "members": array_of(138),
    "past": array_of(139), "keys": array_of(140), "path": array_of(141), "numbers": array_of(142, 143),
    "floors": array_of(144), "pulses": array_of(145, 146), "nodes": array_of(147), "stamps": array_of(148),
    "minima": array_of(*range(64)), "have": array_of(149), "news": array_of(150, 151),
    "parents": {1: -1, 2: 1}, "route": [152], "orphans": [153], "names": [154], "frontier": {155: 156},
    "base": {157: 158}, "completed": {159: 160}, "frontiers": {161: {162: 163}}, "absent": [164], "gone": [165],
    "bodies": [[166]], "brokers": [167], "proposed": array_of(169),
    "packet": ordered, "publications": [ordered, placed], "publication": keyed, "overlay": overlay, "council": council,
    "locks": [item, lock_item], "history": [lock_item, item], "joins": [join], "position": position,
    "positions": [position], "report": report,
}  # fmt: skip
"""Values of fields by their names, no two of them alike, so that fields that changed places are noticed."""

SPECIAL_VALUES: dict[tuple[type[Any], str], Any] = {
    (gossip.Data, "publication"): ordered,
    (gossip.FetchResponse, "publication"): stamped,
    (gossip.GossipFrontierResponse, "frontier"): array_of(168, 169),
    (epto.Ball, "names"): array_of(170),
    (epto.Ball, "hops"): array_of(171),
    (epto.Ball, "publications"): [],
}
FURTHER: tuple[Any, ...] = (
    ordered, keyed_ordered, placed, key_lock, keyed, council, overlay, item, lock_item, join, position, report, stamped,
    bundle, *(cube.LeafCopy(packet) for packet in (keyed_ordered, placed, bundle, key_lock)),
    cube.Subscribe(1, 2, 3, None), tree.JoinRequest(1, None, {}, {}, []), tree.Install(Overlay(1, 0, {0: -1})),
    gossip.Data(stamped, 1, position, False),
)  # fmt: skip
"""What looks different on the wire with other values in it."""

a_peer = membership.Peer("instance", "host:1", 7)
newcomer = membership.Peer("other", "host:2")
appointment = membership.Appointment(8, a_peer)
standing = session.LaneState("room", 9, 10, 11)
lane = client.LaneOf("writer", 12, 13, 14)

HOSTS: tuple[membership.Control, ...] = (
    membership.Hello(9, "cluster", "instance", "host:1", "target", "token", 15, 16, 9, 17, "directory", 18),
    membership.Refused("reason", True),
    peer.TopicAnnouncement(["room", "hall"], True),
    peer.TopicAnnouncementAck("room"),
    peer.CreditRequest(17),
    membership.Expelled("reason"),
    session.DedupRequest(18, "room", 19),
    session.DedupResponse(20, [21, 22]),
    session.ReplayRequest(23, "room", 24, [25, -26], 27, -28, {29: [30, 31]}, True),
    session.ReplayResponse(32, True, [(33, 34, "causal", b"payload")], True, 35, [(36, 37)]),
    session.FrontierRequest(38, "room", [39, -40], {43: 44}),
    session.FrontierResponse(41, True, [42], {43: [44]}, {43: [44]}, [43]),
    session.PeerProducerRequest(45, 46, 47, ["room"]),
    session.PeerProducerRequest(45, 46, None, []),
    session.PeerProducerResponse(48, [standing], ["room"], True),
    membership.PlaceRequest(newcomer, 49, "cube", 61),
    membership.PlaceResponse(50, 51, 52, [appointment], "founding", 53),
    membership.PeerAddresses([a_peer, newcomer], "founding"),
    membership.KeepAlive(),
    membership.SilenceNotice([9, 10]),
    membership.PeersDigest(11, True),
    membership.LeaveNotice(),
    membership.BlockRequest(54, 55),
    membership.BlockResponse(56, True),
    membership.ContactList([appointment]),
    client.PublishRequest(57, "room", "total", b"payload", (58, 59), 60, lane),
    client.PublishRequest(57, "room", "fifo", b"payload"),
    client.PublishResponse(61, "error", True, True, "kind"),
    client.SubscribeRequest(
        62, "room.*", "earliest", False, "wait", 63, client.Resume(-64, {"room": {65: [66, 67, 68]}})
    ),
    client.SubscribeRequest(62, "room", 69, True, "drop_oldest", 70),
    client.SubscriptionReady(71),
    client.SubscriptionEnded(72, "error", 73, True, "kind"),
    client.Delivery(74, "room", 75, "causal", 76, 77, b"payload", 78),
    client.MessagesConsumed(79, 80),
    client.UnsubscribeRequest(81),
    client.StatusRequest(82, False),
    client.StatusResponse(83, {"fabric": "cube", "peers": []}, 84, "denied"),
    client.FollowRequest(85, "room", {86: 87}),
    client.FollowResponse(88, "room", "error", True, "kind"),
    client.SafeUpTo("room", 89),
    client.MessagesMissed(90, "room"),
    client.NodeAddresses(["host:1"], True),
    client.TopicStarted(91, "room", {92: [93]}),
    client.BatchesDropped(94, "room", 95, {96: [97]}),
    client.HeartbeatRequest(),
    client.HeartbeatResponse(),
    client.LogsRequest(98, ["room"], (99, 100)),
    client.LogsRequest(98),
    client.LogsResponse(101, 102, -1, [client.LogRange("room", 103, 104, [105])], ["hall"], ["host:1"], "error", True),
    client.RangeRequest(106, 107, "room", 108, 109, 110, 111, 112),
    client.RangeRequest(106, 107, "room", 108, 109, 110),
    client.RangeResponse(113, 114, [(115, 116, b"batch")], 117, "error", True),
    client.MarksRequest(118, 119, "room", 120, 121),
    client.MarksResponse(122, 123, [(124, 125, 126)], "error", True),
    client.ProducerRequest(127, "writer", 128, ["room"]),
    client.ProducerRequest(127, "writer", None, []),
    client.ProducerResponse(129, [client.NodeProducerState([standing], ["room"], True)]),
    client.DismissRequest(130, [131]),
    client.DismissResponse(132, "error", True),
    client.StreamRequest(147, b"request"),
    client.StreamResponse(148, b"response"),
    peer.StreamFrame(True, b"message"),
)
PLAIN = Columns(133, 134, [b"one", b"two"])
FULL = Columns(
    135, 136, [b"one", b"two"], [b"key", None], [{"name": b"header"}, None], [137, 0], [b"about"], 138
)  # fmt: skip
BATCHES = {
    "plain": (PLAIN, NO_AUTHOR),
    "full": (FULL, NO_AUTHOR),
    "client": (PLAIN, Author(139, 140)),
    "writer": (FULL, Author(141, 142, 143, 144, 145, 146)),
}


def messages() -> Iterator[Any]:
    """Messages of all fabrics."""
    for kind in KINDS:
        yield kind(**{name: SPECIAL_VALUES.get((kind, name), VALUES[name]) for name in parameters(kind)})
    yield from FURTHER


def next_label(family: str, number: int, found: dict[str, int]) -> str:
    """A label that is used once."""
    label = f"{family} {number}"
    found[label] = found.get(label, 0) + 1
    return f"{label}.{found[label]}"


def examples() -> list[Example]:
    """All representatives, each with a label that does not depend on names."""
    made: list[Example] = []
    used: dict[str, int] = {}
    codec = Codec(CONTROLS)
    for message in messages():
        name = f"{type(message).__name__}({', '.join(parameters(type(message)))})"
        made.append(Example(next_label("message", NUMBERS[type(message)], used), name, codec.encode(message)))
    for control in HOSTS:
        tag = control.__struct_config__.tag
        assert isinstance(tag, int)
        made.append(Example(next_label("control", tag, used), structure_of(control), codec.encode_control(control)))
    made += [
        Example(f"batch {kind}", structure_of(columns), encode_columns(columns, author))
        for kind, (columns, author) in BATCHES.items()
    ]
    return made


def structure_of(struct: msgspec.Struct) -> str:
    """The name of a struct with those of its fields."""
    return f"{type(struct).__name__}({', '.join(struct.__struct_fields__)})"


def recorded() -> dict[str, Example]:
    """What the file says, by label."""
    found: dict[str, Example] = {}
    for line in FILE.read_text().splitlines():
        label, name, encoded = line.split(" | ")
        found[label] = Example(label, name, bytes.fromhex(encoded))
    return found


def represented() -> set[type[Any]]:
    """The classes of which there is a representative."""
    found: set[type[Any]] = {type(message) for message in messages()}
    return found | {type(control) for control in HOSTS}


def demanded() -> set[type[Any]]:
    """The classes that are sent."""
    return {*KINDS, *CONTROLS}


def main(arguments: list[str]) -> int:
    """Write the file anew."""
    before = recorded() if FILE.exists() else {}
    now = examples()
    changed = [each.label for each in now if each.label in before and before[each.label].encoded != each.encoded]
    gone = sorted(set(before) - {each.label for each in now})
    if (changed or gone) and "--change-bytes" not in arguments:
        print(f"the bytes of these would change or go: {', '.join([*changed, *gone])}; see the head of this module")
        return 1
    FILE.write_text("".join(each.line() + "\n" for each in now))
    print(f"{len(now)} messages written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
