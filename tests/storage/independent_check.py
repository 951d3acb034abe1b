"""Checks the files of a log with SQLite alone: shares no code with the log, so that it can contradict it.

    python -m tests.storage.independent_check DIRECTORY

The files are copied first, because the first connection to a killed process's files repairs them.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

OFFSETS = 1 << 43
FIRST_RECORD = -(1 << 40)
FIRST_FACT = 1 << 20


class Stored(NamedTuple):
    """The contents of a log: the number of its last commit, its topics by name, and its facts."""

    commit: int
    topics: dict[str, list[tuple[int, int, bytes]]]
    """The first offset, the number of messages and the bytes of each batch."""
    facts: dict[str, bytes]


def stored_in(directory: Path) -> Stored:
    """Read everything; fails with a sentence if an entry is missing, too many, or not the recorded size."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(directory, copy)
        connection = sqlite3.connect(copy / "log.sqlite")
        try:
            (answer,) = connection.execute("pragma integrity_check").fetchone()
            assert answer == "ok", answer
            rows = connection.execute("select key, header, body from item order by key").fetchall()
        finally:
            connection.close()
    records = {key - FIRST_RECORD: msgspec.msgpack.decode(body[4:]) for key, _, body in rows if key < 0}
    entries = [(key, int.from_bytes(header[8:16], "little"), body) for key, header, body in rows if key >= 0]
    commit, topic_count, fact_count = records.pop(0)
    facts = dict(record for number, record in records.items() if number >= FIRST_FACT)
    topic_records = {number: record for number, record in records.items() if number < FIRST_FACT}
    assert len(facts) == fact_count, f"the head counts {fact_count} facts, there are {len(facts)}"
    assert sorted(topic_records) == list(range(1, topic_count + 1)), (topic_count, sorted(topic_records))
    topics: dict[str, list[tuple[int, int, bytes]]] = {}
    for number, (name, earliest, end, batch_count, byte_count, *_) in topic_records.items():
        found = [(key % OFFSETS, count, body) for key, count, body in entries if key // OFFSETS == number]
        expected = earliest
        for first, count, _ in found:
            assert first == expected, f"topic {name!r} has an entry at {first} where {expected} belongs"
            expected = first + count
        assert expected == end, f"the entries of topic {name!r} end at {expected}, its record says {end}"
        assert len(found) == batch_count, (name, len(found), batch_count)
        assert sum(len(body) for _, _, body in found) == byte_count, name
        topics[name] = found
    assert sum(map(len, topics.values())) == len(entries), "there are entries of topics without a record"
    return Stored(commit, topics, facts)


if __name__ == "__main__":
    seen = stored_in(Path(sys.argv[1]))
    for topic, batches in seen.topics.items():
        print(f"{topic!r}: {len(batches)} batches, {sum(len(body) for _, _, body in batches)} bytes")
