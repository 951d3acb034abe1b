"""Making any schedule of any fabric small, whatever is looked for: nothing is raised, and what is left can be run."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.simulator.scenario.file import check_scenario, parse_scenario
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.torture import shrinking
from antiphon.torture.schedules import SCHEDULES
from antiphon.torture.schedules.operations import operations_of
from antiphon.torture.shrinking import Shrinker, options_without, parents_without
from antiphon.torture.tally import Outcome


def failing_by_chance(percent: int, salt: int) -> shrinking.Run:
    """A schedule fails or not by nothing that anybody could understand, but always in the same way."""

    def run(scenario: Scenario) -> Outcome:
        check_scenario(scenario)
        drawn = hashlib.sha256(f"{salt} {scenario!r}".encode()).digest()[0] * 100 // 256
        return Outcome(seed=scenario.seed, violations={"causal": 1} if drawn < percent else {})

    return run


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fabric=st.sampled_from(list(SCHEDULES)),
    seed=st.integers(0, 10**15),
    percent=st.sampled_from([20, 60, 90, 100, 100]),
    salt=st.integers(0, 1 << 32),
)
def test_any_schedule_becomes_a_schedule(
    monkeypatch: pytest.MonkeyPatch, fabric: str, seed: int, percent: int, salt: int
) -> None:
    monkeypatch.setattr(shrinking, "MAXIMUM_EFFORT", 40_000)
    monkeypatch.setattr(shrinking, "PATIENCE", (0, 1))
    drawn = SCHEDULES[fabric](seed, None)
    small = Shrinker(drawn, "causal", failing_by_chance(percent, salt)).shrink()
    check_scenario(small)
    assert parse_scenario(scenario_text(small)) == small
    assert len(operations_of(small)) <= len(operations_of(drawn))
    assert small.nodes <= drawn.nodes


@pytest.mark.parametrize("fabric", list(SCHEDULES))
def test_what_always_fails_becomes_tiny(fabric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "MAXIMUM_EFFORT", 200_000)
    small = Shrinker(SCHEDULES[fabric](11, None), "causal", failing_by_chance(100, 0)).shrink()
    assert small.nodes <= 2
    assert len(operations_of(small)) <= 2


def test_parents_are_brokers_on_a_tree_and_a_number_in_gossip() -> None:
    places = {0: 0, 2: 1}
    tree = Scenario(nodes=3, fabric="tree", protocol="broker-tree", protocol_options={"parents": [-1, 0, 1]})
    gossip = Scenario(nodes=3, fabric="gossip", protocol="brisa", protocol_options={"parents": 2, "contacts": [1, 2]})
    assert options_without(tree, places) == {"parents": [-1, 0]}
    assert options_without(gossip, places) == {"parents": 2, "contacts": [1]}
    assert parents_without([-1, 0, 1, 1, 3], {0: 0, 2: 1, 3: 2, 4: 3}) == [-1, 0, 0, 2]
