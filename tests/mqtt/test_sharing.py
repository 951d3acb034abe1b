"""Groups of shared subscriptions in a small world: doors that come and go, and notices that are late.

The judge knows only which messages came to which doors, and which of them handed each out.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any

import pytest

from antiphon.mqtt.protocol.sharing import HELD_AT_MOST, GroupMember, Series, ShareClaim, ShareGroup

SERIES = Series("t", 9)


class World:
    """Doors with members of one group, connected by links that keep the order and take their time."""

    def __init__(self, doors: int, seed: int) -> None:
        self.random = Random(seed)
        self.doors = {door: ShareGroup[int](door) for door in range(doors)}
        self.links: dict[tuple[int, int], deque[tuple[str, Any]]] = {
            (one, other): deque() for one in self.doors for other in self.doors if one != other
        }
        self.handed: Counter[int] = Counter()
        self.members: Counter[GroupMember | None] = Counter()
        self.sequence = 0
        self.now = 0

    def tell(self, door: int, kind: str, value: Any) -> None:
        for (one, _), link in self.links.items():
            if one == door:
                link.append((kind, value))

    def join(self, door: int, *members: int) -> None:
        self.now += 1
        own = self.doors[door].own
        claim = ShareClaim(self.now if own is None else own.since_us, members)
        self.hand(door, self.doors[door].claim(door, claim))
        self.tell(door, "claim", claim)

    def crash(self, door: int) -> None:
        """A door is gone; its last notices may still arrive, and then the others find out."""
        del self.doors[door]
        for (one, _), link in self.links.items():
            if one == door:
                link.append(("gone", None))
        self.links = {pair: link for pair, link in self.links.items() if pair[1] != door}

    def hand(self, door: int, messages: list[int]) -> None:
        for each in messages:
            self.handed[each] += 1
            self.members[self.doors[door].next_member()] += 1

    def publish(self) -> None:
        self.sequence += 1
        for door, group in self.doors.items():
            if group.own is not None and group.take(SERIES, self.sequence, self.sequence):
                self.hand(door, [self.sequence])

    def mark(self, door: int) -> None:
        marks = self.doors[door].untold()
        if marks:
            self.tell(door, "marks", marks)

    def arrive(self) -> None:
        """The next notice of some link arrives."""
        (one, other), link = self.random.choice([each for each in self.links.items() if each[1]])
        kind, value = link.popleft()
        group = self.doors[other]
        if kind == "claim":
            self.hand(other, group.claim(one, value))
        elif kind == "marks":
            group.handed_out(value)
        else:
            self.hand(other, group.give_up(one))

    def settle(self) -> None:
        while any(self.links.values()):
            self.arrive()


def test_each_message_goes_to_one_member_and_all_members_get_as_many() -> None:
    world = World(3, 1)
    for door in world.doors:
        world.join(door, 10 * door + 1, 10 * door + 2)
    world.settle()
    for _ in range(60):
        world.publish()
    assert set(world.handed.values()) == {1}
    assert sum(world.handed.values()) == 60
    assert sorted(world.members.values()) == [10] * 6


def test_members_without_a_connection_get_something_only_if_no_other_is_there() -> None:
    group = ShareGroup[int](0)
    group.claim(0, ShareClaim(1, (1,), (2,)))
    assert {group.next_member() for _ in range(4)} == {GroupMember(0, 1)}
    group.claim(0, ShareClaim(1, (), (1, 2)))
    assert {group.next_member() for _ in range(4)} == {GroupMember(0, 1), GroupMember(0, 2)}


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_passed_over_when_doors_come_and_go(seed: int) -> None:
    world = World(4, seed)
    chance = world.random
    world.join(0, 1)
    world.settle()
    for _ in range(200):
        step = chance.random()
        if step < 0.5:
            world.publish()
        elif step < 0.75 and any(world.links.values()):
            world.arrive()
        elif step < 0.85:
            world.mark(chance.choice(list(world.doors)))
        elif step < 0.95:
            world.join(chance.choice(list(world.doors)), chance.randrange(5))
        elif len(world.doors) > 2 and world.doors.keys() - {0} and seed % 2:
            # The owner, or another one: but one that all know has taken part stays.
            known = [door for door, group in world.doors.items() if group.own is not None]
            if len(known) > 2:
                world.settle()
                world.crash(chance.choice(known))
    world.settle()
    lost = [number for number in range(1, world.sequence + 1) if not world.handed[number]]
    assert lost == []
    assert sum(group.is_owned_here for group in world.doors.values()) == 1


def test_only_what_the_last_owner_did_not_tell_of_comes_twice() -> None:
    world = World(2, 1)
    world.join(0, 1)
    world.join(1, 2)
    world.settle()
    for number in range(10):
        world.publish()
        if number == 6:
            world.mark(0)
            world.settle()
    world.crash(0)
    world.settle()
    assert [world.handed[number] for number in range(1, 11)] == [1] * 7 + [2] * 3


def test_a_door_holds_back_a_bounded_number() -> None:
    group = ShareGroup[int](1)
    group.claim(0, ShareClaim(1, (1,)))
    group.claim(1, ShareClaim(2, (2,)))
    for number in range(1, HELD_AT_MOST + 50):
        assert not group.take(SERIES, number, number)
    assert group.held == HELD_AT_MOST
    group.handed_out([(*SERIES, HELD_AT_MOST + 40)])
    assert group.held == 9
    assert group.give_up(0) == list(range(HELD_AT_MOST + 41, HELD_AT_MOST + 50))
