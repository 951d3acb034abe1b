"""The shells around the state machines keep what clients are promised: schedules of campaigns, with real nodes."""

from __future__ import annotations

import pytest

from antiphon.fabrics.registry import FABRICS
from antiphon.torture.clients.schedules import draw_client_schedule
from tests.testing.shell_world import run_seed


def seeds_of(fabric: str, count: int) -> list[int]:
    """The first seeds whose schedules are of a fabric."""
    return [seed for seed in range(1, 60) if draw_client_schedule(seed).fabric == fabric][:count]


@pytest.mark.parametrize(("fabric", "seed"), [(fabric, seed) for fabric in FABRICS for seed in seeds_of(fabric, 2)])
def test_a_schedule_of_clients_keeps_its_promises_with_real_nodes(fabric: str, seed: int) -> None:
    judge = run_seed(seed)
    assert judge.violations == {}, judge.examples
    assert judge.deliveries > 0
