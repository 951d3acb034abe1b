"""A replica as a state machine: what counts once, what is committed together, and what it tells others."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.services.applied import AppliedOperations
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.calls import bind, decode_result, encode_call
from antiphon.services.description import describe
from antiphon.services.errors import ServiceError
from antiphon.services.frames import LATEST, MARK, OPERATION, ServiceFrame, encode
from antiphon.services.recent import RecentOperations
from antiphon.services.replica import OutdatedReplicaError, ServiceReplica
from antiphon.services.store import Changes, MemoryStore, StoreBackend
from tests.services.bank import Bank

BANK = describe(Bank)
HOME = 7
CALLER = 5

NUMBERS = itertools.count(1_000_000)


def call(
    name: str,
    *arguments: Any,
    number: int = 0,
    home: int = HOME,
    version: int = 1,
    kind: int = OPERATION,
    done: int = 0,
) -> bytes:
    """A call with its caller's number for it, or with the next number."""
    body = encode_call(bind(BANK.calls[name], arguments, {}))
    return encode(ServiceFrame(kind, CALLER, number or next(NUMBERS), home, version, body, done))


def replica(backend: StoreBackend | None = None) -> ServiceReplica:
    return ServiceReplica(BANK, backend or MemoryStore(), HOME)


def balance(of: ServiceReplica, account: str) -> int:
    found = decode_result(BANK.calls["balance"], of.query(encode_call(bind(BANK.calls["balance"], (account,), {}))))
    assert isinstance(found, int)
    return found


def test_an_operation_that_comes_again_counts_once_also_after_a_restart() -> None:
    backend = MemoryStore()
    one = replica(backend)
    for _ in range(3):
        one.take(1, 1, call("deposit", "anna", 100, number=1))
    assert [(each.caller, each.number) for each in one.commit()] == [(5, 1)] and one.repeated == 2
    again = replica(backend)
    again.take(1, 1, call("deposit", "anna", 100))
    assert again.commit() == [] and balance(again, "anna") == 100


def test_results_leave_after_the_commit_and_from_the_home_alone() -> None:
    one = replica()
    one.take(1, 1, call("deposit", "anna", 100, number=1))
    one.take(1, 2, call("deposit", "anna", 100, number=2, home=8))
    one.take(2, 1, call("balance", "anna", number=3, kind=LATEST))
    answers = {each.number: each.payload for each in one.commit()}
    assert sorted(answers) == [1, 3]
    assert decode_result(BANK.calls["balance"], answers[3]) == 200
    # The other result is there for callers whose home is gone, now or later.
    assert [number for number, _ in one.ask(CALLER, [2, 9])] == [2]
    one.take(1, 3, call("deposit", "ben", 1, number=9, home=8))
    assert [each.number for each in one.commit()] == [9]


def test_a_failing_store_changes_nothing_and_the_same_is_committed_later() -> None:
    class Unreachable(MemoryStore):
        fails = False

        def commit(self, changes: Changes, position: bytes) -> None:
            if self.fails:
                raise PeerError("away")
            super().commit(changes, position)

    backend = Unreachable()
    one = replica(backend)
    backend.fails = True
    one.take(1, 1, call("deposit", "anna", 100))
    for _ in range(3):
        with pytest.raises(PeerError):
            one.commit()
    assert balance(replica(backend), "anna") == 0
    backend.fails = False
    assert len(one.commit()) == 1
    assert balance(replica(backend), "anna") == 100 and replica(backend).applied == 1


def test_calls_of_other_versions_are_answered_or_stop_an_old_replica() -> None:
    one = replica()
    body = encode(["lend", {"account": "anna"}])
    one.take(1, 1, encode(ServiceFrame(OPERATION, 5, 1, HOME, 1, body)))
    (answer,) = one.commit()
    with pytest.raises(ServiceError, match="no operation 'lend'"):
        decode_result(BANK.calls["deposit"], answer.payload)
    with pytest.raises(OutdatedReplicaError, match="version 2 of Bank, and this replica has version 1"):
        one.take(1, 2, encode(ServiceFrame(OPERATION, 5, 2, HOME, 2, body)))
    assert not one.kept.applied.has(1, 2)
    one.take(1, 3, b"no call at all")
    assert one.refused == 2 and one.kept.applied.has(1, 3)


def test_a_state_travels_as_operations_or_as_a_snapshot() -> None:
    one = replica()
    for number in range(1, 6):
        one.take(1, number, call("deposit", "anna", number))
    one.take(1, 6, encode(ServiceFrame(MARK, 0, 99, 0, 0, b"")))
    one.commit()
    assert one.has_passed(99) and not one.has_passed(98)
    assert [each[:2] for each in one.operations.since({1: [3]}) or ()] == [(1, 4), (1, 5), (1, 6)]
    other = ServiceReplica(BANK, MemoryStore(), 8)
    other.take(2, 1, call("deposit", "gone", 5))
    other.commit()
    other.restore(list(one.kept.whole()), one.kept.position())
    assert balance(other, "anna") == 15 and balance(other, "gone") == 0
    assert other.kept.ranges() == one.kept.ranges()
    # It has the operations in its state, and not as operations.
    assert other.operations.since({}) is None and other.operations.since({1: [6]}) == []


def test_recent_operations_are_given_only_if_nothing_between_is_missing() -> None:
    recent = RecentOperations({9: [2]}, most=3)
    for number in range(1, 6):
        recent.add((1, number, b""))
    assert recent.since({9: [2]}) is None, "1 and 2 are not kept"
    assert recent.since({1: [2]}) is None, "what came before is not known"
    assert [each[1] for each in recent.since({1: [2], 9: [2]}) or ()] == [3, 4, 5]
    assert [each[1] for each in recent.since({1: [2, 4, 5], 9: [2]}) or ()] == [3, 5]


def test_a_store_of_another_service_or_replica_is_refused(tmp_path: Path) -> None:
    backend = SqliteStore(tmp_path / "bank.db")
    one = replica(backend)
    one.take(1, 1, call("deposit", "anna", 100))
    one.commit()
    with pytest.raises(UsageError, match="another replica has the store"):
        SqliteStore(tmp_path / "bank.db")
    backend.close()
    backend = SqliteStore(tmp_path / "bank.db")
    assert balance(replica(backend), "anna") == 100
    backend.commit({b"\xffa" + bytes(8): b"?"}, backend.position())
    with pytest.raises(PeerError, match="damaged"):
        replica(backend)
    backend.close()


def test_silent_authors_are_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.services.applied.AUTHORS_AT_MOST", 2)
    applied = AppliedOperations()
    for author, number in ((1, 1), (2, 1), (1, 2), (3, 1)):
        assert applied.add(author, number)
    assert applied.has(1, 2) and not applied.has(2, 1) and applied.has_forgotten
    changes = applied.take_changes()
    assert changes[2] is None and sorted(changes) == [1, 2, 3]
    stored = {author: row for author, row in changes.items() if row is not None}
    assert AppliedOperations(stored).ranges() == {1: [2], 3: [1]}
    assert AppliedOperations(stored).heard_since(3) == {3: 1}


class KilledError(Exception):
    """The program ends here."""


class Mortal:
    """A backend on SQLite whose program dies at a commit: before, within or after it."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.inner = SqliteStore(path)
        self.chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, changes: Changes, position: bytes) -> None:
        fate = self.chance.randrange(4)
        if fate == 0:
            raise KilledError
        if fate == 1:
            some = dict(list(changes.items())[: self.chance.randrange(len(changes) + 1)])
            self.inner._begin()
            self.inner._database.executemany("INSERT OR REPLACE INTO antiphon_state VALUES (?, ?)", some.items())
            raise KilledError
        self.inner.commit(changes, position)
        if fate == 2:
            raise KilledError


def kill_around_commits(path: Path, wanted: int) -> None:
    """Hand in deposits to a replica whose program dies again and again, and judge what its store has."""
    chance = random.Random(3)
    messages = [
        (author, number, chance.choice(["anna", "ben"]), chance.randrange(1, 100))
        for number in range(1, 2 * wanted)
        for author in (1, 2)
    ]
    kills = handed_in = 0
    while True:
        backend = Mortal(path, chance)
        one = replica(backend)
        # Whoever hands in begins somewhere before the first that is missing, and repeats some.
        missing = next((at for at, each in enumerate(messages) if not one.kept.applied.has(*each[:2])), None)
        if missing is None:
            break
        try:
            for author, number, account, cents in messages[max(0, missing - chance.randrange(20)) :]:
                one.take(author, number, call("deposit", account, cents))
                handed_in += 1
                if chance.randrange(3) == 0:
                    one.commit()
            one.commit()
        except KilledError:
            kills += 1
        finally:
            backend.inner.close()
    assert kills >= wanted and handed_in > len(messages)
    for account in ("anna", "ben"):
        assert balance(one, account) == sum(cents for _, _, to, cents in messages if to == account)
    backend.inner.close()


def test_every_operation_counts_once_however_often_the_program_is_killed_around_a_commit(tmp_path: Path) -> None:
    kill_around_commits(tmp_path / "bank.db", 100)


@pytest.mark.campaign
def test_a_thousand_kills_around_a_commit(tmp_path: Path) -> None:
    kill_around_commits(tmp_path / "bank.db", 1000)


CHILD = """
import os, random, signal, sys, threading, time
from antiphon.services.replica import ServiceReplica
from antiphon.services.backends.sqlite_store import SqliteStore
from tests.services.test_replica import BANK, call
one = ServiceReplica(BANK, SqliteStore(sys.argv[1]), 1)
seconds = random.Random(int(sys.argv[2])).uniform(0.01, 0.06)
threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
for number in range(max(1, one.applied - 5), 1_000_000):
    one.take(1, number, call("deposit", "anna", 1, number=number))
    if number % 3 == 0:
        one.commit()
"""


def test_a_process_that_is_killed_leaves_effects_and_position_together(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    seen = -1
    for seed in range(4):
        ended = subprocess.run([sys.executable, "-c", CHILD, path, str(seed)], check=False, timeout=60)
        assert ended.returncode == -9
        backend = SqliteStore(path)
        one = replica(backend)
        # Each operation deposits one cent, so the balance is the number of operations that count.
        assert balance(one, "anna") == one.kept.ranges().get(1, [0])[0] == one.applied
        assert one.applied >= seen
        seen = one.applied
        backend.close()
    assert seen > 0
