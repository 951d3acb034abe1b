"""Plants bugs in copies of the product and lets campaigns look for them.

A copy of the sources in a folder of its own has one bug and runs uncompiled in a process of its own: so nothing in the
product knows of bugs, and compiled modules do not hide them.

    python -m tests.mutation.hunt --seeds 200                # all of them, as a table
    python -m tests.mutation.hunt --only council --seeds 50  # those whose names hold a word
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant
from tests.mutation.mutants import HARMLESS, MUTANTS

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src" / "antiphon"
TRIED_BY = Path(__file__).parent / "trial.py"
COPIED = (
    "kernel", "orders", "fabrics", "membership", "sessions", "spaces", "streams", "runtime", "transport", "api",
    "trace", "audit", "simulator", "torture",
)  # fmt: skip
"""What a campaign needs."""

PATIENCE_SECONDS = 1800


@dataclass(frozen=True)
class Catch:
    """What a campaign found: how many schedules it ran, which failed, and how."""

    seeds: int
    failing: tuple[int, ...]
    kinds: tuple[str, ...]
    example: str


def plant(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the product with a bug, or with none; the answer is where it can be imported from."""
    package = folder / "antiphon"
    package.mkdir()
    for name in ("__init__.py", "plugins.py"):
        shutil.copy(SOURCES / name, package)
    for name in COPIED:
        shutil.copytree(SOURCES / name, package / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if mutant is not None:
        put_in(mutant, package)
    return folder


def put_in(mutant: Mutant, package: Path) -> None:
    """Put a bug into a copy of the product."""
    path = package / mutant.module
    source = path.read_text(encoding="utf-8")
    count = source.count(mutant.old)
    assert count == 1, (
        f"{mutant.name!r} cannot be planted: its place is {count} times in {mutant.module}; "
        f"look at how the module has changed, and change tests/mutation/mutants.py"
    )
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")


def hunt(
    mutant: Mutant | None,
    first_seed: int,
    seeds: int,
    stops: bool = False,
    fabric: str = "cube",
    order: str | None = None,
) -> Catch:
    """Run a campaign against a bug, until the first schedule fails if it ``stops``; against none if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        place = plant(mutant, Path(folder))
        asked = {
            "fabric": fabric if mutant is None else mutant.fabric,
            "order": order if mutant is None else mutant.order,
            "first_seed": first_seed,
            "seeds": seeds,
            "stops": stops,
        }
        done = subprocess.run(
            [sys.executable, str(TRIED_BY), json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(place), str(ROOT / "research")))},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["from"].startswith(str(place)), f"the campaign ran {found['from']} and not the copy"
    return Catch(found["seeds"], tuple(found["failing"]), tuple(found["kinds"]), found["example"])


def row(mutant: Mutant, catch: Catch) -> str:
    """A line of the table."""
    where = mutant.module.removesuffix(".py")
    how = mutant.fabric if mutant.order is None else f"{mutant.fabric}, {mutant.order}"
    first = str(catch.failing[0]) if catch.failing else "none"
    found = f"{len(catch.failing)} of {catch.seeds}"
    return f"| {mutant.name} | `{where}` | {how} | {found} | {first} | {', '.join(catch.kinds)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt and print a table; 1 if a bug was not found."""
    parser = argparse.ArgumentParser(description="Plant bugs and let campaigns look for them.")
    parser.add_argument("--seeds", type=int, default=200, help="schedules for each bug")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--only", default="", help="bugs whose name, module or fabric holds this")
    parser.add_argument("--harmless", action="store_true", help="those that break no promise, as is thought")
    parser.add_argument("--stop", action="store_true", help="stop at the first schedule that fails")
    chosen = parser.parse_args(arguments)
    missed = 0
    print("| bug | module | campaign | found by | first seed | as |\n|---|---|---|---|---|---|", flush=True)
    for mutant in HARMLESS if chosen.harmless else MUTANTS:
        if chosen.only in f"{mutant.name} {mutant.module} {mutant.fabric}":
            catch = hunt(mutant, chosen.seed, chosen.seeds, chosen.stop)
            missed += not catch.failing
            print(row(mutant, catch), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
