"""Random numbers: the published generators, the promised ranges, repeatability."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.kernel import RandomStream, mix64, product64

GOLDEN_GAMMA = 0x9E3779B97F4A7C15
SEEDS = st.integers(-(1 << 70), 1 << 70)

# The 99.9 % quantiles of chi-square; the samples are fixed, so a good generator stays below for good.
QUANTILE_2_DEGREES = 13.82
QUANTILE_9_DEGREES = 27.88
QUANTILE_255_DEGREES = 330.5


def test_mix64_gives_the_published_splitmix64_outputs() -> None:
    """The first outputs of SplitMix64 from seed 0, as published with the generator."""
    outputs = [mix64(step * GOLDEN_GAMMA) for step in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def unmix64(value: int) -> int:
    """The inverse of mix64, from the inverses of its steps."""
    word = (1 << 64) - 1
    value ^= (value >> 31) ^ (value >> 62)
    value = value * pow(0x94D049BB133111EB, -1, 1 << 64) & word
    value ^= (value >> 27) ^ (value >> 54)
    value = value * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & word
    return value ^ (value >> 30) ^ (value >> 60)


@given(st.integers(0, (1 << 64) - 1))
def test_mix64_is_a_bijection(value: int) -> None:
    assert unmix64(mix64(value)) == value


@given(SEEDS)
def test_mix64_looks_at_the_low_64_bits(value: int) -> None:
    assert mix64(value) == mix64(value % (1 << 64))


@given(SEEDS, SEEDS)
@example((1 << 64) - 1, (1 << 64) - 1)
def test_a_product_has_the_low_64_bits_of_the_real_one(left: int, right: int) -> None:
    assert product64(left, right) == left * right % 2**64


INTERRUPTED = """
import signal
from antiphon.kernel import RandomStream

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGVTALRM, interrupt)
names = list(range(100_000))
for _ in range(10):
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
        while True:
            RandomStream(1, *names)
    except KeyboardInterrupt:
        pass
"""


def test_a_signal_while_numbers_are_made_ends_in_an_exception_and_not_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def rotated(word: int, count: int) -> int:
    """A 32-bit rotation to the left, by way of text."""
    bits = f"{word:032b}"
    return int(bits[count:] + bits[:count], 2)


def xoshiro128plusplus(state: list[int]) -> Iterator[int]:
    """The generator as Blackman and Vigna print it, on a list of four words."""
    while True:
        yield (rotated((state[0] + state[3]) % 2**32, 7) + state[0]) % 2**32
        shifted = state[1] * 2**9 % 2**32
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= shifted
        state[3] = rotated(state[3], 11)


def test_the_model_is_xoshiro128plusplus() -> None:
    """The outputs that implementations of the generator publish for the state 1, 2, 3, 4."""
    expected = [641, 1573767, 3222811527, 3517856514, 836907274, 4247214768, 3867114732, 1355841295]
    assert list(islice(xoshiro128plusplus([1, 2, 3, 4]), 8)) == expected


@given(SEEDS, st.lists(st.integers(0, 1 << 40), max_size=3))
def test_words_are_those_of_xoshiro128plusplus(seed: int, names: list[int]) -> None:
    """The state comes from SplitMix64, as the authors of the generator recommend; the last word is made odd."""
    state = mix64(seed)
    for name in names:
        state = mix64(state + (name + 1) * GOLDEN_GAMMA)
    low, high = mix64(state + GOLDEN_GAMMA), mix64(state + 2 * GOLDEN_GAMMA)
    words = xoshiro128plusplus([low % 2**32, low // 2**32, high % 2**32, (high // 2**32) | 1])
    stream = RandomStream(seed, *names)
    assert [stream.word() for _ in range(20)] == list(islice(words, 20))


def test_streams_with_different_names_differ() -> None:
    names: list[tuple[int, ...]] = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2, 7), (7, 2)]
    first_words = {tuple(stream.word() for _ in range(2)) for stream in (RandomStream(1, *name) for name in names)}
    assert len(first_words) == len(names)


@given(st.integers(0, 1000), st.integers(1, 1 << 31))
def test_below_stays_below_its_bound(seed: int, bound: int) -> None:
    stream = RandomStream(seed)
    assert all(0 <= stream.below(bound) < bound for _ in range(50))


@given(st.integers(0, 1000), st.integers(-(1 << 40), 1 << 40), st.integers(0, 1 << 20))
def test_between_includes_both_ends(seed: int, low: int, width: int) -> None:
    stream = RandomStream(seed)
    assert all(low <= stream.between(low, low + width) <= low + width for _ in range(50))
    assert {RandomStream(seed, name).between(low, low + 1) for name in range(40)} == {low, low + 1}


@pytest.mark.parametrize("bound", [0, -1, (1 << 31) + 1])
def test_below_refuses_bounds_it_cannot_serve(bound: int) -> None:
    with pytest.raises(AssertionError, match="must be from 1 to 2"):
        RandomStream(1).below(bound)


def chi_square(counts: list[int]) -> float:
    """How far counts are from being equal."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


def test_below_is_uniform() -> None:
    stream = RandomStream(1)
    counts = [0] * 10
    for _ in range(20_000):
        counts[stream.below(10)] += 1
    assert chi_square(counts) < QUANTILE_9_DEGREES


def test_below_is_uniform_where_rejection_matters() -> None:
    """With a bound of 3 * 2**29 one result in three would be a third less likely, were no word rejected."""
    stream = RandomStream(2)
    counts = [0] * 3
    for _ in range(15_000):
        counts[stream.below(3 << 29) % 3] += 1
    assert chi_square(counts) < QUANTILE_2_DEGREES


def test_every_byte_of_a_word_is_uniform() -> None:
    stream = RandomStream(3)
    words = [stream.word() for _ in range(20_000)]
    for shift in (0, 8, 16, 24):
        counts = [0] * 256
        for word in words:
            counts[(word >> shift) & 0xFF] += 1
        assert chi_square(counts) < QUANTILE_255_DEGREES


def test_uniform_is_in_the_half_open_interval_and_even() -> None:
    stream = RandomStream(4)
    sample = [stream.uniform() for _ in range(20_000)]
    assert all(0 <= number < 1 for number in sample)
    assert all((number * 2**53).is_integer() for number in sample)
    counts = [0] * 10
    for number in sample:
        counts[int(number * 10)] += 1
    assert chi_square(counts) < QUANTILE_9_DEGREES


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_chance_is_as_likely_as_asked(probability: float) -> None:
    stream = RandomStream(5)
    hits = sum(stream.chance(probability) for _ in range(10_000))
    # Four standard deviations of a binomial law; exact at 0 and 1.
    assert abs(hits - 10_000 * probability) <= 4 * (10_000 * probability * (1 - probability)) ** 0.5
