"""CubeRetransmission: a member sends others the publications that they lack, from memory, and older ones from its log.

Many publications go in parts. A receiver asks for the next part as soon as it has one, and one part at a time is on its
way to each peer.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import Bundle
from antiphon.fabrics.cube.repair.log_recovery import LogRecovery, lacking_keys, recover
from antiphon.fabrics.cube.repair.messages import REQUEST_TO_ALL, Digest, RepairBatch, Unavailable
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings, RetransmitBuffer
from antiphon.fabrics.cube.topic import CubeTopic, FaultOptions
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import Environment

MOST_DOUBLINGS: Final[i64] = 4
LONGEST_PAUSE: Final[i64] = 1 << MOST_DOUBLINGS
"""Rounds in which members compare become rarer while nothing new comes, down to one in so many."""

FILLING_AT_MOST: Final[i64] = 64
LOOKED_AT_MOST: Final[i64] = 1 << 16
"""So many numbers are looked for at once. A peer that lies may lack a trillion of them."""

KEPT_BESIDE: Final[i64] = 1 << 12
"""How far beyond the length of the buffer publications are looked for in memory."""

FILLING_BYTES: Final[i64] = 1 << 20
"""How much is sent at once to one who lacks something, about; then it asks for more."""

GIVEN_PART: Final[i64] = 0
GIVEN_ALL: Final[i64] = 1
GIVEN_WHAT_IS_HERE: Final[i64] = 2
"""Whether another one has got what it lacks: a part, all of it, or all but what counts as past here and is not here."""


@final
class Part:
    """A part of what somebody lacks, on its way: for which subscription, its last publication, and since when."""

    def __init__(self, counter: i64, last: i64, sent_at: i64) -> None:
        self.counter: Final[i64] = counter
        self.last: Final[i64] = last
        self.sent_at: Final[i64] = sent_at


@final
class CubeRetransmission:
    """Keeps publications for others, and sends them what they lack."""

    def __init__(self, environment: Environment, faults: FaultOptions, is_total: bool) -> None:
        self._environment: Final[Environment] = environment
        self._faults: Final[FaultOptions] = faults
        self._is_total: Final[bool] = is_total
        # By topic and peer, what was read from the log for it.
        self._recoveries: dict[tuple[i64, i64], LogRecovery] = {}
        # By topic and peer, the part that was sent to it last, if there is more for it.
        self._under_way: dict[tuple[i64, i64], Part] = {}

    # What is kept.

    def keep(self, topic: CubeTopic, publication: Publication, past: i64 = 0) -> None:
        """Keep a publication for members that lack it, unless it is one of those up to ``past`` and too old.

        A newcomer counts as past what it never had. If it has acknowledged a copy, its publisher relies on it, and this
        copy may be the only one that is left. A publication older than the buffer would never leave it again.
        """
        if publication.sequence + self._faults.keep > past:
            self._kept(topic).add(publication)

    def keep_packet(self, topic: CubeTopic, packet: ProtocolMessage) -> None:
        """Keep what a packet holds."""
        kept = self._kept(topic)
        if isinstance(packet, Publication):
            kept.add(packet)
        elif isinstance(packet, Bundle):
            for publication in packet.publications:
                kept.add(publication)

    def _kept(self, topic: CubeTopic) -> RetransmitBuffer:
        kept = topic.retransmit_buffer
        if kept is None:
            kept = RetransmitBuffer(self._faults.keep, self._faults.keep_bytes)
            topic.retransmit_buffer = kept
        return kept

    def forget(self, topic: CubeTopic, peer: i64) -> None:
        """A peer is lost: nothing is on its way to it."""
        self._recoveries.pop((topic.name, peer), None)
        self._under_way.pop((topic.name, peer), None)

    # Giving.

    def give(self, topic: CubeTopic, peer: i64, message: Digest, theirs: Holdings, mine: Holdings) -> i64:
        """Send a part of what another one lacks; whether that was all."""
        counter = message.sequence
        # A question to all is asked once, and has to be answered: the part that is on its way may be lost.
        if message.asks != REQUEST_TO_ALL and self._is_under_way(topic, peer, counter, theirs):
            return GIVEN_PART
        found, is_all_here, is_cut = self._lacking(topic, peer, theirs, mine)
        size: i64 = 0
        count: i64 = 0
        while count < len(found) and count < FILLING_AT_MOST and size < FILLING_BYTES:
            size += len(found[count].payload)
            count += 1
        if count > 0:
            self._environment.send(peer, RepairBatch(found[:count], count == len(found)))
        if count < len(found):
            last = publication_key(found[count - 1].source, found[count - 1].sequence)
            self._under_way[topic.name, peer] = Part(counter, last, self._environment.now())
            return GIVEN_PART
        if is_cut:
            return GIVEN_PART
        return GIVEN_ALL if is_all_here else GIVEN_WHAT_IS_HERE

    def hand_on(self, topic: CubeTopic, peers: list[i64], present: dict[i64, bool]) -> None:
        """Send the last publications of publishers that are out of reach: this node goes, and may alone have them."""
        found: list[Publication] = []
        size: i64 = 0
        for publication in reversed(self._kept(topic).all()):
            if publication.source in present or publication.source == self._environment.identifier:
                continue
            size += len(publication.payload)
            if len(found) == FILLING_AT_MOST or (len(found) > 0 and size > FILLING_BYTES):
                break
            found.append(publication)
        if len(found) > 0:
            found.reverse()
            for peer in peers:
                self._environment.send(peer, RepairBatch(self._locked_first(found), True))

    def _locked_first(self, found: list[Publication]) -> list[Publication]:
        """Put total publications first: at a peer without their locks, a later weaker one must not overtake them."""
        if not self._is_total:
            return found
        return [each for each in found if each.order == TOTAL] + [each for each in found if each.order != TOTAL]

    def _is_under_way(self, topic: CubeTopic, peer: i64, counter: i64, theirs: Holdings) -> bool:
        """Whether another one has asked before it got the part that was sent to it last; it asks again when it has.

        Members ask in every round. If each question were answered with the same part, each answer would lead to a
        question of its own, and all of these would go on beside each other, more of them with every round.
        """
        part = self._under_way.get((topic.name, peer))
        if part is None:
            return False
        is_recent = self._environment.now() - part.sent_at < LONGEST_PAUSE * self._faults.compare_ticks
        if (
            is_recent
            and part.counter == counter
            and not theirs.holds(part.last & SOURCE_MASK, part.last >> SOURCE_BITS)
        ):
            return True
        del self._under_way[topic.name, peer]
        return False

    def _lacking(
        self, topic: CubeTopic, peer: i64, theirs: Holdings, mine: Holdings
    ) -> tuple[list[Publication], bool, bool]:
        """The publications that another member lacks and this node has, and whether these are all that count here.

        The last answer is whether there were too many numbers for one look: the next one begins behind these.
        """
        found: list[Publication] = []
        is_all_here, is_cut = True, False
        room: i64 = LOOKED_AT_MOST
        older: list[tuple[i64, i64, i64]] = []
        kept = self._kept(topic)
        for source, reached, last in mine.beyond(theirs):
            number, is_here = self._add_kept(topic, kept, source, reached, last, theirs, mine, found)
            is_all_here = is_all_here and is_here
            end = min(number, reached + room)
            if end > reached:
                older.append((source, reached + 1, end))
                room -= end - reached
            is_cut = is_cut or end < number
        found.reverse()
        if len(older) > 0:
            found = self._recovered(topic, kept, peer, theirs, older) + found
        else:
            self._recoveries.pop((topic.name, peer), None)
        return self._locked_first(found), is_all_here, is_cut

    def _add_kept(
        self,
        topic: CubeTopic,
        kept: RetransmitBuffer,
        source: i64,
        reached: i64,
        last: i64,
        theirs: Holdings,
        mine: Holdings,
        found: list[Publication],
    ) -> tuple[i64, bool]:
        """Add to ``found`` what another one lacks of a source and is in memory, the last number first.

        Return the last number that only the log may have, or else 0, and whether all that counts is here.
        """
        logged: i64 = 0
        is_all_here = True
        number = last
        # Nothing in memory is much older than the last number. A peer that lies may ask about a trillion of them.
        lowest = max(reached, last - 2 * self._faults.keep - KEPT_BESIDE)
        if lowest > reached:
            is_all_here = False
        # Below a number that is in the log, there is nothing in memory that is older than the buffer is long.
        while number > lowest and (logged == 0 or number + self._faults.keep > last):
            if not theirs.holds(source, number):
                publication = kept.get(publication_key(source, number))
                if publication is not None:
                    found.append(publication)
                elif mine.holds(source, number):
                    if self._environment.was_logged(topic.name, source, number):
                        logged = max(logged, number)
                    else:
                        is_all_here = False
            number -= 1
        return logged, is_all_here

    def _recovered(
        self, topic: CubeTopic, kept: RetransmitBuffer, peer: i64, theirs: Holdings, older: list[tuple[i64, i64, i64]]
    ) -> list[Publication]:
        """From the log what another member lacks and is not in memory; it is told which publications the log lost."""
        known = self._recovery(topic, peer, theirs, older)
        gone = vec[i64]()
        for source, first, last in older:
            last_gone = known.gone_before(source, first, last)
            number = first
            while number <= last_gone:
                if not theirs.holds(source, number) and kept.get(publication_key(source, number)) is not None:
                    last_gone = number - 1
                number += 1
            if last_gone >= first:
                gone = append(gone, publication_key(source, last_gone))
        if len(gone) > 0:
            self._environment.send(peer, Unavailable(self._environment.identifier, topic.name, gone))
        return [each for each in known.unsent(theirs) if kept.get(publication_key(each.source, each.sequence)) is None]

    def _recovery(
        self, topic: CubeTopic, peer: i64, theirs: Holdings, older: list[tuple[i64, i64, i64]]
    ) -> LogRecovery:
        """The publications read from the log for another member. The log is read again when hardly any of them is left.

        Meanwhile more may have left memory, or been delivered behind numbers that were looked for.
        """
        name = (topic.name, peer)
        known = self._recoveries.get(name)
        if known is not None and known.begins_before(older):
            if known.has_more_than(FILLING_AT_MOST, theirs):
                return known
            if known.covers(lacking_keys(self._environment, topic.name, older, theirs)):
                return known
        known = recover(self._environment, topic.name, older, theirs)
        self._recoveries[name] = known
        return known

    def text(self) -> str:
        """The state as text, to compare states."""
        recalls = [(name, one.text()) for name, one in sorted(self._recoveries.items())]
        parts = [(name, part.counter, part.last) for name, part in sorted(self._under_way.items())]
        return f"{recalls} {parts}"
