"""Published numbers: complete, quoted, and compared as their tolerances say."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import pytest

from antiphon_lab.reproduction.documents import Column, Document, Number, Table, Tolerance, document

NAMES = sorted(
    path.name.removesuffix(".toml")
    for path in files("antiphon_lab").joinpath("published").iterdir()
    if path.name.endswith(".toml")
)
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
RATIOS = ("lower", "higher", "faster", "increas", "larger", "greater", "more", "worst", "reduced", "smaller")


def test_the_documents_are_installed() -> None:
    assert {"thesis", "sbac-pad"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_stands_in_the_sentence_that_is_quoted_for_it(name: str) -> None:
    for key, number in document(name).numbers.items():
        said = number.says.lower()
        written = (f"{number.value:g}", str(number.value), *IN_WORDS.get(number.value, ()))
        # "A is lower than B" has no number; it bounds their ratio by 1. What is similar has a ratio near 1.
        is_ratio = number.unit == "times" and number.value == 1
        forms = (RATIOS if number.tolerance.limit is not None else ("similar", "comparable")) if is_ratio else written
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


@pytest.mark.parametrize(
    ("tolerance", "published", "measured", "deviation", "allowed"),
    [
        (Tolerance(relative=0.1), 200, 220, None, True),
        (Tolerance(relative=0.1), 200, 220.1, None, False),
        (Tolerance(relative=0.1), -200, -185, None, True),
        (Tolerance(absolute=1), 37, 36, None, True),
        (Tolerance(absolute=1), 37, 35.9, None, False),
        (Tolerance(absolute=0), 512, 512, 99.0, True),
        (Tolerance(absolute=0), 512, 511, 99.0, False),
        (Tolerance(deviations=2), 19, 45, 13.0, True),
        (Tolerance(deviations=2), 19, 45.1, 13.0, False),
        (Tolerance(deviations=2), 19, 20, None, False),
        (Tolerance(deviations=2), 19, 19, None, True),
        (Tolerance(limit="upper"), 6, 6, None, True),
        (Tolerance(limit="upper"), 6, 6.01, 9.0, False),
        (Tolerance(limit="upper"), 6, 0, None, True),
        (Tolerance(limit="lower"), 43, 43, None, True),
        (Tolerance(limit="lower"), 43, 42.9, 9.0, False),
        (Tolerance(limit="lower"), 43, 99, None, True),
    ],
)
def test_tolerances(
    tolerance: Tolerance, published: float, measured: float, deviation: float | None, allowed: bool
) -> None:
    assert tolerance.allows(published, measured, deviation) is allowed


def test_tolerances_are_put_into_words() -> None:
    assert str(Tolerance(relative=0.02)) == "±2 % of the published value"
    assert str(Tolerance(absolute=0.5)) == "±0.5"
    assert str(Tolerance(absolute=0)) == "exact"
    assert str(Tolerance(deviations=2.5)) == "±2.5 standard deviations between repetitions"
    assert str(Tolerance(limit="upper")) == "at most the published value"
    assert str(Tolerance(limit="lower")) == "at least the published value"


@pytest.mark.parametrize("bounds", [{}, {"relative": 0.1, "absolute": 1.0}, {"absolute": -1.0}])
def test_a_tolerance_is_exactly_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="one of relative, absolute or deviations"):
        Tolerance(**bounds)  # type: ignore[arg-type]


def test_a_limit_stands_alone() -> None:
    with pytest.raises(ValueError, match="or a limit"):
        Tolerance(limit="upper", absolute=1.0)


def test_a_column_has_a_value_for_every_row() -> None:
    with pytest.raises(ValueError, match="column 'a' has 1 values for 2 rows"):
        Table("here", "nodes", 8, ("0", "(0,2]"), {"a": Column((1.0,), Tolerance(absolute=0))})


def test_a_misspelt_key_is_refused() -> None:
    text = b'title = "t"\nauthors = "a"\nyear = 2019\n[numbers.x]\nvalue = 1\nunit = "u"\nwhere = "w"\nsay = "s"\n'
    with pytest.raises(msgspec.ValidationError, match="unknown field `say`"):
        msgspec.toml.decode(text, type=Document)


def test_a_cell_of_a_table_is_a_number() -> None:
    table = Table("here", "nodes", 8, ("0", "(0,2]"), {"a": Column((1.0, 7.0), Tolerance(absolute=0))})
    assert table.number("a", 1) == Number(7.0, "nodes", "here", "a, row (0,2]", Tolerance(absolute=0))
