"""The weights by which StaN chooses neighbours: pseudo-random, different at each node, the same for every topic.

Thesis of M. Matos, Algorithm 1. A node weighs all others by a hash of its own identifier and theirs. Weights are
uniform, so that overlays stay random graphs; they do not depend on the topic, so that overlapping topics choose the
same neighbours; and the weight of one node at another is independent of the reverse, so that neighbours do not cluster.

Where this departs from the thesis: it concatenates two identifiers as text, by which ``1 23`` and ``12 3`` weigh the
same. Here each node has a permutation of all identifiers there can be: the weight of a node is its **rank** in it. So
no two nodes weigh the same, a rank says whose it is, and the lowest of many can be found from either end: by ranking
all members of a topic, or by counting ranks up from 0 until enough are members
(:mod:`antiphon_lab.universes.stan_links`).

A permutation is three rounds of exclusive or with a secret, a shift, and a product with an odd number, all modulo
``2**22``. Each of them can be undone. All numbers fit 44 bits.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.message import SOURCE_BITS
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64, product64

NODE_BITS: Final = SOURCE_BITS
NODE_MASK: Final[i64] = (1 << 22) - 1
SHIFT: Final[i64] = 11
"""Half of the bits: ``x ^ (x >> 11)`` undoes itself."""

FIRST_FACTOR: Final[i64] = 0x30AAAD
SECOND_FACTOR: Final[i64] = 0x1A2D97
THIRD_FACTOR: Final[i64] = 0x2C8647
FIRST_INVERSE: Final[i64] = pow(0x30AAAD, -1, 1 << 22)
SECOND_INVERSE: Final[i64] = pow(0x1A2D97, -1, 1 << 22)
THIRD_INVERSE: Final[i64] = pow(0x2C8647, -1, 1 << 22)


def secret_of(node: int, key: int) -> int:
    """The secret of a node's permutation, 64 bits. Systems with different keys have unrelated permutations."""
    return mix64(mix64(key) + product64(node + 1, GOLDEN_GAMMA))


@final
class Ranking:
    """How one node ranks all others."""

    def __init__(self, node: i64, key: i64) -> None:
        secret = secret_of(node, key)
        self._first: Final[i64] = secret & 0x3FFFFF
        self._second: Final[i64] = (secret >> 22) & 0x3FFFFF
        self._third: Final[i64] = secret >> 44

    def rank_of(self, node: i64) -> i64:
        """The weight of a node; the less the better."""
        word = node ^ self._first
        word = ((word ^ (word >> SHIFT)) * FIRST_FACTOR) & NODE_MASK
        word ^= self._second
        word = ((word ^ (word >> SHIFT)) * SECOND_FACTOR) & NODE_MASK
        word ^= self._third
        word = ((word ^ (word >> SHIFT)) * THIRD_FACTOR) & NODE_MASK
        return word ^ (word >> SHIFT)

    def node_of(self, rank: i64) -> i64:
        """Whose rank it is."""
        word = rank ^ (rank >> SHIFT)
        word = (word * THIRD_INVERSE) & NODE_MASK
        word = word ^ (word >> SHIFT) ^ self._third
        word = (word * SECOND_INVERSE) & NODE_MASK
        word = word ^ (word >> SHIFT) ^ self._second
        word = (word * FIRST_INVERSE) & NODE_MASK
        return word ^ (word >> SHIFT) ^ self._first
