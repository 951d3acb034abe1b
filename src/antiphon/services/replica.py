"""A replica as a pure state machine: which operation counts, what it answers, and what is committed when.

The host hands it what was delivered on the topic of the service, in that order, and then lets it commit. It
recognises an operation that comes again by its author and number, and passes over it; a call that is made again has the
result of the first time. Effects, the operations that they belong to and their results are committed together; results
leave after that. So after a crash at any moment the store
says what it has, and the host hands in the rest. Nothing here waits, looks at a clock or opens anything: the simulator
runs the same class.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.services.calls import ResultFrame, apply, decode_call
from antiphon.services.description import ServiceDescription
from antiphon.services.digests import DigestReport, KeyReport, OperationName, StateDigests
from antiphon.services.errors import ResultGoneError, UnknownOperationError
from antiphon.services.frames import (
    MARK,
    OPERATION,
    Answer,
    ResultsFrame,
    ServiceFrame,
    decode_frames,
)
from antiphon.services.recent import Operation, RecentOperations
from antiphon.services.replica_store import ReplicaStore, StateLostError
from antiphon.services.store import ServiceStore, StoreBackend, encode

OPERATIONS_PER_COMMIT: Final = 512
"""A transaction closes after so many operations, also while others wait."""

MARKS_AT_MOST: Final = 1024
WANTED_AT_MOST: Final = 65_536
CALLERS_AT_MOST: Final = 65_536
"""So many callers are told only what is new to them."""


class OutdatedReplicaError(PeerError):
    """An operation comes from a newer version of the service, which this replica cannot apply."""


class ServiceReplica:
    """One replica over a backend. ``number`` names this life of it."""

    def __init__(self, description: ServiceDescription, backend: StoreBackend, number: int) -> None:
        self.description: Final = description
        self.number: Final = number
        self.version: Final = version_of(description)
        self.kept = ReplicaStore(backend, description.name)
        self.store = ServiceStore(self.kept)
        self.operations = RecentOperations(self.kept.ranges())
        self.repeated = 0
        """How many messages came that were applied already."""
        self.refused = 0
        """How many messages were no operations of this service."""
        self._service = description.service()
        self._marks: dict[int, None] = {}
        self._told: dict[int, int] = {}
        # Calls whose callers wait for a result from here.
        self._wanted: dict[tuple[int, int], None] = {}
        # The messages of the open transaction, their results, and the marks among them.
        self._open: list[Operation] = []
        self._answers: list[tuple[Answer, ServiceFrame]] = []
        self._open_marks: list[int] = []
        self._open_changes: list[tuple[OperationName, dict[bytes, bytes | None]]] = []

    @property
    def digests(self) -> StateDigests:
        """Digests of the state, and what the last operations changed."""
        return self.kept.digests

    def report(self) -> DigestReport:
        """The report of the state to other replicas."""
        return self.digests.report(self.number, self.kept.ranges())

    def keys_in(self, place: int) -> KeyReport:
        """The keys in a range, and what changed them."""
        return self.digests.keys(self.kept.scan(b""), place)

    @property
    def applied(self) -> int:
        """How many operations are applied."""
        return self.kept.applied.count

    def has_passed(self, mark: int) -> bool:
        """Whether a mark has come lately."""
        return mark in self._marks

    # Applying.

    def take(self, author: int, number: int, value: bytes) -> None:
        """A message of the topic is delivered. A ``PeerError`` means that it is not taken: hand it in again."""
        applied = self.kept.applied
        if applied.has(author, number):
            self.repeated += 1
            return
        try:
            frames = decode_frames(value)
        except PeerError:
            # The same at all replicas, whatever their version.
            self.refused += 1
        else:
            changes: dict[bytes, bytes | None] = {}
            for frame in frames:
                self._take(frame, changes)
            self._open_changes.append(((author, number), changes))
        applied.add(author, number)
        self._open.append((author, number, value))

    def _take(self, frame: ServiceFrame, changes: dict[bytes, bytes | None]) -> None:
        if frame.kind == MARK:
            self._open_marks.append(frame.number)
        elif frame.kind == OPERATION:
            self._answers.append((Answer(frame.caller, frame.number, self._operate(frame, changes)), frame))
        elif frame.home == self.number:
            self._answers.append((Answer(frame.caller, frame.number, self._query(frame.body)), frame))

    def _operate(self, frame: ServiceFrame, changes: dict[bytes, bytes | None]) -> bytes:
        """Apply an operation, unless its caller has made the same call before; its result."""
        kept, caller, number = self.kept, frame.caller, frame.number
        if kept.calls.has(caller, number):
            self.repeated += 1
            return kept.results.find(caller, number) or gone()
        self.store.last_changes = {}
        payload = self._apply(frame)
        changes.update(self.store.last_changes)
        kept.calls.add(caller, number)
        kept.results.add(caller, number, payload)
        kept.results.free(caller, frame.done)
        return payload

    def _apply(self, frame: ServiceFrame) -> bytes:
        """Apply an operation; its result."""
        try:
            bound = decode_call(self.description, frame.body)
            if not bound.call.is_operation:
                raise UnknownOperationError(f"{bound.call.full_name} is a query and changes nothing")
        except PeerError as error:
            if frame.version > self.version:
                raise OutdatedReplicaError(
                    f"a caller uses version {frame.version} of {self.description.name}, and this replica has version "
                    f"{self.version}: {error}"
                ) from error
            self.refused += 1
            return refusal(error)
        return apply(self._service, self.store, bound)

    def _query(self, body: bytes) -> bytes:
        """Answer a query from all that is applied."""
        try:
            bound = decode_call(self.description, body)
        except PeerError as error:
            return refusal(error)
        return apply(self._service, self.store.for_queries(), bound)

    # Committing.

    @property
    def is_full(self) -> bool:
        """Whether the transaction should close."""
        return max(len(self._open), len(self._answers)) >= OPERATIONS_PER_COMMIT

    def commit(self) -> list[Answer]:
        """Commit what was applied, and give the results that are to be sent from here.

        A ``PeerError`` means that this is not done, or not known: ``recover``.
        """
        if self._open:
            self.store.commit(b"")
        return self._committed()

    def _committed(self) -> list[Answer]:
        """The applied operations are in the store: now others may know of them."""
        for operation in self._open:
            self.operations.add(operation)
        for name, changes in self._open_changes:
            self.digests.add(name, changes)
        for mark in self._open_marks:
            self._marks[mark] = None
            if len(self._marks) > MARKS_AT_MOST:
                del self._marks[next(iter(self._marks))]
        found: list[Answer] = []
        for answer, frame in self._answers:
            is_wanted = (answer.caller, answer.number) in self._wanted
            if is_wanted:
                del self._wanted[answer.caller, answer.number]
            if is_wanted or frame.home == self.number:
                found.append(answer)
        self._begin()
        return found

    def _begin(self) -> None:
        """Nothing is open."""
        self._open, self._answers, self._open_marks, self._open_changes = [], [], [], []

    def recover(self) -> tuple[list[Answer], list[Operation]]:
        """After the store has failed: the results of a commit that took place, or what is to be taken again.

        :class:`StateLostError` if the store has lost what was committed before: then a state has to be fetched.
        """
        try:
            if self.kept.recover():
                self.store = ServiceStore(self.kept)
                return self._committed(), []
        except StateLostError:
            self._begin()
            self._start_over()
            raise
        again = self._open
        self._begin()
        self.store = ServiceStore(self.kept)
        return [], again

    def _start_over(self) -> None:
        """The state is another one than before."""
        self.store = ServiceStore(self.kept)
        self.operations = RecentOperations(self.kept.ranges(), self.operations.most)
        self._told.clear()

    def ask(self, caller: int, numbers: list[int]) -> list[tuple[int, bytes]]:
        """The results of calls, as far as they are committed; the others are sent from here when there are some."""
        found: list[tuple[int, bytes]] = []
        kept = self.kept
        for number in numbers:
            payload = kept.results.ask(caller, number)
            if payload is None and kept.calls.has(caller, number) and kept.results.find(caller, number) is None:
                payload = gone()
            if payload is not None:
                found.append((number, payload))
                continue
            self._wanted[caller, number] = None
            if len(self._wanted) > WANTED_AT_MOST:
                del self._wanted[next(iter(self._wanted))]
        return found

    def frame(self, caller: int, answers: list[tuple[int, bytes]]) -> ResultsFrame:
        """Results for a caller, with what is new to it."""
        seen = self.kept.applied.heard_since(self._told.pop(caller, 0))
        self._told[caller] = self.applied
        if len(self._told) > CALLERS_AT_MOST:
            del self._told[next(iter(self._told))]
        return ResultsFrame(caller, self.number, answers, seen)

    def query(self, body: bytes) -> bytes:
        """Answer a query from what is committed; the host commits first."""
        return self._query(body)

    def has_seen(self, seen: dict[int, int]) -> bool:
        """Whether these operations are applied: of each author the last."""
        return self.kept.applied.has_all(seen)

    # Coming to a state.

    def restore(self, items: list[tuple[bytes, bytes]], position: bytes) -> None:
        """Take the state of another replica."""
        self.kept.restore(items, position)
        self._begin()
        self._start_over()


def version_of(description: ServiceDescription) -> int:
    """The version of a service: its attribute ``version``, or 1."""
    found = getattr(description.service, "version", 1)
    return found if isinstance(found, int) else 1


def gone() -> bytes:
    """The answer for a call that has taken place and whose result is not kept."""
    return refusal(
        ResultGoneError(
            "the operation has taken place, and its result is not kept any more: too many results came after it; "
            "look with a query"
        )
    )


def refusal(error: Exception) -> bytes:
    """The result of a call that does not count."""
    return encode(ResultFrame(msgspec.Raw(encode([])), type(error).__name__, str(error)))
