"""Random numbers that are the same on every machine, compiled or not, in sixteen bytes of state.

The standard library's generator needs 2.5 KiB per stream, too much for a million nodes with one stream each.
This is xoshiro128++ (Blackman and Vigna) on 32-bit words: every operation fits a 64-bit integer, so the compiled
and the interpreted code compute the same.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

WORD: Final[i64] = 0xFFFFFFFF
GOLDEN_GAMMA: Final = 0x9E3779B97F4A7C15
LONG_WORD: Final = 0xFFFFFFFFFFFFFFFF


def mix64(value: int) -> int:
    """The finaliser of SplitMix64: a bijection of the 64-bit integers that scatters neighbours."""
    value &= LONG_WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & LONG_WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & LONG_WORD
    return value ^ (value >> 31)


class RandomStream:
    """One independent stream, named by a seed and any number of integers (purpose, node, ...)."""

    def __init__(self, seed: int, *names: int) -> None:
        state = mix64(seed)
        for name in names:
            state = mix64(state + (name + 1) * GOLDEN_GAMMA)
        low = mix64(state + GOLDEN_GAMMA)
        high = mix64(state + 2 * GOLDEN_GAMMA)
        self._a: i64 = i64(low & 0xFFFFFFFF)
        self._b: i64 = i64(low >> 32)
        self._c: i64 = i64(high & 0xFFFFFFFF)
        # The state must not be all zeros; one set bit outside the seeded range rules it out.
        self._d: i64 = i64((high >> 32) | 1)

    def word(self) -> i64:
        """The next 32 random bits, as an integer from 0 to 2**32 - 1."""
        a, b, c, d = self._a, self._b, self._c, self._d
        total = (a + d) & WORD
        result = (((total << 7) & WORD | (total >> 25)) + a) & WORD
        shifted = (b << 9) & WORD
        c ^= a
        d ^= b
        self._b = b ^ c
        self._a = a ^ d
        self._c = c ^ shifted
        self._d = (d << 11) & WORD | (d >> 21)
        return result

    def below(self, bound: i64) -> i64:
        """A uniform integer from 0 to bound - 1; bound is at most 2**31."""
        assert 0 < bound <= 0x80000000, "the bound of a random integer must be from 1 to 2**31"
        # Multiply-and-shift, rejecting the few words that would make small results more likely.
        while True:
            product = self.word() * bound
            if (product & WORD) >= (0x100000000 - bound) % bound:
                return product >> 32

    def between(self, low: i64, high: i64) -> i64:
        """A uniform integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.uniform() < probability

    def uniform(self) -> float:
        """A uniform number from [0, 1), a multiple of 2**-53."""
        high: i64 = self.word() >> 5
        low: i64 = self.word() >> 6
        return (float(high) * 67108864.0 + float(low)) / 9007199254740992.0
