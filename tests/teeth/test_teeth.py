"""The campaigns have teeth: planted bugs are found. A few are looked for here; ``tests.teeth.hunting`` has them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.teeth.bugs import Bug
from tests.teeth.hunting import SOURCES, hunt, plant
from tests.teeth.planted import BUGS, HARMLESS
from tests.teeth.planted_live import LIVE

QUICK = {
    "a cluster that was refused is given to nobody else": (3, "completeness"),
    "an answer is awaited from one who is lost": (1, "stuck"),
    "one number of a source may be missing": (2, "fifo"),
    "keys are granted to whoever is first in one of its lines": (1, "total"),
    "proposals that were lost with a root are not made again": (4, "stuck"),
    "a broker votes before its vote is on disk": (1018, "total"),
    "the incarnation of a broker that returns does not rise": (55, "stuck"),
    "a node that has left still delivers": (3, "membership"),
    "events with equal stamps have no order": (4, "total"),
}
"""Bugs of all fabrics, with a seed that finds each and how it shows."""


@pytest.mark.parametrize("bug", [*BUGS, *HARMLESS, *LIVE], ids=lambda bug: f"{bug.fabric}: {bug.name}")
def test_each_bug_has_its_place(bug: Bug) -> None:
    """A bug whose place is gone must be thought of anew; the campaigns would be praised for finding nothing."""
    source = (SOURCES / bug.module).read_text(encoding="utf-8")
    assert source.count(bug.old) == 1, f"{bug.name!r} cannot be planted in {bug.module} any more; see planted.py"
    compile(source.replace(bug.old, bug.new), bug.module, "exec")


def test_the_bugs_are_many_and_everywhere() -> None:
    assert len(BUGS) >= 25
    assert {bug.fabric for bug in BUGS} == {"cube", "cube-faults", "tree", "gossip", "epto"}
    assert len({(bug.name, bug.fabric) for bug in (*BUGS, *HARMLESS)}) == len(BUGS) + len(HARMLESS)


@pytest.mark.parametrize("name", QUICK)
def test_a_campaign_finds_a_bug(name: str) -> None:
    seed, kind = QUICK[name]
    catch = hunt(next(bug for bug in BUGS if bug.name == name), seed, 1)
    assert catch.failing == (seed,)
    assert kind in catch.kinds, catch.example


@pytest.mark.parametrize("fabric", ["cube", "cube-faults", "tree", "gossip", "epto"])
def test_without_a_bug_the_same_seeds_find_nothing(fabric: str) -> None:
    catch = hunt(None, 1, 4, fabric=fabric)
    assert (catch.seeds, catch.failing) == (4, ()), catch.example


def test_a_bug_whose_place_is_gone_is_refused(tmp_path: Path) -> None:
    gone = Bug("gone", "cube", "orders/fifo.py", "no such line", "")
    with pytest.raises(AssertionError, match="'gone' cannot be planted: its place is 0 times"):
        plant(gone, tmp_path)
