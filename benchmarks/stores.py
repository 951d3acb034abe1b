"""Embedded stores under the load of a durable log: group commits of batches of about 7 KB, made durable every time.

    python benchmarks/stores.py [--directory DIR] [--flips N]

SQLite comes with Python; ``lmdb`` and ``rocksdict`` are compared where they are installed (``pip install lmdb
rocksdict``). What is measured, for each store in the same run:

- microseconds per batch in group commits of 1, 10 and 100 batches, each made durable with the strongest promise that
  the store offers: elapsed, and of the processor;
- whether other threads of Python, such as an event loop, can run while a commit waits for the disk;
- reading everything in order, 16 batches per call;
- a process killed with SIGKILL while it commits: what is missing afterwards, and how long opening takes;
- removing the oldest over and over: what the files take in the end;
- one flipped bit somewhere in the files of a store whose process was killed: refused, noticed by the checksum of an
  entry, harmless, or else: wrong data, fewer entries without a word, or a dead process.

A second table has the same figures for Antiphon's own log, where Antiphon can be imported.
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
from dataclasses import dataclass
from itertools import count
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
        # Pages larger than usual cost less processor time with batches of 7 KB.
        create = sqlite3.connect(directory / "log.sqlite")
        create.execute("pragma page_size=16384")
        create.execute("create table if not exists entry (key integer primary key, blob blob)")
        create.close()
        self.writer, self.reader = connect(), connect()

    def commit(self, first: int, blobs: list[bytes]) -> None:
        """Write and sync."""
        self.writer.execute("begin immediate")
        for start in range(0, len(blobs), 100):
            part = blobs[start : start + 100]
            values = [value for row in enumerate(part, first + start) for value in row]
            self.writer.execute(f"insert into entry values {','.join(['(?,?)'] * len(part))}", values)
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
        found: list[tuple[int, bytes]] = []
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


@dataclass
class Cost:
    """Microseconds per batch."""

    elapsed: float
    processor: float


def commit_cost(open_store: Callable[[Path], Store], directory: Path, group: int, commits: int) -> Cost:
    """The median of what has elapsed, and the mean of the processor time of all threads."""
    store = open_store(directory)
    blobs = [blob_of(key) for key in range(group)]
    times, processor = [], time.process_time()
    for number in range(commits):
        started = time.perf_counter()
        store.commit(number * group, blobs)
        times.append((time.perf_counter() - started) / group * 1e6)
    processor = time.process_time() - processor
    store.close()
    return Cost(statistics.median(times), processor / commits / group * 1e6)


def turns_of_another_thread(open_store: Callable[[Path], Store], directory: Path) -> float:
    """How often another thread gets its turn during a commit of 100, if nobody is made to give up the interpreter.

    None means that the store keeps it while it waits for the disk: an event loop would stand still as long.
    """
    store = open_store(directory)
    blobs = [blob_of(key) for key in range(100)]
    turns, stop, counts = [0], threading.Event(), []

    def count_turns() -> None:
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0)

    thread, interval = threading.Thread(target=count_turns), sys.getswitchinterval()
    sys.setswitchinterval(60)
    thread.start()
    for number in range(30):
        before = turns[0]
        store.commit(number * 100, blobs)
        counts.append(turns[0] - before)
    stop.set()
    thread.join()
    sys.setswitchinterval(interval)
    store.close()
    return statistics.median(counts)


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
    """200 entries in small commits, then the end without closing."""
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


LABELS = (
    "commit of 1: us elapsed per batch",
    "of the processor",
    "commit of 10: us elapsed per batch",
    "of the processor",
    "commit of 100: us elapsed per batch",
    "of the processor",
    "turns of another thread during a commit of 100",
    "reading in order, MiB/s",
    "2.7 MiB kept of 27: MiB on disk",
    "removing, us per batch",
    "promised and missing after kill -9",
    "opening after kill -9, ms",
)


def figures_of(name: str, fresh: Callable[[], Path]) -> list[str]:
    """The figures of one store, in the order of the labels."""
    open_store = STORES[name][1]
    figures = []
    for group, commits in ((1, 200), (10, 100), (100, 50)):
        cost = commit_cost(open_store, fresh(), group, commits)
        figures += [f"{cost.elapsed:.0f}", f"{cost.processor:.0f}"]
    figures.append(f"{turns_of_another_thread(open_store, fresh()):.0f}")
    figures.append(f"{read_rate(open_store, fresh(), 5000):.0f}")
    size, removing = retention(open_store, fresh())
    missing, opening = after_kill(name, fresh())
    return [*figures, f"{size:.1f}", f"{removing:.1f}", f"{missing}", f"{opening:.1f}"]


def compare(base: Path, names: list[str], flip_count: int) -> None:
    """Run everything and print a table."""
    columns: dict[str, list[str]] = {}
    damage: dict[str, Counter[str]] = {}
    number = count()

    def fresh() -> Path:
        directory = base / str(next(number))
        directory.mkdir()
        return directory

    for name in names:
        columns[name] = figures_of(name, fresh)
        damage[name] = flips(name, fresh(), flip_count)
    rows = [(label, [columns[name][row] for name in names]) for row, label in enumerate(LABELS)]
    verdicts = sorted({verdict for counter in damage.values() for verdict in counter})
    rows += [(f"flipped bit: {verdict}", [str(damage[name][verdict]) for name in names]) for verdict in verdicts]
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for label, cells in rows:
        print(f"| {label} | " + " | ".join(cells) + " |")


class Measured(Protocol):
    """The log, as far as it is measured here."""

    def append(self, topic: str, count: int, appended_at_us: int, batch: bytes) -> int:
        """Append a batch."""

    def commit(self) -> int:
        """Make durable."""

    def verify(self) -> int:
        """Read everything."""

    def offset_at(self, topic: str, time_us: int) -> int:
        """Look up a time."""


def measure_log(log: Measured, topic_count: int, group: int, commits: int) -> str:
    """One row: what a batch costs in the log, by stage."""
    blob, appending, committing, processor = blob_of(0), 0.0, [], time.process_time()
    for number in range(commits):
        started = time.perf_counter()
        for index in range(group):
            log.append(f"topic {index % topic_count}", RECORDS_PER_BATCH, number, blob)
        middle = time.perf_counter()
        log.commit()
        appending += middle - started
        committing.append(time.perf_counter() - middle)
    processor = time.process_time() - processor
    batches = group * commits
    started = time.perf_counter()
    read = log.verify()
    reading = (time.perf_counter() - started) / read
    started = time.perf_counter()
    for number in range(100):
        log.offset_at("topic 0", number * commits // 100)
    looking_up = (time.perf_counter() - started) / 100
    figures = [appending / batches, statistics.median(committing) / group, processor / batches, reading, looking_up]
    return " | ".join(f"{seconds * 1e6:.1f}" for seconds in figures)


def show_log(base: Path) -> None:
    """The second table."""
    from antiphon.storage.log import DurableLog

    print("| sync | topics | batches per commit | append, us per batch | commit | processor | read | time lookup |")
    print("|---" * 8 + "|")
    for sync in (True, False):
        for topic_count, group, commits in ((1, 1, 200), (1, 10, 100), (1, 100, 50), (100, 100, 50)):
            with DurableLog.open(base / f"log-{sync}-{topic_count}-{group}", sync=sync) as log:
                row = measure_log(log, topic_count, group, commits)
            print(f"| {'yes' if sync else 'no'} | {topic_count} | {group} | {row} |")


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
    installed = [name for name, (module, _) in STORES.items() if importlib.util.find_spec(module)]
    for name in STORES.keys() - installed:
        print(f"{name} is not installed; pip install {STORES[name][0]}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as base:
        compare(Path(base), installed, arguments.flips)
        if importlib.util.find_spec("antiphon"):
            print()
            show_log(Path(base))
        else:
            print("Antiphon is not installed; run make, then .venv/bin/python", file=sys.stderr)


if __name__ == "__main__":
    main()
