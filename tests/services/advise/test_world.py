"""Schedules of calls on the protocols of the product."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.services.advise.pairs import Bench
from antiphon.services.advise.search import explore
from antiphon.services.advise.values import calls_of
from antiphon.services.advise.world import FABRICS, PlannedCall, PlannedFault, Schedule, World
from antiphon.services.calls import bind
from antiphon.services.description import describe
from tests.services.advise.banks import Bank

BANK = describe(Bank)
ORDERS = {name: call.order for name, call in BANK.operations.items()}


def planned(gap: int, node: int, name: str, *arguments: Any) -> PlannedCall:
    return PlannedCall(gap, node, bind(BANK.calls[name], arguments, {}))


RACE = (planned(0, 0, "deposit", "a", 5), planned(0, 1, "withdraw", "a", 5))


@pytest.mark.parametrize("fabric", FABRICS)
def test_replicas_apply_every_call(fabric: str) -> None:
    run = World(Bench(BANK), ORDERS).run(Schedule(fabric, 4, RACE, (), 7))
    assert run.is_judged and not run.has_failed
    assert run.deliveries == 8 and set(run.states) == {0, 1, 2, 3}
    assert all(sorted(calls) == ["deposit('a', 5)", "withdraw('a', 5)"] for calls in run.histories.values())


def test_a_race_in_causal_order_ends_differently() -> None:
    run = World(Bench(BANK), {**ORDERS, "withdraw": "causal"}).run(Schedule("cube", 4, RACE, (), 7))
    assert run.is_judged and run.differing is not None
    one, other = run.differing
    assert run.states[one].contents() != run.states[other].contents()


def test_nodes_that_are_down_make_no_calls_and_need_not_agree() -> None:
    schedule = Schedule(
        "tree",
        3,
        (*RACE, planned(100, 2, "deposit", "b", 1), planned(0, 1, "deposit", "a", 1)),
        (PlannedFault("crash", 50, 0, 2), PlannedFault("pause", 90, 500, 1), PlannedFault("pause", 95, 1, 2)),
        7,
    )
    assert [str(call) for _, _, call in schedule.possible_calls()] == ["deposit('a', 5)", "withdraw('a', 5)"]
    assert schedule.lines() == [
        "tree of 3 nodes",
        "at    0: deposit('a', 5) at node 0",
        "at    0: withdraw('a', 5) at node 1",
        "at   50: node 2 crashes",
        "at   90: node 1 pauses for 500",
    ]
    run = World(Bench(BANK), ORDERS).run(schedule)
    assert run.is_judged and set(run.states) == {0, 1}


def test_callers_that_look_first_make_no_call_in_vain() -> None:
    calls = (planned(0, 0, "withdraw", "a", 5), planned(0, 0, "deposit", "a", 5), planned(140, 0, "withdraw", "a", 5))
    run = World(Bench(BANK), ORDERS, sensible=True).run(Schedule("tree", 3, calls, (), 7))
    assert run.histories[1][0] == "deposit('a', 5)"


def test_a_network_falls_apart_on_a_tree_only_where_weaker_orders_are_mixed_with_total() -> None:
    def kinds_of(fabric: str, orders: dict[str, str]) -> set[str]:
        seen: set[str] = set()
        schedules = World(Bench(BANK), orders).schedules(fabric, calls_of(BANK))
        explore(schedules, lambda one: seen.update(fault.kind for fault in one.faults), 60, 0)
        return seen

    everything = {"crash", "pause", "partition"}
    assert kinds_of("tree", ORDERS) == kinds_of("cube", dict.fromkeys(ORDERS, "total")) == everything
    assert kinds_of("cube", ORDERS) == {"crash", "pause"}


@pytest.mark.campaign
@pytest.mark.parametrize("fabric", FABRICS)
def test_no_schedule_of_the_bank_goes_wrong(fabric: str) -> None:
    world = World(Bench(BANK), ORDERS)
    failed: list[list[str]] = []
    explore(
        world.schedules(fabric, calls_of(BANK)),
        lambda one: failed.append(one.lines()) if world.run(one).has_failed else None,
        2000,
        0,
    )
    assert failed == []
