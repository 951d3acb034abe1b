"""One replica of a stream: Raft, over publications that a fabric delivers to every replica anyway.

It follows Ongaro and Ousterhout, "In search of an understandable consensus algorithm": terms, votes, the check of the
previous entry, and commitment only of entries of the leader's own term. Trial votes and changes of one voter at a
time are from Ongaro's thesis. It departs from them in three ways:

1. An entry names a publication and does not carry its messages. They come over the fabric, or are fetched from another
   replica. A replica acknowledges an entry when the entry *and* its messages are on its disk.
2. There are no heartbeats. The host knows which nodes are connected: a replica looks for another leader when it has
   lost the connection to its leader, and a leader that has lost a majority resigns and says so.
3. Nobody sends publications to the leader: it appends what is delivered to it. Publications without a place when a
   leader fails get one from the next leader, also those that were delivered to other replicas alone.

``docs/proofs/streams.md`` has the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.streams.entries import COMMAND, MEMBERS, OPENING, ReplicaSet, encode_set
from antiphon.streams.fetching import Backfilling, Fetching, Overlooked
from antiphon.streams.host import NOBODY, ReplicaHost, SavedReplica
from antiphon.streams.leaders.election import Election
from antiphon.streams.leaders.gathering import Gathering, report_to
from antiphon.streams.leaders.leading import Leading
from antiphon.streams.messages import (
    AppendRequest,
    AppendResponse,
    BackfillRequest,
    BackfillResponse,
    ContentRequest,
    ContentResponse,
    ResignedRequest,
    SnapshotRequest,
    StreamMessage,
    UnplacedReport,
    VoteRequest,
    VoteResponse,
)
from antiphon.streams.replica_log import ReplicaLog

SETTLING_US: Final = 1_000_000
"""For how long a replica that came back follows a leader until it has what it missed."""


class Replica:
    """One replica. It writes and sends when an event has been handled; after ``delivered`` and ``propose``, the host
    calls ``flush``, so that many of them share a message and a write."""

    def __init__(self, stream: int, me: int, host: ReplicaHost, saved: SavedReplica, founders: ReplicaSet) -> None:
        self.stream: Final = stream
        self.me: Final = me
        self.host: Final = host
        self.leader = NOBODY
        self.leading: Leading | None = None
        self.log: Final = ReplicaLog(host, saved, founders)
        self._election = Election(stream, me, self.log, self)
        self._fetching = Fetching(stream, me, self.log)
        self._backfilling = Backfilling(stream, me, self.log)
        self._overlooked = Overlooked(stream, self.log, lambda: self.leader)
        self._gathering: Gathering | None = None
        # Whether everything that may be followed by what the fabric delivers here was delivered here, or has a place.
        # Publications that a replica missed while it was away count as past, and the fabric does not bring them. A
        # founder that begins has missed nothing, as there was no history before.
        self._knows_past = saved.term == 0 and me in founders.voters
        self._is_settling = False
        self._reported: tuple[int, ...] | None = None
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            VoteRequest: self._on_vote_request,
            VoteResponse: self._election.on_response,
            AppendRequest: self._on_append,
            AppendResponse: self._on_append_response,
            SnapshotRequest: self._on_snapshot,
            ResignedRequest: self._on_resigned,
            ContentRequest: self._fetching.on_request,
            ContentResponse: self._fetching.on_response,
            BackfillRequest: self._backfilling.on_request,
            BackfillResponse: self._backfilling.on_response,
            UnplacedReport: self._on_report,
        }

    @property
    def replicas(self) -> ReplicaSet:
        """The replicas, as the last entry about them says, settled or not."""
        return self.log.replicas

    def has_live_leader(self) -> bool:
        """Whether there is a leader to which this replica is connected."""
        return self.leader == self.me or (self.leader != NOBODY and self.host.is_connected(self.leader))

    @property
    def is_alone(self) -> bool:
        """Whether this replica leads, gives places at once, and nobody else gets its entries."""
        is_ready = self.leading is not None and self._gathering is not None and self._gathering.is_over
        return is_ready and self.log.replicas.all == (self.me,)

    # What happens.

    def start(self) -> None:
        """The node is up."""
        self._election.await_leader()
        self._fetching.advance()
        self._backfilling.advance()

    def receive(self, sender: int, message: StreamMessage) -> None:
        """A message of another replica."""
        if message.term > self.log.term and not getattr(message, "is_trial", False):
            self._election.begin_term(message.term)
        self._handlers[type(message)](sender, message)
        self.flush()

    def connected(self, replica: int) -> None:
        """A connection to another replica stands; what was sent over an earlier one may be lost."""
        if self.leading is not None:
            self.leading.probe(replica)
        self._reported = None
        self.flush()

    def disconnected(self, replica: int) -> None:
        """The connection to another replica has ended."""
        if self.leading is not None:
            self.leading.disconnected()
        elif replica == self.leader:
            self.follow(NOBODY)
            self._election.await_leader()
        self.flush()

    def progressed(self) -> None:
        """Something is on disk, or messages have come."""
        if self.leading is not None:
            self.leading.count()
        self.flush()

    def delivered(self, source: int, sequence: int, count: int, size: int) -> None:
        """The fabric has delivered a publication with so many messages and bytes here.

        It is on disk. Or this replica is alone, and the publication is written before its entry.
        """
        has_no_place = self.log.numbering.deliver((source, sequence), (count, size))
        if has_no_place and self.leading is not None and self._gathering is not None and self._gathering.is_over:
            self.leading.place((source, sequence), (count, size))
        elif has_no_place:
            self._overlooked.waits()
        self._fetching.advance()

    def propose(self, payload: bytes, kind: int = COMMAND) -> int | None:
        """Let all replicas apply something; gives the number of its entry, or None if this replica does not lead."""
        return None if self.leading is None else self.leading.append(kind, payload)

    def change_replicas(self, replicas: ReplicaSet) -> bool:
        """Add or remove one voter, and any learners; whether this is possible now.

        The change before must be settled, and an entry of this term: otherwise two leaders could count on majorities
        that do not meet.
        """
        log = self.log
        is_ready = log.is_set_settled and log.index.term_at(log.settled) == log.term
        if self.leading is None or not is_ready or not replicas.is_one_step_from(log.replicas):
            return False
        self.leading.append(MEMBERS, encode_set(replicas))
        self.leading.replicas_changed()
        self.flush()
        return True

    def flush(self) -> None:
        """Write what is new, and send it."""
        self.log.free()
        self.log.write()
        if self.leading is not None:
            self.leading.send_to_all()
        elif self.leader != NOBODY:
            self._report()

    # Leading and following.

    def lead(self) -> None:
        """This replica is elected: publications that it was delivered and that have no place get one."""
        self.leader = self.me
        self.leading = Leading(self.stream, self.me, self.log, self._resign)
        self.leading.append(OPENING)
        self._gathering = Gathering(self.log, self.me, self._knows_past, self.leading.place, self._gathered)
        self._fetching.advance()
        self.host.leads(self.log.term)

    def _gathered(self) -> None:
        self._knows_past = True
        if self.leading is not None:
            self.leading.knows_past = True

    def _settle_in(self) -> None:
        """The leader gives places to what this replica missed: this one knows the past when it has their entries."""
        self._is_settling = True
        term = self.log.term

        def settled() -> None:
            self._is_settling = False
            self._knows_past |= self.log.term == term and self.has_live_leader()

        self.host.after(SETTLING_US, settled)

    def follow(self, leader: int) -> None:
        """This replica follows another one, or nobody."""
        if self.leading is not None:
            self.leading.is_over = True
            self.leading = None
            if self._gathering is not None:
                self._gathering.is_over = True
        if leader != self.leader:
            self.leader = leader
            self.log.matched = self.log.settled
            self._reported = None
            self.host.followed(leader)
            report_to(leader, self.stream, self.log, self._knows_past)

    def _resign(self) -> None:
        for each in self.log.replicas.all:
            if each != self.me:
                self.host.send(each, ResignedRequest(self.stream, self.log.term))
        self.follow(NOBODY)
        self._election.await_leader()

    def _on_resigned(self, sender: int, message: ResignedRequest) -> None:
        if sender == self.leader and message.term == self.log.term:
            self.follow(NOBODY)
            self._election.await_leader()

    def _on_vote_request(self, sender: int, message: VoteRequest) -> None:
        if sender == self.leader:
            # A leader does not ask for votes: it leads no more.
            self.follow(NOBODY)
            self._election.await_leader()
        self._election.on_request(sender, message)

    def _on_append(self, sender: int, message: AppendRequest) -> None:
        log = self.log
        if not self._is_from_leader(sender, message):
            return
        previous, entries = message.previous, message.entries
        if previous < log.index.base:
            # The snapshot has the first of them: they are settled, so they are the same.
            entries = entries[log.index.base - previous :]
            previous = log.index.base
        elif log.index.term_at(previous) != message.previous_term:
            hint = min(log.index.last, previous - 1)
            self.host.send(sender, AppendResponse(self.stream, log.term, False, hint))
            return
        for place, entry in enumerate(entries):
            number = previous + 1 + place
            if number <= log.index.last:
                if log.index.entry(number).term == entry.term:
                    continue
                log.truncate(number)
            log.append(entry)
        log.matched = max(log.matched, previous + len(entries))
        log.settle_to(min(message.settled, log.matched))
        if message.knows_past and not self._knows_past and not self._is_settling:
            self._settle_in()
        if not entries:
            # The leader wants to know how far this replica is.
            self._reported = None
        self._fetching.advance()

    def _on_snapshot(self, sender: int, message: SnapshotRequest) -> None:
        log = self.log
        if not self._is_from_leader(sender, message):
            return
        if message.base > log.settled:
            log.install(message.base, message.base_term, message.position, message.state)
            self._backfilling.advance()
        log.matched = max(log.matched, log.settled)
        self._reported = None

    def _is_from_leader(self, sender: int, message: StreamMessage) -> bool:
        """Whether a message is from the leader of this term; if so, follow it."""
        if message.term < self.log.term:
            self.host.send(sender, AppendResponse(self.stream, self.log.term, False, 0))
            return False
        if sender != self.leader:
            self.follow(sender)
            if self.log.voted_for == NOBODY:
                # Whoever has seen the leader of a term does not vote for another one in it, even if it began anew.
                self.log.vote(sender)
        return True

    def _report(self) -> None:
        """Tell the leader how far this replica has come, if that is news."""
        log = self.log
        news = (log.held, min(log.matched, log.on_disk), log.is_whole)
        if news != self._reported:
            self._reported = news
            self.host.send(self.leader, AppendResponse(self.stream, log.term, True, *news))

    def _on_report(self, sender: int, message: UnplacedReport) -> None:
        if self.leading is not None and self._gathering is not None and message.term == self.log.term:
            self._gathering.on_report(sender, message)
            self._fetching.advance()

    def _on_append_response(self, sender: int, message: AppendResponse) -> None:
        if self.leading is not None and message.term == self.log.term:
            self.leading.on_response(sender, message)
