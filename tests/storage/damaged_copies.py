"""Damaged copies of a real log, for tests: the intact one, and the places where to damage it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry
from antiphon.storage.log_topics import LogRetention

PLENTY = 1 << 30
TOPICS = ("room", "hall", "yard")
PAGE_BYTES = 16384

Truth = tuple[dict[str, list[Entry]], bytes | None]


def contents(log: DurableLog) -> Truth:
    """All that a log says."""
    entries = {topic: log.read(topic, log.earliest(topic), PLENTY) for topic in sorted(log.topics())}
    return entries, log.get("identity")


def fill(log: DurableLog, first: int) -> None:
    """Some pages of everything: batches large and small, removed ones, facts, several commits."""
    generator = random.Random(first)
    for number in range(first, first + 30):
        for topic in TOPICS:
            log.append(topic, generator.randrange(1, 9), number, generator.randbytes(generator.choice([10, 700, 9000])))
        log.put("identity", b"node %d" % number)
        log.put(f"fact {number}", generator.randbytes(20))
        if number % 4 == 0:
            log.commit()
            log.trim(number)
    log.commit()


def positions_of(path: Path, generator: random.Random) -> list[int]:
    """Where to flip a bit: in the header of the file, in those of its pages, and anywhere."""
    size = path.stat().st_size
    starts = range(0, size, PAGE_BYTES if path.name == "log.sqlite" else PAGE_BYTES + 24)
    header = [generator.randrange(min(100, size)) for _ in range(20)]
    pages = [generator.choice(starts) + generator.randrange(60) for _ in range(40)]
    anywhere = [generator.randrange(size) for _ in range(20)]
    chosen = header if path.name == "promised" else [*header, *pages, *anywhere]
    return sorted({position for position in chosen if position < size})


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def intact_log(base: Path, is_killed: bool) -> tuple[Path, Truth]:
    """A log as closing or a sudden death leaves it, and what is in it."""
    with DurableLog.open(base / "log", retention=LogRetention(bytes=150_000)) as log:
        fill(log, 0)
    with DurableLog.open(base / "log", retention=LogRetention(bytes=150_000)) as log:
        fill(log, 30)
        truth = contents(log)
        if is_killed:
            shutil.copytree(base / "log", base / "killed")
    return base / ("killed" if is_killed else "log"), truth
