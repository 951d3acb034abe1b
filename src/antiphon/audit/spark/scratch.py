"""The directory for files that Spark needs while this process runs."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

SCRATCH = "antiphon-spark-"


@cache
def scratch_directory() -> Path:
    """The directory of Spark's files; removed when this process ends.

    There is one for the process and not for the session: the Java process survives a session and serves the next.
    """
    remove_what_the_dead_left()
    directory = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def remove_what_the_dead_left() -> None:
    """Remove the files of processes that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*-*"):
        process = left.name.removeprefix(SCRATCH).partition("-")[0]
        if process.isdigit() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(process: int) -> bool:
    """Whether a process with this number exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
