"""Replicas notice that they have parted: which keys, and after which operation."""

from __future__ import annotations

import asyncio
import random

import antiphon
import antiphon.testing
from antiphon.services.digests import StateDigests, differing_ranges, divergences, range_of
from antiphon.services.replica import ServiceReplica
from antiphon.services.store import MemoryStore
from antiphon.testing import Cluster
from tests.services.bank import Bank
from tests.services.test_replica import BANK, call


def pair() -> tuple[ServiceReplica, ServiceReplica]:
    return ServiceReplica(BANK, MemoryStore(), 7), ServiceReplica(BANK, MemoryStore(), 8)


def test_digests_follow_the_state_whatever_the_order_and_the_past() -> None:
    one, other = pair()
    deposits = [(number, f"account {number % 7}") for number in range(1, 60)]
    for number, account in deposits:
        one.take(1, number, call("deposit", account, number))
    for number, account in reversed(deposits):
        other.take(1, number, call("deposit", account, number))
        if number % 9 == 0:
            other.commit()
    one.commit()
    other.commit()
    assert one.digests.digests == other.digests.digests == StateDigests(one.kept.scan(b"")).digests
    assert differing_ranges(one.report(), other.report()) == []
    fresh = ServiceReplica(BANK, MemoryStore(), 9)
    fresh.restore(list(one.kept.whole()), one.kept.position())
    assert fresh.digests.digests == one.digests.digests


def test_operations_that_only_one_has_are_no_difference() -> None:
    one, other = pair()
    for number in range(1, 10):
        for replica in (one, other):
            replica.take(1, number, call("deposit", f"account {number}", 1))
    one.take(2, 1, call("deposit", "anna", 5))
    other.take(3, 1, call("deposit", "ben", 5))
    for replica in (one, other):
        replica.commit()
    assert differing_ranges(one.report(), other.report()) == []
    # Somebody changes the store of one by hand.
    other.kept.backend.commit({b"account 3": b"\x07"}, other.kept.position())
    other = ServiceReplica(BANK, other.kept.backend, 8)
    assert differing_ranges(one.report(), other.report()) is None, "it does not know any more what it has done"
    for replica in (one, other):
        replica.take(2, 1, call("deposit", "anna", 5))
        replica.take(3, 1, call("deposit", "ben", 5))
        replica.commit()
    assert differing_ranges(one.report(), other.report()) == [range_of(b"account 3")]


def test_a_difference_names_the_operation() -> None:
    one, other = pair()
    for number in range(1, 6):
        one.take(1, number, call("deposit", "anna", 1))
        other.take(1, number, call("deposit", "anna", 1 if number != 3 else 100))
    for replica in (one, other):
        replica.commit()
    place = range_of(b"anna")
    (found,) = divergences(one.keys_in(place), other.keys_in(place), 8)
    assert found == ("anna", 8, (1, 3))


class Dice(antiphon.Service):
    """A service with a mistake: chance is not the same everywhere."""

    @antiphon.operation(order="total", keys=("name",))
    def add(self, store: antiphon.ServiceStore, name: str) -> None:
        store.set(name, store.get(name, 0) + 1)

    @antiphon.operation(order="total", keys=("name",))
    def throw(self, store: antiphon.ServiceStore, name: str) -> None:
        store.set(name, random.random())


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_replicas_that_part_are_named_and_others_are_not(cluster: Cluster) -> None:
    replicas = [await antiphon.serve(Dice, node, compare_seconds=1) for node in cluster.nodes]
    dice = Dice.proxy(cluster.nodes[0])
    for number in range(30):
        await dice.add(f"die {number % 5}")
        await asyncio.sleep(0.2)
    assert all(each._comparing.compared > 0 and not each.divergences for each in replicas)
    await dice.throw("die 3")
    while not all(each.divergences for each in replicas):
        await asyncio.sleep(0.5)
    author = cluster.nodes[0].identifier
    for each in replicas:
        (found,) = each.divergences
        # It is the last message of its author.
        assert found.key == "die 3" and found.operation == (author, each._live.replica.kept.ranges()[author][0])
        await each.close()


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_total_calls_of_one_caller_share_places_in_the_order(cluster: Cluster) -> None:
    replicas = [await antiphon.serve(Bank, node) for node in cluster.nodes]
    bank = Bank.proxy(await cluster.connect(1))
    await bank.deposit("anna", 100)
    before = replicas[0].operations
    paid = await asyncio.gather(*(bank.transfer("anna", f"account {each}") for each in range(300)))
    assert sum(paid) == 100, "each is an operation of its own, with a result of its own"
    assert replicas[0].operations - before < 30
    for each in replicas:
        await each.close()
