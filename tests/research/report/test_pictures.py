"""Pictures: the published trees, their layout, and the picture that is kept in the repository."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.fabrics.cube import FullCube, PartialCube, full_or_partial
from antiphon_lab.report.pictures import (
    Branch,
    Panel,
    layout,
    published_trees_svg,
    tree_of,
    trees_svg,
    two_publishers_svg,
)

SVG = "{http://www.w3.org/2000/svg}"


def nested(branch: Branch) -> object:
    """A tree as nested lists."""
    return [branch.identifier, *map(nested, branch.children)] if branch.children else branch.identifier


def test_the_trees_of_figure_2_8() -> None:
    assert nested(tree_of(FullCube(3), 0)) == [0, 1, [2, 3], [4, 5, [6, 7]]]
    assert nested(tree_of(FullCube(3), 2)) == [2, 3, [0, 1], [6, 7, [4, 5]]]
    some = PartialCube(3)
    for identifier in (0, 1, 3, 5, 7):
        some.add(identifier)
    assert nested(tree_of(some, 0)) == [0, 1, 3, [5, 7]]


@pytest.mark.parametrize("nodes", [1, 2, 11, 16, 64])
@pytest.mark.parametrize("root", [0, 1, 10])
def test_every_node_has_one_place_below_its_parent(nodes: int, root: int) -> None:
    if root >= nodes:
        root = 0
    tree = tree_of(full_or_partial(nodes), root)
    placed = layout(tree)
    assert sorted(node.identifier for node in placed) == list(range(nodes))
    assert tree.size() == nodes
    for row in range(max(node.row for node in placed) + 1):
        columns = [node.column for node in placed if node.row == row]
        # Parents first, from left to right: neighbours of a row never touch.
        assert all(right - left >= 1 for left, right in pairwise(columns))
    assert all(node.parent is None or node.row == node.parent.row + 1 for node in placed)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_picture_is_well_formed_and_shows_every_node_and_edge_once() -> None:
    svg = trees_svg([Panel(tree_of(FullCube(4), 3), "a < b & c")], "one tree")
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}circle"))) == 16
    assert len(list(root.iter(f"{SVG}path"))) == 15
    assert sorted(texts(svg)[:-1], key=int) == [str(identifier) for identifier in range(16)]
    assert texts(svg)[-1] == "a < b & c"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "one tree"


def test_everything_lies_inside_the_picture() -> None:
    root = ElementTree.fromstring(published_trees_svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for circle in root.iter(f"{SVG}circle"):
        x, y, radius = (float(circle.attrib[name]) for name in ("cx", "cy", "r"))
        assert radius <= x <= width - radius
        assert radius <= y <= height - radius


def test_nodes_of_one_cluster_share_a_colour() -> None:
    root = ElementTree.fromstring(trees_svg([Panel(tree_of(FullCube(3), 0), "")], ""))
    circles = [element.attrib["fill"] for element in root.iter(f"{SVG}circle")]
    numbers = [int(element.text or -1) for element in root.iter(f"{SVG}text") if element.text]
    colours = dict(zip(numbers, circles, strict=True))
    assert len({colours[node] for node in (0, 1, 2, 4)}) == 4
    assert colours[2] == colours[3]
    assert colours[4] == colours[5] == colours[6] == colours[7]


def test_the_picture_in_the_repository_is_what_the_code_draws() -> None:
    path = Path(__file__).parents[3] / "docs" / "tree.svg"
    assert path.read_text(encoding="utf-8") == two_publishers_svg(), (
        "docs/tree.svg is not up to date; write two_publishers_svg() of antiphon_lab.report.pictures into it"
    )
