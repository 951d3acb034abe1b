"""A fabric describes itself in its folder: no other module names it, and the documentation says the same."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.fabrics.options import options_of
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.node.settings import settings_from
from antiphon.simulator.scenario.protocols import OWN
from tests.fabrics.descriptions import DOCS, tables, written

SOURCES = Path(__file__).parents[2] / "src" / "antiphon"


def named_fabrics(source: str) -> list[str]:
    """The names of fabrics that stand as strings in a module; docstrings are no names."""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [value for value in strings if isinstance(value, str) and value in FABRICS]


def test_only_a_fabric_names_itself() -> None:
    found = {
        str(path.relative_to(SOURCES)): names
        for path in SOURCES.rglob("*.py")
        if (names := named_fabrics(path.read_text(encoding="utf-8")))
    }
    # Ask the description (antiphon.fabrics.fabric.Fabric) instead of comparing a name; add the fact that is missing.
    assert found == {f"fabrics/{name}/fabric.py": [name] for name in FABRICS}


@pytest.mark.parametrize(
    "source", ['if settings.fabric == "tree": pass', 'fabric: Literal["cube"]', 'X = {"gossip": 1}']
)
def test_the_search_finds_a_comparison(source: str) -> None:
    assert named_fabrics(source)


@pytest.mark.parametrize(("page", "heading", "rows"), list(tables()), ids=lambda each: str(each)[:30])
def test_the_documentation_says_what_fabrics_say(page: str, heading: str, rows: list[str]) -> None:
    # python -m tests.fabrics.descriptions writes them.
    assert written(page, heading) == rows


@pytest.mark.parametrize("name", OWN)
def test_each_option_is_described(name: str) -> None:
    assert [option.name for option in options_of(OWN[name].options) if not option.help] == []


def scenario_rows() -> list[list[str]]:
    """The rows of all tables of the page about scenarios."""
    lines = (DOCS / "scenarios.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


@pytest.mark.parametrize("name", OWN)
def test_the_page_about_scenarios_has_each_option_and_its_default(name: str) -> None:
    rows = scenario_rows()
    for option in options_of(OWN[name].options):
        found = [row for row in rows if f"`{option.name}`" in row[0] and len(row) == 4]
        assert found, f"{option.name} of {name} is in no table"
        if option.default is not None and option.default != []:
            assert any(str(option.default).lower() in row[2] for row in found), f"{option.name} = {option.default}"


def test_live_tables_have_what_scenarios_have() -> None:
    for fabric in FABRICS.values():
        implementation = fabric.implementation()
        assert fabric.has_table == (implementation.table is not None)
        if implementation.table is not None:
            described = {
                option.help for protocol in implementation.protocols.values() for option in options_of(protocol.options)
            }
            shared = [option for option in options_of(implementation.table) if option.help in described]
            assert len(shared) >= 10


def test_a_typo_in_a_table_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="'fanout' may mean 'fan_out'"):
        settings_from({"fabric": "tree", "tree": {"fanout": 3}}, "a test")


def test_a_table_of_another_fabric_is_refused() -> None:
    with pytest.raises(UsageError, match="the table gossip is for the fabric 'gossip'"):
        settings_from({"fabric": "tree", "gossip": {"active": 3}}, "a test")


RING = '''
"""A fabric for this test: the cube under another name."""

from antiphon.fabrics.fabric import FULL_MESH, Fabric, Implementation


def implementation() -> Implementation:
    from antiphon.fabrics.cube.assembly.implementation import IMPLEMENTATION
    from dataclasses import replace

    protocols = {"ring-topics": IMPLEMENTATION.protocols["vcube-ps"]}
    return replace(IMPLEMENTATION, protocols=protocols)


RING = Fabric(
    "ring",
    "as a ring",
    survives="nothing",
    total_order="per key",
    membership=FULL_MESH,
    implementation=implementation,
    keeps_checkpoints=True,
)
'''

TRIAL = """
import asyncio, json
import antiphon
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import run_scenario

text = 'fabric = "ring"; protocol = "ring-topics"; nodes = 4; workload = { kind = "once" }; topics = {}'
simulated = run_scenario(parse_scenario(text.replace("; ", chr(10)))).deliveries

async def live():
    async with antiphon.start(fabric="ring") as first, antiphon.start(fabric="ring", join=[first.address]) as second:
        async with antiphon.connect(first.address) as client:
            subscription = second.subscribe("room")
            await subscription.ready()
            await client.publish("room", b"hello", order="total", key="a")
            return bytes((await anext(aiter(subscription))).value).decode()

print(json.dumps([antiphon.__file__, simulated, antiphon.run(live())]))
"""


def test_a_fabric_is_a_folder_and_a_line(tmp_path: Path) -> None:
    """A copy of the product gets a fourth fabric: scenarios and live nodes run it, and nothing else is changed."""
    package = tmp_path / "antiphon"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (package / "fabrics" / "ring").mkdir()
    (package / "fabrics" / "ring" / "__init__.py").touch()
    (package / "fabrics" / "ring" / "fabric.py").write_text(RING, encoding="utf-8")
    registry = package / "fabrics" / "registry.py"
    source = registry.read_text(encoding="utf-8")
    line = "from antiphon.fabrics.tree.fabric import TREE\n"
    with_import = source.replace(line, f"{line}from antiphon.fabrics.ring.fabric import RING\n")
    registry.write_text(with_import.replace("GOSSIP)", "GOSSIP, RING)"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", TRIAL],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, simulated, heard = json.loads(done.stdout)
    assert where.startswith(str(tmp_path))
    assert (simulated, heard) == (16, "hello")
