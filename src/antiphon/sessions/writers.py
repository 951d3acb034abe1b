"""Writers: publishers with a name, whose batches are taken once however often, and wherever, they are handed in.

A client forgets its numbers when its program ends, and nodes forget clients. A *writer* is for work that is done again
after a crash, by another program and at another node: its name, and the numbers of its batches, follow from the work.

* A writer has **lanes**, which write beside each other: the partitions of a Spark query, say.
* A lane writes one **series** after the other (the batches of the query), and in each the **places** 1, 2, 3, ... The
  number of a batch is made of both; so the numbers of a lane only grow.
* With each batch comes a **digest** of all that the lane has written in the series so far, including this batch, and
  the digest before it.

A node keeps of each lane and topic only how far it has come: its *standing*, the last number and the digest there. It
takes the next place of the series, if it follows what is there, or the first place of a later series, and nothing else.

* What is not beyond the standing is a *repetition*; it is dropped.
* What has the number of the standing and another digest, or follows another digest, is a *conflict*: somebody does the
  same work with another result. It is dropped too.
* What is further *ahead* would leave a gap, because some node has died with what was in between. It is dropped as well,
  and the lane is behind at this node: whoever writes has to see that and begin again.

So the log of every node holds each batch of a lane at most once, in order, without gaps, and all of one attempt, or of
attempts that agree.

Standings are stored with the batches, in the same commit. They outlive the node, and also the batches that retention
removes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Protocol

import msgspec

from antiphon.kernel.errors import UsageError

PLACE_BITS: Final = 26
PLACES_AT_MOST: Final = (1 << PLACE_BITS) - 1
SERIES_AT_MOST: Final = (1 << 62 - PLACE_BITS) - 1

STANDINGS_AT_MOST: Final = 32_768
"""When there are more, the one that has been silent longest is forgotten: a repetition would not be recognised."""

DIGEST_BITS: Final = 62
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class LaneBatch(Protocol):
    """The author of a batch that a lane has written."""

    @property
    def client(self) -> int:
        """The number of the lane as an author."""

    @property
    def number(self) -> int:
        """The number of the batch."""

    @property
    def writer(self) -> int:
        """The number of the writer."""

    @property
    def lane(self) -> int:
        """Which of the lanes of the writer."""

    @property
    def digest(self) -> int:
        """Of what the lane has written in the series, with this batch."""

    @property
    def previous(self) -> int:
        """The same before this batch."""


class WriterLog(Protocol):
    """Events for operators."""

    def warning(self, event: str, **values: object) -> None:
        """Something an operator should look at."""

    def error(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        """Something is wrong."""


class Facts(Protocol):
    """The facts that an earlier life of the node has stored."""

    def get(self, name: str) -> bytes | None:
        """The fact with a name."""


def number_of(series: int, place: int) -> int:
    """The number of a batch of a lane."""
    if not 0 <= series <= SERIES_AT_MOST or not 1 <= place <= PLACES_AT_MOST:
        raise UsageError(
            f"a lane writes series 0 to {SERIES_AT_MOST} with places 1 to {PLACES_AT_MOST}, not {series} and {place}; "
            "write more at a time"
        )
    return series << PLACE_BITS | place


def series_of(number: int) -> int:
    """The series of a batch."""
    return number >> PLACE_BITS


def place_of(number: int) -> int:
    """The place of a batch in its series."""
    return number & PLACES_AT_MOST


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """How far a lane has come on a topic; ``slot`` is where the log keeps it."""

    topic: str
    author: Number
    writer: Number
    lane: Number
    number: Number
    digest: Number
    written_at_us: Number
    slot: Number


ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder(Standing)


def fact_name(slot: int) -> str:
    """Under which name the log keeps a standing."""
    return f"writer {slot}"


class Writers:
    """The standings of all lanes on all topics of a node; ``now_us`` is the time since 1970."""

    def __init__(self, log: WriterLog, now_us: Callable[[], int]) -> None:
        self._log = log
        self._now_us = now_us
        # In the order in which they were last written.
        self._of: dict[tuple[str, int], Standing] = {}
        self._of_writer: dict[int, dict[tuple[str, int], None]] = {}
        self.repeated = 0
        self.ahead = 0
        self.conflicts = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._of)

    def load(self, store: Facts) -> None:
        """Go on with what an earlier life of the node has stored."""
        found: list[Standing] = []
        while (kept := store.get(fact_name(len(found)))) is not None:
            found.append(DECODER.decode(kept))
        for standing in sorted(found, key=lambda each: each.written_at_us):
            self._keep(standing)

    def take(self, topic: str, author: LaneBatch) -> tuple[str, bytes] | None:
        """A batch of a lane comes. The fact to be stored with it, or None if it is not to be delivered."""
        key = (topic, author.client)
        standing = self._of.get(key)
        known = 0 if standing is None else standing.number
        if standing is not None and differs(standing, author):
            self.conflicts += 1
            self._log.error("what is written again differs from what was written first", topic=topic, lane=author.lane)
            return None
        if author.number <= known:
            self.repeated += 1
            return None
        if author.number != known + 1 and place_of(author.number) != 1:
            self.ahead += 1
            self._log.warning("a batch is dropped because others before it are missing", topic=topic, lane=author.lane)
            return None
        slot = len(self._of) if standing is None else standing.slot
        if slot >= STANDINGS_AT_MOST:
            slot = self._forget()
        new = Standing(
            topic, author.client, author.writer, author.lane, author.number, author.digest, self._now_us(), slot
        )
        self._keep(new)
        return fact_name(slot), ENCODER.encode(new)

    def _keep(self, standing: Standing) -> None:
        key = (standing.topic, standing.author)
        self._of.pop(key, None)
        self._of[key] = standing
        self._of_writer.setdefault(standing.writer, {})[key] = None

    def _forget(self) -> int:
        """Forget the lane that has been silent longest; the slot that is free then."""
        key = next(iter(self._of))
        standing = self._of.pop(key)
        lanes = self._of_writer[standing.writer]
        del lanes[key]
        if not lanes:
            del self._of_writer[standing.writer]
        self.forgotten += 1
        if self.forgotten == 1:
            self._log.warning("writers that are silent are forgotten from now on", at_most=STANDINGS_AT_MOST)
        return standing.slot

    def check(self, topic: str, author: LaneBatch) -> None:
        """Refuse a batch that is not what was written under its number before."""
        standing = self._of.get((topic, author.client))
        if standing is not None and differs(standing, author):
            raise UsageError(
                f"lane {author.lane} of this writer has written something else in series {series_of(author.number)} on "
                f"{topic!r} before; what is written again must be the same, in the same order"
            )

    def standings(self, writer: int, lane: int | None) -> list[Standing]:
        """How far one lane of a writer, or all of them, have come, topic by topic."""
        found = [self._of[key] for key in self._of_writer.get(writer, ())]
        return [each for each in found if lane is None or each.lane == lane]


def differs(standing: Standing, author: LaneBatch) -> bool:
    """Whether a batch repeats or follows the last one, and has another content, itself or in front of it."""
    if author.number == standing.number:
        return author.digest != standing.digest
    follows = author.number == standing.number + 1 and place_of(author.number) > 1
    return follows and author.previous != standing.digest
