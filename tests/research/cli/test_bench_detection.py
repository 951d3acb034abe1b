"""``antiphon bench detection``."""

from __future__ import annotations

import json

from tests.cli.conftest import Command


def test_two_nodes_are_measured_by_all_detectors(command: Command) -> None:
    times = ("--round", "0.1", "--patience", "0.1", "--lost-seconds", "0.4")
    called = command("bench", "detection", "--nodes", "2", *times, "--runs", "1", "--json")
    assert called.code == 0, called.complained
    report = json.loads(called.said)
    assert [(one["fault"], one["detector"], one["runs"]) for one in report["detections"]] == [
        (fault, detector, runs)
        for fault in ("kill", "stop")
        for detector, runs in (
            ("diagnosis, news by tests", 1),
            ("diagnosis, news at once", 1),
            ("connections and signs", 2),
        )
    ]
    assert all(0 < one["first_seconds"] <= one["all_seconds"] for one in report["detections"])


def test_sizes_that_make_no_sense_are_refused(command: Command) -> None:
    for sizes, complaint in (("4,many", "are no sizes"), ("1", "at least two nodes")):
        called = command("bench", "detection", "--nodes", sizes)
        assert called.code == 2 and complaint in " ".join(called.complained.split())
