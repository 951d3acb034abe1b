"""The durable log against a list: any sequence of calls gives what the list gives, through crashes and reopenings."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry, OffsetRemovedError
from antiphon.storage.log_topics import LogRetention

TOPICS = ("room", "hall")
RETENTION = LogRetention(bytes=100, age_seconds=20)


@dataclass
class ModelTopic:
    """A topic as a list of entries."""

    entries: list[Entry] = field(default_factory=list)
    earliest: int = 0
    latest: int = 0
    last_at_us: int = 0


@dataclass
class Model:
    """A log as two lists."""

    topics: dict[str, ModelTopic] = field(default_factory=dict)
    facts: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> Model:
        topics = {
            name: ModelTopic(list(topic.entries), topic.earliest, topic.latest, topic.last_at_us)
            for name, topic in self.topics.items()
        }
        return Model(topics, dict(self.facts))

    def trim(self, committed: Model, now_us: int) -> None:
        """Remove the oldest committed entries while there is too much of them or they are too old."""
        assert RETENTION.bytes is not None and RETENTION.age_seconds is not None
        for name, stored in committed.topics.items():
            while stored.entries and (
                sum(len(entry.batch) for entry in stored.entries) > RETENTION.bytes
                or stored.entries[0].appended_at_us < now_us - RETENTION.age_seconds * 1_000_000
            ):
                entry = stored.entries.pop(0)
                stored.earliest = entry.next_offset
                self.topics[name].entries.remove(entry)
                self.topics[name].earliest = entry.next_offset


class LogMachine(RuleBasedStateMachine):
    """Calls in any order; after each one the log and the model say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.number = 0
        self.model = Model()
        self.committed = Model()
        self.log = DurableLog.open(self.directory(), retention=RETENTION)

    def directory(self) -> Path:
        return self.base / str(self.number)

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.base)

    @rule(
        topic=st.sampled_from(TOPICS),
        count=st.integers(1, 5),
        second=st.integers(0, 60),
        size=st.integers(0, 40),
        fill=st.integers(0, 255),
    )
    def append(self, topic: str, count: int, second: int, size: int, fill: int) -> None:
        known = self.model.topics.setdefault(topic, ModelTopic())
        known.last_at_us = max(known.last_at_us, second * 1_000_000)
        entry = Entry(known.latest, count, known.last_at_us, bytes([fill]) * size)
        assert self.log.append(topic, count, second * 1_000_000, entry.batch) == known.latest
        known.entries.append(entry)
        known.latest += count

    @rule(key=st.sampled_from(["a", "b"]), value=st.binary(max_size=3))
    def put(self, key: str, value: bytes) -> None:
        self.log.put(key, value)
        self.model.facts[key] = value

    @rule()
    def commit(self) -> None:
        stored = sum(len(topic.entries) for topic in self.committed.topics.values())
        assert self.log.commit() == sum(len(topic.entries) for topic in self.model.topics.values()) - stored
        self.committed = self.model.copy()

    @rule(second=st.integers(0, 80))
    def trim(self, second: int) -> None:
        before = sum(len(topic.entries) for topic in self.model.topics.values())
        self.model.trim(self.committed, second * 1_000_000)
        after = sum(len(topic.entries) for topic in self.model.topics.values())
        assert self.log.trim(second * 1_000_000) == before - after

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.committed = self.model.copy()
        self.log = DurableLog.open(self.directory(), retention=RETENTION)

    @rule()
    def crash(self) -> None:
        """Go on with the files as they are now, as after a sudden death."""
        shutil.copytree(self.directory(), self.base / str(self.number + 1))
        self.log.close()
        self.number += 1
        self.model = self.committed.copy()
        self.log = DurableLog.open(self.directory(), retention=RETENTION)

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), topic=st.sampled_from(TOPICS), max_bytes=st.integers(0, 200))
    def read(self, data: st.DataObject, topic: str, max_bytes: int) -> None:
        known = self.model.topics.get(topic, ModelTopic())
        offset = data.draw(st.integers(0, known.latest))
        if offset < known.earliest:
            try:
                self.log.read(topic, offset, max_bytes)
            except OffsetRemovedError as error:
                earliest = error.earliest
            assert earliest == known.earliest
            return
        wanted: list[Entry] = []
        for entry in known.entries:
            fits = not wanted or sum(len(other.batch) for other in [*wanted, entry]) <= max_bytes
            if entry.next_offset > offset and fits:
                wanted.append(entry)
            elif wanted:
                break
        assert self.log.read(topic, offset, max_bytes) == wanted

    @rule(topic=st.sampled_from(TOPICS), second=st.integers(0, 70))
    def look_up_a_time(self, topic: str, second: int) -> None:
        known = self.model.topics.get(topic, ModelTopic())
        later = (entry.first_offset for entry in known.entries if entry.appended_at_us >= second * 1_000_000)
        assert self.log.offset_at(topic, second * 1_000_000) == next(later, known.latest)

    @invariant()
    def both_say_the_same(self) -> None:
        assert list(self.log.topics()) == list(self.model.topics)
        for name, known in self.model.topics.items():
            size = self.log.topics()[name]
            byte_count = sum(len(entry.batch) for entry in known.entries)
            assert size == (known.earliest, known.latest, len(known.entries), byte_count)
            assert self.log.read(name, known.earliest, 1 << 20) == known.entries
        assert {key: self.log.get(key) for key in self.model.facts} == self.model.facts


LogMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestLogAgainstAModel = LogMachine.TestCase
