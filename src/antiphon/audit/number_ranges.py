"""Numbers of one publisher as ranges, for judges: they share no code with the protocols that they judge."""

from __future__ import annotations

import msgspec


class NumberRanges(msgspec.Struct, array_like=True):
    """A set of numbers as ranges in order, each with its first and its last."""

    ranges: list[list[int]] = []

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.ranges)

    def copy(self) -> NumberRanges:
        """A copy of the set."""
        return NumberRanges([list(each) for each in self.ranges])

    def add(self, number: int, most_ranges: int | None = None) -> bool:
        """Add a number; whether it is new. Beyond ``most_ranges`` ranges the lowest are forgotten."""
        ranges = self.ranges
        place = len(ranges)
        while place > 0 and ranges[place - 1][0] > number:
            place -= 1
        if place > 0 and number <= ranges[place - 1][1]:
            return False
        if place > 0 and number == ranges[place - 1][1] + 1:
            ranges[place - 1][1] = number
            if place < len(ranges) and ranges[place][0] == number + 1:
                ranges[place - 1][1] = ranges.pop(place)[1]
        elif place < len(ranges) and ranges[place][0] == number + 1:
            ranges[place][0] = number
        else:
            ranges.insert(place, [number, number])
            if most_ranges is not None:
                del ranges[:-most_ranges]
        return True

    def add_all(self, other: NumberRanges) -> None:
        """Add another set."""
        for first, last in other.ranges:
            for number in range(first, last + 1):
                self.add(number)

    def remove_up_to(self, number: int) -> int:
        """Remove all numbers up to one and those that follow without a gap; returns the last of them, or else
        ``number``.
        """
        while self.ranges and self.ranges[0][0] <= number + 1:
            number = max(number, self.ranges.pop(0)[1])
        return number
