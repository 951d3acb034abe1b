"""Figure 5.10: many topics."""

from __future__ import annotations

from collections import Counter

import pytest

from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.experiments.vcube.many_topics import (
    APART,
    DRAWN,
    FIG_5_10,
    NODES,
    SHARED,
    UNIFORM,
    ZIPF,
    TopicLatency,
    TopicsCase,
    borders,
    build_of,
    cases,
    compare,
    counts_of,
    hottest_root,
    measure,
    message_counts,
    roots_of,
    schedule,
)
from antiphon_lab.experiments.vcube.one_topic import ONE_ROOT, PUBLISHED, REPAIRED, Build
from antiphon_lab.reproduction.experiment import Plan, Results, Row
from antiphon_lab.reproduction.verdicts import DIFFERS, REPRODUCED

WORDS = 1 << 32


def test_the_figure_has_the_published_numbers_of_topics_and_messages() -> None:
    assert message_counts(NODES) == [2**power for power in range(7, 15)]
    assert TopicsCase(PUBLISHED, NODES, 128, ZIPF).topics == 128
    assert counts_of(FIG_5_10.full) == message_counts(NODES)
    assert counts_of(FIG_5_10.default) == [2**8, 2**11, 2**14]


def test_topics_have_the_shares_of_their_law() -> None:
    assert borders(UNIFORM, 4) == [WORDS // 4, WORDS // 2, 3 * WORDS // 4, WORDS]
    zipf = borders(ZIPF, 128)
    shares = [(end - begin) / WORDS for begin, end in zip([0, *zipf], zipf, strict=False)]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] == pytest.approx(0.12, abs=0.005)
    for rank in (2, 10, 128):
        assert shares[0] / shares[rank - 1] == pytest.approx(rank**0.825, rel=1e-6)


def test_the_root_of_the_hottest_topic_is_nearly_always_busy() -> None:
    """Eight copies for each of its own messages, and about one for each of the others, at 0.512 messages per tick."""
    share, load = hottest_root(NODES)
    assert load == pytest.approx(0.512 * (8 * share + (1 - share) * 255 / 256))
    assert 0.9 < load < 1


def test_messages_are_shared_out_evenly() -> None:
    planned = list(schedule(TopicsCase(PUBLISHED, 16, 128, ZIPF), 3))
    assert Counter(node for _, node, _ in planned) == dict.fromkeys(range(16), 8)
    assert all(0 <= topic < 8 for _, _, topic in planned)
    few = list(schedule(TopicsCase(PUBLISHED, 16, 8, ZIPF), 3))
    assert len({node for _, node, _ in few}) == len(few) == 8


def test_both_laws_and_all_systems_have_the_same_times_and_publishers() -> None:
    zipf, uniform, single = (
        [(at, node) for at, node, _ in schedule(case, 3)]
        for case in (
            TopicsCase(PUBLISHED, 16, 64, ZIPF),
            TopicsCase(PUBLISHED, 16, 64, UNIFORM),
            TopicsCase(ONE_ROOT, 16, 64, ZIPF),
        )
    )
    assert zipf == uniform == single


def test_topics_are_drawn_with_their_shares() -> None:
    drawn = Counter(topic for _, _, topic in schedule(TopicsCase(PUBLISHED, 256, 1 << 14, ZIPF), 3))
    expected = borders(ZIPF, 128)[0] / WORDS * (1 << 14)
    assert drawn[0] == pytest.approx(expected, abs=4 * expected**0.5)


def test_roots_are_where_the_case_says() -> None:
    apart = roots_of(TopicsCase(ONE_ROOT, 64, 64, ZIPF, APART), 1)
    assert len(set(apart)) == len(apart) == 32
    assert apart != sorted(apart)
    shared = roots_of(TopicsCase(ONE_ROOT, 64, 64, ZIPF, SHARED), 1)
    assert shared[0] == shared[1]
    assert len(set(shared)) == 31
    drawn = roots_of(TopicsCase(ONE_ROOT, 64, 64, ZIPF, DRAWN), 1)
    assert len(drawn) == 32
    assert all(0 <= root < 64 for root in drawn)


def ours_with_one_in_flight(case: TopicsCase) -> Build:
    cube = full_or_partial(case.nodes)
    view = View(cube.dimension, range(case.nodes))
    options = Options(window=1, bundle=1, largest_first=False)

    def build(environment: Environment) -> VCubePs:
        process = VCubePs(environment, cube, options)
        for topic in range(case.topics):
            process.begin_as_member(topic, view)
        return process

    return build


def test_with_one_publication_in_flight_ours_is_as_fast_as_the_published_one() -> None:
    """Without churn the repairs cost nothing: with the same switches every copy arrives at the same tick."""
    case = TopicsCase(PUBLISHED, 32, 256, ZIPF)
    counters = []
    for build in (build_of(case, 2), ours_with_one_in_flight(case)):
        engine = Engine(case.nodes, NetworkModel(ConstantDelay(100), charge_control=False), build)
        for at, node, topic in schedule(case, 2):
            engine.at(at, PublishAction(node, b"", topic))
        engine.run()
        counters.append((engine.receptions, engine.reception_ticks, engine.start_ticks, engine.end_time))
    assert counters[0] == counters[1]
    assert counters[0][0] == 256 * 31
    assert counters[0][2] > 0


def test_the_law_acts_on_the_published_protocol_through_the_wait_at_publishers_only() -> None:
    uniform, zipf = (measure(TopicsCase(PUBLISHED, 32, 1024, law), 5) for law in (UNIFORM, ZIPF))
    assert zipf.from_call > 1.05 * uniform.from_call
    assert zipf.from_start == pytest.approx(uniform.from_start, rel=0.01)
    ours = [measure(TopicsCase(REPAIRED, 32, 1024, law), 5) for law in (UNIFORM, ZIPF)]
    assert ours[0].from_call == ours[0].from_start
    assert ours[1].from_call == pytest.approx(ours[0].from_call, rel=0.01)
    assert ours[1].from_call < uniform.from_start


def test_a_small_system_has_all_rows_and_no_violations() -> None:
    plan = Plan((16,), repetitions=2, large_repetitions=2)
    report = FIG_5_10.run(plan, 7, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, "derived"}
    measured = {row.label: row.measured.mean for row in report.rows}
    assert measured["violations found by the oracle, VCube-PS, up to 16 messages"] == 0
    assert len([label for label in measured if label.startswith("latency, ")]) == len(cases(plan))


def test_charging_acknowledgements_makes_everything_slower() -> None:
    free, charged = (measure(TopicsCase(REPAIRED, 16, 64, ZIPF, charged=one), 7) for one in (False, True))
    assert charged.from_call > free.from_call


def fabricated(zipf_of: dict[str, float], start: float, roots: dict[str, float]) -> Results[TopicsCase, TopicLatency]:
    """Results in which uniform topics give 450 (VCube-PS) and 530 (SRPT), and Zipf's law at the most messages these.

    At all other numbers of messages Zipf's law costs nothing.
    """
    results: Results[TopicsCase, TopicLatency] = Results()
    for case in cases(Plan((NODES,), 1, 1, full=True)):
        value = 530.0 if case.system == ONE_ROOT else 450.0
        if case.messages == 128:
            value = 525.0 if case.system == ONE_ROOT else 424.0
        if case.messages == 1 << 14 and case.law == ZIPF:
            value = roots.get(case.roots, zipf_of[case.system])
        started = start if case.law == ZIPF else 427.0
        for _ in range(3):
            results.add(case, TopicLatency(value, started, 0))
    return results


def verdicts(results: Results[TopicsCase, TopicLatency]) -> dict[str, str | None]:
    plan = Plan((NODES,), 1, 1, full=True)
    return {row.label: row.verdict for row in compare(plan, results) if isinstance(row, Row) and row.published}


def test_verdicts_follow_the_measurements() -> None:
    found = verdicts(fabricated({PUBLISHED: 540, ONE_ROOT: 570}, 427, {APART: 533, SHARED: 1100}))
    assert found["SRPT above VCube-PS, 128 messages"] == REPRODUCED
    assert found["SRPT, Zipf above uniform, 16384 messages"] == DIFFERS
    assert found["VCube-PS, Zipf above uniform, mean over all numbers of messages"] == DIFFERS


def test_the_published_increases_are_recognised() -> None:
    found = verdicts(fabricated({PUBLISHED: 450 * 1.092, ONE_ROOT: 530 * 1.306}, 427, {}))
    assert found["SRPT, Zipf above uniform, 16384 messages"] == REPRODUCED
