"""Mends against attacks of tenants: each test fails without its mend. Two are tried here; `make campaign` tries all."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.torture.hostile.tenant_process import LIAR
from antiphon.torture.hostile.tenants import ATTACKS, ATTACKS_ON_HISTORIES
from tests.mutation.hunt import ROOT, SOURCES
from tests.mutation.mends import MENDS, Mend, switch_off, table, try_without

BESIDE_CAMPAIGNS = {"log retention", "data directory", "certificates", "names and members"}
"""Rows about disks, operators and names, which no attack of a campaign is about, or more than one."""

QUICK = ("budgets of peers and of clients are apart", "names of clients are words")


def test_each_mend_has_its_place_and_its_test() -> None:
    """If the place of a mend is gone, the test fails; otherwise nothing would be switched off."""
    for mend in MENDS:
        source = (SOURCES / mend.module).read_text(encoding="utf-8")
        assert source.count(mend.old) == 1, f"{mend.mend!r} is not in {mend.module} any more; see mends.py"
        compile(source.replace(mend.old, mend.new), mend.module, "exec")
        file, name = mend.test.split("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_rows_are_attacks_and_each_is_there_once() -> None:
    rows = {mend.row for mend in MENDS}
    assert rows - BESIDE_CAMPAIGNS <= {*ATTACKS, *ATTACKS_ON_HISTORIES, LIAR}
    assert rows >= BESIDE_CAMPAIGNS
    assert len({(mend.row, mend.mend) for mend in MENDS}) == len(MENDS)


def test_the_documentation_has_the_table() -> None:
    page = (ROOT / "docs" / "hostile.md").read_text(encoding="utf-8")
    missing = [row for row in table() if row not in page]
    assert missing == [], "python -m tests.mutation.mends prints the rows"
    assert page.count("| `") >= len(MENDS) and sum(page.count(f"`{mend.test}`") > 0 for mend in MENDS) == len(MENDS)


@pytest.mark.parametrize("name", QUICK)
def test_a_test_fails_without_its_mend(name: str, tmp_path: Path) -> None:
    (mend,) = (each for each in MENDS if each.mend == name)
    outcome = try_without(mend, tmp_path)
    assert outcome.has_failed, outcome.said


@pytest.mark.campaign
@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: f"{mend.row}: {mend.mend}")
def test_each_test_fails_without_its_mend(mend: Mend, tmp_path: Path) -> None:
    outcome = try_without(mend, tmp_path)
    assert outcome.has_failed, outcome.said


def test_a_mend_whose_place_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quotas.py").write_text("nothing of it")
    gone = Mend("row", "gone", "quotas.py", "no such line", "", "", "")
    with pytest.raises(AssertionError, match="'gone' is 0 times"):
        switch_off(gone, tmp_path)
