"""One campaign for everything: what a seed draws, and that all fabrics survive it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from antiphon.simulator.scenario.file import check_scenario, parse_scenario
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.scenario import CrashFault, PartitionFault, RestartFault, Scenario
from antiphon.simulator.scenario.writer import scenario_text
from antiphon.torture.campaign import run_campaign, run_seeds
from antiphon.torture.schedules import ALL
from antiphon.torture.schedules.every_fabric import WEIGHTED, draw_any_schedule
from antiphon.torture.schedules.families import FAMILIES, family_name, orders_of
from antiphon.torture.schedules.operations import PAUSE, PUBLISH, operations_of, with_operations
from antiphon.torture.tally import Outcome, Tally

SEEDS = range(1, 121)


@pytest.fixture(scope="module")
def drawn() -> list[Scenario]:
    """The first schedules."""
    return [draw_any_schedule(seed) for seed in SEEDS]


def test_a_seed_is_a_schedule_that_can_be_written_as_a_file(drawn: list[Scenario]) -> None:
    for seed, scenario in zip(SEEDS, drawn, strict=True):
        check_scenario(scenario)
        assert scenario == draw_any_schedule(seed)
        assert parse_scenario(scenario_text(scenario)) == scenario
        assert with_operations(scenario, operations_of(scenario)) == scenario


def test_all_fabrics_orders_and_faults_are_drawn(drawn: list[Scenario]) -> None:
    tally = Tally()
    for scenario in drawn:
        tally.count(scenario, Outcome(seed=0))
    assert set(tally.fabrics) == set(FAMILIES) == set(WEIGHTED)
    assert min(count.seeds for count in tally.fabrics.values()) > 5
    assert set(tally.orders) == {"none", "fifo", "causal", "total", "mixed"}
    kinds = ("subscribe", "unsubscribe", "pause", "crash", "restart", "join", "leave", "clock")
    disks = ("disk torn", "disk full", "disk lost", "disk flip")
    assert set(tally.faults) == {*kinds, "partition", "one way", "bridge", "ring", *disks}
    assert {"loss", "duplication", "reordering", "late packets", "slow output", "matrix"} <= set(tally.networks)
    assert max(scenario.network.loss for scenario in drawn) == 0.3


KINDS_OF_ROWS = {
    "partition: parts": ("partition",),
    "partition: one way, bridge, ring": ("one way", "bridge", "ring"),
    "crash for good": ("crash",),
    "pause": ("pause",),
    "loss": ("loss",),
    "duplication": ("duplication",),
    "clock jumps": ("clock",),
    "disk: torn write, full": ("disk torn", "disk full"),
    "disk: lost fsync, bit flip": ("disk lost", "disk flip"),
    "joins": ("join",),
    "leaves": ("leave",),
}
"""Rows of the table in the manual, and what is counted of them."""


def test_each_fabric_meets_what_the_manual_says_and_nothing_else() -> None:
    tallies = {fabric: Tally() for fabric in FAMILIES}
    for seed in range(1, 800):
        scenario = draw_any_schedule(seed)
        tallies[family_name(scenario)].count(scenario, Outcome(seed=seed))
    manual = (Path(__file__).parents[3] / "docs" / "torture.md").read_text()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in manual.splitlines() if "|" in line]
    fabrics = next(line[1:] for line in lines if line[0] == "fault" and "cube-faults" in line)
    rows = {line[0]: dict(zip(fabrics, line[1:], strict=True)) for line in lines if len(line) == 6}
    for row, kinds in KINDS_OF_ROWS.items():
        for fabric, cell in rows[row].items():
            counts = {**tallies[fabric].faults, **tallies[fabric].networks}
            met = {kind for kind, count in counts.items() if count > 0}
            expected = set(kinds) if cell.startswith(("drawn", "up to")) else set()
            assert met & set(kinds) == expected, (row, fabric)


def test_everything_is_healed_long_before_the_last_words(drawn: list[Scenario]) -> None:
    """But in calm schedules of EpTO, and where nobody is left who could speak."""
    healed = 0
    for scenario in drawn:
        ends = [fault.until or 0 if isinstance(fault, PartitionFault) else fault.at for fault in scenario.faults]
        healed += max(table.at for table in scenario.publications) >= max(ends, default=0) + LONG_AFTER
    assert healed > 100


def test_who_speaks_last_is_there(drawn: list[Scenario]) -> None:
    for scenario in drawn:
        kept = operations_of(with_operations(scenario, operations_of(scenario)))
        assert sum(one.kind == PUBLISH for one in kept) == len(scenario.publications)


@pytest.mark.parametrize("order", ["none", "total", "mixed"])
def test_an_order_is_drawn_on_the_fabrics_that_have_it(order: str) -> None:
    for seed in range(1, 30):
        assert order in orders_of(family_name(draw_any_schedule(seed, order)))


def test_every_fabric_survives() -> None:
    """A small part of the campaign; ``antiphon torture --seeds 20000`` is the rest."""
    tally = run_campaign(1, 40, fabric=ALL)
    assert [outcome.about for outcome in tally.failing] == []
    assert tally.seeds == sum(count.seeds for count in tally.fabrics.values()) == 40
    assert tally.deliveries == sum(count.deliveries for count in tally.fabrics.values()) > 3000


def test_the_same_seeds_find_the_same() -> None:
    parts = Tally()
    for seeds in (range(1, 5), range(5, 13)):
        parts.add(run_seeds(seeds, None, ALL))
    assert parts == run_campaign(1, 12, fabric=ALL)


def test_half_of_the_nodes_are_down_at_once_and_all_come_back() -> None:
    """On the cube with logs, where that is promised."""
    halved = 0
    for seed in range(1, 500):
        scenario = draw_any_schedule(seed)
        if family_name(scenario) == "cube-faults":
            crashes = Counter(fault.at for fault in scenario.faults if isinstance(fault, CrashFault))
            at, count = max(crashes.items(), key=lambda item: item[1], default=(0, 0))
            down = {fault.node for fault in scenario.faults if isinstance(fault, CrashFault) and fault.at == at}
            back = {fault.node for fault in scenario.faults if isinstance(fault, RestartFault) and fault.at > at}
            halved += 2 * count >= scenario.nodes > 2 and down <= back
    assert halved > 5


def test_nodes_stand_still_for_less_and_for_more_than_others_need_to_notice(drawn: list[Scenario]) -> None:
    by_fabric: dict[str, set[bool]] = {}
    for scenario in drawn:
        for one in operations_of(scenario):
            if one.kind == PAUSE:
                is_noticed = one.until - one.at > scenario.network.detection
                by_fabric.setdefault(family_name(scenario), set()).add(is_noticed)
    assert by_fabric == {fabric: {True, False} for fabric in FAMILIES}


def test_nodes_crash_while_the_network_is_parted(drawn: list[Scenario]) -> None:
    both: set[str] = set()
    for scenario in drawn:
        parts = [fault for fault in scenario.faults if isinstance(fault, PartitionFault)]
        crashes = [fault.at for fault in scenario.faults if isinstance(fault, CrashFault)]
        if any(part.at <= at < (part.until or 0) for part in parts for at in crashes):
            both.add(family_name(scenario))
    assert both == {"cube-faults", "tree", "gossip", "epto"}
