"""``antiphon doctor``: looks at this machine and says what is wrong for Antiphon, and what to do about it.

Every check is a function that returns findings. A *problem* keeps a node from running as it should, and the command
ends with 1. A *hint* costs speed or a capability. A check removes what it writes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import AntiphonError, UsageError

OK: Final = "ok"
HINT: Final = "hint"
PROBLEM: Final = "problem"
COLOURS: Final = {OK: "green", HINT: "yellow", PROBLEM: "bold red"}

SYNCS: Final = 25
SYNC_BYTES: Final = 4096
SLOW_SYNC_MS: Final = 20.0
"""Messages that wait for the disk wait for one sync; above this a user notices it."""

FEW_DESCRIPTORS: Final = 4096
"""A node with 1,024 clients and a cluster around it needs about half of this."""

MANY_DESCRIPTORS: Final = 65_536

LITTLE_DISK_BYTES: Final = 1 << 30

CLOCK_WATCHED_SECONDS: Final = 0.25
CLOCK_DRIFT_AT_MOST: Final = 0.01
TIME_ERROR: Final = 5
"""The answer of adjtimex(2) when no time service keeps the clock."""


class Finding(NamedTuple):
    """One line of the result."""

    check: str
    state: str
    found: str
    advice: str = ""


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(help="Directory in which a node is to keep its data.", show_default="the current directory"),
    ] = None,
    listen: Annotated[str, typer.Option(help="Address on which a node is to listen.")] = "127.0.0.1:7400",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Check whether this machine is ready: Python, packages, Java, port, disk, clock and limits.

    Ends with 1 if something keeps a node from running as it should. Run it as the user, and with the data directory, of
    the node.

    Example: antiphon doctor --data /var/lib/antiphon --listen 10.0.0.1:7400
    """
    directory = data or Path.cwd()
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        check_python,
        check_packages,
        check_java,
        lambda: check_port(listen),
        lambda: check_disk(directory),
        check_clock,
        check_limits,
    )
    findings = [finding for check in checks for finding in check()]
    has_failed = any(finding.state == PROBLEM for finding in findings)
    result = {"is_ready": not has_failed, "findings": [finding._asdict() for finding in findings]}
    output.end_with(result, json, show, has_failed)


def show(result: dict[str, Any]) -> None:
    """Print the findings for people."""
    table = Table(box=None, pad_edge=False)
    for column in ("check", "state", "found"):
        table.add_column(column)
    for finding in result["findings"]:
        said = finding["found"] + (f"\n→ {finding['advice']}" if finding["advice"] else "")
        colour = COLOURS[finding["state"]]
        table.add_row(finding["check"], f"[{colour}]{finding['state']}[/]", escape(said))
    output.console.print(table)
    output.console.print("ready" if result["is_ready"] else "not ready: see the problems above")


def check_python() -> Iterator[Finding]:
    """The interpreter, and whether the protocols are compiled."""
    running = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", OK, f"{running} at {sys.executable}")
    if output.is_compiled():
        yield Finding("compiled", OK, "the protocols run as compiled modules")
        return
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    advice = "install Antiphon again" if compiler else "install a C compiler (Debian: gcc), then install Antiphon again"
    yield Finding("compiled", HINT, "the protocols run as plain Python, about 8 times slower", advice)


def check_packages() -> Iterator[Finding]:
    """The packages that Antiphon needs."""
    from packaging.requirements import Requirement

    missing, wrong = [], []
    for line in requires("antiphon") or ():
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(need.name)
        except PackageNotFoundError:
            missing.append(need.name)
            continue
        if not need.specifier.contains(installed, prereleases=True):
            wrong.append(f"{need.name} {installed} (needed: {need.specifier})")
    for label, packages in (("missing", missing), ("of another version", wrong)):
        if packages:
            yield Finding("packages", PROBLEM, f"{label}: {', '.join(packages)}", "run: pip install --upgrade antiphon")
    if not missing and not wrong:
        yield Finding("packages", OK, "all are installed, in versions that fit")


def check_java() -> Iterator[Finding]:
    """Java and Spark, which only the data pipeline needs."""
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        advice = "for the data pipeline run: pip install 'antiphon[spark]'"
        yield Finding("spark", HINT, "not installed; nodes and clients do not need it", advice)
        return
    from antiphon.pipeline.java import find_java_home

    try:
        home = find_java_home()
    except AntiphonError as error:
        yield Finding("spark", PROBLEM, f"pyspark {spark} without Java: {error}", "see the sentence above")
    else:
        yield Finding("spark", OK, f"pyspark {spark} with the Java of {home}")


def check_port(listen: str) -> Iterator[Finding]:
    """Whether a node could listen."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--listen {listen!r} is not an address; write HOST:PORT, such as 127.0.0.1:7400")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host.strip("[]"), int(port)))
        except (OSError, OverflowError) as error:
            advice = "stop the program that listens there, or choose another address with --listen"
            yield Finding("port", PROBLEM, f"a node cannot listen on {listen}: {error}", advice)
        else:
            yield Finding("port", OK, f"a node can listen on {listen}")


def check_disk(directory: Path) -> Iterator[Finding]:
    """Whether a node could keep its data in a directory, how much room is there, and how long a sync takes."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    try:
        delays_ms = sync_delays_ms(existing)
    except OSError as error:
        advice = "give the directory to the user of the node, or name another one with --data"
        yield Finding("disk", PROBLEM, f"cannot write to {existing}: {error}", advice)
        return
    free = shutil.disk_usage(existing).free
    if free < LITTLE_DISK_BYTES:
        advice = "free some space, or bound the log with retention settings; a full disk accepts no messages"
        yield Finding("disk space", PROBLEM, f"{free / 1e6:,.0f} MB free at {existing}", advice)
    else:
        yield Finding("disk space", OK, f"{free / 1e9:,.1f} GB free at {existing}")
    median, longest = statistics.median(delays_ms), max(delays_ms)
    found = f"a sync takes {median:.2f} ms at the median, {longest:.2f} ms at the longest of {SYNCS}"
    advice = "durable messages wait for a sync: use a faster disk, or durability 'memory' where a loss is acceptable"
    yield Finding("disk sync", HINT if median > SLOW_SYNC_MS else OK, found, advice if median > SLOW_SYNC_MS else "")


def sync_delays_ms(directory: Path) -> list[float]:
    """How long each of some small writes takes until it is on the disk."""
    delays_ms = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            file.write(b"\0" * SYNC_BYTES)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            delays_ms.append((time.perf_counter() - begun) * 1000)
    return delays_ms


def check_clock() -> Iterator[Finding]:
    """Whether the clock of the day runs evenly, and whether a time service keeps it."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(CLOCK_WATCHED_SECONDS)
    drift = (time.time() - wall) - (time.monotonic() - steady)
    advice = (
        "run a time service (chrony, systemd-timesyncd); retention by age and subscriptions from a time use the clock"
    )
    if abs(drift) > CLOCK_DRIFT_AT_MOST:
        yield Finding("clock", PROBLEM, f"it jumped by {drift * 1000:.0f} ms within a quarter of a second", advice)
    elif is_kept_by_nobody():
        yield Finding("clock", HINT, "it runs evenly; no time service keeps it", advice)
    else:
        yield Finding("clock", OK, "it runs evenly")


def is_kept_by_nobody() -> bool:
    """Whether Linux says that the clock is not synchronised; elsewhere this is not known."""
    if not sys.platform.startswith("linux"):
        return False
    # A struct timex of zeros only asks. It has some 200 bytes; its size differs between machines.
    question = ctypes.create_string_buffer(1024)
    try:
        return int(ctypes.CDLL(None).adjtimex(question)) == TIME_ERROR
    except (OSError, AttributeError):
        return False


def check_limits() -> Iterator[Finding]:
    """How many files and connections a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft != resource.RLIM_INFINITY and soft < FEW_DESCRIPTORS:
        most = hard if 0 < hard < MANY_DESCRIPTORS else MANY_DESCRIPTORS
        advice = f"raise it before you start a node: ulimit -n {most}, or LimitNOFILE= in systemd"
        yield Finding("open files", HINT, f"a process may open {said}; a busy node needs more", advice)
    else:
        yield Finding("open files", OK, f"a process may open {said}")
