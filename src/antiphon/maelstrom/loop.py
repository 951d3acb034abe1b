"""A node as a program: lines from standard input, lines to standard output, nothing else."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Final

from antiphon.maelstrom.host import HostOptions, MaelstromHost
from antiphon.maelstrom.services import service_for
from antiphon.runtime.clocks import monotonic_us

READ_BYTES: Final = 1 << 16


def run_node(workload: str, options: HostOptions) -> None:
    """Serve a workload until standard input ends."""
    written: list[bytes] = []
    host = MaelstromHost(service_for(workload), written.append, monotonic_us, options)
    run(host, written, lambda data: write_all(1, data), 0)


def run(host: MaelstromHost, written: list[bytes], write: Callable[[bytes], None], source: int) -> None:
    """Pass lines of a file descriptor to a host, and call it when a timer is due."""
    rest = b""
    while True:
        due = host.timers.next_us()
        wait_seconds = None if due is None else max(0, due - monotonic_us()) / 1_000_000
        if select.select([source], [], [], wait_seconds)[0]:
            data = os.read(source, READ_BYTES)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line:
                    host.take(line)
        host.wake()
        if written:
            write(b"".join(written))
            written.clear()


def write_all(target: int, data: bytes) -> None:
    """Write everything to a file descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
