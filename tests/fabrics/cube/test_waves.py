"""Waves of acknowledgements (thesis, section 5.4), against a dictionary of counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.cube.ack_aggregation import NOT_OPEN, STILL_OPEN, Waves
from antiphon.kernel import NO_NODE
from tests.support import lists_up_to

NODES = st.one_of(st.just(int(NO_NODE)), st.integers(0, (1 << 22) - 1))
STEPS = lists_up_to(
    60, st.tuples(st.sampled_from(["answer", "open", "more"]), st.integers(0, 3), st.integers(1, 3), NODES)
)


@given(STEPS)
def test_a_wave_ends_at_its_parent_when_the_last_answer_has_come(steps: list[tuple[str, int, int, int]]) -> None:
    waves = Waves()
    missing: dict[int, int] = {}
    parents: dict[int, int] = {}
    for what, key, count, parent in steps:
        if what == "open" and key not in missing:
            waves.open(key, count, parent)
            missing[key], parents[key] = count, parent
        elif what == "more" and key in missing:
            waves.expect_more(key, count)
            missing[key] += count
        elif key not in missing:
            assert waves.on_ack(key) == NOT_OPEN
        else:
            missing[key] -= 1
            assert waves.on_ack(key) == (STILL_OPEN if missing[key] else parents[key])
            if missing[key] == 0:
                del missing[key]
        assert len(waves) == len(missing)


def test_the_state_lists_the_open_waves() -> None:
    one, other = Waves(), Waves()
    assert one.state() == other.state()
    one.open(7, 2, NO_NODE)
    assert one.state() != other.state()
    one.on_ack(7)
    one.on_ack(7)
    assert one.state() == other.state()
