"""Published numbers: complete, quoted, and with an interval that has a reason and excludes the opposite."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from antiphon_lab.reproduction.documents import Column, Document, Interval, Number, Table, document, document_names

NAMES = document_names()
IN_WORDS = {
    0.0: ("there is no ", "zero"),
    0.5: ("half", "twice as fast"),
    1.0: ("one",),
    2.0: ("two", "twice", "doubles"),
    3.0: ("a third",),
    4.0: ("four",),
    50.0: ("half", "dominated"),
    100.0: ("all ",),
}
RATIOS = (
    "lower",
    "higher",
    "faster",
    "increas",
    "larger",
    "greater",
    "more",
    "worst",
    "reduced",
    "smaller",
    "unaffected",
)


def test_the_documents_are_installed() -> None:
    assert {"thesis", "sbac-pad"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_stands_in_the_sentence_that_is_quoted_for_it(name: str) -> None:
    for key, number in document(name).numbers.items():
        said = number.says.lower()
        written = (f"{number.value:g}", str(number.value), *IN_WORDS.get(number.value, ()))
        # "A is lower than B" has no number; it bounds their ratio by 1. What is similar has a ratio near 1.
        is_ratio = number.unit == "times" and number.value == 1
        forms = (
            (RATIOS if number.interval.side is not None else ("similar", "comparable", "unaffected"))
            if is_ratio
            else written
        )
        # Where a document gives no value and one is taken for it, that is said.
        assert any(form in said for form in forms) or "no value is given" in number.where, key
        assert number.where and number.unit, key


@pytest.mark.parametrize("name", NAMES)
def test_names_begin_with_a_figure_a_table_an_annex_or_a_section(name: str) -> None:
    found = document(name)
    assert all(
        key.split("/")[0].startswith(("fig-", "table-", "annex-", "section-"))
        for key in (*found.numbers, *found.tables)
    )


def test_table_5_1_counts_every_node_once_in_each_column() -> None:
    table = document("thesis").tables["table-5.1"]
    assert {name: sum(column.values) for name, column in table.columns.items()} == {"VCube-PS": 1024, "SRPT": 1024}
    assert table.number("SRPT", 1).value == 448
    assert table.number("SRPT", 1).unit == "nodes"


WHY = "a test"


@pytest.mark.parametrize(
    ("interval", "published", "deviation", "ends"),
    [
        (Interval(WHY, relative=0.1), 200, None, (180, 220)),
        (Interval(WHY, relative=0.1), -200, 99.0, (-220, -180)),
        (Interval(WHY, absolute=1), 37, None, (36, 38)),
        (Interval(WHY, absolute=0), 512, 99.0, (512, 512)),
        (Interval(WHY, deviations=2), 19, 3.0, (13, 25)),
        (Interval(WHY, deviations=2), 19, None, (19, 19)),
        (Interval(WHY, low=40, high=60), 50, None, (40, 60)),
        (Interval(WHY, side="above"), 1, None, (1, inf)),
        (Interval(WHY, side="below"), 1, None, (0, 1)),
        (Interval(WHY, side="below"), 0, None, (-inf, 0)),
    ],
)
def test_the_ends_of_intervals(
    interval: Interval, published: float, deviation: float | None, ends: tuple[float, float]
) -> None:
    assert interval.ends(published, deviation) == pytest.approx(ends)


def test_intervals_are_put_into_words_with_their_reason() -> None:
    assert str(Interval("digits", relative=0.02)) == "±2 %: digits"
    assert str(Interval("digits", absolute=0.5)) == "±0.5: digits"
    assert str(Interval("a count", absolute=0)) == "exact: a count"
    assert str(Interval("one run", deviations=2.5)) == "±2.5 standard deviations between repetitions: one run"
    assert str(Interval("faster", side="above")) == "above the published border: faster"
    assert str(Interval("half", low=40, high=60)) == "40 to 60: half"


@pytest.mark.parametrize(
    "form", [{}, {"relative": 0.1, "absolute": 1.0}, {"absolute": -1.0}, {"low": 1.0}, {"low": 1.0, "side": "above"}]
)
def test_an_interval_has_exactly_one_form(form: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="one of relative, absolute, deviations, low with high, or a side"):
        Interval(WHY, **form)  # type: ignore[arg-type]


def test_an_interval_has_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Interval(" ", absolute=1.0)


@pytest.mark.parametrize(
    ("value", "interval"),
    [
        (0.66, Interval(WHY, absolute=1)),
        (1.4, Interval(WHY, absolute=1.4)),
        (28.36, Interval(WHY, low=0, high=28.36)),
        (24.54, Interval(WHY, low=13.75, high=199)),
        (50, Interval(WHY, low=50, high=100)),
        (-10, Interval(WHY, absolute=6)),
    ],
)
def test_an_interval_that_admits_half_or_twice_the_value_is_refused(value: float, interval: Interval) -> None:
    with pytest.raises(ValueError, match="admits half or twice"):
        Number(value, "ticks", "here", "a sentence", interval)


def test_an_interval_that_does_not_hold_its_value_is_refused() -> None:
    with pytest.raises(ValueError, match="does not hold the published 50"):
        Number(50, "%", "here", "a sentence", Interval(WHY, low=51, high=60))


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_every_table_is_a_number_with_a_key(name: str) -> None:
    found = document(name)
    keys = [number.key for number in found.numbers.values()]
    keys += [number.key for table in found.tables.values() for number in table.numbers()]
    assert len(set(keys)) == len(keys) > 0
    assert all(key.startswith(f"{name}:") for key in keys)


def test_a_column_has_a_value_for_every_row() -> None:
    with pytest.raises(ValueError, match="column 'a' has 1 values for 2 rows"):
        Table("here", "nodes", 8, ("0", "(0,2]"), {"a": Column((1.0,), Interval("a count", absolute=0))})


def test_a_misspelt_key_is_refused() -> None:
    text = b'title = "t"\nauthors = "a"\nyear = 2019\n[numbers.x]\nvalue = 1\nunit = "u"\nwhere = "w"\nsay = "s"\n'
    with pytest.raises(msgspec.ValidationError, match="unknown field `say`"):
        msgspec.toml.decode(text, type=Document)


def test_a_cell_of_a_table_is_a_number() -> None:
    table = Table("here", "nodes", 8, ("0", "(0,2]"), {"a": Column((1.0, 7.0), Interval("a count", absolute=0))})
    assert table.number("a", 1) == Number(
        7.0, "nodes", "here", "a, row (0,2]", Interval("a count", absolute=0), key="/a/(0,2]"
    )
