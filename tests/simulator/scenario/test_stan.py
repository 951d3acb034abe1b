"""StaN in scenarios: what is judged, and what agreement means where there are topics."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import Scenario

EXAMPLE = Path(__file__).parents[3] / "examples" / "scenarios" / "many-topics.toml"


def scenario(**changes: object) -> Scenario:
    return msgspec.convert(
        {
            "fabric": "gossip",
            "protocol": "stan",
            "order": "none",
            "nodes": 30,
            "protocol-options": {"period": 2000, "patience": 3},
            "network": {"delay": {"law": "constant", "ticks": 20}},
            "topics": {"count": 2, "members": ["0-19", "10-29"]},
            "publish": [{"at": 30_000, "node": 5}, {"at": 30_000, "node": 15, "topic": 1}],
            **changes,
        },
        Scenario,
    )


def test_every_member_gets_what_is_published_on_its_topics_and_nobody_else_does() -> None:
    result = run_scenario(scenario())
    assert (result.stopped, result.deliveries, result.refused) == ("finished", 40, 0)
    assert (result.agreed, result.owed) == (2, 2)
    assert result.violations is not None and not any(result.violations.values())


def test_members_come_go_and_fail_and_nothing_is_violated() -> None:
    result = run_scenario(load_scenario(EXAMPLE))
    assert result.violations is not None and not any(result.violations.values())
    assert result.agreed is not None and result.owed is not None
    # A twentieth of all messages is lost, and each member is in many views.
    assert result.agreed > 0.9 * result.owed


def test_who_subscribes_later_gets_what_follows_and_who_left_gets_nothing() -> None:
    result = run_scenario(
        scenario(
            subscribe=[{"at": 10_000, "node": 29, "topic": 0}],
            unsubscribe=[{"at": 12_000, "node": 0, "topic": 0}],
        )
    )
    assert result.stopped == "finished"
    assert result.violations is not None and not any(result.violations.values())
    assert result.deliveries == 40


@pytest.mark.parametrize("learning", ["nothing", "sources", "walks"])
def test_a_run_comes_to_an_end_whatever_is_learnt(learning: str) -> None:
    result = run_scenario(
        scenario(**{"protocol-options": {"period": 2000, "patience": 3, "learning": learning, "random_slots": 1}})
    )
    assert result.stopped == "finished"
