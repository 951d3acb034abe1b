"""Which message of a consumer may be handed out next, and to whom: three modes.

``any``: every message to any member. ``key``: the messages of one key in order; none is handed out while an earlier
one of its key is in the hands of another member. ``causal``: a message is handed out when everything that it follows
is done, so work on an answer never begins before the work on its question has ended.

Each looks at a message once when it comes into view, and again only when something changes that it waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from antiphon.streams.consumers import Consumer
from antiphon.streams.links import MessageLinks, PendingMessages

ANYBODY: Final = -1
"""In the place of a member: whoever has room."""


class AttachedMember:
    """A member that is connected: it takes ``window`` messages at a time, and has ``leased`` of them."""

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.window = window
        self.leased = 0
        # Whether it does not read what it is handed.
        self.is_paused = False

    @property
    def has_room(self) -> bool:
        """Whether it takes one more."""
        return self.leased < self.window and not self.is_paused


Members = dict[int, AttachedMember]
Choice = tuple[int, AttachedMember]


class ConsumedHistory(Protocol):
    """The messages of the stream, as far as a consumer has to know them."""

    def settled_end(self) -> int:
        """The first position that is not settled."""

    def key_of(self, position: int) -> bytes:
        """The key of a message."""

    def links(self, position: int) -> MessageLinks:
        """The publisher of a message, and which messages it says to follow."""


class Readiness:
    """Mode ``any``; the other modes hold some messages back. ``is_leased`` says whether a member holds a message."""

    # Whether a message may be handed out as soon as it comes into view, and nothing waits until it is done.
    waits_for_nothing = True

    def __init__(self, consumer: Consumer, history: ConsumedHistory, is_leased: Callable[[int], bool]) -> None:
        self.consumer = consumer
        self.history = history
        self._is_leased = is_leased
        self._cursor = consumer.done_below
        # Messages that may be handed out now, the earliest first.
        self._ready: list[int] = []
        # By message that came back: the member that had it.
        self._former: dict[int, int] = {}
        self._turn = 0

    def take(self, members: Members, leased: int) -> Choice | None:
        """The next message and the member that gets it; None if there is none, or no member has room."""
        with_room = [member for member in members.values() if member.leased < member.window and not member.is_paused]
        while with_room:
            if not self._ready and self.waits_for_nothing:
                position = self._next_position(leased)
                return None if position < 0 else (position, self._next_member(with_room, ANYBODY))
            while not self._ready and self._look_at_next(leased):
                pass
            if not self._ready:
                return None
            position = heappop(self._ready)
            former = self._former.pop(position, ANYBODY)
            if not self.consumer.is_done(position):
                return position, self._next_member(with_room, former)
        return None

    def _next_member(self, with_room: list[AttachedMember], former: int) -> AttachedMember:
        """Members take turns; a message that came back goes to another one than before, if another one has room."""
        self._turn += 1
        if former != ANYBODY:
            with_room = [member for member in with_room if member.number != former] or with_room
        return with_room[self._turn % len(with_room)]

    def _look_at_next(self, leased: int) -> bool:
        """Bring a message into view; false if the window is full or the stream ends."""
        position = self._next_position(leased)
        if position >= 0:
            self._came_into_view(position)
        return position >= 0

    def _next_position(self, leased: int) -> int:
        """The next message that comes into view; -1 if the window is full or the stream ends."""
        if leased + self.held_back() >= self.consumer.settings.pending_at_most:
            return -1
        end = self.history.settled_end()
        while self._cursor < end:
            position = self._cursor
            self._cursor += 1
            if not self.consumer.is_done(position) and not self._is_leased(position):
                return position
        return -1

    def held_back(self) -> int:
        """How many messages are in view and wait for others."""
        return 0

    def _came_into_view(self, position: int) -> None:
        heappush(self._ready, position)

    def held(self, position: int, member: int) -> None:
        """A member holds a message since before this leader."""

    def paused(self, position: int) -> None:
        """A message is in nobody's hands, and is not to be handed out yet."""

    def came_back(self, position: int, former: int) -> None:
        """A message that was paused is to be handed out again; ``former`` is the member that had it."""
        self._former[position] = former
        if self._is_in_view(position):
            heappush(self._ready, position)

    def _is_in_view(self, position: int) -> bool:
        """Whether a message was in view: those that members hold since before this leader may come back earlier.

        They come into view behind the messages before them.
        """
        return position < self._cursor

    def done(self, position: int, was_paused: bool) -> None:
        """A message that was handed out is done."""

    def pass_over(self, earliest: int) -> None:
        """The messages before a position are removed, and count as done."""
        self._cursor = max(self._cursor, earliest)


class CausalReadiness(Readiness):
    """Mode ``causal``: a message waits until everything that it follows is done."""

    waits_for_nothing = False

    def __init__(self, consumer: Consumer, history: ConsumedHistory, is_leased: Callable[[int], bool]) -> None:
        super().__init__(consumer, history, is_leased)
        # By a message that is not done: those that wait for it.
        self._waiting: dict[int, list[int]] = {}
        self._held_back = 0
        self._pending = PendingMessages(history.links, consumer.is_done)

    def held_back(self) -> int:
        return self._held_back

    def _came_into_view(self, position: int) -> None:
        self._pending.add(position)
        before = self._pending.first_awaited(position)
        if before is None:
            heappush(self._ready, position)
        else:
            # One is enough to wait for: when it is done the others are looked at.
            self._waiting.setdefault(before, []).append(position)
            self._held_back += 1

    def held(self, position: int, member: int) -> None:
        self._pending.add(position)

    def done(self, position: int, was_paused: bool) -> None:
        self._pending.remove(position)
        for waiting in self._waiting.pop(position, ()):
            self._held_back -= 1
            if not self.consumer.is_done(waiting):
                self._came_into_view(waiting)

    def pass_over(self, earliest: int) -> None:
        super().pass_over(earliest)
        self._pending.pass_over(earliest)
        for before in sorted(each for each in self._waiting if each < earliest):
            self.done(before, was_paused=False)


class WaitingKey:
    """The messages of one key that are in view: those that a member holds, and those that wait, in order."""

    def __init__(self) -> None:
        self.member = ANYBODY
        # The member that had the message that came back last.
        self.former = ANYBODY
        self.leased = 0
        self.paused = 0
        self.waiting: deque[int] = deque()
        # Under whom it is listed as having something to hand out.
        self.listed: int | None = None


class KeyReadiness(Readiness):
    """Mode ``key``: the messages of a key go to one member, in order, as long as it holds one of them."""

    waits_for_nothing = False

    def __init__(self, consumer: Consumer, history: ConsumedHistory, is_leased: Callable[[int], bool]) -> None:
        super().__init__(consumer, history, is_leased)
        self._queues: dict[bytes, WaitingKey] = {}
        self._held_back = 0
        # Keys with messages to hand out, by the member that must get them.
        self._listed: dict[int, dict[bytes, None]] = {}

    def held_back(self) -> int:
        return self._held_back

    def take(self, members: Members, leased: int) -> Choice | None:
        with_room = [member for member in members.values() if member.has_room]
        if not with_room:
            return None
        while True:
            found = self._take_listed(members, with_room)
            if found is not None or not self._look_at_next(leased):
                return found

    def _take_listed(self, members: Members, with_room: list[AttachedMember]) -> Choice | None:
        for place in (*(member.number for member in with_room), ANYBODY):
            while keys := self._listed.get(place):
                key = next(iter(keys))
                queue = self._queues[key]
                position = queue.waiting.popleft()
                self._held_back -= 1
                if self.consumer.is_done(position):
                    self._list(key, queue)
                    continue
                member = self._next_member(with_room, queue.former) if place == ANYBODY else members[place]
                queue.member, queue.former = member.number, ANYBODY
                queue.leased += 1
                self._list(key, queue)
                return position, member
        return None

    def _list(self, key: bytes, queue: WaitingKey) -> None:
        """List a key under the member that must get its next message; under nobody while one waits for its time."""
        place = queue.member if queue.leased else ANYBODY
        # A member that let one of them come back gets no more of the key: it works off those that it holds, or their
        # leases end, and then the key goes on.
        is_leaving = queue.leased > 0 and queue.former == queue.member
        wanted = None if queue.paused or is_leaving or not queue.waiting else place
        if wanted != queue.listed:
            if queue.listed is not None:
                self._listed[queue.listed].pop(key)
                if not self._listed[queue.listed]:
                    del self._listed[queue.listed]
            if wanted is not None:
                self._listed.setdefault(wanted, {})[key] = None
            queue.listed = wanted
        if not queue.waiting and not queue.leased and not queue.paused:
            del self._queues[key]

    def _came_into_view(self, position: int) -> None:
        key = self.history.key_of(position)
        queue = self._queues.setdefault(key, WaitingKey())
        queue.waiting.append(position)
        self._held_back += 1
        self._list(key, queue)

    def held(self, position: int, member: int) -> None:
        queue = self._queues.setdefault(self.history.key_of(position), WaitingKey())
        queue.member = member
        queue.leased += 1
        self._list(self.history.key_of(position), queue)

    def paused(self, position: int) -> None:
        key = self.history.key_of(position)
        queue = self._queues[key]
        queue.leased -= 1
        queue.paused += 1
        self._list(key, queue)

    def _take_off(self, position: int, was_paused: bool) -> tuple[bytes, WaitingKey]:
        """A message is in nobody's hands any more."""
        key = self.history.key_of(position)
        queue = self._queues[key]
        queue.paused -= was_paused
        queue.leased -= not was_paused
        return key, queue

    def came_back(self, position: int, former: int) -> None:
        key, queue = self._take_off(position, was_paused=True)
        queue.former = former
        if self._is_in_view(position):
            queue.waiting.appendleft(position)
            if len(queue.waiting) > 1 and position > queue.waiting[1]:
                queue.waiting = deque(sorted(queue.waiting))
            self._held_back += 1
        self._list(key, queue)

    def done(self, position: int, was_paused: bool) -> None:
        self._list(*self._take_off(position, was_paused))


def readiness_for(consumer: Consumer, history: ConsumedHistory, is_leased: Callable[[int], bool]) -> Readiness:
    """The readiness of a consumer's mode."""
    kinds = {"any": Readiness, "key": KeyReadiness, "causal": CausalReadiness}
    return kinds[consumer.settings.mode](consumer, history, is_leased)
