"""Embedded stores under the load of a durable log: group commits of batches of about 7 KB, made durable every time.

    python benchmarks/stores.py [--directory DIR] [--flips N]

SQLite comes with Python; ``lmdb`` and ``rocksdict`` are compared where they are installed (``pip install lmdb
rocksdict``). What is measured, for each store in the same run:

- microseconds per batch in group commits of 1, 10 and 100 batches, each made durable with the strongest promise that
  the store offers, and how long another Python thread had to stand still meanwhile (the lock of the interpreter);
- reading everything in order, 16 batches per call;
- a process killed with SIGKILL while it commits: what is missing afterwards, and how long opening takes;
- removing the oldest 90 percent over and over: whether the file stays bounded;
- one flipped bit somewhere in the files of a closed or a killed store: refused, noticed while reading, harmless, or
  else: wrong data, fewer entries without a word, or a dead process.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

RECORDS_PER_BATCH = 64
BYTES_PER_RECORD = 110
BATCH_BYTES = RECORDS_PER_BATCH * BYTES_PER_RECORD
KEEP_ENTRIES = 400


class Store(Protocol):
    """What the log needs of a store: integer keys in order, byte values."""

    def commit(self, first: int, blobs: list[bytes]) -> None:
        """Write entries ``first``, ``first + 1``, ... and make them durable."""

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        """Up to ``count`` entries from ``first`` on."""

    def remove_before(self, key: int) -> None:
        """Remove what is older."""

    def close(self) -> None:
        """Close."""


class SqliteStore:
    """SQLite with a write-ahead log and ``synchronous=FULL``: one fsync per commit."""

    def __init__(self, directory: Path) -> None:
        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None, check_same_thread=False)
            connection.execute("pragma journal_mode=wal")
            connection.execute("pragma synchronous=full")
            return connection

        directory.mkdir(exist_ok=True)
        # Pages larger than usual: a batch of 7 KB then needs one page, not a chain of two.
        create = sqlite3.connect(directory / "log.sqlite")
        create.execute("pragma page_size=16384")
        create.execute("create table if not exists entry (key integer primary key, blob blob)")
        create.close()
        self.writer, self.reader = connect(), connect()

    def commit(self, first: int, blobs: list[bytes]) -> None:
        """Write and sync."""
        self.writer.execute("begin immediate")
        self.writer.executemany("insert into entry values (?, ?)", enumerate(blobs, first))
        self.writer.execute("commit")

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        """Read in order."""
        query = "select key, blob from entry where key >= ? order by key limit ?"
        return self.reader.execute(query, (first, count)).fetchall()

    def remove_before(self, key: int) -> None:
        """Remove what is older."""
        self.writer.execute("delete from entry where key < ?", (key,))

    def close(self) -> None:
        """Close."""
        self.reader.close()
        self.writer.close()


class LmdbStore:
    """LMDB with its defaults: two syncs per commit, one for the data and one for the root."""

    def __init__(self, directory: Path) -> None:
        import lmdb

        self.environment: Any = lmdb.open(str(directory), map_size=1 << 32, lock=True)

    def commit(self, first: int, blobs: list[bytes]) -> None:
        """Write and sync."""
        with self.environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            items = [(key.to_bytes(8, "big"), blob) for key, blob in enumerate(blobs, first)]
            cursor.putmulti(items, append=True)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        """Read in order."""
        found = []
        with self.environment.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(first.to_bytes(8, "big")):
                for key, blob in cursor:
                    found.append((int.from_bytes(key, "big"), blob))
                    if len(found) == count:
                        break
        return found

    def remove_before(self, key: int) -> None:
        """Remove what is older."""
        with self.environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            more = cursor.first()
            while more and int.from_bytes(cursor.key(), "big") < key:
                more = cursor.delete()

    def close(self) -> None:
        """Close."""
        self.environment.close()


class RocksStore:
    """RocksDB with synced writes; its log must be whole except for a tail that is too short."""

    def __init__(self, directory: Path) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_paranoid_checks(True)
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self.module: Any = rocksdict
        self.database: Any = rocksdict.Rdict(str(directory), options)
        self.synced: Any = rocksdict.WriteOptions()
        self.synced.sync = True

    def commit(self, first: int, blobs: list[bytes]) -> None:
        """Write and sync."""
        group = self.module.WriteBatch(raw_mode=True)
        for key, blob in enumerate(blobs, first):
            group.put(key.to_bytes(8, "big"), blob)
        self.database.write(group, self.synced)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        """Read in order."""
        cursor = self.database.iter()
        cursor.seek(first.to_bytes(8, "big"))
        found = []
        while len(found) < count and cursor.valid():
            found.append((int.from_bytes(cursor.key(), "big"), cursor.value()))
            cursor.next()
        cursor.status()
        return found

    def remove_before(self, key: int) -> None:
        """Remove what is older."""
        self.database.delete_range((0).to_bytes(8, "big"), key.to_bytes(8, "big"))

    def close(self) -> None:
        """Close."""
        self.database.close()


STORES: dict[str, tuple[str, Callable[[Path], Store]]] = {
    "SQLite": ("sqlite3", SqliteStore),
    "LMDB": ("lmdb", LmdbStore),
    "RocksDB": ("rocksdict", RocksStore),
}


def blob_of(key: int) -> bytes:
    """The entry of a key, with a checksum in front; anybody can tell whether it is right."""
    body = random.Random(key).randbytes(64) * (BATCH_BYTES // 64)
    return crc32(body).to_bytes(4, "little") + body


def bytes_in(directory: Path) -> int:
    """Blocks that the files of a store really take."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def longest_pause(stop: threading.Event, pauses: list[float]) -> None:
    """How long this thread stood still, in seconds; it only asks for the interpreter again and again."""
    last = time.perf_counter()
    while not stop.is_set():
        time.sleep(0)
        now = time.perf_counter()
        pauses.append(now - last)
        last = now


def commit_cost(open_store: Callable[[Path], Store], directory: Path, group: int, commits: int) -> float:
    """Median microseconds per batch in group commits."""
    store = open_store(directory)
    blobs = [blob_of(key) for key in range(group)]
    times = []
    for number in range(commits):
        started = time.perf_counter()
        store.commit(number * group, blobs)
        times.append((time.perf_counter() - started) / group * 1e6)
    store.close()
    return statistics.median(times)


def pause_of_others(open_store: Callable[[Path], Store], directory: Path) -> float:
    """The longest wait of another thread for the interpreter during commits of 100, in microseconds."""
    store = open_store(directory)
    blobs = [blob_of(key) for key in range(100)]
    stop, pauses = threading.Event(), list[float]()
    thread = threading.Thread(target=longest_pause, args=(stop, pauses))
    thread.start()
    for number in range(10):
        store.commit(number * 100, blobs)
    stop.set()
    thread.join()
    store.close()
    return max(pauses) * 1e6


def read_rate(open_store: Callable[[Path], Store], directory: Path, entries: int) -> float:
    """Mebibytes per second read in order, from memory the operating system still holds."""
    store = open_store(directory)
    for first in range(0, entries, 100):
        store.commit(first, [blob_of(key) for key in range(first, first + 100)])
    started, key, read = time.perf_counter(), 0, 0
    while found := store.read(key, 16):
        key = found[-1][0] + 1
        read += sum(len(blob) for _, blob in found)
    seconds = time.perf_counter() - started
    store.close()
    assert key == entries
    return read / seconds / 2**20


def retention(open_store: Callable[[Path], Store], directory: Path) -> tuple[float, float]:
    """Mebibytes on disk after 4,000 entries of which 400 are kept, and microseconds per entry removed."""
    store, removing = open_store(directory), 0.0
    for first in range(0, 4000, 100):
        store.commit(first, [blob_of(0)] * 100)
        started = time.perf_counter()
        store.remove_before(max(0, first + 100 - KEEP_ENTRIES))
        removing += time.perf_counter() - started
    store.close()
    return bytes_in(directory) / 2**20, removing / (4000 - KEEP_ENTRIES) * 1e6


def after_kill(name: str, directory: Path) -> tuple[int, float]:
    """Kill a process that commits: how many acknowledged entries are missing, and milliseconds until it is open."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", "commit", "--store", name, "--directory", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    acknowledged = -1
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged >= 300:
            child.send_signal(signal.SIGKILL)
            break
    for line in child.stdout:
        acknowledged = int(line) if line.endswith("\n") else acknowledged
    child.wait()
    started = time.perf_counter()
    store = STORES[name][1](directory)
    milliseconds = (time.perf_counter() - started) * 1e3
    present = {key for key, blob in everything(store) if blob == blob_of(key)}
    store.close()
    return acknowledged + 1 - len(present & set(range(acknowledged + 1))), milliseconds


def everything(store: Store) -> Iterator[tuple[int, bytes]]:
    """All entries, in order."""
    key = 0
    while found := store.read(key, 16):
        yield from found
        key = found[-1][0] + 1


def commit_for_ever(store: Store) -> None:
    """Commit in groups of 10 and acknowledge each on standard output, until killed."""
    first = 0
    while True:
        store.commit(first, [blob_of(key) for key in range(first, first + 10)])
        first += 10
        os.write(1, f"{first - 1}\n".encode())


def verdict_of(name: str, directory: Path, entries: int) -> str:
    """Open and read a store that may be damaged, in this process; the caller runs it in a process of its own."""
    store = STORES[name][1](directory)
    keys = []
    for key, blob in everything(store):
        if blob[:4] != crc32(blob[4:]).to_bytes(4, "little"):
            return "noticed by our checksum"
        if blob != blob_of(key):
            return "wrong data"
        keys.append(key)
    store.close()
    if keys == list(range(len(keys))) and len(keys) < entries:
        return "the last ones missing without a word"
    return "harmless" if keys == list(range(entries)) else "others missing without a word"


def flips(name: str, directory: Path, count: int) -> Counter[str]:
    """Flip one bit, open, read; repeated on fresh copies of a small store whose process was killed."""
    original, copy, results = directory / "original", directory / "copy", Counter[str]()
    script = [sys.executable, __file__, "--store", name, "--directory"]
    subprocess.run([*script, str(original), "--child", "fill"], check=True)
    generator = random.Random(7)
    for _ in range(count):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        # Weighted by what is used, not by the length of sparse files.
        files = [path for path in copy.rglob("*") if path.is_file() and path.stat().st_blocks and path.name != "LOG"]
        path = generator.choices(files, [path.stat().st_blocks for path in files])[0]
        content = bytearray(path.read_bytes())
        position = generator.randrange(min(len(content), path.stat().st_blocks * 512))
        if generator.random() < 0.5:  # half of them in what is not payload: the beginning of a page
            position = position // 4096 * 4096 + generator.randrange(64)
        position = min(position, len(content) - 1)
        content[position] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        done = subprocess.run([*script, str(copy), "--child", "judge"], capture_output=True, text=True, check=False)
        if done.returncode < 0:
            results[f"process died of {signal.Signals(-done.returncode).name}"] += 1
        elif done.returncode > 0:
            results["refused by the store"] += 1
        else:
            results[done.stdout.strip()] += 1
    return results


def fill_and_die(store: Store) -> None:
    """200 entries in small commits, some removed and written again elsewhere, then the end without closing."""
    for first in range(0, 200, 5):
        store.commit(first, [blob_of(key) for key in range(first, first + 5)])
    os.kill(os.getpid(), signal.SIGKILL)


def child(action: str, name: str, directory: Path) -> None:
    """What this script does when it calls itself."""
    if action == "judge":
        print(verdict_of(name, directory, 200))
        return
    if action == "fill":
        if os.fork():  # the parent reports success although the child dies as it should
            os.wait()
            return
        fill_and_die(STORES[name][1](directory))
    commit_for_ever(STORES[name][1](directory))


def compare(base: Path, flip_count: int) -> None:
    """Run everything and print a table."""
    rows: list[tuple[str, list[str]]] = []
    names = [name for name, (module, _) in STORES.items() if importlib.util.find_spec(module)]
    for name in STORES:
        if name not in names:
            print(f"{name} is not installed; pip install {STORES[name][0]}", file=sys.stderr)
    columns: dict[str, list[str]] = {}
    damage: dict[str, Counter[str]] = {}
    for name in names:
        open_store, number = STORES[name][1], iter(range(100))

        def fresh(name: str = name, number: Iterator[int] = number) -> Path:
            directory = base / f"{name}-{next(number)}"
            directory.mkdir()
            return directory

        costs = [
            commit_cost(open_store, fresh(), group, commits) for group, commits in ((1, 300), (10, 100), (100, 20))
        ]
        pause = pause_of_others(open_store, fresh())
        rate = read_rate(open_store, fresh(), 5000)
        size, removing = retention(open_store, fresh())
        missing, opening = after_kill(name, fresh())
        columns[name] = [*(f"{cost:.0f}" for cost in costs), f"{pause:.0f}", f"{rate:.0f}", f"{size:.1f}"]
        columns[name] += [f"{removing:.1f}", f"{missing}", f"{opening:.1f}"]
        damage[name] = flips(name, fresh(), flip_count)
    labels = ["commit of 1, us per batch", "commit of 10, us per batch", "commit of 100, us per batch"]
    labels += ["another thread waits at worst, us", "reading in order, MiB/s", "2.7 MiB kept of 27, MiB on disk"]
    labels += ["removing, us per batch", "missing after kill -9", "opening after kill -9, ms"]
    rows = [(label, [columns[name][row] for name in names]) for row, label in enumerate(labels)]
    for verdict in sorted({verdict for counter in damage.values() for verdict in counter}):
        rows.append((f"flipped bit: {verdict}", [str(damage[name][verdict]) for name in names]))
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for label, cells in rows:
        print(f"| {label} | " + " | ".join(cells) + " |")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description="Embedded stores under the load of a durable log.")
    parser.add_argument("--directory", type=Path, help="where to write; on the disk that is to be measured")
    parser.add_argument("--flips", type=int, default=100, help="how many damaged copies of each store are tried")
    parser.add_argument("--child", choices=["commit", "fill", "judge"], help=argparse.SUPPRESS)
    parser.add_argument("--store", choices=list(STORES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.store, arguments.directory)
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as base:
        compare(Path(base), arguments.flips)


if __name__ == "__main__":
    main()
