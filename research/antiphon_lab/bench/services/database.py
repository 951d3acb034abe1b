"""PostgreSQL servers on loopback, one or a primary with two standbys that confirm its commits; and the bank in SQL."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.node.local_cluster import free_addresses

START_SECONDS: Final = 30.0
ACCOUNTS: Final = "CREATE TABLE accounts (account text PRIMARY KEY, cents bigint NOT NULL)"
DEPOSIT: Final = """
INSERT INTO accounts VALUES (%s, %s) ON CONFLICT (account) DO UPDATE SET cents = accounts.cents + excluded.cents
RETURNING cents
"""
WITHDRAW: Final = "UPDATE accounts SET cents = cents - %s WHERE account = %s AND cents >= %s RETURNING cents"
BALANCE: Final = "SELECT cents FROM accounts WHERE account = %s"


def binaries() -> Path:
    """Where the programs of PostgreSQL are."""
    found = shutil.which("initdb")
    here = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if found is None and not here:
        raise UsageError("PostgreSQL is not installed; on Debian: apt install postgresql")
    return here[-1] if here else Path(str(found)).parent


def ordinary_user(directory: Path) -> dict[str, Any]:
    """Who runs the servers: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Databases:
    """One server, or a primary and two standbys of which one must confirm a commit."""

    def __init__(self, directory: Path, standbys: int) -> None:
        directory.chmod(0o755)
        self._directory = directory
        self._user = ordinary_user(directory)
        self._bin = binaries()
        self._ports = [int(address.rpartition(":")[2]) for address in free_addresses(standbys + 1)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._run("initdb", "-D", str(directory / "0"), "-U", "bench", "-A", "trust", "--no-sync")
        self._start(0)
        names = [f"standby{number}" for number in range(1, standbys + 1)]
        for number, name in enumerate(names, 1):
            target = directory / str(number)
            source = f"host=127.0.0.1 port={self._ports[0]} user=bench application_name={name}"
            self._run("pg_basebackup", "-D", str(target), "-d", source, "-R", "-c", "fast", "--no-sync")
            self._start(number)
        if names:
            self._execute(f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({', '.join(names)})'")
            self._execute("SELECT pg_reload_conf()")
        self._execute(ACCOUNTS)

    @property
    def address(self) -> str:
        """The database of the bank."""
        return self._address(0)

    def _address(self, number: int) -> str:
        return f"postgresql://bench@127.0.0.1:{self._ports[number]}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], capture_output=True, check=False, cwd=self._directory, **self._user
        )
        if done.returncode:
            raise PeerError(f"{program} failed: {done.stderr.decode().strip()}")

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _start(self, number: int) -> None:
        import psycopg

        data = self._directory / str(number)
        options = (f"--port={self._ports[number]}", "--listen_addresses=127.0.0.1", "--unix_socket_directories=")
        program = [str(self._bin / "postgres"), "-D", str(data), *options, "--max_connections=200"]
        process = subprocess.Popen(program, stderr=subprocess.DEVNULL, cwd=data, **self._user)
        self._processes.append(process)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self._address(number), connect_timeout=2).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > until or process.poll() is not None:
                    raise PeerError(f"PostgreSQL does not start: {error}") from error
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        """End the servers."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGQUIT)
        for process in self._processes:
            process.wait(30)
