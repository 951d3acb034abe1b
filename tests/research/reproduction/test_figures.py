"""Figures of the experiments: there is one for each, and what is published in them stands in the documents."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from antiphon_lab.experiments.aggregation.dependencies import FIG_4_3
from antiphon_lab.experiments.aggregation.packets import TABLE_4_1, TABLE_4_2, TABLE_4_3
from antiphon_lab.report.stored import Result, results_of
from antiphon_lab.reproduction.documents import Interval, Number, document
from antiphon_lab.reproduction.experiment import Experiment
from antiphon_lab.reproduction.figures import Axis, Point, published_point, published_series
from antiphon_lab.reproduction.registry import EXPERIMENTS
from tests.research.reproduced import LEFT_OUT, NAMES

NO_DATA_WHEN_SMALL = {"aggregation/fig-4.5", "epto/better", "ginger/as-published", "stan/connectivity"}
"""So few nodes have no packets of two to compare; what was added to EpTO, and who is left out, is in rows alone."""


def named(results: list[Result], name: str) -> Result:
    if name == LEFT_OUT:
        experiment: Experiment[Any, Any] = next(each for each in EXPERIMENTS if each.name == name)
        (found,) = results_of([experiment.run(experiment.plan(False, 16, 1), 1, lambda _: None)])
        return found
    return next(each for each in results if each.name == name)


@cache
def published_values() -> frozenset[float]:
    """Everything in the documents."""
    found: set[float] = set()
    for file in files("antiphon_lab").joinpath("published").iterdir():
        content = document(file.name.removesuffix(".toml"))
        found |= {number.value for number in content.numbers.values()}
        found |= {
            value for table in content.tables.values() for each in table.columns.values() for value in each.values
        }
    return frozenset(found)


ALL = [*NAMES, pytest.param(LEFT_OUT, marks=pytest.mark.campaign)]


@pytest.mark.parametrize("name", ALL)
def test_every_experiment_with_data_has_figures_that_can_be_drawn(results: list[Result], name: str) -> None:
    figures = named(results, name).figures
    assert figures or name in NO_DATA_WHEN_SMALL
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert re.fullmatch(r"[a-z0-9-]+", figure.name)
        assert figure.title and figure.x.label and figure.y.label
        assert any(series.points and not series.published for series in figure.series)
        assert len({series.name for series in figure.series}) == len(figure.series)
        for series in figure.series:
            for point in series.points:
                assert not figure.x.categories or point.x in range(len(figure.x.categories))
                assert point.low is None or point.high is None or point.low <= point.y <= point.high


@pytest.mark.parametrize("name", ALL)
def test_figures_show_what_the_rows_say(results: list[Result], name: str) -> None:
    """Every measured mean of a figure of times and counts by number of nodes is also a row."""
    result = named(results, name)
    rows = {row.measured for row in result.rows}
    for figure in result.figures:
        if figure.name == "latency" and figure.x.scale == "log2":
            means = {point.y for series in figure.series if not series.published for point in series.points}
            assert means <= rows


@pytest.mark.parametrize("experiment", [TABLE_4_1, TABLE_4_2, TABLE_4_3, FIG_4_3], ids=lambda each: each.name)
def test_published_points_are_those_of_the_documents(experiment: Experiment[Any, Any]) -> None:
    plan = experiment.plan(False, 16, 1) if experiment is TABLE_4_1 else experiment.plan(False, 256, 1)
    figures = experiment.run(plan, 1, lambda _: None).figures
    points = [point for figure in figures for series in figure.series if series.published for point in series.points]
    assert len(points) >= 4
    assert {point.y for point in points} <= published_values()


@pytest.mark.parametrize("name", ALL)
def test_a_meaning_is_a_paragraph_of_sentences(name: str) -> None:
    meaning = next(experiment.meaning for experiment in EXPERIMENTS if experiment.name == name)
    sentences = re.findall(r"[^.?!]+[.?!](?= |$)", meaning)
    assert 2 <= len(sentences) <= 6
    assert meaning == " ".join(meaning.split()) and 150 < len(meaning) < 700


def test_a_bound_stays_a_bound_and_turns_with_its_sign() -> None:
    number = Number(12.2, "%", "there", "at least 12.2 % faster", Interval("at least", low=12.2, high=20))
    assert published_point(8, number) == Point(8, 12.2, limit="lower")
    assert published_point(8, number, sign=-1) == Point(8, -12.2, limit="upper")


def test_where_nothing_is_published_there_is_no_series() -> None:
    assert published_series("SRPT", "SRPT", []) == ()
    (series,) = published_series("SRPT", "SRPT", [Point(8, 1.0)], variant=1)
    assert (series.name, series.published, series.variant) == ("SRPT, published", True, 1)


def test_axes_have_their_units_in_brackets() -> None:
    assert Axis("latency", "ticks").title() == "latency (ticks)"
    assert Axis("nodes").title() == "nodes"
