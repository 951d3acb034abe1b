"""A newcomer gets what was published before it came, also where that is slower than everything the newcomer asks."""

from __future__ import annotations

import asyncio

import antiphon
import antiphon.testing
from antiphon.testing import Cluster
from tests.services.bank import Bank
from tests.services.service_mutants import MARKS, MUTANTS

SLOW_SECONDS = 6.0


def balances() -> list[int]:
    """The balances at an old replica and at a newcomer, after a deposit that was slow to reach the old one."""

    async def scenario(cluster: Cluster) -> list[int]:
        old = await antiphon.serve(Bank, cluster.nodes[0])
        bank = Bank.proxy(cluster.nodes[2], timeout=100)
        await bank.deposit("anna", 1)
        cluster.delay(0, 2, SLOW_SECONDS)
        # It is on its way to node 0, and will not go to a node that subscribes later.
        depositing = asyncio.ensure_future(bank.deposit("anna", 10))
        await asyncio.sleep(0.1)
        new = await antiphon.serve(Bank, cluster.nodes[1])
        await depositing
        await asyncio.sleep(10 * SLOW_SECONDS)
        found = [await Bank.proxy(node).balance("anna") for node in cluster.nodes[:2]]
        for served in (old, new):
            await served.close()
        return found

    return antiphon.testing.run(scenario, 3, fabric="cube")


def test_a_newcomer_waits_for_what_is_on_its_way_to_the_replica_that_it_asks() -> None:
    assert balances() == [11, 11]


def test_a_newcomer_that_does_not_wait_is_found() -> None:
    with MUTANTS[MARKS]():
        assert balances() == [11, 1]
