"""Plants bugs in copies of the whole product and lets live campaigns with crowds of subscribers look for them.

python -m tests.mutation.live_hunt                # all of them, as a table; minutes
python -m tests.mutation.live_hunt --only dropped
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
from pathlib import Path

from tests.mutation.hunt import SOURCES, put_in
from tests.mutation.live_mutants import LIVE
from tests.mutation.mutant import Mutant

SECONDS = 25.0
"""For so long crowds come; one that has begun is waited for."""

PATIENCE_SECONDS = 600


def live_hunt(mutant: Mutant | None, seed: int, seconds: float = SECONDS, fabric: str = "cube") -> dict[str, int]:
    """Run a live campaign against a bug, or against none: how often each promise was broken."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "antiphon"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        if mutant is not None:
            put_in(mutant, package)
        options = (fabric if mutant is None else mutant.fabric).split()
        command = [sys.executable, "-m", "antiphon", "torture", "--live", "--json", "--fabric", *options]
        command += ["--faults", "crowd", "--nodes", "4", "--seconds", str(seconds), "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--out", str(Path(folder) / "out")],
            env={**os.environ, "PYTHONPATH": folder},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
    broken = {**found["violations"], "stuck": found["stuck"]}
    return {name: count for name, count in broken.items() if count}


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt and print a table; 1 if a bug was not found."""
    parser = argparse.ArgumentParser(description="Plant bugs in live nodes and let campaigns look for them.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose name or module holds this")
    chosen = parser.parse_args(arguments)
    missed = 0
    print("| bug | module | campaign | as |\n|---|---|---|---|", flush=True)
    for mutant in LIVE:
        if chosen.only in f"{mutant.name} {mutant.module}":
            broken = live_hunt(mutant, chosen.seed)
            missed += not broken
            kinds = ", ".join(f"{name} {count}" for name, count in broken.items()) or "nothing"
            print(f"| {mutant.name} | `{mutant.module.removesuffix('.py')}` | {mutant.fabric} | {kinds} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
