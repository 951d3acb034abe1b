"""Trees as a message would draw them, for the tests of the cube."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.fabrics.cube import Cube, PartialCube, cluster

Tree = dict[int, list[int]]
"""Those who hand on, each with its children in the order in which it sends to them."""


def walked(cube: Cube, root: int) -> tuple[Tree, list[int]]:
    """The tree that a message draws from ``root`` when each node only knows whom it came from, and who received it.

    A node that got it from ``j`` serves its clusters below the one that holds ``j`` (thesis, section 2.4.1).
    """
    tree: Tree = {}
    received: list[int] = []
    todo = [(root, int(cube.dimension))]
    while todo:
        node, height = todo.pop(0)
        children = cube.children(node, height)
        if children:
            tree[node] = children
        received += children
        todo += [(child, int(cluster(child, node)) - 1) for child in children]
    return tree, received


def partial(dimension: int, members: Iterable[int]) -> PartialCube:
    """A cube with these members."""
    cube = PartialCube(dimension)
    for member in members:
        assert cube.add(member)
    return cube
