"""The page of a report: everything is on it, every number is that of the result, and it needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from antiphon_lab.report.page import page, signed, words
from antiphon_lab.report.stored import Result
from antiphon_lab.report.write import folder_of, write_results
from antiphon_lab.reproduction.verdicts import VERDICTS
from tests.research.report.conftest import HOSTILE
from tests.research.report.markup import Element, parsed
from tests.research.reproduction.test_figures import NO_DATA_WHEN_SMALL

LOADING = ("src", "srcset", "href", "xlink:href", "action", "data", "poster", "background")


@pytest.fixture(scope="module")
def tree(results: list[Result]) -> Element:
    return parsed(page(results, "report-tables", "now"))


@pytest.fixture(scope="module")
def sections(tree: Element) -> dict[str, Element]:
    """The section of each experiment, found once: the page has a hundred thousand elements."""
    found = {section.attributes["data-name"]: section for section in tree.all("section")}
    assert len(found) == len(list(tree.all("section")))
    return found


def section_of(tree: Element, result: Result) -> Element:
    (section,) = tree.all("section", lambda element: element.attributes.get("data-name") == result.name)
    return section


def flat(text: str) -> str:
    return " ".join(text.split())


def test_every_experiment_has_a_section_and_a_line_in_the_contents(tree: Element, results: list[Result]) -> None:
    sections = [section.attributes["data-name"] for section in tree.all("section")]
    assert sections == [result.name for result in results]
    links = [link.attributes["href"] for link in next(tree.all("nav")).all("a")]
    assert links == [f"#{section.attributes['id']}" for section in tree.all("section")]


def test_a_section_says_what_it_means_and_how_to_repeat_it(sections: dict[str, Element], results: list[Result]) -> None:
    for result in results:
        section = sections[result.name]
        assert result.meaning and flat(result.meaning) in section.text()
        assert flat(result.document) in section.text()
        assert [code.text() for code in next(section.all("pre")).all("code")] == [result.command]
        assert "--seed 1" in result.command
        shown = {term.text() for term in section.all("dt")}
        wanted = {flat(name.replace("_", " ")) for name in result.parameters}
        assert wanted <= shown


def test_every_row_is_there_with_its_numbers_to_the_last_digit(
    sections: dict[str, Element], results: list[Result]
) -> None:
    for result in results:
        section = sections[result.name]
        lines = [line for table in section.of_class("rows") for line in table.all("tr")]
        found: dict[str, list[list[float]]] = {}
        for line in lines:
            head = next((each for each in line.all("th") if each.attributes.get("scope") == "row"), None)
            if head is not None:
                label = str(head.content[0])
                found.setdefault(label, []).append([float(data.attributes["value"]) for data in line.all("data")])
        for row in result.rows:
            numbers = [row.measured, row.spread if row.published is None else row.confidence, row.published]
            assert [number for number in numbers if number is not None] in found[row.label], (result.name, row.label)
        assert sum(len(lines_of) for lines_of in found.values()) == len(result.rows)


def test_verdicts_differences_and_reasons_are_those_of_the_rows(
    tree: Element, sections: dict[str, Element], results: list[Result]
) -> None:
    seen: Counter[str] = Counter()
    for result in results:
        section = sections[result.name]
        verdicts = [element.text() for element in section.of_class("verdict")]
        assert verdicts == [row.verdict or "no verdict" for row in result.rows if row.published is not None]
        seen.update(verdicts)
        for reason in result.reasons():
            assert flat(reason)[1:] in section.text()
        for remark in result.remarks():
            assert flat(remark) in section.text()
    tiles = {
        tile.attributes.get("class", "all"): next(tile.all("dd")).text()
        for tile in next(tree.of_class("tiles")).all("div")
    }
    assert tiles["all"] == str(len(results))
    assert {name: int(tiles[name]) for name in VERDICTS} == {name: seen[name] for name in VERDICTS}
    assert seen["derived"] > 0 and seen["no verdict"] > 0


def test_every_figure_is_drawn_for_both_widths_with_its_values_beneath(
    sections: dict[str, Element], results: list[Result]
) -> None:
    for result in results:
        section = sections[result.name]
        drawn = list(section.all("figure"))
        assert len(drawn) == len(result.figures) and (drawn or result.name in NO_DATA_WHEN_SMALL)
        for element, figure in zip(drawn, result.figures, strict=True):
            charts = [chart for chart in element.all("svg") if "chart" in chart.attributes["class"]]
            assert [chart.attributes["class"] for chart in charts] == ["chart wide", "chart narrow"]
            points = sum(len(series.points) for series in figure.series)
            assert [len(list(chart.of_class("dot"))) for chart in charts] == [points, points]
            values = [float(data.attributes["value"]) for data in element.all("data")]
            assert all(point.y in values for series in figure.series for point in series.points)
            legend = [item.text() for item in next(element.of_class("legend")).all("li")]
            assert legend == [flat(series.name) for series in figure.series]


def test_the_page_loads_nothing(tree: Element) -> None:
    for element in tree.all():
        for name in LOADING:
            address = element.attributes.get(name, "")
            assert not re.match(r"(?i)\s*(https?:|//|ftp:|javascript:)", address), (element.tag, name, address)
    assert [link.attributes["href"] for link in tree.all("link")] == ["data:,"]
    assert not list(tree.all("img")) and not list(tree.all("iframe"))
    (style,) = tree.all("style")
    assert "url(" not in style.text() and "@import" not in style.text()
    (script,) = tree.all("script")
    assert "src" not in script.attributes
    assert not re.search(r"fetch|XMLHttpRequest|import\b|WebSocket|http", script.text())


def test_links_lead_somewhere_and_identifiers_are_unique(tmp_path: Path, results: list[Result]) -> None:
    path = tmp_path / "report.html"
    write_results(results, path)
    tree = parsed(path.read_text(encoding="utf-8"))
    identifiers = [element.attributes["id"] for element in tree.all() if "id" in element.attributes]
    assert len(set(identifiers)) == len(identifiers)
    for link in tree.all("a"):
        address = link.attributes["href"]
        if address.startswith("#"):
            assert address[1:] in identifiers
        else:
            assert (tmp_path / address).is_file(), address
    linked = {link.attributes["href"] for link in tree.all("a") if not link.attributes["href"].startswith("#")}
    tables = {f"{folder_of(path).name}/{file.name}" for file in folder_of(path).iterdir()}
    assert linked == tables | {"report-ledger.html"}


def test_pictures_have_words_for_those_who_cannot_see_them(tree: Element) -> None:
    for chart in tree.of_class("chart"):
        named = chart.attributes["aria-labelledby"].split()
        words_of = {
            part.attributes["id"]: part.text()
            for part in chart.content
            if isinstance(part, Element) and part.tag in ("title", "desc")
        }
        assert sorted(named) == sorted(words_of)
        assert all(words_of.values())
        assert chart.attributes["role"] == "img"


def test_hostile_text_stays_text(hostile: Result) -> None:
    tree = parsed(page([hostile], HOSTILE, HOSTILE))
    assert len(list(tree.all("script"))) == 1 and len(list(tree.all("style"))) == 1
    assert not list(tree.all("img"))
    assert not [element for element in tree.all() if any(name.startswith("on") for name in element.attributes)]
    section = section_of(tree, hostile)
    assert "49" not in section.text()
    shown = section.text()
    # Description, document, meaning, figure title, legend twice, caption, row, reason, note, command, parameters.
    assert shown.count(flat(HOSTILE)) >= 12


def test_what_differs_between_results_is_said_once(hostile: Result) -> None:
    tree = parsed(page([hostile], "t", "now"))
    section = section_of(tree, hostile)
    assert [item.text() for item in next(section.of_class("remarks")).all("li")] == [flat(HOSTILE)]
    assert len(list(next(section.of_class("reasons")).all("li"))) == 1


def test_differences_have_a_sign_and_parameters_are_words() -> None:
    assert (signed(0.123), signed(-0.5), signed(None)) == ("+12.3 %", "\u221250.0 %", "")
    assert words(True) == "yes"
    assert words("as it is") == "as it is"
    assert words({"8": 3, "16": 2}) == "8: 3; 16: 2"
    assert words([1, {"a": 2}]) == '[1,{"a":2}]'
