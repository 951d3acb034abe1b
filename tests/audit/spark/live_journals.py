"""Journals of a campaign that never was: what applications write down when everything goes well."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ORDERS = ("none", "fifo", "causal", "total")
STEP_US = 1000


@dataclass
class Place:
    """Where applications follow each other: each has another identity, and its client another node now and then."""

    number: int
    count: int
    life: int = 0
    lines: list[str] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)
    unseen: list[tuple[int, int, int, str]] = field(default_factory=list)

    @property
    def identity(self) -> int:
        """Of the application that is there now."""
        return self.number + self.life * self.count

    def begin(self, now_us: int, topics: int) -> None:
        """An application begins and subscribes; what is under way is not for it."""
        self.unseen.clear()
        self.asked.clear()
        door = f"door-{(self.number + self.life) % self.count}"
        self.lines += [f"begin {now_us} {self.identity}", f"node {now_us} {door}"]
        self.lines += [f"ready {now_us} {topic}" for topic in range(topics)]

    def end(self, now_us: int, topics: int) -> None:
        """The application ends."""
        self.lines += [f"end {now_us} {topic}" for topic in range(topics)]
        self.life += 1

    def see(self, now_us: int, count: int) -> None:
        """Some of what is under way comes."""
        for topic, identity, number, order in self.unseen[:count]:
            self.lines.append(f"see {now_us} {topic} {identity} {number} {order}")
        del self.unseen[:count]

    def miss(self, now_us: int, topics: int) -> None:
        """The application is told that messages are missing; what is under way does not come."""
        self.unseen.clear()
        self.lines += [f"gap {now_us} {topic}" for topic in range(topics)]


def well_behaved(chance: random.Random, places: int, topics: int, steps: int, ends: float = 0.02) -> list[list[str]]:
    """The lines of each place. All see everything in one order, each as late as it likes; so often one ends."""
    all_places = [Place(number, places) for number in range(places)]
    for place in all_places:
        place.begin(1, topics)
    for step in range(1, steps):
        now_us = step * STEP_US
        place = chance.choice(all_places)
        happens = chance.random()
        if happens < ends:
            # Others have seen all that its application published, as that waits before it ends.
            for each in all_places:
                each.see(now_us, len(each.unseen))
            place.end(now_us + 1, topics)
            place.begin(now_us + 2, topics)
        elif happens < 1.5 * ends:
            place.see(now_us, sum(message[1] == place.identity for message in place.unseen) and len(place.unseen))
            place.miss(now_us + 1, topics)
        else:
            publish(chance, place, all_places, topics, now_us)
        for each in all_places:
            each.see(now_us + 9, chance.randint(0, 3))
    for place in all_places:
        place.see(steps * STEP_US, len(place.unseen))
    return [place.lines for place in all_places]


def publish(chance: random.Random, place: Place, places: list[Place], topics: int, now_us: int) -> None:
    """One message, which is accepted soon and under way to everybody."""
    topic, order = chance.randrange(topics), chance.choice(ORDERS)
    number = place.asked[topic] = place.asked.get(topic, 0) + 1
    place.lines += [f"ask {now_us} {topic} {number} {order} -", f"yes {now_us + 5} {topic} {number}"]
    for each in places:
        each.unseen.append((topic, place.identity, number, order))


def write_journals(directory: Path, places: list[list[str]]) -> None:
    """Write them where a campaign does."""
    (directory / "journals").mkdir(parents=True)
    for number, lines in enumerate(places):
        (directory / "journals" / f"application-{number}.txt").write_text("\n".join(lines) + "\n")


def seen_in(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Where something is seen, with the words of the line."""
    return ((index, line.split()) for index, line in enumerate(lines) if line.startswith("see "))
