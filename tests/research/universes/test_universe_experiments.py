"""Table 3.1 and Figures 3.4 to 3.6 of the thesis of M. Matos on small stand-ins."""

from __future__ import annotations

from itertools import pairwise

from antiphon_lab.reproduction.experiment import Plan, Report
from antiphon_lab.reproduction.verdicts import REPRODUCED
from antiphon_lab.universes.figures import FIG_3_4, FIG_3_5, FIG_3_6
from antiphon_lab.universes.table import PROCESSES, SEEDS, TABLE_3_1, TOPICS, TableCase, measure, source_law


def verdicts(report: Report) -> dict[str, str | None]:
    return {row.label: row.verdict for row in report.rows if row.published is not None}


def says_stand_in(report: Report) -> bool:
    return any("not published" in note and "stand-in" in note for note in report.notes)


def test_table_3_1_has_every_universe_of_both_traces() -> None:
    assert len(SEEDS.rows) == 9
    assert TOPICS.number("wikipedia", 8).value == 576
    assert PROCESSES.number("livejournal", 8).value == 4689


def test_stand_ins_have_the_sizes_of_the_traces_and_topics_to_prune() -> None:
    law = source_law("livejournal", 301_315)
    assert (law.processes, law.topics) == (301_315, 28_904)
    assert 13 < law.least_popularity < 15


def test_universes_grow_with_their_seeds_and_the_readings_differ() -> None:
    made = measure(TableCase("wikipedia", 8000, 5), seed=2)
    by_reading = {
        reading: [one for one in made if one.reading == reading] for reading in ("enlarged", "seeds", "inside")
    }
    for universes in by_reading.values():
        assert all(one.topics >= other.topics for one, other in pairwise(universes))
    for literal, seeds in zip(by_reading["enlarged"], by_reading["seeds"], strict=True):
        assert literal.index == seeds.index
        assert literal.processes >= seeds.processes
        assert literal.topics >= seeds.topics * 0.8
    assert min(one.smallest for one in made) >= 30


def test_figures_3_4_and_3_5_hold_on_stand_ins() -> None:
    for experiment in (FIG_3_4, FIG_3_5):
        report = experiment.run(Plan((10_000,), 3, 3), seed=1, step=lambda _: None)
        assert says_stand_in(report)
        assert {figure.name for figure in report.figures} == {"topics", "processes"}
        found = verdicts(report)
        assert len(found) >= 10
        assert set(found.values()) == {REPRODUCED}


def test_figure_3_6_correlation_is_no_chance_and_stronger_on_wikipedia() -> None:
    report = FIG_3_6.run(Plan((4689,), 3, 3), seed=1, step=lambda _: None)
    assert says_stand_in(report)
    assert set(verdicts(report).values()) == {REPRODUCED}


def test_table_3_1_is_reported_as_a_stand_in() -> None:
    report = TABLE_3_1.run(Plan((8000,), 1, 1), seed=1, step=lambda _: None)
    assert says_stand_in(report)
    assert not report.differs
    assert any(row.label.startswith("processes of W2, enlarged set") for row in report.rows)
