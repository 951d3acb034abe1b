"""The files of a simulated node's streams: everything is on disk after a commit; a crash takes away what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.streams.entries import IndexEntry
from antiphon.streams.host import NOBODY, SavedReplica
from antiphon.streams.service.host import Name, StreamContent

FACTS_OF_A_STREAM = ("vote", "snapshot", "floor", "offset", "founders")


class SimulatedStreamFiles:
    """The disk of one machine, as :class:`antiphon.storage.stream_store.StreamStore` uses it."""

    def __init__(self, clock: VirtualClock, commit_us: int, random: RandomStream) -> None:
        self._clock = clock
        self._commit_us = commit_us
        self._random = random
        self._life = 0
        self.wiped()

    def wiped(self) -> None:
        """The disk is replaced by an empty one; with it the node is another replica."""
        self.identity = int(self._random.below(1 << 30)) + 1
        self._safe_facts: dict[str, bytes] = {}
        self._entries: dict[int, dict[int, IndexEntry]] = {}
        # By stream and publication: the offset, and the messages.
        self._contents: dict[int, dict[Name, tuple[int, StreamContent]]] = {}
        self.crashed()

    def crashed(self) -> None:
        """Everything that is not on disk is gone, and nobody is called back."""
        self._life += 1
        self._facts = dict(self._safe_facts)
        self._pending: list[Callable[[], object]] = []
        self._waiting: list[Callable[[], object]] = []
        self._is_committing = False

    def closed(self) -> None:
        """The node has ended in order: everything goes to the disk."""
        for change in self._pending:
            change()
        self.crashed()

    # Writing.

    def then(self, call: Callable[[], object]) -> None:
        self._waiting.append(call)
        if not self._is_committing:
            self._commit()

    def _commit(self) -> None:
        self._is_committing = True
        pending, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        life = self._life

        def committed() -> None:
            if life != self._life:
                return
            for change in pending:
                change()
            self._is_committing = False
            for call in waiting:
                call()
            if not self._is_committing and (self._waiting or self._pending):
                self._commit()

        self._clock.post(self._commit_us, committed)

    def put(self, name: str, value: bytes) -> None:
        self._facts[name] = value
        self._pending.append(partial(self._safe_facts.__setitem__, name, value))

    def write_entry(self, stream: int, number: int, entry: IndexEntry) -> None:
        self._pending.append(lambda: self._entries.setdefault(stream, {}).__setitem__(number, entry))

    def cut_entries(self, stream: int, first: int, last: int) -> None:
        self._pending.append(lambda: self._cut(stream, first, last))

    def _cut(self, stream: int, first: int, last: int) -> None:
        kept = self._entries.get(stream, {})
        self._entries[stream] = {number: entry for number, entry in kept.items() if not first <= number <= last}

    def remove_entries(self, stream: int, last: int) -> None:
        for number, entry in self._entries.get(stream, {}).items():
            if number <= last and entry.count:
                self.remove_content(stream, entry.source, entry.sequence)
        self.cut_entries(stream, 0, last)
        self.put(f"floor {stream}", b"%d" % last)

    def write_content(self, stream: int, name: Name, offset: int, content: StreamContent) -> None:
        self._pending.append(lambda: self._contents.setdefault(stream, {}).__setitem__(name, (offset, content)))

    def remove_content(self, stream: int, source: int, sequence: int) -> None:
        self._pending.append(lambda: self._contents.get(stream, {}).pop((source, sequence), None))

    def forget(self, stream: int) -> None:
        self._pending.append(lambda: (self._entries.pop(stream, None), self._contents.pop(stream, None)))
        for name in (f"{fact} {stream}" for fact in FACTS_OF_A_STREAM):
            self._facts.pop(name, None)
            self._pending.append(partial(self._safe_facts.pop, name, None))

    # Reading: what is on the disk.

    def streams(self) -> list[int]:
        """The streams of topics that this machine keeps."""
        return [int(name.split()[1]) for name in self._facts if name.startswith("founders ")]

    def contents(self, stream: int) -> list[StreamContent]:
        """The messages of a stream."""
        return [content for _, content in self._contents.get(stream, {}).values()]

    def fact(self, name: str) -> bytes | None:
        return self._facts.get(name)

    def saved(self, stream: int) -> SavedReplica:
        term, voted_for = msgspec.msgpack.decode(self.fact(f"vote {stream}") or b"\x92\x00\xff")
        snapshot = self.fact(f"snapshot {stream}")
        base, base_term, position, state = (0, 0, 0, b"") if snapshot is None else msgspec.msgpack.decode(snapshot)
        floor = int(self.fact(f"floor {stream}") or 0)
        entries = self.entries(stream, base + 1, 1 << 40)
        voted = voted_for if voted_for >= 0 else NOBODY
        return SavedReplica(term, voted, base, base_term, position, state, entries, floor)

    def entries(self, stream: int, first: int, most: int) -> list[IndexEntry]:
        kept = self._entries.get(stream, {})
        return [kept[number] for number in sorted(kept) if number >= first][:most]

    def entries_at(self, stream: int, position: int, most: int) -> list[IndexEntry]:
        kept = self._entries.get(stream, {})
        found = [kept[number] for number in sorted(kept) if kept[number].count and kept[number].end > position]
        return found[:most]

    def content(self, stream: int, source: int, sequence: int) -> StreamContent | None:
        found = self._contents.get(stream, {}).get((source, sequence))
        return None if found is None else found[1]

    def holds(self, stream: int, source: int, sequence: int) -> bool:
        return (source, sequence) in self._contents.get(stream, {})

    def content_names(self, stream: int) -> list[Name]:
        return sorted(self._contents.get(stream, {}))

    def deliveries(self, stream: int, first_offset: int) -> Iterable[tuple[int, int, int]]:
        found = [(offset, name) for name, (offset, _) in self._contents.get(stream, {}).items()]
        return [(*name, offset) for offset, name in sorted(found) if offset >= first_offset]
