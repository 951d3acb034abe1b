"""Services over PostgreSQL: a server of the machine's own package, started here as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
import antiphon.testing
from antiphon.kernel.errors import PeerError
from antiphon.services.errors import TablesError
from antiphon.services.replica import ServiceReplica
from antiphon.services.replica_store import StateLostError
from antiphon.testing import Cluster
from tests.services.bank import Bank
from tests.services.test_replica import BANK, balance, call
from tests.services.test_results import check_results

psycopg = pytest.importorskip("psycopg")

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


class Server:
    """A PostgreSQL server on a free port of the loopback interface, with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.binaries = BINARIES[-1]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        # PostgreSQL does not run as root.
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            self.user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        subprocess.run(
            [self.binaries / "initdb", "-D", self.data, "-U", "bank", "-A", "trust", "--no-sync", "-E", "UTF8"],
            check=True,
            capture_output=True,
            cwd=directory,
            **self.user,
        )

    def start(self) -> None:
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        self.process = subprocess.Popen(
            [self.binaries / "postgres", "-D", self.data, *(f"--{name}={value}" for name, value in options.items())],
            stderr=subprocess.DEVNULL,
            cwd=self.data,
            **self.user,
        )
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                psycopg.connect(self.address("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("PostgreSQL does not start")

    def address(self, database: str) -> str:
        return f"postgresql://bank@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.address(database)

    def kill(self) -> None:
        assert self.process is not None
        # The postmaster takes its processes with it; SIGKILL would leave their shared memory behind.
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if not BINARIES:
        pytest.skip("PostgreSQL is not installed")
    directory = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
    found = Server(directory)
    found.start()
    yield found
    found.kill()
    shutil.rmtree(directory)


def test_results_are_in_the_database(server: Server) -> None:
    from antiphon.services.backends.postgres_store import PostgresStore

    address = server.create("results")
    check_results(PostgresStore(address), lambda: PostgresStore(address))


def test_a_snapshot_has_the_tables_of_the_schema(server: Server) -> None:
    from antiphon.services.backends.postgres_store import PostgresStore

    def contents(address: str) -> list[Any]:
        with psycopg.connect(address) as database:
            found = [
                database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in ("people", '"Odd name"')
            ]
            kinds = "SELECT conname FROM pg_constraint WHERE conrelid = 'people'::regclass ORDER BY 1"
            indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 'people' ORDER BY 1"
            return [*found, database.execute(kinds).fetchall(), database.execute(indexes).fetchall()]

    addresses = [server.create(name) for name in ("giving", "taking", "third")]
    giving, taking = (ServiceReplica(BANK, PostgresStore(address), 1) for address in addresses[:2])
    giving.take(1, 1, call("deposit", "anna", 100))
    giving.commit()
    with psycopg.connect(addresses[0]) as database:
        database.execute("CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL DEFAULT 'x', big numeric(9, 2))")
        database.execute("CREATE INDEX by_name ON people (lower(name))")
        database.execute('CREATE TABLE "Odd name" (id int REFERENCES people, raw bytea, twice int)')
        database.execute("INSERT INTO people SELECT n, E'tab\\tline\\n' || n, n / 3.0 FROM generate_series(1, 5000) n")
        database.execute("""INSERT INTO "Odd name" VALUES (7, '\\x00ff', NULL)""")
    taking.restore(list(giving.kept.whole()), giving.kept.position())
    assert contents(addresses[1]) == contents(addresses[0]) and balance(taking, "anna") == 100
    # A second time it replaces what is there.
    taking.restore(list(giving.kept.whole()), giving.kept.position())
    assert contents(addresses[1]) == contents(addresses[0])
    third = ServiceReplica(BANK, PostgresStore(addresses[2]), 1)
    with psycopg.connect(addresses[2]) as database:
        database.execute("CREATE TABLE stray (x int)")
    with pytest.raises(TablesError, match="tables that the others do not have: stray"):
        third.restore(list(giving.kept.whole()), giving.kept.position())
    with psycopg.connect(addresses[0]) as database:
        database.execute("CREATE TABLE counted (id serial)")
    with pytest.raises(TablesError, match="takes its numbers from a sequence"):
        list(giving.kept.whole())
    for each in (giving, taking, third):
        each.kept.close()


def test_a_replica_finds_out_what_the_database_has_after_a_failure(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from antiphon.services.backends.postgres_store import PostgresStore

    address = server.create("alone")
    backend = PostgresStore(address)
    with pytest.raises(PeerError, match="another replica uses this schema"):
        PostgresStore(address)
    one = ServiceReplica(BANK, backend, 7)
    one.take(1, 1, call("deposit", "anna", 100, number=1))
    one.commit()
    one.take(1, 2, call("deposit", "anna", 1, number=2))
    # The connection breaks before the commit: what was open is to be taken again.
    assert backend._database is not None
    backend._database.close()
    with pytest.raises(PeerError):
        one.commit()
    answers, again = one.recover()
    assert answers == [] and [each[:2] for each in again] == [(1, 2)]
    for each in again:
        one.take(*each)
    # The answer of the database is lost: the commit took place, and its results are there.
    real = backend._write

    def unanswered(*arguments: Any) -> None:
        real(*arguments)
        raise backend._psycopg.OperationalError("gone")

    monkeypatch.setattr(backend, "_write", unanswered)
    with pytest.raises(PeerError):
        one.commit()
    answers, again = one.recover()
    assert [each.number for each in answers] == [2] and again == []
    monkeypatch.undo()
    assert balance(one, "anna") == 101
    # The database is back at an earlier commit, as after a fail-over.
    with psycopg.connect(address) as other:
        early = other.execute("SELECT position FROM antiphon_position").fetchone()
        one.take(1, 3, call("deposit", "anna", 1, number=3))
        one.commit()
        other.execute("UPDATE antiphon_position SET position = %s", early)
    with pytest.raises(StateLostError):
        one.recover()
    backend.close()


@antiphon.testing.with_cluster(nodes=2, durable=True)
async def test_replicas_over_postgresql_survive_its_restart(cluster: Cluster, server: Server, tmp_path: Path) -> None:
    databases = [server.create(f"bank{place}") for place in range(2)]
    first = await antiphon.serve(Bank, cluster.nodes[0], store=databases[0])
    second = await antiphon.serve(Bank, cluster.nodes[1], store=databases[1])
    third = await antiphon.serve(Bank, await cluster.connect(0), store=tmp_path / "bank.db")
    bank = Bank.proxy(await cluster.connect(1), timeout=60)
    assert await bank.deposit("anna", 100) == 100
    assert await bank.transfer("anna", "ben", 30)
    server.kill()
    calls = [asyncio.ensure_future(bank.deposit("anna", 1)) for _ in range(20)]
    # The replica over SQLite answers meanwhile.
    assert max(await asyncio.gather(*calls)) == 90
    server.start()
    while len({each.operations for each in (first, second, third)}) > 1 or not first._live.is_established:
        await asyncio.sleep(0.1)
    states = [dict(each._live.replica.kept.scan(b"")) for each in (first, second, third)]
    assert states[0] == states[1] == states[2]
    assert await Bank.proxy(cluster.nodes[0]).balance("anna") == 90
    for served in (third, second, first):
        await served.close()
    # It goes on from there.
    again = await antiphon.serve(Bank, cluster.nodes[0], store=databases[0])
    assert await Bank.proxy(cluster.nodes[0]).balance("anna") == 90
    await again.close()


class Ledger(antiphon.Service):
    """A service with a table of its own."""

    @antiphon.operation(order="total", keys=("account",), raises=(ValueError,))
    def book(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
        store.connection.execute("INSERT INTO bookings VALUES (%s, %s)", (account, cents))
        total = store.connection.execute("SELECT sum(cents) FROM bookings WHERE account = %s", (account,)).fetchone()[0]
        if total < 0:
            raise ValueError(account)
        return int(total)


@antiphon.testing.with_cluster(nodes=1)
async def test_an_operation_uses_tables_of_the_database_in_its_transaction(cluster: Cluster, server: Server) -> None:
    address = server.create("ledger")
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE bookings (account text, cents integer)")
    async with antiphon.serve(Ledger, cluster.nodes[0], store=address):
        ledger = Ledger.proxy(cluster.nodes[0])
        assert await ledger.book("anna", 5) == 5
        with pytest.raises(ValueError, match="anna"):
            await ledger.book("anna", -9)
        assert await ledger.book("anna", 2) == 7
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT cents FROM bookings ORDER BY cents").fetchall() == [(2,), (5,)]
