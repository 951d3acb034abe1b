"""The weights by which StaN chooses neighbours: pseudo-random, different at each node, the same for every topic.

Thesis of M. Matos, Algorithm 1. A node ranks all others by a hash of its own identifier and theirs. Ranks are uniform,
so that overlays stay random graphs; they do not depend on the topic, so that overlapping topics choose the same
neighbours; and what one node thinks of another says nothing about the reverse, so that neighbours do not cluster.

Where this departs from the thesis: it concatenates two identifiers as text, by which ``1 23`` and ``12 3`` get the same
weight. Here two integers are mixed. For a given node the weight is a bijection of the 32-bit integers, so no two others
ever weigh the same. A **rank** is a weight with the identifier below it, in one integer: a list of ranks sorts by
weight, and says whose they are.

Everything fits a 64-bit integer without a sign, so that compiled, interpreted and vectorised code agree.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

WORD: Final[i64] = 0xFFFFFFFF
FIRST_FACTOR: Final[i64] = 0x21F0AAAD
SECOND_FACTOR: Final[i64] = 0x735A2D97
"""Factors of a well-tested mixer of 32-bit words. Below 2**31: a product with a word fits 63 bits."""
TARGET_FACTOR: Final[i64] = 0x61C88647
OWNER_FACTOR: Final[i64] = 0x2545F491
"""Odd, so multiplying by them is a bijection too. They differ, so a node as owner is another one as target."""

NODE_BITS: Final = 22
NODE_MASK: Final[i64] = (1 << 22) - 1


def mixed(word: i64) -> i64:
    """A bijection of the 32-bit integers that scatters neighbours."""
    word = word ^ (word >> 16)
    word = (word * FIRST_FACTOR) & WORD
    word = word ^ (word >> 15)
    word = (word * SECOND_FACTOR) & WORD
    return word ^ (word >> 15)


def salt_of(node: i64, key: i64) -> i64:
    """What makes a node's ranking its own. Systems with different keys have unrelated rankings."""
    return mixed(mixed((node * OWNER_FACTOR) & WORD) ^ (key & WORD))


def weight_of(salt: i64, node: i64) -> i64:
    """What the owner of a salt thinks of a node; the less the better."""
    return mixed(((node * TARGET_FACTOR) & WORD) ^ salt)


def rank_of(salt: i64, node: i64) -> i64:
    """The weight, and below it the node."""
    return (weight_of(salt, node) << NODE_BITS) | node


def node_of(rank: i64) -> i64:
    """Whose rank it is."""
    return rank & NODE_MASK
