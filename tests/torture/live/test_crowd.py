"""Crowds of subscribers in live campaigns: what those wrote down who were killed ends there."""

from __future__ import annotations

from pathlib import Path

from antiphon.torture.live.crowd_process import end_journal
from antiphon.torture.live.dropping import visits_in
from antiphon.torture.live.journal import read_journal


def test_the_journal_of_a_subscriber_that_was_killed_ends_behind_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "crowd-0-1.txt"
    path.write_text("begin 1 1048576\nnode 2 door-0\nready 3 1\nsee 4 1 0 17 fifo\nsee 5 1 0 1")
    end_journal(path, 9, 2)
    lines = [(line.what, line.time_us, line.fields) for line in read_journal(path)]
    assert lines[-3:] == [("see", 4, ["1", "0", "17", "fifo"]), ("end", 9, ["0"]), ("end", 9, ["1"])]
    (visit,) = visits_in(read_journal(path))
    assert (visit.topic, visit.ready_us, visit.end_us, visit.seen) == (1, 3, 9, {(0, 1, 17)})


def test_a_subscriber_that_was_killed_before_it_had_begun_leaves_no_visit(tmp_path: Path) -> None:
    path = tmp_path / "crowd-0-1.txt"
    path.write_text("beg")
    end_journal(path, 9, 1)
    assert [line.what for line in read_journal(path)] == ["end"]
    assert list(visits_in(read_journal(path))) == []
