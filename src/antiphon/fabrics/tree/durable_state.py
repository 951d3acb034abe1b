"""The state of a broker that outlives a crash, so that after a crash it returns as itself and keeps its word.

A broker with a disk has a permanent identifier. Each run of it is an **incarnation**. The incarnation is on disk before
the broker publishes anything in it. The origin of an item is the identifier with the incarnation above it
(``origin_of``), so two incarnations never give two items the same name. Publications are counted on: each incarnation
reserves numbers ahead of time, and the next one begins behind all reserved numbers.

The journal holds messages of the protocol itself:

* ``BrokerRecord``: the incarnation, the reserved numbers, the last epoch, and the councils whose majorities are needed;
* ``JoinResponse``: the state of a topic with total publications, without its items;
* ``Item``, ``Skip`` and ``Leave``: the later events of such a topic, in their order.

Three messages leave a broker only when everything that it has written is on disk, because others rely on them for ever:

* ``Closed``, its **vote** for a total publication. A later order needs a majority, which contains one of these voters.
  That voter brings the lock, and everything that it had received before the lock;
* ``Begun``: it says that this broker knows whose majority is needed;
* ``CollectResponse``, after which others forget the items that this broker has.

So a returning broker is like one that was cut off from all others. It has everything that it had when it sent its last
such message. It gets later items from others, and no broker asks it for an item that it does not have.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.tree.messages import BrokerRecord
from antiphon.fabrics.tree.topology import NO_EPOCH, ROOT_BITS, Overlay
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import SOURCE_BITS, ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment

NUMBERS_AHEAD: Final[i64] = 1 << 20
"""How many numbers of publications are reserved at once. The next incarnation skips at least half of them."""

EPOCHS_AHEAD: Final[i64] = 64
"""So many numbers of epochs are reserved at once."""

RECORDS_AT_LEAST: Final[i64] = 4096
"""The journal is written anew when it has so many records, and four times as many as are needed."""

NUMBERS: Final[i64] = 0
EPOCHS: Final[i64] = 1
BEGUN: Final[i64] = 2
VOTE: Final[i64] = 3
ROUND: Final[i64] = 4
"""What waits for the disk."""


@final
class Wait:
    """Something that goes on when all that is written by now is on disk."""

    def __init__(self, kind: i64, topic: i64, name: i64, epoch: i64, numbers: i64, epochs: i64) -> None:
        self.kind: Final[i64] = kind
        self.topic: Final[i64] = topic
        self.name: Final[i64] = name
        # Of a vote: the epoch in which what it is about was locked.
        self.epoch: Final[i64] = epoch
        self.numbers: Final[i64] = numbers
        self.epochs: Final[i64] = epochs


@final
class DurableState:
    """Writes the journal of one broker; where the host keeps none, nothing is written and nothing waits."""

    def __init__(self, environment: Environment) -> None:
        self._environment: Final[Environment] = environment
        records = environment.journal()
        self.is_kept: Final[bool] = records is not None
        self._records: list[ProtocolMessage] = [] if records is None else records
        past: BrokerRecord | None = None
        for record in self._records:
            if isinstance(record, BrokerRecord):
                past = record
        # What the last incarnation has written of itself; None in the first.
        self.past: Final[BrokerRecord | None] = past
        self.incarnation: Final[i64] = 0 if past is None else past.incarnation + 1
        self.origin: Final[i64] = origin_of(environment.identifier, self.incarnation)
        # All incarnations before this one have used numbers up to this one only.
        self.first_number: Final[i64] = 0 if past is None else past.reserved
        self._numbers: i64 = self.first_number
        self._safe_numbers: i64 = 0
        self._epochs: i64 = 0
        self._safe_epochs: i64 = 0
        self._written: i64 = len(self._records)
        self._waiting: deque[Wait] = deque()

    def take_records(self) -> list[ProtocolMessage]:
        """All that earlier incarnations have written; it is given away once."""
        records = self._records
        self._records = []
        return records

    # Writing.

    def write(self, record: ProtocolMessage) -> None:
        """Write something down, if there is a disk."""
        if self.is_kept:
            self._written += 1
            self._environment.write(record)

    def write_standing(self, view: TreeView) -> None:
        """Write down how this broker stands, and what is reserved."""
        if self.is_kept:
            self.write(self._standing(view))

    def _standing(self, view: TreeView) -> BrokerRecord:
        epoch = max(view.highest, self._epochs << ROOT_BITS)
        overlay = view.testimony()
        if overlay.epoch == NO_EPOCH:
            # A newcomer's, which is no tree.
            overlay = Overlay(NO_EPOCH, view.me, {int(view.me): int(NO_NODE)}, can_order=False)
        return BrokerRecord(self.incarnation, self._numbers, overlay, view.council, epoch)

    def is_long(self, needed: i64) -> bool:
        """Whether it is time to write the journal anew, with so many records."""
        return self.is_kept and self._written > max(RECORDS_AT_LEAST, 4 * needed)

    def rewrite(self, view: TreeView, records: list[ProtocolMessage]) -> None:
        """Begin the journal anew, with all that is needed of it."""
        self._written = len(records) + 1
        self._environment.rewrite([self._standing(view), *records])

    # What waits for the disk.

    def is_safe(self, kind: i64, topic: i64 = 0, name: i64 = 0, epoch: i64 = 0) -> bool:
        """Whether all that was written is on disk; if not, this waits, and is said by ``next_safe`` when it is."""
        if not self.is_kept:
            return True
        wait = Wait(kind, topic, name, epoch, self._numbers, self._epochs)
        if self._environment.sync():
            self._take(wait)
            return True
        self._waiting.append(wait)
        return False

    def next_safe(self) -> Wait:
        """The oldest waiting entry, which is safe now."""
        wait = self._waiting.popleft()
        self._take(wait)
        return wait

    def _take(self, wait: Wait) -> None:
        self._safe_numbers = max(self._safe_numbers, wait.numbers)
        self._safe_epochs = max(self._safe_epochs, wait.epochs)

    # What is reserved.

    def may_publish(self, number: i64) -> bool:
        """Whether no later incarnation of this broker will use a number, whatever happens."""
        return not self.is_kept or number <= self._safe_numbers

    def needs_numbers(self, number: i64) -> bool:
        """Whether more numbers are to be reserved when this one is used."""
        return self.is_kept and self._numbers - number < NUMBERS_AHEAD // 2

    def reserve_numbers(self, number: i64, view: TreeView) -> None:
        """Reserve numbers beyond this one; ``NUMBERS`` is said when they can be used."""
        self._numbers = max(self._numbers, number) + NUMBERS_AHEAD
        self.write_standing(view)
        self.is_safe(NUMBERS)

    def may_begin(self, epoch: i64) -> bool:
        """Whether no later incarnation of this broker will begin an epoch of this number."""
        return not self.is_kept or epoch >> ROOT_BITS <= self._safe_epochs

    def needs_epochs(self, epoch: i64) -> bool:
        """Whether more numbers of epochs are to be reserved when this one is used."""
        return self.is_kept and self._epochs - (epoch >> ROOT_BITS) < EPOCHS_AHEAD // 2

    def reserve_epochs(self, epoch: i64, view: TreeView) -> bool:
        """Reserve numbers of epochs beyond this one; the answer is whether they can be used at once.

        If not, ``EPOCHS`` is said when they can.
        """
        self._epochs = max(self._epochs, epoch >> ROOT_BITS) + EPOCHS_AHEAD
        self.write_standing(view)
        return self.is_safe(EPOCHS)


def origin_of(broker: i64, incarnation: i64) -> i64:
    """The name under which one incarnation of a broker puts items into streams."""
    return broker | (incarnation << SOURCE_BITS)
