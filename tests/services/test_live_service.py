"""Services at real nodes: replicas, callers, newcomers and returns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import antiphon
import antiphon.testing
from antiphon.testing import Cluster
from tests.services.bank import Bank, NoMoneyError


async def until_equal(*replicas: Any) -> None:
    """Wait until all replicas have applied the same."""
    while len({repr(sorted(each._live.replica.kept.ranges().items())) for each in replicas}) > 1:
        await asyncio.sleep(0.05)


def state(served: Any) -> dict[bytes, bytes]:
    return dict(served._live.replica.kept.scan(b""))


@antiphon.testing.with_cluster(nodes=3, durable=True)
async def test_callers_anywhere_get_the_same_decisions(cluster: Cluster, tmp_path: Path) -> None:
    replicas = [
        await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db") for place, node in enumerate(cluster.nodes)
    ]
    banks = [Bank.proxy(node) for node in cluster.nodes] + [Bank.proxy(await cluster.connect(1))]
    assert await banks[3].deposit("anna", 100) == 100
    assert await banks[3].balance("anna") == 100
    paid = await asyncio.gather(*(bank.transfer("anna", "ben", 70) for bank in banks))
    assert sorted(paid) == [False, False, False, True]
    with pytest.raises(NoMoneyError) as refused:
        await banks[2].withdraw("anna", 31)
    assert refused.value.args == ("anna", 30), "an exception is the same as at the replica"
    await until_equal(*replicas)
    assert state(replicas[0]) == state(replicas[1]) == state(replicas[2])
    for served in replicas:
        await served.close()


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_a_newcomer_and_one_that_returns_get_what_they_lack(cluster: Cluster, tmp_path: Path) -> None:
    first = await antiphon.serve(Bank, cluster.nodes[0], store=tmp_path / "0.db")
    bank = Bank.proxy(cluster.nodes[0])
    for _ in range(5):
        await bank.deposit("anna", 1)
    second = await antiphon.serve(Bank, cluster.nodes[1], store=tmp_path / "1.db")
    assert state(second) == state(first)
    await second.close()
    for _ in range(5):
        await bank.deposit("ben", 1)
    second = await antiphon.serve(Bank, cluster.nodes[1], store=tmp_path / "1.db")
    assert state(second) == state(first) and await Bank.proxy(cluster.nodes[1]).balance("ben") == 5
    # Without its operations in memory the first one gives a snapshot.
    first._live.replica.operations._base[77] = type(next(iter(first._live.replica.kept.applied._authors.values())))(1)
    third = await antiphon.serve(Bank, await cluster.connect(0), store="memory")
    assert state(third) == state(first)
    await bank.deposit("ben", 1)
    await until_equal(first, second, third)
    assert state(third) == state(first) == state(second)
    for served in (first, second, third):
        await served.close()


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_without_any_replica_the_history_has_the_state(cluster: Cluster, tmp_path: Path) -> None:
    first = await antiphon.serve(Bank, cluster.nodes[0], store=tmp_path / "0.db")
    bank = Bank.proxy(cluster.nodes[0])
    for _ in range(20):
        await bank.deposit("anna", 1)
    await first.close()
    # One has its store, the other nothing; neither can ask anybody.
    again = await antiphon.serve(Bank, cluster.nodes[0], store=tmp_path / "0.db")
    assert await Bank.proxy(cluster.nodes[0]).balance("anna") == 20
    assert again.repeated > 0, "the history repeats what the store has"
    await again.close()
    fresh = await antiphon.serve(Bank, cluster.nodes[1])
    assert await Bank.proxy(cluster.nodes[1]).balance("anna") == 20
    await fresh.close()


@antiphon.testing.with_cluster(nodes=3, durable=True)
async def test_the_home_of_a_caller_may_die_with_calls_under_way(cluster: Cluster, tmp_path: Path) -> None:
    replicas = [
        await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db") for place, node in enumerate(cluster.nodes)
    ]
    client = await cluster.connect(2)
    bank = Bank.proxy(client, timeout=60)
    await bank.deposit("anna", 0)
    home = next(place for place, each in enumerate(replicas) if each._live.number == bank._home)
    calls = [asyncio.ensure_future(bank.deposit("anna", 1)) for _ in range(50)]
    await asyncio.sleep(0)
    if home == 2:
        # The client's own node goes on; only the replica dies.
        replicas[home].abandon()
    else:
        replicas[home].abandon()
        await cluster.crash(home)
    results = await asyncio.gather(*calls)
    assert max(results) == 50, "each deposit counts once"
    assert await bank.balance("anna") == 50
    assert bank._home != replicas[home]._live.number
    for place, served in enumerate(replicas):
        if place != home:
            await served.close()


@antiphon.testing.with_cluster(nodes=3, durable=True)
async def test_nodes_and_replicas_that_are_killed_again_and_again_apply_everything_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    replicas: list[Any] = [
        await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db") for place, node in enumerate(cluster.nodes)
    ]
    bank = Bank.proxy(await cluster.connect(0), timeout=120)
    done = 0

    async def deposit_all() -> None:
        nonlocal done
        for _ in range(120):
            await bank.deposit("anna", 1)
            done += 1

    work = asyncio.ensure_future(deposit_all())
    for kill in range(4):
        place = 1 + kill % 2
        await asyncio.sleep(0.5)
        replicas[place].abandon()
        await cluster.crash(place)
        await asyncio.sleep(0.5)
        node = await cluster.restart(place)
        replicas[place] = await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db")
    await work
    await until_equal(*replicas)
    assert done == 120
    assert [state(each) for each in replicas] == [state(replicas[0])] * 3
    assert await bank.balance("anna") == 120
    for served in replicas:
        await served.close()


@antiphon.testing.with_cluster(nodes=1)
async def test_what_cannot_work_is_refused_in_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    (node,) = cluster.nodes
    with pytest.raises(antiphon.UsageError, match="a store is a file, 'memory' or a backend"):
        await antiphon.serve(Bank, node, store=7)  # type: ignore[arg-type]
    with pytest.raises(antiphon.UsageError, match="a node or a client, not at str"):
        Bank.proxy("127.0.0.1:7400")
    bank = Bank.proxy(node)
    with pytest.raises(antiphon.NobodyServesError):
        await bank.deposit("anna", 1)
    with pytest.raises(AttributeError, match="no operation or query 'steal'"):
        await bank.steal("anna")
    # Without a data directory there is no history; the first replica begins with nothing.
    async with antiphon.serve(Bank, node) as served:
        assert await bank.deposit("anna", 1) == 1
        with pytest.raises(antiphon.UsageError, match=r"Bank\.deposit was called wrongly"):
            await bank.deposit("anna", "much")
        served._live.close()
        with pytest.raises(antiphon.ClosedError):
            served._live.check()


@antiphon.testing.with_cluster(nodes=3, fabric="gossip")
async def test_gossip_is_refused(cluster: Cluster) -> None:
    with pytest.raises(antiphon.UsageError, match="total order in gossip may pass one over"):
        await antiphon.serve(Bank, cluster.nodes[0])
    with pytest.raises(antiphon.UsageError, match="total order in gossip may pass one over"):
        await antiphon.serve(Bank, await cluster.connect(1))


@antiphon.testing.with_cluster(nodes=3, fabric="tree", durable=True, tree={"quorum_delivery": [">"]})
async def test_a_service_works_on_a_tree(cluster: Cluster, tmp_path: Path) -> None:
    replicas = [
        await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db") for place, node in enumerate(cluster.nodes)
    ]
    banks = [Bank.proxy(node) for node in cluster.nodes]
    await asyncio.gather(*(bank.deposit("anna", 10) for bank in banks))
    paid = await asyncio.gather(*(bank.transfer("anna", "ben", 20) for bank in banks))
    assert sum(paid) <= 1
    await until_equal(*replicas)
    assert state(replicas[0]) == state(replicas[1]) == state(replicas[2])
    for served in replicas:
        await served.close()


@antiphon.testing.with_cluster(nodes=9, fabric="tree", tree={"quorum_delivery": [">"]})
async def test_nodes_without_data_directories_say_so_at_once(cluster: Cluster) -> None:
    # Virtual seconds, which are the same on a busy machine: each question to the list of topics may take 15 of them.
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with antiphon.serve(Bank, await cluster.connect(4)):
        assert await Bank.proxy(cluster.nodes[0]).deposit("anna", 1) == 1
    assert loop.time() - begun < 15
