"""Power losses: writes of a process that were not synced are gone, partly gone, or torn.

A killed process loses nothing that it wrote, because the operating system keeps its files. So processes run with a
library (``unsynced.c``) that records the previous state of every file and directory entry before each change that is
not synced yet. When a process has been killed, :meth:`FaultyDisk.lose` takes changes back, as far as a disk may lose
them:

* Each sector may be left in any state that it had since the last sync, independently of others.
* Of changed directory entries and of truncations, a prefix may survive and the rest be lost.

The extent of the loss is drawn: everything; everything after some moment, with the last write torn; or each sector
independently. This needs neither root nor a separate file system, but a C compiler.

The same library slows disks down (:meth:`FaultyDisk.slow_down`): it waits before each sync.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.kernel.errors import PeerError, UsageError

SOURCE: Final = Path(__file__).with_name("unsynced.c")
COMPILERS: Final = ("cc", "gcc", "clang")
SECTOR_BYTES: Final = 512
"""The unit that a disk writes completely or not at all."""

HEAD: Final = struct.Struct("<QQ")
RECORD: Final = struct.Struct("<QQQQQ")
ALIGNMENT: Final = 8
WRITTEN, TRUNCATED, CREATED, UNLINKED, RENAMED = range(1, 6)

EVERYTHING: Final = "everything"
LATEST: Final = "latest"
SECTORS: Final = "sectors"
WAYS: Final = (EVERYTHING, LATEST, SECTORS)
"""The extent of a loss: everything that was not synced, everything after some moment, or each sector independently."""

Survives = Callable[[int, int], bool]
"""Whether a change of a file, by its number, survives in a sector."""


def compiler() -> str | None:
    """The name of a C compiler, or None."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def compile_library(directory: Path) -> Path:
    """Compile the library to start processes with."""
    found = compiler()
    if found is None or sys.platform != "linux":
        raise UsageError(
            f"power losses and slow disks need Linux and a C compiler ({', '.join(COMPILERS)}); install one, or "
            "choose other faults"
        )
    path = directory / "unsynced.so"
    command = [found, "-shared", "-fPIC", "-O2", "-o", str(path), str(SOURCE), "-ldl", "-lpthread"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        raise PeerError(f"{SOURCE.name} could not be compiled: {compiled.stderr.strip()}; choose other faults")
    return path


class UnsyncedChange(NamedTuple):
    """One recorded change: the state before it."""

    kind: int
    offset: int
    new_length: int
    old_size: int
    old: bytes


@dataclass(frozen=True)
class Loss:
    """The extent of one power loss."""

    way: str
    changes: int
    """Changes of files and directory entries that were not synced."""
    bytes: int
    """Lost bytes."""
    names: int
    """Lost changes of directory entries."""

    def __str__(self) -> str:
        return f"{self.way}: of {self.changes} changes {self.bytes} bytes and {self.names} names are gone"


class FaultyDisk:
    """The files of one process at a time below a directory; another directory records their unsynced changes.

    With ``lies`` no sync is done though all are reported as done, as on a broken disk: the judge must notice the loss.
    """

    def __init__(self, library: Path, root: Path, journal: Path, lies: bool = False) -> None:
        self._library = library
        self._root = root
        self._journal = journal
        self._lies = lies
        self._slowness = journal.with_name(f"{journal.name}-slow")
        journal.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        """The environment variables to start the process with."""
        lies = {"UNSYNCED_LIES": "1"} if self._lies else {}
        root, journal = str(self._root.resolve()), str(self._journal.resolve())
        slow = str(self._slowness.resolve())
        unsynced = {"UNSYNCED_ROOT": root, "UNSYNCED_JOURNAL": journal, "UNSYNCED_SLOW": slow}
        return {"LD_PRELOAD": str(self._library.resolve()), **unsynced, **lies}

    def slow_down(self, seconds_per_sync: float) -> None:
        """Delay each sync by so much from now on, also for the running process; 0 for a healthy disk."""
        partial = self._slowness.with_suffix(".partial")
        partial.write_text(str(round(seconds_per_sync * 1e6)))
        partial.replace(self._slowness)

    def forget(self) -> None:
        """Drop all records: the files were removed, or count as synced."""
        shutil.rmtree(self._journal)
        self._journal.mkdir()

    def lose(self, chance: random.Random, way: str | None = None) -> Loss:
        """Take back some unsynced changes of the ended process; the extent is drawn, unless ``way`` is given."""
        way = way or chance.choice(WAYS)
        paths = {path.stat().st_ino: path for path in self._paths()}
        changes = lost_bytes = lost_names = 0
        for note in sorted(self._journal.glob("file-*")):
            path = paths.get(number_in(note))
            if path is not None:
                found = list(changes_in(note))
                changes += len(found)
                lost_bytes += lose_bytes(path, found, way, chance)
        for note in sorted(self._journal.glob("names-*")):
            found = list(changes_in(note))
            changes += len(found)
            lost = len(found) if way == EVERYTHING else chance.randint(0, len(found))
            lost_names += lost
            # A directory may be gone together with its entry in another one.
            if paths[number_in(note)].exists():
                for change in reversed(found[len(found) - lost :]):
                    self._take_back(paths[number_in(note)], number_in(note), change)
        self.forget()
        return Loss(way, changes, lost_bytes, lost_names)

    def _paths(self) -> Iterator[Path]:
        """All paths that may have a record: the directory, everything in it, and files that were put aside."""
        yield self._root
        yield from (path for path in self._root.rglob("*") if not path.is_symlink())
        yield from self._journal.glob("saved-*")

    def _take_back(self, directory: Path, number: int, change: UnsyncedChange) -> None:
        """Undo a change of a directory entry; a change that failed left no trace."""
        first, *others = (directory / name.decode() for name in change.old.rstrip(b"\0").split(b"\0"))
        aside = self._journal / f"saved-{number}-{change.offset}"
        if change.kind == CREATED and first.is_dir():
            shutil.rmtree(first)
        elif change.kind == CREATED:
            first.unlink(missing_ok=True)
        elif change.kind == UNLINKED and not first.exists():
            os.link(aside, first)
        elif change.kind == RENAMED and not first.exists():
            others[0].rename(first)
            if change.offset:
                os.link(aside, others[0])


def number_in(note: Path) -> int:
    """The number of the file or directory that a record is about."""
    return int(note.name.split("-")[1])


def changes_in(note: Path) -> Iterator[UnsyncedChange]:
    """The changes of a record, oldest first."""
    with note.open("rb") as file:
        used, _ = HEAD.unpack(file.read(HEAD.size))
        records = file.read(used)
    place = 0
    while place < used:
        kind, offset, length, new_length, old_size = RECORD.unpack_from(records, place)
        place += RECORD.size
        yield UnsyncedChange(kind, offset, new_length, old_size, records[place : place + length])
        place += -(-length // ALIGNMENT) * ALIGNMENT


def lose_bytes(path: Path, changes: list[UnsyncedChange], way: str, chance: random.Random) -> int:
    """Take back changes of a file, and redo those that survive; returns the number of lost bytes."""
    with path.open("r+b") as file:
        descriptor = file.fileno()
        again = [undone(descriptor, change) for change in reversed(changes)][::-1]
        survives = drawn(changes, way, chance)
        lost = 0
        for number, (change, new) in enumerate(zip(changes, again, strict=True)):
            if new is None:
                if survives(number, -1):
                    os.ftruncate(descriptor, change.offset)
                continue
            for start, end in sectors_of(change.offset, len(new)):
                if survives(number, start // SECTOR_BYTES):
                    os.pwrite(descriptor, new[start - change.offset : end - change.offset], start)
                else:
                    lost += end - start
    return lost


def undone(descriptor: int, change: UnsyncedChange) -> bytes | None:
    """Undo one change after all later ones are undone; returns the bytes that it had written, or None for a truncation.

    A process may have been killed between the record of a change and the change.
    """
    new: bytes | None = None
    if change.kind == WRITTEN:
        new = os.pread(descriptor, change.new_length, change.offset)
    elif os.fstat(descriptor).st_size != change.offset:
        new = b""
    os.pwrite(descriptor, change.old, change.offset)
    os.ftruncate(descriptor, change.old_size)
    return new


def sectors_of(offset: int, length: int) -> Iterator[tuple[int, int]]:
    """The offsets at which the parts of a range begin and end that lie in one sector each."""
    start = offset
    while start < offset + length:
        end = min(offset + length, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, end
        start = end


def drawn(changes: list[UnsyncedChange], way: str, chance: random.Random) -> Survives:
    """Draw which changes of a file survive in which sectors; in each sector they survive up to some moment.

    The sector -1 stands for the end of the file.
    """
    if way == SECTORS:
        first_lost: defaultdict[int, int] = defaultdict(lambda: chance.randint(0, len(changes)))
        return lambda number, sector: number < first_lost[sector]
    moment = 0 if way == EVERYTHING else chance.randint(0, len(changes))
    torn_at = 0
    if way == LATEST and moment < len(changes):
        change = changes[moment]
        torn_at = chance.randint(0, change.new_length) + change.offset
    return lambda number, sector: (
        number < moment or (number == moment and sector >= 0 and (sector + 1) * SECTOR_BYTES <= torn_at)
    )
