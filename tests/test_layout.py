"""The layout that a newcomer finds: no circle of imports, shallow inheritance, folders and files of a size to read.

The facts are read from the sources, of the product and of the laboratory; imports for types count like all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"antiphon": ROOT / "src" / "antiphon", "antiphon_lab": ROOT / "research" / "antiphon_lab"}

MOST_FILES = 20
MOST_LINES = {"antiphon": 510, "antiphon_lab": 500}
MOST_CLASSES = 3


@cache
def trees() -> dict[str, tuple[Path, ast.Module]]:
    """All modules by their names."""
    found = {}
    for package, root in PACKAGES.items():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join([package, *parts]).removesuffix(".__init__")
            found[name] = path, ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(module: str) -> Iterator[tuple[str, str, str]]:
    """What a module imports of ours: the local name, the module that it comes from, and its name there, if any."""
    for node in ast.walk(trees()[module][1]):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            for alias in node.names:
                local = alias.asname or alias.name
                whole = f"{node.module}.{alias.name}"
                yield (local, whole, "") if whole in trees() else (local, node.module, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name, "") for alias in node.names)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle; none if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    # The root of a package offers names of others, and loads them when they are used.
    modules = [name for name in trees() if name not in PACKAGES]
    graph = {name: {home for _, home, _ in imports(name) if home in modules and home != name} for name in modules}
    assert sum(map(len, graph.values())) > 2000
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@cache
def classes() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """All classes by module and name, each with those of our classes that it inherits from."""
    found = {}
    for module, (_, tree) in trees().items():
        names = {local: (home, name) for local, home, name in imports(module)}
        own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases = []
                for base in node.bases:
                    text = ast.unparse(base).partition("[")[0]
                    first, _, rest = text.partition(".")
                    home, name = (module, text) if text in own else names.get(first, ("", ""))
                    bases.append((home, rest or name or text))
                found[module, node.name] = bases
    return found


def chain(one: tuple[str, str]) -> list[str]:
    """A class and what it inherits from, the longest way to the top."""
    above = [chain(base) for base in classes().get(one, []) if base in classes()]
    return [one[1], *max(above, key=len, default=[])]


def test_inheritance_is_shallow() -> None:
    assert chain(("antiphon.fabrics.tree.broker", "TreeBroker"))[0] == "TreeBroker"
    chains = {one: chain(one) for one in classes()}
    assert max(map(len, chains.values())) > 2
    assert [found for found in chains.values() if len(found) > MOST_CLASSES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_can_be_read_at_a_glance(package: str) -> None:
    folders: dict[Path, int] = {}
    for name, (path, _) in trees().items():
        if name.startswith(f"{package}.") and path.name != "__init__.py":
            folders[path.parent] = folders.get(path.parent, 0) + 1
    assert {str(folder): count for folder, count in folders.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_say_what_they_hold(package: str) -> None:
    empty = [
        name
        for name, (path, tree) in trees().items()
        if name.startswith(package) and path.name == "__init__.py" and not ast.get_docstring(tree)
    ]
    assert empty == []


@pytest.mark.parametrize("package", PACKAGES)
def test_files_can_be_read_in_one_sitting(package: str) -> None:
    lines = {
        name: path.read_text(encoding="utf-8").count("\n")
        for name, (path, _) in trees().items()
        if name.startswith(f"{package}.")
    }
    assert {name: count for name, count in lines.items() if count > MOST_LINES[package]} == {}
