"""Bugs that are planted in the diagram and the guard, one at a time: a test of each must find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.console.diagram import slices
from antiphon.console.diagram.cones import TopicHistory
from antiphon.console.diagram.run_index import Copies, RunIndex
from antiphon.console.diagram.waits import WaitExplainer
from antiphon.console.guard import Guard
from tests.console import test_diagram, test_guard
from tests.console.served import simulated

Plant = Callable[[pytest.MonkeyPatch], Any]


def copies_meet_any_arrival(patch: pytest.MonkeyPatch) -> None:
    right = vars(RunIndex)["copies"].func

    def wrong(run: RunIndex) -> Copies:
        found: Copies = right(run)
        return Copies(found.send, np.roll(found.arrival, 1), found.is_lost, found.carries)

    patch.setattr(RunIndex, "copies", property(wrong))


def counts_leave_out_the_last_column(patch: pytest.MonkeyPatch) -> None:
    right = slices.counts_of

    def wrong(run: RunIndex, stretch: slices.Stretch, rows: Any) -> dict[str, Any]:
        return right(run, stretch, rows[run.time[rows] < stretch.end - 400])

    patch.setattr(slices, "counts_of", wrong)


def the_past_is_what_the_publisher_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicHistory, "past", lambda self, birth: {int(self._run.node[birth]): birth})


def the_future_is_everything_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicHistory, "future", lambda self, _, birth: dict.fromkeys(self.nodes, birth))


def the_cause_is_what_came_last(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: WaitExplainer, delivery: int, birth: int, since: int) -> int:
        rows = self.history(0).rows_at(int(self._run.node[delivery]))
        return int(rows[np.searchsorted(rows, delivery) - 2])

    patch.setattr(WaitExplainer, "_blocker", wrong)


@pytest.mark.parametrize(
    ("plant", "judge"),
    [
        (copies_meet_any_arrival, test_diagram.test_each_copy_meets_its_arrival),
        (counts_leave_out_the_last_column, test_diagram.test_counts_add_up_to_the_rows),
        (the_past_is_what_the_publisher_published, test_diagram.test_the_past_and_the_future_are_those_of_a_slow_walk),
        (the_future_is_everything_later, test_diagram.test_the_past_and_the_future_are_those_of_a_slow_walk),
        (the_cause_is_what_came_last, test_diagram.test_each_wait_ends_with_what_the_message_follows),
    ],
)
def test_a_bug_in_the_diagram_is_found(
    plant: Plant, judge: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = test_diagram.run_of(simulated(test_diagram.BUSY, tmp_path))
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        judge(run, monkeypatch) if judge is test_diagram.test_counts_add_up_to_the_rows else judge(run)


def sessions_outlive_their_right(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Guard, "_has_session", lambda self, request: bool(self._sessions.get(request.cookie("antiphon-console")))
    )


@pytest.mark.parametrize(
    ("plant", "judge"),
    [
        (sessions_outlive_their_right, test_guard.test_a_session_ends_with_its_time_and_with_its_right),
        (
            lambda patch: patch.setattr(Guard, "_stranger", lambda *_: None),
            test_guard.test_a_form_of_another_site_changes_nothing,
        ),
        (
            lambda patch: patch.setattr("antiphon.console.guard.FAILURES_AT_MOST", 1 << 30),
            test_guard.test_tokens_cannot_be_tried_out,
        ),
    ],
)
def test_a_bug_in_the_guard_is_found(plant: Plant, judge: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        judge()
