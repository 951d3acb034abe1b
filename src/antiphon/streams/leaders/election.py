"""How the replicas of a stream choose a leader: trial votes and votes.

A replica becomes a candidate when it has no leader, or is not connected to it. It first asks on trial, which changes
nothing, so a replica that was cut off does not end the term of a working leader when it returns. A voter grants a
request if the candidate's index is at least as far as its own, and its vote is on disk before the answer leaves.
"""

from __future__ import annotations

from typing import Final, Protocol

from antiphon.streams.host import NOBODY
from antiphon.streams.messages import VoteRequest, VoteResponse
from antiphon.streams.replica_log import ReplicaLog

ELECTION_US: Final = 150_000
"""After how long without a leader a replica asks for votes; a random time of the same length is added."""


class Candidate(Protocol):
    """The replica for which an election speaks."""

    def has_live_leader(self) -> bool:
        """Whether there is a leader to which this replica is connected."""

    def lead(self) -> None:
        """The replica is elected."""

    def follow(self, leader: int) -> None:
        """The replica follows another one, or nobody."""

    def flush(self) -> None:
        """Write what is new, and send it."""


class Election:
    """The candidacy of one replica."""

    def __init__(self, stream: int, me: int, log: ReplicaLog, replica: Candidate) -> None:
        self._stream = stream
        self._me = me
        self._log = log
        self._host = log.host
        self._replica = replica
        # Those that would grant a vote, or have done so; None if this replica is no candidate.
        self._granted: set[int] | None = None
        self._is_trial = False
        # A timer counts only if nothing has happened since it was set.
        self._round = 0

    def await_leader(self) -> None:
        """Ask for votes after a while, unless there is a leader by then."""
        self._round += 1
        number = self._round
        self._host.after(ELECTION_US + self._host.draw(ELECTION_US), lambda: self._expired(number))

    def begin_term(self, term: int, voted_for: int = NOBODY) -> None:
        """A later term has begun: this replica has no leader, and one vote in it."""
        self._log.begin_term(term, voted_for)
        self._granted = None
        self._replica.follow(NOBODY)
        self.await_leader()

    def _expired(self, number: int) -> None:
        if number == self._round and not self._replica.has_live_leader():
            self._granted = None
            self.await_leader()
            # A replica that lacks a part of the history cannot serve it: it fills it first.
            if self._log.may_lead(self._me) and self._log.is_whole:
                self._ask(is_trial=True)
            self._replica.flush()

    def _ask(self, is_trial: bool) -> None:
        log = self._log
        self._is_trial, self._granted = is_trial, {self._me}
        term = log.term + 1 if is_trial else log.term
        request = VoteRequest(self._stream, term, log.index.last, log.index.last_term, is_trial)
        for voter in log.replicas.voters:
            if voter != self._me:
                self._host.send(voter, request)
        self._count()

    def _stand(self) -> None:
        """Begin a term, vote for oneself, and ask the others when this vote is on disk."""
        term = self._log.term + 1
        self.begin_term(term, self._me)

        def ask() -> None:
            if self._log.term == term and not self._replica.has_live_leader():
                self._ask(is_trial=False)
                self._replica.flush()

        self._host.when_on_disk(ask)

    def on_request(self, sender: int, message: VoteRequest) -> None:
        """Another replica asks for a vote."""
        log, host = self._log, self._host
        # A replica that begins anew does not know for whom it voted before; it is known again when a leader has told it
        # so. The entry that makes a learner a voter may be with the candidate alone, which then needs this vote.
        is_known = self._me in log.replicas.all
        is_current = is_known and (message.last_term, message.last) >= (log.index.last_term, log.index.last)
        if message.is_trial:
            is_granted = message.term > log.term and is_current and not self._replica.has_live_leader()
            term = message.term if is_granted else log.term
            host.send(sender, VoteResponse(self._stream, term, True, is_granted))
            return
        if message.term < log.term or not is_current or log.voted_for not in (NOBODY, sender):
            host.send(sender, VoteResponse(self._stream, log.term, False, False))
            return
        log.vote(sender)
        self.await_leader()
        answer = VoteResponse(self._stream, log.term, False, True)
        host.when_on_disk(lambda: host.send(sender, answer))

    def on_response(self, sender: int, message: VoteResponse) -> None:
        """Another replica has answered."""
        if message.is_trial and not message.is_granted and message.term > self._log.term:
            self.begin_term(message.term)
            return
        granted = self._granted
        term = self._log.term + 1 if message.is_trial else self._log.term
        if granted is not None and message.is_granted and (message.is_trial, message.term) == (self._is_trial, term):
            granted.add(sender)
            self._count()

    def _count(self) -> None:
        replicas = self._log.replicas
        if self._granted is None or len(self._granted & set(replicas.voters)) < replicas.majority:
            return
        self._granted = None
        if self._replica.has_live_leader():
            return
        if self._is_trial:
            self._stand()
        else:
            self._replica.lead()
