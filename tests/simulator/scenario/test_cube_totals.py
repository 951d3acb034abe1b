"""Campaigns of total order over the cube: what is drawn, that nothing is found, and that defects are."""

from __future__ import annotations

import pytest

from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.campaign import run_campaign
from antiphon.torture.schedules.topic_schedule import draw_schedule
from tests.torture.broken import ClosesWithoutNumbers, GrantsAtOnce, Variant, break_vcube_ps

DRAWN = [draw_schedule(seed, "total") for seed in range(1, 101)]


def total_share(scenario: Scenario) -> float:
    total = [publication for publication in scenario.publications if publication.order == "total"]
    return len(total) / max(1, len(scenario.publications))


def test_schedules_mix_total_publications_with_weaker_ones_about_the_same_keys() -> None:
    assert sum(total_share(scenario) == 1 for scenario in DRAWN) > 5
    assert sum(0.2 < total_share(scenario) < 0.8 for scenario in DRAWN) > 20
    keys = [{key for publication in scenario.publications for key in publication.keys} for scenario in DRAWN]
    assert {len(found) for found in keys} >= {0, 1, 2, 3}
    assert sum(any(len(publication.keys) == 2 for publication in scenario.publications) for scenario in DRAWN) > 20


def test_every_other_schedule_of_mixed_orders_has_total_ones() -> None:
    drawn = [draw_schedule(seed) for seed in range(1, 301)]
    mixed = [scenario for scenario in drawn if scenario.mixes_orders()]
    assert 20 < sum(scenario.orders_totally() for scenario in mixed) < len(mixed) - 20
    assert not any(scenario.orders_totally() for scenario in drawn if not scenario.mixes_orders())


def test_total_order_survives_members_that_come_and_go() -> None:
    """A small part of the campaign; ``antiphon torture --order total`` is the rest."""
    tally = run_campaign(1, 40, "total")
    assert [outcome.about for outcome in tally.failing] == []
    assert tally.deliveries > 3_000


@pytest.mark.parametrize(
    ("variant", "kinds"), [(ClosesWithoutNumbers, {"total"}), (GrantsAtOnce, {"total", "stuck", "completeness"})]
)
def test_a_campaign_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, variant: Variant, kinds: set[str]) -> None:
    break_vcube_ps(monkeypatch, variant)
    tally = run_campaign(1, 30, "total")
    assert tally.failing
    assert kinds & set(tally.violations)
