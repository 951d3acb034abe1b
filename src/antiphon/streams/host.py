"""The contract of a replica with its host: the node that it lives on, or the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from antiphon.streams.entries import IndexEntry, ReplicaSet
from antiphon.streams.messages import NamedContent, NumberedEntry, PublicationLinks, StreamMessage

NOBODY: Final = -1


class SavedReplica(NamedTuple):
    """The part of a replica that is on disk: its vote, its snapshot, and the entries behind it."""

    term: int
    voted_for: int
    base: int
    base_term: int
    position: int
    state: bytes
    entries: Sequence[IndexEntry]
    floor: int = 0
    """The entries up to this one are not on disk."""


class ReplicaHost(Protocol):
    """The actions of a replica on the world.

    Writes reach the disk in the order of the calls, and ``when_on_disk`` calls back when all so far are there. After a
    crash some last writes are lost, and the callbacks of the former life never come.
    """

    def send(self, replica: int, message: StreamMessage) -> None:
        """Send a message to another replica. It may be lost with the connection."""

    def is_connected(self, replica: int) -> bool:
        """Whether there is a connection to another replica, as far as this node knows."""

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while."""

    def draw(self, below: int) -> int:
        """A random number below another one."""

    def write_vote(self, term: int, voted_for: int) -> None:
        """Write the term and the vote in it."""

    def write_entries(self, first: int, entries: Sequence[IndexEntry]) -> None:
        """Write entries from a number on, in place of all that had this number or a later one."""

    def read_entries(self, first: int, most: int) -> list[IndexEntry]:
        """Entries that are on disk, from a number on, at most so many."""

    def write_snapshot(self, base: int, base_term: int, position: int, state: bytes, replaces: bool) -> None:
        """Write a snapshot. If it ``replaces`` the entries they go; otherwise they stay, for readers of history."""

    def remove_entries(self, last: int) -> None:
        """Remove the entries up to a number, with their messages: the stream begins later."""

    def drop_contents(self, is_settled: Callable[[tuple[int, int]], bool]) -> None:
        """Remove the messages of all publications that are settled now."""

    def fill(self, first: int, entries: Sequence[NumberedEntry], contents: Sequence[NamedContent]) -> None:
        """Write entries of before the snapshot, with their messages; they are all that there are from ``first`` on, up
        to the first entry that is on disk. From then on this is the first one on disk."""

    def clock_us(self) -> int:
        """The time of day."""

    def when_on_disk(self, call: Callable[[], None]) -> None:
        """Call something when everything written so far is on disk."""

    def progressed(self) -> None:
        """Something is on disk: the host calls :meth:`Replica.progressed`, at once or at the end of its turn."""

    def holds(self, source: int, sequence: int) -> bool:
        """Whether the messages of a publication are on the disk of this node."""

    def read_contents(self, publications: Sequence[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
        """The messages of publications, of those that this node has."""

    def links_of(self, publications: Sequence[tuple[int, int]]) -> list[PublicationLinks]:
        """The publications that those of this node say that they follow."""

    def write_content(self, source: int, sequence: int, content: bytes) -> None:
        """Write the messages of a publication that another replica has sent."""

    def settled(self, number: int, entry: IndexEntry) -> None:
        """An entry is settled: no replica will ever have another one with its number. Called once, in order."""

    def not_done(self) -> Iterable[int]:
        """The first position of each consumer that is not done."""

    def trimmed(self, earliest: int) -> None:
        """The stream begins at a position: all replicas agree."""

    def snapshot(self) -> bytes:
        """The state after all entries for which ``settled`` was called."""

    def restore(self, state: bytes) -> None:
        """The state after the base of a snapshot that another replica has sent, in place of what was there."""

    def leads(self, term: int) -> None:
        """This replica leads from now on."""

    def followed(self, leader: int) -> None:
        """This replica follows a leader, or :data:`NOBODY` while there is none."""

    def keepers(self) -> Sequence[int]:
        """The nodes that are to keep the stream, as far as this node knows; they become replicas if they are none."""

    def replicas_changed(self, replicas: ReplicaSet) -> None:
        """The replicas are others."""
