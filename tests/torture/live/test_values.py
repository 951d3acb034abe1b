"""Messages of live campaigns have every size that there may be, and in all a bounded number of bytes."""

from __future__ import annotations

import random

import pytest

from antiphon.api.publisher import VALUE_BYTES_AT_MOST
from antiphon.torture.live.values import Name, Sizes, name_in


@pytest.mark.parametrize("size", [1, 2, 63, 100_000, VALUE_BYTES_AT_MOST])
def test_a_value_has_its_size_and_is_that_of_its_name(size: int) -> None:
    name = Name(1_048_576, 12, 3, size)
    assert name_in(name.header()) == name
    assert len(name.value()) == size and name.value() == name_in(name.header()).value()
    assert size < 10 or name.value() != name._replace(number=13).value()


def test_publishers_send_messages_from_one_byte_to_the_largest_and_most_are_small() -> None:
    drawn = [[sizes.next() for _ in range(1200)] for sizes in (Sizes(random.Random(seed)) for seed in range(200))]
    everything = [size for one in drawn for size in one]
    assert min(everything) == 1 and max(everything) == VALUE_BYTES_AT_MOST
    assert sum(size <= 64 for size in everything) > 0.6 * len(everything)
    assert all(any(low <= size < 4 * low for size in everything) for low in (4, 64, 1 << 10, 1 << 14, 1 << 18, 1 << 20))


def test_a_minute_of_eight_publishers_is_less_than_eighty_megabytes() -> None:
    """A message is on the disks of all nodes: that is some hundred."""
    for first in range(0, 80, 8):
        publishers = [Sizes(random.Random(first + number)) for number in range(8)]
        assert sum(sizes.next() for sizes in publishers for _ in range(1200)) < 80_000_000
