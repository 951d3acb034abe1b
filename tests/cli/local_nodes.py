"""Real processes for tests, ended in all cases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 400
"""Nothing takes as long; a test that would hang for ever fails instead."""


@contextmanager
def started(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """An ``antiphon`` command as a process of its own; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        # Processes of a cluster end when their standard input does, which is this one's.
        process.kill()
        process.communicate(timeout=SECONDS)


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process says when it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=SECONDS)[1]
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Ask a process to stop, and wait: its exit code, and what it said on standard error."""
    process.send_signal(number)
    _, complained = process.communicate(timeout=SECONDS)
    return process.returncode, complained


def is_running(pid: int) -> bool:
    """Whether there is a process of that number that has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
