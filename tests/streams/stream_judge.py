"""The judge of a stream: what its replicas settle, compared with what was published and what is on the disks."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.streams.entries import COMMAND, DATA, MEMBERS, TRIM, IndexEntry, ReplicaSet, decode_set

Name = tuple[int, int]


class StreamJudge:
    """Collects violations; knows publications with their pasts, and looks at the disks themselves."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._disks = world.disks
        self._publications: dict[Name, tuple[int, frozenset[Name]]] = world.publications
        self.replicas: ReplicaSet = world.founders
        # The first position that is kept; by consumer: how many messages were removed before they were done.
        self.earliest = 0
        self.missed: dict[str, int] = {}
        self.entries: dict[int, IndexEntry] = {}
        self.positions: dict[Name, int] = {}
        self._leaders: dict[int, int] = {}
        self.violations: list[str] = []
        # By position: its publication. By consumer: its mode, the messages that are done, were acknowledged, buried.
        self._names: dict[int, Name] = {}
        self.consumers: dict[str, tuple[str, int]] = {}
        self.done: dict[str, set[int]] = {}
        self._acknowledged: dict[str, set[int]] = {}
        self.dead: dict[str, set[int]] = {}
        # Who got a message last, if it has not given it back.
        self._holders: dict[tuple[str, int], int] = {}
        self.handed = 0
        self._placed_us: dict[Name, int] = {}

    def leads(self, node: int, term: int) -> None:
        """A replica says that it leads."""
        if self._leaders.setdefault(term, node) != node:
            self.violations.append(f"{node} and {self._leaders[term]} both lead in term {term}")

    def settled(self, node: int, number: int, entry: IndexEntry, is_leader: bool) -> None:
        """A replica says that an entry is settled."""
        known = self.entries.get(number)
        if known is not None:
            if known != entry:
                self.violations.append(f"entry {number}: {node} has {entry}, another replica {known}")
            return
        self.entries[number] = entry
        before = self.entries.get(number - 1)
        end = 0 if before is None else before.end
        if entry.position != end:
            self.violations.append(f"entry {number} begins at position {entry.position} and not at {end}")
        if entry.kind == MEMBERS:
            self.replicas = decode_set(entry.payload)
        if entry.kind == DATA:
            self._data(number, entry)
        if entry.kind == COMMAND and entry.payload[:1] >= b"\x90":
            self._command(msgspec.msgpack.decode(entry.payload))
        if entry.kind == TRIM:
            self._trim(*msgspec.msgpack.decode(entry.payload))
        self._is_on_majority(node, number, entry)

    def _data(self, number: int, entry: IndexEntry) -> None:
        name = (entry.source, entry.sequence)
        if name in self.positions:
            self.violations.append(f"{name} has two places, the second is entry {number}")
        count, past = self._publications[name]
        if count != entry.count:
            self.violations.append(f"{name} has {count} messages and got {entry.count} positions")
        missing = past - set(self.positions)
        if missing:
            self.violations.append(f"{name} has its place before {sorted(missing)[0]}, which it follows")
        self.positions[name] = entry.position
        self._placed_us[name] = self._world.clock.now_us
        self._names.update(dict.fromkeys(range(entry.position, entry.end), name))

    # Retention.

    def _trim(self, earliest: int, _first: int, _size: int, held: int, _newest: object) -> None:
        """The messages before a position are removed: no more than the bounds demand, consumers considered."""
        wanted = [self._first_wanted(consumer) for consumer in self.consumers]
        if held < earliest and min(wanted, default=earliest) < earliest:
            # It was planned before there was this consumer.
            return
        for number in sorted(self.entries):
            entry = self.entries[number]
            if entry.count and self.earliest < entry.end <= earliest:
                self._removed(entry)
        if earliest > self.earliest:
            self.earliest = earliest
        for consumer, (_, start) in self.consumers.items():
            done = self.done.setdefault(consumer, set())
            left = set(range(start, self.earliest)) - done
            self.missed[consumer] = self.missed.get(consumer, 0) + len(left)
            done |= left

    def _first_wanted(self, consumer: str) -> int:
        position = self.consumers[consumer][1]
        while position in self.done.get(consumer, ()):
            position += 1
        return position

    def _removed(self, entry: IndexEntry) -> None:
        bounds, now_us = self._world.bounds, self._world.clock.now_us
        size = sum(each.count for each in self.entries.values() if each.position >= entry.position)
        is_wanted = any(
            set(range(start, entry.end)) - self.done.get(consumer, set())
            for consumer, (_, start) in self.consumers.items()
        )
        factor = bounds.hold if is_wanted else 1
        is_large = 0 < bounds.size * factor < size * self._world.message_bytes
        is_old = 0 < bounds.age_us * factor < now_us - self._world.published_us[entry.source, entry.sequence]
        if not is_large and not is_old:
            self.violations.append(f"{entry} was removed within the bounds; wanted by a consumer: {is_wanted}")

    def _last_of_retention(self, lives: list[Any]) -> None:
        """In the end every replica has the messages that are kept, and no others, and these are within the bounds."""
        bounds, now_us = self._world.bounds, self._world.clock.now_us
        kept = [entry for entry in self.entries.values() if entry.count and entry.end > self.earliest]
        names = {(entry.source, entry.sequence) for entry in kept}
        for life in lives:
            disk = self._disks[life.me]
            if life.me not in self.replicas.all:
                continue
            lost = sorted(names - set(disk.contents))
            if lost:
                self.violations.append(f"{life.me} has lost {lost[0]} and {len(lost) - 1} others that are kept")
            removed = {name for name, place in self.positions.items() if place < self.earliest} - names
            left = sorted(removed & set(disk.contents))
            if left:
                self.violations.append(f"{life.me} still has {left[0]} and {len(left) - 1} others that were removed")
            if bounds.is_compacted:
                found = {value.key: value.position for value in life.replica.log.last_values.after(0, 1 << 60)}
                if found != self._newest_removed():
                    self.violations.append(f"{life.me} keeps {found}, and the newest are {self._newest_removed()}")
            for name, consumer in life.coordinator.table.by_name.items():
                if consumer.missed != self.missed.get(name, 0):
                    self.violations.append(f"{name} was told {consumer.missed} missed, not {self.missed.get(name, 0)}")
        size = sum(entry.count for entry in kept) * self._world.message_bytes
        oldest_us = min((self._placed_us[entry.source, entry.sequence] for entry in kept), default=now_us)
        if 0 < bounds.size < size or 0 < bounds.age_us < now_us - oldest_us - 3_000_000:
            self.violations.append(f"stuck: {size} bytes are kept, the oldest for {now_us - oldest_us} us")

    def _newest_removed(self) -> dict[bytes, int]:
        """The newest of the removed messages of each key, unless it has no value."""
        newest = {self.key_of(position): position for position in range(self.earliest)}
        return {key: position for key, position in newest.items() if position % 7}

    # Consumers.

    def key_of(self, position: int) -> bytes:
        """Every message has one of three keys."""
        source, sequence = self._names[position]
        return b"%d" % ((source * 7 + sequence) % 3)

    def name_of(self, position: int) -> tuple[int, int]:
        """The author of a message, and its number among the author's."""
        source, sequence = self._names[position]
        return source, sequence * 1000 + position - self.positions[source, sequence]

    def follows(self, position: int) -> list[int]:
        """The last messages that the publisher had seen."""
        name = self._names[position]
        first = self.positions[name]
        if position > first:
            return [position - 1]
        past = sorted(self._publications[name][1], key=lambda each: self.positions[each])[-3:]
        return [self.positions[each] + self._publications[each][0] - 1 for each in past]

    def _command(self, command: list[Any]) -> None:
        if command[0] == 0 and command[1] not in self.consumers:
            self.consumers[command[1]] = (command[3][0], max(command[2], self.earliest))
        elif command[0] == 2:
            for first, last in zip(command[2][::2], command[2][1::2], strict=True):
                self.done.setdefault(command[1], set()).update(range(first, last + 1))

    def handed_out(self, consumer: str, member: int, position: int) -> None:
        """A leader gives a message to a member."""
        self.handed += 1
        mode, start = self.consumers[consumer]
        if position < self.earliest:
            self.violations.append(f"{consumer}: {member} got {position}, which was removed")
        done = self.done.get(consumer, set())
        if mode == "key":
            key = self.key_of(position)
            for before in range(start, position):
                is_free = before in done or self._holders.get((consumer, before)) == member
                if self.key_of(before) == key and not is_free:
                    self.violations.append(f"{consumer}: {member} got {position} of key {key!r} before {before}")
        if mode == "causal":
            missing = [before for before in self.follows(position) if before >= start and before not in done]
            if missing:
                self.violations.append(f"{consumer}: {member} got {position} before {missing[0]} was done")
        self._holders[consumer, position] = member

    def took(self, consumer: str, member: int, position: int) -> None:
        """A message has come to a member from the leader that it is attached to."""
        if position in self._acknowledged.get(consumer, ()):
            self.violations.append(f"{consumer}: {position} came again to {member} after it was acknowledged")

    def gave_back(self, consumer: str, member: int, position: int) -> None:
        """The leader hears that a member does not have a message any more."""
        if self._holders.get((consumer, position)) == member:
            del self._holders[consumer, position]

    def acknowledged(self, consumer: str, member: int, position: int) -> None:
        """A member was told that its acknowledgement counts."""
        self._acknowledged.setdefault(consumer, set()).add(position)
        if position not in self.done.get(consumer, ()):
            self.violations.append(f"{consumer}: {member} was told that {position} is done, which is not settled")

    def buried(self, consumer: str, position: int, deliveries: int) -> None:
        """A message goes to the dead letters."""
        self.dead.setdefault(consumer, set()).add(position)
        if position in self._acknowledged.get(consumer, ()):
            self.violations.append(f"{consumer}: {position} was buried after it was acknowledged")

    def _is_on_majority(self, node: int, number: int, entry: IndexEntry) -> None:
        # While the replicas change, a leader counts those of its last entry about them, settled or not.
        for replicas in (self.replicas, self._world.lives[node].replica.log.replicas):
            holders = []
            for voter in replicas.voters:
                disk = self._disks[voter]
                has_entry = disk.entries.get(number) == entry or disk.snapshot[0] >= number
                has_content = entry.kind != DATA or (entry.source, entry.sequence) in disk.contents
                holders += [voter] if has_entry and has_content else []
            if 2 * len(holders) > len(replicas.voters):
                return
        self.violations.append(f"entry {number} ({entry}) is settled at {node}, and on disk only at {holders}")

    def is_all_done(self) -> bool:
        """Whether every consumer has done everything."""
        end = max((entry.end for entry in self.entries.values()), default=0)
        return all(
            set(range(start, end)) <= self.done.get(consumer, set()) for consumer, (_, start) in self.consumers.items()
        )

    def last(self, lives: list[Any]) -> None:
        """Everything has healed, and there was time: all replicas have settled everything."""
        leaders = [life.me for life in lives if life.replica.leading is not None]
        if len(leaders) != 1:
            self.violations.append(f"in the end {leaders} lead")
        for name in self._publications:
            if name not in self.positions and any(name in life.delivered for life in lives):
                self.violations.append(f"stuck: {name} has no position")
        end = max((entry.end for entry in self.entries.values()), default=0)
        if set(self.replicas.voters) != set(self._world.keepers):
            self.violations.append(f"in the end {self.replicas} keep the stream, and not {self._world.keepers}")
        self._last_of_retention(lives)
        for consumer, (_, start) in self.consumers.items():
            left = set(range(start, end)) - self.done.get(consumer, set())
            if left:
                self.violations.append(f"stuck: {consumer} has not done {min(left)} and {len(left) - 1} others")
        expected = [
            (e.position, e.source, e.sequence, e.payload) for _, e in sorted(self.entries.items()) if e.kind in (1, 3)
        ]
        for life in lives:
            if life.me in self.replicas.all and life.applied != expected:
                self.violations.append(
                    f"{life.me} has applied {len(life.applied)} of {len(expected)} entries, or others"
                )
