"""Runs a unit of work so that its output becomes visible only when it is complete.

A unit writes into a directory of its own below ``_attempts`` and moves its files into place at the end, the record
last. Several attempts at one unit may run at the same time, because an attempt that seems dead may still run: all of
them write the same, so the last one to finish does no harm. No failure in between, on this machine or another, can make
half a unit look complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.kernel.errors import PeerError

ATTEMPTS = "_attempts"
LOCK = "_lock"


def write_failed(where: Path, error: OSError) -> PeerError:
    """The complaint about a directory that cannot be written to."""
    return PeerError(
        f"cannot write to {where}: {error.strerror or error}; free some space or choose another --out, and run again: "
        "finished work is kept"
    )


@contextmanager
def attempt_in(out: Path, number: int) -> Iterator[Path]:
    """A directory for one attempt at a unit, removed afterwards; disk errors become one sentence."""
    try:
        attempts = out / ATTEMPTS
        attempts.mkdir(parents=True, exist_ok=True)
        attempt = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=attempts))
    except OSError as error:
        raise write_failed(out, error) from error
    try:
        yield attempt
    except OSError as error:
        raise write_failed(out, error) from error
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def running_in(out: Path) -> set[int]:
    """The numbers of units with an attempt; dead attempts count until the job ends."""
    try:
        return {int(entry.name.partition("-")[0]) for entry in os.scandir(out / ATTEMPTS)}
    except OSError:
        return set()


@contextmanager
def directory_held(out: Path) -> Iterator[None]:
    """Lock a directory against other jobs, and remove what dead ones left behind."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("w", encoding="ascii")
    except OSError as error:
        raise write_failed(out, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(out / ATTEMPTS, ignore_errors=True)
        except BlockingIOError as error:
            raise PeerError(f"another command is writing to {out}; wait for it or choose another --out") from error
        except OSError as error:
            raise write_failed(out, error) from error
        yield
        shutil.rmtree(out / ATTEMPTS, ignore_errors=True)
