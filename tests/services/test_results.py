"""Results that outlive the programs of replicas: stored, bounded, and given to a call that is made again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import antiphon
import antiphon.testing
from antiphon.services import results
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.calls import decode_result
from antiphon.services.frames import LATEST
from antiphon.services.replica import ServiceReplica
from antiphon.services.results import KeptResults
from antiphon.services.store import Changes, MemoryStore, StoreBackend
from antiphon.testing import Cluster
from tests.services.bank import Bank
from tests.services.service_mutants import MUTANTS
from tests.services.test_replica import BANK, CALLER, HOME, balance, call, replica


def answer(of: ServiceReplica, number: int, name: str = "deposit") -> object:
    """What a replica says of a call whose caller asks for its result; None if it does not know it."""
    found = dict(of.ask(CALLER, [number]))
    return decode_result(BANK.calls[name], found[number]) if number in found else None


def check_results(backend: StoreBackend, reopen: Any) -> None:
    """A program that ends between the commit and the reply leaves the result in its store, and the next one has it."""
    one = replica(backend)
    one.take(1, 1, call("deposit", "anna", 100, number=1))
    assert answer(one, 1) is None, "nobody may hear of what is not committed"
    one.commit()
    backend.close()
    backend = reopen()
    two = replica(backend)
    assert answer(two, 1) == 100
    # The same call in another message, also by another author, takes place no second time.
    two.take(2, 7, call("deposit", "anna", 100, number=1))
    two.take(2, 8, call("deposit", "anna", 1, number=2))
    two.take(2, 9, call("deposit", "anna", 1, number=2))
    found = {each.number: each.payload for each in two.commit()}
    assert balance(two, "anna") == 101 and decode_result(BANK.calls["deposit"], found[1]) == 100
    # A snapshot has the results, and so has the store that takes it.
    other = ServiceReplica(BANK, MemoryStore(), HOME + 1)
    other.restore(list(two.kept.whole()), two.kept.position())
    assert answer(other, 1) == 100 and answer(other, 2) == 101
    other.take(3, 1, call("deposit", "anna", 100, number=1))
    other.commit()
    assert balance(other, "anna") == 101
    # The caller has the first one, so it goes from the store; the operation still counts once.
    two.take(2, 10, call("deposit", "anna", 1, number=3, done=2))
    two.commit()
    two.take(2, 11, call("deposit", "anna", 100, number=1))
    two.commit()
    backend.close()
    three = replica(reopen())
    assert balance(three, "anna") == 102 and answer(three, 3) == 102 and len(three.kept.results) == 1
    with pytest.raises(antiphon.ResultGoneError, match=r"Bank\.deposit: the operation has taken place"):
        answer(three, 1)
    three.kept.close()


def test_results_are_in_a_file(tmp_path: Path) -> None:
    check_results(SqliteStore(tmp_path / "bank.db"), lambda: SqliteStore(tmp_path / "bank.db"))


def test_results_are_in_memory_as_long_as_the_store_is() -> None:
    backend = MemoryStore()
    check_results(backend, lambda: backend)


def test_a_refusal_and_an_exception_are_results_too() -> None:
    backend = MemoryStore()
    one = replica(backend)
    one.take(1, 1, call("withdraw", "anna", 5, number=1))
    one.take(1, 2, call("balance", "anna", number=2, kind=LATEST, home=HOME))
    one.commit()
    again = replica(backend)
    with pytest.raises(Exception, match="anna"):
        answer(again, 1, "withdraw")
    assert answer(again, 2) is None, "a query can be asked again"


def test_a_commit_that_fails_leaves_no_result() -> None:
    class Failing(MemoryStore):
        fails = True

        def commit(self, changes: Changes, position: bytes) -> None:
            if self.fails:
                raise antiphon.PeerError("away")
            super().commit(changes, position)

    backend = Failing()
    one = replica(backend)
    one.take(1, 1, call("deposit", "anna", 100, number=1))
    with pytest.raises(antiphon.PeerError):
        one.commit()
    assert answer(one, 1) is None
    answers, again = one.recover()
    assert not answers and len(again) == 1 and answer(one, 1) is None
    backend.fails = False
    one.take(*again[0])
    assert [each.number for each in one.commit()] == [1] and answer(one, 1) == 100
    assert answer(replica(backend), 1) == 100 and balance(one, "anna") == 100


def late_after_an_acknowledgement() -> int:
    """The balance after an operation that comes behind a later one, which says that its caller has the result."""
    one = replica()
    one.take(1, 2, call("deposit", "anna", 1, number=3, done=2))
    one.take(1, 1, call("deposit", "anna", 10, number=2))
    one.commit()
    return balance(one, "anna")


def test_what_a_caller_needs_no_more_may_come_later_and_counts() -> None:
    assert late_after_an_acknowledgement() == 11
    with MUTANTS["what a caller needs no more counts as applied"]():
        assert late_after_an_acknowledgement() == 1


def stored(kept: KeptResults, rows: dict[int, bytes]) -> None:
    """Commit to a store of rows."""
    for number, row in kept.take_changes().items():
        if row is None:
            del rows[number]
        else:
            rows[number] = row
    kept.committed()


def test_the_bounds_hold_for_each_caller_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "CALLER_RESULTS_AT_MOST", 3)
    monkeypatch.setattr(results, "RESULTS_AT_MOST", 5)
    kept, rows = KeptResults(), dict[int, bytes]()
    for number in range(1, 6):
        kept.add(1, number, b"%d" % number)
        stored(kept, rows)
    assert [number for number in range(1, 6) if kept.ask(1, number)] == [3, 4, 5] and len(rows) == 3
    for caller in (2, 3, 4):
        kept.add(caller, 1, b"x")
    stored(kept, rows)
    assert [number for number in range(1, 6) if kept.ask(1, number)] == [4, 5] and len(kept) == 5
    monkeypatch.setattr(results, "BYTES_AT_MOST", 200)
    kept.add(5, 1, bytes(150))
    stored(kept, rows)
    assert kept.ask(5, 1) and not kept.ask(2, 1), "the newest stays, whatever its size"
    again = KeptResults(rows.items())
    assert again.ask(5, 1) == bytes(150) and len(again) == len(kept) == 1
    with pytest.raises(antiphon.PeerError, match="damaged"):
        KeptResults([(1, b"?")])


@pytest.mark.parametrize("seed", range(3))
def test_kept_results_are_those_of_a_plain_model(seed: int) -> None:
    chance = random.Random(seed)
    kept, rows, model = KeptResults(), dict[int, bytes](), dict[tuple[int, int], bytes]()
    floors = {1: 0, 2: 0}
    for number in range(1, 200):
        caller = chance.choice((1, 2))
        payload = chance.randbytes(3)
        kept.add(caller, number, payload)
        model[caller, number] = payload
        if chance.random() < 0.3:
            floors[caller] = max(floors[caller], number - chance.randrange(1, 20))
            kept.free(caller, floors[caller])
        if chance.random() < 0.3:
            stored(kept, rows)
            if chance.random() < 0.2:
                kept = KeptResults(rows.items())
                for each, floor in floors.items():
                    kept.free(each, floor)
        model = {name: value for name, value in model.items() if name[1] > floors[name[0]]}
        assert {name for name in model if kept.find(*name) == model[name]} == set(model)
        assert len(kept) == len(model)


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_a_caller_gets_the_result_though_every_replica_died_before_it_replied(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def serve_all() -> list[Any]:
        return [
            await antiphon.serve(Bank, node, store=tmp_path / f"{place}.db") for place, node in enumerate(cluster.nodes)
        ]

    replicas = await serve_all()
    bank = Bank.proxy(await cluster.connect(0), timeout=60)
    hasty = Bank.proxy(await cluster.connect(1), timeout=3)
    await bank.deposit("anna", 100)
    await hasty.deposit("anna", 100)
    for served in replicas:
        # It commits, and dies before a result leaves.
        served._live._send = lambda _, served=served: served.abandon()
    calls = [asyncio.ensure_future(each.transfer("anna", "ben", 60)) for each in (bank, hasty)]
    with pytest.raises(antiphon.UnansweredError, match=r"Bank\.transfer within 3 seconds") as unanswered:
        await calls[1]
    replicas = await serve_all()
    assert await calls[0] is True
    assert await unanswered.value.again() is True
    with pytest.raises(antiphon.UsageError, match="cannot be made again: it has a result"):
        await unanswered.value.again()
    assert await bank.balance("ben") == 120
    for served in replicas:
        await served.close()


@antiphon.testing.with_cluster(nodes=1, durable=True)
async def test_a_call_that_never_left_takes_place_when_it_is_made_again(cluster: Cluster) -> None:
    served = await antiphon.serve(Bank, cluster.nodes[0])
    bank = Bank.proxy(await cluster.connect(0), timeout=1)
    await bank.deposit("anna", 1)
    post, bank._post = bank._post, lambda *_: None
    with pytest.raises(antiphon.UnansweredError) as lost:
        await bank.deposit("anna", 10)
    bank._post = post
    assert await bank.balance("anna") == 1
    assert await lost.value.again() == 11
    # What the caller has, the replica needs no more.
    assert await bank.deposit("anna", 1) == 12 and len(served._live.replica.kept.results) == 1
    await served.close()
