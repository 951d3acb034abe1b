"""Records the disk contents of killed nodes before they are restarted.

A message that a node with durability ``disk`` has accepted must be in its log, even if the process is killed or, once
synced, if the power fails. After a restart other nodes may send it what it lost, so its files are copied before that,
and their contents are written down: one file per kill, with lines as in journals
(:mod:`antiphon.torture.live.journal`).

===========  ============================  ============================================================================
line         fields                        meaning ===========  ============================
============================================================================ ``kept``     door, microseconds
the node behind the door was killed; its disk was empty at that time before ``has``      topic, identity, number
its log has that message of an application ``refused``  the reason                    its log cannot be read ===========
============================  ============================================================================
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from antiphon.api.batch_codec import decode_columns
from antiphon.kernel.errors import PeerError
from antiphon.storage.log import DurableLog
from antiphon.torture.live.values import name_in
from antiphon.transport.codec import Codec

READ_BYTES: Final = 1 << 20


class DiskSnapshots:
    """Copies the files of nodes, and writes down the contents of the copies in a background thread."""

    def __init__(self, data: Path, directory: Path, topics: Sequence[str]) -> None:
        self._data = data
        self._directory = directory
        self._topics = topics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="remains")
        self._readings: list[Future[None]] = []
        directory.mkdir()

    def take(self, place: int, door: str, killed_us: int, since_us: int) -> None:
        """Copy the files of a killed node; it may be restarted afterwards."""
        path = self._directory / f"{len(self._readings)}-node-{place}"
        shutil.copytree(self._data / f"node-{place}", path)
        self._readings.append(self._thread.submit(self._write, path, door, killed_us, since_us))

    def close(self) -> None:
        """Wait until all contents are written down."""
        self._thread.shutdown()
        for reading in self._readings:
            reading.result()

    def _write(self, path: Path, door: str, killed_us: int, since_us: int) -> None:
        with path.with_suffix(".txt").open("w", encoding="utf-8") as file:
            file.write(f"kept {killed_us} {door} {since_us}\n")
            try:
                for topic, identity, number in messages_in(path, self._topics):
                    file.write(f"has {killed_us} {topic} {identity} {number}\n")
            except PeerError as error:
                file.write(f"refused {killed_us} {' '.join(str(error).split())}\n")
        shutil.rmtree(path)


def messages_in(directory: Path, topics: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """The messages of applications in a log: the index of their topic, their identity and their number."""
    codec = Codec()
    with DurableLog.open(directory) as log:
        for topic, name in enumerate(topics):
            offset = log.earliest(name)
            while entries := log.read(name, offset, READ_BYTES):
                offset = entries[-1].next_offset
                for entry in entries:
                    columns = decode_columns(codec.decode_publication(entry.batch).payload)
                    for headers in columns.headers or ():
                        found = name_in(headers or {})
                        yield topic, found.identity, found.number
