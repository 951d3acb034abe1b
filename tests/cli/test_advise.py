"""``antiphon advise``: what it prints, its exit codes, and what it says about misuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
BANKS = ROOT / "tests" / "services" / "advise" / "banks.py"
BANK = "tests.services.advise.banks:Bank"


def test_a_causal_withdrawal_fails_the_command(command: Command) -> None:
    done = command("advise", BANK, "--examples", "10", "--schedules", "0", "--order", "withdraw=causal")
    assert done.code == 1, done.complained
    assert "withdraw: causal is too weak, it does not commute with deposit" in done.said
    assert "another: withdraw('a', 1) raises NoMoneyError" in done.said


def test_the_advice_is_also_for_programs(command: Command) -> None:
    done = command("advise", f"{BANKS}:Bank", "--examples", "5", "--schedules", "2", "--json")
    assert done.code == 0, done.complained
    found = json.loads(done.said)
    assert [one["name"] for one in found["operations"]] == ["deposit", "withdraw", "transfer", "apply_interest"]
    assert found["scripts"] > 200 and found["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bank",), "'bank' names no service; write MODULE:SERVICE"),
        (("no.such.module:Bank",), "no.such.module cannot be imported: No module named 'no'"),
        (("nowhere.py:Bank",), "there is no file nowhere.py"),
        (("tests.services.advise.banks:Shop",), "tests.services.advise.banks has no Shop"),
        (("tests.services.advise.banks:NoMoneyError",), "is not a service"),
        ((BANK, "--order", "withdraw"), "--order withdraw: write OPERATION=ORDER"),
    ],
)
def test_misuse_has_one_sentence(command: Command, arguments: tuple[str, ...], sentence: str) -> None:
    done = command("advise", *arguments)
    assert done.code == 2
    assert sentence in " ".join(done.complained.split())


def test_without_hypothesis_the_extra_is_named() -> None:
    hidden = "import sys; sys.modules['hypothesis'] = None; sys.argv[1:] = ['advise', sys.argv[1]]\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}from antiphon.cli.main import main\nmain()", BANK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 2
    assert "install it with: pip install 'antiphon[advise]'" in " ".join(done.stderr.split())
