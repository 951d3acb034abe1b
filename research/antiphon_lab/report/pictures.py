"""Pictures of cube trees: SVG text for documents, nested nodes for anything else.

The colour of a node is the cluster of the root that it belongs to, so that one sees how a root hands each of its
clusters to one child. Colours are strong enough for white text and stand out on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from antiphon.fabrics.cube import Cube, FullCube, PartialCube, cluster

COLUMN = 44
ROW = 62
RADIUS = 15
MARGIN = 24
CAPTION_HEIGHT = 26
LETTER_WIDTH = 6.6
ROOT_COLOUR = "#57606a"
CLUSTER_COLOURS = ("#0969da", "#1a7f37", "#bf3989", "#9a6700", "#8250df", "#cf222e", "#0e7c86", "#bc4c00")
LINE_COLOUR = "#8c959f"
CAPTION_COLOUR = "#768390"


@dataclass(frozen=True)
class Branch:
    """A node of a tree, with its subtrees."""

    identifier: int
    children: tuple[Branch, ...]

    def size(self) -> int:
        """The number of nodes from here down."""
        return 1 + sum(child.size() for child in self.children)


def tree_of(cube: Cube, root: int) -> Branch:
    """The tree over which ``root`` broadcasts."""
    return branch_of(cube, root, int(cube.dimension))


def branch_of(cube: Cube, identifier: int, height: int) -> Branch:
    """The part of a tree below a node that is given its clusters up to ``height``."""
    children = cube.children(identifier, height)
    return Branch(identifier, tuple(branch_of(cube, child, int(cluster(identifier, child)) - 1) for child in children))


@dataclass(frozen=True)
class Panel:
    """One tree of a picture, with its caption."""

    tree: Branch
    caption: str


@dataclass(frozen=True)
class Placed:
    """A node of a tree at its place, in columns and rows; ``parent`` is where its line comes from."""

    identifier: int
    column: float
    row: int
    parent: Placed | None


def layout(tree: Branch) -> list[Placed]:
    """Every leaf in a column of its own, every other node in the middle above its children; parents first."""
    columns: dict[int, float] = {}
    leaves = 0

    def settle(branch: Branch) -> float:
        nonlocal leaves
        if branch.children:
            places = [settle(child) for child in branch.children]
            columns[branch.identifier] = (places[0] + places[-1]) / 2
        else:
            columns[branch.identifier] = float(leaves)
            leaves += 1
        return columns[branch.identifier]

    def walk(branch: Branch, row: int, parent: Placed | None) -> Iterator[Placed]:
        placed = Placed(branch.identifier, columns[branch.identifier], row, parent)
        yield placed
        for child in branch.children:
            yield from walk(child, row + 1, placed)

    settle(tree)
    return list(walk(tree, 0, None))


def trees_svg(panels: Sequence[Panel], title: str) -> str:
    """Trees side by side as one SVG document."""
    parts: list[str] = []
    left = 0.0
    layouts = [layout(panel.tree) for panel in panels]
    height = max(node.row for placed in layouts for node in placed) * ROW + 2 * MARGIN + CAPTION_HEIGHT
    for panel, placed in zip(panels, layouts, strict=True):
        width = max(max(node.column for node in placed) * COLUMN, LETTER_WIDTH * len(panel.caption)) + 2 * MARGIN
        parts += panel_svg(panel, placed, left, width, height - MARGIN / 2)
        left += width
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {left:g} {height:g}" '
            f'width="{left:g}" height="{height:g}" font-family="system-ui, sans-serif" text-anchor="middle">',
            f"<title>{escape(title)}</title>",
            *parts,
            "</svg>",
            "",
        ]
    )


def panel_svg(panel: Panel, placed: list[Placed], left: float, width: float, caption_y: float) -> list[str]:
    """One tree: lines first, so that nodes cover their ends; then nodes, then the caption."""
    drawn = max(node.column for node in placed) * COLUMN
    offset = left + (width - drawn) / 2

    def point(node: Placed) -> tuple[float, float]:
        return offset + node.column * COLUMN, MARGIN + node.row * ROW

    parts = [f'<g stroke="{LINE_COLOUR}" stroke-width="1.5" fill="none">']
    for node in placed:
        if node.parent is not None:
            (x, y), (from_x, from_y) = point(node), point(node.parent)
            middle = (y + from_y) / 2
            parts.append(f'<path d="M{from_x:g} {from_y:g}C{from_x:g} {middle:g} {x:g} {middle:g} {x:g} {y:g}"/>')
    parts.append('</g>\n<g fill="#ffffff" font-size="13" font-weight="600">')
    for node in placed:
        x, y = point(node)
        colour = colour_of(panel.tree.identifier, node.identifier)
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="{colour}"/>')
        parts.append(f'<text x="{x:g}" y="{y + 4.5:g}">{node.identifier}</text>')
    parts.append("</g>")
    parts.append(
        f'<text x="{left + width / 2:g}" y="{caption_y:g}" font-size="13" fill="{CAPTION_COLOUR}">'
        f"{escape(panel.caption)}</text>"
    )
    return parts


def colour_of(root: int, identifier: int) -> str:
    """The colour of the cluster of the root in which a node lies."""
    if identifier == root:
        return ROOT_COLOUR
    return CLUSTER_COLOURS[(int(cluster(root, identifier)) - 1) % len(CLUSTER_COLOURS)]


def two_publishers_svg() -> str:
    """The picture of the front page: two publishers, two trees over the same sixteen nodes."""
    cube = FullCube(4)
    panels = [Panel(tree_of(cube, root), f"what node {root} publishes") for root in (0, 5)]
    return trees_svg(panels, "Two publishers among the same sixteen nodes, each with a spanning tree of its own")


def published_trees_svg() -> str:
    """Figure 2.8 of the thesis: the tree of node 0, the same without nodes 2, 4 and 6, and the tree of node 2."""
    everybody = FullCube(3)
    some = PartialCube(3)
    for identifier in (0, 1, 3, 5, 7):
        some.add(identifier)
    panels = [
        Panel(tree_of(everybody, 0), "(a) tree of node 0"),
        Panel(tree_of(some, 0), "(b) 2, 4 and 6 have failed"),
        Panel(tree_of(everybody, 2), "(c) tree of node 2"),
    ]
    return trees_svg(panels, "Spanning trees in a cube of eight nodes, Figure 2.8 of the thesis")
