"""Collects the rows of a trace as packed integers while a host runs.

A row is four 64-bit words: the time; the node, its peer, the order, the event and the kind of message; the publication;
the topic and a value whose meaning depends on the event. Data that only some rows have is separate: a word for each
copy that is sent or received describes its contents, and keys of total order come with the number of their row. They
are turned into columns and written in chunks (:mod:`antiphon.trace.store`), so recording costs a few nanoseconds and 32
bytes per row, 40 for a copy, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.message import NO_KEYS, SOURCE_BITS, UNSPECIFIED, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE

WORDS_PER_ROW: Final = 4

PUBLISH: Final[i64] = 1
SEND: Final[i64] = 2
RECEIVE: Final[i64] = 3
DELIVER: Final[i64] = 4
DROP: Final[i64] = 5
DUPLICATE: Final[i64] = 6
EXPIRE: Final[i64] = 7
JOIN: Final[i64] = 8
LEAVE: Final[i64] = 9
CRASH: Final[i64] = 10
RESTART: Final[i64] = 11
PAUSE: Final[i64] = 12
RESUME: Final[i64] = 13
SUBSCRIBE: Final[i64] = 14
UNSUBSCRIBE: Final[i64] = 15
SUBSCRIBED: Final[i64] = 16
UNSUBSCRIBED: Final[i64] = 17
LOST: Final[i64] = 18
UNSHOWN: Final[i64] = 19
STUCK: Final[i64] = 20
END: Final[i64] = 21
BATCH: Final[i64] = 22
EPOCH: Final[i64] = 23

EPOCH_ROOT_BITS: Final = 22
"""An epoch is recorded like a publication: the lower bits of its number, which name its root, as the source."""

DROPPED_LOSS: Final[i64] = 1
DROPPED_PARTITION: Final[i64] = 2
DROPPED_RECEIVER_DOWN: Final[i64] = 3
DROPPED_SENDER_DOWN: Final[i64] = 4

NODE_SHIFT: Final = 40
PEER_SHIFT: Final = 16
ORDER_SHIFT: Final = 13
EVENT_SHIFT: Final = 8
"""The bit offsets in the second word; the kind of message has the lowest bits. Peer and order are incremented by 1, so
that 0 means none.
"""

TOPIC_SHIFT: Final = 32
"""The bit offset of the topic in the fourth word; the value has the bits below it."""

ENTRY_BITS: Final = 20
PAYLOAD_BITS: Final = 28
"""The bit layout of the contents of a copy: publications above entries above bytes of payload."""

DROP_REASONS: Final = ("", "loss", "partition", "receiver down", "sender down")

EVENT_NAMES: Final = (
    "", "publish", "send", "receive", "deliver", "drop", "duplicate", "expire", "join", "leave", "crash",
    "restart", "pause", "resume", "subscribe", "unsubscribe",
    "subscribed", "unsubscribed", "lost", "unshown", "stuck", "end", "batch", "epoch",
)  # fmt: skip


class Recorder:
    """Collects rows, and passes them on in chunks of ``chunk_rows``.

    A chunk is three arrays: the words of the rows, the contents of the copies among them, and their keys of total
    order.
    """

    def __init__(
        self, wants_copies: bool, flush: Callable[[object, object, object], None], chunk_rows: i64 = 1 << 20
    ) -> None:
        self.wants_copies: Final[bool] = wants_copies
        self._flush: Final = flush
        self._chunk_words: Final[i64] = chunk_rows * WORDS_PER_ROW
        self._words: vec[i64] = vec[i64]()
        self._loads: vec[i64] = vec[i64]()
        self._keys: vec[i64] = vec[i64]()
        self._kinds: dict[type, i64] = {}
        self.kind_names: Final[list[str]] = [""]

    def record(self, time: i64, event: i64, node: i64, value: i64) -> None:
        """Add a row about a node and not about a message."""
        self._append(time, pack(event, 0, node, NO_NODE), -1, value)

    def record_message(self, time: i64, event: i64, node: i64, peer: i64, message: ProtocolMessage, value: i64) -> None:
        """Add a row about a message."""
        kind = self._kinds.get(type(message), -1)
        if kind < 0:
            kind = len(self.kind_names)
            self._kinds[type(message)] = kind
            self.kind_names.append(type(message).__name__)
        key = publication_key(message.source, message.sequence)
        order = UNSPECIFIED
        if isinstance(message, Publication):
            order = message.order
            if event == DELIVER:
                self._record_keys(message.total_order_keys())
        # The two are neighbours; a comparison with a tuple would allocate.
        if SEND <= event <= RECEIVE:
            self._loads = append(self._loads, load_of(message))
        self._append(time, pack(event, kind, node, peer, order), key, pack_value(message.topic, value))

    def _record_keys(self, keys: vec[i64]) -> None:
        """Add the keys of the next row: its number in this chunk, their number, and the keys."""
        if len(keys) == 0:
            return
        rows = append(self._keys, len(self._words) // WORDS_PER_ROW)
        rows = append(rows, len(keys))
        for key in keys:
            rows = append(rows, key)
        self._keys = rows

    def record_run(
        self,
        time: i64,
        event: i64,
        node: i64,
        source: i64,
        first: i64,
        count: i64,
        topic: i64,
        value: i64,
        order: i64,
        keys: vec[i64] = NO_KEYS,
    ) -> None:
        """Add a row for each of ``count`` consecutive publications of a source, with the same keys."""
        what = pack(event, 0, node, NO_NODE, order)
        packed = pack_value(topic, value)
        key = publication_key(source, first)
        for _ in range(count):
            self._record_keys(keys)
            self._append(time, what, key, packed)
            key += 1 << SOURCE_BITS

    def record_topic(self, time: i64, event: i64, node: i64, topic: i64) -> None:
        """Add a row about a node's subscription to a topic."""
        self._append(time, pack(event, 0, node, NO_NODE), publication_key(node, 0), pack_value(topic, 0))

    def record_epoch(self, time: i64, node: i64, epoch: i64, members: list[int], councils: list[list[int]]) -> None:
        """Add a row that a node has begun an epoch, and one for each member and voter that it names.

        Their value has its lowest bit set for members, and the next ones for voters of each council.
        """
        key = publication_key(epoch & ((1 << EPOCH_ROOT_BITS) - 1), epoch >> EPOCH_ROOT_BITS)
        self._append(time, pack(EPOCH, 0, node, NO_NODE), key, 0)
        roles: dict[int, int] = dict.fromkeys(members, 1)
        for place, council in enumerate(councils):
            for voter in council:
                roles[voter] = roles.get(voter, 0) | 2 << place
        for peer in sorted(roles):
            self._append(time, pack(EPOCH, 0, node, peer), key, roles[peer])

    def reserve(self) -> i64:
        """Add an empty row, to be filled before the next flush; returns its index."""
        row = len(self._words)
        self._append(0, 0, 0, 0)
        return row

    def fill(
        self,
        row: i64,
        time: i64,
        event: i64,
        node: i64,
        sequence: i64,
        topic: i64,
        value: i64,
        order: i64 = UNSPECIFIED,
    ) -> None:
        """Fill a reserved row with an operation of ``node``: its publication, or a change of its subscriptions."""
        words = self._words
        words[row] = time
        words[row + 1] = pack(event, 0, node, NO_NODE, order)
        words[row + 2] = publication_key(node, sequence)
        words[row + 3] = pack_value(topic, value)

    def _append(self, time: i64, what: i64, key: i64, value: i64) -> None:
        words = append(self._words, time)
        words = append(words, what)
        words = append(words, key)
        self._words = append(words, value)

    def flush_if_full(self) -> None:
        """Pass on the collected rows if they fill a chunk; hosts call it where no row is reserved."""
        if len(self._words) >= self._chunk_words:
            self.flush()

    def flush(self) -> None:
        """Pass on the collected rows."""
        words = self._words
        if len(words) > 0:
            loads, keys = self._loads, self._keys
            self._words = vec[i64]()
            self._loads = vec[i64]()
            self._keys = vec[i64]()
            self._flush(words, loads, keys)


def pack(event: i64, kind: i64, node: i64, peer: i64, order: i64 = UNSPECIFIED) -> i64:
    """Node, peer (or none), order (or none), event and kind of message in one word."""
    return (
        (node << NODE_SHIFT) | ((peer + 1) << PEER_SHIFT) | ((order + 1) << ORDER_SHIFT) | (event << EVENT_SHIFT) | kind
    )


def pack_value(topic: i64, value: i64) -> i64:
    """Topic and value in one word; a value beyond 32 bits is stored as the largest that fits."""
    most: i64 = (1 << TOPIC_SHIFT) - 1
    return (topic << TOPIC_SHIFT) | (value if value < most else most)


def load_of(message: ProtocolMessage) -> i64:
    """The contents of a copy in one word; each number that does not fit is stored as the largest that does."""
    publications = message.publications_carried()
    entries = message.entries_carried()
    payload = message.payload_bytes()
    most: i64 = (1 << 15) - 1
    most_entries: i64 = (1 << ENTRY_BITS) - 1
    most_bytes: i64 = (1 << PAYLOAD_BITS) - 1
    publications = publications if publications < most else most
    entries = entries if entries < most_entries else most_entries
    payload = payload if payload < most_bytes else most_bytes
    return (publications << (ENTRY_BITS + PAYLOAD_BITS)) | (entries << PAYLOAD_BITS) | payload
