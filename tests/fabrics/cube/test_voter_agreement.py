"""Voters are agreed by majorities of what they replace: walks never show two lock managers, unless a bug is planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fabrics.cube.voter_walk import VoterWalk, first_rivals
from tests.mutation.hunt import plant
from tests.mutation.mutant import Mutant

ROOT = Path(__file__).parents[3]


def voters(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "cube-faults", f"fabrics/cube/total_order/{module}.py", old, new)


PLANTED = (
    voters(
        "a proposal is agreed when one node has answered",
        "voter_changes",
        "        return is_majority_of(electorate.voters, self._responded) and is_majority_of(\n"
        "            electorate.proposed, self._responded\n"
        "        )\n",
        "        return True\n",
    ),
    voters(
        "a lock manager is followed by nodes that have not answered it",
        "voter_changes",
        "        self.is_followed = self._electorate.is_majority(among)\n",
        "        self.is_followed = True\n",
    ),
    voters(
        "a lock manager is answered before it knows the voters that the node knows",
        "quorum",
        "            self.environment.send(self.manager, self.notice())\n"
        "            self.environment.send(self.manager, self.own_claims())\n",
        "            self.environment.send(self.manager, self.own_claims())\n",
    ),
    voters(
        "a proposal needs no majority of its own",
        "electorate",
        " and (self.proposal == 0 or is_majority_of(self.proposed, among))",
        "",
    ),
)


def test_walks_show_no_two_lock_managers_with_majorities() -> None:
    assert first_rivals(1, 1000) == (-1, "")


def test_walks_have_elections_and_changes_of_voters() -> None:
    walks = [VoterWalk(seed) for seed in range(100)]
    for walk in walks:
        walk.run()
    processes = [process for walk in walks for process in walk.processes]
    assert max(process.lock_manager.epoch for process in processes) >= 4
    assert sum(process.electorate.version > 1 for process in processes) >= 100


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_walks_find_a_planted_bug(mutant: Mutant, tmp_path: Path) -> None:
    copy = plant(mutant, tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    command = [sys.executable, "-m", "tests.fabrics.cube.voter_walk", "1", "200"]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    seed, found = json.loads(result.stdout)
    assert seed > 0 and "in epoch" in found
