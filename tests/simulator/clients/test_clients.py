"""Clients in simulated clusters: no promise to them is broken, and schedules are repeatable and shrink."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.audit.clients import CAUSAL, DUPLICATES, FIFO, LOST, STUCK, TOTAL, ClientJudge
from antiphon.simulator.clients.world import ClientSchedule, ClientStep, ClientWorld
from antiphon.torture.clients.campaign import run_clients, run_one, shrink
from antiphon.torture.clients.schedules import draw_client_schedule


def test_no_promise_to_clients_is_broken() -> None:
    tally = run_clients(1, 30)
    assert (tally.violations, tally.failing_seeds) == ({}, [])
    assert set(tally.fabrics) == {"cube", "tree", "gossip"} and tally.moves > 5 and tally.deliveries > 500


def test_a_schedule_is_repeatable() -> None:
    runs = [ClientWorld(draw_client_schedule(7)) for _ in range(2)]
    for world in runs:
        world.run()
    assert runs[0].clock.events == runs[1].clock.events > 1000


def test_the_older_member_shows_what_a_younger_one_lacks() -> None:
    """A client returns to the node that has everything; a node that is a member since later must not come first."""
    steps = [
        ClientStep(at_us=3_843_096, kind="crash", node=1, lasts_us=3_000_000),
        ClientStep(at_us=4_024_113, kind="cut", clients=[1], lasts_us=4_000_000),
        ClientStep(at_us=4_024_661, kind="publish"),
        ClientStep(at_us=8_192_536, kind="publish"),
    ]
    schedule = ClientSchedule(
        seed=314, fabric="cube", nodes=4, homes=[1, 1], keeps=[1], delay_us=(100, 2000), steps=steps
    )
    assert run_one(schedule) == {}


def test_a_node_learns_from_the_only_one_that_knows_when_that_one_is_back() -> None:
    """A node became a member while the only other member stood still; its clients must not wait for what is past."""
    steps = [
        ClientStep(at_us=3_137_086, kind="publish", client=2),
        ClientStep(at_us=5_644_556, kind="pause", lasts_us=1_250_000),
    ]
    assert run_one(ClientSchedule(seed=66, fabric="gossip", nodes=3, homes=[2, 1, 1], steps=steps)) == {}


@pytest.mark.parametrize("kind", [DUPLICATES, FIFO, CAUSAL, TOTAL, LOST, STUCK])
def test_the_judge_finds(kind: str) -> None:
    judge = ClientJudge()
    for client in (0, 1, 2):
        judge.ready(client, 0)
    order = "total" if kind == TOTAL else "causal"
    judge.asked(0, "0.1", order, 1)
    judge.asked(0 if kind == FIFO else 1, "next", order, 2)
    if kind != STUCK:
        judge.accepted("0.1")
        judge.accepted("next")
    shown = {
        DUPLICATES: ["0.1", "next", "next"],
        FIFO: ["next", "0.1"],
        CAUSAL: ["0.1", "next"],
        TOTAL: ["next", "0.1"],
        LOST: ["0.1"],
        STUCK: ["0.1", "next"],
    }[kind]
    for client in (0, 2):
        for name in ["0.1", "next"]:
            judge.shown(client, name)
    if kind == CAUSAL:
        judge.asked(0, "answer", "causal", 3)
        judge.accepted("answer")
        judge.shown(0, "answer")
        judge.shown(2, "answer")
        shown = ["answer", "0.1", "next"]
    for name in shown:
        judge.shown(1, name)
    judge.judge([0, 1, 2])
    assert set(judge.violations) == ({CAUSAL, FIFO} if kind == CAUSAL else {kind})


def test_who_was_told_of_a_gap_is_owed_what_comes_after_it() -> None:
    judge = ClientJudge()
    judge.ready(1, 0)
    judge.asked(0, "before", "causal", 1)
    judge.accepted("before")
    judge.missed(1, 5)
    judge.judge([1])
    assert judge.violations == {}
    judge.asked(0, "after", "causal", 6)
    judge.accepted("after")
    judge.judge([1])
    assert judge.violations == {LOST: 1}


def test_a_failing_schedule_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not look for another node lose what their node had not told to others."""
    monkeypatch.setattr("antiphon.sessions.unacked.KeptBatches.connection_lost", lambda self: self.clear())
    seed = next(seed for seed in range(1, 200) if STUCK in run_one(draw_client_schedule(seed)))
    schedule = draw_client_schedule(seed)
    small = shrink(schedule, STUCK)
    assert STUCK in run_one(small) and len(small.steps) < len(schedule.steps)
    assert msgspec.json.decode(msgspec.json.encode(small), type=ClientSchedule) == small
