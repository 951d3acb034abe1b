"""Mutation tests: campaigns find planted bugs. A few are hunted here; ``tests.mutation.hunt`` hunts all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.hunt import ROOT, SOURCES, hunt, plant, put_in
from tests.mutation.live_mutants import LIVE
from tests.mutation.mutant import Mutant
from tests.mutation.mutants import HARMLESS, MUTANTS

QUICK = {
    "a refused cluster is handed to no other node": (3, "completeness"),
    "a wave waits for a lost node": (1, "stuck"),
    "an order delivers across a gap of one number": (2, "fifo"),
    "a node does not keep publications of others": (49, "completeness"),
    "a lock is granted to a claim that is first for one of its keys": (1, "total"),
    "proposals that were lost with a root are not repeated": (4, "stuck"),
    "a broker votes before its vote is on disk": (1018, "total"),
    "a returned broker keeps its old incarnation": (55, "stuck"),
    "a node that has left still delivers": (3, "membership"),
    "events with equal stamps have no order": (4, "total"),
    "a newcomer that asks again is given another place": (5, "togetherness"),
    "a founder that returns does not look for its cluster": (3, "knowledge"),
    "a client does not hand in again what is not safe": (11, "stuck"),
    "a resumed subscription begins now": (11, "lost"),
    "a node replays the last batch first": (20, "lost"),
    "a receipt comes before a majority has the message": (1, "receipt"),
}
"""Bugs of all fabrics, with a seed that finds each and how it shows."""

IN_EVERY_RUN = {
    "an order delivers across a gap of one number",
    "a wave waits for a lost node",
    "a broker votes before its vote is on disk",
    "a node that has left still delivers",
    "events with equal stamps have no order",
    "a newcomer that asks again is given another place",
    "a resumed subscription begins now",
    "a receipt comes before a majority has the message",
}
"""One of each fabric; the others are hunted by ``make campaign``."""

BY_THE_EXPLORER = {
    "a client does not hand in again what is not safe": ("cube", 0, "stuck"),
    "a client takes batches that it has seen": ("cube", 0, "duplicates"),
    "a resumed subscription begins now": ("cube", 0, "lost"),
}
"""Bugs that the explorer finds too: the fabric, the node that crashes, and how each shows."""


BY_UNIT_TESTS = {
    "a node vouches for what only nodes out of reach have shown": "test_node_end.py",
    "an ordered batch is shown behind a later one of its author": "test_dedup.py",
    "a client takes what was past when its subscription began": "test_client_end.py",
    "what a node misses while it asks others is not told": "test_replay_buffer.py",
}
"""Bugs so rare that no campaign of hundreds of seeds finds them, with the file in ``tests/sessions`` that does."""


@pytest.mark.parametrize("mutant", [*MUTANTS, *HARMLESS, *LIVE], ids=lambda mutant: f"{mutant.fabric}: {mutant.name}")
def test_each_mutant_has_its_place(mutant: Mutant) -> None:
    """If the place of a bug is gone, the test fails; otherwise its hunt would count as a success."""
    source = (SOURCES / mutant.module).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, (
        f"{mutant.name!r} cannot be planted in {mutant.module} any more; see mutants.py"
    )
    compile(source.replace(mutant.old, mutant.new), mutant.module, "exec")


def test_mutants_are_many_and_everywhere() -> None:
    assert len(MUTANTS) >= 25
    fabrics = {"cube", "cube-faults", "tree", "gossip", "epto", "membership", "clients", "streams", "spaces"}
    assert {mutant.fabric for mutant in MUTANTS} == fabrics
    assert len({(mutant.name, mutant.fabric) for mutant in (*MUTANTS, *HARMLESS)}) == len(MUTANTS) + len(HARMLESS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.campaign) for name in QUICK]
)
def test_a_campaign_finds_a_mutant(name: str) -> None:
    seed, kind = QUICK[name]
    catch = hunt(next(mutant for mutant in MUTANTS if mutant.name == name), seed, 1)
    assert catch.failing == (seed,)
    assert kind in catch.kinds, catch.example


@pytest.mark.parametrize("name", BY_THE_EXPLORER)
def test_the_explorer_finds_a_mutant(name: str) -> None:
    fabric, node, kind = BY_THE_EXPLORER[name]
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    catch = hunt(replace(mutant, fabric=f"explored {fabric}"), node, 1)
    assert catch.failing == (node,)
    assert kind in catch.kinds, catch.example


@pytest.mark.parametrize("name", BY_UNIT_TESTS)
def test_a_unit_test_finds_a_mutant(name: str, tmp_path: Path) -> None:
    package = tmp_path / "antiphon"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    put_in(next(mutant for mutant in MUTANTS if mutant.name == name), package)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"tests/sessions/{BY_UNIT_TESTS[name]}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT / "research")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert "not compiled" in done.stdout
    assert " failed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "fabric", ["cube", "cube-faults", "tree", "gossip", "epto", "membership", "clients", "streams", "spaces"]
)
def test_without_a_mutant_the_same_seeds_find_nothing(fabric: str) -> None:
    catch = hunt(None, 1, 4, fabric=fabric)
    assert (catch.seeds, catch.failing) == (4, ()), catch.example


def test_a_mutant_whose_place_is_gone_is_refused(tmp_path: Path) -> None:
    gone = Mutant("gone", "cube", "orders/fifo.py", "no such line", "")
    with pytest.raises(AssertionError, match="'gone' cannot be planted: its place is 0 times"):
        plant(gone, tmp_path)
