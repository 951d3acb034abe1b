"""The contract of a node's streams with the node: its disk, its links to others, its topics and its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from antiphon.streams.entries import IndexEntry
from antiphon.streams.host import SavedReplica
from antiphon.streams.links import MessageLinks

Name = tuple[int, int]
"""A publication: its author, and the author's number."""


class StreamContent(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a publication: the batch, who published it, in which order."""

    publisher: int
    sequence: int
    order: str
    payload: bytes


class StreamBatch(Protocol):
    """Messages that were published together."""

    @property
    def author(self) -> int:
        """The client or node that published them."""

    @property
    def number(self) -> int:
        """The author's number of the batch."""

    @property
    def publisher(self) -> int:
        """The node that published them."""

    @property
    def sequence(self) -> int:
        """The node's number of the batch."""

    @property
    def order(self) -> str:
        """How they are ordered."""

    @property
    def payload(self) -> bytes:
        """The messages as bytes."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def first_offset(self) -> int:
        """The place of the first among all that this node has delivered on the topic."""

    @property
    def end_offset(self) -> int:
        """The place behind the last."""


class StreamFiles(Protocol):
    """The disk of a node's streams. Writes reach it in the order of the calls; reading sees what is on it."""

    @property
    def identity(self) -> int:
        """The number of this node as a replica: it stays the same for as long as there is this disk."""

    def fact(self, name: str) -> bytes | None:
        """A fact that was put, also if it is not on disk yet."""

    def put(self, name: str, value: bytes) -> None:
        """Write a fact."""

    def then(self, call: Callable[[], object]) -> None:
        """Call something when everything written so far is on disk."""

    def write_entry(self, stream: int, number: int, entry: IndexEntry) -> None:
        """Write an entry."""

    def cut_entries(self, stream: int, first: int, last: int) -> None:
        """Remove entries from a number on, up to another one, and leave their messages."""

    def remove_entries(self, stream: int, last: int) -> None:
        """Remove the entries up to a number, with their messages. They are on disk."""

    def write_content(self, stream: int, name: Name, offset: int, content: StreamContent) -> None:
        """Write the messages of a publication; with an offset from 0 on if they were delivered here."""

    def remove_content(self, stream: int, source: int, sequence: int) -> None:
        """Remove the messages of a publication."""

    def saved(self, stream: int) -> SavedReplica:
        """The part of a replica that is on disk."""

    def entries(self, stream: int, first: int, most: int) -> list[IndexEntry]:
        """Entries from a number on, without a gap."""

    def entries_at(self, stream: int, position: int, most: int) -> list[IndexEntry]:
        """Entries with messages, from the one that holds a position on."""

    def content(self, stream: int, source: int, sequence: int) -> StreamContent | None:
        """The messages of a publication."""

    def holds(self, stream: int, source: int, sequence: int) -> bool:
        """Whether the messages of a publication are on disk."""

    def content_names(self, stream: int) -> list[Name]:
        """The publications whose messages are on disk."""

    def deliveries(self, stream: int, first_offset: int) -> Iterable[tuple[int, int, int]]:
        """Publications that were delivered here from an offset on: author, number and offset, in this order."""

    def forget(self, stream: int) -> None:
        """Remove everything of a stream."""


class EventLog(Protocol):
    """Where a node tells its operator what happens."""

    def info(self, event: str, **values: object) -> None:
        """Something has happened as it should."""


class ServiceHost(Protocol):
    """The node on which streams are kept."""

    @property
    def files(self) -> StreamFiles:
        """The disk."""

    @property
    def log(self) -> EventLog:
        """Where the operator reads."""

    def now_us(self) -> int:
        """The clock."""

    def clock_us(self) -> int:
        """The time of day."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while, unless the node has ended, and let the node settle."""

    def draw(self, below: int) -> int:
        """A random number below another one."""

    def settle(self) -> None:
        """Something has changed: let the node send it when its turn ends."""

    def identifiers(self) -> Iterable[int]:
        """The other nodes that can be reached."""

    def send(self, identifier: int, is_replica: bool, payload: bytes) -> None:
        """Send another node something about streams, from a replica or from this node as such."""

    def address(self, identifier: int) -> str | None:
        """Where another node is."""

    def end_offset(self, topic: str) -> int:
        """How many messages of a topic this node has delivered."""

    def follow(self, topic: str, first_offset: int, take: Callable[[StreamBatch], None]) -> Callable[[], None]:
        """Hand over what is delivered on a topic, from an offset on; the answer ends it when it is called."""

    def batch(self, topic: str, content: StreamContent) -> StreamBatch:
        """The messages of a publication."""

    def key_of(self, batch: StreamBatch, index: int) -> bytes:
        """The key of a message."""

    def value_of(self, batch: StreamBatch, index: int) -> bytes:
        """The value of a message."""

    def first_number(self, batch: StreamBatch) -> int:
        """The author's number of the first message of a batch."""

    def links_of(self, batch: StreamBatch, index: int) -> MessageLinks:
        """The messages of its topic that a message of a batch says to follow."""

    def check_name(self, topic: str) -> None:
        """Refuse what is no name of a topic."""

    def bury(self, topic: str, value: bytes, headers: dict[str, bytes], then: Callable[[], object]) -> None:
        """Publish a dead letter on a topic; ``then`` is called when it is accepted."""


class StreamRights(Protocol):
    """The rights of somebody who asks about streams."""

    @property
    def admin(self) -> bool:
        """Whether everything may be managed."""

    def may_publish(self, topic: str) -> bool:
        """Whether messages may be published on a topic."""

    def may_subscribe(self, wanted: str) -> bool:
        """Whether a topic may be read."""

    def may_consume(self, topic: str) -> bool:
        """Whether named consumers of a topic may be used."""

    def may_manage(self, topic: str) -> bool:
        """Whether a topic and its consumers may be made, changed and removed."""


class StreamHolder(Protocol):
    """Somebody who asks about streams, as the node knows it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def rights(self) -> StreamRights:
        """What it may do."""


class StreamClient(Protocol):
    """The session of a client that asks."""

    @property
    def holder(self) -> StreamHolder:
        """Who asks."""

    def answer(self, number: int, payload: bytes) -> None:
        """Send an answer when the node settles."""

    @property
    def is_connected(self) -> bool:
        """Whether it is still there."""

    @property
    def has_room(self) -> bool:
        """Whether it reads what it is sent; if not, it is sent nothing more that can wait."""

    def charge_command(self) -> None:
        """It asks for something that all replicas write; read less from it if it asks too often."""

    def check_kept(self, quota: str, used: int, more: int = 1) -> None:
        """Refuse somebody who uses so much of what the cluster keeps, and asks for so much more than it may."""
