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

# Numbers of 64 bits are pairs of words here, the higher one first. A signal may end Python's own multiplication of long
# integers, and compiled code then aborts the process ("fatal: out of memory"): Ctrl-C would lose what a campaign found.


def mix64(value: int) -> int:
    """The finaliser of SplitMix64: a bijection of the 64-bit integers that scatters neighbours."""
    high, low = _mixed(_high(value), _low(value))
    return (int(high) << 32) | int(low)


def product64(left: int, right: int) -> int:
    """The low 64 bits of a product."""
    high, low = _product(_high(left), _low(left), _high(right), _low(right))
    return (int(high) << 32) | int(low)


def _high(value: int) -> i64:
    return i64((value >> 32) & 0xFFFFFFFF)


def _low(value: int) -> i64:
    return i64(value & 0xFFFFFFFF)


def _product(high: i64, low: i64, by_high: i64, by_low: i64) -> tuple[i64, i64]:
    """The low 64 bits of a product. Words times halves of words stay below 2**63."""
    middle: i64 = low * (by_low >> 16)
    lower: i64 = low * (by_low & 0xFFFF) + ((middle & 0xFFFF) << 16)
    higher: i64 = (lower >> 32) + (middle >> 16) + _low_product(low, by_high) + _low_product(high, by_low)
    return higher & WORD, lower & WORD


def _low_product(left: i64, right: i64) -> i64:
    """The low 32 bits of a product of two words."""
    return (left * (right & 0xFFFF) + (((left * (right >> 16)) & 0xFFFF) << 16)) & WORD


def _mixed(high: i64, low: i64) -> tuple[i64, i64]:
    high, low = _product(high ^ (high >> 30), low ^ ((low >> 30) | ((high << 2) & WORD)), 0xBF58476D, 0x1CE4E5B9)
    high, low = _product(high ^ (high >> 27), low ^ ((low >> 27) | ((high << 5) & WORD)), 0x94D049BB, 0x133111EB)
    return high ^ (high >> 31), low ^ ((low >> 31) | ((high << 1) & WORD))


def _mixed_sum(high: i64, low: i64, more_high: i64, more_low: i64) -> tuple[i64, i64]:
    low += more_low
    return _mixed((high + more_high + (low >> 32)) & WORD, low & WORD)


class RandomStream:
    """One independent stream, named by a seed and any number of integers (purpose, node, ...)."""

    def __init__(self, seed: int, *names: int) -> None:
        high, low = _mixed(_high(seed), _low(seed))
        for name in names:
            more_high, more_low = _product(_high(name + 1), _low(name + 1), 0x9E3779B9, 0x7F4A7C15)
            high, low = _mixed_sum(high, low, more_high, more_low)
        self._b, self._a = _mixed_sum(high, low, 0x9E3779B9, 0x7F4A7C15)
        self._d, self._c = _mixed_sum(high, low, 0x3C6EF372, 0xFE94F82A)
        # The state must not be all zeros.
        self._d |= 1

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
