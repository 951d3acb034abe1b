"""What is said about an address where nobody answers."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from antiphon.testing import Cluster, with_cluster
from antiphon.transport.unreachable import ADDRESSES_AT_MOST, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Unreachable

HERE = "127.0.0.1:7400"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    events = [record.__dict__["event"] for record in caplog.records]
    caplog.clear()
    return events


def test_it_is_said_once_and_then_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    silent = Unreachable()
    with caplog.at_level(logging.INFO, "antiphon"):
        times = []
        for second in range(0, 100_000, 5):
            silent.failed(HERE, "refused", second)
            if said(caplog):
                times.append(second)
        assert times[:4] == [0, 60, 180, 420] and len(times) < 40
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert min(pauses) >= FIRST_PAUSE_SECONDS and max(pauses) <= LONGEST_PAUSE_SECONDS + 5


def test_what_changes_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    silent = Unreachable()
    with caplog.at_level(logging.INFO, "antiphon"):
        silent.failed(HERE, "refused", 0.0)
        silent.failed(HERE, "refused", 1.0)
        assert said(caplog) == ["cannot connect"]
        silent.failed(HERE, "no route", 2.0)
        assert said(caplog) == ["cannot connect"]
        silent.reached(HERE)
        silent.reached(HERE)
        assert said(caplog) == ["connected again"]


def test_a_node_that_was_connected_is_lost_once_and_back_once(caplog: pytest.LogCaptureFixture) -> None:
    """The membership has said that the node is lost."""
    silent = Unreachable()
    with caplog.at_level(logging.INFO, "antiphon"):
        silent.reached(HERE)
        for second in range(0, 1000, 5):
            silent.failed(HERE, "refused", second)
        assert said(caplog) == []
        silent.reached(HERE)
        assert said(caplog) == ["connected again"]


def test_what_is_known_is_bounded() -> None:
    silent = Unreachable()
    for port in range(3 * ADDRESSES_AT_MOST):
        silent.failed(f"127.0.0.1:{port}", "refused", 0.0)
    for port in range(3 * ADDRESSES_AT_MOST):
        silent.reached(f"127.0.0.1:{port}")
    assert len(silent._silent) <= ADDRESSES_AT_MOST and len(silent._reached) == ADDRESSES_AT_MOST


@with_cluster(nodes=3)
async def test_the_others_log_a_killed_node_once(cluster: Cluster) -> None:
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.__dict__["event"])  # type: ignore[method-assign]
    logging.getLogger("antiphon").addHandler(handler)
    try:
        await cluster.crash(1)
        await asyncio.sleep(300)
    finally:
        logging.getLogger("antiphon").removeHandler(handler)
    assert lines == ["lost", "lost"]  # by each of the two others
