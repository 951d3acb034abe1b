"""Shared subscriptions of a cluster: which door hands out the messages of a group, and which member gets each.

A *group* is one ``$share/NAME/FILTER``; its members are sessions, at any doors. One door *owns* it: of those that have
claimed it, the one with the earliest claim. The owner gives each message to one member, in turn, members with a
connection first. The other doors that have members hold back what comes to them, and forget it when the owner says that
it was handed out. If the owner is gone, the next door hands out what it has held back: so nothing is passed over, and
only what the last owner did not tell of any more comes twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

HELD_AT_MOST: Final = 10_000
"""So many messages a door holds back for the case that the owner is gone; beyond it the oldest are forgotten."""

SERIES_AT_MOST: Final = 10_000
"""Of so many series of messages a door knows how far they were handed out."""

M = TypeVar("M")


class Series(NamedTuple):
    """The messages of one publisher on one topic, which are numbered and come in order."""

    topic: str
    publisher: int


class GroupMember(NamedTuple):
    """A session in a group: the door where it is, and its number there."""

    door: int
    number: int


class ShareClaim(NamedTuple):
    """A report of one door about a group: since when it has it, and its members with and without a connection."""

    since_us: int
    connected: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


class ShareGroup(Generic[M]):
    """One group, as one door sees it."""

    def __init__(self, door: int) -> None:
        self._door = door
        self._claims: dict[int, ShareClaim] = {}
        self._turn = 0
        self._held: OrderedDict[tuple[Series, int], M] = OrderedDict()
        self._handed: OrderedDict[Series, int] = OrderedDict()
        # What was handed out since the others were last told.
        self._untold: dict[Series, int] = {}
        # In turn: first those with a connection, and if there are none, the others.
        self._members: list[GroupMember] = []

    # What doors say.

    @property
    def own(self) -> ShareClaim | None:
        """The claim of this door."""
        return self._claims.get(self._door)

    @property
    def is_owned_here(self) -> bool:
        """Whether this door hands the messages out."""
        return self.owner == self._door

    @property
    def owner(self) -> int | None:
        """The door that hands the messages out; None if nobody claims the group."""
        return min(self._claims, key=lambda door: (self._claims[door].since_us, door), default=None)

    @property
    def has_members(self) -> bool:
        """Whether there is anybody to give a message to."""
        return bool(self._members)

    @property
    def doors(self) -> tuple[int, ...]:
        """The doors that claim it."""
        return tuple(self._claims)

    def claim(self, door: int, claim: ShareClaim) -> list[M]:
        """A door has the group, with these members; the messages that this door now has to hand out."""
        was_owned_here = self.is_owned_here
        self._claims[door] = claim
        return self._changed(was_owned_here)

    def give_up(self, door: int) -> list[M]:
        """A door has the group no more, or is gone; the messages that this door now has to hand out."""
        was_owned_here = self.is_owned_here
        self._claims.pop(door, None)
        return self._changed(was_owned_here)

    def _changed(self, was_owned_here: bool) -> list[M]:
        claims = sorted(self._claims.items())
        connected = [GroupMember(door, number) for door, claim in claims for number in claim.connected]
        self._members = connected or [GroupMember(door, number) for door, claim in claims for number in claim.waiting]
        if was_owned_here or not self.is_owned_here or not self._held:
            return []
        held = [(*key, message) for key, message in self._held.items() if self._handed.get(key[0], 0) < key[1]]
        self._held.clear()
        for series, sequence, _ in held:
            self._note(series, sequence)
        return [message for _, _, message in held]

    # Messages.

    def take(self, series: Series, sequence: int, message: M) -> bool:
        """A message has come; whether this door is to hand it out."""
        if self._handed.get(series, 0) >= sequence:
            return False
        if self.is_owned_here:
            self._note(series, sequence)
            return True
        self._held[series, sequence] = message
        if len(self._held) > HELD_AT_MOST:
            self._held.popitem(last=False)
        return False

    def next_member(self) -> GroupMember | None:
        """The member whose turn it is; None if there is none."""
        if not self._members:
            return None
        self._turn = (self._turn + 1) % len(self._members)
        return self._members[self._turn]

    def untold(self) -> list[tuple[str, int, int]]:
        """How far each series was handed out, where that has changed since the last call: topic, publisher, number."""
        untold, self._untold = self._untold, {}
        return [(*series, sequence) for series, sequence in untold.items()]

    def handed_out(self, marks: Iterable[tuple[str, int, int]]) -> None:
        """Another door has handed out the messages of these series up to these numbers."""
        for topic, publisher, sequence in marks:
            self._remember(Series(topic, publisher), sequence)
        # The oldest come first, and the owner is seldom far behind: the loop ends soon.
        while self._held:
            series, sequence = key = next(iter(self._held))
            if self._handed.get(series, 0) < sequence:
                return
            del self._held[key]

    @property
    def held(self) -> int:
        """How many messages are held back."""
        return len(self._held)

    def _note(self, series: Series, sequence: int) -> None:
        self._remember(series, sequence)
        self._untold[series] = sequence

    def _remember(self, series: Series, sequence: int) -> None:
        self._handed[series] = max(sequence, self._handed.pop(series, 0))
        if len(self._handed) > SERIES_AT_MOST:
            self._handed.popitem(last=False)
