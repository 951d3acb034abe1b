"""Reading a log backwards: no further than it helps, and not at all for what was never in it."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.repair.delivery import DISORDER, Places
from antiphon.fabrics.cube.repair.log_recovery import LogRecovery, recover
from antiphon.fabrics.cube.repair.messages import REQUEST_TO_ALL, Digest, RepairBatch
from antiphon.fabrics.cube.repair.retransmission import GIVEN_PART, CubeRetransmission
from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.fabrics.cube.topic import CubeTopic, CubeTopicTable, FaultOptions, Options
from antiphon.kernel.message import CAUSAL, TOTAL, ProtocolMessage, publication_key
from antiphon.kernel.process import Environment, LogReader
from antiphon.orders.order import Ordered, Placed


class Pieces(LogReader):
    """Reads a list, and counts."""

    def __init__(self, log: list[ProtocolMessage], is_cut: bool = False, entries_per_piece: int = 10) -> None:
        super().__init__()
        self.read = 0
        self._entries_per_piece = entries_per_piece
        self._log = log
        self._is_cut = is_cut

    def earlier(self) -> list[ProtocolMessage] | None:
        end = len(self._log) - self.read * self._entries_per_piece
        if end <= 0:
            return None if self._is_cut else []
        self.read += 1
        return self._log[max(0, end - self._entries_per_piece) : end]


class Disk(Environment):
    """One topic of a node that does nothing but remember."""

    def __init__(self, log: list[ProtocolMessage], is_cut: bool = False, knows: bool = True) -> None:
        super().__init__(0)
        self.reader = Pieces(log, is_cut)
        self._logged = {(int(entry.source), int(entry.sequence)) for entry in log}
        self._knows = knows

    def log_reader(self, topic: int) -> LogReader | None:
        return self.reader

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        return not self._knows or (source, sequence) in self._logged


def published(source: int, sequence: int) -> ProtocolMessage:
    return Ordered(source, sequence, 0, b"", vec[i64](), 7, CAUSAL)


LONG_LOG = [*(published(1, number) for number in range(1, 6)), *(published(2, number) for number in range(1, 500))]


def wanted(disk: Disk, source: int, first: int, last: int, has: int = 0) -> LogRecovery:
    theirs = Holdings(vec[i64]([publication_key(source, has)]) if has > 0 else vec[i64]())
    return recover(disk, 7, [(source, first, last)], theirs)


def found(one: LogRecovery) -> list[int]:
    return [int(each.sequence) for each in one.unsent(Holdings(vec[i64]()))]


def test_a_log_is_read_as_far_as_what_is_wanted() -> None:
    disk = Disk(LONG_LOG)
    one = wanted(disk, 2, 485, 499, has=484)
    assert found(one) == list(range(485, 500)) and disk.reader.read == 2


def test_for_what_was_never_in_it_a_log_is_not_read() -> None:
    disk = Disk(LONG_LOG)
    one = wanted(disk, 1, 6, 9, has=5)
    assert found(one) == [] and disk.reader.read == 0
    assert one.gone_before(1, 6, 9) == 5, "whoever had it may have it still"


def test_a_hole_in_what_is_wanted_does_not_let_the_rest_of_the_log_be_read() -> None:
    log = [entry for entry in LONG_LOG if (entry.source, entry.sequence) != (2, 495)]
    disk = Disk(log)
    one = wanted(disk, 2, 490, 499, has=489)
    assert found(one) == [490, 491, 492, 493, 494, 496, 497, 498, 499] and disk.reader.read == 1
    doubtful = Disk(log, knows=False)
    assert found(wanted(doubtful, 2, 490, 499, has=489)) == found(one)
    assert doubtful.reader.read == 51, "who does not know what is in its log reads it all"


def test_for_an_old_gap_that_nobody_can_fill_not_all_is_read_that_came_since() -> None:
    log = [entry for entry in LONG_LOG if (entry.source, entry.sequence) != (2, 5)]
    theirs = [publication_key(2, 4), *(~publication_key(2, number) for number in range(6, 497))]
    disk = Disk(log)
    one = recover(disk, 7, [(2, 5, 499)], Holdings(vec[i64](theirs)))
    assert found(one) == [497, 498, 499] and disk.reader.read == 1


def test_what_was_not_shown_is_read_first_and_hides_nothing() -> None:
    """Old publications that were not shown stand before the end of a log for its reader, here at its end."""
    disk = Disk([*(published(2, number) for number in range(15, 3000)), published(2, 13), published(2, 14)])
    one = wanted(disk, 2, 1908, 2985, has=1907)
    assert found(one) == list(range(1908, 2986))
    assert one.gone_before(2, 1908, 2985) == 1907


def test_publications_that_waited_for_a_key_hide_nothing_that_overtook_them() -> None:
    """Every third has no order, and was delivered before all others, which waited for a total publication."""
    overtaking, waiting = range(3, 4000, 3), [number for number in range(1, 4000) if number % 3 > 0]
    disk = Disk([published(2, number) for number in (*overtaking, *waiting)])
    one = wanted(disk, 2, 3001, 3999, has=3000)
    assert sorted(found(one)) == list(range(3001, 4000))


def test_what_a_log_has_lost_is_gone() -> None:
    disk = Disk(LONG_LOG[300:], is_cut=True, knows=False)
    one = wanted(disk, 2, 290, 299, has=289)
    assert found(one) == [296, 297, 298, 299] and one.gone_before(2, 290, 299) == 295


def placed(place: int, key: int) -> Placed:
    return Placed(0, place, 0, b"", vec[i64](), 7, TOTAL, vec[i64]([key]), place)


def test_what_is_too_late_is_known_from_the_log_of_an_earlier_life() -> None:
    places = Places(Pieces([placed(5, 1), placed(6, 2), placed(4, 3)]))
    assert not places.take(placed(3, 3)) and not places.take(placed(5, 1)) and not places.take(placed(2, 2))
    assert places.take(placed(5, 3)) and places.take(placed(7, 1))


def test_the_log_of_an_earlier_life_is_read_no_further_than_to_what_is_surely_earlier() -> None:
    log: list[ProtocolMessage] = [placed(place, place % 7) for place in range(1, 4 * DISORDER)]
    reader = Pieces(log, entries_per_piece=100)
    places = Places(reader)
    assert reader.read == 0
    assert not places.take(placed(4 * DISORDER - 20, 1))
    assert DISORDER <= reader.read * 100 < DISORDER + 200
    read_before = reader.read
    assert places.take(placed(4 * DISORDER, 1)) and reader.read == read_before
    assert places.take(placed(2 * DISORDER, 9)) and reader.read > read_before, "key 9 is in none of what was read"


class Given(Disk):
    """A disk whose log grows, and what is sent from it."""

    def __init__(self, log: list[ProtocolMessage]) -> None:
        super().__init__(log)
        self.log = log
        self.reads = 0
        self.sent: list[ProtocolMessage] = []

    def log_reader(self, topic: int) -> LogReader | None:
        self.reads += 1
        return Pieces(self.log)

    def was_logged(self, topic: int, source: int, sequence: int) -> bool:
        return any((entry.source, entry.sequence) == (source, sequence) for entry in self.log)

    def now(self) -> i64:
        return 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append(message)


def frontier(numbers: set[int]) -> vec[i64]:
    """A set of publications of source 2: up to which number it has all, and single ones."""
    complete = 0
    while complete + 1 in numbers:
        complete += 1
    singles = sorted(number for number in numbers if number > complete)
    return vec[i64]([publication_key(2, complete), *(~publication_key(2, number) for number in singles)])


def given(disk: Given, retransmission: CubeRetransmission, topic: CubeTopic, has: set[int], mine: set[int]) -> i64:
    """Give a member that has some numbers of source 2 a part of the others; it has them then."""
    disk.sent.clear()
    have = frontier(has)
    digest = Digest(1, 1, 7, vec[i64](), have, REQUEST_TO_ALL, True, 1)
    how = retransmission.give(topic, 1, digest, Holdings(have), Holdings(frontier(mine)))
    for message in disk.sent:
        assert isinstance(message, RepairBatch)
        has |= {int(each.sequence) for each in message.publications}
    return how


def test_what_was_delivered_meanwhile_is_read_too_though_higher_numbers_were_read_before() -> None:
    """Even numbers have no order and were delivered at once, odd ones had to wait."""
    disk = Given([published(2, number) for number in range(2, 400, 2)])
    retransmission = CubeRetransmission(disk, FaultOptions(keep=4), True)
    topic = CubeTopicTable(0, Options(mixed=True, total=True)).find(7)
    has = {1}
    assert given(disk, retransmission, topic, has, {1, *range(2, 400, 2)}) == GIVEN_PART
    disk.log += [published(2, number) for number in range(3, 390, 2)]
    while given(disk, retransmission, topic, has, {*range(1, 390), *range(390, 400, 2)}) == GIVEN_PART:
        pass
    assert has == {*range(1, 390), *range(390, 400, 2)}


def test_a_log_is_not_read_for_every_part() -> None:
    """The publisher goes on meanwhile: each time another publication is in the log and in no memory any more."""
    disk = Given([published(2, number) for number in range(1, 1000)])
    retransmission = CubeRetransmission(disk, FaultOptions(keep=4), True)
    topic = CubeTopicTable(0, Options(mixed=True, total=True)).find(7)
    has, end = {1}, 1000
    while given(disk, retransmission, topic, has, set(range(1, end))) == GIVEN_PART:
        if end < 1010:
            disk.log.append(published(2, end))
            end += 1
    assert has == set(range(1, end)) and disk.reads <= 3
