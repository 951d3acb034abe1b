"""Schedules that campaigns found, shrunk, each of which the tree did not survive once."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.simulator.scenario.file import load_scenario
from tests.fabrics.tree.runs import kept

MENDED = Path(__file__).parent / "mended"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # A subscriber published, and then got total publications of long ago about the same key. Its broker had begun
        # to carry the topic for another child, which had not sent yet what it kept.
        ("late_history", 782777840252625),
        # The other side had not heard of the newcomer, and kept nothing for it.
        ("newcomer_of_a_side", 273097765849052),
        # The orphan counted as a broker of that epoch, and published before it had got what the others had ordered.
        ("epoch_of_others", 273097765866393),
        # Brokers dropped the lock, and let go only what waited for the keys of the publication that was completed.
        ("outlived_lock", 273097765901046),
        # Its parents both counted it as theirs, and the root waited for it to begin an epoch.
        ("stale_answer", 25254),
        # Each waited for another one to become the root.
        ("two_orphans", 23518),
        # A broker that was to give way to another root led again at once: nobody of the latest tree was left. No
        # campaign found that before: it was the first mend of "two_orphans".
        ("two_leaders", 315210),
        # It published, and got a total publication of long ago about the same key when it met the others again.
        ("ordered_long_ago", 106863),
        # Nobody had counted the newcomer, so nobody kept anything for it. No campaign found that before: the first mend
        # of "two_orphans" let it lead.
        ("lone_newcomer", 201008),
        # A root failed before all had heard of its epoch, and another root gave its own epoch the same number. Each of
        # two brokers thought that the other one had to give way, and both said so for ever.
        ("two_epochs_of_one_number", 487611515657546),
    ],
)
def test_the_tree_survives_a_schedule_that_once_broke_it(name: str, seed: int) -> None:
    """The number is the seed of the schedule before it was shrunk; the low ones were drawn to be dense."""
    assert kept(load_scenario(MENDED / f"{name}.toml")) == {}, seed
