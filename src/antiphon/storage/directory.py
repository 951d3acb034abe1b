"""The directory of a log on disk: private to its owner, with names that survive a crash.

A log holds the messages of all tenants, so only the owner of the process can read it, whatever the umask says: the
directory has mode 0700 and its files 0600. A directory of an earlier version is made private when it is opened.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from antiphon.runtime.logging import logger

UNFINISHED_NAME: Final = "log.sqlite.new"
"""Files with this beginning are not complete yet."""

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""The rights of everybody but the owner."""

log = logger("storage")


def make_directory(directory: Path) -> None:
    """Make a private directory, with those above it, and their names durable: without its name all would be lost."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    if missing:
        directory.chmod(PRIVATE_DIRECTORY)
    for made in reversed(missing):
        sync_directory(made.parent)


def make_private(directory: Path) -> None:
    """Take the rights of others away from a directory and its files; if the system refuses, the log line says so."""
    changed: list[str] = []
    for path in (directory, *directory.iterdir()):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if not mode & OTHERS or path.is_symlink():
                continue
            try:
                path.chmod(mode & ~OTHERS)
            except PermissionError:
                log.warning("other users can read the log", path=str(path), mode=f"{mode:04o}", todo="chmod go=")
            else:
                changed.append(path.name)
    if changed:
        log.warning("other users could read the log; it is private now", directory=str(directory), files=changed)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read, from its first moment on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Make a small private file that is there completely or not at all."""
    unfinished = path.with_name(f"{UNFINISHED_NAME}-{path.name}")
    unfinished.unlink(missing_ok=True)
    make_private_file(unfinished)
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    sync_file(directory)
