"""Corrective deliveries: late events get their place afterwards, and states agree in the end (thesis, section 5.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.gossip.epto.corrections import CorrectedLog, CorrectingOrdering, RevisableState, key_of
from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import DONE, KnownEvent
from antiphon.kernel.errors import UsageError
from tests.fabrics.gossip.epto_worlds import Desk, known, options, stamped


class Ledger(RevisableState):
    """Names in order; it insists that what is taken back is what came last."""

    def __init__(self) -> None:
        self.names: list[tuple[int, int]] = []

    def apply(self, publication: Stamped) -> None:
        self.names.append((int(publication.source), int(publication.sequence)))

    def take_back(self, publication: Stamped) -> None:
        assert self.names.pop() == (int(publication.source), int(publication.sequence))


def names(events: list[KnownEvent]) -> list[tuple[int, int, bool]]:
    """What has left, and whether it was late."""
    return [(int(event.source()), int(event.sequence()), bool(event.is_late)) for event in events]


def test_a_late_event_leaves_at_once_and_says_so() -> None:
    desk = Desk()
    ordering = CorrectingOrdering(desk, 0, True)
    ordering.offer(known(1, 1, stamp=10), 0)
    assert names(ordering.release(0)) == [(1, 1, False)]
    ordering.offer(known(2, 1, stamp=5), 7)
    ordering.offer(known(3, 1, stamp=20), 7)
    # The late one is too young, and there is nothing that it could still be overtaken by; the other one waits.
    assert names(ordering.release(0)) == [(2, 1, True)]
    assert names(ordering.release(7)) == [(3, 1, False)]
    assert desk.holes == []
    assert ordering.last_stamp == 20


def test_what_was_delivered_comes_no_second_time() -> None:
    ordering = CorrectingOrdering(Desk(), 0, True)
    for sequence, stamp in ((2, 20), (1, 10)):
        ordering.offer(known(1, sequence, stamp), 0)
        assert len(ordering.release(0)) == 1
    again = known(1, 2, 20)
    ordering.offer(again, 0)
    assert again.state == DONE
    assert ordering.release(0) == []
    assert ordering.is_past(again.name, 20)
    assert not ordering.is_past(known(1, 3, 15).name, 15)


def test_a_log_takes_back_what_follows_and_applies_it_again() -> None:
    state = Ledger()
    log = CorrectedLog(state)
    for source, stamp in ((1, 10), (2, 20), (3, 30)):
        log.delivered(stamped(source, 1, stamp))
    assert log.corrected(stamped(4, 1, 15)) == 2
    assert state.names == [(1, 1), (4, 1), (2, 1), (3, 1)]
    assert (log.corrections, log.taken_back) == (1, 2)


def test_what_is_beyond_the_horizon_cannot_be_corrected_and_is_counted() -> None:
    state = Ledger()
    log = CorrectedLog(state, horizon=2)
    for source, stamp in ((1, 10), (2, 20), (3, 30)):
        log.delivered(stamped(source, 1, stamp))
    assert log.corrected(stamped(4, 1, 5)) == -1
    assert log.beyond_horizon == 1
    assert state.names == [(1, 1), (2, 1), (3, 1)]
    # Among the last two it can be put in.
    assert log.corrected(stamped(5, 1, 25)) == 1
    assert state.names == [(1, 1), (2, 1), (5, 1), (3, 1)]
    with pytest.raises(UsageError, match="horizon"):
        CorrectedLog(state, horizon=0)


def test_corrections_need_whole_keys_and_whole_balls() -> None:
    assert options(corrects=True).corrects
    for wrong in ({"digests": True}, {"ordering": "strict"}, {"carried": True}):
        with pytest.raises(UsageError, match="corrects = false"):
            EptoOptions(3, agreement=0.0, corrects=True, **wrong)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=25, unique=True), st.randoms())
def test_the_same_events_give_the_same_state_in_whatever_order_they_come(
    places: list[tuple[int, int]], random: object
) -> None:
    numbers: dict[int, int] = {}
    events: list[tuple[int, int, int]] = []
    for stamp, source in sorted(places):
        numbers[source] = numbers.get(source, 0) + 1
        events.append((source, numbers[source], stamp))
    shuffled = list(events)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ordering = CorrectingOrdering(Desk(), 0, True)
    state = Ledger()
    log = CorrectedLog(state)
    for moment, (source, sequence, stamp) in enumerate(shuffled):
        ordering.offer(known(source, sequence, stamp), moment)
        # Some leave too early, which is what makes others late.
        for event in ordering.release(moment - 3):
            assert event.publication is not None
            if event.is_late:
                assert log.corrected(event.publication) > 0
            else:
                log.delivered(event.publication)
        assert [key_of(event) for event in log.events] == sorted(key_of(event) for event in log.events)
    for event in ordering.release(len(shuffled)):
        assert event.publication is not None
        if event.is_late:
            log.corrected(event.publication)
        else:
            log.delivered(event.publication)
    expected = sorted(events, key=lambda each: (each[2], each[0], each[1]))
    assert state.names == [(source, sequence) for source, sequence, _ in expected]
