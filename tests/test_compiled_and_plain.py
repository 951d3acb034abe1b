"""Compiled or not, on every run: the same seed and set-up give the same trace, byte by byte; both builds are tested.

The sources under ``src`` are plain Python; the installed package is a copy of them, compiled where set-up found a C
compiler. Tests import the installed one, so here the plain one has its turn, in processes of its own.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from antiphon.cli.output import is_compiled
from tests.traced_runs import SET_UPS

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
LABORATORY = ROOT / "research"

Note = Callable[[str, object], None]


def run_python(arguments: list[str], plain: bool, hash_seed: int = 0) -> str:
    """Run the interpreter of this environment with the plain sources or the installed package; its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    environment["PYTHONHASHSEED"] = str(hash_seed)
    if plain:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (SOURCES, LABORATORY)))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Outcome(NamedTuple):
    """What one process made of the set-ups."""

    compiled: bool
    package: Path
    counters: dict[str, list[Any]]
    files: dict[str, bytes]


class Builds(NamedTuple):
    """The set-ups in processes of their own: with each build, twice, with different hashing; and with another seed."""

    plain: Outcome
    plain_again: Outcome
    installed: Outcome
    installed_again: Outcome
    another_seed: Outcome


def outcome(directory: Path, plain: bool, seed: int, hash_seed: int) -> Outcome:
    printed = json.loads(run_python(["-P", "tests/traced_runs.py", str(directory), str(seed)], plain, hash_seed))
    files = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    return Outcome(printed["compiled"], Path(printed["package"]).parent, printed["counters"], files)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """The outcomes of all processes."""
    place = tmp_path_factory.mktemp("builds")
    return Builds(
        plain=outcome(place / "plain", plain=True, seed=7, hash_seed=0),
        plain_again=outcome(place / "plain-again", plain=True, seed=7, hash_seed=1),
        installed=outcome(place / "installed", plain=False, seed=7, hash_seed=2),
        installed_again=outcome(place / "installed-again", plain=False, seed=7, hash_seed=3),
        another_seed=outcome(place / "another-seed", plain=False, seed=8, hash_seed=3),
    )


def test_each_process_ran_the_build_it_was_asked_for(builds: Builds) -> None:
    assert not builds.plain.compiled
    assert builds.plain.package == builds.plain_again.package == SOURCES / "antiphon"
    assert builds.installed.package == builds.installed_again.package != SOURCES / "antiphon"


def test_the_installed_package_is_made_of_these_sources(builds: Builds) -> None:
    """Otherwise the comparison would be one of two versions; run ``make .venv/installed`` if this fails."""
    installed, sources = (
        {path.relative_to(package): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
        for package in (builds.installed.package, SOURCES / "antiphon")
    )
    assert sorted(installed) == sorted(sources)
    assert [path for path in sources if installed[path] != sources[path]] == []


def test_the_set_ups_ran_to_their_end_and_left_traces(builds: Builds) -> None:
    assert sorted(builds.plain.files) == sorted(SET_UPS)
    for name, (ended, events, latency, _, rows) in builds.plain.counters.items():
        assert ended == "finished"
        assert min(events, latency, rows) > 500, name


@pytest.mark.parametrize("name", SET_UPS)
def test_the_plain_sources_give_the_same_trace_on_every_run(builds: Builds, name: str) -> None:
    assert builds.plain.files[name] == builds.plain_again.files[name]
    assert builds.plain.counters[name] == builds.plain_again.counters[name]


@pytest.mark.parametrize("name", SET_UPS)
def test_the_installed_package_gives_the_same_trace_on_every_run(builds: Builds, name: str) -> None:
    assert builds.installed.files[name] == builds.installed_again.files[name]
    assert builds.installed.counters[name] == builds.installed_again.counters[name]


@pytest.mark.parametrize("name", SET_UPS)
def test_compiled_and_plain_give_the_same_trace(builds: Builds, name: str, record_property: Note) -> None:
    """Where nothing is compiled this compares plain with plain, which is said at the end of the run."""
    if not builds.installed.compiled:
        record_property("note", "no compiled build is installed: plain was compared with plain")
    assert builds.installed.files[name] == builds.plain.files[name]
    assert builds.installed.counters[name] == builds.plain.counters[name]


@pytest.mark.parametrize("name", SET_UPS)
def test_another_seed_gives_another_trace(builds: Builds, name: str) -> None:
    """So that equal files mean something."""
    assert builds.another_seed.files[name] != builds.installed.files[name]


CORE = (
    ("kernel", "orders", "trace"),
    ("fabrics",),
    ("simulator/engine", "simulator/network"),
    ("api/test_batch_codec.py", "api/test_outbox.py", "node/test_publish_and_subscribe.py", "transport/test_schema.py"),
)


MANY_SCHEDULES = (
    "cube/test_lasting",
    "cube/test_lasting_explored",
    "cube/test_lasting_totals",
    "cube/test_vcube_ps_mixed",
    "cube/test_voter_agreement",
    "gossip/test_failed_publishers",
    "gossip/test_silent_parts",
    "tree/test_campaign",
)
"""Plain protocols need ten times as long for these, and they say nothing about the difference of the builds."""


@pytest.mark.parametrize("paths", CORE)
def test_the_tests_of_the_core_pass_with_the_plain_sources_too(paths: tuple[str, ...], record_property: Note) -> None:
    """The same tests, with fewer examples per property and without those that follow many schedules."""
    if not is_compiled():
        record_property("note", "these tests ran with the plain sources: there was no second pass with them")
        return
    options = ["-p", "no:cacheprovider", "-m", "not slow and not campaign", "--hypothesis-profile=short", "--color=no"]
    options += [f"--ignore=tests/fabrics/{name}.py" for name in MANY_SCHEDULES]
    printed = run_python(["-m", "pytest", *options, *(f"tests/{path}" for path in paths)], plain=True)
    assert "antiphon: plain Python, not compiled" in printed
    assert " passed" in printed.splitlines()[-1]


def test_a_compiled_laboratory_refuses_a_plain_product(record_property: Note) -> None:
    """Its compiled classes inherit from compiled ones: with plain ones the interpreter would crash."""
    if not is_compiled():
        record_property("note", "no compiled laboratory is installed")
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", "import antiphon_lab"],
        env={**environment, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "antiphon-lab is compiled and the antiphon that was found is not" in done.stderr


def test_a_name_for_caught_errors_has_one_type_in_each_compiled_function() -> None:
    """A compiled function has one variable for the name, and raises a TypeError for an error of another type."""
    sys.path.insert(0, str(ROOT))
    try:
        modules = importlib.import_module("compiling").modules()
    finally:
        sys.path.remove(str(ROOT))
    found = []
    for path in (ROOT / file for files in modules.values() for file in files):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                caught: dict[str, set[str]] = {}
                for each in ast.walk(function):
                    if isinstance(each, ast.ExceptHandler) and each.name and each.type is not None:
                        caught.setdefault(each.name, set()).add(ast.unparse(each.type))
                found += [f"{path.name}: {function.name}: {name}" for name, kinds in caught.items() if len(kinds) > 1]
    assert found == []
