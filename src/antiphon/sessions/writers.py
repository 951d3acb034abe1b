"""Writers: publishers with a name, whose batches are taken once however often, and wherever, they are handed in.

A client forgets its numbers when its program ends, and nodes forget clients. A *writer* is for work that is done again
after a crash, by another program and at another node: its name, and the numbers of its batches, follow from the work.

* A writer has **lanes**, which write beside each other: the partitions of a Spark query, say.
* A lane writes one **series** after the other (the batches of the query), and in each the **places** 1, 2, 3, ... The
  number of a batch is made of both; so the numbers of a lane only grow.
* With each batch comes a **digest** of all that the lane has written in the series so far, including this batch, and
  the digest before it.

A node keeps of each lane and topic only how far it has come: its *position*, the last number and the digest there. It
takes the next place of the series, if it follows what is there, or the first place of a later series, and nothing else.

* A batch that is not beyond the position is a *repetition*; it is dropped.
* A batch with the number of the position and another digest, or one that follows another digest, is a *conflict*: the
  same work was done with another result. It is dropped too.
* A batch that is further *ahead* would leave a gap, because some node has died with the batches in between. It is
  dropped as well, and the lane is behind at this node: the writer has to see that and begin again.

So the log of every node holds each batch of a lane at most once, in order, without gaps, and all of one attempt, or of
attempts that agree.

Positions are stored with the batches, in the same commit. They outlive the node, and also the batches that retention
removes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Protocol

import msgspec

from antiphon.kernel.errors import PeerError, UsageError

PLACE_BITS: Final = 26
PLACES_AT_MOST: Final = (1 << PLACE_BITS) - 1
SERIES_AT_MOST: Final = (1 << 62 - PLACE_BITS) - 1

LANES_AT_MOST: int = 32_768
"""When there are more, an identity with more than its share forgets the lane that has been silent longest. So no
identity pushes out what another one has within its share. What may have been forgotten is refused, and never delivered
twice (:class:`ForgottenLanes`)."""

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
        """The digest of all that the lane has written in the series, with this batch."""

    @property
    def previous(self) -> int:
        """The same before this batch."""


class WriterLog(Protocol):
    """Events for operators."""

    def warning(self, event: str, **values: object) -> None:
        """Something an operator should look at."""

    def error(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        """Something is wrong."""


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


class LanePosition(msgspec.Struct, array_like=True, frozen=True):
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
DECODER: Final = msgspec.msgpack.Decoder(LanePosition)


def fact_name(slot: int) -> str:
    """Under which name the log keeps a position."""
    return f"writer {slot}"


OWNER_BITS: Final = 20
"""The first bits of the number of a writer say whose it is."""

WRITER_BITS: Final = 62
PARTS: Final = 64
"""Topics are divided into so many parts."""

OWNERS_AT_MOST: Final = 4096
"""Of so many identities a part is remembered apart; of others, all together."""

ALL_OTHERS: Final = -1

FILTER_BYTES: Final = 1 << 14
PROBES: Final = 4

FORGOTTEN_DECODER: msgspec.msgpack.Decoder[tuple[dict[int, int], bytes]] = msgspec.msgpack.Decoder(
    tuple[dict[int, int], bytes]
)


class FactStore(Protocol):
    """The facts that a node stores for its next life."""

    def get(self, name: str) -> bytes | None:
        """The fact with a name."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a fact; the next commit makes it durable."""


def owner_of(writer: int) -> int:
    """The identity that a writer belongs to, as a number."""
    return writer >> WRITER_BITS - OWNER_BITS


def name_of(writer: int) -> int:
    """The part of a writer's number that comes from its name; positions of earlier versions have the same."""
    return writer & (1 << WRITER_BITS - OWNER_BITS) - 1


def owned_number(owner: int, name: int) -> int:
    """The number of a writer from that of its identity and that of its name."""
    return (owner & (1 << OWNER_BITS) - 1) << WRITER_BITS - OWNER_BITS | name_of(name)


def checksum(data: bytes, seed: int = 0) -> int:
    """A number that bytes have in every life of a node (FNV-1a)."""
    value = 0x811C9DC5 ^ seed
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def part_of(topic: str) -> int:
    """The part of a topic; the same in every life of a node."""
    return checksum(topic.encode()) % PARTS


def forgotten_fact_name(part: int) -> str:
    """Under which name the log keeps a part."""
    return f"forgotten writers {part}"


def bits_of(topic: str, lane: int) -> list[int]:
    """The bits of a filter that stand for a lane on a topic."""
    named = lane.to_bytes(8, "little") + topic.encode()
    first, step = checksum(named), checksum(named, 1) | 1
    return [(first + probe * step) % (8 * FILTER_BYTES) for probe in range(PROBES)]


class ForgottenLanes:
    """The lanes that a node has forgotten, and how far those of an identity had come.

    A node that has forgotten a lane cannot tell a repetition from something new. It must say so, because a
    repetition that is delivered may be a payment that is made twice. So it remembers two things, for each part of
    the topics: which lanes it has forgotten, in a Bloom filter of fixed size, and for each identity the highest
    number of those. It refuses a batch if both say that it may have been written. A filter errs on one side only:
    after a million forgotten lanes it takes one new lane in fifty for a forgotten one. An identity of which nothing
    was forgotten is never refused.
    """

    def __init__(self) -> None:
        self._numbers: list[dict[int, int]] = [{} for _ in range(PARTS)]
        self._filters: dict[int, bytearray] = {}
        self._put: Callable[[str, bytes], None] | None = None

    def load(self, store: FactStore) -> None:
        """Go on with what an earlier life of the node has stored, and store what comes."""
        self._put = store.put
        for part in range(PARTS):
            kept = store.get(forgotten_fact_name(part))
            if kept is not None:
                self._numbers[part], found = FORGOTTEN_DECODER.decode(kept)
                self._filters[part] = bytearray(found)

    def add(self, owner: int, topic: str, lane: int, number: int) -> None:
        """A lane that had come to this number is forgotten."""
        part = part_of(topic)
        numbers = self._numbers[part]
        if owner not in numbers and len(numbers) >= OWNERS_AT_MOST:
            owner = ALL_OTHERS
        numbers[owner] = max(number, numbers.get(owner, 0))
        bits = self._filters.setdefault(part, bytearray(FILTER_BYTES))
        for bit in bits_of(topic, lane):
            bits[bit >> 3] |= 1 << (bit & 7)
        if self._put is not None:
            self._put(forgotten_fact_name(part), ENCODER.encode((numbers, bytes(bits))))

    def up_to(self, owner: int, topic: str, lane: int) -> int:
        """Up to which number a lane may have been forgotten; 0 if it was not."""
        part = part_of(topic)
        bits = self._filters.get(part)
        if bits is None or not all(bits[bit >> 3] >> (bit & 7) & 1 for bit in bits_of(topic, lane)):
            return 0
        numbers = self._numbers[part]
        return max(numbers.get(owner, 0), numbers.get(ALL_OTHERS, 0))


class Writers:
    """The positions of all lanes on all topics of a node; ``now_us`` is the time since 1970."""

    def __init__(self, log: WriterLog, now_us: Callable[[], int]) -> None:
        self._log = log
        self._now_us = now_us
        # In the order in which they were last written.
        self._of: dict[tuple[str, int], LanePosition] = {}
        self._of_writer: dict[int, dict[tuple[str, int], None]] = {}
        # By identity, in the order in which they were last written.
        self._of_owner: dict[int, dict[tuple[str, int], None]] = {}
        self._forgotten_lanes = ForgottenLanes()
        self.repeated = 0
        self.ahead = 0
        self.conflicts = 0
        self.forgotten = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._of)

    def load(self, store: FactStore) -> None:
        """Go on with what an earlier life of the node has stored."""
        self._forgotten_lanes.load(store)
        found: list[LanePosition] = []
        while (kept := store.get(fact_name(len(found)))) is not None:
            found.append(DECODER.decode(kept))
        for position in sorted(found, key=lambda each: each.written_at_us):
            self._keep(position)

    def count_of(self, writer: int) -> int:
        """How many lanes the identity of a writer has here, on all topics."""
        return len(self._of_owner.get(owner_of(writer), ()))

    def knows(self, topic: str, author: LaneBatch) -> bool:
        """Whether a lane has a position on a topic."""
        return (topic, author.client) in self._of

    def take(self, topic: str, author: LaneBatch) -> tuple[str, bytes] | None:
        """A batch of a lane comes. The fact to be stored with it, or None if it is not to be delivered."""
        key = (topic, author.client)
        position = self._of.get(key)
        known = 0 if position is None else position.number
        if position is not None and differs(position, author):
            self.conflicts += 1
            self._log.error("a repeated batch differs from the first one", topic=topic, lane=author.lane)
            return None
        if author.number <= known:
            self.repeated += 1
            if position is not None and position.writer != author.writer:
                # Stored by an earlier version, which gave the writer another number.
                self._keep(msgspec.structs.replace(position, writer=author.writer))
            return None
        if position is None and self._may_be_forgotten(topic, author):
            self.refused += 1
            self._log.warning("a batch is dropped because its lane may be forgotten", topic=topic, lane=author.lane)
            return None
        if author.number != known + 1 and place_of(author.number) != 1:
            self.ahead += 1
            self._log.warning("a batch is dropped because others before it are missing", topic=topic, lane=author.lane)
            return None
        slot = len(self._of) if position is None else position.slot
        if slot >= LANES_AT_MOST:
            slot = self._forget(author.writer)
        new = LanePosition(
            topic, author.client, author.writer, author.lane, author.number, author.digest, self._now_us(), slot
        )
        self._keep(new)
        return fact_name(slot), ENCODER.encode(new)

    def _keep(self, position: LanePosition) -> None:
        key = (position.topic, position.author)
        if key in self._of:
            self._drop(key)
        self._of[key] = position
        self._of_writer.setdefault(name_of(position.writer), {})[key] = None
        self._of_owner.setdefault(owner_of(position.writer), {})[key] = None

    def _drop(self, key: tuple[str, int]) -> LanePosition:
        position = self._of.pop(key)
        for lanes, of in ((self._of_writer, name_of(position.writer)), (self._of_owner, owner_of(position.writer))):
            del lanes[of][key]
            if not lanes[of]:
                del lanes[of]
        return position

    def _forget(self, writer: int) -> int:
        """Forget a lane so that a writer can have one more; the slot that is free then.

        It is one of the writer's identity, if that has its share of all lanes, and otherwise one of the identity with
        the most. There are as many identities as there are clients with different rights.
        """
        owner = owner_of(writer)
        owners = len(self._of_owner) + (owner not in self._of_owner)
        if len(self._of_owner.get(owner, ())) * owners < LANES_AT_MOST:
            owner = max(self._of_owner, key=lambda each: len(self._of_owner[each]))
        position = self._drop(next(iter(self._of_owner[owner])))
        self._forgotten_lanes.add(owner, position.topic, position.author, position.number)
        self.forgotten += 1
        if self.forgotten == 1:
            self._log.warning("writers that are silent are forgotten from now on", at_most=LANES_AT_MOST)
        return position.slot

    def _may_be_forgotten(self, topic: str, author: LaneBatch) -> bool:
        return author.number <= self._forgotten_lanes.up_to(owner_of(author.writer), topic, author.client)

    def check(self, topic: str, author: LaneBatch) -> None:
        """Refuse a batch that is not what was written under its number before."""
        position = self._of.get((topic, author.client))
        if position is not None and differs(position, author):
            raise UsageError(
                f"lane {author.lane} of this writer has written something else in series {series_of(author.number)} on "
                f"{topic!r} before; what is written again must be the same, in the same order"
            )
        if position is None and self._may_be_forgotten(topic, author):
            raise PeerError(
                f"this node has forgotten how far lane {author.lane} of this writer had come on {topic!r}, and cannot "
                f"tell whether series {series_of(author.number)} was written before: it remembers {LANES_AT_MOST} "
                "lanes of all clients; use fewer lanes, see what was written, and write the rest under another name"
            )

    def lane_states(self, writer: int, lane: int | None) -> list[LanePosition]:
        """How far one lane of a writer, or all of them, have come, topic by topic."""
        found = [self._of[key] for key in self._of_writer.get(name_of(writer), ())]
        return [each for each in found if lane is None or each.lane == lane]


def differs(position: LanePosition, author: LaneBatch) -> bool:
    """Whether a batch repeats or follows the last one, and has another content, itself or in front of it."""
    if author.number == position.number:
        return author.digest != position.digest
    follows = author.number == position.number + 1 and place_of(author.number) > 1
    return follows and author.previous != position.digest
