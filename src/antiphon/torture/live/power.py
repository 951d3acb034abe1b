"""Losses of power: what a process wrote and did not sync is gone, or a part of it, or it is torn.

A process that is killed loses nothing that it wrote, because the system that keeps its files goes on. So processes run
with a library (``unsynced.c``) that notes how every file and every name was before each change that is not synced yet.
When one of them has been killed, :meth:`Disk.lose` takes changes back, as far as a disk may lose them:

* Of each sector any state may be left that it ever had since the last sync, whatever is left of others.
* Of changed names, and of cuts at the end of a file, the first ones may be left, and the later ones not.

What is taken back is drawn: everything; all behind some moment, where the last write is torn; or each sector by itself.
Neither root nor a file system of its own is needed, but a C compiler is.

The same library makes disks slow (:meth:`Disk.slow_down`): it waits before it syncs.
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
"""What a disk writes completely or not at all."""

HEAD: Final = struct.Struct("<QQ")
RECORD: Final = struct.Struct("<QQQQQ")
ALIGNMENT: Final = 8
WRITTEN, TRUNCATED, CREATED, UNLINKED, RENAMED = range(1, 6)

EVERYTHING: Final = "everything"
LATEST: Final = "latest"
SECTORS: Final = "sectors"
WAYS: Final = (EVERYTHING, LATEST, SECTORS)
"""How much is lost: all that was not synced, all behind some moment, or each sector by itself."""

Survives = Callable[[int, int], bool]
"""Whether a change of a file, by its number, is left in a sector."""


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def compile_library(directory: Path) -> Path:
    """Compile the library that processes are to be started with."""
    found = compiler()
    if found is None or sys.platform != "linux":
        raise UsageError(
            f"losses of power and slow disks need Linux and a C compiler ({', '.join(COMPILERS)}); install one, or "
            "name other faults"
        )
    path = directory / "unsynced.so"
    command = [found, "-shared", "-fPIC", "-O2", "-o", str(path), str(SOURCE), "-ldl", "-lpthread"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        raise PeerError(f"{SOURCE.name} could not be compiled: {compiled.stderr.strip()}; name other faults")
    return path


class Change(NamedTuple):
    """One record of a note: what was there before a change."""

    kind: int
    offset: int
    new_length: int
    old_size: int
    old: bytes


@dataclass(frozen=True)
class Loss:
    """What a loss of power has taken."""

    way: str
    changes: int
    """Changes of files and names that were not synced."""
    bytes: int
    """How many bytes of them are gone."""
    names: int
    """How many changes of names are gone."""

    def __str__(self) -> str:
        return f"{self.way}: of {self.changes} changes {self.bytes} bytes and {self.names} names are gone"


class Disk:
    """The files below a directory of one process at a time, whose unsynced changes are noted in another directory.

    With ``lies`` no sync is done though all are said to be: what a broken disk does, to see whether anybody notices.
    """

    def __init__(self, library: Path, root: Path, journal: Path, lies: bool = False) -> None:
        self._library = library
        self._root = root
        self._journal = journal
        self._lies = lies
        self._slowness = journal.with_name(f"{journal.name}-slow")
        journal.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        """What the process is to be started with."""
        lies = {"UNSYNCED_LIES": "1"} if self._lies else {}
        root, journal = str(self._root.resolve()), str(self._journal.resolve())
        slow = str(self._slowness.resolve())
        unsynced = {"UNSYNCED_ROOT": root, "UNSYNCED_JOURNAL": journal, "UNSYNCED_SLOW": slow}
        return {"LD_PRELOAD": str(self._library.resolve()), **unsynced, **lies}

    def slow_down(self, seconds_per_sync: float) -> None:
        """Let each sync take so much longer from now on, also for the process that runs; 0 for a disk that is well."""
        partial = self._slowness.with_suffix(".partial")
        partial.write_text(str(round(seconds_per_sync * 1e6)))
        partial.replace(self._slowness)

    def forget(self) -> None:
        """Nothing of what was written is there any more, or all of it is there to stay."""
        shutil.rmtree(self._journal)
        self._journal.mkdir()

    def lose(self, chance: random.Random, way: str | None = None) -> Loss:
        """Take back a part of what the process, which has ended, had not synced; how is drawn, unless it is said."""
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
            # A directory may be gone with the name that it had in another one.
            if paths[number_in(note)].exists():
                for change in reversed(found[len(found) - lost :]):
                    self._take_back(paths[number_in(note)], number_in(note), change)
        self.forget()
        return Loss(way, changes, lost_bytes, lost_names)

    def _paths(self) -> Iterator[Path]:
        """Everything that may have a note: the directory, all in it, and files that were put aside."""
        yield self._root
        yield from (path for path in self._root.rglob("*") if not path.is_symlink())
        yield from self._journal.glob("saved-*")

    def _take_back(self, directory: Path, number: int, change: Change) -> None:
        """Undo a change of a name; one that failed has left no trace."""
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
    """The number of the file or directory that a note is about."""
    return int(note.name.split("-")[1])


def changes_in(note: Path) -> Iterator[Change]:
    """The records of a note, oldest first."""
    with note.open("rb") as file:
        used, _ = HEAD.unpack(file.read(HEAD.size))
        records = file.read(used)
    place = 0
    while place < used:
        kind, offset, length, new_length, old_size = RECORD.unpack_from(records, place)
        place += RECORD.size
        yield Change(kind, offset, new_length, old_size, records[place : place + length])
        place += -(-length // ALIGNMENT) * ALIGNMENT


def lose_bytes(path: Path, changes: list[Change], way: str, chance: random.Random) -> int:
    """Take changes of a file back, and make again what is left of them; how many bytes are gone."""
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


def undone(descriptor: int, change: Change) -> bytes | None:
    """Undo one change, behind which all are undone; the bytes that it had written, or none if it made the file end.

    A process may have been killed before it had done what it had noted.
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
    """Where the parts of a range begin and end that lie in one sector each."""
    start = offset
    while start < offset + length:
        end = min(offset + length, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, end
        start = end


def drawn(changes: list[Change], way: str, chance: random.Random) -> Survives:
    """Draw which changes of a file are left, and in which sectors; those of a sector are left up to some moment.

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
